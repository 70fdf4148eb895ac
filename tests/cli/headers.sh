#!/bin/sh
# SPDX-License-Identifier: MIT
#
# headers.sh POLLUX - programs whose ELF headers tell what is not there run as they do on the kernel;
# says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

: "${CC:=cc}"

cat >"$scratch/serves.c" <<'END'
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#ifdef RUST
/* What Rust's library imports. */
int __xpg_strerror_r(int error, char *buf, unsigned long size);
unsigned long _Unwind_GetTextRelBase(void *);
void *const imports[] = {__xpg_strerror_r, _Unwind_GetTextRelBase};
#endif
int main(void)
{
	int e = eventfd(1, EFD_NONBLOCK), ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev) || epoll_wait(ep, &ev, 1, 0) != 1)
		return 1;
	puts("served");
	return 0;
}
END
if ! $CC -o "$scratch/serves" "$scratch/serves.c" 2>"$err" ||
	! $CC -DRUST -o "$scratch/rust" "$scratch/serves.c" 2>"$err"; then
	echo "skip: no C compiler"
	exit 77
fi
$CC -shared -fPIC -o "$scratch/libodd.so" -x c - <<'END' || exit 1
int odd(void) { return 0; }
END

cat >"$scratch/change.py" <<'END'
"""change.py FROM TO HOW: a copy with another note, dynamic section or segment."""
import random
import struct
import sys

source, to, how = sys.argv[1:]
data = bytearray(open(source, "rb").read())
(start,) = struct.unpack_from("<Q", data, 32)
count = struct.unpack_from("<H", data, 56)[0]
LOAD, DYNAMIC, NOTE = 1, 2, 4
FIELDS = {"type": (0, "<I"), "flags": (4, "<I"), "offset": (8, "<Q"), "vaddr": (16, "<Q"),
          "filesz": (32, "<Q"), "memsz": (40, "<Q"), "align": (48, "<Q")}


def get(i, field):
    at, form = FIELDS[field]
    return struct.unpack_from(form, data, start + 56 * i + at)[0]


def put(i, field, value):
    at, form = FIELDS[field]
    struct.pack_into(form, data, start + 56 * i + at, value & (2 ** (32 if form == "<I" else 64) - 1))


notes = [i for i in range(count) if get(i, "type") == NOTE]
loads = [i for i in range(count) if get(i, "type") == LOAD]
last = loads[-1]
end = get(last, "vaddr") + get(last, "memsz")
for i in notes:
    put(i, "align", 4)
    if how == "far":
        put(i, "vaddr", 0x700000000000)
    elif how == "behind":
        put(i, "vaddr", end + 0x100000)
    elif how == "across":
        put(i, "vaddr", get(last, "vaddr") + get(last, "filesz") - 8)
        put(i, "filesz", 0x2000000)
    elif how == "long":
        put(i, "filesz", 2 ** 64 - 1)
    elif how == "wraps":
        put(i, "vaddr", 2 ** 64 - 16)
    elif how == "lengths":
        struct.pack_into("<III", data, get(i, "offset"), 0xffffffff, 0xffffffff, 4)
if how == "gap":
    put(notes[0], "vaddr", get(loads[1], "vaddr") - 0x800 if len(loads) > 1 else end)
elif how.isdigit():
    # Anything in notes, and sizes of what the loader does not need.
    r = random.Random(int(how))
    for i in notes:
        for field in ("vaddr", "filesz", "align"):
            if r.random() < .6:
                put(i, field, r.choice([r.getrandbits(64), r.getrandbits(32), r.getrandbits(16),
                                        end + r.randrange(-64, 64), get(i, field) + r.randrange(-9, 9),
                                        0, 4]))
        at = get(i, "offset")
        for k in range(r.randrange(12)):
            data[at + r.randrange(24)] = r.choice([0, 1, 4, 127, 255, r.randrange(256)])
    for i in range(count):
        if get(i, "type") == DYNAMIC and r.random() < .5:
            put(i, "filesz", r.choice([0, 8, 16, r.getrandbits(10), r.getrandbits(62)]))
open(to, "wb").write(data)
END

same() # same NAME PROGRAM: it ends under Pollux as it does without
{
	chmod 755 "$2"
	call "$2"
	plain=$status
	cp "$out" "$scratch/plain"
	call "$pollux" run -- "$2"
	[ "$status" -eq "$plain" ] && cmp -s "$out" "$scratch/plain"
	report $? "$1"
}

for program in serves rust; do
	for how in none far behind across long wraps lengths gap; do
		python3 "$scratch/change.py" "$scratch/$program" "$scratch/changed" "$how" || exit 1
		same "$program: a note, $how" "$scratch/changed"
		[ "$plain" -eq 0 ] || report 1 "$program: runs by itself"
	done
done

# In a library.
for how in far across long lengths; do
	python3 "$scratch/change.py" "$scratch/libodd.so" "$scratch/libchanged.so" "$how" || exit 1
	$CC -o "$scratch/linked" "$scratch/serves.c" -Wl,--no-as-needed "$scratch/libchanged.so" || exit 1
	same "in a library: a note, $how" "$scratch/linked"
done

differ=0
for seed in $(seq 60); do
	python3 "$scratch/change.py" "$scratch/serves" "$scratch/changed" "$seed" || exit 1
	chmod 755 "$scratch/changed"
	call "$scratch/changed"
	plain=$status
	call "$pollux" run -- "$scratch/changed"
	[ "$status" -eq "$plain" ] || differ=$((differ + 1))
done
[ "$differ" -eq 0 ]
report $? "60 sets of random headers"

finish
