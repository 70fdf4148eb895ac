#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says which rules of behaviour have a conformance test, and why the others have none.

A test function is named after the rule it proves: EP_CTL_01_event_is_read_first proves EP-CTL-01;
a name may hold several rules.  tests/conformance/rules.tsv holds the rules (RULE<TAB>title),
tests/conformance/untested-*.tsv the reasons for those without a test, or tested in part
(RULE<TAB>reason).  A rule with neither fails the check, and so does a name or a reason for a rule
that does not exist.

The names are taken from the sources.  With --ran FILE (NAME<TAB>outcome<TAB>reason, a line for each
test that was run) they are taken from there, so that a function that never runs proves nothing, and
rules whose tests were all skipped are listed with the reason.
"""

import argparse
import glob
import os
import re
import sys

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      "tests", "conformance")
RULE_IN_NAME = re.compile(r"(?:(?<=_)|\b)(EP_[A-Z]+|EFD|AIO_[A-Z]+|LAIO|PIPE|TFD)_([0-9]{2})(?![0-9])")
NAME = re.compile(r"\b(?:EP_[A-Z]+|EFD|AIO_[A-Z]+|LAIO|PIPE|TFD)_[0-9]{2}(?![0-9])\w*")


def read_table(path, problems):
    rows = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if not line.strip() or line.startswith("#"):
                continue
            key, tab, text = line.partition("\t")
            if not tab or not text.strip():
                problems.append("%s:%d: not RULE<TAB>text" % (os.path.basename(path), number))
                continue
            rows.append((key.strip(), text.strip()))
    return rows


def names_in_sources():
    names = set()
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.c"))):
        with open(path, encoding="utf-8") as f:
            source = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", f.read(), flags=re.S)
        names.update(NAME.findall(source))
    return [(name, "", "") for name in sorted(names)]


def names_that_ran(path):
    with open(path, encoding="utf-8") as f:
        rows = [(line.rstrip("\n").split("\t") + ["", ""])[:3] for line in f]
    return [r for r in rows if NAME.match(r[0])]


def rules_of(name):
    return ["%s-%s" % (family.replace("_", "-"), number)
            for family, number in RULE_IN_NAME.findall(name)]


def main():
    parser = argparse.ArgumentParser(description="Which rules have a conformance test.")
    parser.add_argument("--ran", metavar="FILE", help="tests that were run, with their outcome")
    args = parser.parse_args()

    problems = []
    rules = read_table(os.path.join(FOLDER, "rules.tsv"), problems)
    titles = dict(rules)
    if len(titles) != len(rules):
        problems.append("rules.tsv names a rule twice")
    tested, skipped = {}, {}
    for name, outcome, reason in names_that_ran(args.ran) if args.ran else names_in_sources():
        for rule in rules_of(name):
            if outcome == "skipped":
                skipped.setdefault(rule, reason)
            tested.setdefault(rule, {})[name] = outcome
    reasons = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "untested-*.tsv"))):
        for rule, reason in read_table(path, problems):
            if rule not in titles:
                problems.append("%s: there is no rule %s" % (os.path.basename(path), rule))
            reasons[rule] = reason
    for rule in sorted(tested):
        if rule not in titles:
            problems.append("%s is named after %s, which is no rule" % (min(tested[rule]), rule))

    have = [r for r in titles if r in tested]
    excused = [r for r in titles if r not in tested and r in reasons]
    missing = [r for r in titles if r not in tested and r not in reasons]

    print("Rules with a conformance test: %d of %d" % (len(have), len(titles)))
    idle = [r for r in have if all(o == "skipped" for o in tested[r].values())]
    if idle:
        print("Rules whose tests were all skipped here:")
        for rule in idle:
            print("  %-11s %s: %s" % (rule, titles[rule], skipped[rule]))
    partly = [r for r in have if r in reasons]
    if partly:
        print("Rules tested in part, and what is left out:")
        for rule in partly:
            print("  %-11s %s: %s" % (rule, titles[rule], reasons[rule]))
    if excused:
        print("Rules without one, and why:")
        for rule in excused:
            print("  %-11s %s: %s" % (rule, titles[rule], reasons[rule]))
    if missing:
        print("Rules with neither a test nor a reason:")
        for rule in missing:
            print("  %-11s %s" % (rule, titles[rule]))
    for p in problems:
        print("wrong: " + p)
    return 1 if missing or problems else 0


if __name__ == "__main__":
    sys.exit(main())
