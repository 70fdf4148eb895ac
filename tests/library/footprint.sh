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

bss=$(size "$archive" | awk '$6 ~ /^(src_(base|rcu|epoll|source|wait)_|bp\.c)/ { n += $3 } END { print n + 0 }')
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

needs=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^ld-linux')
[ "$needs" = libc.so.6 ]
report $? "the shared library loads none but libc: $(echo $needs)"

# Where the stack begins decides how many pages of it are used.
fixed=
! setarch -R true 2>/dev/null || fixed="setarch -R"

# takes PROGRAM FIELD [FILE]: KiB, of all mappings or those of the file
takes()
{
	$fixed "$scratch/$1" | awk -v field="$2:" -v file="${3:-}" '
		$1 ~ /^[0-9a-f]+-/ { counts = file == "" || index($6, file) }
		$1 == field && counts { n += $2 }
		END { print n + 0 }'
}

for kind in "" -static -shared; do
	# What is nobody else's. Pages of files may be there or not; those are told only.
	private=$(($(takes with$kind Anonymous) - $(takes without$kind Anonymous)))
	resident=$(($(takes with$kind Rss) - $(takes without$kind Rss)))
	[ "$private" -gt 0 ] && [ "$private" -le 64 ]
	report $? "linked with the archive${kind:+ or library, $kind}: $private KiB that are its own (at most 64), $resident resident"
done

# What is mapped of the library's file without having been written is one piece of it (src/libpollux.ld), if the
# loader aligns it. Pages of other files, libc's, cannot be told from what happens to be beside others.
mapped=$(($(takes with-shared Rss libpollux) - $(takes with-shared Anonymous libpollux)))
library_takes=$((mapped + $(takes with-shared Anonymous) - $(takes without-shared Anonymous)))
[ "$mapped" -gt 0 ] && [ "$library_takes" -le 100 ]
report $? "the shared library takes $library_takes KiB (at most 100), $mapped of them shared pages of its file"

finish
