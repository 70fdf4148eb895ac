#!/bin/sh
# SPDX-License-Identifier: MIT
#
# load.sh POLLUX - which of the programs that a program starts are loaded with the drop-in; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

dropin=$built/libpollux-preload.so
: "${CC:=cc}"

if ! $CC -o "$scratch/plain" "$here/child.c" 2>"$err"; then
	echo "skip: no C compiler"
	exit 77
fi

# A shell starts it, so that the drop-in in the shell decides.
run() # run OPTIONS... -- COMMAND
{
	options=
	while [ "$1" != -- ]; do
		options="$options $1"
		shift
	done
	shift
	call "$pollux" run $options -- sh -c "$1; exit \$?"
}

is_plain()
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "plain - -" ]
}

is_starter() # with the small library alone; what it shows of itself is the drop-in
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "starter $dropin -" ]
}

is_mapped()
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "mapped $dropin -" ]
}

call "$pollux" run -- "$scratch/plain"
is_mapped
report $? "the program itself is always loaded with the drop-in"
run -- "$scratch/plain"
is_plain
report $? "what it starts is not, without use for it"
run --load=needed -- "$scratch/plain"
is_plain
report $? "--load=needed is the default"
run --load=all -- "$scratch/plain"
is_mapped
report $? "--load=all"
run -- "POLLUX_LOAD=all $scratch/plain"
is_mapped
report $? "POLLUX_LOAD=all of one program"
run --stats -- "$scratch/plain"
is_mapped
report $? "--stats wants all of them"
run -- "sh -c '$scratch/plain; exit \$?'"
is_plain
report $? "the same one deeper"

# Each name for which a program is loaded with a library: all that the code has, and none by the name
# alone. What starts others gets the small one.
uses=$(sed -n '/^} names\[\]/,/^};/p' "$here/../../src/preload/needless.c" |
	grep -o 'NAME("[a-z_0-9]*", USE_[A-Z]*)' | sed 's/.*"\(.*\)", USE_\(.*\))/\1:\2/')
names=$(echo "$uses" | cut -d: -f1)
[ "$(echo "$names" | wc -l)" -ge 26 ]
report $? "the names are found in the code"
# fexecve is an execve by its end.
for name in $uses fexecve:STARTS; do
	use=${name#*:}
	name=${name%:*}
	if ! $CC -DUSES="$name" -o "$scratch/uses" "$here/child.c" 2>"$err"; then
		# Not in this C library: one of the program's own, which others could call, does as well.
		$CC -rdynamic -DUSES="$name" -DDEFINES="$name" -o "$scratch/uses" "$here/child.c" ||
			exit 1
	fi
	run -- "$scratch/uses"
	case $use in
	WHOLE)
		is_mapped
		report $? "a program with $name is loaded with it"
		;;
	STARTS)
		is_starter
		report $? "a program with $name is loaded with the small library"
		;;
	esac
done
for name in fork epoll_wait read pipe2 pthread_create getpwnam; do
	$CC -DUSES="$name" -o "$scratch/uses" "$here/child.c" 2>"$err" || exit 1
	run -- "$scratch/uses"
	is_plain
	report $? "a program with $name is not"
done

# Libraries

echo 'extern char epoll_create1[]; const void *library(void) { return epoll_create1; }' >"$scratch/makes.c"
echo 'int library(void) { return 0; }' >"$scratch/idle.c"
for lib in makes idle; do
	$CC -shared -fPIC -o "$scratch/libpollux-test-$lib.so" "$scratch/$lib.c" || exit 1
	$CC -DUSES=library -o "$scratch/$lib" "$here/child.c" "$scratch/libpollux-test-$lib.so" || exit 1
	$CC -DUSES=library -o "$scratch/$lib-there" "$here/child.c" -L"$scratch" \
		-lpollux-test-$lib -Wl,-rpath,"$scratch" || exit 1
	run -- "$scratch/$lib"
	is_mapped
	report $? "a program with a library by its path ($lib) is loaded with it"
	run -- "$scratch/$lib-there"
	is_mapped
	report $? "a program with a run path ($lib) is loaded with it"
done
# One of the system's.
if $CC -Wl,--no-as-needed -o "$scratch/zlib" "$here/child.c" -l:libz.so.1 2>"$err"; then
	run -- "$scratch/zlib"
	is_plain
	report $? "a program with a library of the system, neither with use for it, is not"
	run -- "LD_LIBRARY_PATH=$scratch $scratch/zlib"
	is_mapped
	report $? "with LD_LIBRARY_PATH it is"
	run -- "LD_LIBRARY_PATH=$scratch $scratch/plain"
	is_plain
	report $? "one with libc alone is not"
else
	skip "a program with a library of the system" "no libz.so.1"
fi
run -- "LD_AUDIT=/nonexistent $scratch/plain 2>/dev/null"
is_mapped
report $? "with LD_AUDIT a program is loaded with it"

