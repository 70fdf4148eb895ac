/* SPDX-License-Identifier: MIT */
/*
 * eventfd: a counter that can be waited for.
 *
 * The count is the payload of the file's word, so a write is one addition to the
 * word, which tells at the same time whether anybody has to be told. A count that
 * does not fit (2^28 and more) moves to `big` for the rest of the object's life;
 * SLOW in the word says so. An addition that was under way while SLOW appeared has
 * landed in a payload that nobody reads any more: its author sees SLOW in the old
 * word and adds to `big` instead.
 *
 *   word    atomic; EPOCH, QUEUED, QUIET are the engine's, payload and SLOW ours
 *   mode    1: a semaphore
 *   big     atomic, meaningful from big_ready on
 */
#include "epoll/engine.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <pollux/eventfd.h>

#include "base/inside.h"

struct pollux_efd {
	struct pollux_file file;
	/* 1: the whole count is in `big`; `word` has SLOW. */
	uint32_t big_ready;
	uint64_t big;
	struct plx_spin_state spin;
};

_Static_assert(sizeof(struct pollux_efd) <= PLX_SLAB_OBJECT, "an eventfd has its own lines");

static inline struct pollux_efd *file_efd(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_efd, file);
}

/*
 * Below SAFE a payload has room for a small addition by every thread there can be, of which the
 * kernel allows 2^22.
 */
#define EFD_SAFE (1ull << 28)
#define EFD_SMALL (1ull << 6)
_Static_assert(EFD_SAFE + EFD_SMALL * (1ull << 22) <= PLX_SLOW, "they do not meet SLOW");

#define EFD_MAX (UINT64_MAX - 1)
#define MEDIUM_ADD (1ull << 27)

static uint32_t efd_poll(struct pollux_file *f, uint32_t wanted)
{
	struct pollux_efd *e = file_efd(f);
	uint64_t w = plx_load_acq(&f->word);
	uint64_t count;
	uint32_t mask = 0;

	(void)wanted;
	if (plx_likely(!(w & PLX_SLOW)))
		return (w & PLX_PAYLOAD ? EPOLLIN : 0) | EPOLLOUT;
	PLX_DELAY(efd_look);
	count = plx_load_acq(&e->big_ready) ? plx_load_acq(&e->big) : w & PLX_PAYLOAD;
	if (count > 0)
		mask |= EPOLLIN;
	if (count == UINT64_MAX)
		mask |= EPOLLERR;
	if (count < EFD_MAX)
		mask |= EPOLLOUT;
	return mask;
}

static void efd_free(struct pollux_file *f)
{
	plx_slab_free(file_efd(f));
}

static const struct pollux_file_ops efd_ops = {
	.size = sizeof(efd_ops),
	.poll = efd_poll,
	.free = efd_free,
};

/*
 * Moves the count to `big`. Signals are kept away meanwhile, so that a handler of
 * this thread cannot meet the half-way state; others wait for the few instructions
 * that it lasts.
 */
static void efd_slow_down(struct pollux_efd *e)
{
	struct plx_masked masked;
	uint64_t w;

	if (plx_load_acq(&e->big_ready))
		return;
	plx_signals_block(&masked);
	w = plx_or(&e->file.word, PLX_SLOW);
	if (!(w & PLX_SLOW)) {
		plx_store(&e->big, w & PLX_PAYLOAD);
		plx_file_bump(&e->file);
		plx_store_rel(&e->big_ready, 1);
	}
	plx_signals_unblock(&masked);
	for (int tries = 0; !plx_load_acq(&e->big_ready); tries++)
		plx_await_step(tries);
}

int pollux_efd_new(struct pollux_efd **out, uint64_t initial, int flags)
{
	struct pollux_efd *e;

	if (flags & ~POLLUX_EFD_SEMAPHORE)
		return -EINVAL;
	plx_rcu_begin();
	plx_retire_throttle();
	e = plx_slab_alloc();
	if (!e)
		return -ENOMEM;
	pollux_file_init(&e->file, &efd_ops);
	e->file.kind = PLX_KIND_EVENTFD;
	e->file.mode = flags & POLLUX_EFD_SEMAPHORE;
	if (initial < EFD_SAFE) {
		e->file.word = initial;
	} else {
		e->file.word = PLX_SLOW;
		e->big = initial;
		e->big_ready = 1;
	}
	*out = e;
	return 0;
}

struct pollux_file *pollux_efd_file(struct pollux_efd *e)
{
	return &e->file;
}

struct pollux_efd *pollux_efd_of(struct pollux_file *f)
{
	return f->ops == &efd_ops ? file_efd(f) : NULL;
}

