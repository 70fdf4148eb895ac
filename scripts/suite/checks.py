# SPDX-License-Identifier: MIT
"""Checks of the tree itself; each is one test."""

import os
import re
import sys
import tempfile

from .configs import base_env
from .outcome import TOP, Unit

BEFORE_BUILDS = {
    "format": ["sh", "scripts/format-check.sh"],
    "cross": ["sh", "scripts/cross-check.sh"],
    "runner": [sys.executable, "scripts/check-runner.py"],
    "docs": [sys.executable, "scripts/docs-check.py"],
}
# It reads the objects of the plain build.
AFTER_PLAIN = {"layering": [sys.executable, "scripts/layering.py", "build"]}


def unit(name, argv):
    return Unit("tree", "check", name, argv, base_env(), 1200, TOP)


def rule_coverage(units, whole):
    """Which rules are proved: by the tests that ran on Pollux, when all of them were to run."""
    argv = [sys.executable, "scripts/rule-coverage.py"]
    ran = [r for u in units if u.config == "plain"
           and u.suite in ("conformance-kernel", "conformance-pollux") for r in u.results]
    if not ran or not whole:
        return unit("rule-coverage", argv)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8", delete=False) as f:
        for r in ran:
            f.write("\t".join(re.sub(r"\s+", " ", x) for x in (r.name, r.outcome, r.reason)) + "\n")
    u = unit("rule-coverage", argv + ["--ran", f.name])
    u.clean_up = lambda: os.unlink(f.name)
    return u
