# SPDX-License-Identifier: MIT
"""A writer that is killed: aio-kill-program.py DATA LOG RECORDS DEPTH DIRECT RESFD REAP

Writes records of 4 KiB through Linux AIO, in an order of its own, for ever. Record i holds nothing
but its number and the round. What io_getevents has reported is put into the log, which is shared
memory of a file and outlives the process."""

import ctypes
import mmap
import os
import struct
import sys

SETUP, GETEVENTS, SUBMIT = 206, 208, 209
PWRITE, RESFD = 1, 1
SIZE = 4096
MAGIC = 0xa10a10a1

data, log = sys.argv[1:3]
records, depth, direct, resfd, reap = map(int, sys.argv[3:])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *args):
    r = libc.syscall(ctypes.c_long(number), *args)
    if r < 0:
        raise OSError(ctypes.get_errno(), "system call %d" % number)
    return r


fd = os.open(data, os.O_RDWR | (os.O_DIRECT if direct else 0))
# An element is stored in one step; struct.pack_into makes it 0 first, which a kill may leave.
logged = (ctypes.c_ulonglong * records).from_buffer(mmap.mmap(os.open(log, os.O_RDWR), 8 * records))
efd = os.eventfd(0) if resfd else -1

ctx = ctypes.c_ulong(0)
call(SETUP, ctypes.c_uint(depth), ctypes.byref(ctx))
buffers = mmap.mmap(-1, SIZE * depth)
base = ctypes.addressof(ctypes.c_char.from_buffer(buffers))
iocbs = ctypes.create_string_buffer(64 * depth)
events = ctypes.create_string_buffer(32 * depth)
pointers = (ctypes.c_ulong * depth)(*(ctypes.addressof(iocbs) + 64 * i for i in range(depth)))
ring = (ctypes.c_uint * 8).from_address(ctx.value)
ring_events = ctx.value + 32


def by_itself():
    """What a program takes that looks at the ring first; the call if the ring does not say."""
    if ring[4] != MAGIC or ring[2] == ring[3]:
        return None
    head = ring[2]
    taken = ctypes.string_at(ring_events + 32 * head, 32)
    ring[2] = (head + 1) % ring[1]
    return [taken]


free = list(range(depth))
holds = {}
rounds = [0] * records
on_its_way = set()
turn = 0
while True:
    batch = len(free)
    for n in range(batch):
        slot = free[n]
        # Coprime steps visit every record; one that is on its way is not written a second time.
        while True:
            record = (turn * 7919) % records
            turn += 1
            if record not in on_its_way:
                break
        on_its_way.add(record)
        rounds[record] += 1
        round_ = rounds[record]
        buffers[slot * SIZE:(slot + 1) * SIZE] = struct.pack("<QQ", record, round_) * (SIZE // 16)
        struct.pack_into("<QIIHhIQQqQII", iocbs, 64 * slot, slot, 0, 0, PWRITE, 0, fd,
                         base + slot * SIZE, SIZE, record * SIZE, 0,
                         RESFD if resfd else 0, efd if resfd else 0)
        holds[slot] = (record, round_)
        pointers[n] = ctypes.addressof(iocbs) + 64 * slot
    done = 0
    while done < batch:
        done += call(SUBMIT, ctx, ctypes.c_long(batch - done),
                     ctypes.byref(pointers, 8 * done))
    free = []
    if resfd:
        os.eventfd_read(efd)
    while not free:
        got = by_itself() if reap else None
        if got is None:
            n = call(GETEVENTS, ctx, ctypes.c_long(0 if resfd else 1), ctypes.c_long(depth),
                     events, None)
            got = [events.raw[32 * i:32 * i + 32] for i in range(n)]
        for e in got:
            slot, _, res, _ = struct.unpack("<QQqq", e)
            if res != SIZE:
                raise OSError(-res, "event")
            record, round_ = holds[slot]
            logged[record] = round_
            on_its_way.discard(record)
            free.append(slot)
