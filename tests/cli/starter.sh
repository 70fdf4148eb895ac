#!/bin/sh
# SPDX-License-Identifier: MIT
#
# starter.sh POLLUX - programs that only start others are loaded with a small library, and what they
# start with what it has use for; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

dropin=$built/libpollux-preload.so
small=$built/libpollux-starter.so
: "${CC:=cc}"

if ! $CC -o "$scratch/plain" "$here/child.c" 2>"$err"; then
	echo "skip: no C compiler"
	exit 77
fi
$CC -DUSES=epoll_create1 -o "$scratch/uses" "$here/child.c" || exit 1
$CC -DUSES=execve -o "$scratch/starts" "$here/child.c" || exit 1
$CC -o "$scratch/start" "$here/start.c" || exit 1
$CC -DUSES=epoll_create1 -o "$scratch/whole" "$here/start.c" || exit 1

says() # says TEXT NAME: the last call did, and ended well
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$1" ]
	report $? "$2"
}

call "$pollux" run -- "$scratch/starts"
says "starter $dropin -" "the program itself, if it only starts others"
call "$pollux" run --load=all -- "$scratch/starts"
says "mapped $dropin -" "--load=all"
call "$pollux" run --stats -- "$scratch/starts"
says "mapped $dropin -" "--stats wants the drop-in"
call "$pollux" run --adopt=inline -- "$scratch/starts"
says "starter $dropin -" "--adopt=inline alone does not"
call env POLLUX_LOAD=all "$pollux" run -- "$scratch/starts"
says "mapped $dropin -" "POLLUX_LOAD=all"
call "$pollux" run -- "$scratch/start" execv "$scratch/starts"
says "starter $dropin -" "one that it starts"

# Each way to start a program, from the small library and from the drop-in.
for from in start whole; do
	for how in execv execve execvp execvpe execl execlp execle fexecve execveat system popen wordexp \
		posix_spawn posix_spawnp vfork fork; do
		call "$pollux" run -- "$scratch/$from" "$how" "$scratch/uses"
		says "mapped $dropin -" "$from: by $how the drop-in, where there is use for it"
		call "$pollux" run -- "$scratch/$from" "$how" "$scratch/starts"
		says "starter $dropin -" "$from: by $how the small library"
		call "$pollux" run -- "$scratch/$from" "$how" "$scratch/plain"
		says "plain - -" "$from: by $how neither"
	done
done
call "$pollux" run -- "$scratch/start" filtered "$scratch/plain"
says "mapped $dropin -" "after a seccomp filter nothing is judged"
call "$pollux" run -- "$scratch/start" filtered "$scratch/starts"
says "mapped $dropin -" "nor what only starts others"

# What is started is served, however many lie between.
bench="$built/bench/spawn --how fork --events 1"
call "$pollux" run -- "$scratch/start" system "$scratch/start execv $scratch/uses"
says "mapped $dropin -" "two between"
call "$pollux" run -- env nice sh -c "env $bench; exit \$?"
[ "$status" -eq 0 ] && grep -q "preload=1 served=1" "$out"
report $? "through env, nice, sh and env it is served"

# Scripts are what their interpreters are.
script() # script FIRST-LINE: one that is started by the drop-in, and the command itself
{
	printf '%s\n' "$1" >"$scratch/script"
	chmod 755 "$scratch/script"
	call "$pollux" run -- "$scratch/whole" execv "$scratch/script"
}
script "#!$scratch/starts"
says "starter $dropin -" "a script whose interpreter starts others"
call "$pollux" run -- "$scratch/script"
says "starter $dropin -" "the same as the program itself"
script "#! 	$scratch/starts	-x"
says "starter $dropin -" "one with blanks and an argument"
script "#!$scratch/uses"
says "mapped $dropin -" "one whose interpreter has use for the drop-in"
script "#!$scratch/plain"
says "plain - -" "one whose interpreter has use for neither"
script "#!/usr/bin/env $scratch/uses"
says "mapped $dropin -" "one by env"
cp "$scratch/script" "$scratch/first"
script "#!$scratch/first"
says "mapped $dropin -" "one whose interpreter is a script"
cp "$scratch/starts" "$scratch/private"
chmod 700 "$scratch/private"
script "#!$scratch/private"
says "mapped $dropin -" "one whose interpreter is not for everybody"
printf '#!%s' "$scratch/starts" >"$scratch/script"
call "$pollux" run -- "$scratch/whole" execv "$scratch/script"
says "mapped $dropin -" "one that ends with its first line is not judged"

