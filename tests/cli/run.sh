#!/bin/sh
# SPDX-License-Identifier: MIT
#
# run.sh POLLUX - tests of `pollux run`; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

dropin=$built/libpollux-preload.so
missing=$scratch/missing

says() # says FILE TEXT
{
	grep -qF -- "$2" "$1"
}

silent() # silent FILE
{
	[ ! -s "$1" ]
}

# Status and signal

for n in 0 1 42 255; do
	call "$pollux" run -- sh -c "exit $n"
	expect "exit status $n passes through" $n
done
call "$pollux" run -- sh -c 'kill -TERM $$'
expect "death by SIGTERM passes through" 143
call "$pollux" run -- sh -c 'kill -KILL $$'
expect "death by SIGKILL passes through" 137
sh -c 'echo $$; exec "$1" run -- sh -c "echo \$\$"' sh "$pollux" >"$out" 2>"$err"
status=$?
[ "$(wc -l <"$out")" -eq 2 ] && [ "$(sort -u "$out" | wc -l)" -eq 1 ]
report $? "the program takes the place of the command"

# The drop-in is in the program

call grep -F "/libpollux-preload.so" /proc/self/maps
expect "without the command nothing is mapped" 1
call "$pollux" run -- grep -F "$dropin" /proc/self/maps
expect "the drop-in is mapped" 0
call "$pollux" run grep -F "$dropin" /proc/self/maps
expect "the drop-in is mapped without --" 0
(cd "$built" && ./pollux run -- grep -F "$dropin" /proc/self/maps) >"$out" 2>"$err"
status=$?
expect "the drop-in is found from a relative path" 0
ln -s "$pollux" "$scratch/link"
call "$scratch/link" run -- grep -F "$dropin" /proc/self/maps
expect "the drop-in is found through a link" 0
call "$pollux" run --load=all -- sh -c 'sh -c "grep -F \"\$1\" /proc/self/maps" sh "$1"; exit $?' sh "$dropin"
expect "the drop-in is mapped in what the program starts" 0

# Arguments and streams

lister='for a; do printf "<%s>\n" "$a"; done'
newline='
'
sh -c "$lister" sh '' 'a b' '*' '--help' '--' '-x' '--stats' "1${newline}2" >"$scratch/want"
call "$pollux" run -- sh -c "$lister" sh '' 'a b' '*' '--help' '--' '-x' '--stats' "1${newline}2"
ok "arguments pass through" cmp "$scratch/want" "$out"
call "$pollux" run echo --stats --help
[ "$(cat "$out")" = "--stats --help" ] && silent "$err"
report $? "options behind the program are its own"
head -c 300000 /dev/urandom >"$scratch/bytes"
"$pollux" run -- cat <"$scratch/bytes" >"$out" 2>"$err"
status=$?
ok "standard input and output pass through" cmp "$scratch/bytes" "$out"
silent "$err"
report $? "nothing is added to standard error"
call "$pollux" run -- sh -c 'echo to-out; echo to-err >&2'
[ "$(cat "$out")" = to-out ] && [ "$(cat "$err")" = to-err ]
report $? "standard output and error stay apart"

# Options

cat >"$scratch/served.py" <<'END'
import ctypes, os, select
served = ctypes.CDLL(None).pollux_fd_served
e, p = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), select.epoll()
p.register(e, select.EPOLLIN)
os.eventfd_write(e, 1)
assert p.poll(10) == [(e, select.EPOLLIN)]
print(served(e), served(p.fileno()))
END

served() # served NAME WANTED OPTION...
{
	name=$1
	wanted=$2
	shift 2
	call "$pollux" run "$@" -- python3 "$scratch/served.py"
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$wanted" ]
	report $? "$name"
}

served "eventfds and epolls are adopted" "1 1"
served "--no-adopt=epoll" "0 0" --no-adopt=epoll
served "--no-adopt=eventfd" "0 1" --no-adopt=eventfd
served "--no-adopt=all" "0 0" --no-adopt=all
served "--no-adopt=aio" "1 1" --no-adopt=aio
served "--no-adopt with a list" "0 0" --no-adopt=eventfd,epoll
served "--no-adopt twice" "0 0" --no-adopt=eventfd --no-adopt=epoll
served "--no-adopt KIND in two words" "0 1" --no-adopt eventfd
POLLUX_NO_ADOPT=epoll
export POLLUX_NO_ADOPT
served "--no-adopt adds to the environment" "0 0" --no-adopt=eventfd
unset POLLUX_NO_ADOPT

