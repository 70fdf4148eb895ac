#!/bin/sh
# SPDX-License-Identifier: MIT
#
# moved.sh BUILD SOURCE - what is installed can be moved: pkg-config and CMake find it where it is then.
# Says TAP.
set -u

built=$(realpath "$1") || exit 1
source=$(realpath "$2") || exit 1
here=$(dirname "$0")
. "$here/../cli/tap.sh"

: "${CC:=cc}"

call meson install -C "$built" --no-rebuild --quiet --destdir "$scratch/dest"
expect "it is installed" 0
pc=$(find "$scratch/dest" -name pollux.pc)
config=$(find "$scratch/dest" -name pollux-config.cmake)
prefix=${pc%/lib*/pkgconfig/pollux.pc}
prefix=${prefix%/lib}
moved=$scratch/moved
mv "$prefix" "$moved"
pc=$moved${pc#"$prefix"}
config=$moved${config#"$prefix"}
lib=${pc%/pkgconfig/*}
[ -s "$pc" ] && [ -s "$config" ] && ! grep -q "$scratch\|${prefix#"$scratch/dest"}/" "$pc" "$config"
report $? "the descriptions name no place"

# runs NAME PROGRAM LIBRARY: with the moved library, or with none (-)
runs()
{
	call env LD_LIBRARY_PATH="$lib" "$2"
	expect "$1: the program runs" 0
	env LD_LIBRARY_PATH="$lib" ldd "$2" | grep libpollux >"$out"
	if [ "$3" = - ]; then
		[ ! -s "$out" ]
	else
		grep -qF "$lib/libpollux.so.1" "$out"
	fi
	report $? "$1: with the library that is meant"
}

# --- pkg-config -----------------------------------------------------------------------------

export PKG_CONFIG_PATH="${pc%/*}"
call pkg-config --atleast-version=0.2 pollux
expect "pkg-config knows it" 0
# shellcheck disable=SC2046
call $CC -o "$scratch/shared" "$source" $(pkg-config --cflags --libs pollux)
expect "pkg-config: a program is linked with the shared library" 0
runs "pkg-config" "$scratch/shared" shared
# shellcheck disable=SC2046
call $CC -o "$scratch/static" "$source" \
	$(pkg-config --static --cflags --libs pollux | sed 's/-lpollux/-l:libpollux.a/')
expect "pkg-config --static: a program is linked with the archive" 0
runs "pkg-config --static" "$scratch/static" -

# --- CMake ----------------------------------------------------------------------------------

if ! command -v cmake >/dev/null; then
	skip "CMake finds it" "cmake is not installed"
	finish
	exit
fi
mkdir "$scratch/outer"
cp "$source" "$scratch/outer/program.c"
cat >"$scratch/outer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(outer C)
foreach(other 0.1 0.3 0.2.9 1.0)
  find_package(pollux ${other} CONFIG QUIET)
  if(pollux_FOUND)
    message(FATAL_ERROR "it is taken for ${other}")
  endif()
endforeach()
find_package(pollux 0.2 CONFIG REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared pollux::pollux)
add_executable(static program.c)
target_link_libraries(static pollux::static)
END
call cmake -G Ninja -DCMAKE_PREFIX_PATH="$moved" -S "$scratch/outer" -B "$scratch/cmake"
expect "CMake finds it, and takes it for no other version" 0
call ninja -C "$scratch/cmake"
expect "CMake: programs are linked with both libraries" 0
runs "pollux::pollux" "$scratch/cmake/shared" shared
runs "pollux::static" "$scratch/cmake/static" -

finish
