/* SPDX-License-Identifier: MIT */
/*
 * pollux/file.h - an object that can become ready
 *
 * A pollux_file is what the kernel calls an open file description, as far as
 * waiting is concerned: it can say what it is ready for, it can tell its
 * watchers that this changed, and it is counted. Embed one in your own object:
 *
 *	struct my_socket {
 *		struct pollux_file file;
 *		...
 *	};
 *
 *	static uint32_t my_poll(struct pollux_file *f, uint32_t wanted)
 *	{
 *		struct my_socket *s = pollux_container_of(f, struct my_socket, file);
 *		return queue_empty(s) ? 0 : EPOLLIN | EPOLLRDNORM;
 *	}
 *
 *	static const struct pollux_file_ops my_ops = {
 *		.size = sizeof(my_ops), .poll = my_poll, .free = my_free
 *	};
 *
 *	pollux_file_init(&s->file, &my_ops);
 *	...
 *	enqueue(s, packet);
 *	pollux_file_wake(&s->file, EPOLLIN | EPOLLRDNORM);
 *
 * Masks are those of <sys/epoll.h>. No descriptor is involved anywhere here.
 */
#ifndef POLLUX_FILE_H
#define POLLUX_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * 64 bytes, aligned as a uint64_t; what is in them belongs to the engine. Wakes are a little
 * faster for a file that begins at a multiple of 64. (The engine's own sources have the fields.)
 */
#ifndef POLLUX_FILE_DEFINED
struct pollux_file {
	uint64_t opaque[8];
};
#endif

/* The object of this type whose member is at p: of a file, the object that it is embedded in. */
#define pollux_container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/*
 * Operations of a kind of file. What is not given is 0.
 *
 * size     sizeof(struct pollux_file_ops): a later version of the library tells by it which
 *          operations there are. flags: none are defined, 0.
 * poll     returns the mask of what is true now (EPOLLIN, EPOLLOUT, ...). Only what is in `wanted`,
 *          EPOLLERR and EPOLLHUP is looked at, so it need not find out about the rest. Called with
 *          locks of the engine held, from any thread, at any time between pollux_file_init and
 *          release: it must not sleep, and must not call pollux_ep_ctl, a wait, or what may drop a
 *          last reference. It may take a lock of yours and may call pollux_file_wake. Whoever holds
 *          a lock that a poll takes must not call pollux_ep_ctl, a wait, or what may drop a last
 *          reference either: these take the locks in the other order. Required.
 * interest is called when the union of the events that all watchers of the file want has changed,
 *          with that union: registrations whose one-shot event has been delivered want nothing, and
 *          0 means that nobody watches. Calls for one file come one at a time and in order, from
 *          whoever has changed it; not for the end of the file. The rules of poll hold, and it must
 *          not wait for another call of it. Optional.
 * release  is called once, in the thread that dropped the last reference, after the file has left
 *          every epoll (rule EP-KEY-06). No poll runs then or later; a wake may still look at the
 *          file's memory. If it drops the last reference of another file, that one's release is
 *          called within: a chain of these takes stack, and one of free operations does not.
 *          Optional.
 * free     is called once, later, when no other thread can still be looking at the file, and none
 *          is at an event of it (POLLUX_EP_BATCHES); the memory may be reused from here on. It runs
 *          in any thread that drops the last reference of a file or calls pollux_call, within that
 *          call, or only where the program says (pollux_reclaim_mode). So it must not take a lock
 *          that is held around one of these. Optional: leave it out for objects that are never
 *          freed.
 * due      returns when poll may find something new without a wake: a time of the clock of those
 *          who wait, in nanoseconds (CLOCK_MONOTONIC by default), or a negative number if it never
 *          will. Waits of epolls that have the file, and polls of it, sleep up to then, and call
 *          poll; at a time that has passed they do so at once. Called before poll, and after one
 *          that finds something, by its rules; so what poll finds has to be true from that time on.
 *          When the time becomes earlier, wake the file, with key 0; later it may become
 *          without. Optional.
 * bytes    how much memory waits until free is called, for pollux_reclaim_mode. 0: of the file
 *          alone.
 */
struct pollux_file_ops {
	uint32_t size;
	uint32_t flags;
	uint32_t (*poll)(struct pollux_file *f, uint32_t wanted);
	void (*interest)(struct pollux_file *f, uint32_t wanted);
	void (*release)(struct pollux_file *f);
	void (*free)(struct pollux_file *f);
	int64_t (*due)(struct pollux_file *f);
	size_t bytes;
};

/*
 * Prepares f with one reference, which belongs to the caller. ops is not copied: it must stay.
 */
void pollux_file_init(struct pollux_file *f, const struct pollux_file_ops *ops);

/* Takes one more reference. The caller already holds one. */
void pollux_file_get(struct pollux_file *f);

/*
 * Takes a reference unless the last one has gone: 1 on success, 0 if the file
 * is being closed. The memory of f must be known to be valid.
 */
int pollux_file_tryget(struct pollux_file *f);

/*
 * Drops a reference. The last one removes the file from every epoll before it
 * returns (no event is made of that, nobody is woken: EP-KEY-06, EP-KEY-10).
 * It may call free operations that are due, of any file, and wait if
 * pollux_reclaim_mode has set a bound. Not to be called from a signal handler if it may be the
 * last.
 */
void pollux_file_put(struct pollux_file *f);

/*
 * Tells the watchers of f that its state has changed, after the change has been
 * made. It is a hint: who collects the event asks poll, so a wake too many is no event, and a wake
 * for each change needs no flag. key names what became true (EPOLLIN, EPOLLOUT, ...) and is
 * compared with the interest of each watcher; 0 passes every filter (EP-RDY-02). Watchers are
 * called newest first; exclusive ones last, oldest first, until one of them has woken a sleeper
 * (EP-EXC-02..05).
 *
 * Takes no lock, allocates nothing, cannot fail, leaves errno as it is; makes a system call only if
 * somebody sleeps. (But for the first wake of a thread: it makes a few, and of 64 threads that the
 * library knows one has memory mapped, see memory.h.) Safe from any thread, with any lock held, and
 * from signal handlers. The caller makes sure that f stays valid for the call (by a reference,
 * usually).
 */
void pollux_file_wake(struct pollux_file *f, uint32_t key);

/* The same without the limit for exclusive watchers, for a last close (EP-EXC-08). */
void pollux_file_wake_all(struct pollux_file *f, uint32_t key);

/*
 * What of `wanted`, EPOLLERR and EPOLLHUP the file says is true now. Any thread that holds a
 * reference; where its poll operation may be called.
 */
uint32_t pollux_file_poll(struct pollux_file *f, uint32_t wanted);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