call "$pollux" run --stats -- python3 "$scratch/served.py"
says "$err" "pollux: eventfds: 0 times cached, 0 times not any more; writes: 1 while not cached, 0 through the kernel; 0 counts flushed"
report $? "--stats tells what was cached"
call "$pollux" run --stats --adopt=always -- python3 "$scratch/served.py"
[ "$status" -eq 0 ] && says "$err" "pollux: adopted: 1 epolls, 1 eventfds" &&
	[ "$(cat "$out")" = "1 1" ]
report $? "--stats prints to standard error"
grep -q '^pollux: adopted: 1 epolls.*; process [1-9][0-9]* (python3[^()]*)$' "$err"
report $? "and says of which process"
says "$err" "pollux: in process: 0 reads, 1 writes, 1 ctl, 1 waits, 0 polls; left to the kernel: 0 ctl, 0 waits" &&
	says "$err" "pollux: system calls: 2 saved, as 1 were made for these 3" &&
	says "$err" "pollux: ready lists: 1 queued, 0 queued already, 1 given out in 1 turns, at most 1" &&
	says "$err" "pollux: wakes: 0 rings, 0 sleeps without an event"
report $? "--stats tells what was served, and what that saved"
cat >"$scratch/traffic.py" <<'END'
import os, select, threading
e, back, p, (r, w) = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), os.eventfd(0), select.epoll(), os.pipe()
p.register(e, select.EPOLLIN)
p.register(r, select.EPOLLIN)
def thread():
    for _ in range(10):
        # It writes when the other one sleeps.
        while not asleep():
            pass
        os.eventfd_write(e, 1)
        os.eventfd_read(back)
task = "/proc/self/task/%d/" % threading.get_native_id()
def asleep():
    # In epoll_wait, epoll_pwait or epoll_pwait2, and not only passing by.
    with open(task + "stat") as f:
        if f.read().rpartition(")")[2].split()[0] != "S":
            return False
    with open(task + "syscall") as f:
        return f.read().split()[0] in ("22", "232", "281", "441")
t = threading.Thread(target=thread)
t.start()
for _ in range(10):
    assert p.poll(20) == [(e, select.EPOLLIN)]
    os.eventfd_read(e)
    os.eventfd_write(back, 1)
t.join()
q = select.poll()
q.register(e, select.POLLIN)
assert q.poll(0) == []
if os.fork() == 0:
    os.eventfd_write(e, 1)
    os._exit(0)
os.wait()
assert p.poll(20) == [(e, select.EPOLLIN)]
END
call "$pollux" run --stats --adopt=always -- python3 "$scratch/traffic.py"
[ "$status" -eq 0 ] && says "$err" "10 reads, 10 writes, 1 ctl" && says "$err" "1 polls; left to the kernel: 1 ctl, 1 waits" &&
	grep -Eq '^pollux: ready lists: 10 queued, 0 queued already, 10 given out in 10 turns' "$err" &&
	grep -Eq '^pollux: wakes: 10 rings' "$err" && grep -Eq '; sleeps 1[0-9]; evicted 1' "$err" &&
	says "$err" "pollux: evicted by fork: 1 ("
report $? "--stats tells of wakes, of what was the kernel's, of what was evicted and why"
call "$pollux" run --stats -- python3 -c '
import os, select
p = select.epoll()
for r, w in [os.pipe() for _ in range(3)]:
    p.register(r, select.EPOLLIN)
    p.modify(r, select.EPOLLIN)
assert p.poll(0) == []'
[ "$status" -eq 0 ] && says "$err" "0 ctl, 0 waits, 0 polls; left to the kernel: 6 ctl, 1 waits"
report $? "--stats tells of epolls that hold nothing of ours"
cat >"$scratch/usr2.py" <<'END'
import os, select, signal, time
e, p = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), select.epoll()
p.register(e, select.EPOLLIN)
def send(want):
    assert signal.getsignal(signal.SIGUSR2) == want, want
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(0.001)
heard = []
def hear(*_):
    heard.append(1)
