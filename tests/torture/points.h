/* SPDX-License-Identifier: MIT */
/*
 * The torture tests bring their own plx_delay, in place of that of the library:
 * it counts how often each race point was passed, stops one thread at one point
 * for as long as a test likes (a gate), and otherwise delays at random.
 */
#ifndef TESTS_TORTURE_POINTS_H
#define TESTS_TORTURE_POINTS_H

#include <stdbool.h>

/*
 * gate_arm makes the calling thread stop when it next comes to the point; it can be
 * armed for one point at a time. gate_reached waits (bounded) for that.
 */
struct gate {
	const char *point;
	int reached;
	int open;
};

void gate_arm(struct gate *g, const char *point);
/* The same for whichever thread comes to the point first; one at a time, too. */
void gate_arm_any(struct gate *g, const char *point);
/* Nobody has come to it, and nobody is to. */
void gate_disarm_any(void);
bool gate_reached(struct gate *g);
void gate_open(struct gate *g);

/* How often all threads together have passed the point. */
unsigned long points_passed(const char *point);

/* Random delays off or on again; tests that stop threads by gates alone want none. */
void points_delay(bool on);

#endif
