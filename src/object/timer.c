/* SPDX-License-Identifier: MIT */
/*
 * A file whose events come by time.
 *
 *   next      written with the lock, read without by poll: the first expiration that has not been
 *             read, PLX_NEVER if none will come
 *   interval  the lock
 *
 * How many expirations there have been follows from the clock; nothing is counted as they come.
 *
 * A wake. Watchers have been told a time by timer_due: the first expiration that was to come. While
 * that is still to come it is next, as a read changes next only after it. So who sets a timer whose
 * next is to come to a later time need not wake: watchers look once in vain (epoll/due.c).
 */
#include "epoll/engine.h"

#include <pollux/timer.h>

struct pollux_timer {
	struct pollux_file file;
	plx_lock_t lock;
	int64_t next;
	int64_t interval;
	int64_t (*now)(void *arg);
	void *arg;
};

_Static_assert(sizeof(struct pollux_timer) <= PLX_SLAB_OBJECT, "a timer fits");

static struct pollux_timer *file_timer(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_timer, file);
}

static uint32_t timer_poll(struct pollux_file *f, uint32_t wanted)
{
	struct pollux_timer *t = file_timer(f);
	int64_t next = plx_load_acq(&t->next);

	if (!(wanted & EPOLLIN) || next == PLX_NEVER || t->now(t->arg) < next)
		return 0;
	return EPOLLIN;
}

/* Locked. How many there have been, and when the next one comes. */
static uint64_t expired(struct pollux_timer *t, int64_t *after)
{
	int64_t now, past;
	uint64_t n;

	*after = t->next;
	if (t->next == PLX_NEVER)
		return 0;
	now = t->now(t->arg);
	if (now < t->next)
		return 0;
	*after = PLX_NEVER;
	if (!t->interval)
		return 1;
	past = now - t->next;
	n = past / t->interval + 1;
	/* The sum is above now by an interval at the most. */
	if (__builtin_add_overflow(now - past % t->interval, t->interval, after))
		*after = PLX_NEVER;
	return n;
}

static int64_t timer_due(struct pollux_file *f)
{
	struct pollux_timer *t = file_timer(f);
	int64_t after;

	plx_lock(&t->lock, PLX_RANK_OBJECT);
	(void)expired(t, &after);
	plx_unlock(&t->lock, PLX_RANK_OBJECT);
	return after == PLX_NEVER ? -1 : after;
}

static void timer_free(struct pollux_file *f)
{
	plx_slab_free(file_timer(f));
}

static const struct pollux_file_ops timer_file_ops = {
	.size = sizeof(timer_file_ops),
	.poll = timer_poll,
	.free = timer_free,
	.due = timer_due,
};

int pollux_timer_new(struct pollux_timer **out, const struct pollux_host *clock)
{
	struct pollux_timer *t;
	int r = clock ? plx_host_check(clock) : 0;

	if (r)
		return r;
	if (!clock)
		clock = &plx_futex_host;
	plx_rcu_begin();
	plx_retire_throttle();
	t = plx_slab_alloc();
	if (!t)
		return -ENOMEM;
	pollux_file_init(&t->file, &timer_file_ops);
	t->next = PLX_NEVER;
	t->now = clock->now;
	t->arg = clock->arg;
	*out = t;
	return 0;
}

struct pollux_file *pollux_timer_file(struct pollux_timer *t)
{
	return &t->file;
}

int pollux_timer_set(struct pollux_timer *t, int64_t deadline, int64_t interval)
{
	int64_t next = deadline < 0 ? PLX_NEVER : deadline, before;
	bool later;

	if (interval < 0)
		return -EINVAL;
	/* Who polls may see it before the wake. */
	plx_tsan_before(&t->file);
	plx_lock(&t->lock, PLX_RANK_OBJECT);
	before = t->next;
	later = next >= before && (before == PLX_NEVER || t->now(t->arg) < before);
	t->interval = interval;
	plx_store_rel(&t->next, next);
	plx_unlock(&t->lock, PLX_RANK_OBJECT);
	PLX_DELAY(timer_before_wake);
	if (!later)
		pollux_file_wake(&t->file, EPOLLIN);
	return 0;
}

int pollux_timer_read(struct pollux_timer *t, uint64_t *expirations)
{
	int64_t after;
	uint64_t n;

	plx_lock(&t->lock, PLX_RANK_OBJECT);
	n = expired(t, &after);
	plx_store_rel(&t->next, after);
	plx_unlock(&t->lock, PLX_RANK_OBJECT);
	if (!n)
		return -EAGAIN;
	plx_tsan_after(&t->file);
	*expirations = n;
	return 0;
}
