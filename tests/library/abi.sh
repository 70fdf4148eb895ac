#!/bin/sh
# SPDX-License-Identifier: MIT
#
# abi.sh LIBRARY - tests of the binary interface; says TAP.
set -u

library=$(realpath "$1") || exit 1
here=$(dirname "$0")
top=$here/../..
. "$here/../cli/tap.sh"

call python3 "$here/map.py" "$top/include" "$top/src/libpollux.map" "$library"
expect "the map, the headers and the library name the same functions" 0

[ "$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libpollux.so.1 ]
report $? "its name is libpollux.so.1"

if ! command -v abidiff >/dev/null; then
	skip "the interface is the one described" "abidiff is not installed"
	finish
	exit
fi
xml=$top/abi/libpollux.x86_64.xml
call sh "$top/scripts/abi.sh" "$library"
expect "the interface is the one described" 0

# changed NAME SED: a description that is another one does not pass.
changed()
{
	sed "$2" "$xml" >"$scratch/changed.xml"
	! cmp -s "$xml" "$scratch/changed.xml"
	report $? "$1: the description can be changed"
	call sh "$top/scripts/abi.sh" "$library" "$scratch/changed.xml"
	[ "$status" -ne 0 ]
	report $? "$1: is found"
}

changed "a function that is gone" 's/pollux_ep_shutdown/pollux_ep_shut_down/g'
changed "a version that is another" 's/POLLUX_0\.2/POLLUX_0.1/g'
changed "a parameter less" \
	"/function-decl name='pollux_ep_wait_until'/,/<\/function-decl>/{
		/name='deadline'/d
	}"
changed "a structure that is longer" \
	"/<class-decl name='pollux_host'/s/size-in-bits='[0-9]*'/size-in-bits='512'/"
changed "a member that has moved" \
	"/<class-decl name='pollux_file_ops'/,/<\/class-decl>/s/layout-offset-in-bits='64'/layout-offset-in-bits='128'/"

finish
