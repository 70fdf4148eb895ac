#!/bin/sh
# SPDX-License-Identifier: MIT
#
# engine_only.sh ARCHIVE [MESON-OPTION...] - the engine built and installed alone, by
# -Dengine_only=true; says TAP. ARCHIVE is the static library with everything.
set -u

archive=$(realpath "$1") || exit 1
shift
here=$(dirname "$0")
top=$(realpath "$here/../..") || exit 1
. "$here/../cli/tap.sh"

# In the long form more tests run, in their usual form.
long=${POLLUX_TEST_LONG-}
unset POLLUX_TEST_LONG

build=$scratch/build
dest=$scratch/dest
call meson setup --prefix=/usr --werror -Dengine_only=true -Ddebug=false "$@" "$build" "$top"
expect "it is configured" 0
# Some of its examples and tests. All of them in the long form; the test musl runs more, too.
if [ -n "$long" ]; then
	targets=all
else
	targets="libpollux.a libpollux.so.1.0.0 $(ninja -C "$build" -t targets all |
		sed -n 's,^\(examples/example-\(mixed\|object\)\|tests/native-ep_[acm][^:/.]*\): .*,\1,p')"
fi
call ninja -C "$build" $targets
expect "it is built" 0
! grep -q 'warning: ' "$out"
report $? "without a warning"
call env DESTDIR="$dest" meson install -C "$build" --no-rebuild --quiet
expect "it is installed" 0

# --- what is there, and what is not ---------------------------------------------------------

of_lib='libpollux\.(a|so|so\.[0-9.]+)|pkgconfig/pollux\.pc|cmake/pollux/pollux-config(-version)?\.cmake'
others=$(cd "$dest/usr" && find . ! -type d |
	grep -vE "^\./(include/pollux/|share/(man/man[37]|doc/pollux)/|lib/([^/]*/)?($of_lib)$)")
[ -z "$others" ]
report $? "nothing else is installed: $(echo $others)"
wrong=
for header in "$top"/include/pollux/*.h; do
	name=${header##*/}
	case $name in aio.h | posix.h) want=no ;; *) want=yes ;; esac
	have=no
	! cmp -s "$header" "$dest/usr/include/pollux/$name" || have=yes
	[ $want = $have ] || wrong="$wrong $name"
done
[ -z "$wrong" ]
report $? "all headers but those of descriptors and AIO:$wrong"
[ -e "$dest/usr/share/man/man3/pollux_ep_wait_until.3" ] &&
	[ -z "$(grep -l 'In pollux/\(posix\|aio\)\.h' "$dest"/usr/share/man/man3/*)" ]
report $? "the pages of its functions, and no others"

library=$(find "$dest" -name libpollux.so.1)
call python3 "$here/map.py" "$dest/usr/include" "$build/engine.map" "$library"
expect "the library shows what these headers declare" 0

# defined ARCHIVE OBJECT: the names that other objects may see, of objects that match.
defined()
{
	nm "$1" | awk -v objects="$2" '/:$/ { in_it = $0 ~ objects }
		in_it && NF == 3 && $2 ~ /[A-Z]/ && $3 !~ /^DW\.ref\./ { print $3 }' | sort -u
}
defined "$archive" '^src_(cache|aio)_' >"$scratch/layer"
nm "${library%.so.1}.a" "$library" 2>/dev/null | awk 'NF >= 2 { print $NF }' | sort -u >"$scratch/all"
[ "$(grep -c '^plx_px_' "$scratch/layer")" -gt 20 ] && grep -q '^plx_ep_' "$scratch/all"
report $? "(the names of the layer of descriptors are known, and those of the engine)"
names=$(comm -12 "$scratch/layer" "$scratch/all")
[ -z "$names" ]
report $? "no name of the layer of descriptors or of AIO is in it: $(echo $names)"
needs=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc\.so\|^ld-linux\|^libpthread')
[ -z "$needs" ]
report $? "it needs no library but libc: $(echo $needs)"

# --- that it works --------------------------------------------------------------------------

if [ -n "$long" ]; then
	call meson test -C "$build" --no-rebuild --suite examples --suite native --suite torture
	expect "its examples and tests pass" 0
else
	for test in "$build"/examples/example-* "$build"/tests/native-*; do
		[ -f "$test" ] || continue
		call "$test"
		expect "${test##*/} passes" 0
	done
fi

finish