# The environment

call "$pollux" run -- "$scratch/start" system 'tr "\\0" "\\n" </proc/$PPID/environ | grep ^LD_PRELOAD='
says "LD_PRELOAD=$dropin" "the environment in /proc names the drop-in"
call "$pollux" run -- env
grep -qx "LD_PRELOAD=$dropin" "$out" && ! grep -q "$small" "$out"
report $? "and so does that which env shows"
call "$pollux" run -- env -i "$scratch/uses"
says "plain - -" "an empty environment stays empty"
call "$pollux" run -- env POLLUX_STATS=1 "$scratch/plain"
says "mapped $dropin -" "POLLUX_STATS=1 of one program"
call "$pollux" run -- env POLLUX_LOAD=all "$scratch/starts"
says "mapped $dropin -" "POLLUX_LOAD=all of one program"
call "$pollux" run -- env LD_AUDIT=/nonexistent "$scratch/starts"
says "mapped $dropin -" "with LD_AUDIT nothing is judged"
many=$(seq -f 'V%g=1' 300)
call "$pollux" run -- env $many "$scratch/starts"
says "mapped $dropin -" "with more variables than are looked at nothing is judged"
call env $many "$pollux" run -- "$scratch/starts"
says "mapped $dropin -" "nor by the command"
call env $many "$pollux" run -- env "$scratch/uses"
says "mapped $dropin -" "what starts then gets the drop-in"

# Other libraries in LD_PRELOAD

echo 'int library(void) { return 0; }' >"$scratch/idle.c"
$CC -shared -fPIC -o "$scratch/idle.so" "$scratch/idle.c" || exit 1
cp "$scratch/idle.so" "$scratch/second.so"
list=$scratch/idle.so:$dropin:$scratch/second.so
call env LD_PRELOAD="$list" "$scratch/whole" execv "$scratch/starts"
says "starter $list -" "others keep their places before and behind it"
call env LD_PRELOAD="$list" "$scratch/whole" system "$scratch/start execv $scratch/uses"
says "mapped $list -" "and so they do when it goes"
list="$scratch/idle.so  $dropin"
call env LD_PRELOAD="$list" "$scratch/whole" execv "$scratch/starts"
says "starter $list -" "a list with blanks"
call env LD_PRELOAD="$list " "$scratch/whole" execv "$scratch/plain"
says "plain $scratch/idle.so -" "what is left of it without the drop-in"
list=":$dropin: $scratch/idle.so:$dropin"
call env LD_PRELOAD="$list" "$scratch/whole" execv "$scratch/starts"
says "starter $list -" "one that names it twice"
call env LD_PRELOAD="$list" "$scratch/whole" execv "$scratch/plain"
says "plain :$scratch/idle.so -" "and what is left of that"
cat >"$scratch/early.c" <<'END'
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((constructor)) static void early(void)
{
	char *first = getenv("FIRST");
	pid_t pid = -1;

	if (first && !unsetenv("FIRST") && !setenv("CHILD", getenv("LD_PRELOAD"), 1) && !(pid = fork()))
		execl(first, first, (char *)NULL);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}
END
$CC -shared -fPIC -o "$scratch/early.so" "$scratch/early.c" || exit 1
list=$dropin:$scratch/early.so
call "$pollux" run -- env LD_PRELOAD="$list" FIRST="$scratch/uses" "$scratch/starts"
says "mapped $list $list
starter $list $list" "what the constructor of a library sees, and starts"

# Without the small library

mkdir "$scratch/alone"
cp "$dropin" "$scratch/alone"
call env POLLUX_PRELOAD="$scratch/alone/libpollux-preload.so" "$pollux" run -- "$scratch/starts"
says "mapped $scratch/alone/libpollux-preload.so -" "where it is missing there is the drop-in"
call env POLLUX_PRELOAD="$scratch/alone/libpollux-preload.so" "$pollux" run -- \
	"$scratch/whole" execv "$scratch/starts"
says "mapped $scratch/alone/libpollux-preload.so -" "and also for what is started"
cp "$dropin" "$scratch/alone/other.so"
call env POLLUX_PRELOAD="$scratch/alone/other.so" "$pollux" run -- "$scratch/whole" system \
	"$scratch/starts"
says "plain $scratch/alone/other.so -" "a drop-in of another name stays"

finish