send(signal.SIG_DFL)
os.eventfd_write(e, 1)
send(signal.SIG_DFL)
signal.signal(signal.SIGUSR2, hear)
send(hear)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
send(signal.SIG_IGN)
signal.signal(signal.SIGUSR2, signal.SIG_DFL)
print(heard)
END
call "$pollux" run --stats --adopt=always -- python3 "$scratch/usr2.py"
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "[1]" ] && [ "$(grep -c '^pollux: adopted: 1 ' "$err")" -eq 3 ] &&
	[ "$(grep -c '^pollux: in process: 0 reads, 0 writes, 1 ctl' "$err")" -eq 1 ]
report $? "SIGUSR2 prints statistics as long as the program leaves it alone"
call "$pollux" run --stats -- sh -c 'kill -USR2 $$; echo alive'
[ "$status" -eq 0 ] && [ "$(cat "$out")" = alive ] && [ "$(grep -c '^pollux: adopted: 0 ' "$err")" -ge 1 ]
report $? "also of a program that has nothing of ours"
call "$pollux" run -- sh -c 'kill -USR2 $$; echo alive'
[ "$status" -gt 128 ] && silent "$out"
report $? "without --stats SIGUSR2 means what it always does"
cat >"$scratch/data.py" <<'END'
import os, signal, sys
e = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
os.eventfd_write(e, 1)
try:
    os.close(2)
except OSError:
    pass
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
assert f == 2
os.write(f, b"data\n")
os.kill(os.getpid(), signal.SIGUSR2)
if os.fork() == 0:
    os.eventfd_read(os.eventfd(1))
    os._exit(0)
os.wait()
END
call "$pollux" run --stats -- python3 "$scratch/data.py" "$scratch/data"
[ "$status" -eq 0 ] && [ "$(cat "$scratch/data")" = data ]
report $? "--stats does not write to what the program has put at descriptor 2"
call "$pollux" run --stats -- python3 -c '
import os, sys
os.dup2(2, 100)
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.dup2(f, 2)
os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
os.dup2(100, 2)' "$scratch/data"
[ "$status" -eq 0 ] && [ "$(cat "$scratch/data")" = "" ] && grep -q "^pollux: adopted: 0 epolls, 1 eventfds" "$err"
report $? "but where standard error is there again"
call sh -c '"$1" run --stats -- python3 "$2" "$3" 2>&-' sh "$pollux" "$scratch/data.py" "$scratch/data"
[ "$(cat "$scratch/data")" = data ]
report $? "nor when the program has none at its start"
cat >"$scratch/forked.py" <<'END'
import ctypes, os, select
served = ctypes.CDLL(None).pollux_fd_served
e, p = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), select.epoll()
p.register(e, select.EPOLLIN)
pid = os.fork()
if pid == 0:
    os.execl("/bin/true", "true")
os.waitpid(pid, 0)
for _ in range(100):
    os.eventfd_write(e, 1)
    assert p.poll(20) == [(e, select.EPOLLIN)]
    os.eventfd_read(e)
print(served(e))
END
call timeout 60 "$pollux" run --adopt=forked -- python3 "$scratch/forked.py"
[ "$status" -eq 0 ] && [ "$(cat "$out")" = 0 ] && silent "$err"
report $? "--adopt=forked is accepted, and what was open at a fork stays the kernel's"
call timeout 60 "$pollux" run -- python3 -c '
import ctypes, os, select
lib = ctypes.CDLL(None)
e, p = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), select.epoll()
p.register(e, select.EPOLLIN)
pid = lib.pollux_fork()
if pid == 0:
    os.eventfd_write(e, 1)
    os._exit(0 if lib.pollux_fd_served(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)) == 1 else 1)
