#!/bin/sh
# SPDX-License-Identifier: MIT
#
# foreign.sh POLLUX - programs that cannot load the drop-in, as they are of another C library or for
# another word size, start without it; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

dropin=$built/libpollux-preload.so
: "${CC:=cc}"

if ! $CC -o "$scratch/start" "$here/start.c" 2>"$err"; then
	echo "skip: no C compiler"
	exit 77
fi
$CC -DUSES=epoll_create1 -o "$scratch/whole" "$here/start.c" || exit 1
$CC -o "$scratch/common" -DUSES=epoll_create1 "$here/child.c" || exit 1

# Another file as the loader, whatever is in it: this one would load the drop-in.
loader=$(readelf -l "$scratch/start" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
cp "$loader" "$scratch/loader.so" || exit 1
ln -s "$loader" "$scratch/link.so" || exit 1
$CC -DUSES=epoll_create1 -o "$scratch/other" "$here/child.c" \
	-Wl,--dynamic-linker="$scratch/loader.so" || exit 1
$CC -DUSES=epoll_create1 -o "$scratch/linked" "$here/child.c" \
	-Wl,--dynamic-linker="$scratch/link.so" || exit 1
kinds=other
if command -v musl-gcc >/dev/null 2>&1 && musl-gcc -o "$scratch/musl" "$here/child.c" 2>"$err"; then
	kinds="$kinds musl"
else
	skip "musl" "musl-gcc is not installed"
fi
if $CC -m32 -o "$scratch/small" "$here/child.c" 2>"$err" && "$scratch/small" >"$out" 2>&1; then
	kinds="$kinds small"
else
	skip "32 bit" "such programs cannot be built or run here"
fi

plain() # plain NAME: the last call ran without us, and said nothing else
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "plain - -" ] && ! [ -s "$err" ]
	report $? "$1"
}

for kind in $kinds; do
	for from in start whole; do
		for how in execv execve execvp execvpe execl execlp execle fexecve execveat system \
			popen wordexp posix_spawn posix_spawnp vfork fork; do
			call "$pollux" run -- "$scratch/$from" "$how" "$scratch/$kind"
			plain "$kind: $from: by $how"
		done
	done
	for option in --load=all --stats --adopt=inline; do
		call "$pollux" run "$option" -- sh -c '"$1"; exit $?' sh "$scratch/$kind"
		[ "$status" -eq 0 ] && [ "$(head -n 1 "$out")" = "plain - -" ] &&
			! grep -v "^pollux: " "$err" >"$scratch/else"
		report $? "$kind: $option"
	done
	many=$(seq -f 'V%g=1' 300)
	# shellcheck disable=SC2086
	call "$pollux" run -- env $many sh -c '"$1"; exit $?' sh "$scratch/$kind"
	plain "$kind: with many variables"
	printf '#!%s\n' "$scratch/$kind" >"$scratch/script"
	printf '#!%s' "$scratch/$kind" >"$scratch/short"
	printf '#! %s -x\n' "$scratch/script" >"$scratch/second"
	printf '#!./%s\n' "$kind" >"$scratch/relative"
	printf '#!/usr/bin/env %s\n' "$scratch/$kind" >"$scratch/by-env"
	chmod 755 "$scratch/script" "$scratch/short" "$scratch/second" "$scratch/relative" \
		"$scratch/by-env"
	for script in script short second relative by-env; do
		call "$pollux" run -- sh -c 'cd "$1"; "./$2"; exit $?' sh "$scratch" "$script"
		plain "$kind: $script"
	done
	mkdir -p "$scratch/first/private" "$scratch/last"
	cp "$scratch/$kind" "$scratch/last/private"
	chmod 700 "$scratch/last/private"
	call "$pollux" run -- env PATH="$scratch/first:$PATH:$scratch/last" sh -c 'private; exit $?'
	plain "$kind: found in PATH, for its owner alone"
	call "$pollux" run -- "$scratch/$kind"
	expect "$kind: the command says so" 125
	grep -q "cannot be loaded\|another C library" "$err"
	report $? "$kind: and why"
	call "$pollux" run --force -- "$scratch/$kind"
	plain "$kind: --force"
done

# Another name of the same loader is no other loader.
call "$pollux" run -- "$scratch/whole" execv "$scratch/linked"
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "mapped $dropin -" ]
report $? "a link to the loader"
call "$pollux" run -- "$scratch/linked"
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "mapped $dropin -" ]
report $? "also for the command"
call "$pollux" run -- "$scratch/whole" execv "$scratch/common"
[ "$status" -eq 0 ] && [ "$(cat "$out")" = "mapped $dropin -" ]
report $? "and what is common is loaded"

# By a relative path, with file actions.
cat >"$scratch/actions.c" <<'END'
#include <spawn.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv)
{
	posix_spawn_file_actions_t actions;
	int status = 2;
	pid_t pid;

	(void)argc;
	epoll_create1(0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
	if (chdir(argv[1]) || posix_spawnp(&pid, argv[2], &actions, NULL, argv + 2, environ))
		return 2;
	waitpid(pid, &status, 0);
	return status != 0;
}
END
$CC -o "$scratch/actions" "$scratch/actions.c" || exit 1
for kind in $kinds; do
	call "$pollux" run -- "$scratch/actions" "$scratch" "./$kind"
	plain "$kind: by a relative path with file actions"
	printf '#!./%s\n' "$kind" >"$scratch/relative"
	call "$pollux" run -- "$scratch/actions" "$scratch" ./relative
	plain "$kind: and a script with such an interpreter"
done

# From a process of several threads.
cat >"$scratch/threads.c" <<'END'
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>
static void *sleeps(void *arg)
{
	for (;;)
		pause();
	return arg;
}
int main(int argc, char **argv)
{
	pthread_t t;

	epoll_create1(0);
	if (argc < 2 || pthread_create(&t, NULL, sleeps, NULL))
		return 2;
	execv(argv[1], argv + 1);
	return 3;
}
END
$CC -pthread -o "$scratch/threads" "$scratch/threads.c" || exit 1
for kind in $kinds; do
	call "$pollux" run -- "$scratch/threads" "$scratch/$kind"
	plain "$kind: from a process of two threads"
done

finish
