# SPDX-License-Identifier: MIT
"""Turns what a test program says, and how it ends, into results.

A program that crashes, outlives its time, runs fewer tests than it announced or runs none at all is a
failure, whatever its exit status.
"""

import re
import signal

from .outcome import EXIT_SKIP, FAIL, PASS, SKIP, Result

OUTPUT_KEPT = 24000
# Programs that are one test each and say so by their exit status.
BY_STATUS = ("build", "check", "examples")

SANITIZER_REPORT = re.compile(
    r"(WARNING|ERROR|FATAL): (Address|Thread|Leak|UndefinedBehavior)Sanitizer"
    r"|^.{1,300}: runtime error: ", re.M)

PLAN = re.compile(r"\[==========\] (?:\S+: )?Running (\d+) test\(s\)\.")
MARK = re.compile(r"\[( RUN      |       OK |  FAILED  |  SKIPPED |  ERROR   )\] (.*)$")
LISTED = re.compile(r"^(?:\S+: )?\d+ test\(s\)")
TAP = re.compile(r"^(not ok|ok)\b(?:[ \t]+\d+)?[ \t]*(?:-[ \t]+)?(.*)$")
TAP_PLAN = re.compile(r"^1\.\.(\d+)$")
TAP_SKIP = re.compile(r"^(.*?)[ \t]*#[ \t]*SKIP\b[ \t:]*(.*)$", re.I)
REASON = re.compile(r"^\s*skip(?:ped)?:\s*(.*)$", re.I)


class CmockaReader:
    """Follows cmocka's standard output: plan, start and end of each test function."""

    def __init__(self):
        self.planned = 0
        self.group = 0
        self.found = {}
        self.running = None
        self.lines = []

    def line(self, line):
        plan = PLAN.search(line)
        if plan:
            self.planned += int(plan.group(1))
            self.group += 1
            self.running = None
            return
        mark = MARK.search(line)
        if not mark:
            self.lines.append(line)
            return
        what, name = mark.group(1).strip(), mark.group(2).strip()
        if what == "RUN":
            self.running = name
            self.lines = []
            return
        if what == "ERROR" and (name.startswith("---") or name != self.running):
            self.lines.append(line)
            return
        if LISTED.match(name):
            return
        before = line[:mark.start()].strip()
        if before:
            self.lines.append(before)
        self.end(name, what)

    def end(self, name, what):
        key = (self.group, name)
        text = "\n".join(self.lines)
        old = self.found.get(key)
        if what == "OK":
            new = Result(name, PASS)
        elif what == "SKIPPED":
            new = Result(name, SKIP, text, skip_reason(self.lines))
        else:
            new = Result(name, FAIL, text)
        # cmocka lists failed and skipped tests again at the end; a failure is never taken back.
        if old is None or (new.outcome == FAIL and old.outcome != FAIL):
            self.found[key] = new
        if self.running == name:
            self.running = None
            self.lines = []


def skip_reason(lines):
    said = [l.strip() for l in lines if l.strip()]
    for l in reversed(said):
        m = REASON.match(l)
        if m:
            return m.group(1)
    return said[-1] if said else "no reason given"


def read_cmocka(text):
    reader = CmockaReader()
    for line in text.splitlines():
        reader.line(line)
    results = list(reader.found.values())
    if reader.running is not None:
        results.append(Result(reader.running, FAIL,
                              "\n".join(reader.lines + ["the program ended inside this test"])))
    elif len(results) < reader.planned:
        results.append(missing(reader.planned, results))
    return results


def missing(planned, results):
    return Result("(all tests)", FAIL, "%d of %d tests did not run"
                  % (planned - len(results), planned))


def read_tap(text):
    results, lines, planned = [], [], 0
    for line in text.splitlines():
        m = TAP.match(line.strip())
        if not m:
            plan = TAP_PLAN.match(line.strip())
            planned += int(plan.group(1)) if plan else 0
            lines.append(line)
            continue
        name = m.group(2).strip() or "test %d" % (len(results) + 1)
        skip = TAP_SKIP.match(name)
        if skip:
            results.append(Result(skip.group(1), SKIP, "", skip.group(2) or "no reason given"))
        elif m.group(1) == "ok":
            results.append(Result(name, PASS))
        else:
            results.append(Result(name, FAIL, "\n".join(lines)))
        lines = []
    if len(results) < planned:
        results.append(missing(planned, results))
    return results


def tail(text):
    if len(text) <= OUTPUT_KEPT:
        return text
    return "[... %d characters left out ...]\n" % (len(text) - OUTPUT_KEPT) + text[-OUTPUT_KEPT:]


def judge(unit, status, timed_out, text):
    """Turns an exit status and an output into a list of results with at least one entry."""
    by_status = unit.suite in BY_STATUS
    if by_status:
        results = []
    elif PLAN.search(text):
        results = read_cmocka(text)
    else:
        results = read_tap(text)

    if timed_out:
        why = "did not end within %d seconds" % unit.timeout
    elif status is None:
        why = text.strip() or "could not be started"
    elif status < 0:
        try:
            why = "killed by " + signal.Signals(-status).name
        except ValueError:
            why = "killed by signal %d" % -status
    elif status == EXIT_SKIP and not results:
        return [Result(unit.name, SKIP, text, skip_reason(text.splitlines()))]
    elif status != 0:
        why = "exit status %d" % status
    elif by_status and not SANITIZER_REPORT.search(text):
        return [Result(unit.name, PASS, text)]
    elif not results and not by_status:
        why = "ran no test"
    else:
        why = ""
    report = SANITIZER_REPORT.search(text)
    if report and not why:
        why = "a sanitizer reported an error in it or in one of its children"

    failed = [r for r in results if r.outcome == FAIL]
    if why and failed:
        failed[-1].text += "\n(%s: %s)" % (unit.name, why)
        if report:
            failed[-1].text += "\n" + text[report.start():]
    elif why:
        results.append(Result("(the program)", FAIL, text + "\n" + why))
    for r in results:
        r.text = tail(r.text)
    return results
