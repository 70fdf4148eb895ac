#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs one unmodified epoll program on the kernel and on Pollux, in turn, and compares them."""

import argparse
import os
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join("build", "bench", "stress-epoll")
POLLUX = os.path.join("build", "pollux")


def run(argv):
    """The key=value pairs that the program prints on its last line."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit("%s ended with status %d" % (" ".join(argv), done.returncode))
    lines = done.stdout.decode().splitlines()
    pairs = dict(w.split("=", 1) for w in (lines[-1] if lines else "").split() if "=" in w)
    if "rate" not in pairs:
        raise SystemExit("%s printed no rate" % " ".join(argv))
    return pairs


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text)
        sys.stderr.flush()


def human(rate):
    for unit, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if rate >= size:
            return "%.1f %s" % (rate / size, unit)
    return "%.0f" % rate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=8, help="writing threads (default 8)")
    parser.add_argument("--events", type=int, default=500000,
                        help="events of each thread (default 500000)")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each side (default 3)")
    args = parser.parse_args()

    os.chdir(TOP)
    program = [PROGRAM, "--threads", str(args.threads), "--events", str(args.events)]
    sides = (("kernel", program), ("Pollux", [POLLUX, "run", "--"] + program))
    print("%s is an ordinary epoll program: %d threads write %d times each to an eventfd\n"
          "of their own, one thread waits for all of them and reads. The same binary runs on both.\n"
          % (PROGRAM, args.threads, args.events))
    rates = {name: [] for name, _ in sides}
    for pair in range(args.pairs):
        for name, argv in sides:
            progress("run %d of %d on %s ..." % (pair + 1, args.pairs, name))
            result = run(argv)
            if name == "Pollux" and result.get("served") != "1":
                progress("")
                raise SystemExit("the drop-in was not in effect: its run would measure the kernel")
            rates[name].append(float(result["rate"]))
    progress("")

    medians = {name: statistics.median(r) for name, r in rates.items()}
    for name, argv in sides:
        low, high = min(rates[name]), max(rates[name])
        print("  on %-11s %14s events a second   (%s to %s)   %s"
              % (("the " if name == "kernel" else "") + name + ":", human(medians[name]), human(low), human(high), " ".join(argv)))
    print("\n  Pollux does %.1f times what the kernel does, on this machine, in this workload."
          % (medians["Pollux"] / medians["kernel"]))
    print("  More workloads: make bench, or build/pollux bench --help")
    return 0


if __name__ == "__main__":
    sys.exit(main())
