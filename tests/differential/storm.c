/* SPDX-License-Identifier: MIT */
/* Signals at any instruction. */
#include "differential.h"

#include <time.h>

bool storming;
static pid_t storm_of;

static void on_storm(int sig)
{
	(void)sig;
}

void storm_start(void)
{
	const char *us = getenv("DIFFERENTIAL_STORM");
	struct sigaction sa = {.sa_handler = on_storm, .sa_flags = SA_RESTART};
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
	struct itimerspec every = {0};
	timer_t timer;

	if (!us)
		return;
	every.it_interval.tv_nsec = atol(us) * 1000;
	every.it_value = every.it_interval;
	sigaction(SIGPROF, &sa, NULL);
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &every, NULL)) {
		perror("timer");
		exit(1);
	}
	storm_of = getpid();
	storming = true;
}

bool storm_ended(long r)
{
	return r < 0 && errno == EINTR && storming;
}

bool storm_again(long r, bool *before)
{
	bool now = storm_ended(r);

	if (*before && !now && r)
		log_value("a result that a signal had kept back", (uint64_t)r);
	*before = now;
	return now;
}

bool storm_sleeps(void)
{
	return storming && run->steps % 4 == 0 && getpid() == storm_of;
}
