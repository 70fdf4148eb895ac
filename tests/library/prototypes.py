# SPDX-License-Identifier: MIT
"""What the public headers declare, read from their text."""

import collections
import os
import re

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n?", re.M)
FUNCTION = re.compile(r"^((?:[\w]+[ \t\n*]+)+?)(pollux_\w+)\s*\(([^{};]*)\)\s*;", re.M)
STRUCT = re.compile(r"^struct (pollux_\w+) \{", re.M)
INLINE = re.compile(r"^static inline [\w \t*]*?(pollux_\w+)\(", re.M)
MACRO = re.compile(r"^#define ((?:POLLUX|pollux)_\w+)", re.M)
TYPEDEF = re.compile(r"^typedef [^;]*\(\*(pollux_\w+)\)", re.M)

Function = collections.namedtuple("Function", "name header text")


def joined(text):
    """One line, and spaces only where they separate words."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*([*(),;])\s*", r"\1", text)


def headers(include):
    top = os.path.join(include, "pollux")
    return {n: os.path.join(top, n) for n in sorted(os.listdir(top)) if n.endswith(".h")}


def functions(include):
    """By name, those that the library defines."""
    found = {}
    for header, path in headers(include).items():
        with open(path, encoding="utf-8") as f:
            text = DIRECTIVE.sub("", COMMENT.sub("", f.read()))
        for m in FUNCTION.finditer(text):
            if "typedef" not in m.group(1):
                found[m.group(2)] = Function(m.group(2), header, joined(m.group(0)))
    return found


def others(include):
    """By name, the header of each structure, callback type, inline function and macro."""
    found = {}
    for header, path in headers(include).items():
        with open(path, encoding="utf-8") as f:
            text = COMMENT.sub("", f.read())
        for pattern in (STRUCT, INLINE, MACRO, TYPEDEF):
            for name in pattern.findall(text):
                if not name.endswith("_H") and name != "POLLUX_FILE_DEFINED":
                    found[name] = header
    return found
