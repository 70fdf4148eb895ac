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
 * Waits until every read section and every wake that is under way has ended. Then nobody looks at
 * what was taken out of reach before the call. Sleeps. Cannot fail. Any thread; not from signal
 * handlers, nor in a read section (that ends the program), nor in an operation of a file or a host.
 * What the ended sections did happens before its return.
 */
void pollux_synchronize(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
