#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libevent's own tests, built from Debian's source package: it is told to use timerfds and
changelists as well. In the long form only."""

import os
import re

import harness

OTHERS = ["test-changelist", "test-closed", "test-eof", "test-fdleak", "test-init", "test-weof"]
WAYS = {"epoll": {"EVENT_EPOLL_USE_CHANGELIST": ""},
        "changelist": {"EVENT_EPOLL_USE_CHANGELIST": "yes"},
        "timerfd": {"EVENT_PRECISE_TIMER": "1"}}


def results(text):
    parts = re.split(r"^([\w-]+/[^\s:]+): ", text, flags=re.M)
    found = {}
    for name, said in zip(parts[1::2], parts[2::2]):
        if "FAILED" in said:
            found[name] = "failed"
        elif re.search(r"SKIPPED|DISABLED", said):
            found[name] = "skipped"
        else:
            found[name] = "ok" if re.search(r"\bOK\b", said) else "nothing said"
    return found


def body(test):
    folder, why = test.source("libevent", alone=True)
    if not folder:
        print("skip: libevent's sources cannot be had here: " + why)
        raise SystemExit(harness.SKIP)
    where = test.build(folder, ["regress"] + OTHERS,
                       ["-DEVENT__LIBRARY_TYPE=STATIC", "-DEVENT__DISABLE_OPENSSL=ON",
                        "-DEVENT__DISABLE_BENCHMARK=ON", "-DEVENT__DISABLE_SAMPLES=ON"])
    if not where:
        return
    regress = os.path.join(where, "bin", "regress")

    for way, env in WAYS.items():
        def run(side):
            p = side.start([regress], cwd=where, env=env)
            p.wait(400)
            side.check(p.status is not None, "%s: the suite comes to its end" % way, p.said())
            found = results(p.text)
            side.check(sum(v == "ok" for v in found.values()) > 200, way + ": most tests pass",
                       str(len(found)))
            if side.pollux:
                side.check(p.adopted("epolls") > 100 and p.adopted("eventfds") > 50,
                           way + ": it was served", p.said())
            return found

        def again(side, name):
            p = side.run([regress, name], cwd=where, env=env)
            return "ok" if p.status == 0 else "failed"

        test.compare_suites(run, again)
    for name in OTHERS:
        test.compare("status of " + name, *(test.both(lambda side: side.run(
            [os.path.join(where, "bin", name)], cwd=where).status)))


if not harness.LONG:
    print("skip: in the long form only (make check-long)")
    raise SystemExit(harness.SKIP)
harness.main(body)