uint64_t pollux_efd_count(struct pollux_efd *e)
{
	uint64_t w = plx_load_acq(&e->file.word);

	if (w & PLX_SLOW)
		return plx_load_acq(&e->big_ready) ? plx_load_acq(&e->big) : w & PLX_PAYLOAD;
	return w & PLX_PAYLOAD;
}

/* Every successful read tells with OUT, every successful write with IN (EFD-13). */
static void efd_tell_readers_left(struct pollux_efd *e)
{
	plx_mb_after_rmw();
	if (plx_load_acq(&e->file.watches))
		plx_file_wake_rmw(&e->file, EPOLLOUT);
}

static int efd_read_slow(struct pollux_efd *e, uint64_t *value)
{
	uint64_t count;

	efd_slow_down(e);
	count = plx_load_acq(&e->big);
	do {
		if (!count)
			return -EAGAIN;
		*value = e->file.mode ? 1 : count;
	} while (!plx_cas(&e->big, &count, count - *value));
	efd_tell_readers_left(e);
	return 0;
}

static int efd_try_read(struct pollux_efd *e, uint64_t *value)
{
	uint64_t w = plx_load_acq(&e->file.word);

	do {
		if (plx_unlikely(w & PLX_SLOW))
			return efd_read_slow(e, value);
		if (!(w & PLX_PAYLOAD))
			return -EAGAIN;
		*value = e->file.mode ? 1 : w & PLX_PAYLOAD;
	} while (!plx_cas(&e->file.word, &w, w - *value));
	*value += PLX_INJECTED(wrong_count);
	if (!(w & PLX_QUIET))
		efd_tell_readers_left(e);
	return 0;
}

static int efd_write_slow(struct pollux_efd *e, uint64_t value)
{
	uint64_t count;

	efd_slow_down(e);
	count = plx_load_acq(&e->big);
	do {
		if (count > EFD_MAX || EFD_MAX - count < value)
			return -EAGAIN;
	} while (!plx_cas(&e->big, &count, count + value));
	pollux_file_wake(&e->file, EPOLLIN);
	return 0;
}

static int efd_write_medium(struct pollux_efd *e, uint64_t value)
{
	uint64_t w = plx_load_acq(&e->file.word);

	do {
		if ((w & PLX_SLOW) || (w & PLX_PAYLOAD) + value >= EFD_SAFE)
			return efd_write_slow(e, value);
	} while (!plx_cas(&e->file.word, &w, w + value));
	pollux_file_wake(&e->file, EPOLLIN);
	return 0;
}

static int efd_try_write(struct pollux_efd *e, uint64_t value)
{
	uint64_t w = plx_load(&e->file.word);

	/* The write that finds everybody told is one addition. */
	if ((w & (PLX_QUIET | PLX_SLOW | (PLX_PAYLOAD & ~(EFD_SAFE - 1)))) == PLX_QUIET &&
	    value < EFD_SMALL) {
		PLX_DELAY(quiet_before_add);
		w = plx_xadd(&e->file.word, value);
		if (plx_likely((w & (PLX_QUIET | PLX_SLOW)) == PLX_QUIET))
			return 0;
		if (!(w & PLX_SLOW)) {
			plx_file_wake_rmw(&e->file, EPOLLIN);
			return 0;
		}
	}
	if (plx_unlikely((w & PLX_SLOW) || (w & PLX_PAYLOAD) >= EFD_SAFE || value >= EFD_SMALL))
		return value < MEDIUM_ADD ? efd_write_medium(e, value) : efd_write_slow(e, value);
	w = plx_file_add(&e->file, value);
	return plx_likely(!(w & PLX_SLOW)) ? 0 : efd_write_slow(e, value);
}

/*
 * A blocked reader or writer stands at the end of the file's list and is called
 * with everybody (EFD-16); who comes first gets the count, the others sleep again.
 * The sleep is libc's semaphore: a cancellation point that goes on after a handler with SA_RESTART,
 * as a read does. The sleeper is retired, not freed: a waker may still stand on it when the thread
 * is up already.
 */
struct efd_sleeper {
	struct plx_watch w;
	struct pollux_efd *e;
	sem_t rung;
};

_Static_assert(sizeof(struct efd_sleeper) <= PLX_SLAB_OBJECT, "a sleeper fits");

static void sleeper_wake(struct plx_watch *w, uint32_t key)
{
	struct efd_sleeper *s = plx_container_of(w, struct efd_sleeper, w);

	if (key && !(key & w->events))
		return;
	plx_spin_note_waker(&s->e->spin);
	sem_post(&s->rung);
}

