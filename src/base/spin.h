/* SPDX-License-Identifier: MIT */
/*
 * A moment before a sleep, in which what is waited for may come.
 *
 * Spinning pays only while the thread that is waited for runs on another CPU. That
 * is not knowable, unless there is no other thread, but whether it paid lately is: after each
 * failure the next sleeps go without a spin, twice as many each time; from 63 to at most 1023 the
 * tries are longer. No more threads of the process spin at a time than there are CPUs.
 *
 * Two that answer each other do it within a microsecond if both spin, and within two wakes if both
 * sleep; if one sleeps, the short spin of the other does not last until he is awake. So one miss,
 * by an interrupt somewhere, would send both to sleep until two long tries meet. Therefore:
 *
 *   long spins     where short ones have hit many times in a row the next may last as long as a
 *                  wake, unless that leaves no CPU without a spinner; hits that needed so long
 *                  count against that: who is always late is worth a sleep
 *   further tries  a long one that hits is followed by others, in which the partner may find out
 *                  that he, too, is answered at once
 *   sleeps         show that as well: who rings says when, and if a spin would have been a hit
 *                  the pauses are over
 *
 * If the waker shared the CPU with the waiter, the waiter yields instead. Whoever is
 * to answer runs then, and finds nobody whom it would have to wake: a turn of the run queue
 * takes the place of two system calls, a wake and a sleep. Since both are ready to run all the
 * time, the scheduler moves one of them as soon as there is a free CPU, which it does not do
 * with two that sleep in turn.
 *
 * The danger of a yield is that the CPU goes to somebody who computes and keeps it for
 * milliseconds, where a sleeper's wake would have interrupted him. Such yields are noticed by
 * the time they take, and a pause follows if with them an event takes longer than it did while
 * the waiters slept (spin.c). What is not noticed is at most 50 microseconds late.
 *
 * And who yields loses his place: for some milliseconds his wakes do not preempt anybody. Where
 * that makes those whom he works with slower, no single yield shows it. So of an object that has
 * events all the time it is measured what one takes in some milliseconds with yields and in some
 * with sleeps, and it gets what was better, and the other now and then.
 *
 * A thread that spins or yields is not announced as a sleeper, so producers need not ring for
 * it, and it looks again after its announcement. What it does where others sleep meanwhile is
 * argued in epoll/ready.c.
 */
#pragma once

#include "base/atomic.h"

/* What yields cost and bring; all fields are atomic and approximate. */
struct plx_yields {
	/* Nobody yields before this time. */
	int64_t pause_end;
	/* The last long yield, or the end of the last pause; events up to then. */
	int64_t since;
	/* What an event took with sleeps, as measured in the last pause. */
	int64_t event_ns;
	uint32_t since_events;
	/* All there were, modulo 2^32. */
	uint32_t events;
	/* Pauses in a row. */
	uint16_t pauses;
	uint16_t paused;
	/* When the window began that is measured, the events up to there, and how it is made. */
	int64_t window;
	uint32_t window_events;
	/* With yields, with sleeps: what an event takes; 0: not known yet. */
	uint32_t way_ns[2];
	uint8_t way;
};

/* Of the calling thread's blocking reads, for objects that have no room for their own. */
extern __thread struct plx_yields plx_read_yields;

/* Of the object that is waited for, 0 at first; several threads may share it. Approximate. */
struct plx_spin_state {
	/* Which spins have hit (spin.c). */
	uint32_t tries;
	/* Of the last who has rung: his CPU plus one, and when. */
	int32_t waker_cpu;
	uint32_t rung_at;
};

/* What a waiter does before it sleeps. */
enum plx_spin_how {
	/* Sleep at once. */
	PLX_SPIN_NOT,
	PLX_SPIN_YIELD,
	PLX_SPIN_BUSY,
};

/* 0 switches spinning off (POLLUX_SPIN=0). */
extern int plx_spin_enabled;

/*
 * plx_spin in two steps, for who has to tell others of it: whether and how to spin, which is
 * followed by plx_spin_until, or plx_spin_not, unless it is PLX_SPIN_NOT.
 *
 * Returns whether done(arg) became true.
 */
enum plx_spin_how plx_spin_how(struct plx_yields *y, struct plx_spin_state *s);
bool plx_spin_until(enum plx_spin_how how, struct plx_yields *y, struct plx_spin_state *s,
		    bool (*done)(void *arg), void *arg);
/* Instead of plx_spin_until, if there is something to be done already. */
void plx_spin_not(enum plx_spin_how how);
static inline bool plx_spin(struct plx_yields *y, struct plx_spin_state *s, bool (*done)(void *arg),
			    void *arg)
{
	enum plx_spin_how how = plx_spin_how(y, s);

	return how != PLX_SPIN_NOT && plx_spin_until(how, y, s, done, arg);
}

/* Around a sleep: the time at its beginning, if it may show something, and what it has shown. */
uint32_t plx_spin_sleeps(const struct plx_spin_state *s);
void plx_spin_slept(struct plx_spin_state *s, uint32_t since);

/* How many CPUs the process may use. */
int32_t plx_spin_cpus(void);

/* How many events the calling thread has found at the end of a wait, spun or slept. */
void plx_spin_brought(struct plx_yields *y, int events);

/* A step of waiting, the tries-th, for what others will have done in a moment. */
void plx_await_step(int tries);
/* Returns once *word has been 0, which other threads make it soon; acquires what they did. */
void plx_await_zero(const uint32_t *word);

/*
 * Whoever wakes a sleeper says from which CPU. If that is the waiter's own, the two
 * share it, and a spin would only keep the other from running. And when.
 */
void plx_spin_note_waker(struct plx_spin_state *s);
