#!/bin/sh
# SPDX-License-Identifier: MIT
#
# doctor.sh POLLUX - tests of `pollux doctor`; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

facts='kernel
C library
CPUs
membarrier
rseq
memfd
pidfd
epoll_pwait2
close_range
RLIMIT_NOFILE
fs.nr_open
max_user_watches
aio
seccomp
drop-in
starter
aio buffered
aio direct
aio poll'

call "$pollux" doctor
expect "doctor finds this machine usable" 0
cp "$out" "$scratch/table"
oldifs=$IFS
IFS='
'
for fact in $facts; do
	grep -Eq "^(ok  |note)  $fact  *[^ ]" "$scratch/table"
	report $? "doctor: $fact"
done
IFS=$oldifs
grep -Eq "^ok    drop-in +$(dirname "$pollux")/libpollux-preload.so is loaded" "$scratch/table"
report $? "doctor has tried the drop-in of this build"
small="$(dirname "$pollux")/libpollux-starter.so"
grep -Eq "^ok    starter +$small is loaded into (sh|timeout)$" "$scratch/table"
report $? "doctor has tried the library for what only starts others"
[ ! -s "$err" ]
report $? "doctor writes nothing to standard error"

call "$pollux" doctor --json
expect "doctor --json" 0
ok "doctor --json is JSON" python3 -m json.tool "$out"
cat >"$scratch/look.py" <<'END'
import json, sys
said = json.load(open(sys.argv[1]))
names = sys.argv[2].split("\n")
assert said["usable"] is True
assert sorted(f["name"] for f in said["facts"]) == sorted(names), said
for f in said["facts"]:
    assert f["state"] in ("ok", "note"), f
    assert f["value"] and f["meaning"], f
END
python3 "$scratch/look.py" "$out" "$facts" 2>"$err"
report $? "doctor --json names the same facts"

# What keeps programs from Pollux is found and said.
POLLUX_PRELOAD=$scratch/missing.so
export POLLUX_PRELOAD
call "$pollux" doctor
[ "$status" -eq 1 ] && grep -Eq "^FAIL  drop-in .*$scratch/missing.so" "$out"
report $? "a missing drop-in is a failure"
echo nonsense >"$scratch/broken.so"
POLLUX_PRELOAD=$scratch/broken.so
call "$pollux" doctor --json
[ "$status" -eq 1 ] && python3 -c 'import json, sys
said = json.load(sys.stdin)
states = {f["name"]: f["state"] for f in said["facts"]}
assert said["usable"] is False and states["drop-in"] == "fail", said' <"$out" 2>"$err"
report $? "a drop-in that is not a library is a failure"
cp "$(dirname "$pollux")/libpollux-preload.so" "$scratch"
POLLUX_PRELOAD=$scratch/libpollux-preload.so
call "$pollux" doctor
[ "$status" -eq 0 ] && grep -Eq "^note  starter +$scratch/libpollux-starter.so: No such file" "$out"
report $? "a missing library for what only starts others is noted"
echo nonsense >"$scratch/libpollux-starter.so"
call "$pollux" doctor
[ "$status" -eq 0 ] && grep -Eq "^note  starter +$scratch/.* does not work in (sh|timeout)$" "$out"
report $? "one that does not hand the drop-in on is noted"
unset POLLUX_PRELOAD
for set in POLLUX_LOAD=all POLLUX_STATS=1; do
	call env $set "$pollux" doctor
	[ "$status" -eq 0 ] && grep -Eq "^ok    starter +$small is there, but $set$" "$out"
	report $? "with $set doctor says that all is loaded with the drop-in"
done
POLLUX_NO_ADOPT=all "$pollux" doctor >"$out" 2>"$err" </dev/null
status=$?
expect "a set POLLUX_NO_ADOPT does not mislead doctor" 0

# Which engine of AIO does what.

engine() # engine FACT WORDS
{
	grep -Eq "^(ok  |note)  $1 +$2\$" "$out"
}

call "$pollux" doctor
[ "$status" -eq 0 ] && engine "aio buffered" "within io_submit" &&
	engine "aio direct" "by the kernel's AIO" && engine "aio poll" "by the kernel's AIO"
report $? "AIO as it is done by default"
grep -Eq '^(ok  |note)  aio +[0-9]+ of [0-9]+ kernel requests taken' "$out"
report $? "doctor tells aio-nr and aio-max-nr"
POLLUX_AIO=off
export POLLUX_AIO
call "$pollux" doctor
engine "aio buffered" "by the kernel's AIO"
report $? "AIO that is left to the kernel"
unset POLLUX_AIO

