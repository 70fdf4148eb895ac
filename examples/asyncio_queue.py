#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""asyncio's loop drives an epoll of Pollux.

asyncio waits for descriptors. pollux_ep_fd gives it one that is readable while an event waits, be it
of an object or of a descriptor in the epoll; so coroutines await queues that any thread fills, with
one descriptor for all of them. Pollux is called by ctypes, with no extension to compile.

  asyncio_queue.py [LIBPOLLUX]
"""

import asyncio
import collections
import ctypes
import platform
import select
import socket
import sys
import threading

QUEUES = 100
NUMBERS = 200
ECHOES = 500
CTL_ADD = 1


class EpollEvent(ctypes.Structure):
    """struct epoll_event, which has no padding on x86-64."""
    if platform.machine() == "x86_64":
        _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


class Level(ctypes.Structure):
    """struct pollux_level: an object whose events are set and cleared."""
    _fields_ = [("file", ctypes.c_uint64 * 8), ("events", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("free", ctypes.c_void_p)]


def load(path):
    lib = ctypes.CDLL(path)
    pointer, events = ctypes.c_void_p, ctypes.c_uint32
    for name, arguments in {
            "pollux_ep_new": [ctypes.POINTER(pointer), pointer],
            "pollux_ep_put": [pointer],
            "pollux_ep_ctl": [pointer, ctypes.c_int, pointer, ctypes.c_int, pointer],
            "pollux_ep_ctl_fd": [pointer, ctypes.c_int, ctypes.c_int, pointer],
            "pollux_ep_wait": [pointer, pointer, ctypes.c_int, ctypes.c_int64],
            "pollux_ep_fd": [pointer],
            "pollux_file_put": [pointer],
            "pollux_level_init": [pointer, events, pointer],
            "pollux_level_set": [pointer, events],
            "pollux_level_clear": [pointer, events],
            "pollux_synchronize": []}.items():
        getattr(lib, name).argtypes = arguments
    return lib


def checked(result):
    """What a call has returned, unless it is a negative errno."""
    if result < 0:
        raise OSError(-result, "pollux")
    return result


class Epoll:
    """An epoll that calls what was added with it, in asyncio's loop."""

    def __init__(self, lib, loop):
        self.lib, self.loop = lib, loop
        self.ep = ctypes.c_void_p()
        self.callbacks = []
        self.events = (EpollEvent * 16)()
        checked(lib.pollux_ep_new(ctypes.byref(self.ep), None))
        self.fd = checked(lib.pollux_ep_fd(self.ep))
        loop.add_reader(self.fd, self.readable)

    def registration(self, events, callback):
        self.callbacks.append(callback)
        return ctypes.byref(EpollEvent(events, len(self.callbacks) - 1))

    def add(self, file, events, callback):
        checked(self.lib.pollux_ep_ctl(self.ep, CTL_ADD, file, 0,
                                       self.registration(events, callback)))

    def add_fd(self, fd, events, callback):
        checked(self.lib.pollux_ep_ctl_fd(self.ep, CTL_ADD, fd,
                                          self.registration(events, callback)))

    def readable(self):
        # The descriptor stays readable while events are left.
        n = checked(self.lib.pollux_ep_wait(self.ep, self.events, len(self.events), 0))
        for e in self.events[:n]:
            self.callbacks[e.data]()

    def close(self):
        self.loop.remove_reader(self.fd)
        self.lib.pollux_ep_put(self.ep)


class Queue:
    """Any thread puts, one coroutine gets."""

    def __init__(self, epoll):
        self.lib = epoll.lib
        self.loop = epoll.loop
        self.level = Level()
        self.lock = threading.Lock()
        self.items = collections.deque()
        self.waiter = None
        self.lib.pollux_level_init(ctypes.byref(self.level), 0, None)
        # Edge-triggered: what nobody waits for must not keep the loop busy.
        epoll.add(ctypes.byref(self.level), select.EPOLLIN | select.EPOLLET, self.ready)

    def put(self, item):
        with self.lock:
            self.items.append(item)
            self.lib.pollux_level_set(ctypes.byref(self.level), select.EPOLLIN)

    def take(self):
        with self.lock:
            items = list(self.items)
            self.items.clear()
            self.lib.pollux_level_clear(ctypes.byref(self.level), select.EPOLLIN)
        return items

    def ready(self):
        if self.waiter:
            waiter, self.waiter = self.waiter, None
            waiter.set_result(self.take())

    async def get(self):
        """All that is there, at least one."""
        items = self.take()
        if not items:
            self.waiter = self.loop.create_future()
            items = await self.waiter
        return items

    def close(self):
        self.lib.pollux_file_put(ctypes.byref(self.level))


async def consume(queue):
    got = events = 0
    while got < NUMBERS:
        items = await queue.get()
        assert items == list(range(got, got + len(items)))
        got += len(items)
        events += 1
    return got, events


def produce(queues):
    for i in range(NUMBERS):
        for q in queues:
            q.put(i)


def ask(sock):
    for i in range(ECHOES):
        sock.sendall(bytes([i % 256]))
        assert sock.recv(1) == bytes([i % 256])


async def main(lib):
    loop = asyncio.get_running_loop()
    epoll = Epoll(lib, loop)
    queues = [Queue(epoll) for _ in range(QUEUES)]
    ours, theirs = socket.socketpair()
    echoes, done = 0, loop.create_future()

    def echo():
        nonlocal echoes
        ours.sendall(ours.recv(1))
        echoes += 1
        if echoes == ECHOES:
            done.set_result(None)

    epoll.add_fd(ours.fileno(), select.EPOLLIN, echo)
    threads = [threading.Thread(target=produce, args=(queues,)),
               threading.Thread(target=ask, args=(theirs,))]
    for t in threads:
        t.start()
    counts = await asyncio.gather(*(consume(q) for q in queues))
    await done
    for t in threads:
        t.join()
    epoll.close()
    for q in queues:
        q.close()
    # Nobody looks at the objects any more: Python may have their memory back.
    lib.pollux_synchronize()
    ours.close()
    theirs.close()
    print("asyncio: %d numbers of %d queues by %d gets; %d echoes of a socket by the same epoll"
          % (sum(c[0] for c in counts), QUEUES, sum(c[1] for c in counts), echoes))


asyncio.run(main(load(sys.argv[1] if len(sys.argv) > 1 else "libpollux.so.1")))