print(os.waitpid(pid, 0)[1], p.poll(20) == [(e, select.EPOLLIN)])'
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "0 True" ]
report $? "the library's own fork, where fork is served already"
cat > "$scratch/pipes.py" <<'END'
import ctypes, os, select
served = ctypes.CDLL(None).pollux_fd_served
e, p, (r, w) = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), select.epoll(), os.pipe()
p.register(r)
os.write(w, b"x")
print(served(e), served(r), served(w), p.poll(10) == [(r, select.EPOLLIN)])
END
for words in "" --adopt=pipe --adopt=watched-pipe,pipe "--adopt=pipe --no-adopt=pipe"; do
	# shellcheck disable=SC2086
	call "$pollux" run $words -- python3 "$scratch/pipes.py"
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "1 0 0 True" ] && silent "$err"
	report $? "pipes stay in the kernel: ${words:-no option}"
done

call "$pollux" run --stats --no-adopt=all -- python3 "$scratch/served.py"
[ "$status" -eq 0 ] && says "$err" "pollux: adopted: 0 epolls, 0 eventfds"
report $? "--stats counts nothing when nothing is adopted"
call "$pollux" run -- python3 "$scratch/served.py"
[ "$status" -eq 0 ] && silent "$err"
report $? "without --stats there are none"
call "$pollux" run --no-spin -- sh -c 'echo "$POLLUX_SPIN"'
[ "$(cat "$out")" = 0 ]
report $? "--no-spin reaches the program"

cat >"$scratch/environment.sh" <<'END'
echo "${POLLUX_AIO-unset} ${POLLUX_AIO_MAX_NR-unset}"
END

environment() # environment NAME WANTED OPTION...
{
	name=$1
	wanted=$2
	shift 2
	call "$pollux" run "$@" -- sh "$scratch/environment.sh"
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$wanted" ] && silent "$err"
	report $? "$name"
}

environment "nothing is chosen for AIO by default" "unset unset"
for mode in auto async off; do
	environment "--aio=$mode reaches the program" "$mode unset" --aio=$mode
done
environment "--aio MODE in two words; the last one counts" "auto unset" --aio off --aio auto
environment "--aio-max-nr=none reaches the program" "unset none" --aio-max-nr=none

# A context more than aio-max-nr allows, and one that does I/O; the name of its ring tells whose.
cat >"$scratch/aio.py" <<'END'
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
setup, destroy, getevents, submit = 206, 207, 208, 209
if os.uname().machine == "aarch64":
    setup, destroy, submit, getevents = 0, 1, 2, 4
call = lambda nr, *a: libc.syscall(ctypes.c_long(nr), *map(ctypes.c_void_p, a))
big, ctx = ctypes.c_ulong(0), ctypes.c_ulong(0)
more = int(open("/proc/sys/fs/aio-max-nr").read()) + 1
unlimited = call(setup, more, ctypes.addressof(big)) == 0
assert call(setup, 1, ctypes.addressof(ctx)) == 0
fd = os.memfd_create("aio")
data = ctypes.create_string_buffer(b"0123456789")
cb = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 1, 0, 0, 1, 0, fd,
                                 ctypes.addressof(data), 10, 0, 0, 0, 0))
lst = (ctypes.c_void_p * 1)(ctypes.addressof(cb))
ev = ctypes.create_string_buffer(32)
assert call(submit, ctx.value, 1, ctypes.addressof(lst)) == 1
assert call(getevents, ctx.value, 1, 1, ctypes.addressof(ev), 0) == 1
assert os.pread(fd, 20, 0) == b"0123456789"
ours = not any(l.startswith("%x-" % ctx.value) and "[aio]" in l for l in open("/proc/self/maps"))
print("pollux" if ours else "kernel", unlimited, flush=True)
END

aio() # aio NAME WANTED OPTION...
{
	name=$1
	wanted=$2
	shift 2
	call "$pollux" run "$@" -- python3 "$scratch/aio.py"
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$wanted" ] && silent "$err"
	report $? "$name"
}

aio "AIO by default" "pollux False"
aio "--aio=auto is the default" "pollux False" --aio=auto
aio "--aio=off leaves it to the kernel" "kernel False" --aio=off
aio "--no-adopt=aio does the same" "kernel False" --no-adopt=aio
aio "--aio-max-nr=none" "pollux True" --aio-max-nr=none
aio "--aio=async is as by default" "pollux False" --aio=async

