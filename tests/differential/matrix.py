#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every call on every kind of descriptor, on the kernel and on Pollux; see matrix.c.

Each object counts as one test; the output is TAP.
"""

import argparse
import fcntl
import os
import subprocess
import sys

from lockstep import agrees

SHOWN = 20


def run(argv, thread):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if thread:
        env["MATRIX_THREAD"] = "1"
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=150)
    if done.returncode:
        sys.exit("%s: %d\n%s" % (" ".join(argv), done.returncode, done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace").splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", required=True, help="the program matrix")
    parser.add_argument("--pollux", required=True, help="the command pollux")
    parser.add_argument("--adopt", help="serve what is not served by itself")
    parser.add_argument("--thread", action="store_true", help="with a second thread")
    parser.add_argument("object", nargs="*", help="one object, and one call")
    args = parser.parse_args()
    program = [args.binary] + args.object
    front = [args.pollux, "run"] + (["--adopt=" + args.adopt] if args.adopt else []) + ["--"]

    # All eventfds, epolls and timers of the machine are one inode, and what is locked of one of them
    # here is locked of all for another of these tests: one at a time.
    alone = open(args.binary, "rb")
    fcntl.flock(alone, fcntl.LOCK_EX)
    kernel = run(program, args.thread)
    pollux = run(front + program, args.thread)
    if len(kernel) != len(pollux) or not kernel:
        sys.exit("%d lines on the kernel, %d on Pollux" % (len(kernel), len(pollux)))
    cells = {}
    for ours, theirs in zip(pollux, kernel):
        name = theirs.split(":")[0].split(",")[0]
        cells.setdefault(name, [0, []])
        cells[name][0] += 1
        if not agrees(theirs, ours):
            cells[name][1].append((theirs, ours))
    failed = False
    for i, (name, (count, differ)) in enumerate(cells.items()):
        for theirs, ours in differ[:SHOWN]:
            print("# kernel: %s\n# Pollux: %s" % (theirs, ours))
        print("%s %d - %s: %d calls, %d differ" % ("not ok" if differ else "ok", i + 1, name, count,
                                                  len(differ)))
        failed |= bool(differ)
    print("1..%d" % len(cells))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
