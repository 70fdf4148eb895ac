#!/bin/sh
# SPDX-License-Identifier: MIT
#
# abi.sh [--write] LIBRARY [DESCRIPTION]
#
# Compares the binary interface of a built libpollux.so with its description in abi/, by libabigail:
# which symbols it shows, of which version, and the types that they take as far as the public headers
# define them. Any difference is a failure, additions too: a description is of one state. --write
# makes it anew, which docs/abi.md says when to do. It has to be built for x86-64, with debugging
# information and without optimisation at link time.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
write=
if [ "${1-}" = --write ]; then
	write=1
	shift
fi
[ "$#" -ge 1 ] || { echo "usage: abi.sh [--write] LIBRARY [DESCRIPTION]" >&2; exit 2; }
library=$1
description=${2-$top/abi/libpollux.x86_64.xml}

now=$(mktemp)
trap 'rm -f "$now"' EXIT
abidw --headers-dir "$top/include/pollux" --drop-private-types --exported-interfaces-only \
	--no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed \
	--type-id-style hash --out-file "$now" "$library"
if [ -n "$write" ]; then
	cp "$now" "$description"
	exit
fi
abidiff "$description" "$now"