# Other libraries in LD_PRELOAD

preloaded() # preloaded WANTED ENTRIES NAME
{
	wanted=$1
	LD_PRELOAD=$2 "$pollux" run -- sh -c "$scratch/plain; exit \$?" >"$out" 2>"$err"
	status=$?
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$wanted" ]
	report $? "$3"
}

idle=$scratch/libpollux-test-idle.so
cp "$idle" "$scratch/second.so"
preloaded "plain $idle -" "$idle" "another entry of LD_PRELOAD is kept"
preloaded "plain $idle:$scratch/second.so -" "$idle:$scratch/second.so" "two are kept in their order"
preloaded "plain $scratch/second.so  $idle -" "$scratch/second.so  $idle" "and in the other, as they are written"
makes=$scratch/libpollux-test-makes.so
preloaded "mapped $dropin:$idle:$makes -" "$idle:$makes" "one that has use for the drop-in keeps it"
LD_PRELOAD=$idle:$dropin:$scratch/second.so sh -c "$scratch/plain; exit \$?" >"$out" 2>"$err"
status=$?
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "plain $idle:$scratch/second.so -" ]
report $? "the drop-in is taken out of the middle"

# What is not judged

printf '%s\n' '#!/bin/sh' 'echo "script $LD_PRELOAD"' >"$scratch/script"
chmod 755 "$scratch/script"
run -- "$scratch/script"
[ "$(cat "$out")" = "script $dropin" ]
report $? "a script keeps it in its environment"
if $CC -static -o "$scratch/static" "$here/child.c" 2>"$err"; then
	run -- "$scratch/static"
	[ "$(cat "$out")" = "plain $dropin -" ]
	report $? "a static program keeps it in its environment"
else
	skip "a static program keeps it in its environment" "no static C library"
fi
cp "$scratch/plain" "$scratch/private"
chmod 700 "$scratch/private"
run -- "$scratch/private"
is_mapped
report $? "a file that not everybody may execute keeps it"
cp "$scratch/plain" "$scratch/cut"
printf '\177ELF\002\001\001' | dd of="$scratch/cut" conv=notrunc 2>"$err"
dd if=/dev/zero of="$scratch/cut" bs=1 seek=54 count=2 conv=notrunc 2>"$err"
run -- "$scratch/cut 2>/dev/null"
[ "$status" -ne 0 ]
report $? "a damaged file fails as it does"

# A file that changes

$CC -DUSES=epoll_create1 -o "$scratch/uses" "$here/child.c" || exit 1
call "$pollux" run -- bash -c '
	cd "$1" && cp plain changes && ./changes && ./changes && cp uses changes && ./changes &&
	cp plain new && mv new changes && ./changes && ./changes' bash "$scratch"
[ "$status" -eq 0 ] && [ "$(cut -d" " -f1 "$out" | tr "\n" " ")" = "plain plain mapped plain plain " ]
report $? "a file that has changed is looked at again"

# Names of libc that a program may have functions of: the kernel is called without them.

if command -v nm >/dev/null 2>&1; then
	nm -D --undefined-only "$dropin" "$built/libpollux-starter.so" | sed -n 's/^ *U \([^@]*\).*/\1/p' |
		grep -xE 'clock_(gettime|nanosleep)|gettimeofday|time|(nano|u)?sleep|getpid|getppid|gettid|
fstat(64)?|stat(64)?|sigprocmask|raise|kill|getenv|secure_getenv|getauxval|mmap(64)?|munmap|mprotect|
madvise|sched_get(affinity|scheduler)|read|write|open(64)?|close|poll|select|epoll_.*|syscall|sigaction' \
			>"$out"
	[ ! -s "$out" ]
	report $? "neither library calls what a program may have in its place"
else
	skip "neither library calls what a program may have in its place" "there is no nm"
fi

# Pages that come by a fault, of parent and child. Code comes by 16 pages, whose bounds are where
# chance has put the library: that makes one or two more. So do pages that the kernel has put out of
# memory for others. The least of three is what is needed.

faults() # faults COMMAND...: for a child, rounded
{
	for _ in 1 2 3; do
		call "$@"
		[ "$status" -eq 0 ] && sed -n 's/.* faults=\([0-9]*\)\..*/\1/p' "$out"
	done | sort -n | head -n 1
}

few() # few HOW MORE NAME: the drop-in makes no more of them than that
{
	most=$(($(faults "$built/bench/spawn" --how "$1" --events 100) + $2))
	[ "$(faults "$pollux" run -- "$built/bench/spawn" --how "$1" --events 100)" -le "$most" ]
	report $? "$3"
}

few fork 4 "a fork touches few pages"
few exec 5 "a fork and an exec of what is not loaded touch few pages"
few exec-starter 10 "a fork and an exec of what only starts others touch few pages"

finish
