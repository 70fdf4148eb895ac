#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""caller_frame.py LIBRARY...

No function that a library exports stores to the frame of its caller.

A function of the x86-64 ABI that takes more than six arguments finds the others in memory, above its
return address, and may write there. A caller of syscall() or of a variadic function has often passed
fewer. The bottom of its own frame is there then, and what is stored there undoes what another thread
has written meanwhile.

The test reads the disassembly. It follows each exported function through all branches, and through
the jumps by which it ends in another function of the library, and keeps for each register whether it
is the stack pointer of the entry plus a constant. A store through such a register to the return
address or above it is a failure. An address that is kept in memory, or given to a function that is
called, is not followed: compilers make such of the list of variable arguments, and only read there.
"""

import bisect
import collections
import os
import re
import subprocess
import sys
import tempfile

SYMBOL = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
PREFIXES = {"lock", "notrack", "bnd", "rep", "repz", "repnz", "data16", "cs", "ds", "addr32"}
TARGET = re.compile(r"^([0-9a-f]+)(?: <.*>)?$")
MEMORY = re.compile(r"^(%[a-z]s:)?(-?0x[0-9a-f]+|-?[0-9]+)?\(([^)]*)\)$")
# What is only read although it stands last.
NO_STORE = re.compile(r"^(cmp[bwlq]?$|cmps|test|bt[bwlq]?$|u?comis|v?u?comis|prefetch|push|nop|call|jmp|v?ptest|div|idiv|"
                      r"mul|imul[bwlq]?$|ld|fld|fild|clflush|cldemote|fx?rstor|xrstor|v?ldmxcsr|j)")
CLOBBERED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
REGISTERS = CLOBBERED + ("rbx", "rbp", "rsp", "r12", "r13", "r14", "r15")
NARROW = {}
for full in REGISTERS:
    if full[1:].isdigit():
        NARROW.update({full + s: full for s in ("d", "w", "b")})
    else:
        tail = full[1:]
        NARROW["e" + tail] = NARROW[tail] = full
        NARROW[(tail[0] if tail[1] == "x" else tail) + "l"] = full
        if tail[1] == "x":
            NARROW[tail[0] + "h"] = full

ENDS = re.compile(r"^(jmp|ret|ud2|hlt)")
WIDTHS = {"b": 1, "w": 2, "l": 4, "q": 8}
VECTORS = {"x": 16, "y": 32, "z": 64}
Instruction = collections.namedtuple("Instruction", "address text op args next")


def split(args):
    """The operands; a comma within parentheses separates none."""
    out, depth, word = [], 0, ""
    for c in args:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            out.append(word.strip())
            word = ""
        else:
            word += c
    return out + [word.strip()] if word.strip() else out


def read(path):
    """All instructions by address, their addresses and those of the symbols in order."""
    said = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout
    code, order, starts = {}, [], []
    for line in said.splitlines():
        m = SYMBOL.match(line)
        if m:
            starts.append(int(m.group(1), 16))
            continue
        m = INSTRUCTION.match(line)
        if not m:
            continue
        words = m.group(2).split("#")[0].split()
        while words and words[0] in PREFIXES:
            words.pop(0)
        if not words:
            continue
        address = int(m.group(1), 16)
        code[address] = [m.group(2).strip(), words[0], split(" ".join(words[1:]))]
        order.append(address)
    order.sort()
    starts.sort()
    listing = {}
    for here, after in zip(order, order[1:] + [None]):
        listing[here] = Instruction(here, code[here][0], code[here][1], code[here][2], after)
    return listing, order, starts


def exported(path):
    said = subprocess.run(["nm", "-D", "--defined-only", path], check=True,
                          stdout=subprocess.PIPE, universal_newlines=True).stdout
    for line in said.splitlines():
        address, kind, name = line.split()
        if kind in "TWi":
            yield int(address, 16), name.split("@")[0]


def register(operand):
    """The name of a register of 64 bits, or None."""
    name = operand.lstrip("%")
    return name if operand.startswith("%") and name in REGISTERS else None


def whole(operand):
    """The register of 64 bits that a write to this one changes, or None."""
    name = operand.lstrip("%")
    if not operand.startswith("%"):
        return None
    return name if name in REGISTERS else NARROW.get(name)


def number(operand):
    return int(operand.lstrip("$"), 0) if re.match(r"^\$-?(0x[0-9a-f]+|\d+)$", operand) else None


def signed(v):
    return v - (1 << 64) if v is not None and v >= 1 << 63 else v


def place(operand, state):
    """Where an operand in memory is, from the stack pointer of the entry, or None."""
    m = MEMORY.match(operand)
    if not m or m.group(1) in ("%fs:", "%gs:"):
        return None
    base = register(m.group(3).split(",")[0])
    if base is None or state.get(base) is None:
        return None
    return state[base] + signed(int(m.group(2) or "0", 0))


def step(i, state):
    """The state after an instruction that goes on with the next."""
    new = dict(state)
    sp = state.get("rsp")
    last = i.args[-1] if i.args else ""
    changed = whole(last)
    if i.op.startswith("call"):
        for r in CLOBBERED:
            new[r] = None
    elif i.op.startswith("push"):
        new["rsp"] = None if sp is None else sp - 8
    elif i.op.startswith("pop"):
        if changed:
            new[changed] = None
        new["rsp"] = None if sp is None else sp + 8
    elif i.op.startswith("leave"):
        new["rsp"] = None if state.get("rbp") is None else state["rbp"] + 8
        new["rbp"] = None
    elif i.op.startswith("mov") and len(i.args) == 2 and register(last):
        source = register(i.args[0])
        new[changed] = state.get(source) if source and i.op in ("mov", "movq") else None
    elif i.op.startswith("lea") and register(last):
        indexed = "," in (MEMORY.match(i.args[0]) or [""] * 4)[3] if MEMORY.match(i.args[0]) else True
        new[changed] = None if indexed else place(i.args[0], state)
    elif i.op in ("add", "addq", "sub", "subq") and register(last):
        by, old = signed(number(i.args[0])), state.get(changed)
        if by is None or old is None:
            new[changed] = None
        else:
            new[changed] = old + by if i.op.startswith("add") else old - by
    elif i.op.startswith("cmpxchg"):
        new["rax"] = new["rdx"] = None
    elif i.op.startswith("xchg"):
        for a in i.args:
            if whole(a):
                new[whole(a)] = None
    elif changed and not i.op.startswith(("cmp", "test", "bt")) or i.op == "cpuid":
        for r in ("rax", "rbx", "rcx", "rdx") if i.op == "cpuid" else (changed,):
            new[r] = None
    elif i.op in ("syscall", "rdtsc", "rdtscp", "xgetbv", "cqto", "cltq", "cqo") or \
            re.match(r"^(mul|imul|div|idiv)", i.op) and len(i.args) == 1:
        for r in ("rax", "rdx", "rcx", "r11"):
            new[r] = None
    return new


def width(i):
    """How many bytes an instruction stores; 8 where its name and its registers do not say."""
    if i.op == "cmpxchg16b":
        return 16
    for a in i.args:
        vector = re.match(r"^%([xyz])mm", a)
        if vector:
            return VECTORS[vector.group(1)]
        if re.match(r"^%(e[a-ds][xip]|r\d+d)$", a):
            return 4
        if re.match(r"^%([a-d][lh]|[sd]il|[sb]pl|r\d+b)$", a):
            return 1
    return WIDTHS.get(i.op[-1], 8)


def stores(i, state):
    """Whether the instruction writes to the caller's frame, the return address included."""
    found = []
    if i.op.startswith("xchg") or not NO_STORE.match(i.op):
        for a in i.args if i.op.startswith(("xchg", "xadd")) else i.args[-1:]:
            found.append(place(a, state))
    return any(p is not None and p + width(i) > 0 for p in found)