call "$pollux" run --help
[ "$status" -eq 0 ] && says "$out" "Usage: pollux run" && silent "$err"
report $? "--help"
cp "$out" "$scratch/want"
call "$pollux" help run
ok "help run says the same" cmp "$scratch/want" "$out"
for bad in --no-such-option -x --adopt=eventfd --adopt= --no-adopt=socketpair --no-adopt= --no-adopt=eventfd, --stats=1 \
	--load=none --load= --aio=sync --aio= --aio=auto,off --aio-max-nr=10 --aio-max-nr=; do
	call "$pollux" run "$bad" -- sh -c 'echo ran'
	[ "$status" -eq 125 ] && silent "$out" && says "$err" "--help"
	report $? "option $bad is refused"
done
call "$pollux" run --no-adopt
expect "--no-adopt without a kind is refused" 125
call "$pollux" run
[ "$status" -eq 125 ] && says "$err" "which program"
report $? "no program is refused"

# Programs that cannot be run

call "$pollux" run -- pollux-test-no-such-program
[ "$status" -eq 127 ] && says "$err" pollux-test-no-such-program
report $? "a program that is not in PATH: 127"
call "$pollux" run -- "$missing"
[ "$status" -eq 127 ] && says "$err" "$missing"
report $? "a path that does not exist: 127"
call "$pollux" run -- ''
expect "an empty name: 127" 127
echo 'echo ran' >"$scratch/plain"
chmod 644 "$scratch/plain"
call "$pollux" run -- "$scratch/plain"
[ "$status" -eq 126 ] && silent "$out"
report $? "a file without permission: 126"
call "$pollux" run -- "$scratch"
expect "a folder: 126" 126
printf '\177ELF damaged' >"$scratch/damaged"
chmod 755 "$scratch/damaged"
call "$pollux" run -- "$scratch/damaged"
expect "a damaged executable: 126" 126

static=
printf 'int main(void) { return 43; }\n' >"$scratch/static.c"
if ${CC:-cc} -static -o "$scratch/static" "$scratch/static.c" 2>"$err"; then
	static=$scratch/static
	own=43
elif command -v ldconfig >/dev/null && ! ldd "$(command -v ldconfig)" >/dev/null 2>&1; then
	static="$(command -v ldconfig) --version"
	own=0
fi
if [ "$static" ]; then
	# The path, and perhaps an argument.
	call "$pollux" run -- $static
	[ "$status" -eq 125 ] && says "$err" "statically linked"
	report $? "a static program is refused: 125"
	call "$pollux" run --force -- $static
	expect "--force runs a static program" $own
else
	skip "a static program is refused: 125" "no static C library"
	skip "--force runs a static program" "no static C library"
fi

cp "$(command -v env)" "$scratch/setuid"
chmod 4755 "$scratch/setuid"
call "$pollux" run -- "$scratch/setuid"
[ "$status" -eq 125 ] && says "$err" "set-uid"
report $? "a set-uid program is refused: 125"
chmod 2755 "$scratch/setuid"
call "$pollux" run -- "$scratch/setuid"
[ "$status" -eq 125 ] && says "$err" "set-gid"
report $? "a set-gid program is refused: 125"
chmod 755 "$scratch/setuid"
call "$pollux" run -- "$scratch/setuid"
expect "the same file without privilege runs" 0

# Scripts

script() # script FILE FIRST-LINE
{
	printf '%s\n' "$2" 'grep -F "$1" /proc/$$/maps || exit 9' 'exit 17' >"$1"
	chmod 755 "$1"
}

