# SPDX-License-Identifier: MIT
"""What cpython.py runs: prints one JSON object, "results" for comparison and "rates"."""

import array
import asyncio
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import pty
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SCALE = int(os.environ.get("SCALE", "1"))


# --- asyncio ----------------------------------------------------------------------------------

async def echo_server(clients, messages):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def client(k):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        h = hashlib.md5()
        for i in range(messages):
            writer.write(b"client %d message %d\n" % (k, i))
            h.update(await reader.readline())
        writer.close()
        await writer.wait_closed()
        return h.hexdigest()

    sums = await asyncio.gather(*(client(k) for k in range(clients)))
    server.close()
    await server.wait_closed()
    return sums


async def from_threads(threads, calls):
    """Threads wake the loop; each call must arrive, in its thread's order."""
    loop = asyncio.get_running_loop()
    arrived = [[] for _ in range(threads)]
    done = asyncio.Event()
    total = 0

    def hear(k, i):
        nonlocal total
        arrived[k].append(i)
        total += 1
        if total == threads * calls:
            done.set()

    def thread(k):
        for i in range(calls):
            loop.call_soon_threadsafe(hear, k, i)
            if i % 50 == 0:
                time.sleep(0.001)

    ts = [threading.Thread(target=thread, args=(k,)) for k in range(threads)]
    for t in ts:
        t.start()
    await done.wait()
    for t in ts:
        t.join()
    ping = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for i in range(500 * SCALE):
            ping += await loop.run_in_executor(pool, lambda i=i: i)
    return [a == list(range(calls)) for a in arrived], ping


async def async_children():
    async def one(i):
        p = await asyncio.create_subprocess_exec(
            "sh", "-c", "cat; exit %d" % i, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, _ = await p.communicate(b"%d" % i * 10000)
        return len(out), p.returncode

    done = await asyncio.gather(*(one(i) for i in range(10)))
    p = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await asyncio.wait_for(p.wait(), 0.05)
        late = False
    except asyncio.TimeoutError:
        late = True
        p.kill()
        await p.wait()
    return done, late, p.returncode


async def async_rest():
    got = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    for _ in range(20):
        n = len(got)
        os.kill(os.getpid(), signal.SIGUSR1)
        while len(got) == n:
            await asyncio.sleep(0.001)
    loop.remove_signal_handler(signal.SIGUSR1)
    order = []

    # Times from one moment on: each coroutine may begin long after the one before.
    began = loop.time()

    async def sleeper(ms):
        woken = loop.create_future()
        loop.call_at(began + ms / 1000, woken.set_result, None)
        await woken
        order.append((ms, loop.time() - began >= ms / 1000 - 0.002))

    await asyncio.gather(*(sleeper(ms) for ms in (60, 1, 30, 15, 0)))
    naps = []
    for ms in (0, 1, 7, 20):
        began = loop.time()
        await asyncio.sleep(ms / 1000)
        naps.append((ms, loop.time() - began >= ms / 1000 - 0.002))
    q = asyncio.Queue(3)

    async def produce():
        for i in range(1000):
            await q.put(i)

    async def consume():
        return sum([await q.get() for _ in range(1000)])

    _, total = await asyncio.gather(produce(), consume())
    return len(got), order, naps, total


# --- multiprocessing --------------------------------------------------------------------------

def square(n):
    return n * n


def shout(conn):
    while (m := conn.recv()) is not None:
        conn.send(m.upper())
    conn.close()


def feed(q, k):
    for i in range(300):
        q.put((k, i))


def processes(method):
    ctx = multiprocessing.get_context(method)
    with ctx.Pool(3) as pool:
        squares = sum(pool.map(square, range(3000), chunksize=50))
        lazily = sum(pool.imap_unordered(square, range(200)))
    here, there = ctx.Pipe()
    p = ctx.Process(target=shout, args=(there,))
    p.start()
    there.close()
    h = hashlib.md5()
    for i in range(300):
        here.send("message %d " % i * (i % 50))
        h.update(here.recv().encode())
    here.send(None)
    p.join()
    q = ctx.Queue()
    feeders = [ctx.Process(target=feed, args=(q, k)) for k in range(3)]
    for f in feeders:
        f.start()
    last = [-1] * 3
    ordered = True
    for _ in range(900):
        k, i = q.get(timeout=60)
        ordered = ordered and i == last[k] + 1
        last[k] = i
    for f in feeders:
        f.join()
    return squares, lazily, h.hexdigest(), p.exitcode, ordered, [f.exitcode for f in feeders]


# --- descriptors ------------------------------------------------------------------------------

def event_threads(rounds):
    """Threads that wake one another through eventfds that the main thread waits for."""
    import ctypes
    served = getattr(ctypes.CDLL(None), "pollux_fd_served", lambda fd: -1)
    threads = 4
    ep = select.epoll()
    efds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(threads)]
    backs = [os.eventfd(0) for _ in range(threads)]
    for fd in efds:
        ep.register(fd, select.EPOLLIN)
    seen = served(efds[0]), served(ep.fileno())

    def thread(k):
        for i in range(rounds):
            os.eventfd_write(efds[k], i + 1)
            if os.eventfd_read(backs[k]) != i + 1:
                raise ValueError("another number came back")

    ts = [threading.Thread(target=thread, args=(k,)) for k in range(threads)]
    for t in ts:
        t.start()
    sums, events = [0] * threads, 0
    while events < threads * rounds:
        began = time.monotonic()
        ready = ep.poll(20)
        if not ready or time.monotonic() - began > 19:
            raise ValueError("no event in 20 seconds")
        for fd, what in ready:
            k = efds.index(fd)
            n = os.eventfd_read(fd)
            os.eventfd_write(backs[k], n)
            sums[k] += n
            events += 1
            if what != select.EPOLLIN:
                raise ValueError("event %d" % what)
    for t in ts:
        t.join()
    ep.close()
    for fd in efds + backs:
        os.close(fd)
    return sums, seen


