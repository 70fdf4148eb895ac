#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the documents name what exists.

In every Markdown file of the tree: a link to a file of the tree leads to one, a path in code quotes
that begins with a folder of the tree exists (it may have patterns), and a target of make is one.  Every
term of docs/glossary.md is a word of the sources.  README.md is two screens: 100 lines of 100 columns.
"""

import glob
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = "bench|docs|examples|include|packaging|scripts|src|tests"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
PATH = re.compile(r"`((?:%s)/[^`\s]*)`" % FOLDERS)
MAKE = re.compile(r"`make ((?:[a-z0-9-]+ ?)+)(?=[`A-Z])")
TARGET = re.compile(r"^([a-z][a-z0-9 -]*):", re.M)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
TERM = re.compile(r"^\| ([^|]+?) \|", re.M)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def braces(path):
    """The paths that "a/{b,c}.d" stands for."""
    m = re.search(r"\{([^{}]*)\}", path)
    if not m:
        return [path]
    return [p for word in m.group(1).split(",")
            for p in braces(path[:m.start()] + word.strip() + path[m.end():])]


def documents():
    """Markdown files: of the top, and below docs, whatever git says of them."""
    return sorted(glob.glob(os.path.join(TOP, "*.md")) +
                  glob.glob(os.path.join(TOP, "docs", "**", "*.md"), recursive=True))


def sources():
    """What a program or a reader of the code meets as words, letters in lower case."""
    text = []
    for folder in "include", "src":
        for path in glob.glob(os.path.join(TOP, folder, "**", "*.[ch]"), recursive=True):
            text.append(read(path).lower())
    return re.sub(r"[\s*]+", " ", " ".join(text))


def check_links(path, problems):
    text = read(path)
    name = os.path.relpath(path, TOP)
    targets = {t for line in TARGET.findall(read(os.path.join(TOP, "Makefile"))) for t in line.split()}
    for link in LINK.findall(FENCE.sub("", text)):
        if not os.path.exists(os.path.join(os.path.dirname(path), link)):
            problems.append("%s: the link to %s leads nowhere" % (name, link))
    for quoted in PATH.findall(text):
        for one in braces(quoted):
            if not glob.glob(os.path.join(TOP, one)):
                problems.append("%s: there is no %s" % (name, one))
    for words in MAKE.findall(text):
        for word in words.split():
            if word not in targets:
                problems.append("%s: make has no target %s" % (name, word))


def check_glossary(problems):
    words = sources()
    for term in TERM.findall(read(os.path.join(TOP, "docs", "glossary.md"))):
        if term == "Term" or set(term) <= set("-"):
            continue
        if not any(t.strip().lower() in words for t in term.split(",")):
            problems.append("docs/glossary.md: no source says \"%s\"" % term)


def check_readme(problems):
    lines = read(os.path.join(TOP, "README.md")).splitlines()
    if len(lines) > 100:
        problems.append("README.md: more than 100 lines (%d)" % len(lines))
    for n, line in enumerate(lines, 1):
        if len(line) > 100:
            problems.append("README.md:%d: more than 100 columns" % n)


def main():
    problems = []
    for path in documents():
        check_links(path, problems)
    check_glossary(problems)
    check_readme(problems)
    for p in problems:
        print(p)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
