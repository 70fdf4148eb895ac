/* SPDX-License-Identifier: MIT */
/*
 * The layout of the structures that programs are compiled with (docs/abi.md). What is here changes
 * only together with the library's name; new members go to the end of those that say their size.
 */
#include "native.h"

#include <pollux/level.h>
#include <pollux/memory.h>
#include <pollux/poll.h>
#include <pollux/read.h>
#include <pollux/watch.h>

#define AT(type, member, offset)                                                                   \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

SIZE(pollux_file, 64);
_Static_assert(_Alignof(struct pollux_file) == 8, "pollux_file");

SIZE(pollux_watch, 64);
_Static_assert(_Alignof(struct pollux_watch) == 8, "pollux_watch");

AT(pollux_file_ops, size, 0);
AT(pollux_file_ops, flags, 4);
AT(pollux_file_ops, poll, 8);
AT(pollux_file_ops, interest, 16);
AT(pollux_file_ops, release, 24);
AT(pollux_file_ops, free, 32);
AT(pollux_file_ops, due, 40);
AT(pollux_file_ops, bytes, 48);
SIZE(pollux_file_ops, 56);

AT(pollux_host, size, 0);
AT(pollux_host, flags, 4);
AT(pollux_host, look_ns, 8);
AT(pollux_host, park, 16);
AT(pollux_host, unpark_one, 24);
AT(pollux_host, now, 32);
AT(pollux_host, released, 40);
AT(pollux_host, arg, 48);
SIZE(pollux_host, 56);

AT(pollux_ep_attr, size, 0);
AT(pollux_ep_attr, flags, 4);
AT(pollux_ep_attr, host, 8);
SIZE(pollux_ep_attr, 16);

AT(pollux_ep_stat, items, 0);
AT(pollux_ep_stat, queued, 8);
AT(pollux_ep_stat, sleepers, 16);
AT(pollux_ep_stat, events, 24);
AT(pollux_ep_stat, collections, 32);
SIZE(pollux_ep_stat, 40);

AT(pollux_level, file, 0);
AT(pollux_level, events, 64);
AT(pollux_level, reserved, 68);
AT(pollux_level, free, 72);
SIZE(pollux_level, 80);

AT(pollux_memory, size, 0);
AT(pollux_memory, flags, 4);
AT(pollux_memory, map, 8);
AT(pollux_memory, unmap, 16);
AT(pollux_memory, arg, 24);
SIZE(pollux_memory, 32);

AT(pollux_pollfile, file, 0);
AT(pollux_pollfile, fd, 8);
AT(pollux_pollfile, events, 12);
AT(pollux_pollfile, revents, 16);
AT(pollux_pollfile, reserved, 20);
SIZE(pollux_pollfile, 24);

/* And the values that are compiled in. */
_Static_assert(POLLUX_FOREVER == -1, "POLLUX_FOREVER");
_Static_assert(POLLUX_EP_BATCHES == 1, "POLLUX_EP_BATCHES");
_Static_assert(POLLUX_RECLAIM_ANYWHERE == 0, "POLLUX_RECLAIM_ANYWHERE");
_Static_assert(POLLUX_RECLAIM_ASKED == 1, "POLLUX_RECLAIM_ASKED");
_Static_assert(POLLUX_BELL_MASK == 0xff, "POLLUX_BELL_MASK");
_Static_assert(POLLUX_EFD_SEMAPHORE == 1, "POLLUX_EFD_SEMAPHORE");

/* The library goes by the same: it finds the members where they are. */
static void test_the_library_agrees(void **state)
{
	struct pollux_host host = {.size = sizeof(host)};
	struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct pollux_ep *ep;

	(void)state;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	attr.host = NULL;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_the_library_agrees)};

	return RUN(tests);
}