def merge(old, new):
    return {r: old[r] if old.get(r) == new.get(r) else None for r in REGISTERS}


def behind_ends(listing, order, starts, begin):
    """Where a function goes on behind a jump or its end: what a table of a switch can lead to."""
    ended = False
    after = bisect.bisect_right(starts, begin)
    first = bisect.bisect_left(order, begin)
    last = bisect.bisect_left(order, starts[after]) if after < len(starts) else len(order)
    for a in order[first:last]:
        op = listing[a].op
        if ended and not op.startswith(("nop", "xchg")):
            yield a
        ended = bool(ENDS.match(op)) or ended and op.startswith(("nop", "xchg"))


def follow(listing, order, starts, entry):
    """The instructions, reached from a function's entry, that store to the frame of its caller."""
    start = {r: None for r in REGISTERS}
    start["rsp"] = 0
    seen, work, bad, tables = {}, [(entry, start)], {}, {}

    def reach(address, state):
        if address in listing:
            work.append((address, state))

    while work or tables:
        if not work:
            begin, state = tables.popitem()
            for a in behind_ends(listing, order, starts, begin):
                if a not in seen:
                    reach(a, state)
            continue
        address, state = work.pop()
        if address in seen:
            joined = merge(seen[address], state)
            if joined == seen[address]:
                continue
            state = joined
        seen[address] = state
        i = listing[address]
        if stores(i, state):
            bad[address] = i
        if i.op.startswith("j"):
            to = TARGET.match(i.args[0]) if i.args else None
            if to:
                reach(int(to.group(1), 16), state)
            elif i.op.startswith("jmp"):
                begin = starts[bisect.bisect_right(starts, address) - 1]
                known = tables.get(begin)
                tables[begin] = merge(known, state) if known else state
        # What stands behind a call that does not return belongs to another function.
        ends = ENDS.match(i.op) or (i.args and i.args[0].endswith("<_Unwind_Resume>"))
        if i.next is not None and not ends:
            reach(i.next, step(i, state))
    return [bad[a] for a in sorted(bad)]


