/* SPDX-License-Identifier: MIT */
/*
 * pollux/read.h - read sections: memory that others may still look at
 *
 * A file's free operation, and `released` of a host, are called when nobody looks at the object any
 * more. Threads look at it without a reference within a wake, and within a read section of yours:
 * what is found in a table of yours inside one is not freed before the end of the section, if it is
 * taken out of the table before its last reference is dropped. So who has only a number, as an
 * upcall that comes late has, looks the object up like this:
 *
 *	pollux_read_lock();
 *	s = table_find(&table, number);
 *	if (s && !pollux_file_tryget(&s->file))
 *		s = NULL;
 *	pollux_read_unlock();
 *
 * and has a reference then, or finds that the object has gone. It is the RCU of liburcu, under
 * names of our own; no thread need be registered.
 */
#ifndef POLLUX_READ_H
#define POLLUX_READ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Begins a read section, which ends with pollux_read_unlock in the same thread. Sections nest; they
 * end when the outermost does. One costs some nanoseconds and waits for nobody. Inside, the thread
 * may do anything with the memory that it finds, take references, poll and wake; it must not call
 * pollux_ep_ctl, a wait, pollux_synchronize, pollux_quiesce, or what may drop a last reference, and
 * should not sleep: nothing is freed meanwhile. Cannot fail. Any thread, signal handlers too.
 *
 * Memory order: what was done before an object was taken out of reach and its last reference
 * dropped is seen by sections that begin after a free operation has run; what a section did
 * happens before the free operations that wait for it.
 */
void pollux_read_lock(void);
void pollux_read_unlock(void);

/*
 * Waits until every read section, every wake and every batch (POLLUX_EP_BATCHES) that is under way
 * has ended. Then nobody looks at what was taken out of reach before the call, or is at an event of
 * what was removed before. Sleeps. Cannot fail. Any thread; not from signal handlers, nor in a read
 * section or a batch (that ends the program), nor in an operation of a file or a host. What the
 * ended sections and batches did happens before its return.
 */
void pollux_synchronize(void);

/*
 * Calls fn(arg) once, later, when and where a free operation would be called of a file that is put
 * now: with no lock of the engine held, in any thread, in any order. It is for memory that is not
 * of a file, and for what follows a pollux_ep_del that has returned 1. Takes 128 bytes from what
 * the engine keeps; asks the system for more only if that is used up. Returns 0 or -ENOMEM; then
 * nothing will be called, and who may wait calls pollux_synchronize instead. It may call what is
 * due, and wait, as a last pollux_file_put does. Any thread, in read sections, batches, free and
 * release, too; not from signal handlers, nor in other operations. What was done before happens
 * before fn.
 */
int pollux_call(void (*fn)(void *arg), void *arg);

/*
 * Waits until every free operation and call that was asked for before has returned: of files whose
 * last reference was dropped, and of pollux_call, by any thread, if that happens before the call of
 * this function. Calls those that no other thread is at, in any mode. Cannot fail. Any thread; not
 * from signal handlers, in an operation of a file or a host, nor with a lock held that such an
 * operation or a batch takes; in a read section, a batch, a free operation or a call it ends the
 * program. What these operations did happens before its return.
 */
void pollux_barrier(void);

/*
 * Where free operations, `released` of hosts and calls are made.
 *
 * POLLUX_RECLAIM_ANYWHERE  within the calls of any thread that may be the last put of a file or an
 *                          epoll, pollux_call, pollux_quiesce and the below. The default.
 * POLLUX_RECLAIM_ASKED     within pollux_reclaim and pollux_barrier only. So they may take any lock
 *                          that is not held around these.
 *
 * max_bytes: 0, or how much may wait: `bytes` of each file's operations, and 128 for a call. Then a
 * put and a pollux_call that would leave more behind call what is due and wait for sections and
 * batches until it is less; in mode ASKED they wait for other threads to reclaim, if any other has
 * ever called pollux_reclaim. (If none of those calls it again they wait for ever.) They do not
 * wait, and exceed the bound, where that could be for ever: in a read section, a free operation or
 * a call, and in a batch, whose end waits instead (pollux_ep_batch_end, the next wait). Wakes and
 * signal handlers drop no last reference, so nothing there waits. So with a bound no lock may be
 * held around a last put that is taken in a section, a batch or a free operation.
 *
 * Returns 0 or -EINVAL. Any thread, at any time; not from signal handlers, read sections or
 * operations of a file.
 * When it has set ASKED, no free operation of before is still at work, but the caller's own.
 */
#define POLLUX_RECLAIM_ANYWHERE 0
#define POLLUX_RECLAIM_ASKED 1
int pollux_reclaim_mode(int mode, size_t max_bytes);

/*
 * Calls what is due, of all threads, and waits up to deadline (nanoseconds of CLOCK_MONOTONIC; one
 * that has passed, as 0 has: not at all; negative: without limit) until what was asked for before
 * the call is. In a batch it does not wait for what that holds up. Returns the bytes that are left.
 * Contexts as pollux_barrier, but in a batch, too.
 */
size_t pollux_reclaim(int64_t deadline);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
