/* SPDX-License-Identifier: MIT */
/*
 * Start and end of the drop-in.
 *
 * Handlers of ours are installed, and all else that is no call of the program, only when something
 * is about to be cached (plx_prepare). Until then calls are the program's own (cache/cold.h).
 *
 *   pthread_cancel   noted, so that calls which do not sleep look for the request
 *   pthread_setcanceltype
 *                    with PTHREAD_CANCEL_ASYNCHRONOUS: everything escapes, for good
 *   _exit            with POLLUX_STATS=1, statistics to stderr, as at a return from main
 *                    and on SIGUSR2, unless the program handles or ignores it; not if the
 *                    program has put something else at descriptor 2
 *   POLLUX_AIO=off   AIO is the kernel's
 *   POLLUX_AIO_MAX_NR=none
 *                    no limit on the events of AIO contexts
 *
 * The public functions pollux_* are exported as well, pollux_fd_served among them: a
 * program that is linked with the library then works on this one's objects.
 */
#include "preload/preload.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/setting.h"
#include "base/spin.h"
#include "base/stats.h"
#include "base/sys.h"
#include "epoll/engine.h"
#include "cache/quick.h"

#define TRIES 8

PLX_START_PAGE uint32_t plx_active;
PLX_START_PAGE uint32_t plx_used;
static PLX_START_PAGE uint32_t started;

static PLX_START_CODE bool is_set(const char *setting, const char *value)
{
	const char *now = plx_setting(setting);

	return now && strcmp(now, value) == 0;
}

/*
 * What is not found yet finds itself when it is called. Threads may do this at the same time, and
 * call by what another has stored: ThreadSanitizer is not shown that (real.c).
 */
static __attribute__((no_sanitize("thread"))) PLX_START_CODE void take_libc(void)
{
	plx_store(&plx_libc.epoll_wait, plx_load(&plx_real.epoll_wait));
	plx_store(&plx_libc.epoll_pwait, plx_load(&plx_real.epoll_pwait));
	plx_store(&plx_libc.epoll_pwait2, plx_load(&plx_real.epoll_pwait2));
	plx_store(&plx_libc.poll, plx_load(&plx_real.poll));
	plx_store(&plx_libc.ppoll, plx_load(&plx_real.ppoll));
	plx_store(&plx_libc.close, plx_load(&plx_real.close));
	plx_store(&plx_set_cancel_type, plx_load(&plx_real.pthread_setcanceltype));
}

PLX_START_CODE void plx_start(void)
{
	if (plx_likely(plx_load_acq(&started)))
		return;
	take_libc();
	plx_cold_born();
	/* What --adopt= says comes after this. */
	plx_adopts = PLX_ADOPTS_HOT;
	plx_px_init();
	/* As the kernel has it, unless the operator lifts it. */
	plx_aio_limit = is_set("AIO_MAX_NR", "none") ? PLX_AIO_UNLIMITED : PLX_AIO_MAX_NR;
	if (is_set("AIO", "off"))
		plx_px_no_adopt |= PLX_ADOPT_AIO;
	plx_store_rel(&started, 1);
}

static void status_line(void *arg, const char *line)
{
	*(bool *)arg |= strcmp(line, "Seccomp:\t0") == 0;
}

/* A filter of before the program began; with one of its own nothing is prepared. */
static bool is_filtered(void)
{
	bool without = false;

	return !plx_cold_lines("/proc/self/status", status_line, &without) || !without;
}

/* By the only one, whom no handler interrupts. */
static void prepare(void)
{
	PLX_INSIDE();

	/* Partner: await_prepared. */
	if (plx_load(&plx_px_no_adopt) == ~0u)
		return;
	if (plx_load(&plx_active) || !plx_px_begin() || !plx_cold_begin())
		return;
	plx_px_filtered = is_filtered();
	plx_real_init();
	take_libc();
	plx_guard_install();
	plx_cold_found();
	plx_store_rel(&plx_active, 1);
	plx_cold_over();
}

/* The number of the process that prepares itself, of which this may be a child. */
static uint32_t preparing;

static void preparing_lock(void)
{
	uint32_t by = 0;

	for (int tries = 0; !plx_cas(&preparing, &by, plx_load(&plx_cold_process)); tries++) {
		if (by == plx_load(&plx_cold_process))
			plx_await_step(tries), by = 0;
	}
}

bool plx_prepare(void)
{
	int saved = errno;
	struct plx_masked m;

	if (plx_likely(plx_load_acq(&plx_active)))
		return true;
	plx_start();
	plx_inline_look();
	plx_signals_block(&m);
	preparing_lock();
	prepare();
	plx_store_rel(&preparing, 0);
	plx_signals_unblock(&m);
	errno = saved;
	return plx_load_acq(&plx_active);
}

