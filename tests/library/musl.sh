#!/bin/sh
# SPDX-License-Identifier: MIT
#
# musl.sh [MESON-OPTION...] - the engine built alone with musl, and its tests linked statically with
# it; says TAP.
set -u

here=$(dirname "$0")
top=$(realpath "$here/../..") || exit 1
. "$here/../cli/tap.sh"

# In the long form more tests run, in their usual form.
long=${POLLUX_TEST_LONG-}
unset POLLUX_TEST_LONG

if ! command -v musl-gcc >/dev/null; then
	echo "skip: musl-gcc is not installed"
	exit 77
fi
# musl-gcc knows musl's headers only. Those of the kernel are the machine's.
kernel=$scratch/kernel
mkdir "$kernel"
for name in linux asm asm-generic; do
	for place in /usr/include "/usr/include/$(cc -print-multiarch 2>/dev/null)"; do
		[ ! -d "$place/$name" ] || ln -s "$place/$name" "$kernel/$name"
	done
done
cat >"$scratch/musl.ini" <<END
[binaries]
c = ['musl-gcc']
ar = 'ar'
[built-in options]
c_args = ['-isystem', '$kernel']
c_link_args = ['-static']
END

build=$scratch/build
call meson setup --werror --native-file "$scratch/musl.ini" -Dengine_only=true \
	-Ddefault_library=static -Doptimization=1 -Ddebug=false "$@" "$build" "$top"
expect "it is configured" 0
if [ -n "$long" ]; then
	targets=all suites="--suite examples --suite native --suite torture"
else
	targets=$(ninja -C "$build" -t targets all |
		sed -n 's,^\(examples/[^:/.]*\|tests/native-[^:/.]*\): .*,\1,p')
	suites="--suite examples --suite native"
fi
call ninja -C "$build" $targets
expect "it is built" 0
programs=$(ls -d "$build"/examples/* "$build"/tests/native-* | grep -v '\.p$')
[ "$(echo "$programs" | wc -l)" -gt 20 ]
report $? "there are tests"
wrong=$(for p in $programs; do
	! readelf -lW "$p" | grep -q INTERP || echo "${p##*/}"
	! readelf -p .comment -W "$p" 2>/dev/null | grep -q GLIBC || echo "${p##*/}"
done)
[ -z "$wrong" ]
report $? "they need no libc to be loaded: $(echo $wrong)"
# shellcheck disable=SC2086
call meson test -C "$build" --no-rebuild $suites
expect "they pass" 0

# The tests say what they find by tests/musl/cmocka.h here.
cat >"$scratch/fails.c" <<'END'
#include "../unit.h"
static void right(void **state)
{
	(void)state;
	assert_int_equal(1, 1);
}
static void wrong(void **state)
{
	(void)state;
	CHECK;
}
static int bad(void **state)
{
	(void)state;
	return BAD;
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong), cmocka_unit_test_teardown(right, bad)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
END
finds() # finds WANTED CHECK BAD
{
	musl-gcc -static -I "$top/tests/musl" -I "$top/tests/native" -DCHECK="$2" -DBAD="$3" \
		-o "$scratch/fails" "$scratch/fails.c" || exit 1
	call "$scratch/fails"
	expect "$2 and a teardown of $3: $1 tests fail" "$1"
}
finds 0 'assert_true(1)' 0
finds 1 'assert_int_equal(1, 2)' 0
finds 1 'assert_string_equal("a", "b")' 0
finds 1 'fail()' 0
finds 0 'skip()' 0
finds 2 'assert_in_range(3, 1, 2)' 1

finish
