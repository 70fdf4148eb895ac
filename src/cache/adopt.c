/* SPDX-License-Identifier: MIT */
/*
 * When an eventfd is cached, and when not any more. The protocol is told in eventfd.h.
 *
 * An object is hot when it is written to often, or when the eventfds of its epoll are, and it is
 * written to for the second time. The write that finds it so adopts it: instead of the kernel's
 * write it makes the kernel's read, and adds what that has found to its own value. If the epoll
 * that watches it is not ready for items, the write only says in the epoll that it is wanted
 * (plx_epoll_ready): a handler's write may have come upon a thread with locks. The next wait makes
 * the epoll ready, and a later write adopts.
 */
#include "cache/eventfd.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/inside.h"
#include "base/spin.h"
#include "base/sys.h"
#include "cache/cold.h"
#include "cache/epoll.h"
#include "cache/uaccess.h"

PLX_START_PAGE enum plx_adopts plx_adopts;
/* PLX_ADOPTS_RANDOM. */
static uint64_t chance;

/* Of all threads together: two at once may get the same. */
static bool by_chance(void)
{
	uint64_t x = plx_xadd(&chance, 0x9e3779b97f4a7c15ull);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (x >> 62) == 0;
}

/* A word, or "random:" and a number. */
PLX_START_CODE void plx_adopts_choose(const char *list)
{
	static const char random[] = "random:";

	for (; list && *list; list += strcspn(list, ","), list += *list == ',') {
		if (strcspn(list, ",") == 6 && memcmp(list, "always", 6) == 0) {
			plx_adopts = PLX_ADOPTS_ALWAYS;
		} else if (strcspn(list, ",") == 3 && memcmp(list, "hot", 3) == 0) {
			plx_adopts = PLX_ADOPTS_HOT;
		} else if (strncmp(list, random, sizeof(random) - 1) == 0) {
			plx_adopts = PLX_ADOPTS_RANDOM;
			chance = strtoull(list + sizeof(random) - 1, NULL, 10);
		}
	}
}

/* So many writes in so short a time make an object hot. */
#define HOT_WRITES 64u
PLX_START_PAGE int64_t plx_hot_ns = 100000000;
/* Who has come back from the cache so often does not become hot any more. */
#define RETURNS_MAX 12

bool plx_heat_grows(struct plx_heat *h, uint32_t writes, int64_t ns)
{
	uint32_t n = plx_load(&h->writes) + 1;
	uint32_t now, since;

	plx_store(&h->writes, n);
	if (plx_likely(n < writes && n > 1))
		return false;
	now = (uint32_t)(plx_now_ns() >> 20);
	since = plx_load(&h->since);
	if (n == 1 && since)
		return false;
	plx_store(&h->since, now);
	if (n == 1 || now - since > ns >> 20) {
		plx_store(&h->writes, n == 1);
		return false;
	}
	/* If it cannot be adopted yet, the next write tries again. */
	plx_store(&h->writes, n - 1);
	return true;
}

/* Whether an epoll that watches e is hot. */
static bool epoll_hot(struct plx_eventfd *e)
{
	struct plx_watch *w;
	bool hot = false;

	plx_rcu_read_lock();
	w = plx_load_acq(&e->file.watches);
	if (w) {
		struct plx_epoll *pe = plx_watch_epoll(w);

		hot = plx_load(&pe->hot);
		if (!hot && plx_heat_grows(&pe->heat, HOT_WRITES, plx_hot_ns)) {
			hot = true;
			plx_store(&pe->hot, 1);
		}
	}
	plx_rcu_read_unlock();
	return hot;
}

bool plx_eventfd_hot(struct plx_eventfd *e)
{
	uint32_t returns = plx_load(&e->returns);

	if (plx_unlikely(plx_adopts == PLX_ADOPTS_RANDOM))
		return by_chance();
	/* It has not come back yet. */
	if (plx_adopts == PLX_ADOPTS_ALWAYS && !returns)
		return true;
	if (plx_unlikely(returns >= RETURNS_MAX))
		return false;
	return plx_heat_grows(&e->heat, HOT_WRITES << returns, plx_hot_ns << returns) ||
	       (epoll_hot(e) && !returns && plx_load(&e->heat.writes) > 1);
}

void plx_eventfd_heat(struct plx_eventfd *e)
{
	plx_store(&e->heat.writes, HOT_WRITES - 1);
	plx_store(&e->heat.since, (uint32_t)(plx_now_ns() >> 20));
}

/* Whether e, which is to be or has been adopted, may be CACHED: waits look at its item. */
static bool waits_see(struct plx_eventfd *e)
{
	struct plx_watch *w;
	bool see;

	plx_rcu_read_lock();
	w = plx_load_acq(&e->file.watches);
	see = !w || (!plx_load_acq(&w->next) && plx_epoll_ready(plx_watch_epoll(w)));
	plx_rcu_read_unlock();
	return see;
}

uint32_t plx_adoptions_begun, plx_adoptions_over;