def sleepers_woken():
    """Whoever sleeps is woken by the one that comes: there is no other that could make up for it."""
    woken, rounds = 0, 60
    e = os.eventfd(0)
    with select.epoll() as ep:
        ep.register(e, select.EPOLLIN)
        for _ in range(rounds):
            other = threading.Timer(0.003, os.eventfd_write, (e, 1))
            other.start()
            # At the end of the time there may be an event, too: nobody has been woken by it.
            began = time.monotonic()
            ready = ep.poll(10)
            if not ready or time.monotonic() - began > 9:
                break
            woken += os.eventfd_read(e)
            other.join()
    os.close(e)
    return woken


def every_selector():
    said = {}
    for kind in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector):
        with kind() as s:
            r, w = os.pipe()
            a, b = socket.socketpair()
            e = os.eventfd(0)
            for f, mask in ((r, 1), (w, 2), (a, 3), (e, 1)):
                s.register(f, mask)
            names = {r: "r", w: "w", a.fileno(): "a", e: "e"}

            def ready():
                return sorted((names[k.fd], mask) for k, mask in s.select(0))

            steps = [ready()]
            os.write(w, b"x")
            os.eventfd_write(e, 3)
            b.send(b"y")
            steps.append(ready())
            s.modify(a, 1)
            s.unregister(e)
            steps.append(ready())
            os.read(r, 1)
            a.recv(1)
            steps.append(ready())
            s.unregister(r)
            s.unregister(w)
            b.close()
            steps.append(ready())
            said[kind.__name__] = steps
            for fd in r, w, e:
                os.close(fd)
            a.close()
    return said


def passed_descriptors():
    """An eventfd and an epoll are sent to another process, which uses them."""
    a, b = socket.socketpair()
    e = os.eventfd(5)
    ep = select.epoll()
    ep.register(e, select.EPOLLIN)
    pid = os.fork()
    if pid == 0:
        _, anc, _, _ = b.recvmsg(1, socket.CMSG_SPACE(8))
        fds = array.array("i", anc[0][2])
        n = os.eventfd_read(fds[0])
        os.eventfd_write(fds[0], n + 1)
        os._exit(0 if select.epoll.fromfd(fds[1]).poll(5) == [(e, select.EPOLLIN)] else 1)
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("ii", e, ep.fileno()))])
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, os.eventfd_read(e)


def everyday():
    said = {}
    said["run"] = subprocess.run(["tr", "a-z", "A-Z"], input="hello", text=True,
                                 capture_output=True).stdout
    said["many"] = [subprocess.call(["sh", "-c", "exit %d" % i]) for i in range(30)]
    try:
        subprocess.run(["sleep", "60"], timeout=0.05)
    except subprocess.TimeoutExpired:
        said["timeout"] = True
    try:
        subprocess.run(["/nonexistent/program"])
    except FileNotFoundError as e:
        said["missing"] = e.errno
    said["inherited"] = inherited()
    said["system"] = os.system("exit 7") >> 8
    with os.popen("echo popen; cat /dev/null") as f:
        said["popen"] = f.read()
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "read x; echo got:$x; exit 5"])
    os.write(fd, b"line\n")
    text = b""
    try:
        while part := os.read(fd, 1000):
            text += part
    except OSError:
        pass
    said["pty"] = [text.decode().split()[-1], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    said["spawn"] = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(
        "sh", ["sh", "-c", "exit 9"], os.environ), 0)[1])
    return said


def inherited():
    """A child that is given an eventfd counts it up; the parent's epoll hears of it."""
    e = os.eventfd(0, 0)
    with select.epoll() as ep:
        ep.register(e, select.EPOLLIN)
        code = "import os; os.eventfd_write(%d, 41)" % e
        status = subprocess.run([sys.executable, "-c", code], pass_fds=[e]).returncode
        events = len(ep.poll(10))
    n = os.eventfd_read(e)
    os.close(e)
    return status, events, n


def main():
    results, rates = {}, {}

    def timed(name, count, run):
        began = time.monotonic()
        results[name] = run()
        if count:
            rates[name] = count / (time.monotonic() - began)

    rounds = 3000 * SCALE
    timed("events", 8 * rounds, lambda: event_threads(rounds))
    served = results["events"][1]
    results["events"] = results["events"][0]
    timed("sleepers", 0, sleepers_woken)
    timed("echo", 10 * 300 * SCALE, lambda: asyncio.run(echo_server(10, 300 * SCALE)))
    timed("threads", 0, lambda: asyncio.run(from_threads(4, 2000 * SCALE)))
    timed("asyncio", 0, lambda: asyncio.run(async_rest()))
    timed("selectors", 0, every_selector)
    # From here on with children.
    timed("subprocesses of asyncio", 0, lambda: asyncio.run(async_children()))
    timed("everyday", 0, everyday)
    timed("passed", 0, passed_descriptors)
    for method in ("fork", "spawn", "forkserver"):
        timed("processes by " + method, 0, lambda: processes(method))
    timed("events after children", 8 * rounds, lambda: event_threads(rounds)[0])
    with tempfile.TemporaryFile() as f, concurrent.futures.ProcessPoolExecutor(2) as pool:
        f.write(repr(list(pool.map(square, range(100)))).encode())
        f.seek(0)
        results["pool"] = hashlib.md5(f.read()).hexdigest()
    with open("/proc/self/maps") as f:
        mapped = "libpollux-preload" in f.read()
    print(json.dumps({"results": results, "rates": rates, "mapped": mapped, "served": served}))


if __name__ == "__main__":
    main()
