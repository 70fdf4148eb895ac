#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ZeroMQ's own tests, built from Debian's source package: its threads tell each other of messages
by eventfds, which they watch by epoll or by poll. In the long form only."""

import glob
import os
import re

import harness

# For a user who is told that a test cannot run here.
SKIPPED = 77
# A message that is a quarter of a second late is lost to it: it fails plain on a busy machine.
LEFT_OUT = ["test_filter_ipc"]
STATUS = {"PASS": "ok", "FAIL": "failed", "IGNORE": "skipped"}


def body(test):
    folder, why = test.source("zeromq3", alone=True)
    if not folder:
        print("skip: ZeroMQ's sources cannot be had here: " + why)
        raise SystemExit(harness.SKIP)
    where = test.build(folder, ["all"], ["-DBUILD_STATIC=OFF", "-DWITH_PERF_TOOL=OFF",
                                         "-DENABLE_CURVE=OFF", "-DWITH_DOCS=OFF"])
    if not where:
        return
    programs = sorted(p for p in glob.glob(os.path.join(where, "bin", "test_*"))
                      if os.access(p, os.X_OK) and not p.endswith(".sock")
                      and os.path.basename(p) not in LEFT_OUT)

    def one(side, program):
        name = os.path.basename(program)
        p = side.run([program], timeout=120, cwd=os.path.dirname(program))
        if p.status == SKIPPED:
            return p, {name: "skipped"}
        found = {name: "ok" if p.status == 0 else "failed"}
        for what, status in re.findall(r":(\w+):(PASS|FAIL|IGNORE)", p.text):
            found["%s %s" % (name, what)] = STATUS[status]
        return p, found

    def run(side):
        found, eventfds, epolls = {}, 0, 0
        for program in programs:
            p, more = one(side, program)
            found.update(more)
            eventfds += p.adopted("eventfds")
            epolls += p.adopted("epolls")
        side.check(sum(v == "ok" for v in found.values()) > 300, "most tests pass",
                   str([n for n in found if found[n] == "failed"]))
        if side.pollux:
            side.check(eventfds > 1000 and epolls > 200, "it was served",
                       "%d eventfds, %d epolls" % (eventfds, epolls))
        return found

    def again(side, name):
        program = os.path.join(where, "bin", name.split()[0])
        return one(side, program)[1].get(name, "died")

    test.compare_suites(run, again)


if not harness.LONG:
    print("skip: in the long form only (make check-long)")
    raise SystemExit(harness.SKIP)
harness.main(body)