call "$pollux" doctor --help
[ "$status" -eq 0 ] && grep -q '^Usage: pollux doctor' "$out"
report $? "doctor --help"
call "$pollux" doctor --no-such-option
expect "doctor with an unknown option: 2" 2

# What a program gets, and why not more.

cat >"$scratch/program.py" <<'END'
import os, select, sys
efd = os.eventfd(0, os.EFD_NONBLOCK)
blocks = os.eventfd(0)
epoll = select.epoll()
epoll.register(efd, select.EPOLLIN)
os.eventfd_write(efd, 1)
print(len(epoll.poll(1)))
sys.stdout.flush()
os.write(2, b"before ")
if "dup" in sys.argv:
    os.dup(efd)
if "fork" in sys.argv and os.fork():
    os.wait()
END

call "$pollux" doctor python3 "$scratch/program.py"
[ "$status" -eq 0 ] && [ "$(head -n 1 "$out")" = 1 ] && [ "$(cat "$err")" = "before " ]
report $? "doctor PROGRAM: its output is its own"
grep -Eq '^note  python3[^ ]* [0-9]+ +eventfds: 1, written to 1 times$' "$out" &&
	grep -q 'often enough to be cached (64 times within 0.1 s)' "$out"
report $? "doctor PROGRAM: an eventfd that is not hot"
grep -Eq '^note  python3[^ ]* [0-9]+ +eventfds that block: 1$' "$out"
report $? "doctor PROGRAM: one that blocks"
call env POLLUX_ADOPT=always "$pollux" doctor -- python3 "$scratch/program.py" dup
grep -Eq '^ok    python3[^ ]* [0-9]+ +eventfds: 1, cached 1 times; writes: 0 before that, 1 cached, 0 through' "$out"
report $? "doctor PROGRAM: one that is cached"
grep -Eq '^note  python3[^ ]* [0-9]+ +left by dup: 1 ' "$out"
report $? "doctor PROGRAM: why it has left"
call env POLLUX_ADOPT=always "$pollux" doctor -- python3 "$scratch/program.py" fork
[ "$(grep -Ec '^(ok  |note)  python3[^ ]* [0-9]+ +epolls: 1;' "$out")" -eq 1 ] && grep -q 'left by fork: ' "$out" &&
	grep -Eq '^note .*made no epoll' "$out"
report $? "doctor PROGRAM: its children"
call "$pollux" doctor --json -- python3 "$scratch/program.py" dup
[ "$status" -eq 0 ] && [ "$(cat "$err")" = "1
before " ] && python3 -c 'import json, sys
said = json.load(sys.stdin)
assert said["usable"] and any("eventfds: 1" in f["value"] for f in said["facts"]), said' <"$out"
report $? "doctor --json PROGRAM"
cat >"$scratch/say.py" <<'END'
import os, sys
said = open(sys.argv[1], "rb").read()
while said:
    said = said[os.write(2, said):]
END
# The statistics come behind what it has said, in whatever pieces the pipe gives.
n=0
for said in 'a\0b\nc\0' 'pol' '%16350d' '%16384d'; do
	printf "$said" 0 >"$scratch/said"
	call "$pollux" doctor -- python3 "$scratch/say.py" "$scratch/said"
	[ "$status" -eq 0 ] && cmp -s "$err" "$scratch/said" && grep -q '^note  .*made no epoll' "$out"
	report $? "doctor PROGRAM: one whose last words are no line, $((n += 1))"
done
printf 'error: see pollux: what is not its own\n' >"$scratch/said"
call "$pollux" doctor -- python3 "$scratch/say.py" "$scratch/said"
cmp -s "$err" "$scratch/said"
report $? "doctor PROGRAM: one that speaks of pollux itself"
call timeout 10 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$pollux" doctor true
[ "$status" -eq 0 ] && grep -q '^note  true .*made no epoll' "$out"
report $? "doctor PROGRAM: where SIGCHLD is ignored"
# The shell itself is ended.
# shellcheck disable=SC2016
call "$pollux" doctor -- sh -c 'kill -KILL $$'
[ "$status" -eq 0 ] && grep -Eq '^note  sh +was ended by signal 9$' "$out"
report $? "doctor PROGRAM: one that a signal ends"
echo 'int main(void) { return 0; }' >"$scratch/static.c" && ${CC:-cc} -static -o "$scratch/static" "$scratch/static.c"
call "$pollux" doctor "$scratch/static"
[ "$status" -eq 1 ] && grep -Eq "^FAIL  $scratch/static +.*static" "$out"
report $? "doctor PROGRAM: one that the drop-in does not get into"
call "$pollux" doctor "$scratch/missing"
[ "$status" -eq 1 ] && grep -Eq "^FAIL  $scratch/missing +" "$out"
report $? "doctor PROGRAM: one that is not there"

finish
