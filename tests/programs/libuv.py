#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libuv's own tests, built from Debian's source package: 16,000 epolls and as many eventfds and
pipes, made and closed in every way that a loop knows. In the long form only."""

import os
import re

import harness

STATUS = {"ok": "ok", "not ok": "failed"}


def results(text):
    found = {}
    for status, name, more in re.findall(r"^(ok|not ok) \d+ - (\S+)(.*)$", text, re.M):
        found[name] = "skipped" if "# SKIP" in more else STATUS[status]
    return found


def body(test):
    folder, why = test.source("libuv1", alone=True)
    if not folder:
        print("skip: libuv's sources cannot be had here: " + why)
        raise SystemExit(harness.SKIP)
    where = test.build(folder, ["uv_run_tests"], [])
    if not where:
        return
    program = os.path.join(where, "uv_run_tests")

    def start(side, *names):
        # Some of the tests compare what a child says; statistics would be part of it.
        side.statistics = False
        return side.start([program] + list(names), cwd=folder, prove=False,
                          env={"UV_RUN_AS_ROOT": "1"})

    def run(side):
        p = start(side)
        side.prove(p.pid, "the program that starts the tests")
        # Each test is a process of its own.
        child = harness.wait_for(lambda: harness.descendants(p.pid), 20)
        side.require(child, "it starts tests", p.said())
        p.wait(400)
        side.check(p.status is not None, "the suite comes to its end", p.said())
        found = results(p.text)
        side.check(sum(v == "ok" for v in found.values()) > 300, "most tests pass",
                   str([n for n in found if found[n] == "failed"]))
        return found

    def again(side, name):
        p = start(side, name)
        p.wait(60)
        return results(p.text).get(name, "died")

    def served(side):
        p = side.run([program, "async", "async"], cwd=folder, env={"UV_RUN_AS_ROOT": "1"})
        side.check(p.status == 0, "one test by itself", p.said())
        if side.pollux:
            side.check(p.adopted("epolls") and p.adopted("eventfds"), "it was served", p.said())

    test.both(served)
    test.compare_suites(run, again)


if not harness.LONG:
    print("skip: in the long form only (make check-long)")
    raise SystemExit(harness.SKIP)
harness.main(body)
