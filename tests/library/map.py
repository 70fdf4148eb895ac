#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""map.py INCLUDE MAP LIBRARY: every function that a public header declares is in the map, in one
node, and defined by the library in that version; and nothing else is."""

import re
import subprocess
import sys

import prototypes


def nodes(path):
    with open(path, encoding="ascii") as f:
        text = prototypes.COMMENT.sub("", f.read())
    found = []
    for name, body in re.findall(r"(POLLUX_[\d.]+)\s*\{(.*?)\}", text, re.S):
        body = body.split("local:")[0].replace("global:", "")
        found += [(s, name) for s in re.findall(r"[^\s;]+", body)]
    return found


def main():
    include, path, library = sys.argv[1:]
    declared = set(prototypes.functions(include))
    mapped = nodes(path)
    out = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True,
                         check=True).stdout
    shown = {tuple(s.split("@@")) for s in (line.split()[-1] for line in out.splitlines()) if "@@" in s}
    wrong = []
    for name in sorted(declared - {s for s, _ in mapped}):
        wrong.append("%s is declared and not in the map" % name)
    for name in sorted({s for s, _ in mapped} - declared):
        wrong.append("%s is in the map and not declared" % name)
    for name in sorted({s for s, _ in mapped if [x for x, _ in mapped].count(s) > 1}):
        wrong.append("%s is in the map twice" % name)
    for s, node in sorted(set(mapped) - shown):
        wrong.append("%s@@%s is in the map and not in the library" % (s, node))
    for s, node in sorted(shown - set(mapped)):
        wrong.append("%s@@%s is in the library and not in the map" % (s, node))
    print("\n".join(wrong) or "%d functions" % len(declared))
    return bool(wrong) or not declared


if __name__ == "__main__":
    sys.exit(main())
