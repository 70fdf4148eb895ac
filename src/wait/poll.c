/* SPDX-License-Identifier: MIT */
/*
 * poll over files and descriptors.
 *
 * A call that finds something, or may not sleep, only asks: the files by their poll operations, the
 * kernel by a ppoll that does not sleep. A call that sleeps links a watch (watch.c) to each file,
 * asks the files once more, and sleeps until a wake calls one of the watches: on a futex, in the
 * host's park, or, if it has descriptors or a mask, in the kernel's ppoll, with an eventfd as its
 * doorbell beside the program's descriptors. That one is made for the sleep and closed after it:
 * one that was kept would be shared with the children of forks, and be closed by programs that
 * close all.
 *
 *   call.bell  atomic; who rings, and who has (base/ring.h): the one who sleeps has not asked the
 *              files since
 *   all else   constant while a watch is linked
 *
 * Argument. Nothing is lost: a watch is linked, then a full barrier, then the file is asked; who
 * makes it ready has a full barrier and looks at the list (file.c). So either the file says so, or
 * the watch is called. Who is told takes the doorbell's count, collects the rings, and asks then.
 *
 * The end. A doorbell and a host must not be touched after it: the number may mean another file,
 * and the host may be gone. So who ends waits until no watch is being called, which takes no lock
 * and does not sleep. A futex is in memory that RCU keeps for wakes that stand on a watch: nobody
 * is waited for. The model is tests/model/files_poll.pml.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "wait/side.h"
#include "wait/watch.h"

#include <pollux/poll.h>

#include "base/sys.h"

/* So many descriptors are asked for without memory. */
#define SMALL 32

struct poll_call;

struct poll_watch {
	struct plx_callback cb;
	struct poll_call *call;
};

struct poll_call {
	uint64_t bell;
	int doorbell;
	struct pollux_host host;
	size_t linked;
	/* Room for the descriptors and the doorbell, behind the watches. */
	struct pollfd *fd;
	struct poll_watch watch[];
};

/* What the caller has given. */
struct poll_args {
	struct pollux_pollfile *v;
	size_t n;
	/* Entries that are descriptors. */
	size_t fds;
	int64_t deadline;
	const sigset_t *mask;
	const struct pollux_host *host;
};

/* --- asking -------------------------------------------------------------------------- */

/* How many of the files are ready. */
static int ask_files(const struct poll_args *a)
{
	int ready = 0;

	for (size_t i = 0; i < a->n; i++) {
		struct pollux_pollfile *e = &a->v[i];

		if (!e->file)
			continue;
		e->revents = pollux_file_poll(e->file, e->events);
		if (!e->revents)
			continue;
		plx_tsan_after(e->file);
		ready++;
	}
	return ready;
}

static void put_fds(const struct poll_args *a, struct pollfd *fd)
{
	for (size_t i = 0; i < a->n; i++)
		if (!a->v[i].file && a->v[i].fd >= 0)
			*fd++ = (struct pollfd){.fd = a->v[i].fd, .events = (short)a->v[i].events};
}

static int take_fds(const struct poll_args *a, const struct pollfd *fd)
{
	int ready = 0;

	for (size_t i = 0; i < a->n; i++) {
		if (a->v[i].file || a->v[i].fd < 0)
			continue;
		a->v[i].revents = (unsigned short)fd->revents;
		ready += fd++->revents != 0;
	}
	return ready;
}

/* How many of the descriptors are ready, or a negative errno. */
static int ask_fds(const struct poll_args *a)
{
	struct pollfd small[SMALL], *fd = small;
	long r;

	if (!a->fds)
		return 0;
	if (a->fds > SMALL) {
		fd = plx_mem_get(a->fds * sizeof(*fd));
		if (!fd)
			return -ENOMEM;
	}
	put_fds(a, fd);
	r = plx_kernel_poll(fd, a->fds, 0, NULL);
	if (r >= 0)
		r = take_fds(a, fd);
	if (fd != small)
		plx_mem_put(fd);
	return (int)r;
}

