# SPDX-License-Identifier: MIT
"""Which models have been checked as they are now.

A model that has passed leaves a stamp in the build folder: a hash of its file, of its rows in the
table of tests/model/run.sh and of the rest of that script.
"""

import hashlib
import os
import re
import subprocess

from .outcome import TOP

FOLDER = os.path.join(TOP, "tests", "model")
STAMPS = os.path.join(TOP, "build", "models-checked")
ROW = re.compile(r"^[a-z0-9_]+ (?:ok|broken|long) ([a-z0-9_]+)(?: |$)")


def digest(model):
    sha = hashlib.sha256()
    with open(os.path.join(FOLDER, model + ".pml"), "rb") as f:
        sha.update(f.read())
    with open(os.path.join(FOLDER, "run.sh"), encoding="utf-8") as f:
        for line in f:
            row = ROW.match(line)
            if not row or row.group(1) == model:
                sha.update(line.encode())
    return sha.hexdigest()


def stamp_of(model):
    try:
        with open(os.path.join(STAMPS, model), encoding="ascii") as f:
            return f.read().strip()
    except FileNotFoundError:
        return None


def checked(model):
    os.makedirs(STAMPS, exist_ok=True)
    with open(os.path.join(STAMPS, model), "w", encoding="ascii") as f:
        f.write(digest(model) + "\n")


def touched():
    """The models whose files are not as the last commit has them."""
    said = subprocess.run(["git", "status", "--porcelain", "--", FOLDER], cwd=TOP,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    return {os.path.basename(line.split()[-1])[:-len(".pml")]
            for line in said.decode("utf-8", "replace").splitlines() if line.endswith(".pml")}


def changed(models):
    """Those that are not as they were when last checked here. In a folder where a model has never
    been checked, it counts as changed if it is not as the last commit has it."""
    stamps = {m: stamp_of(m) for m in models}
    unknown = touched() if None in stamps.values() else set()
    return {m for m in models
            if (m in unknown if stamps[m] is None else stamps[m] != digest(m))}
