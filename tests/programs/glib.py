#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tests that GLib installs, those of its loops, threads, children, sockets and D-Bus: loops are
woken by eventfds, which they poll. In the long form only."""

import os
import re

import harness

FOLDER = "/usr/libexec/installed-tests/glib"
PROGRAMS = """
actions async-close-output-stream asyncqueue buffered-input-stream cancellable contexts
converter-stream file gdbus-connection gdbus-peer gsubprocess gwakeuptest io-stream mainloop
network-monitor pollable signals socket socket-listener socket-service source spawn-multithreaded
spawn-path-search spawn-singlethread task thread thread-pool timeout timer unix unix-fd
unix-multithreaded unix-nothreads unix-streams
""".split()
# They compare what a child says; statistics would be part of it.
SILENT = ["gsubprocess", "spawn-multithreaded", "spawn-path-search", "spawn-singlethread"]


def results(name, p):
    found = {name: "ok" if p.status == 0 else "failed"}
    for status, what, more in re.findall(r"^(ok|not ok) \d+ (\S+)(.*)$", p.text, re.M):
        found["%s %s" % (name, what)] = ("skipped" if "# SKIP" in more else
                                         "ok" if status == "ok" else "failed")
    return found


def body(test):
    test.need("glib/mainloop", "dbus-run-session")

    def one(side, name):
        side.statistics = name not in SILENT
        p = side.run(["dbus-run-session", "--", os.path.join(FOLDER, name), "--tap"], label=name,
                     timeout=120, cwd=FOLDER)
        return p, results(name, p)

    def run(side):
        found, eventfds = {}, 0
        for name in PROGRAMS:
            if not os.path.exists(os.path.join(FOLDER, name)):
                continue
            p, more = one(side, name)
            found.update(more)
            eventfds += p.adopted("eventfds")
        side.check(sum(v == "ok" for v in found.values()) > 250, "most tests pass",
                   str([n for n in found if found[n] == "failed"]))
        if side.pollux:
            side.check(eventfds > 100, "it was served", "%d eventfds" % eventfds)
        return found

    def again(side, name):
        return one(side, name.split()[0])[1].get(name, "died")

    test.compare_suites(run, again)


if not harness.LONG:
    print("skip: in the long form only (make check-long)")
    raise SystemExit(harness.SKIP)
harness.main(body)
