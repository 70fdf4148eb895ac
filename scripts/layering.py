#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""layering.py [--write] [BUILD]: holds the order of the rooms of docs/design.md.

1. A file includes headers of its own room, or of one further down the table there.
2. It calls functions of its own room, or of one further down.
3. No cycle of calls among the files of a room is longer than two files.

tests/layering.txt has what breaks the third rule today: the calls that lie on such a cycle.  It can
only become shorter: a call that it does not name is a failure, and so is one that it names and that
lies on no such cycle any more.  (--write makes it anew.)

What a file calls is read from its object in the build folder: code of it that refers to a function of
another file calls it.  Calls through tables of operations are read from the sources: who calls a member
of a structure by its name, as in f->ops->poll(f), calls each function of the room that is put into a
member of that name anywhere.  Functions that are handed over as arguments count as called by who
hands them over.
"""

import glob
import os
import re
import struct
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(TOP, "tests", "layering.txt")
ROOM = re.compile(r"^\| `src/([a-z]+)/` \|", re.M)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
# A member that points to a function, what is put into one, and a call of one.
MEMBER = re.compile(r"^\s+[a-z][^;(]*\(\*(\w+)\)\(", re.M)
PUT = re.compile(r"(?:\.|->)(\w+)\s*=\s*&?(\w+)\b(?!\s*[(.\[])(?!->)")
CALL = re.compile(r"(?:\.|->)(\w+)\)?\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def room_of(name):
    return name.split("/")[0]


def text_of(name):
    with open(os.path.join(TOP, "src", name), encoding="utf-8") as f:
        return COMMENT.sub(" ", f.read())


# --- objects ----------------------------------------------------------------------------------

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
SYMTAB, RELA, EXECUTED, FUNCTIONS, HIDDEN = 2, 4, 4, (2, 10), 2
# What they show to programs has names of libc's, and who calls libc does not call them.
LIBC_NAMES = ("preload", "starter")


class Object:
    """Of an ELF64 object: the functions that it defines, and what its code refers to."""

    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        if data[:6] != b"\x7fELF\x02\x01":
            raise SystemExit("%s is no object of a machine that this script knows" % path)
        start, = struct.unpack_from("<Q", data, 0x28)
        number, = struct.unpack_from("<H", data, 0x3C)
        sections = [SECTION.unpack_from(data, start + i * SECTION.size) for i in range(number)]
        self.exported, self.static, self.wanted = {}, set(), set()
        names = []
        for kind, offset, size, link in [(s[1], s[4], s[5], s[6]) for s in sections]:
            if kind != SYMTAB:
                continue
            strings = sections[link][4]
            for name, info, other, where, _, _ in SYMBOL.iter_unpack(data[offset:offset + size]):
                begin = strings + name
                name = data[begin:data.index(b"\0", begin)].decode()
                names.append(name if where == 0 else None)
                if where and info & 15 in FUNCTIONS and info >> 4:
                    self.exported[name] = other & 3 == HIDDEN
                elif where and info & 15 in FUNCTIONS:
                    self.static.add(name)
        for s in sections:
            if s[1] == RELA and sections[s[7]][2] & EXECUTED:
                for _, info, _ in RELOCATION.iter_unpack(data[s[4]:s[4] + s[5]]):
                    self.wanted.add(names[info >> 32])
        self.wanted.discard(None)


def objects(build):
    """{"room/file.c": Object}"""
    found = {}
    for path in sorted(glob.glob(os.path.join(build, "*.p", "src_*.o"))):
        _, room, name = os.path.basename(path)[:-len(".o")].split("_", 2)
        found.setdefault(room + "/" + name, path)
    # A room with a library of its own.
    for path in sorted(glob.glob(os.path.join(build, "src", "*", "*.p", "*.o"))):
        folder, name = os.path.split(path[:-len(".o")])
        found.setdefault(os.path.basename(os.path.dirname(folder)) + "/" + name, path)
    # Those of sources that are gone stay there.
    return {name: Object(path) for name, path in found.items()
            if os.path.exists(os.path.join(TOP, "src", name))}


# --- the three rules --------------------------------------------------------------------------

def wrong_includes(rooms, files):
    for name in files:
        room = room_of(name)
        for header in INCLUDE.findall(text_of(name)):
            other = header.split("/")[0] if "/" in header else room
            if other in rooms and rooms.index(other) < rooms.index(room):
                yield "%s includes %s" % (name, header)


class Homes:
    """In which file a function is."""

    def __init__(self, found):
        self.files = {}
        for name, o in found.items():
            for f, hidden in o.exported.items():
                # The compiler makes calls of its run-time.
                if not f.startswith("_Unwind_") and (hidden or room_of(name) not in LIBC_NAMES):
                    self.files.setdefault(f, []).append(name)

    def of(self, function, caller):
        """The libraries have a few functions of the same name; a room has its own."""
        files = self.files.get(function, [])
        return next((f for f in files if room_of(f) == room_of(caller)), files[0] if files else None)


def direct_calls(found):
    """{file: {file}}"""
    homes = Homes(found)
    return {name: {homes.of(f, name) for f in o.wanted} - {name, None} for name, o in found.items()}


def calls_through_tables(found, files):
    texts = {name: text_of(name) for name in files}
    members = {m for text in texts.values() for m in MEMBER.findall(text)}
    for name in glob.glob(os.path.join(TOP, "include", "pollux", "*.h")):
        with open(name, encoding="utf-8") as f:
            members.update(MEMBER.findall(COMMENT.sub(" ", f.read())))
    homes, put = Homes(found), {}
    for name, text in texts.items():
        for member, function in PUT.findall(text):
            if member not in members:
                continue
            if name in found and function in found[name].static:
                put.setdefault(member, set()).add(name)
            elif homes.of(function, name):
                put.setdefault(member, set()).add(homes.of(function, name))
    # An inline function of a header is called where the header is included; its own room has it.
    return {name: {to for m in CALL.findall(texts[name]) for to in put.get(m, ())
                   if room_of(to) == room_of(name)} - {name}
            for name in files if name.endswith(".c")}


def on_long_cycles(calls):
    """The calls from file to file that lie on a cycle of three files or more."""
    for a in calls:
        for b in calls[a]:
            # Is there a way back but for the direct one?
            todo, seen = [b], {b}
            while todo:
                at = todo.pop()
                for c in calls[at]:
                    if c not in seen and (at, c) != (b, a):
                        seen.add(c)
                        todo.append(c)
            if a in seen:
                yield a, b


def main():
    write = "--write" in sys.argv
    build = ([a for a in sys.argv[1:] if not a.startswith("--")] or ["build"])[0]
    with open(os.path.join(TOP, "docs", "design.md"), encoding="utf-8") as f:
        rooms = ROOM.findall(f.read())
    files = sorted(os.path.relpath(f, os.path.join(TOP, "src"))
                   for f in glob.glob(os.path.join(TOP, "src", "*", "*.[ch]")))
    found = objects(build)
    wrong = ["the table of rooms in docs/design.md lacks src/%s" % r
             for r in sorted({room_of(f) for f in files} - set(rooms))]
    missing = [f for f in files if f.endswith(".c") and f not in found]
    if missing or wrong:
        print("\n".join(wrong + ["%s has no object in %s" % (f, build) for f in missing]))
        return 1

    wrong += wrong_includes(rooms, files)
    direct = {a: to for a, to in direct_calls(found).items() if a in files}
    for a in sorted(direct):
        for b in sorted(direct[a]):
            if rooms.index(room_of(b)) < rooms.index(room_of(a)):
                wrong.append("%s calls functions of %s" % (a, b))
    through = calls_through_tables(found, files)
    inside = {a: {b for b in direct[a] | through[a] if room_of(b) == room_of(a)}
              for a in direct}
    cycles = {"%s calls %s" % c for c in on_long_cycles(inside)}
    if write:
        with open(LIST, encoding="utf-8") as f:
            head = [line for line in f if line.startswith("#")]
        with open(LIST, "w", encoding="utf-8") as f:
            f.writelines(head + [c + "\n" for c in sorted(cycles)])
    with open(LIST, encoding="utf-8") as f:
        listed = {line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")}
    wrong += ["%s, on a cycle of more than two files" % c for c in sorted(cycles - listed)]
    wrong += ["%s: on no long cycle any more; remove it from tests/layering.txt" % c
              for c in sorted(listed - cycles)]
    print("%d files in %d rooms, %d calls between files of a room, %d on long cycles"
          % (len(found), len(rooms), sum(map(len, inside.values())), len(cycles)))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
