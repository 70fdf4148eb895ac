# SPDX-License-Identifier: MIT
"""A program that a document shows: compiled without a warning, linked with the library, run."""

import os
import subprocess

WARNINGS = ["-std=c11", "-D_GNU_SOURCE", "-pedantic", "-Wall", "-Wextra", "-Werror"]


def run(text, include, library, scratch):
    """What is wrong with it, or None, and what it has printed."""
    source, program = os.path.join(scratch, "program.c"), os.path.join(scratch, "program")
    with open(source, "w", encoding="utf-8") as f:
        f.write(text)
    compiled = subprocess.run(
        [os.environ.get("CC", "cc"), *WARNINGS, "-I", include, "-o", program, source, library,
         "-Wl,-rpath," + os.path.dirname(os.path.abspath(library)), "-pthread"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if compiled.returncode:
        return compiled.stdout or "it does not compile", ""
    ran = subprocess.run([program], cwd=scratch, stdout=subprocess.PIPE, text=True, timeout=60,
                         check=False)
    return ran.returncode and "it ends with %d" % ran.returncode or None, ran.stdout