bool plx_activate(void)
{
	const uint32_t descriptors = PLX_ADOPT_EPOLL | PLX_ADOPT_EVENTFD;

	plx_start();
	if ((plx_px_no_adopt & descriptors) == descriptors)
		return false;
	plx_inline_look();
	if ((plx_px_no_adopt & descriptors) == descriptors)
		return false;
	return plx_prepare();
}

static bool real_time(void)
{
	long policy = plx_sys1(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

__attribute__((noinline)) long plx_cold_failed(long r)
{
	return plx_result(r);
}

void plx_note_waits_slow(void)
{
	static __thread bool is_real_time;
	static uint32_t tries;

	if (is_real_time || plx_vfork_child())
		return;
	/*
	 * It takes the kernel 10 ms to register a process with threads for membarrier, and it waits
	 * for calls of threads that this one may outrank: a real-time thread leaves it to others.
	 */
	is_real_time = real_time();
	if (is_real_time)
		return;
	/* What does not succeed is not tried for ever. */
	plx_store(&plx_cold_wanted, plx_xadd(&tries, 1) < TRIES ? 0 : 2);
	(void)plx_activate();
}

uint32_t plx_descriptors_out;

void plx_stop_adopting_descriptors(enum plx_way_out why)
{
	plx_start();
	plx_px_ends(why);
	/* What is noted will not be cached any more. */
	if (plx_cold_any())
		plx_cold_end_all(NULL);
	plx_store_rel(&plx_descriptors_out, 1);
}

void plx_stop_adopting(enum plx_way_out why)
{
	plx_stop_adopting_descriptors(why);
	plx_or(&plx_px_no_adopt, PLX_ADOPT_AIO);
}

/* Adoption has ended: no thread prepares the process afterwards, by calls that may be forbidden. */
static void await_prepared(void)
{
	uint32_t by;

	for (int tries = 0; (by = plx_load_acq(&preparing)); tries++) {
		if (by != plx_load(&plx_cold_process))
			break;
		plx_await_step(tries);
	}
}

void plx_sandbox(unsigned long mode, const void *filter)
{
	if (!plx_confines(mode, filter))
		return;
	plx_needless_never();
	if (plx_vfork_child())
		return;
	plx_px_stats_sandbox();
	plx_stop_adopting(PLX_OUT_SYSCALL);
	await_prepared();
	plx_aio_hand_over_all();
	plx_rcu_confine();
	plx_guard_keep_none();
}

static void cancel_waits(void)
{
	int saved = errno;

	plx_real.poll(NULL, 0, 0);
	errno = saved;
}

PLX_EXPORT int pthread_cancel(pthread_t t)
{
	/* Partner: cancellable in base/sleep.c. */
	plx_store_rel(&plx_cancel_waits, cancel_waits);
	(void)plx_or(&plx_used, PLX_USED_CANCEL);
	plx_unwind_find();
	return plx_real.pthread_cancel(t);
}

/*
 * A thread that is cancelled at any instruction would leave what it holds. So all calls are libc's
 * from then on. (A context of AIO that cannot be handed over now puts the type off.)
 */
PLX_EXPORT int pthread_setcanceltype(int type, int *old)
{
	if (type == PTHREAD_CANCEL_ASYNCHRONOUS && !plx_vfork_child()) {
		plx_stop_adopting(PLX_OUT_CANCEL);
		plx_aio_hand_over_all();
		plx_guard_keep_none();
	}
	return plx_real.pthread_setcanceltype(type, old);
}

__attribute__((constructor(101))) static PLX_START_CODE void preload_start(void)
{
	/* Asked at the start: programs replace their environment (nginx does). */
	if (is_set("STATS", "1"))
		plx_stats_wanted = 1;
	plx_needless_begin(plx_real_learn());
	plx_fork_register();
	plx_start();
	if (plx_stats_wanted) {
		plx_px_stats_begin();
		plx_write_watched = 1;
		plx_guard_statistics();
	}
}

__attribute__((destructor)) static void preload_end(void)
{
	if (plx_stats_wanted)
		plx_px_stats_print(true);
}

/* Forked children often end so, which runs no destructors. */
PLX_EXPORT PLX_CHILD_CODE void _exit(int status)
{
	if (plx_unlikely(plx_stats_wanted) && !plx_vfork_child_only())
		plx_px_stats_print(false);
	plx_vfork_over();
	plx_real._exit(status);
	for (;;)
		plx_sys1(SYS_exit_group, status);
}
PLX_ALIAS(_Exit, _exit);