def check(path):
    """What is wrong with a library: (function, instruction), each once."""
    listing, order, starts = read(path)
    wrong, count = [], 0
    for address, name in sorted(exported(path)):
        if address not in listing:
            continue
        count += 1
        wrong += [(name, i) for i in follow(listing, order, starts, address)]
    return count, wrong


# Each way to do it wrong, and what looks like it and is right.
VARIANTS = [
    ("a store behind pushes and a frame", True,
     "push %rbx\n sub $16,%rsp\n mov %rdi,32(%rsp)\n add $16,%rsp\n pop %rbx\n ret"),
    ("a store by the frame pointer", True, "push %rbp\n mov %rsp,%rbp\n mov %edi,16(%rbp)\n leave\n ret"),
    ("a store on one of two branches", True,
     "test %edi,%edi\n je 1f\n sub $8,%rsp\n movups %xmm0,16(%rsp)\n add $8,%rsp\n 1: ret"),
    ("a store through a copy of the stack pointer", True, "lea 8(%rsp),%rax\n mov %rdi,(%rax)\n ret"),
    ("an addition there", True, "lock addq $1,8(%rsp)\n ret"),
    ("a store in the function that it jumps to", True,
     "jmp helper\n .globl helper\n .hidden helper\n .type helper,@function\n helper: mov %rdi,8(%rsp)\n ret"),
    ("a store behind the table of a switch", True,
     "lea 9f(%rip),%rax\n push %rbx\n jmp *%rax\n 9: mov %rdi,16(%rsp)\n pop %rbx\n ret"),
    ("a compare-and-swap there", True, "xor %eax,%eax\n lock cmpxchg %rdi,8(%rsp)\n ret"),
    ("a store that begins below and ends there", True, "movups %xmm0,-8(%rsp)\n ret"),
    ("a string that is stored there", True, "lea 8(%rsp),%rdi\n mov $1,%ecx\n rep stosq\n ret"),
    ("stores that end below", False, "movups %xmm0,-16(%rsp)\n mov %edi,-4(%rsp)\n ret"),
    ("a comparison", False, "cmp %rdi,8(%rsp)\n cmpl $1,8(%rsp)\n ret"),
    ("a load of an argument", False, "sub $8,%rsp\n mov 16(%rsp),%rax\n cmpq $3,16(%rsp)\n add $8,%rsp\n ret"),
    ("stores to its own frame", False,
     "push %rbx\n sub $32,%rsp\n mov %rdi,24(%rsp)\n push 40(%rsp)\n pop %rax\n add $32,%rsp\n pop %rbx\n ret"),
    ("a store through another register", False, "mov %rdi,16(%rsi)\n ret"),
]


def variants():
    for what, bad, body in VARIANTS:
        with tempfile.TemporaryDirectory() as d:
            source, library = os.path.join(d, "v.s"), os.path.join(d, "v.so")
            with open(source, "w", encoding="ascii") as f:
                f.write(".text\n.globl entry\n.type entry,@function\nentry: %s\n.size entry,.-entry\n"
                        ".section .note.GNU-stack,\"\",@progbits\n" % body)
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-nostdlib", "-o", library, source],
                           check=True)
            yield what, bad, bool(check(library)[1])


def main():
    failed = 0

    def say(right, name):
        nonlocal failed
        failed += not right
        print("%s - %s" % ("ok" if right else "not ok", name))

    for what, bad, found in variants():
        say(bad == found, "%s is %s" % (what, "found" if bad else "right"))
    for path in sys.argv[1:]:
        count, wrong = check(path)
        for name, i in wrong:
            print("%s: %x: %s" % (name, i.address, i.text))
        say(count > 0 and not wrong, "no exported function of %s stores to its caller's frame"
            % os.path.basename(path))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
