#!/bin/sh
# SPDX-License-Identifier: MIT
#
# configure.sh BUILDDIR [MESON-OPTION...]
#
# Makes BUILDDIR ready for ninja and does nothing when it already is. Meson reads the source lists
# only when it configures, so it runs again whenever a file has come or gone, or when the options,
# the compiler (CC), the place of installation (PREFIX) or the libraries that are there differ from
# those of the last time: who runs `make demo` first has no library for tests yet.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=$1
shift
# Where Debian's pkg-config looks. Meson asks dpkg-architecture, which a small system does not have.
multiarch=$(${CC:-cc} -print-multiarch 2>/dev/null || true)
set -- --prefix="${PREFIX-/usr/local}" ${multiarch:+"--libdir=lib/$multiarch"} "$@"

stamp=$build/.configured
wanted=$(
	printf 'compiler %s\n' "${CC-default}"
	printf 'option %s\n' "$@"
	for library in liburcu-bp cmocka glib-2.0 liburing lwip; do
		printf 'library %s %s\n' "$library" "$(pkg-config --modversion "$library" 2>/dev/null)"
	done
	cksum "$top/third_party/liburcu/src/urcu-bp.c" 2>/dev/null || true
	if echo '#include <libaio.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
		echo 'header libaio.h'
	fi
	sh "$top/scripts/list-sources.sh" tree "$top"
)

if [ -f "$build/build.ninja" ]; then
	if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
		exit 0
	fi
	# A compiler cannot be changed in a folder that is already set up.
	if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "compiler ${CC-default}" ]; then
		mode=--reconfigure
	else
		mode=--wipe
	fi
elif [ -f "$build/meson-private/coredata.dat" ]; then
	mode=--wipe
else
	mode=
fi

rm -f "$stamp"
log=$build.configure.log
if ! meson setup $mode "$@" "$build" "$top" >"$log" 2>&1; then
	cat "$log" >&2
	rm -f "$log"
	exit 1
fi
mv "$log" "$build/configure.log"
printf '%s\n' "$wanted" >"$stamp"
