#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One measured run of a real server over loopback, plainly or under `pollux run`.
# `pollux bench servers` calls it alternately for both sides.
#
#   servers.sh --workload W [--seconds N] [--pollux PATH]
#
#   W   nginx-keepalive   wrk with 50 connections, kept open
#       nginx-close       wrk with 50 connections, one request each
#       nginx-once        a worker for each CPU, which closes after one request; wrk with 4
#                         threads of 64 connections. Also the share of the workers' CPU time
#                         that went into taking watches away, if perf may be used
#       redis-get, redis-set   redis-benchmark with 50 connections
#
# Prints one line of key=value pairs. Exit status: 0 success, 1 failure, 2 usage error, 77 if a
# program that the workload needs is not installed; the line then begins with skip=.
set -u
LC_ALL=C
export LC_ALL

workload=
seconds=5
pollux=
library=libpollux-preload.so
server=
client=
profiler=
tmp=

usage()
{
	sed -n '3,17s/^# \{0,1\}//p' "$0"
}

fail()
{
	echo "servers.sh: $*" >&2
	if [ -n "$tmp" ]; then
		for log in "$tmp"/*.log; do
			if [ -s "$log" ]; then tail -n 3 "$log" >&2; fi
		done
	fi
	exit 1
}

while [ $# -gt 0 ]; do
	case $1 in
	--workload | --seconds | --pollux)
		if [ $# -lt 2 ]; then
			echo "servers.sh: $1 needs a value" >&2
			exit 2
		fi
		case $1 in
		--workload) workload=$2 ;;
		--seconds) seconds=$2 ;;
		--pollux) pollux=$2 ;;
		esac
		shift 2
		;;
	--help)
		usage
		exit 0
		;;
	*)
		echo "servers.sh: unknown argument '$1'" >&2
		exit 2
		;;
	esac
done
case $seconds in
'' | *[!0-9]* | 0 | ????*)
	echo "servers.sh: --seconds takes a number from 1 to 999, not '$seconds'" >&2
	exit 2
	;;
esac

need()
{
	for program; do
		if ! command -v "$program" >/dev/null 2>&1; then
			echo "skip=$program is not installed"
			exit 77
		fi
	done
}

# Servers live in sbin on some systems, which is not in the path of every user.
PATH=$PATH:/usr/sbin:/usr/local/sbin
export PATH
case $workload in
nginx-keepalive | nginx-close | nginx-once) need nginx wrk timeout ;;
redis-get | redis-set) need redis-server redis-cli redis-benchmark timeout ;;
*)
	echo "servers.sh: --workload takes nginx-keepalive, nginx-close, nginx-once, redis-get or" \
		"redis-set, not '$workload'" >&2
	exit 2
	;;
esac

alive()
{
	kill -0 "$1" 2>/dev/null
}

# Stops what this script started, first politely, within two seconds.
cleanup()
{
	trap - EXIT INT TERM HUP
	for pid in $profiler $client $server; do
		kill -TERM "$pid" 2>/dev/null || continue
		i=0
		while alive "$pid" && [ $i -lt 40 ]; do
			sleep 0.05
			i=$((i + 1))
		done
		if alive "$pid"; then
			for child in $(children "$pid") "$pid"; do
				kill -KILL "$child" 2>/dev/null
			done
		fi
		wait "$pid" 2>/dev/null
	done
	if [ -n "$tmp" ]; then rm -rf "$tmp"; fi
}

# The children of a process; kernels without a list of them have them in /proc: fields after the
# last ')' of stat.
children()
{
	if [ -r "/proc/$1/task/$1/children" ]; then
		tr ' ' '\n' <"/proc/$1/task/$1/children"
		return
	fi
	for stat in /proc/[0-9]*/stat; do
		line=$(cat "$stat" 2>/dev/null) || continue
		rest=${line##*) }
		# shellcheck disable=SC2086
		set -- "$1" $rest
		if [ "$3" = "$1" ]; then
			pid=${stat#/proc/}
			echo "${pid%/stat}"
		fi
	done
}

# User and system time of processes in clock ticks.
ticks()
{
	sum=0
	for pid; do
		line=$(cat "/proc/$pid/stat" 2>/dev/null) || fail "the server has gone"
		rest=${line##*) }
		# shellcheck disable=SC2086
		set -- $rest
		sum=$((sum + ${12} + ${13}))
	done
	echo $sum
}

free_port()
{
	# A number that differs from run to run; a port that is taken is found out at once,
	# because the server then does not start.
	seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')
	echo $((20000 + seed % 10000))
}

trap cleanup EXIT
trap 'cleanup; exit 1' INT TERM HUP
tmp=$(mktemp -d "${TMPDIR:-/tmp}/pollux-bench.XXXXXX") || exit 1
chmod 755 "$tmp"

start_nginx()
{
	user=
	workers=1
	requests=1000000000
	if [ "$(id -u)" = 0 ]; then user='user root;'; fi
	if [ "$workload" = nginx-once ]; then
		workers=$(getconf _NPROCESSORS_ONLN)
		requests=1
	fi
	cat >"$tmp/nginx.conf" <<CONF
daemon off;
$user
worker_processes $workers;
pid $tmp/nginx.pid;
error_log $tmp/error.log;
events { use epoll; worker_connections 1024; }
http {
	access_log off;
	keepalive_requests $requests;
	client_body_temp_path $tmp/body;
	proxy_temp_path $tmp/proxy;
	fastcgi_temp_path $tmp/fastcgi;
	uwsgi_temp_path $tmp/uwsgi;
	scgi_temp_path $tmp/scgi;
	server {
		listen 127.0.0.1:$port;
		location / { return 200 "pollux\n"; }
	}
}
CONF
	set -- nginx -p "$tmp" -e "$tmp/error.log" -c "$tmp/nginx.conf"
	if [ -n "$pollux" ]; then set -- "$pollux" run -- "$@"; fi
	"$@" </dev/null >"$tmp/server.log" 2>&1 &
	server=$!
}

# nginx writes its pid file once it listens; the workers follow.
nginx_ready()
{
	[ -s "$tmp/nginx.pid" ] || return 1
	worker=$(children "$server" | tr '\n' ' ')
	# shellcheck disable=SC2086
	set -- $worker
	[ $# = "$workers" ]
}

start_redis()
{
	set -- redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
		--daemonize no --dir "$tmp"
	if [ -n "$pollux" ]; then set -- "$pollux" run -- "$@"; fi
	"$@" </dev/null >"$tmp/server.log" 2>&1 &
	server=$!
}

redis_ready()
{
	worker=$server
	[ "$(timeout 2 redis-cli -p "$port" ping 2>/dev/null)" = PONG ]
}

kind=${workload%%-*}
attempt=0
worker=
while [ -z "$worker" ]; do
	attempt=$((attempt + 1))
	if [ $attempt -gt 5 ]; then fail "$kind does not start"; fi
	port=$(free_port)
	"start_$kind"
	i=0
	while ! "${kind}_ready"; do
		if ! alive "$server" || [ $i -ge 200 ]; then break; fi
		sleep 0.05
		i=$((i + 1))
	done
	if ! "${kind}_ready"; then
		kill -KILL "$server" 2>/dev/null
		wait "$server" 2>/dev/null
		server=
		worker=
	fi
done

# The proof that the server under test has the drop-in, and that the plain one has not.
served=1
preload=0
for pid in $server $worker; do
	if grep -q "/$library" "/proc/$pid/maps"; then preload=1; else served=0; fi
done

# The client runs in the background, so that a signal to this script is handled at once.
run_client()
{
	limit=$((seconds * 4 + 30))
	timeout -k 2 "$limit" "$@" </dev/null >"$tmp/client.out" 2>"$tmp/client.log" &
	client=$!
	wait "$client"
	rc=$?
	client=
	return $rc
}

# Samples the workers' stacks until it is told to stop; it may not be permitted.
start_profiler()
{
	command -v perf >/dev/null 2>&1 || return 0
	perf record -q -e cpu-clock -F 997 -g -o "$tmp/perf.data" -p "$(echo "$worker" |
		sed 's/ *$//; s/ /,/g')" </dev/null >"$tmp/perf.out" 2>&1 &
	profiler=$!
	i=0
	while alive "$profiler" && [ $i -lt 100 ]; do
		case $(ls -l "/proc/$profiler/fd" 2>/dev/null) in
		*perf_event*)
			# It is attached, and starts in a moment.
			sleep 0.3
			return
			;;
		esac
		sleep 0.05
		i=$((i + 1))
	done
}

stop_profiler()
{
	if [ -z "$profiler" ]; then return; fi
	kill -INT "$profiler" 2>/dev/null
	wait "$profiler" 2>/dev/null
	profiler=
}

# Percent of the samples that have one of the functions below in their stacks; nothing if there
# are no samples or the kernel's functions cannot be named.
removal_share()
{
	[ -s "$tmp/perf.data" ] || return
	grep -q '[1-9a-f].* eventpoll_release_file$' /proc/kallsyms 2>/dev/null || return
	perf script -i "$tmp/perf.data" -F ip,sym 2>/dev/null | awk '
		NF == 0 { if (frames) { n++; hits += hit } frames = hit = 0; next }
		{ frames++ }
		/ (eventpoll_release_file|ep_remove|ep_clear_and_put|plx_item_remove|plx_file_remove_watches)/ \
			{ hit = 1 }
		END { if (frames) { n++; hits += hit } if (n) printf "%.3f", 100 * hits / n }'
}

# shellcheck disable=SC2086
before=$(ticks $worker)
case $workload in
nginx-*)
	if [ "$workload" = nginx-once ]; then
		set -- wrk -t4 -c256 "-d${seconds}s"
		start_profiler
	else
		set -- wrk -t1 -c50 "-d${seconds}s"
	fi
	if [ "$workload" = nginx-close ]; then set -- "$@" -H 'Connection: close'; fi
	run_client "$@" "http://127.0.0.1:$port/" || fail "wrk ended with status $?"
	requests=$(sed -n 's/^ *\([0-9]*\) requests in .*/\1/p' "$tmp/client.out")
	rate=$(sed -n 's/^Requests\/sec: *\([0-9.]*\).*/\1/p' "$tmp/client.out")
	bad=$(grep -E 'Non-2xx|Socket errors' "$tmp/client.out" | grep -Ev \
		'connect 0, read 0, write 0, timeout 0' | tr '\n' ' ')
	if [ -n "$bad" ]; then fail "wrk met errors: $bad"; fi
	;;
redis-*)
	requests=$((seconds * 60000))
	run_client redis-benchmark -h 127.0.0.1 -p "$port" -c 50 -n "$requests" \
		-t "${workload#redis-}" --csv || fail "redis-benchmark ended with status $?"
	rate=$(sed -n 's/^"[GS]ET[^"]*","\([0-9.]*\)".*/\1/p' "$tmp/client.out" | head -n 1)
	;;
esac
# shellcheck disable=SC2086
after=$(ticks $worker)
stop_profiler
share=$(removal_share)
case $rate in
'' | 0 | 0.00) fail "no request was answered" ;;
esac
if ! alive "$server"; then fail "the server did not survive"; fi

cpu=$(awk -v t=$((after - before)) -v hz="$(getconf CLK_TCK)" -v n="$requests" \
	'BEGIN { printf "%.3f", t * 1e6 / hz / n }')
cleanup
echo "program=$workload preload=$preload served=$served rate=$rate requests=$requests" \
	"cpu_us_per_request=$cpu ${share:+removal_percent=$share }ok=1"
