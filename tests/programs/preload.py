#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs under another LD_PRELOAD as well: an allocator (jemalloc, which replaces what the
drop-in allocates with) and libeatmydata (which replaces fsync and open, as the drop-in does)."""

import glob
import json
import os
import sys

import harness

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
OTHERS = {"libjemalloc.so.2": "jemalloc", "libeatmydata.so": "eatmydata"}
SHORT = {"jemalloc": "node", "eatmydata": "cpython"}
PARTS = {
    "cpython": ([PYTHON, os.path.join(harness.HERE, "cpython-program.py")],
                {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONMALLOC": "malloc"}),
    "node": (["node", os.path.join(harness.HERE, "node.js")], {}),
}


def find(library):
    for where in ("/lib/*/", "/usr/lib/*/", "/usr/lib/", "/usr/lib64/", "/usr/lib/*/libeatmydata/"):
        for path in glob.glob(where + library):
            return path
    return None


def scenario(side, name, library):
    argv, env = PARTS[name]
    p = side.start(argv, label=name, env=dict(env, LD_PRELOAD=library, TMPDIR=side.dir))
    real = os.path.realpath(library)
    both = harness.wait_for(lambda: harness.maps(p.pid, real) or not p.alive(), 20)
    side.check(both and p.alive(), "%s has %s mapped" % (name, os.path.basename(library)), p.said())
    status = p.wait(harness.LIMIT - 20)
    side.require(status == 0, "%s ends with status 0 in time" % name, p.said())
    said = json.loads(p.text.strip().splitlines()[-1])
    side.check(said["mapped"] == side.pollux, name + " itself sees the drop-in, or none",
               p.said())
    if side.pollux:
        side.check(p.adopted("epolls") >= 5 and p.adopted("eventfds") >= 8,
                   name + ": objects were served", p.said())
    return said


def body(test):
    for library, label in OTHERS.items():
        why = test.cannot_have(library)
        if why:
            test.skip("under " + label, "%s cannot be had here: %s" % (library, why))
            continue
        path = find(library)
        for name in PARTS if harness.LONG else [SHORT[label]]:
            if name == "node" and test.cannot_have("node"):
                test.skip("node under " + label, "node cannot be had here")
                continue
            pair = test.both(lambda side: scenario(side, name, path))
            if not pair:
                continue
            for what in pair[0]["results"]:
                test.compare("results of %s under %s: %s" % (name, label, what),
                             pair[0]["results"][what], pair[1]["results"].get(what))
            test.compare_rates(pair[0]["rates"], pair[1]["rates"],
                               lambda side: scenario(side, name, path)["rates"])


harness.main(body)
