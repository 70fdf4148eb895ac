# SPDX-License-Identifier: MIT
"""Constructed results of `pollux bench --json`, for the tests of what reads them.

results.py FILE [--bench NAME]... [CHANGE]...

writes FILE with five pairs of each configuration.  Without --bench there are "events" and "ready".
The ratios of a configuration are 2.0 and some noise; a change is one of

  BENCH=RATIO         another median
  BENCH~SPREAD        the ratios reach from 1/SPREAD to SPREAD times the median
  BENCH!              two runs failed
  BENCH-              the bench is not there
  BENCH?              the bench was skipped
  pairs=N             the number of pairs
  quiet               an idle machine
"""

import json
import sys

SIDES = {
    "ready": [("spinlock", "spinlock"), ("rwlock", "rwlock"), ("lockfree", "lock-free"),
              ("pollux", "Pollux")],
    "aio-lookup": [("list", "list"), ("radix_tree", "radix tree"), ("table", "table")],
}
SIDES["inversion"] = [("spinlock", "spinlock"), ("pi", "PI lock")] + SIDES["ready"][1:]
SIDES["cost"] = [("pollux", "Pollux")]
SIDES["primitives"] = [("machine", "this machine")]
LABELS = {
    "watches": ("1 watch, native", "1,000 watches, native", "alone"),
    "teardown": ("1 process, TCP socket", "10 processes, TCP socket", "alone"),
}
USUAL = [("kernel", "kernel"), ("pollux", "Pollux")]


def noise(pair, pairs, spread):
    """From 1/spread to spread, evenly, the median 1."""
    return spread ** (2 * pair / (pairs - 1) - 1) if pairs > 1 else 1.0


def result(bench, label, median, spread, pairs, failed):
    sides = SIDES.get(bench, USUAL)
    out = {
        "bench": bench, "configuration": label, "native": False, "failed": failed,
        "not_served": 0, "others_share": 0.01, "steal_share": 0.0,
        "sides": [{"key": k, "name": n} for k, n in sides],
        "metrics": [{"name": "rate", "title": "rate", "unit": "per second",
                     "more_is_better": True},
                    {"name": "cpu_ns", "title": "CPU <&> \"quoted\"", "unit": "ns",
                     "more_is_better": False}],
    }
    for i, (key, _) in enumerate(sides):
        runs = []
        for p in range(pairs):
            better = median * noise(p, pairs, spread) if i == len(sides) - 1 else 1.0
            if p < failed:
                runs.append({"pair": p + 1, "ok": False, "failure": "ended with exit status 1"})
            else:
                runs.append({"pair": p + 1, "ok": True, "wall_seconds": 0.5,
                             "rate": 1e6 * better, "cpu_ns": 1000 / better,
                             "output": "rate=1 ok=1"})
        out[key] = {"command": ["program", "--side", key, "a b"], "runs": runs}
    return out


def main():
    path, rest = sys.argv[1], sys.argv[2:]
    benches, changes = [], {}
    pairs, load = 5, 3.0
    while rest:
        word = rest.pop(0)
        if word == "--bench":
            benches.append(rest.pop(0))
        elif word == "quiet":
            load = 0.1
        elif word.startswith("pairs="):
            pairs = int(word[6:])
        elif word[-1] in "!-?":
            changes[word[:-1]] = word[-1]
        else:
            sign = "~" if "~" in word else "="
            name, value = word.split(sign)
            changes[name + sign] = float(value)
    results = []
    for bench in benches or ["events", "ready"]:
        mark = changes.get(bench)
        if mark == "-":
            continue
        if mark == "?":
            results.append({"bench": bench, "configuration": "8 threads, coalescing",
                            "native": False, "skipped": "it is not installed"})
            continue
        for label in LABELS.get(bench, ("8 threads, coalescing", "16 threads, coalescing", "alone")):
            results.append(result(bench, label, changes.get(bench + "=", 2.0),
                                  changes.get(bench + "~", 1.05), pairs,
                                  2 if mark == "!" else 0))
    machine = {"cpu": "A CPU", "cpus": 2, "arch": "x86_64", "kernel": "Linux 6.1",
               "memory_kb": 4 << 20, "start": "2026-01-01T00:00:00Z",
               "end": "2026-01-01T00:01:00Z", "load_average_start": [load, load, load],
               "load_average_end": [load, load, load], "others_share": 0.01, "steal_share": 0.0}
    described = [{"name": b, "title": "what %s measures" % b,
                  "command": "pollux bench %s --pairs=%d" % (b, pairs)} for b in benches]
    with open(path, "w") as f:
        json.dump({"version": "0", "command": "pollux bench", "machine": machine, "pairs": pairs,
                   "quick": False, "benches": described, "results": results}, f, indent=1)


main()
