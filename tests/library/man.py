#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""man.py INCLUDE PAGES LIBRARY

Every public function and object has a page in section 3, whose synopsis says what the header says;
the pages have one skeleton; mandoc finds nothing wrong; and each example in them is a program that
compiles without a warning, runs, and ends with 0.
"""

import re
import os
import shutil
import subprocess
import sys
import tempfile

import program
import prototypes

SKELETON = ["NAME", "SYNOPSIS", "DESCRIPTION", "CONTEXTS", "MEMORY ORDER", "OWNERSHIP",
            "RETURN VALUES", "EXAMPLES", "ERRORS", "SEE ALSO"]


def sections(path):
    """By name, the lines; and the names in order."""
    found, order = {}, []
    with open(path, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith(".Sh "):
                order.append(line[4:].strip('"'))
                found[order[-1]] = []
            elif order:
                found[order[-1]].append(line)
    return found, order


def names(lines):
    return [line.split()[1] for line in lines if line.startswith(".Nm ")]


def unquoted(line):
    return line.split(" ", 1)[1].strip().strip('"')


def synopsis(lines):
    """The functions, as prototypes.joined writes them."""
    found, result, name, args = {}, None, None, []
    for line in lines:
        if line.startswith(".Ft "):
            result = unquoted(line)
        elif line.startswith(".Fo "):
            name, args = unquoted(line), []
        elif line.startswith(".Fa "):
            args.append(unquoted(line))
        elif line == ".Fc":
            found[name] = prototypes.joined("%s %s(%s);" % (result, name, ",".join(args)))
    return found


def literal(lines):
    """The blocks of text that is shown as it is."""
    blocks, inside = [], False
    for line in lines:
        if line.startswith(".Bd -literal"):
            blocks.append([])
            inside = True
        elif line == ".Ed":
            inside = False
        elif inside:
            blocks[-1].append(re.sub(r"^\\&", "", line).replace("\\e", "\\"))
    return ["\n".join(b) + "\n" for b in blocks]


def structures(include):
    found = {}
    for path in prototypes.headers(include).values():
        with open(path, encoding="utf-8") as f:
            text = prototypes.COMMENT.sub("", f.read())
        for m in re.finditer(r"^struct (pollux_\w+) \{.*?^\};", text, re.S | re.M):
            found[m.group(1)] = prototypes.joined(m.group(0))
    return found


class Check:
    def __init__(self):
        self.count = self.failed = 0

    def say(self, wrong, name):
        """wrong: what is, or nothing."""
        self.count += 1
        self.failed += bool(wrong)
        if wrong:
            print("# " + str(wrong).replace("\n", "\n# "))
        print("%s %d - %s" % ("not ok" if wrong else "ok", self.count, name))


def main():
    include, folder, library = (os.path.realpath(a) for a in sys.argv[1:])
    pages = {n: os.path.join(folder, n) for n in sorted(os.listdir(folder)) if n[-2] == "."}
    check = Check()
    where, described, defined = {}, {}, {}
    for page, path in pages.items():
        if page.endswith(".3"):
            parts, order = sections(path)
            check.say(order != SKELETON and "it has " + ", ".join(order), "%s: the skeleton" % page)
            for name in names(parts["NAME"]):
                where.setdefault(name, []).append(page)
            described.update(synopsis(parts["SYNOPSIS"]))
            text = prototypes.joined(" ".join(literal(parts["SYNOPSIS"])))
            for name, structure in structures(include).items():
                if structure in text:
                    defined[name] = page
    functions = prototypes.functions(include)
    check.say(not functions and "none are found", "the headers declare functions")
    for name, function in functions.items():
        wrong = None
        if len(where.get(name, [])) != 1:
            wrong = "named in %s" % where.get(name)
        elif described.get(name) != function.text:
            wrong = "%s\n%s" % (described.get(name), function.text)
        check.say(wrong, "%s: a page that says what %s says" % (name, function.header))
    check.say(", ".join(sorted(set(described) - set(functions))), "no page describes what is not there")
    for name, header in prototypes.others(include).items():
        check.say(len(where.get(name, [])) != 1 and "named in %s" % where.get(name),
                  "%s of %s: a page" % (name, header))
    for name in structures(include):
        check.say(name not in defined and "it is not in a synopsis", "struct %s as it is" % name)

    titles = {p.rsplit(".", 1)[0] + " " + p[-1] for p in pages} | {n + " 3" for n in where}
    for page, path in pages.items():
        with open(path, encoding="utf-8") as f:
            refers = re.findall(r"^\.Xr (pollux\S* [0-9])", f.read(), re.M)
        check.say(", ".join(sorted(set(refers) - titles)), "%s: what it refers to is there" % page)

    if shutil.which("mandoc"):
        for page, path in pages.items():
            p = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               check=False)
            check.say(p.stdout, "%s: mandoc finds nothing" % page)
    else:
        print("# mandoc is not installed")

    with tempfile.TemporaryDirectory() as scratch:
        check.say(not program.run("int main(void) { return 3; }\n", include, library, scratch)[0] and
                  "it passes", "an example that fails is found")
        for page, path in pages.items():
            if page[-1] in "37":
                for text in literal(sections(path)[0].get("EXAMPLES", [])):
                    check.say(program.run(text, include, library, scratch)[0],
                              "%s: its example" % page)
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