static void sleeper_free(void *p)
{
	struct efd_sleeper *s = p;

	sem_destroy(&s->rung);
	plx_slab_free(s);
}

static void sleeper_done(void *p)
{
	struct efd_sleeper *s = p;
	struct pollux_efd *e = s->e;

	plx_watch_unlink(&e->file, &s->w);
	plx_retire(s, sleeper_free);
	pollux_file_put(&e->file);
	plx_retire_flush_if_full();
}

static bool efd_readable(void *arg)
{
	return efd_poll(arg, EPOLLIN) & EPOLLIN;
}

/* After a read, with a reference on e: what there is to be done for others. */
static inline void efd_has_read(struct pollux_efd *e, int r, uint32_t events, uint64_t value)
{
	if (r || !(events & EPOLLIN))
		return;
	plx_flood_sum(value, &e->file.word);
	plx_tsan_after(e);
}

/* s is linked. */
static int sleeper_waits(struct efd_sleeper *s, int (*try)(struct pollux_efd *, uint64_t *),
			 uint64_t *value)
{
	uint32_t since;
	struct pollux_efd *e = s->e;
	int r, ended = 0;

	plx_mb();
	for (;;) {
		r = try(e, value);
		plx_spin_brought(&plx_read_yields, r == 0);
		if (r != -EAGAIN)
			return r;
		/* What was there before a signal goes before it. */
		if (ended)
			return -EINTR;
		since = plx_spin_sleeps(&e->spin);
		ended = sem_wait(&s->rung);
		plx_spin_slept(&e->spin, since);
	}
}

static int efd_sleep(struct pollux_efd *e, uint32_t events,
		     int (*try)(struct pollux_efd *, uint64_t *), uint64_t *value)
{
	struct efd_sleeper *s;
	int r;

	/* The caller's may go while it waits. */
	pollux_file_get(&e->file);
	if (events & EPOLLIN && plx_spin(&plx_read_yields, &e->spin, efd_readable, &e->file)) {
		r = try(e, value);
		plx_spin_brought(&plx_read_yields, r == 0);
		if (r != -EAGAIN) {
			efd_has_read(e, r, events, *value);
			pollux_file_put(&e->file);
			return r;
		}
	}
	s = plx_slab_alloc();
	if (!s) {
		pollux_file_put(&e->file);
		return -ENOMEM;
	}
	s->w.call = sleeper_wake;
	s->w.events = events;
	s->w.place = PLX_WATCH_TAIL;
	s->e = e;
	sem_init(&s->rung, 0, 0);
	(void)plx_file_own(&e->file);
	plx_watch_link(&e->file, &s->w);
	pthread_cleanup_push(sleeper_done, s);
	r = sleeper_waits(s, try, value);
	efd_has_read(e, r, events, *value);
	pthread_cleanup_pop(1);
	return r;
}

static __attribute__((noinline)) int efd_blocking(struct pollux_efd *e, uint32_t events,
						  int (*try)(struct pollux_efd *, uint64_t *),
						  uint64_t *value)
{
	int r = try(e, value);

	if (r == -EAGAIN)
		return efd_sleep(e, events, try, value);
	efd_has_read(e, r, events, *value);
	return r;
}

static int try_write_at(struct pollux_efd *e, uint64_t *value)
{
	return efd_try_write(e, *value);
}

int pollux_efd_read(struct pollux_efd *e, uint64_t *value, int block)
{
	int r;

	if (plx_unlikely(block))
		return efd_blocking(e, EPOLLIN | EPOLLHUP | EPOLLERR, efd_try_read, value);
	r = efd_try_read(e, value);
	efd_has_read(e, r, EPOLLIN, *value);
	return r;
}

int pollux_efd_write(struct pollux_efd *e, uint64_t value, int block)
{
	if (plx_unlikely(value == UINT64_MAX))
		return -EINVAL;
	plx_tsan_before(e);
	if (plx_unlikely(block))
		return efd_blocking(e, EPOLLOUT | EPOLLHUP | EPOLLERR, try_write_at, &value);
	return efd_try_write(e, value);
}

void pollux_efd_signal(struct pollux_efd *e)
{
	uint64_t count;

	if (!(plx_load(&e->file.word) & PLX_SLOW) && efd_try_write(e, 1) == 0)
		return;
	efd_slow_down(e);
	count = plx_load_acq(&e->big);
	while (count != UINT64_MAX && !plx_cas(&e->big, &count, count + 1))
		;
	pollux_file_wake(&e->file, EPOLLIN);
}
