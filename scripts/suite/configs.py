# SPDX-License-Identifier: MIT
"""In which ways Pollux is built, and which suites run in each.

A suite runs in a build if that build can find something in it that another cannot.
"""

import os

from .outcome import TOP

ASAN_OPTIONS = ":".join([
    # The drop-in is loaded before the run-time of the sanitizer on purpose; calls still reach
    # both, the drop-in first.
    "verify_asan_link_order=0",
    "detect_leaks=1",
    "allocator_may_return_null=1",
    "detect_stack_use_after_return=0",
    "exitcode=66",
])
UBSAN_OPTIONS = "print_stacktrace=1:halt_on_error=1"
TSAN_OPTIONS = "halt_on_error=0:exitcode=66:second_deadlock_stack=1:history_size=4:die_after_fork=0"


class Config:
    """One way to build Pollux, and what is run in it.

    `targets` are built whatever runs; None stands for everything.  Otherwise a build makes only what
    its tests need.
    """

    def __init__(self, name, folder, compiler, options, suites, long_suites, slowdown, targets=()):
        self.name = name
        self.folder = os.path.join(TOP, folder)
        self.compiler = compiler
        self.options = options
        self.suites = suites
        self.long_suites = long_suites
        self.slowdown = slowdown
        self.targets = targets


# A sanitizer's report needs no more optimisation than the race points have anyway.
SANITIZED = ["-Doptimization=1", "-Db_lundef=false", "-Dlockdep=true", "-Ddelays=true"]
# The kernel has no build, models are checked by spin, and a sanitizer cannot be loaded into programs
# that were not built with it.
BUILT_ONCE = ["conformance-kernel", "model", "programs"]
EVERYWHERE = ["conformance-pollux", "native", "history", "torture", "examples", "fault", "cli",
              "differential"]

CONFIGS = [
    Config("plain", "build", None, [], EVERYWHERE + BUILT_ONCE, [], 1, None),
    # That the other compiler has no warning about what is installed and shown. Its tests would be
    # the same once more; they are built and run by --long.
    Config("clang", "build-clang", "clang", [], [], EVERYWHERE, 1, ("libraries", "examples")),
    Config("asan", "build-asan", "gcc", ["-Db_sanitize=address,undefined"] + SANITIZED,
           EVERYWHERE, ["conformance-kernel"], 3),
    # The command itself has one thread.
    Config("tsan", "build-tsan", "gcc", ["-Db_sanitize=thread"] + SANITIZED,
           [s for s in EVERYWHERE if s != "cli"], ["conformance-kernel"], 4),
]
# Built elsewhere, for another machine (--built), and run there; models are nobody's machine.
BUILT = EVERYWHERE + ["conformance-kernel"]


def base_env(long=False):
    env = {k: v for k, v in os.environ.items()
           if k.startswith("POLLUX_DELAY") or
           not k.startswith(("POLLUX_", "CMOCKA_")) and k != "LD_PRELOAD"}
    env["LC_ALL"] = "C"
    env["ASAN_OPTIONS"] = ASAN_OPTIONS
    env["UBSAN_OPTIONS"] = UBSAN_OPTIONS
    env["TSAN_OPTIONS"] = TSAN_OPTIONS
    for var, name in (("TSAN_OPTIONS", "tsan.supp"), ("LSAN_OPTIONS", "lsan.supp")):
        path = os.path.join(TOP, "tests", name)
        if os.path.exists(path):
            env[var] = (env[var] + ":" if var in env else "") + "suppressions=" + path
    if long:
        env["POLLUX_TEST_LONG"] = "1"
    return env
