#!/bin/sh
# SPDX-License-Identifier: MIT
#
# secure.sh POLLUX - a program with privileges that its user does not have heeds no setting of his;
# says TAP. Such a program is made here, and run by another user, so this wants root.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
built=$(dirname "$pollux")
. "$here/tap.sh"

: "${CC:=cc}"
other=65534

if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null 2>&1; then
	echo "skip: only root can make such a program and run it as another user"
	exit 77
fi
chmod 755 "$scratch"
cp "$built/libpollux-preload.so" "$scratch/libpollux-preload.so" || exit 1
cp "$built/libpollux.so.1" "$scratch/libpollux.so.1" || exit 1

# Both libraries are needed by the program itself: LD_PRELOAD would not be heeded.
cat >"$scratch/secure.c" <<'END'
#include <linux/aio_abi.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef LIBRARY
int pollux_eventfd(unsigned int, int);
#define eventfd pollux_eventfd
#endif
int pollux_fd_served(int fd);
int main(void)
{
	aio_context_t ctx = 0;
	int e = eventfd(0, EFD_NONBLOCK);
	long many = syscall(SYS_io_setup, 200000, &ctx);

	printf("secure %d served %d many %d\n", getauxval(AT_SECURE) != 0, pollux_fd_served(e),
	       many == 0);
	return 0;
}
END
if ! $CC -o "$scratch/dropin" "$scratch/secure.c" "$scratch/libpollux-preload.so" \
	-Wl,-rpath,"$scratch" 2>"$err"; then
	echo "skip: no C compiler"
	exit 77
fi
$CC -DLIBRARY -o "$scratch/library" "$scratch/secure.c" "$scratch/libpollux.so.1" \
	-Wl,-rpath,"$scratch" || exit 1

says() # says NAME TEXT: the last call did, and nothing on standard error
{
	[ "$status" -eq 0 ] && [ "$(cat "$out")" = "$2" ] && ! [ -s "$err" ]
	report $? "$1"
}

by_other() # by_other VARIABLE=VALUE... PROGRAM
{
	call setpriv --reuid="$other" --regid="$other" --clear-groups env "$@"
}

# What the settings do where they count.
by_other POLLUX_STATS=1 "$scratch/dropin"
grep -q "pollux" "$err" && grep -q "secure 0 served 1 many 0" "$out"
report $? "without privileges: POLLUX_STATS=1"
by_other POLLUX_NO_ADOPT=eventfd "$scratch/dropin"
says "without privileges: POLLUX_NO_ADOPT" "secure 0 served 0 many 0"
by_other POLLUX_AIO_MAX_NR=none "$scratch/dropin"
says "without privileges: POLLUX_AIO_MAX_NR" "secure 0 served 1 many 1"
by_other POLLUX_NO_ADOPT=eventfd "$scratch/library"
says "without privileges: POLLUX_NO_ADOPT of the library" "secure 0 served 0 many 0"

for bit in 4755 2755; do
	chmod "$bit" "$scratch/dropin" "$scratch/library"
	by_other "$scratch/dropin"
	if ! grep -q "secure 1" "$out"; then
		skip "mode $bit" "this file system gives no privileges"
		continue
	fi
	says "mode $bit: no setting" "secure 1 served 1 many 0"
	for setting in STATS=1 NO_ADOPT=eventfd NO_ADOPT=all AIO_MAX_NR=none; do
		by_other "POLLUX_$setting" "$scratch/dropin"
		says "mode $bit: POLLUX_$setting" "secure 1 served 1 many 0"
	done
	by_other POLLUX_NO_ADOPT=eventfd "$scratch/library"
	says "mode $bit: POLLUX_NO_ADOPT of the library" "secure 1 served 1 many 0"
done

finish
