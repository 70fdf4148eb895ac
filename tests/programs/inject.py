#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Faults on purpose: the tests of programs, and those of some rules, with a drop-in that loses
wakes, changes data, says wrong errors, reports an edge twice or forgets objects. Each must notice
what is in its reach; a test that notices nothing proves nothing. In the long form only.

The same tests without a fault are run beside this one, and must see none."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

# Most tests of programs are run in here. Less than what scripts/run-tests.py allows.
os.environ.setdefault("POLLUX_TEST_LIMIT", "5000")

import harness

# One time in how many; few for what is short, or goes on as if nothing had been.
PROGRAMS = {
    "libevent.py": ["lost_wake:2"],
    "libuv.py": ["lost_wake:5", "wrong_data:20"],
    "java.py": ["lost_wake:20", "wrong_errno:200"],
    "cpython.py": ["lost_wake:20", "wrong_data:100", "wrong_errno:200"],
    "node.py": ["lost_wake:20", "wrong_errno:200"],
    "preload.py": ["lost_wake:20", "wrong_data:100"],
    "nginx.py": ["lost_wake:20", "wrong_errno:200"],
    "memcached.py": ["lost_wake:20", "wrong_errno:200"],
    "libaio-harness.py": ["wrong_data:2", "wrong_errno:2"],
    "haproxy.py": ["wrong_errno:50"],
    "redis.py": ["wrong_data:100", "wrong_errno:50"],
    "stress-ng.py": ["wrong_errno:50"],
    "aio-kill.py": ["wrong_data:50"],
    "curl.py": ["wrong_data:10", "wrong_errno:20"],
    "daemons.py": ["wrong_errno:20"],
    "descriptors.py": ["wrong_data:10", "wrong_errno:20"],
    "fio.py": ["wrong_data:50", "wrong_errno:50"],
    "git.sh": ["wrong_data:20", "wrong_errno:20"],
}
# They have no short form.
LONG_ONLY = ["libevent.py", "libuv.py"]
# What programs put up with, or seldom do, the tests of the rules must not.
RULES = {
    "escape": ["lost_eviction:3", "forgotten_count:3"],
    "ep_rdy": ["double_edge:3", "lost_event:3", "wrong_data:5"],
    "ep_ord": ["wrong_order:3", "double_edge:3"],
    "ep_wake": ["lost_wake:3"],
    "ep_del": ["forgotten_del:2"],
    "efd": ["wrong_count:5", "wrong_poll:5"],
    "aio_op": ["wrong_data:3", "wrong_errno:3"],
    "aio_reader": ["lost_unread:1"],
    "aio_filter": ["lost_unread:1"],
    "number_again": ["forgotten_number:1"],
}
# What is right without us, too, does not see that we are missing.
COMMANDS = {
    "load.sh": ["wrong_verdict:1"],
}
SECONDS = 110
FIRST = {"program": re.compile(r"^not ok \d+ - (?!plain: )(.*)$"),
         "rule": re.compile(r"^\[  FAILED  \] (.*)$"),
         "command": re.compile(r"^not ok \d+ - (.* is loaded with it)$")}
BEGUN = re.compile(r"^(?:not )?ok \d+ - pollux: ", re.M | re.I)


def run(argv, env, kind):
    """The first failure after Pollux's side has begun, or of a rule; and the output up to there."""
    p = subprocess.Popen(argv, env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace")
    text, bad = "", None
    for line in p.stdout:
        text += line
        found = FIRST[kind].match(line)
        if found and (kind != "program" or BEGUN.search(text)):
            # It clears up what it has started.
            bad = found.group(1)
            p.terminate()
            break
    p.stdout.close()
    p.wait()
    if bad is None and kind == "rule" and p.returncode:
        bad = "it ends with status %d" % p.returncode
    return bad, text


def program(script, pollux, fault):
    return run([os.path.join(harness.HERE, script), pollux],
               {"POLLUX_TEST_LIMIT": str(SECONDS * (5 if script in LONG_ONLY else 1)),
                "POLLUX_TEST_LONG": "1" if script in LONG_ONLY else "",
                "POLLUX_INJECT": fault}, "program")


def rule(binary, pollux, fault):
    binary, *options = binary.split()
    # What hangs is stopped from outside, and is noticed.
    return run(["timeout", "-k", "5", str(SECONDS), pollux, "run", *options, "--", binary],
               {"POLLUX_EXPECT": "1", "POLLUX_INJECT": fault}, "rule")


def command(script, pollux, fault):
    return run(["timeout", "-k", "5", str(SECONDS), script, pollux], {"POLLUX_INJECT": fault},
               "command")


def body(test):
    build = os.path.dirname(test.pollux)
    # The command takes the drop-in that lies beside it.
    here = os.path.join(test.scratch, "inject")
    os.mkdir(here)
    pollux = shutil.copy(test.pollux, here)
    shutil.copy(os.path.join(build, "tests", "differential", "libpollux-preload-inject.so"),
                os.path.join(here, "libpollux-preload.so"))
    os.makedirs(os.path.join(build, "programs"), exist_ok=True)
    os.symlink(os.path.join(build, "programs"), os.path.join(here, "programs"))

    only = os.environ.get("POLLUX_TEST_ONLY", "")
    jobs = [(program, script, script, fault) for script in PROGRAMS for fault in PROGRAMS[script]]
    jobs += [(rule, name, os.path.join(build, "tests", "conformance", name), fault)
             for name in RULES for fault in RULES[name]]
    jobs += [(command, name, os.path.join(harness.TOP, "tests", "cli", name), fault)
             for name in COMMANDS for fault in COMMANDS[name]]
    pool = concurrent.futures.ThreadPoolExecutor(2)
    try:
        done = {pool.submit(how, what, pollux, fault): (name, fault)
                for how, name, what, fault in jobs if only in name}
        for future in concurrent.futures.as_completed(done):
            name, fault = done[future]
            bad, text = future.result()
            if text.startswith("skip:"):
                test.skip("%s notices %s" % (name, fault), text.strip()[5:])
            elif test.check(bad, "%s notices %s" % (name, fault), text[-3000:]):
                test.note("%s, %s: %s" % (name, fault, bad))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


if not harness.LONG:
    print("skip: in the long form only (make check-long)")
    sys.exit(harness.SKIP)
harness.main(body)
