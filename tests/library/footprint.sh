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
! (ulimit -S -s 163900 && setarch -R true) 2>/dev/null || fixed="setarch -R"
cat "$library" "$scratch"/with* >/dev/null

of_libc='/libc[-.]'

# private PROGRAM: KiB
private()
{
	$fixed "$scratch/$1" | awk '$1 == "Anonymous:" { n += $2 } END { print n + 0 }'
}

# resident PROGRAM: KiB but for the C library's files. Where the linker has put what is used decides how much of
# the program's own file is mapped beside it, so all of that counts.
resident()
{
	$fixed "$scratch/$1" | awk -v libc="$of_libc" '
		$1 ~ /^[0-9a-f]+-/ { field = $6 ~ libc ? "" : $6 ~ /\/with[a-z-]*$/ ? "Size:" : "Rss:" }
		$1 == field { n += $2 }
		END { print n + 0 }'
}

# The kernel maps the pages beside one that is used: those up to the next multiples of 64 KiB, and those that lie
# in memory as one piece with it, but none beyond a multiple of 2 MiB. So where in 2 MiB the C library begins
# decides how much of it is mapped, and nothing else does, unless another process has a page locked. The limit of
# the stack, if it is more than 128 MiB, decides where it begins.
# at PROGRAM KIB: where it begins with that limit, and KiB of its files.
at()
{
	(ulimit -S -s "$2" && exec $fixed "$scratch/$1") | awk -v libc="$of_libc" '
		$1 ~ /^[0-9a-f]+-/ { counts = $6 ~ libc }
		counts && !place { split($1, range, "-"); place = range[1] }
		$1 == "Rss:" && counts { n += $2 }
		END { print "0x" place, n + 0 }'
}

# begins PROGRAM KIB
begins()
{
	at "$@" | cut -d' ' -f1
}

# usual PROGRAM KIB: the KiB of the C library's files in most of three runs.
usual()
{
	for run in 1 2 3; do at "$1" "$2"; done | sort | uniq -c | sort -n | awk 'END { print $3 }'
}

# caused PROGRAM: how much more of the C library's files it takes than `without` with the same place, at most.
caused()
{
	without=$(begins without 163840)
	for room in $(seq 163840 4 163900); do
		apart=$(((without - $(begins "$1" "$room") & 2097151) / 1024))
		echo $(($(usual "$1" "$room") - $(usual without $((163840 + apart)))))
	done | sort -n | tail -n 1
}
cat $(awk -v files="$of_libc" '$6 ~ files { print $6 }' /proc/self/maps | sort -u) >/dev/null

for kind in "" -static -shared; do
	private=$(($(private with$kind) - $(private without$kind)))
	[ "$private" -gt 0 ] && [ "$private" -le 64 ]
	report $? "linked with the archive${kind:+ or library, $kind}: $private KiB that are its own (at most 64)"

	resident=$(($(resident with$kind) - $(resident without$kind)))
	[ "$resident" -gt 0 ] && [ "$resident" -le 100 ]
	report $? "the same: $resident KiB resident (at most 100)"

	[ "$kind" != -static ] || continue
	if [ -z "$fixed" ]; then
		skip "the same: none of the C library's files" "the places of files cannot be fixed here"
		continue
	fi
	libc=$(caused with$kind)
	[ "$libc" -le 0 ]
	report $? "the same: $libc KiB of the C library's files (none)"
done

finish
