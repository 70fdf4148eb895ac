#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libaio's own test harness, built from Debian's source package against its shared library, which
the drop-in takes the place of, and against its static one, whose calls go through syscall().

What each case says is compared line by line, numbers of the machine left out. The cases that take
long by themselves are run in the long form only."""

import glob
import os
import re
import shutil
import subprocess

import harness

SLOW = {"6", "11", "14", "18"}
# Their lines depend on timing or on the events that others use; the last one says how they ended.
LAST_LINE_ONLY = {"17", "20"}
# It takes all events of the machine, which it must find free.
ALONE = {"20"}
# They want a small file system of their own.
MOUNTED = {"8": ("ext2.img", "testdir.ext2"), "10": ("ext2-enospc.img", "testdir.enospc")}
NO_CONTEXT = {"21"}


def number(path):
    return int(os.path.basename(path)[:-2])


def build(test, folder):
    """The cases, built into a copy of the package in the scratch folder: {variant: folder}."""
    made = {}
    for variant in ("shared", "static"):
        where = os.path.join(test.scratch, "libaio-" + variant)
        shutil.copytree(folder, where)
        src = os.path.join(where, "src")
        cases = os.path.join(where, "harness")
        steps = [["make", "-C", src]]
        if variant == "shared":
            library = ["-L" + src, "-laio", "-Wl,-rpath," + src]
        else:
            library = [os.path.join(src, "libaio.a")]
        for case in sorted(glob.glob(os.path.join(cases, "cases", "*.t")), key=number):
            steps.append(["gcc", "-w", "-O2", "-I" + src,
                          '-DTEST_NAME="cases/%s"' % os.path.basename(case),
                          "-o", case[:-2] + ".p", os.path.join(cases, "main.c")]
                         + library + ["-lpthread"])
        for step in steps:
            got = subprocess.run(step, cwd=cases, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if got.returncode:
                test.check(False, "%s: libaio's harness is built" % variant, got.stdout[-3000:])
                return None
            if step[0] == "make" and variant == "shared":
                lib = glob.glob(os.path.join(src, "libaio.so.1.*"))[0]
                for name in ("libaio.so.1", "libaio.so"):
                    link = os.path.join(src, name)
                    if not os.path.lexists(link):
                        os.symlink(os.path.basename(lib), link)
        made[variant] = cases
    return made


def prepare(cases):
    """The files that the harness wants to find."""
    for folder in ["testdir"] + [m[1] for m in MOUNTED.values()]:
        shutil.rmtree(os.path.join(cases, folder), ignore_errors=True)
        os.mkdir(os.path.join(cases, folder))
    for name, mode in (("rofile", 0o400), ("wofile", 0o200), ("rwfile", 0o600)):
        path = os.path.join(cases, "testdir", name)
        with open(path, "w") as f:
            f.write("test\n")
        os.chmod(path, mode)


def mounting(cases, name):
    """The command before a case that runs it in a mount namespace with its file system."""
    image, folder = MOUNTED[name]
    return ["unshare", "-m", "sh", "-c", 'mount -o loop -t ext2 "$1" "$2" && shift 2 && exec "$@"',
            "sh", os.path.join(cases, image), os.path.join(cases, folder)]


def can_mount(cases, name):
    image = os.path.join(cases, MOUNTED[name][0])
    if not os.path.exists(image):
        with open(image, "wb") as f:
            f.truncate(10 << 20)
        if not shutil.which("mke2fs") or subprocess.run(
                ["mke2fs", "-q", "-F", "-b", "4096", image], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            return False
    return subprocess.run(mounting(cases, name) + ["true"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def said(name, text):
    lines = [re.sub(r"\d{4,}", "N", re.sub(r"0x[0-9a-f]+", "P", l)) for l in text.splitlines()]
    return lines[-1:] if name in LAST_LINE_ONLY else sorted(lines)


def body(test):
    folder, why = test.source("libaio")
    if not folder:
        print("skip: libaio's sources cannot be had here: " + why)
        raise SystemExit(harness.SKIP)
    with harness.untimed():
        made = build(test, folder)
    if not made:
        return

    for variant, cases in made.items():
        names = [str(number(t)) for t in
                 sorted(glob.glob(os.path.join(cases, "cases", "*.t")), key=number)]
        test.check(len(names) > 20, "%s: there are cases" % variant, names)
        for name in names:
            label = "%s: case %s" % (variant, name)
            if name in SLOW and not harness.LONG:
                test.skip(label, "in the long form only (make check-long)")
                continue
            before = []
            if name in MOUNTED:
                prepare(cases)
                if not can_mount(cases, name):
                    test.skip(label, "no ext2 image can be mounted here")
                    continue
                before = mounting(cases, name)

            def scenario(side):
                prepare(cases)
                p = side.run(before + [os.path.join("cases", name + ".p")], label="case-" + name,
                             timeout=300, cwd=cases)
                if side.pollux and name not in NO_CONTEXT:
                    side.check(p.contexts() > 0, label + " has its contexts in process", p.said())
                return p.status, said(name, p.text), p.said()

            pair = test.both(scenario)
            if not pair:
                return
            (plain, plain_said, _), (pollux, pollux_said, detail) = pair
            test.check(pollux == 0, label + " passes", detail)
            if name in ALONE and plain != 0:
                test.note("%s failed plain: others use events of the machine" % label)
                continue
            test.compare("status of " + label, plain, pollux)
            test.compare("lines of " + label, plain_said, pollux_said)


harness.main(body)