/* With so many files that are ready. */
static int with_fds(const struct poll_args *a, int files)
{
	int fds = ask_fds(a);

	return fds < 0 ? fds : files + fds;
}

/* --- sleeping ------------------------------------------------------------------------ */

static void ring(struct poll_call *c)
{
	uint64_t one = 1;

	if (c->host.unpark_one)
		c->host.unpark_one(c->host.arg, plx_ring_word(&c->bell));
	else if (c->doorbell >= 0)
		plx_sys3(SYS_write, c->doorbell, &one, sizeof(one));
	else
		plx_sys3(SYS_futex, plx_ring_word(&c->bell), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

static void watch_called(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	struct poll_call *c = plx_container_of(w, struct poll_watch, cb)->call;
	uint64_t bell = plx_load(&c->bell);

	(void)f;
	(void)key;
	PLX_DELAY(files_before_begun);
	do {
		if (plx_rings_complete(bell))
			return;
	} while (!plx_ring_begin(&c->bell, &bell));
	PLX_DELAY(files_before_ring);
	ring(c);
	PLX_DELAY(files_after_ring);
	plx_ring_end(&c->bell, bell);
}

static int call_begin(struct poll_call **out, const struct poll_args *a)
{
	size_t files = a->n - a->fds;
	struct poll_call *c;
	int r = 0;

	if (files > (PTRDIFF_MAX - sizeof(*c)) / sizeof(*c->watch))
		return -EINVAL;
	plx_rcu_begin();
	plx_retire_throttle();
	c = plx_zalloc(sizeof(*c) + files * sizeof(*c->watch) + (a->fds + 1) * sizeof(*c->fd));
	if (!c)
		return -ENOMEM;
	c->fd = (struct pollfd *)&c->watch[files];
	c->doorbell = -1;
	if (a->host)
		c->host = *a->host;
	if (a->fds || a->mask) {
		r = (int)plx_sys2(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (r < 0) {
			plx_free(c);
			return r;
		}
		c->doorbell = r;
	}
	*out = c;
	return 0;
}

static void call_end(struct poll_call *c)
{
	for (size_t i = 0; i < c->linked; i++)
		plx_callback_unlink(&c->watch[i].cb);
	PLX_DELAY(files_before_end);
	for (size_t i = 0; i < c->linked && (c->doorbell >= 0 || c->host.unpark_one); i++)
		for (int tries = 0; plx_callback_runs(&c->watch[i].cb); tries++)
			plx_await_step(tries);
	if (c->doorbell >= 0)
		plx_sys1(SYS_close, c->doorbell);
	for (size_t i = 0; i < c->linked; i++)
		pollux_file_put(c->watch[i].cb.file);
	plx_retire(c, plx_free);
	plx_retire_flush_if_full();
}

/* 0, -EINTR or -ETIMEDOUT. */
static int futex_sleep(struct poll_call *c, int64_t deadline)
{
	uint32_t *word = plx_ring_word(&c->bell), seen = plx_load_acq(word);
	int r = 0;

	while (!r && !(seen & PLX_RINGS)) {
		r = plx_futex_sleep(word, seen, deadline);
		seen = plx_load_acq(word);
	}
	return r;
}

/*
 * The descriptors and the doorbell, which is the last of fd: how many of the former are ready, or a
 * negative errno.
 */
static int kernel_sleep(struct poll_call *c, const struct poll_args *a, int64_t until)
{
	struct pollfd *fd = c->fd;
	uint64_t count;
	long r;

	put_fds(a, fd);
	fd[a->fds] = (struct pollfd){.fd = c->doorbell, .events = POLLIN};
	r = plx_kernel_poll(fd, a->fds + 1, until, a->mask);
	if (r < 0)
		return (int)r;
	if (fd[a->fds].revents)
		plx_sys3(SYS_read, c->doorbell, &count, sizeof(count));
	return take_fds(a, fd);
}

/* When the first thing happens that ends a sleep by time. */
static int64_t sleep_end(const struct poll_args *a)
{
	uint64_t end = a->deadline;

	for (size_t i = 0; i < a->n; i++) {
		struct pollux_file *f = a->v[i].file;

		if (f && plx_unlikely(f->ops->due != NULL)) {
			/* Negative ones are the latest. */
			uint64_t due = f->ops->due(f);

			end = due < end ? due : end;
		}
	}
	return end;
}

/* Linked. As the call. */
static int sleep_for_some(struct poll_call *c, const struct poll_args *a)
{
	int64_t (*now)(void *arg) = a->host ? a->host->now : plx_futex_host.now;
	void *arg = a->host ? a->host->arg : NULL;
	int files, fds = 0;
	int64_t until;

	for (;;) {
		/* Before they are asked: see epoll/due.c. */
		until = sleep_end(a);
		files = ask_files(a);
		if (fds > 0)
			return files + fds;
		if (files || (a->deadline >= 0 && now(arg) >= a->deadline))
			return with_fds(a, files);
		if (c->doorbell >= 0)
			fds = kernel_sleep(c, a, until);
		else if (c->host.park)
			fds = c->host.park(c->host.arg, plx_ring_word(&c->bell), until);
		else
			fds = futex_sleep(c, until);
		if (fds < 0 && fds != -ETIMEDOUT)
			return fds;
		/* Partner: watch_called. */
		(void)plx_rings_collect(&c->bell, false);
		plx_mb();
	}
}

static int linked_sleep(struct poll_call *c, const struct poll_args *a)
{
	int r = 0;

	for (size_t i = 0; !r && i < a->n; i++) {
		struct poll_watch *w = &c->watch[c->linked];

		if (!a->v[i].file)
			continue;
		w->call = c;
		r = plx_callback_link(&w->cb, a->v[i].file, a->v[i].events, watch_called);
		c->linked += !r;
	}
	plx_mb();
	return r ? r : sleep_for_some(c, a);
}

static bool passed(const struct poll_args *a)
{
	const struct pollux_host *h = a->host ? a->host : &plx_futex_host;

	return !a->deadline || (a->deadline > 0 && a->deadline <= h->now(h->arg));
}

/* A host may come back from park on another thread: see sleep_once in epoll/wait.c. */
static __attribute__((noinline)) int poll_slow(struct poll_args *a, int files)
{
	struct poll_call *c;
	int r;

	for (size_t i = 0; i < a->n; i++) {
		a->fds += !a->v[i].file && a->v[i].fd >= 0;
		if (!a->v[i].file)
			a->v[i].revents = 0;
		else if (plx_unlikely(plx_file_own(a->v[i].file)))
			return -EOWNERDEAD;
		else if (plx_unlikely(!plx_file_tells_all(a->v[i].file)))
			return -EOPNOTSUPP;
	}
	if (plx_unlikely(a->host)) {
		r = plx_host_check(a->host);
		if (r || a->fds || a->mask)
			return r ? r : -EOPNOTSUPP;
	}
	/* One more is needed for a sleep. */
	if (a->fds > INT_MAX / sizeof(struct pollfd) - 1)
		return -EINVAL;
	if (files || passed(a))
		return with_fds(a, files);
	r = call_begin(&c, a);
	if (r)
		return r;
	r = linked_sleep(c, a);
	call_end(c);
	return r;
}

int pollux_files_poll(struct pollux_pollfile *v, size_t n, int64_t deadline, const sigset_t *mask,
		      const struct pollux_host *host)
{
	struct poll_args a = {.v = v, .n = n, .deadline = deadline, .mask = mask, .host = host};

	return poll_slow(&a, ask_files(&a));
}
