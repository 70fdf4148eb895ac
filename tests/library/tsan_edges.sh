#!/bin/sh
# SPDX-License-Identifier: MIT
#
# tsan_edges.sh LIBRARY SOURCE - programs with ThreadSanitizer and the library as it is installed,
# which knows nothing of it; says TAP.
set -u

library=$(realpath "$1") || exit 1
source=$(realpath "$2") || exit 1
here=$(dirname "$0")
. "$here/../cli/tap.sh"

for cc in gcc clang; do
	echo 'int main(void) { return 0; }' >"$scratch/can.c"
	if ! "$cc" -fsanitize=thread -o "$scratch/can" "$scratch/can.c" 2>"$err"; then
		skip "with $cc" "it or its ThreadSanitizer is not installed"
		continue
	fi
	"$cc" -g -O1 -fsanitize=thread -I "$here/../../include" -o "$scratch/edges" "$source" \
		"$library" -Wl,-rpath,"$(dirname "$library")" -pthread || exit 1
	for way in wake add level poll timer efd shutdown put section synchronize batch barrier watch; do
		call "$scratch/edges" "$way"
		expect "$cc: $way orders what was done before it" 0
	done
	# Its reports end a program with 66.
	call "$scratch/edges" wrong-wake
	expect "$cc: what is done after a wake is a race" 66
done

finish
