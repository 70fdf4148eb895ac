/* SPDX-License-Identifier: MIT */
#include "base/spin.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/sys.h"
#include "base/threads.h"
#include "base/wiped.h"

/*
 * Once both sides spin, an answer takes about a microsecond. To get there, one of them
 * has to outlast the other's wake from a sleep, so after some failures a spin is long. It is rare
 * where those fail, too: 40 microseconds in 1,024 sleeps.
 */
#define SPIN_NS 4000
#define SPIN_PROBE_NS 40000
#define SPIN_PROBE_LOG 6
/* Short ones that hit, in a row, until others may be long; so far is a long one trusted. */
#define SPIN_TRUST 32
#define SPIN_TRUST_PROBE 64
#define SPIN_UNIT_LOG 8
#define SPIN_ROUNDS_PER_LOOK 16
#define SPIN_MAX_LOG 10

/* Where nobody else is ready to run a yield takes less than half a microsecond. */
#define YIELD_TRIES 3
/* Those who answer run for microseconds: what took so long went to somebody who computes. */
#define YIELD_LONG_NS 50000
/* What an event may take, long yields included: as long as with sleeps, but within these. */
#define YIELD_EVENT_NS 10000
#define YIELD_EVENT_MAX_NS 500000
/* Longer ones come from a stop of the whole process; pauses are not to last for ever. */
#define YIELD_MOST_NS 100000000
#define YIELD_PAUSE_LOG 2
#define YIELD_PAUSE_LOG_MAX 9

/* A thread that has yielded is behind by a slice, 3 ms, at the most. */
#define WINDOW_NS 10000000
/* One that took longer had no events at times, and says nothing. */
#define WINDOW_MOST_NS (4 * WINDOW_NS)
#define WINDOW_EVENTS 64
/* One in so many is made in the way that is worse. */
#define WINDOW_TURN 32
/* Sleeps are the better way if they save so much, as a shift. */
#define WINDOW_GAIN_LOG 4
enum { WAY_YIELD, WAY_SLEEP };

/* Then it sleeps, so that whoever is waited for runs, whatever the priorities. */
#define AWAIT_YIELDS 64
#define AWAIT_PAUSE_NS 100000

int plx_spin_enabled = 1;
__thread struct plx_yields plx_read_yields;

static int32_t spin_cpus;

static __thread struct {
	/* 1: its scheduling policy suits yields, -1: it does not, 0: not asked yet. */
	int8_t suits;
	/* How long the last yield took, if it was long and something had come meanwhile. */
	int64_t late;
} me;

/* Of the process: the calling thread alone may be bound to one. */
int32_t plx_spin_cpus(void)
{
	int32_t n = plx_load(&spin_cpus);
	cpu_set_t set;

	if (plx_likely(n))
		return n;
	n = 1;
	memset(&set, 0, sizeof(set));
	if (plx_sys3(SYS_sched_getaffinity, plx_sys0(SYS_getpid), sizeof(set), &set) > 0)
		n = CPU_COUNT(&set);
	plx_store(&spin_cpus, n);
	return n;
}

void plx_await_step(int tries)
{
	const struct timespec pause = {.tv_nsec = AWAIT_PAUSE_NS};

	if (tries < AWAIT_YIELDS) {
		plx_sys0(SYS_sched_yield);
	} else {
		plx_sys2(SYS_nanosleep, &pause, NULL);
		plx_signals_let_end();
	}
}

void plx_await_zero(const uint32_t *word)
{
	for (int tries = 0; plx_load_acq(word); tries++)
		plx_await_step(tries);
}

/* In units of 256 ns, and never 0. */
static uint32_t spin_now(void)
{
	return (uint32_t)((uint64_t)plx_now_ns() >> SPIN_UNIT_LOG) | 1;
}

void plx_spin_note_waker(struct plx_spin_state *s)
{
	plx_store(&s->waker_cpu, sched_getcpu() + 1);
	plx_store(&s->rung_at, spin_now());
}

/*
 * A yield of a thread with a deadline ends its whole period, and one of a real-time thread
 * lets nobody run but its equals.
 */
