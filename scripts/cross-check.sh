#!/bin/sh
# SPDX-License-Identifier: MIT
#
# cross-check.sh [COMPILER]
#
# Compiles every source of the libraries, the drop-in, the command and the tests for aarch64 (or
# whatever COMPILER compiles for), to objects only, with all warnings as errors. Exits with 77 and
# the reason if there is no such compiler, or not all that it needs.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cc=${1-aarch64-linux-gnu-gcc}

if ! command -v "$cc" >/dev/null; then
	echo "skipped: $cc is not installed"
	exit 77
fi
if ! echo '#include <stdio.h>' | "$cc" -E -x c - >/dev/null 2>&1; then
	echo "skipped: $cc finds no headers of libc"
	exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

urcu=$top/third_party/liburcu
if [ ! -f "$urcu/include/urcu/static/urcu-bp.h" ]; then
	echo "skipped: the source of liburcu is not there"
	exit 77
fi

# Of the headers of this machine those that are the same everywhere.
mkdir "$work/include"
cp /usr/include/cmocka*.h "$work/include"

failed=0
count=0

# compile SOURCE OPTION...
compile()
{
	source=$1
	shift
	count=$((count + 1))
	"$cc" -std=gnu11 -D_GNU_SOURCE= -Wall -Wextra -Werror -fno-strict-aliasing \
		-ftls-model=initial-exec -fno-common -fexceptions \
		-I"$top/include" -I"$top/src" -I"$top/src/rcu" \
		-isystem "$urcu/include" -DPLX_LIBURCU_SOURCE "$@" \
		-c "$source" -o "$work/object.o" || failed=$((failed + 1))
}

for source in "$top"/src/*/*.c; do
	compile "$source" -O1 -fPIC -fvisibility=hidden \
		-DPOLLUX_LIBDIR='"/usr/lib"' -DCLI_VERSION='"0"'
done
for source in "$top"/tests/conformance/*.c "$top"/tests/native/*.c "$top"/tests/torture/*.c \
	"$top"/tests/differential/*.c; do
	compile "$source" -O0 -I"$top/tests" -I"$top/tests/conformance" \
		-isystem "$work/include"
done
echo "$count sources compiled by $cc, $failed failed"
[ "$failed" -eq 0 ]
