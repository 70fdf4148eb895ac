# SPDX-License-Identifier: MIT
"""Tells how a run goes and what has come of it."""

import os
import re
import sys
import threading
import xml.etree.ElementTree as xml

from .outcome import FAIL, PASS, SKIP

# Of what a failed test has said, once more at the end.
LINES_AT_THE_END = 6


class Progress:
    def __init__(self):
        self.total = 0
        self.done = 0
        self.tty = sys.stdout.isatty()
        self.lock = threading.Lock()

    def more(self, number):
        with self.lock:
            self.total += number

    def say(self, unit):
        count = {o: sum(r.outcome == o for r in unit.results) for o in (PASS, FAIL, SKIP)}
        with self.lock:
            self.done += 1
            bad = count[FAIL] > 0
            if self.tty and not bad:
                sys.stdout.write("\r\033[K[%d/%d] %s" % (self.done, self.total, unit.ident))
            else:
                head = "\r\033[K" if self.tty else ""
                parts = ", ".join("%d %s" % (n, o) for o, n in count.items() if n)
                sys.stdout.write("%s[%d/%d] %s %s: %s (%.1f s)\n"
                                 % (head, self.done, self.total, "FAIL" if bad else "ok  ",
                                    unit.ident, parts, unit.seconds))
            sys.stdout.flush()

    def end(self):
        if self.tty:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()


def say(text=""):
    print(text, flush=True)


def clean_xml(text):
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def write_summary(path, units):
    root = xml.Element("testsuites")
    for u in units:
        suite = xml.SubElement(root, "testsuite", {
            "name": u.ident, "time": "%.3f" % u.seconds, "cpu": "%.3f" % u.cpu,
            "tests": str(len(u.results)),
            "failures": str(sum(r.outcome == FAIL for r in u.results)),
            "skipped": str(sum(r.outcome == SKIP for r in u.results))})
        for r in u.results:
            case = xml.SubElement(suite, "testcase", {"classname": u.ident,
                                                      "name": clean_xml(r.name)})
            if r.outcome == FAIL:
                xml.SubElement(case, "failure").text = clean_xml(r.text)
            elif r.outcome == SKIP:
                xml.SubElement(case, "skipped", {"message": clean_xml(r.reason)})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def report(units, brief=False):
    failed = [(u, r) for u in units for r in u.results if r.outcome == FAIL]
    skipped = {}
    for u in units:
        for r in u.results:
            if r.outcome == SKIP:
                program = u.suite.split("-")[0] + "/" + u.name
                skipped.setdefault((program, r.name, r.reason), []).append(u)
    if skipped and not brief:
        say()
        say("Skipped tests:")
        for (program, name, reason), where in sorted(skipped.items(), key=lambda x: x[0]):
            sides = ", ".join(sorted({u.config + ("/kernel" if u.suite == "conformance-kernel"
                                                  else "") for u in where}))
            say("  %s: %s [%s]: %s" % (program, name, sides, reason))
    # The failures come last: what keeps only the end of the output must keep them.
    for u, r in failed:
        say()
        say("--- failed: %s: %s" % (u.ident, r.name))
        say(r.text.rstrip("\n"))
        if u.suite not in ("check", "build"):
            say("--- run it again: scripts/run-tests.py --only '%s'" % u.ident)
    if failed:
        say()
        say("Failed tests:")
        for u, r in failed:
            say("  %s: %s" % (u.ident, r.name))
            for line in [l for l in r.text.splitlines() if l.strip()][-LINES_AT_THE_END:]:
                say("      " + line)
    return len(failed)