script "$scratch/script" '#!/bin/sh'
call "$pollux" run -- "$scratch/script" "${dropin%preload.so}"
expect "a script with #! runs with the drop-in, or the starter" 17
script "$scratch/script" '#!/usr/bin/env sh'
call "$pollux" run -- "$scratch/script" "${dropin%preload.so}"
expect "a script with #!/usr/bin/env does, too" 17
script "$scratch/script" '# no interpreter named'
call "$pollux" run -- "$scratch/script" "$dropin"
expect "a script without #! runs with the drop-in" 17
PATH=$scratch:$PATH
call "$pollux" run -- script "$dropin"
expect "a script is found in PATH" 17
script "$scratch/script" '#!/usr/bin/env -iS sh'
call "$pollux" run -- "$scratch/script" "$dropin"
expect "a script that empties the environment is refused: 125" 125
script "$scratch/script" "#!$missing"
call "$pollux" run -- "$scratch/script" "$dropin"
[ "$status" -eq 127 ] && says "$err" "$missing"
report $? "a script whose interpreter is missing: 127"
mkfifo -m 755 "$scratch/fifo"
script "$scratch/script" "#!$scratch/fifo"
call timeout 20 "$pollux" run -- "$scratch/script"
expect "a script whose interpreter is a FIFO: 126" 126
script "$scratch/second" "#!$scratch/script"
call timeout 20 "$pollux" run -- "$scratch/second"
expect "and one whose interpreter is that script" 126
script "$scratch/script" "#!/dev/null"
call timeout 20 "$pollux" run -- "$scratch/script"
expect "one whose interpreter is a device" 126
script "$scratch/script" "#!$scratch"
call timeout 20 "$pollux" run -- "$scratch/script"
expect "one whose interpreter is a folder" 126
call timeout 20 "$pollux" run -- "$scratch/fifo"
expect "a FIFO itself" 126
call env POLLUX_PRELOAD="$scratch/fifo" timeout 20 "$pollux" run -- true
expect "a FIFO as the library" 125
script "$scratch/script" "#!$scratch/fifo"
call timeout 20 "$pollux" run -- sh -c '"$1"; exit $?' sh "$scratch/script"
expect "one that a shell starts" 126
if [ "$static" = "$scratch/static" ]; then
	script "$scratch/script" "#!$scratch/static"
	call "$pollux" run -- "$scratch/script" "$dropin"
	expect "a script with a static interpreter is refused: 125" 125
else
	skip "a script with a static interpreter is refused: 125" "no static C library"
fi

# LD_PRELOAD

other=$built/libpollux.so
LD_PRELOAD=$other "$pollux" run -- sh -c 'echo "$LD_PRELOAD"' >"$out" 2>"$err"
status=$?
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$dropin:$other" ]
report $? "an LD_PRELOAD that is set is kept, behind the drop-in"
LD_PRELOAD=$other "$pollux" run -- grep -F "$built/libpollux.so." /proc/self/maps >"$out" 2>"$err"
status=$?
expect "what LD_PRELOAD names is mapped" 0
call "$pollux" run -- "$pollux" run -- sh -c 'echo "$LD_PRELOAD"'
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$dropin" ]
report $? "a run inside a run names the drop-in once"
POLLUX_PRELOAD=$missing
export POLLUX_PRELOAD
call "$pollux" run -- sh -c 'echo ran'
[ "$status" -eq 125 ] && silent "$out" && says "$err" "$missing"
report $? "a POLLUX_PRELOAD that is missing is refused: 125"
cp "$dropin" "$scratch/other.so"
POLLUX_PRELOAD=$scratch/other.so
call "$pollux" run -- grep -F "$scratch/other.so" /proc/self/maps
expect "POLLUX_PRELOAD names another drop-in" 0
unset POLLUX_PRELOAD
mkdir "$scratch/a b"
cp "$pollux" "$dropin" "$scratch/a b"
call "$scratch/a b/pollux" run -- sh -c 'echo ran'
[ "$status" -eq 125 ] && silent "$out"
report $? "a drop-in whose path the loader cannot take is refused: 125"

# The command itself

call "$pollux"
[ "$status" -eq 2 ] && silent "$out" && says "$err" Usage
report $? "no command: usage, 2"
call "$pollux" no-such-command
[ "$status" -eq 2 ] && says "$err" no-such-command
report $? "an unknown command: 2"
call "$pollux" --help
[ "$status" -eq 0 ] && says "$out" doctor && says "$out" bench && says "$out" run
report $? "--help names the commands"
call "$pollux" version
[ "$status" -eq 0 ] && grep -Eqx 'pollux [0-9]+\.[0-9]+\.[0-9]+' "$out"
report $? "version"
call "$pollux" version more
expect "version with an argument: 2" 2
"$pollux" --help >/dev/full 2>"$err"
status=$?
expect "output that cannot be written is no success" 1

finish
