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
 *	static uint32_t my_poll(struct pollux_file *f)
 *	{
 *		struct my_socket *s = pollux_container_of(f, struct my_socket, file);
 *		return queue_empty(s) ? 0 : EPOLLIN | EPOLLRDNORM;
 *	}
 *
 *	static const struct pollux_file_ops my_ops = { .poll = my_poll, .free = my_free };
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
 * Operations of a kind of file.
 *
 * poll    returns the mask of what is true now (EPOLLIN, EPOLLOUT, ...). Called
 *         with locks of the engine held: it must not sleep, must not call back
 *         into an epoll, and may be called from any thread at any time between
 *         pollux_file_init and release. Required.
 * release is called once, in the thread that dropped the last reference, after
 *         the file has left every epoll (rule EP-KEY-06). Optional.
 * free    is called once, later, when no other thread can still be looking at
 *         the object; the memory may be reused from here on. Optional: leave it
 *         out for objects that are never freed.
 */
struct pollux_file_ops {
	uint32_t (*poll)(struct pollux_file *f);
	void (*release)(struct pollux_file *f);
	void (*free)(struct pollux_file *f);
};

/*
 * Prepares f with one reference, which belongs to the caller.
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
 * Not to be called from a signal handler if it may be the last.
 */
void pollux_file_put(struct pollux_file *f);

/*
 * Tells the watchers of f that its state has changed, after the change has been
 * made. key names what became true (EPOLLIN, EPOLLOUT, ...) and is compared with
 * the interest of each watcher; 0 passes every filter (EP-RDY-02). Watchers are
 * called newest first; exclusive ones last, oldest first, until one of them has
 * woken a sleeper (EP-EXC-02..05).
 *
 * Takes no lock, allocates nothing, cannot fail; makes a system call only if
 * somebody sleeps. Safe from any thread and from signal handlers. The caller
 * makes sure that f stays valid for the call (by a reference, usually).
 */
void pollux_file_wake(struct pollux_file *f, uint32_t key);

/* The same without the limit for exclusive watchers, for a last close (EP-EXC-08). */
void pollux_file_wake_all(struct pollux_file *f, uint32_t key);

/* What the file says it is ready for now. */
uint32_t pollux_file_poll(struct pollux_file *f);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
