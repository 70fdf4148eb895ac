#!/bin/sh
# SPDX-License-Identifier: MIT
#
# subproject.sh SOURCE [MESON-OPTION...] - a Meson project that has Pollux among its subprojects, with
# the program SOURCE; says TAP. The options are given to Pollux.
set -u

source=$(realpath "$1") || exit 1
shift
here=$(dirname "$0")
top=$(realpath "$here/../..") || exit 1
. "$here/../cli/tap.sh"

outer=$scratch/outer
mkdir -p "$outer/subprojects"
ln -s "$top" "$outer/subprojects/pollux"
cp "$source" "$outer/program.c"
cat >"$outer/meson.build" <<'END'
project('outer', 'c')
pollux = dependency('pollux', version: '>= 0.2', fallback: ['pollux', 'pollux_dep'],
  default_options: ['engine_only=true', 'optimization=0'])
executable('program', 'program.c', dependencies: pollux)
# As a dependency that any part of the project asks for by its name.
assert(dependency('pollux').version() == pollux.version(), 'it is known')
END
build=$scratch/build
for how in shared static; do
	# The second time most is there already.
	call meson setup ${again-} --force-fallback-for=pollux -Ddefault_library=$how "$@" \
		"$build" "$outer"
	expect "$how: it is configured" 0
	again="--reconfigure -Dpollux:default_library=static"
	call ninja -C "$build"
	expect "$how: it is built" 0
	call "$build/program"
	expect "$how: the program runs" 0
	readelf -d "$build/program" | grep -q 'libpollux\.so\.1'
	found=$?
	[ $how = shared ] && [ $found -eq 0 ] || { [ $how = static ] && [ $found -ne 0 ]; }
	report $? "$how: it is linked in this way"
done
call ninja -C "$build" -t targets all
! grep -E 'pollux/(tests|bench|examples)/' "$out"
report $? "our tests are not built"

finish
