# SPDX-License-Identifier: MIT
"""What descriptors.py runs, by the name of its part: prints one JSON object of results."""

import asyncio
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import threading

LIBC = ctypes.CDLL(None, use_errno=True)


def mapped(pid="self"):
    with open("/proc/%s/maps" % pid) as f:
        return "libpollux-preload" in f.read()


class Wake:
    """An epoll with an eventfd, a socket and a timer's worth of what programs use."""

    def __init__(self):
        self.ep = select.epoll()
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.a, self.b = socket.socketpair()
        self.ep.register(self.event, select.EPOLLIN)
        self.ep.register(self.a, select.EPOLLIN | select.EPOLLET)

    def works(self, rounds=50):
        """A thread wakes this one through both."""
        total = 0

        def other():
            for i in range(rounds):
                os.eventfd_write(self.event, 2)
                self.b.send(b"x")

        t = threading.Thread(target=other)
        t.start()
        got = b""
        while total < 2 * rounds or len(got) < rounds:
            for fd, _ in self.ep.poll(20):
                if fd == self.event:
                    total += os.eventfd_read(fd)
                else:
                    got += self.a.recv(1000)
        t.join()
        return [total, len(got)]

    def close(self):
        self.ep.close()
        os.close(self.event)
        self.a.close()
        self.b.close()

    def numbers(self):
        return [self.ep.fileno(), self.event, self.a.fileno(), self.b.fileno()]


def refused(call, *args):
    try:
        call(*args)
    except (OSError, ValueError) as e:
        return errno.errorcode.get(getattr(e, "errno", None), repr(e))
    return "no error"


def close_all(how):
    """Closes every number from 3 on as daemons do, behind the objects' backs, and goes on."""
    said = []
    keep = os.dup(1)
    os.set_inheritable(keep, False)
    os.dup2(keep, 2 + 1)
    for _ in range(3):
        w = Wake()
        numbers = w.numbers()
        said.append(w.works())
        top = 20000
        if how == "closerange":
            os.closerange(4, top)
        elif how == "close_range":
            LIBC.close_range(4, ctypes.c_uint(-1), 0)
        elif how == "closefrom":
            LIBC.closefrom(4)
        else:
            for fd in range(4, top):
                LIBC.close(fd)
        said.append([refused(os.fstat, n) for n in numbers])
        said.append(refused(w.ep.poll, 0))
        said.append([refused(os.eventfd_read, w.event), refused(os.eventfd_write, w.event, 1)])
        # The same numbers are free again.
        again = Wake()
        said.append(again.numbers() == numbers or [numbers, again.numbers()])
        said.append(again.works())
        again.close()
        for s in w.a, w.b:
            s.detach()
        # Python believes in its epoll's number; what stands there now is its own to close.
        refused(w.ep.close)
    return said


def everything_closed():
    """Also 0, 1 and 2: new objects get those numbers."""
    out = os.dup(1)
    high = 900
    os.dup2(out, high)
    os.closerange(0, high)
    w = Wake()
    numbers = w.numbers()
    works = w.works()
    w.close()
    return [numbers, works], high


def limits():
    """Lowers and raises the limit of descriptors, with objects and at the limit."""
    said = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    w = Wake()
    said["before"] = w.works()
    for n in (1024, 256, 64):
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
        said["at %d" % n] = [w.works(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
        v = Wake()
        said["new at %d" % n] = v.works()
        opened = []
        while True:
            try:
                opened.append(os.eventfd(0) if len(opened) % 2 else os.open("/dev/null", 0))
            except OSError as e:
                said["end at %d" % n] = [errno.errorcode[e.errno], opened[-1], len(opened)]
                break
        # With no number left, what is there still works, and what makes a number fails.
        said["full at %d" % n] = [v.works(), refused(select.epoll), refused(os.eventfd, 0),
                                  refused(os.dup, v.event), refused(os.pipe)]
        pid = os.fork()
        if pid == 0:
            os._exit(0 if v.works() == [100, 50] else 1)
        said["child at %d" % n] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for fd in opened:
            os.close(fd)
        v.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    said["below"] = w.works()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    x = Wake()
    said["after"] = [w.works(), x.works()]
    # Both limits, for good.
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    y = Wake()
    said["for good"] = [w.works(), x.works(), y.works(), refused(
        resource.setrlimit, resource.RLIMIT_NOFILE, (300, 300)) if os.getuid() else ""]
    many = [os.eventfd(i) for i in range(100)]
    said["many"] = [os.eventfd_read(fd) for fd in many[1:]]
    return said


def daemon(report):
    """Double fork and setsid, with objects made before, between and after."""
    before = Wake()
    works = [before.works()]
    if os.fork():
        os._exit(0)
    os.setsid()
    between = Wake()
    works += [before.works(), between.works()]
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    after = Wake()
    works += [before.works(), between.works(), after.works()]

    async def loop():
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
        with open(report + ".new", "w") as f:
            json.dump({"pid": os.getpid(), "sid": os.getsid(0) != os.getpid(), "works": works,
                       "mapped": mapped()}, f)
        os.rename(report + ".new", report)
        await asyncio.wait_for(heard.wait(), 60)

    asyncio.run(loop())
    with open(report + ".end", "w") as f:
        json.dump([before.works(), after.works()], f)


def main():
    part = sys.argv[1]
    if part == "daemon":
        daemon(sys.argv[2])
        return
    was_mapped = mapped()
    served = getattr(LIBC, "pollux_fd_served", lambda fd: 0)
    w = Wake()
    count = served(w.event) + served(w.ep.fileno())
    w.close()
    out = 1
    if part == "limits":
        results = limits()
    elif part == "everything":
        results, out = everything_closed()
    else:
        results = close_all(part)
        out = 3
    os.write(out, json.dumps({"results": results, "mapped": was_mapped, "served": count}).encode())


main()
