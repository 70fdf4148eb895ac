#!/bin/sh
# SPDX-License-Identifier: MIT
#
# install.sh POLLUX - tests of the installed tree; says TAP. Run in the build folder.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

dest=$scratch/dest
call meson install -C "$built" --no-rebuild --quiet --destdir "$dest"
expect "meson install with a DESTDIR" 0

found() # found NAME: the one installed file of that name
{
	find "$dest" -name "$1" ! -type d
}

command=$(find "$dest" -path '*/bin/pollux')
prefix=${command%/bin/pollux}
dropin=$(found libpollux-preload.so)
[ -f "$command" ] && [ -x "$command" ]
report $? "the command is installed in bin"
[ -f "$dropin" ]
report $? "the drop-in is installed"
[ "$(found libpollux-starter.so)" = "${dropin%/*}/libpollux-starter.so" ]
report $? "the library for programs that only start others is installed beside it"
library=$(found libpollux.so.1)
[ -e "$library" ] && [ -e "$(found libpollux.so)" ] && [ -e "$(found libpollux.a)" ]
report $? "the library is installed"
# A program may be linked with it and with another copy of whatever it contains.
names=$(nm -g --defined-only "$(found libpollux.a)" 2>/dev/null |
	awk 'NF == 3 && $3 !~ /^(plx_|pollux_|DW\.ref\.|__asan|__odr_asan|__tsan)/ { print $3 }' | sort -u)
[ -z "$names" ]
report $? "the static library defines no names but its own: $(echo $names)"
names=$(nm -D --defined-only "$library" "$dropin" | awk '$3 ~ /urcu/ { print $3 }')
[ -z "$names" ]
report $? "the others show nothing of liburcu: $(echo $names)"
[ -s "$(found liburcu.md)" ] && [ -s "$(found liburcu-LGPL-2.1.txt)" ]
report $? "the licence of liburcu is installed"
for header in "$here"/../../include/pollux/*.h; do
	name=$(basename "$header")
	ok "header pollux/$name is installed" cmp "$header" "$prefix/include/pollux/$name"
done
for example in $(cd "$here/../../examples" && find . -type f ! -name meson.build); do
	ok "examples/${example#./} is installed" cmp "$here/../../examples/$example" \
		"$prefix/share/doc/pollux/examples/$example"
done
for page in pollux.1 pollux-run.1 pollux-bench.1 pollux-doctor.1; do
	[ -s "$prefix/share/man/man1/$page" ]
	report $? "man page $page is installed"
done
for page in "$here"/../../docs/man/*.[37]; do
	name=$(basename "$page")
	[ -s "$prefix/share/man/man${name##*.}/$name" ]
	report $? "man page $name is installed"
done
[ "$prefix/share/man/man3/pollux_ep_put.3" -ef "$prefix/share/man/man3/pollux_ep_get.3" ]
report $? "a page is found by its other names"
others=$(find "$prefix" -type f -perm -100 ! -name 'pollux' ! -name 'libpollux*' ! -path '*/examples/*')
[ -z "$others" ]
report $? "no other program is installed: $(echo $others)"
[ -s "$(found pollux.pc)" ]
report $? "pollux.pc is installed"

call "$command" run -- grep -F "$dropin" /proc/self/maps
expect "the installed command finds its drop-in" 0
call "$command" run -- sh -c 'exit 42'
expect "the installed command runs programs" 42
call "$command" doctor
[ "$status" -eq 0 ] && grep -qF "$dropin is loaded and serves events" "$out"
report $? "the installed command finds itself well"
mv "$dest" "$scratch/moved"
moved=$scratch/moved${dropin#"$dest"}
call "$scratch/moved${command#"$dest"}" run -- grep -F "$moved" /proc/self/maps
expect "the installed tree can be moved" 0

finish
