# SPDX-License-Identifier: MIT
# Shared by the tests of the command: TAP on standard output, a scratch folder, and the
# description of a test before its result. Read with "." after `pollux` has been set.

: "${TMPDIR:=/tmp}"
scratch=$(mktemp -d "$TMPDIR/pollux-cli.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

unset LD_PRELOAD POLLUX_PRELOAD POLLUX_ADOPT POLLUX_NO_ADOPT POLLUX_STATS POLLUX_SPIN
unset POLLUX_AIO POLLUX_AIO_MAX_NR POLLUX_LOAD
export LC_ALL=C

out=$scratch/out
err=$scratch/err
tests=0
failures=0

# report STATUS NAME: the result of one test; what the last command said goes with a failure.
report()
{
	tests=$((tests + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $tests - $2"
		return
	fi
	failures=$((failures + 1))
	echo "# status ${status-none}"
	sed 's/^/# out: /' "$out" 2>/dev/null
	sed 's/^/# err: /' "$err" 2>/dev/null
	echo "not ok $tests - $2"
}

skip()
{
	tests=$((tests + 1))
	echo "ok $tests - $1 # SKIP $2"
}

# ok NAME COMMAND...: passes if the command succeeds.
ok()
{
	name=$1
	shift
	"$@" >/dev/null 2>&1
	report $? "$name"
}

# call COMMAND...: keeps its standard output, its standard error and its status.
call()
{
	"$@" >"$out" 2>"$err" </dev/null
	status=$?
}

# expect NAME STATUS: the last call ended with that status.
expect()
{
	[ "$status" -eq "$2" ]
	report $? "$1"
}

finish()
{
	echo "1..$tests"
	[ "$failures" -eq 0 ]
	exit $?
}
