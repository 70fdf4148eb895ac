#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tutorial.py DOCUMENT INCLUDE LIBRARY

Every program of a document compiles without a warning, runs, and prints what stands behind it: a block
of C in a Markdown file, and the block without a language that follows it."""

import re
import sys
import tempfile

import program

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def programs(text):
    """Pairs of a program and what it prints."""
    blocks = BLOCK.findall(text)
    for i, (language, code) in enumerate(blocks):
        if language == "c":
            expected = blocks[i + 1] if i + 1 < len(blocks) else ("missing", "")
            yield code, expected[1] if expected[0] == "" else None


def main():
    document, include, library = sys.argv[1:]
    with open(document, encoding="utf-8") as f:
        found = list(programs(f.read()))
    bad = 0
    print("1..%d" % (len(found) + 1))
    print("%s 1 - there are programs" % ("ok" if found else "not ok"))
    with tempfile.TemporaryDirectory() as scratch:
        for n, (code, expected) in enumerate(found, 2):
            wrong, printed = program.run(code, include, library, scratch)
            if not wrong and expected is None:
                wrong = "what it prints does not stand behind it"
            elif not wrong and printed != expected:
                wrong = "it prints\n" + printed
            for line in (wrong or "").splitlines():
                print("# " + line)
            print("%s %d - program %d" % ("not ok" if wrong else "ok", n, n - 1))
            bad += bool(wrong)
    return 1 if bad or not found else 0


if __name__ == "__main__":
    sys.exit(main())
