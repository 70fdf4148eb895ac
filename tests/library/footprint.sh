#!/bin/sh
# SPDX-License-Identifier: MIT
#
# footprint.sh ARCHIVE LIBRARY - the memory that the engine takes in a program with one object in one
# epoll; says TAP.
set -u

archive=$(realpath "$1") || exit 1
library=$(realpath "$2") || exit 1
here=$(dirname "$0")
. "$here/../cli/tap.sh"

: "${CC:=cc}"

bss=$(size "$archive" | awk '$6 ~ /^(src_(base|rcu|epoll|object|wait)_|bp\.c)/ { n += $3 } END { print n + 0 }')
[ "$bss" -gt 0 ] && [ "$bss" -lt 65536 ]
report $? "its variables that are zero at first take less than 64 KiB: $bss bytes"

$CC -O2 -o "$scratch/without" "$here/footprint.c" &&
	$CC -O2 -DPOLLUX=1 -I "$here/../../include" -o "$scratch/with" "$here/footprint.c" "$archive" -pthread &&
	$CC -O2 -static -o "$scratch/without-static" "$here/footprint.c" &&
	$CC -O2 -static -DPOLLUX=1 -I "$here/../../include" -o "$scratch/with-static" \
		"$here/footprint.c" "$archive" -pthread &&
	$CC -O2 -DPOLLUX=1 -I "$here/../../include" -o "$scratch/with-shared" "$here/footprint.c" \
		"$library" -Wl,-rpath,"$(dirname "$library")" || exit 1
cp "$scratch/without" "$scratch/without-shared"

# needs FILE
needs()
{
	readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^ld-linux'
}

[ "$(needs "$library")" = libc.so.6 ] && [ "$(needs "$scratch/with")" = libc.so.6 ]
report $? "the shared library needs no library but libc, nor does a program with the archive"

# The hooks of forks come with read sections alone, too.
printf '#include <pollux/read.h>\nint main(void) { pollux_synchronize(); return 0; }\n' >"$scratch/reads.c" &&
	$CC -I "$here/../../include" -o "$scratch/reads" "$scratch/reads.c" "$archive" -pthread &&
	nm "$scratch/reads" | grep -q ' pollux_after_fork_child$'
report $? "a program that has read sections alone has the hooks of forks"

# Where the stack begins decides how many pages of it are used, and which pages of a file are mapped beside
# one that is used depends on what has been read of it.
fixed=
! setarch -R true 2>/dev/null || fixed="setarch -R"
cat "$library" "$scratch"/with* >/dev/null

# takes PROGRAM FIELD [FILES]: KiB, of all mappings or of those of the C library's files
takes()
{
	$fixed "$scratch/$1" | awk -v field="$2:" -v files="${3:-.*}" '
		$1 ~ /^[0-9a-f]+-/ { counts = $6 ~ files }
		$1 == field && counts { n += $2 }
		END { print n + 0 }'
}
of_libc='/(libc|ld)[-.]'

for kind in "" -static -shared; do
	private=$(($(takes with$kind Anonymous) - $(takes without$kind Anonymous)))
	[ "$private" -gt 0 ] && [ "$private" -le 64 ]
	report $? "linked with the archive${kind:+ or library, $kind}: $private KiB that are its own (at most 64)"

	# Pages of libc's files cannot be told from what happens to be beside others.
	libc=$(($(takes with$kind Rss "$of_libc") - $(takes without$kind Rss "$of_libc")))
	resident=$(($(takes with$kind Rss) - $(takes without$kind Rss) - libc))
	[ "$resident" -gt 0 ] && [ "$resident" -le 100 ]
	report $? "the same: $resident KiB resident (at most 100), and $libc more of libc's files"
done

finish
