#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One measured run of fio with libaio on tmpfs, plainly or under `pollux run`.
# `pollux bench aio` calls it alternately for both sides.
#
#   fio.sh --workload W [--quick] [--pollux PATH]
#
#   W   jobs512   512 threads, each with a file of 256 KiB
#       jobs1     one thread with a file of 100 MiB
#
# Reads and writes of 1 KiB at random offsets, one request at a time. What counts is the whole run
# from fio's start to its end; the files are there before.
#
# Prints one line of key=value pairs. Exit status: 0 success, 1 failure, 2 usage error, 77 if fio or
# tmpfs is missing; the line then begins with skip=.
set -u
LC_ALL=C
export LC_ALL

workload=
quick=
pollux=
library=libpollux-preload.so
client=
tmp=

usage()
{
	sed -n '3,17s/^# \{0,1\}//p' "$0"
}

fail()
{
	echo "fio.sh: $*" >&2
	if [ -s "$tmp/log" ]; then tail -n 3 "$tmp/log" >&2; fi
	exit 1
}

skip()
{
	echo "skip=$*"
	exit 77
}

while [ $# -gt 0 ]; do
	case $1 in
	--workload | --pollux)
		if [ $# -lt 2 ]; then
			echo "fio.sh: $1 needs a value" >&2
			exit 2
		fi
		case $1 in
		--workload) workload=$2 ;;
		--pollux) pollux=$2 ;;
		esac
		shift 2
		;;
	--quick)
		quick=1
		shift
		;;
	--help)
		usage
		exit 0
		;;
	*)
		echo "fio.sh: unknown argument '$1'" >&2
		exit 2
		;;
	esac
done
case $workload in
jobs512)
	jobs=512
	size=256
	loops=${quick:+4}
	loops=${loops:-20}
	;;
jobs1)
	jobs=1
	size=102400
	loops=${quick:+4}
	loops=${loops:-10}
	;;
*)
	echo "fio.sh: --workload takes jobs512 or jobs1, not '$workload'" >&2
	exit 2
	;;
esac

command -v fio >/dev/null 2>&1 || skip "fio is not installed"
fio --enghelp=libaio >/dev/null 2>&1 || skip "fio has no libaio"
[ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] || skip "there is no tmpfs at /dev/shm"

# Stops what this script started, first politely, within two seconds.
cleanup()
{
	trap - EXIT INT TERM HUP
	if [ -n "$client" ]; then
		kill -TERM "$client" 2>/dev/null
		i=0
		while kill -0 "$client" 2>/dev/null && [ $i -lt 40 ]; do
			sleep 0.05
			i=$((i + 1))
		done
		kill -KILL "$client" 2>/dev/null
		wait "$client" 2>/dev/null
	fi
	if [ -n "$tmp" ]; then rm -rf "$tmp"; fi
}

trap cleanup EXIT
trap 'cleanup; exit 1' INT TERM HUP
tmp=$(mktemp -d /dev/shm/pollux-bench.XXXXXX) || exit 1

set -- fio --name=bench --directory="$tmp" --ioengine=libaio --rw=randrw --size="${size}k" \
	--bs=1k --iodepth=1 --numjobs="$jobs" --thread --group_reporting --minimal
"$@" --create_only=1 </dev/null >"$tmp/out" 2>"$tmp/log" || fail "fio cannot make its files"

# Seconds of processor time of this script's children, as `times` counts them.
seconds_used()
{
	awk 'NR == 2 { gsub("s", ""); for (i = 1; i <= 2; i++) { split($i, t, "m"); s += t[1] * 60 + t[2] } }
		END { printf "%.6f", s }' "$1"
}

if [ -n "$pollux" ]; then set -- "$pollux" run -- "$@"; fi
times >"$tmp/before"
start=$(date +%s%N)
"$@" --loops="$loops" </dev/null >"$tmp/out" 2>"$tmp/log" &
client=$!
# Which AIO it runs on is seen in the middle: rings of the kernel's have a name. Best when all
# threads are there; on a busy machine the first may have gone before the last comes, so that a
# quarter of them tells as well, unless more come.
preload=0
served=0
i=0
while kill -0 "$client" 2>/dev/null && [ $i -lt 600 ]; do
	i=$((i + 1))
	sleep 0.1
	set -- /proc/"$client"/task/*
	if [ $# -gt $((1 + jobs / 4)) ] && cat "/proc/$client/maps" >"$tmp/maps" 2>/dev/null &&
		grep -q "/$library" "$tmp/maps"; then
		preload=1
		served=1
		if grep -q ' /\[aio\]' "$tmp/maps"; then
			served=0
			break
		fi
	fi
	if [ $# -gt "$jobs" ]; then break; fi
done
wait "$client"
status=$?
client=
end=$(date +%s%N)
times >"$tmp/after"
if [ $status -ne 0 ]; then fail "fio ended with status $status"; fi
grep -q '^3;' "$tmp/out" || fail "fio printed no result"

awk -v ns=$((end - start)) -v before="$(seconds_used "$tmp/before")" \
	-v after="$(seconds_used "$tmp/after")" -v n=$((jobs * size * loops)) -v w="$workload" \
	-v preload=$preload -v served=$served 'BEGIN {
	printf "program=fio workload=%s preload=%d served=%d requests=%d seconds=%.3f rate=%.1f " \
		"cpu_ns_per_op=%.1f ok=1\n", w, preload, served, n, ns / 1e9, n * 1e9 / ns,
		(after - before) * 1e9 / n
}'
cleanup