static bool yield_suits(void)
{
	if (plx_unlikely(!me.suits)) {
		int policy = (int)plx_sys1(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;

		me.suits = policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE
				   ? 1
				   : -1;
	}
	return me.suits > 0;
}

static uint32_t events_since(const struct plx_yields *y)
{
	return plx_load(&y->events) - plx_load(&y->since_events);
}

static void yield_begin(struct plx_yields *y, int64_t now)
{
	plx_store(&y->since, now);
	plx_store(&y->since_events, plx_load(&y->events));
}

/*
 * A window with long yields mostly has too few events to be measured, and only good ones would
 * count; but that there is a pause shows something, too.
 */
static void yields_lost(struct plx_yields *y)
{
	uint32_t slept = plx_load(&y->way_ns[WAY_SLEEP]);

	if (plx_load(&y->way_ns[WAY_YIELD]) < 2 * slept)
		plx_store(&y->way_ns[WAY_YIELD], 2 * slept);
}

/*
 * A sleeper is woken before those who compute have used up their time; a thread that has
 * yielded runs after them. But if the CPU is taken from all of us now and then, sleeps are
 * late as well. What counts is what an event takes in the end. If with long yields that is
 * more than it was with sleeps, a pause follows, in which it is measured with sleeps again;
 * each is twice as many times the loss as the one before, 4 to 512. The measure shrinks
 * slowly, so that it is renewed now and then while there are long yields.
 *
 * Several threads may wait for the same object and come here at once. Each field is written
 * whole, and what two threads make of them is a pause of one or the other length. A loss
 * that two have had together counts once.
 */
static void yield_was_long(struct plx_yields *y, int64_t took, int64_t now)
{
	int64_t bound = plx_load(&y->event_ns);
	int64_t since = plx_load(&y->since);
	uint32_t pauses = plx_load(&y->pauses);

	me.suits = 0;
	if (now - took < since)
		return;
	if (took > YIELD_MOST_NS)
		took = YIELD_MOST_NS;
	if (!bound)
		bound = YIELD_EVENT_NS;
	if (now - since <= bound * events_since(y)) {
		plx_store(&y->event_ns, bound - bound / 64);
		plx_store(&y->pauses, 0);
	} else {
		plx_store(&y->paused, 1);
		yields_lost(y);
		plx_store(&y->pause_end, now + (took << (YIELD_PAUSE_LOG + pauses)));
		if (pauses < YIELD_PAUSE_LOG_MAX - YIELD_PAUSE_LOG)
			plx_store(&y->pauses, pauses + 1);
	}
	yield_begin(y, now);
}

static void yield_resume(struct plx_yields *y, int64_t now)
{
	uint32_t events = events_since(y);

	if (plx_load(&y->paused) && events) {
		int64_t ns = (now - plx_load(&y->since)) / events;

		if (ns < YIELD_EVENT_NS)
			ns = YIELD_EVENT_NS;
		if (ns > YIELD_EVENT_MAX_NS)
			ns = YIELD_EVENT_MAX_NS;
		plx_store(&y->event_ns, ns);
	}
	plx_store(&y->paused, 0);
	yield_begin(y, now);
	plx_store(&y->window, 0);
}

/*
 * The windows of all objects end at the same times, and so do their looks at the other way: one
 * that sleeps among others that yield gets what they lose.
 */
static uint8_t next_way(const struct plx_yields *y, int64_t window)
{
	uint32_t yielded = plx_load(&y->way_ns[WAY_YIELD]);
	uint32_t slept = plx_load(&y->way_ns[WAY_SLEEP]);
	uint8_t best = WAY_YIELD;

	if (!yielded)
		return WAY_YIELD;
	if (!slept)
		return window % 2 == 0 ? WAY_SLEEP : WAY_YIELD;
	if (slept + (slept >> WINDOW_GAIN_LOG) < yielded)
		best = WAY_SLEEP;
	return window % WINDOW_TURN == 0 ? !best : best;
}

/*
 * Whether to sleep at once, as it is better, or for the sake of knowing what that is like. In a
 * pause, too, it is measured what sleeps take.
 */
static bool sleep_is_better(struct plx_yields *y, int64_t now, bool paused)
{
	int64_t begin = plx_load(&y->window), took = now - begin;
	uint32_t way = plx_load(&y->way), events = plx_load(&y->events);
	uint32_t n = events - plx_load(&y->window_events);

	if (plx_likely(begin / WINDOW_NS == now / WINDOW_NS))
		return way == WAY_SLEEP;
	if (n >= WINDOW_EVENTS && took >= WINDOW_NS / 2 && took <= WINDOW_MOST_NS) {
		uint32_t last = plx_load(&y->way_ns[way]), ns = took / n;

		plx_store(&y->way_ns[way], last ? last - last / 4 + ns / 4 : ns);
	}
	way = paused ? WAY_SLEEP : next_way(y, now / WINDOW_NS);
	plx_store(&y->window, now);
	plx_store(&y->window_events, events);
	plx_store(&y->way, way);
	return way == WAY_SLEEP;
}

void plx_spin_brought(struct plx_yields *y, int events)
{
	int64_t late = me.late;

	if (events > 0)
		plx_store(&y->events, plx_load(&y->events) + events);
	if (plx_likely(!late))
		return;
	me.late = 0;
	yield_was_long(y, late, plx_now_ns());
}

static bool spin_yield(struct plx_yields *y, bool (*done)(void *arg), void *arg)
{
	int64_t last = plx_now_ns();
	bool hit = false;

	for (int i = 0; i < YIELD_TRIES && !hit; i++) {
		int64_t now;

		plx_sys0(SYS_sched_yield);
		hit = done(arg);
		now = plx_now_ns();
		if (plx_unlikely(now - last > YIELD_LONG_NS)) {
			if (hit)
				me.late = now - last;
			else
				yield_was_long(y, now - last, now);
			return hit;
		}
		last = now;
	}
	return hit;
}

/* *late: it took longer than a short one. */
static bool spin_busy(int64_t ns, bool (*done)(void *arg), void *arg, bool *late)
{
	int64_t begin = plx_now_ns(), now = begin;

	do {
		for (int i = 0; i < SPIN_ROUNDS_PER_LOOK; i++) {
			plx_cpu_relax();
			if (done(arg)) {
				*late = now - begin > SPIN_NS;
				return true;
			}
		}
		now = plx_now_ns();
	} while (now - begin < ns);
	return false;
}

/* In tries: the exponent, above it the sleeps still to skip, and how far hits are trusted. */
#define TRIES_LOG 0xffu
#define TRIES_SKIP 0xffff00u
#define TRIES_SKIP_ONE 0x100u
#define TRIES_TRUST 0xff000000u
#define TRIES_TRUST_ONE 0x1000000u

enum plx_spin_how plx_spin_how(struct plx_yields *y, struct plx_spin_state *s)
{
	uint32_t tries = plx_load(&s->tries);
	int32_t cpus;

	if (!plx_spin_enabled || plx_single_threaded())
		return PLX_SPIN_NOT;
	if (tries & TRIES_SKIP) {
		plx_store(&s->tries, tries - TRIES_SKIP_ONE);
		return PLX_SPIN_NOT;
	}
	if (plx_load(&s->waker_cpu) == sched_getcpu() + 1) {
		int64_t now = plx_now_ns();
		bool paused = now < plx_load(&y->pause_end) || !yield_suits();

		if (plx_unlikely(!paused && (plx_load(&y->paused) || !plx_load(&y->since))))
			yield_resume(y, now);
		return sleep_is_better(y, now, paused) || paused ? PLX_SPIN_NOT : PLX_SPIN_YIELD;
	}
	cpus = plx_spin_cpus();
	if (cpus < 2)
		return PLX_SPIN_NOT;
	if ((int32_t)plx_xadd(&plx_wiped.spinners, 1) < cpus)
		return PLX_SPIN_BUSY;
	plx_xadd(&plx_wiped.spinners, (uint32_t)-1);
	return PLX_SPIN_NOT;
}

void plx_spin_not(enum plx_spin_how how)
{
	if (how == PLX_SPIN_BUSY)
		plx_xadd(&plx_wiped.spinners, (uint32_t)-1);
}

bool plx_spin_until(enum plx_spin_how how, struct plx_yields *y, struct plx_spin_state *s,
		    bool (*done)(void *arg), void *arg)
{
	uint32_t tries = plx_load(&s->tries), log = tries & TRIES_LOG;
	uint32_t trust = tries / TRIES_TRUST_ONE;
	bool probe = log >= SPIN_PROBE_LOG, late = false, trusted, hit;

	trusted = trust >= SPIN_TRUST &&
		  (int32_t)plx_load(&plx_wiped.spinners) < plx_load(&spin_cpus);
	if (how == PLX_SPIN_YIELD)
		hit = spin_yield(y, done, arg);
	else
		hit = spin_busy(probe || trusted ? SPIN_PROBE_NS : SPIN_NS, done, arg, &late);
	plx_spin_not(how);
	if (!hit) {
		if (!trusted && log < SPIN_MAX_LOG)
			log++;
		trust = 0;
	} else {
		log = 0;
		if (how == PLX_SPIN_YIELD)
			;
		else if (!late)
			trust += trust < TRIES_TRUST / TRIES_TRUST_ONE;
		else if (probe)
			trust = SPIN_TRUST_PROBE;
		else
			trust /= 2;
	}
	plx_store(&s->tries, log | ((1u << log) - 1) * TRIES_SKIP_ONE | trust * TRIES_TRUST_ONE);
	return hit;
}

/* A wait that has spun in vain begins its pauses anew, one without a spin has one pause less. */
uint32_t plx_spin_sleeps(const struct plx_spin_state *s)
{
	uint32_t tries = plx_load(&s->tries), log = tries & TRIES_LOG;

	if (plx_single_threaded() || !plx_spin_enabled ||
	    (tries & TRIES_SKIP) == ((1u << log) - 1) * TRIES_SKIP_ONE)
		return 0;
	return spin_now();
}

void plx_spin_slept(struct plx_spin_state *s, uint32_t since)
{
	uint32_t tries = plx_load(&s->tries);

	if (since && plx_load(&s->rung_at) - since <= SPIN_NS >> SPIN_UNIT_LOG)
		plx_store(&s->tries, tries & TRIES_TRUST);
}
