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

# What all sections of the name are, and what stands behind them (base/wiped.h).
bss=$(size "$archive" | awk '$6 ~ /^(src_(base|rcu|epoll|object|wait)_|bp\.c)/ { n += $3 } END { print n + 0 }')
bss=$((bss + 0x$(nm -S "$archive" | awk '$3 == "C" && $4 == "plx_wiped" { print $2 }')))
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

# Where the stack begins decides how many pages of it are used, and which pages of a file are mapped beside
# one that is used depends on what has been read of it.
fixed=
! setarch -R true 2>/dev/null || fixed="setarch -R"
cat "$library" "$scratch"/with* >/dev/null

# takes PROGRAM FIELD [WITHOUT]: KiB, of all mappings, or of those that are not the C library's files
takes()
{
	$fixed "$scratch/$1" | awk -v field="$2:" -v without="${3:-^:}" '
		$1 ~ /^[0-9a-f]+-/ { counts = $6 !~ without }
		$1 == field && counts { n += $2 }
		END { print n + 0 }'
}
of_libc='/libc[-.]'

# The kernel maps the pages beside one that is used up to the next multiples of 64 KiB. So where in such a part
# the C library begins decides how much of it is mapped, and nothing else does: the same program takes the same
# with each such place, or a page less where another process has that locked.
# places PROGRAM RUNS: a line for each run, the place and KiB of the C library's files.
places()
{
	for run in $(seq "$2"); do
		"$scratch/$1" | awk -v files="$of_libc" '
			$1 ~ /^[0-9a-f]+-/ { counts = $6 ~ files }
			counts && !place { split($1, at, "-"); place = substr(at[1], length(at[1]) - 3, 1) }
			$1 == "Rss:" && counts { n += $2 }
			END { print place "-", n + 0 }'
	done
}
cat $(awk -v files="$of_libc" '$6 ~ files { print $6 }' /proc/self/maps | sort -u) >/dev/null
places without 128 >"$scratch/places"
places without-static 1 >"$scratch/places-static"
cp "$scratch/places" "$scratch/places-shared"

for kind in "" -static -shared; do
	private=$(($(takes with$kind Anonymous) - $(takes without$kind Anonymous)))
	[ "$private" -gt 0 ] && [ "$private" -le 64 ]
	report $? "linked with the archive${kind:+ or library, $kind}: $private KiB that are its own (at most 64)"

	resident=$(($(takes with$kind Rss "$of_libc") - $(takes without$kind Rss "$of_libc")))
	libc=$(places with$kind 24 | awk '
		NR == FNR { if ($2 > without[$1]) without[$1] = $2; next }
		$1 in without { d = $2 - without[$1]; if (!n++ || d > more) more = d }
		END { print n ? more : "unknown" }' "$scratch/places$kind" -)
	[ "$resident" -gt 0 ] && [ "$libc" -le 0 ] && [ "$resident" -le 100 ]
	report $? "the same: $resident KiB resident (at most 100), and $libc of the C library's files (none)"
done

finish
