/* SPDX-License-Identifier: MIT */
/*
 * Faults on purpose, to see that the tests find them. PLX_INJECTED(fault) is true now and
 * then in a build with -Dinject=FAULT, and never otherwise; -Dinject=any takes the fault
 * from POLLUX_INJECT, as FAULT or FAULT:N for one time in N.
 *
 *   lost_event       an item does not hear of a change
 *   lost_wake        a sleeper in epoll_wait, poll or select is not rung for
 *   double_edge      an edge is reported as long as its file is ready
 *   wrong_order      a ready item comes too early
 *   wrong_errno      epoll_ctl, epoll_wait, poll, read or a request of AIO fails, or says
 *                    another error than the kernel's
 *   wrong_data       an event carries the data of nobody; a byte that read or AIO yields is
 *                    another one; a write of AIO is reported and not made
 *   wrong_count      an eventfd's counter is one too high
 *   wrong_poll       poll and select say the contrary of what an eventfd is ready for
 *   wrong_flag       a duplicate is close-on-exec
 *   forgotten_del    what epoll_ctl removes stays
 *   forgotten_count  the count is lost when an eventfd becomes a kernel object
 *   forgotten_number what was closed past us stays when its number is given out again
 *   lost_unread      events that nobody has taken, of a context that becomes the kernel's
 *   lost_eviction       an object stays behind when all become kernel objects
 *   wrong_verdict    a program that needs us is started without us
 */
#pragma once

#include <stdbool.h>

#ifdef PLX_INJECT
bool plx_inject(const char *fault);
#define PLX_INJECTED(fault) plx_inject(#fault)
#else
#define PLX_INJECTED(fault) false
#endif
