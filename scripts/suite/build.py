# SPDX-License-Identifier: MIT
"""Configures a build folder, compiles in it, and knows which tests meson has declared in it."""

import json
import os
import re
import shutil
import subprocess

from .configs import base_env
from .outcome import FAIL, PASS, SKIP, TOP, Result, Unit
from .verdict import tail


def described(config, what):
    with open(os.path.join(config.folder, "meson-info", "intro-%s.json" % what),
              encoding="utf-8") as f:
        return json.load(f)


def is_configured(config):
    return os.path.exists(os.path.join(config.folder, "meson-info", "intro-tests.json"))


def suite_of(test):
    return test["suite"][0].split(":")[-1]


def step(config, argv):
    """Runs a step of a build: None, or what is wrong; and what it has said."""
    env = base_env()
    if config.compiler:
        if not shutil.which(config.compiler):
            return "%s is not installed: run make deps" % config.compiler, ""
        env["CC"] = config.compiler
    done = subprocess.run(argv, env=env, cwd=TOP, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        return said[max(said.find("FAILED: "), 0):], said
    return None, said


def configure(config):
    """What is wrong, or None."""
    wrong, _ = step(config, ["sh", os.path.join(TOP, "scripts", "configure.sh"), config.folder]
                    + config.options)
    # A meson.build that has changed may name other tests.
    return wrong or step(config, ["ninja", "-C", config.folder, "build.ninja"])[0]


def warnings(said):
    lines = said.splitlines()
    near = {j for i, line in enumerate(lines) if re.search(r"\bwarning: ", line)
            for j in range(i, min(i + 5, len(lines)))}
    return [lines[i] for i in sorted(near)]


def compile_targets(config, targets, jobs):
    """Compiles `targets` (None: everything) and returns the result."""
    if targets is not None and not targets:
        return Result("build", PASS)
    wrong, said = step(config, ["ninja", "-C", config.folder, "-j", str(jobs)] + (targets or []))
    if wrong is None and re.search(r"\bwarning: ", said):
        wrong = "the build is not free of warnings:\n" + "\n".join(warnings(said))
    return Result("build", PASS) if wrong is None else Result("build", FAIL, tail(wrong))


def targets_of(config, units):
    """What has to be built for these tests, and what this configuration builds in any case."""
    if config.targets is None:
        return None
    return sorted(targets_for(config, {u.ident for u in units})
                  | {name for kind in config.targets for name in targets_in(config, kind)})


def file_of(config, target):
    return os.path.relpath(target["filename"][0], config.folder)


def targets_for(config, idents):
    wanted = {d for t in described(config, "tests") if ident(config, t) in idents
              for d in t["depends"]}
    return {file_of(config, t) for t in described(config, "targets") if t["id"] in wanted}


def targets_in(config, kind):
    """'libraries': what is installed but the benches; 'examples': the examples."""
    for t in described(config, "targets"):
        where = os.path.relpath(os.path.dirname(t["defined_in"]), TOP)
        if kind == "libraries" and where == "." and t["installed"] or where == kind:
            yield file_of(config, t)


def ident(config, test):
    return "%s/%s/%s" % (config.name, suite_of(test), test["name"])


def units_of(config, long, slowdown=1):
    """The tests that meson declared in a build folder, as far as they run in it."""
    wanted = config.suites + (config.long_suites if long else [])
    env = base_env(long)
    units = []
    for t in described(config, "tests"):
        if suite_of(t) not in wanted:
            continue
        own = dict(env)
        own.update(t["env"])
        # meson's help for shared libraries; the programs find them by their own run path.
        own.pop("LD_LIBRARY_PATH", None)
        units.append(Unit(config.name, suite_of(t), t["name"], t["cmd"], own,
                          t["timeout"] * config.slowdown * slowdown,
                          t["workdir"] or config.folder, not t["is_parallel"]))
    return units


def undeclared(config):
    """A suite without any test has not passed."""
    declared = {suite_of(t) for t in described(config, "tests")}
    return [Result(suite, FAIL, "no tests are declared; run make deps, then look at %s"
                   % os.path.join(config.folder, "configure.log"))
            for suite in config.suites if suite not in declared]
