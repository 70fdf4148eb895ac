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
 *   batches  have ended, also those of the thread that forked. Of objects that it has events of,
 *            the child uses those that it has a reference on.
 *
 * What other threads were about to free or call is lost, and so is the memory that they had in
 * hand. What is made after the fork works as anywhere. The parent notices nothing.
 *
 * Nothing has to be called for that, whatever makes the process: fork, _Fork, clone(2) without
 * CLONE_VM, any of them in a signal handler. (Programs that use <pollux/posix.h> call pollux_fork.)
 * If it is made in a read section, in an operation of a file or host, or in a handler that has
 * interrupted a call of the library, the child calls nothing of the library, but may execute a
 * program.
 */
#ifndef POLLUX_FORK_H
#define POLLUX_FORK_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Deprecated: they do nothing, but where the kernel cannot wipe memory in a child
 * (MADV_WIPEONFORK: before Linux 4.14, with pages that are not of 4 KiB, in gVisor, in user-mode
 * qemu before 8.0). There libc's fork does it (pthread_atfork), and after another call the child
 * calls the third before anything else. A thread that is in the middle of a fork when another makes
 * the first thing is not heard of there: its child uses nothing of the library.
 */
void pollux_before_fork(void);
void pollux_after_fork_parent(void);
void pollux_after_fork_child(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
