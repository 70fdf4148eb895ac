# SPDX-License-Identifier: MIT
"""A unit is one program to run; it has a result for each test in it."""

import fnmatch
import os

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PASS, FAIL, SKIP = "passed", "failed", "skipped"
EXIT_SKIP = 77


class Result:
    def __init__(self, name, outcome, text="", reason=""):
        self.name = name
        self.outcome = outcome
        self.text = text
        self.reason = reason


class Unit:
    """One program to run: a test binary, a model, a build or a check of the tree.

    `weight` is the number of CPUs that it keeps busy, `expected` the seconds that it lasts; the
    schedule goes by both. `alone`: it uses up what the whole machine has, and nothing runs beside it.
    """

    def __init__(self, config, suite, name, argv, env, timeout, cwd, alone=False):
        self.config = config
        self.suite = suite
        self.name = name
        self.argv = argv
        self.env = env
        self.timeout = timeout
        self.cwd = cwd
        self.alone = alone
        self.weight = 1.0
        self.expected = 1.0
        self.results = []
        self.seconds = 0.0
        self.cpu = 0.0

    @property
    def ident(self):
        return "%s/%s/%s" % (self.config, self.suite, self.name)

    @property
    def failed(self):
        return any(r.outcome == FAIL for r in self.results)


def matches(ident, only):
    if not only:
        return True
    return any(fnmatch.fnmatch(ident, g) or fnmatch.fnmatch(ident, "*" + g + "*") for g in only)
