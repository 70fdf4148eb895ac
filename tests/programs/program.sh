# SPDX-License-Identifier: MIT
# Shared by the tests of programs that are written in sh. Read with "." after `pollux` and `here`
# have been set; tests/cli/tap.sh comes with it.
#
# Everything that a test starts is its child or in its process group, and is stopped by its number.

. "$here/../cli/tap.sh"

dropin=$(dirname "$pollux")/libpollux-preload.so
PATH=$PATH:/usr/sbin:/sbin

# need PROGRAM...: has them installed if they are missing; without one the whole test is skipped.
# The names are those of the list in scripts/install-deps.sh.
need()
{
	for program; do
		if ! sh "$here/../../scripts/install-deps.sh" programs "$program" >"$out" 2>"$err"; then
			echo "skip: $program cannot be had here: $(tail -n 1 "$err")"
			exit 77
		fi
	done
}

# mapped PID: the drop-in is mapped into that process. The loader only warns about a library that
# it cannot preload, so nothing else shows that a program runs on Pollux.
mapped()
{
	grep -qF "$dropin" "/proc/$1/maps" 2>/dev/null
}

# until_true SECONDS COMMAND...: false if the command has not succeeded in that time.
until_true()
{
	tries=$(($1 * 20))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.05
	done
}

# stat_of FILE WORD: the number of what was adopted, summed over all processes that wrote their
# statistics to the file; WORD is "epolls" or "eventfds", or another kind that --stats names.
stat_of()
{
	sed -n "s/^pollux: adopted: \(.*, \)\{0,1\}\([0-9][0-9]*\) $2.*/\2/p" "$1" |
		awk '{ n += $1 } END { print n + 0 }'
}
