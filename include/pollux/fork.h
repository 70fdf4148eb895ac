/* SPDX-License-Identifier: MIT */
/*
 * pollux/fork.h - what a child of a fork has
 *
 * In the child there is the thread that forked alone, and others may have been in the middle of
 * changing something. So of what was made before
 *
 *   files    go on, yours, eventfds and levels: they can be added, watched, woken and put. Whatever
 *            watched them is gone. References that other threads had stay. Timers may only be put.
 *   epolls   do not: they may be put. All else returns -EOWNERDEAD, polls find nothing, and hosts
 *            may be told to wake somebody. The child makes new ones, and adds what it wants.
 *   watches  are gone, and not called; they have to be removed, for their references.
 *   batches  of the thread that forked stay: it is at the same events. They end as in the parent,
 *            and so by a wait in their epoll, which returns -EOWNERDEAD, and by its last put. Those
 *            of other threads are gone, with what they held back.
 *
 * What is made after the fork works as anywhere. The parent notices nothing.
 */
#ifndef POLLUX_FORK_H
#define POLLUX_FORK_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * libc's fork calls these by itself (pthread_atfork). Who makes a process by another way that
 * copies memory, as clone(2) without CLONE_VM, calls the first before it, and after it the second
 * in the parent, also if it has failed, and the third in the child: all three or none. They nest.
 * The thread that forks calls nothing else of the library in between, and its signals are blocked.
 * Programs that use <pollux/posix.h> call pollux_fork.
 *
 * Cannot fail. Any thread; not from signal handlers, a read section, or an operation of a file or
 * host. What was done in the parent before the first happens before what follows the third.
 */
void pollux_before_fork(void);
void pollux_after_fork_parent(void);
void pollux_after_fork_child(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