/* COLD, and nobody sleeps in a poll of it: BUSY, by this call. */
static bool adoption_begins(struct plx_eventfd *e)
{
	uint64_t w = plx_load_acq(&e->file.word);

	do {
		if (!plx_eventfd_cold_word(w) || (w & PLX_EVENTFD_POLLS) || plx_load(&e->blocks))
			return false;
	} while (!plx_eventfd_busy_begin(e, &w));
	return true;
}

/*
 * Whether K has room for one more. If not, the write is refused; and what has been read from a full
 * one would have to be given back, which wakes who waits for room, and makes an edge.
 */
static bool has_room(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return plx_sys_poll(&p, 1) == 1 && p.revents == POLLOUT;
}

/* The kernel gets what has been read from it, and the write, and the object is COLD again. */
static long adoption_fails(struct plx_eventfd *e, int fd, uint64_t k, uint64_t value)
{
	bool fits = k <= PLX_EVENTFD_MAX - value;
	uint64_t sum = fits ? k + value : k;

	/* Not again. */
	plx_store(&e->returns, RETURNS_MAX);
	plx_sys3(SYS_write, fd, &sum, sizeof(sum));
	plx_eventfd_busy_end(e, PLX_EVENTFD_U, 0);
	return fits ? (long)sizeof(value) : -EAGAIN;
}

/* A writer that has been preempted gets the CPU meanwhile; one that is stopped does not. */
#define DRAIN_STEPS 80

/* BUSY: whether nobody is in a write to K any more. It is waited for, but not for long. */
static bool drained(struct plx_eventfd *e)
{
	/* Partner: write_cold, which counts itself in begun and then looks whether it is COLD. */
	plx_mb();
	for (int tries = 0; tries < DRAIN_STEPS; tries++) {
		uint32_t over = plx_load_acq(&e->over);

		if (plx_load_acq(&e->begun) == over &&
		    !(plx_load_acq(&e->file.word) & PLX_EVENTFD_WRITES))
			return true;
		plx_await_step(tries);
	}
	return false;
}

/*
 * The object is BUSY. The value is in U before K is empty, so a look finds the object ready all the
 * time.
 */
static long adopt(struct plx_eventfd *e, int fd, uint64_t value)
{
	uint64_t k = 0;

	/* waits_see is a partner of ctl_both, and of epoll_leaves in evict.c. */
	if (!drained(e) || !waits_see(e) || (plx_load(&e->edge) && value != 1) || !has_room(fd)) {
		plx_store(&e->returns, plx_load(&e->returns) + 1);
		plx_eventfd_busy_end(e, 0, 0);
		return PLX_SLEEP_ANEW;
	}
	plx_eventfd_show(e, value);
	PLX_DELAY(adopted_shown);
	if (plx_eventfd_empty(e, fd, &k) < 0) {
		plx_eventfd_busy_end(e, PLX_EVENTFD_U, 0);
		return PLX_SLEEP_ANEW;
	}
	PLX_DELAY(adopted_empty);
	if (k > PLX_EVENTFD_U - value)
		return adoption_fails(e, fd, k, value);
	plx_eventfd_busy_end(e, PLX_SLOW | PLX_EVENTFD_MARK, k);
	plx_px_count(PLX_COUNT_CACHED);
	return sizeof(value);
}

long plx_eventfd_adopt(struct plx_eventfd *e, int fd, const void *buf)
{
	struct plx_masked masked;
	long r = PLX_SLEEP_ANEW;
	uint64_t value;

	if (plx_unlikely(plx_cold_busy(&e->file))) {
		plx_store(&e->heat.writes, 0);
		return r;
	}
	if (!waits_see(e) || plx_load_user64(&value, buf) || !value || value > PLX_EVENTFD_U)
		return r;
	plx_signals_block(&masked);
	if (adoption_begins(e)) {
		plx_xadd(&plx_adoptions_begun, 1);
		PLX_DELAY(adopted);
		r = adopt(e, fd, value);
		plx_xadd(&plx_adoptions_over, 1);
	}
	plx_signals_unblock(&masked);
	return r;
}

void plx_eventfd_return(struct plx_eventfd *e)
{
	if (!plx_eventfd_flush(e, PLX_EVENTFD_COLD))
		return;
	plx_store(&e->returns, plx_load(&e->returns) + 1);
	plx_px_count(PLX_COUNT_COOLED);
}

void plx_eventfd_unblocked(struct plx_eventfd *e)
{
	uint64_t w = plx_load_acq(&e->file.word);

	/* Partner: plx_eventfd_touch. */
	if (!plx_load(&e->blocks) || !plx_eventfd_cold_word(w))
		return;
	plx_store_rel(&e->blocks, 0);
	plx_px_count(PLX_COUNT_EVENTFDS);
}

void plx_eventfd_random_slow(int fd)
{
	struct pollux_file *f = plx_table_get(fd);

	if (!f)
		return;
	if (f->kind == PLX_KIND_EVENTFD && plx_eventfd_in(f) && by_chance())
		plx_eventfd_return(plx_file_eventfd(f));
	pollux_file_put(f);
}
