/* SPDX-License-Identifier: MIT */
/* EP-SIG: signals that arrive before, during and after a wait. */
#include "waiting.h"

/* Handlers run in any thread, at the same time perhaps. */
static int runs_count;
static uint64_t handler_mask_bits;

#define runs __atomic_load_n(&runs_count, __ATOMIC_SEQ_CST)

static void runs_clear(void)
{
	__atomic_store_n(&runs_count, 0, __ATOMIC_SEQ_CST);
}

static bool handler_masked(int sig)
{
	return (__atomic_load_n(&handler_mask_bits, __ATOMIC_SEQ_CST) >> (sig - 1)) & 1;
}

static void count_run(int sig)
{
	sigset_t mask;
	uint64_t bits;

	(void)sig;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	memcpy(&bits, &mask, sizeof(bits));
	__atomic_store_n(&handler_mask_bits, bits, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&runs_count, 1, __ATOMIC_SEQ_CST);
}

/* Installs fn for sig and gives back what was there. */
static struct sigaction handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = {.sa_handler = fn, .sa_flags = flags}, old;

	sigemptyset(&sa.sa_mask);
	assert_ok(sigaction(sig, &sa, &old));
	runs_clear();
	return old;
}

static void restore(int sig, const struct sigaction *old)
{
	assert_ok(sigaction(sig, old, NULL));
}

static sigset_t set_of(int sig)
{
	sigset_t s;

	sigemptyset(&s);
	if (sig != 0)
		sigaddset(&s, sig);
	return s;
}

/* Blocks sig in this thread and gives back the mask before. */
static sigset_t block(int sig)
{
	sigset_t s = set_of(sig), old;

	assert_int_equal(pthread_sigmask(SIG_BLOCK, &s, &old), 0);
	return old;
}

static void unblock_to(const sigset_t *old)
{
	assert_int_equal(pthread_sigmask(SIG_SETMASK, old, NULL), 0);
}

static bool is_pending(int sig)
{
	sigset_t s;

	sigpending(&s);
	return sigismember(&s, sig) == 1;
}

static bool is_blocked(int sig)
{
	sigset_t s;

	pthread_sigmask(SIG_BLOCK, NULL, &s);
	return sigismember(&s, sig) == 1;
}

/* Takes a pending signal away without a handler. */
static void swallow(int sig)
{
	sigset_t s = set_of(sig);
	struct timespec zero = {0, 0};

	assert_int_equal(sigtimedwait(&s, NULL, &zero), sig);
}

static void EP_SIG_01_event_wins_over_a_pending_signal(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, 0);
	sigset_t before = block(SIGUSR1), none = set_of(0);

	for (int e = 0; e < ENTRIES; e++) {
		struct wset w = wset_open(WSET_OF(state), 0);
		struct epoll_event ev[4];

		if (!entry_takes_mask(e)) {
			wset_close(&w);
			continue;
		}
		for (int i = 0; i < w.nsub; i++) {
			subject_fill(&w.sub[i]);
			raise(SIGUSR1);
			assert_int_equal(wait_by(e, w.ep, ev, 4, -1, &none), 1);
			assert_int_equal(ev[0].data.u64, w.data[i]);
			assert_int_equal(wait_by(e, w.ep, ev, 4, 100, &none), 1);
			assert_int_equal(runs, 0);
			swallow(SIGUSR1);
			subject_drain(&w.sub[i]);
		}
		wset_close(&w);
	}
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

/* Signals keep coming; while an event is there every wait returns it. */
static void EP_SIG_01_ready_set_never_gives_eintr(void **state)
{
	struct sigaction old = handle(SIGALRM, count_run, 0);
	struct wset w = wset_open(WSET_OF(state), 0);
	int64_t end = now_ms() + 60;

	subject_fill(&w.sub[0]);
	alarms_every(100);
	while (now_ms() < end || runs == 0) {
		struct epoll_event ev[4];

		for (int e = 0; e < ENTRIES; e++) {
			int r = wait_by(e, w.ep, ev, 4, -1, NULL);

			if (r != 1)
				alarms_every(0);
			assert_int_equal(r, 1);
		}
	}
	alarms_every(0);
	wset_close(&w);
	restore(SIGALRM, &old);
}

static void interrupted(struct waiter *t, int sig)
{
	assert_int_equal(pthread_kill(t->t.id, sig), 0);
	waiter_join(t);
	assert_int_equal(t->n, -1);
	assert_int_equal(t->err, EINTR);
}

static void EP_SIG_02_handler_ends_the_sleep(void **state)
{
	static const int flags[] = {0, SA_RESTART};
	struct wset w = wset_open(WSET_OF(state), 0);
	struct waiter t;

	for (int f = 0; f < 2; f++) {
		struct sigaction old = handle(SIGUSR1, count_run, flags[f]);

		for (int e = 0; e < ENTRIES; e++) {
			runs_clear();
			waiter_sleep(&t, e, w.ep, e % 2 == 0 ? -1 : 600000, NULL);
			interrupted(&t, SIGUSR1);
			assert_int_equal(runs, 1);
			/* The set works as before. */
			waiter_sleep(&t, e, w.ep, -1, NULL);
			subject_fill(&w.sub[w.nsub - 1]);
			waiter_collected(&t, w.data[w.nsub - 1]);
			subject_drain(&w.sub[w.nsub - 1]);
		}
		restore(SIGUSR1, &old);
	}
	wset_close(&w);
}

static void EP_SIG_02_handler_ends_the_sleep_on_an_empty_epoll(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	struct waiter t;
	int ep = ep_new();

	(void)state;
	for (int e = 0; e < ENTRIES; e++) {
		waiter_sleep(&t, e, ep, -1, NULL);
		interrupted(&t, SIGUSR1);
	}
	close(ep);
	restore(SIGUSR1, &old);
}

/* Only the thread that took the signal is disturbed. */
/* Something came and went before: it has woken the thread, perhaps, and does not keep it asleep. */
static void EP_SIG_02_handler_ends_the_sleep_when_all_is_over(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	/* ThreadSanitizer may run a handler after the wait has looked for it, before it sleeps. */
	bool late = SANITIZED == 2 && under_pollux();
	cpu_set_t cpus;

	on_one_cpu(&cpus);
	for (int round = 0; round < 2 * ENTRIES; round++) {
		struct wset w = wset_open(WSET_OF(state), round & 1 ? EPOLLET : 0);
		struct subject *s = &w.sub[round % w.nsub];
		struct waiter t;

		waiter_sleep(&t, round % ENTRIES, w.ep, -1, NULL);
		subject_fill(s);
		subject_drain(s);
		pthread_kill(t.t.id, SIGUSR1);
		while (!thread_join(&t.t, late ? 100 : SOON_MS)) {
			assert_true(late);
			pthread_kill(t.t.id, SIGUSR1);
		}
		/* Unless it was quicker. */
		if (t.n != 1) {
			assert_int_equal(t.n, -1);
			assert_int_equal(t.err, EINTR);
		}
		wset_close(&w);
	}
	on_any_cpu(&cpus);
	restore(SIGUSR1, &old);
}

static void EP_SIG_02_other_sleepers_sleep_on(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	struct wset w = wset_open(WSET_OF(state), EPOLLET);
	struct waiter t[3];

	for (int i = 0; i < 3; i++)
		waiter_sleep(&t[i], BY_WAIT, w.ep, -1, NULL);
	interrupted(&t[1], SIGUSR1);
	assert_true(thread_asleep(&t[0].t));
	assert_true(thread_asleep(&t[2].t));
	interrupted(&t[2], SIGUSR1);
	subject_fill(&w.sub[0]);
	waiter_collected(&t[0], w.data[0]);
	wset_close(&w);
	restore(SIGUSR1, &old);
}

static __thread sigjmp_buf jump_to;

static void jump_out(int sig)
{
	(void)sig;
	siglongjmp(jump_to, 1);
}

static int jumper_ep;

static void *jumper_main(void *arg)
{
	struct epoll_event ev[4];

	(void)arg;
	if (sigsetjmp(jump_to, 1) == 0) {
		epoll_wait(jumper_ep, ev, 4, -1);
		return NULL;
	}
	return &jumper_ep;
}

/* A handler that never returns leaves a wait for good; the epoll is none the worse. */
static void EP_SIG_02_handler_may_jump_out_of_the_wait(void **state)
{
	struct sigaction old = handle(SIGUSR1, jump_out, 0);
	struct wset w = wset_open(WSET_OF(state), EPOLLONESHOT);

	for (int round = 0; round < 10; round++) {
		struct test_thread j;
		struct waiter t;
		int i = round % w.nsub;

		jumper_ep = w.ep;
		thread_start(&j, jumper_main, NULL);
		assert_true(thread_asleep(&j));
		assert_int_equal(pthread_kill(j.id, SIGUSR1), 0);
		assert_true(thread_join(&j, SOON_MS));
		assert_ptr_equal(j.ret, &jumper_ep);
		waiter_sleep(&t, BY_WAIT, w.ep, -1, NULL);
		subject_fill(&w.sub[i]);
		waiter_collected(&t, w.data[i]);
		subject_drain(&w.sub[i]);
		for (int k = 0; k < w.nsub; k++)
			ep_mod(w.data[k] == WSET_INNER ? w.inner : w.ep, w.sub[k].fd,
			       EPOLLIN | EPOLLONESHOT, (uint64_t)k + 1);
		if (w.inner >= 0)
			ep_mod(w.ep, w.inner, EPOLLIN | EPOLLONESHOT, WSET_INNER);
	}
	wset_close(&w);
	restore(SIGUSR1, &old);
}

static void EP_SIG_03_ignored_signals_do_not_interrupt(void **state)
{
	static const int sigs[] = {SIGUSR2, SIGCHLD, SIGWINCH, SIGURG};
	struct sigaction old = handle(SIGUSR2, SIG_IGN, 0);
	struct wset w = wset_open(WSET_OF(state), 0);
	struct waiter t;

	for (int e = 0; e < ENTRIES; e++) {
		waiter_sleep(&t, e, w.ep, -1, NULL);
		for (int n = 0; n < 4; n++) {
			assert_int_equal(pthread_kill(t.t.id, sigs[n]), 0);
			assert_true(thread_asleep(&t.t));
		}
		subject_fill(&w.sub[0]);
		waiter_collected(&t, w.data[0]);
		subject_drain(&w.sub[0]);
		/* Nor do they shorten or lengthen a wait that has an end. */
		waiter_start(&t, e, w.ep, 15, NULL);
		for (int n = 0; n < 4; n++)
			pthread_kill(t.t.id, sigs[n]);
		waiter_join(&t);
		assert_int_equal(t.n, 0);
		assert_true(t.ns >= 15000000);
	}
	wset_close(&w);
	restore(SIGUSR2, &old);
}

/* The interest set of a child, made in the child. */
static int child_set(enum wset_kind kind, bool ready)
{
	int ep = epoll_create1(0), top = ep, p[2] = {-1, -1}, fd = -1;
	uint64_t one = 1;

	child_check(ep >= 0);
	if (kind == WSET_NESTED || kind == WSET_NESTED_MIXED) {
		top = epoll_create1(0);
		child_check(ep_ctl(top, EPOLL_CTL_ADD, ep, EPOLLIN, WSET_INNER) == 0);
	}
	if (kind != WSET_PIPE) {
		fd = eventfd(0, 0);
		child_check(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
	}
	if (kind == WSET_PIPE || kind == WSET_MIXED || kind == WSET_NESTED_MIXED) {
		child_check(pipe(p) == 0);
		child_check(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2) == 0);
	}
	if (ready && fd >= 0)
		child_check(write(fd, &one, sizeof(one)) == sizeof(one));
	if (ready && p[1] >= 0)
		child_check(write(p[1], "x", 1) == 1);
	return top;
}

struct child_job {
	enum wset_kind kind;
	enum entry how;
	bool ready;
};

static int child_waits_once(void *arg)
{
	struct child_job *job = arg;
	struct epoll_event ev[4];
	int ep = child_set(job->kind, false), r;

	errno = 0;
	r = wait_by(job->how, ep, ev, 4, -1, NULL);
	child_check(r == -1);
	child_check(errno == EINTR);
	return 0;
}

static int child_waits_for_ever(void *arg)
{
	struct child_job *job = arg;
	struct epoll_event ev[4];
	int ep = child_set(job->kind, job->ready);

	for (;;)
		child_check(wait_by(job->how, ep, ev, 4, -1, NULL) > 0);
}

static void EP_SIG_04_stop_and_continue_give_eintr(void **state)
{
	for (int e = 0; e < ENTRIES; e++) {
		struct child_job job = {.kind = WSET_OF(state), .how = e};
		pid_t pid = child_start(child_waits_once, &job);
		int status = -1;
		bool ended = false;

		/* A stop that comes before the child has begun its wait is followed by another. */
		for (int n = 0; n < 20 && !ended; n++) {
			if (!process_reaches(pid, 'S', 2000))
				break;
			assert_ok(kill(pid, SIGSTOP));
			if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
				ended = true;
				break;
			}
			assert_ok(kill(pid, SIGCONT));
			for (int k = 0; k < 200 && !ended; k++) {
				ended = waitpid(pid, &status, WNOHANG) == pid;
				if (!ended)
					sleep_ms(1);
			}
		}
		if (!ended) {
			kill(pid, SIGKILL);
			status = child_wait(pid);
		}
		assert_int_equal(status, 0);
	}
}

static void EP_SIG_05_timeout_zero_never_gives_eintr(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, 0);
	sigset_t before = block(SIGUSR1), none = set_of(0);
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[4];

	for (int e = 0; e < ENTRIES; e++) {
		if (!entry_takes_mask(e))
			continue;
		raise(SIGUSR1);
		assert_int_equal(wait_by(e, w.ep, ev, 4, 0, &none), 0);
		assert_int_equal(runs, 0);
		swallow(SIGUSR1);
	}
	wset_close(&w);
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

static void EP_SIG_05_timeout_zero_in_a_storm_of_signals(void **state)
{
	struct sigaction old = handle(SIGALRM, count_run, 0);
	struct wset w = wset_open(WSET_OF(state), 0);
	int64_t end = now_ms() + 60;

	alarms_every(100);
	while (now_ms() < end || runs == 0) {
		struct epoll_event ev[4];

		for (int e = 0; e < ENTRIES; e++) {
			int r = wait_by(e, w.ep, ev, 4, 0, NULL);

			if (r != 0)
				alarms_every(0);
			assert_int_equal(r, 0);
		}
	}
	alarms_every(0);
	wset_close(&w);
	restore(SIGALRM, &old);
}

/* Blocked outside and pending: the mask of the call lets it in, and it ends the call. */
static void EP_SIG_06_pending_signal_ends_an_empty_wait(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	sigset_t before = block(SIGUSR1), temp = set_of(SIGUSR2);
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[4];

	for (int e = 0; e < ENTRIES; e++) {
		if (!entry_takes_mask(e))
			continue;
		for (int ms = -1; ms <= 10000; ms += 10001) {
			runs_clear();
			__atomic_store_n(&handler_mask_bits, 0, __ATOMIC_SEQ_CST);
			raise(SIGUSR1);
			assert_errno(wait_by(e, w.ep, ev, 4, ms, &temp), EINTR);
			assert_int_equal(runs, 1);
			assert_false(is_pending(SIGUSR1));
			/* The handler ran under the mask of the call; the old one is back. */
			assert_int_equal(handler_masked(SIGUSR2), 1);
			assert_true(is_blocked(SIGUSR1));
			assert_false(is_blocked(SIGUSR2));
		}
	}
	wset_close(&w);
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

struct masked_wait {
	struct waiter w;
	sigset_t outside;
	bool restored;
};

static void *masked_main(void *arg)
{
	struct masked_wait *m = arg;
	sigset_t now;

	pthread_sigmask(SIG_SETMASK, &m->outside, NULL);
	waiter_main(&m->w);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	m->restored = sigismember(&now, SIGUSR1) == sigismember(&m->outside, SIGUSR1) &&
		      sigismember(&now, SIGUSR2) == sigismember(&m->outside, SIGUSR2);
	return NULL;
}

static void masked_sleep(struct masked_wait *m, enum entry how, int ep, int outside,
			 const sigset_t *inside)
{
	memset(m, 0, sizeof(*m));
	m->w.how = how;
	m->w.ep = ep;
	m->w.max = 8;
	m->w.ms = -1;
	m->w.mask = inside;
	m->outside = set_of(outside);
	thread_start(&m->w.t, masked_main, m);
	assert_true(thread_asleep(&m->w.t));
}

static void EP_SIG_06_signal_let_in_during_the_sleep(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	struct wset w = wset_open(WSET_OF(state), 0);
	sigset_t temp = set_of(SIGUSR2);
	struct masked_wait m;

	for (int e = 0; e < ENTRIES; e++) {
		if (!entry_takes_mask(e))
			continue;
		runs_clear();
		masked_sleep(&m, e, w.ep, SIGUSR1, &temp);
		interrupted(&m.w, SIGUSR1);
		assert_int_equal(runs, 1);
		assert_int_equal(handler_masked(SIGUSR2), 1);
		assert_true(m.restored);
	}
	wset_close(&w);
	restore(SIGUSR1, &old);
}

/* Blocked by the mask of the call: the sleep goes on, the handler runs when the call is over. */
static void EP_SIG_06_signal_kept_out_during_the_sleep(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, 0);
	struct wset w = wset_open(WSET_OF(state), 0);
	sigset_t temp = set_of(SIGUSR1);
	struct masked_wait m;

	for (int e = 0; e < ENTRIES; e++) {
		if (!entry_takes_mask(e))
			continue;
		runs_clear();
		masked_sleep(&m, e, w.ep, SIGUSR2, &temp);
		assert_int_equal(pthread_kill(m.w.t.id, SIGUSR1), 0);
		assert_true(thread_asleep(&m.w.t));
		assert_int_equal(runs, 0);
		subject_fill(&w.sub[0]);
		waiter_collected(&m.w, w.data[0]);
		assert_int_equal(runs, 1);
		assert_int_equal(handler_masked(SIGUSR2), 1);
		assert_true(m.restored);
		subject_drain(&w.sub[0]);
	}
	wset_close(&w);
	restore(SIGUSR1, &old);
}

/* Ended by events, by the timeout or by an error, the call does not let the handler run. */
static void EP_SIG_06_other_endings_leave_the_signal_pending(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, 0);
	sigset_t before = block(SIGUSR1), none = set_of(0);
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[4], *bad = (struct epoll_event *)8;

	for (int e = 0; e < ENTRIES; e++) {
		if (!entry_takes_mask(e))
			continue;
		raise(SIGUSR1);
		assert_errno(wait_by(e, -1, ev, 4, -1, &none), EBADF);
		assert_errno(wait_by(e, w.sub[0].fd, ev, 4, -1, &none), EINVAL);
		assert_errno(wait_by(e, w.ep, ev, 0, -1, &none), EINVAL);
		assert_errno(wait_by(e, w.ep, ev, -1, -1, &none), EINVAL);
		assert_int_equal(wait_by(e, w.ep, ev, 4, 0, &none), 0);
		subject_fill(&w.sub[0]);
		assert_errno(wait_by(e, w.ep, bad, 4, -1, &none), EFAULT);
		assert_int_equal(wait_by(e, w.ep, ev, 4, -1, &none), 1);
		assert_int_equal(wait_by(e, w.ep, ev, 4, 10, &none), 1);
		subject_drain(&w.sub[0]);
		assert_true(is_pending(SIGUSR1));
		assert_true(is_blocked(SIGUSR1));
		assert_int_equal(runs, 0);
		swallow(SIGUSR1);
	}
	wset_close(&w);
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

static void EP_SIG_06_signal_blocked_on_both_sides_waits(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, 0);
	sigset_t before = block(SIGUSR1), temp = set_of(SIGUSR1), full;
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[4];

	/* A full set may be given; SIGKILL and SIGSTOP in it are left out. */
	sigfillset(&full);
	raise(SIGUSR1);
	for (int e = 0; e < ENTRIES; e++) {
		int64_t start = now_ns();

		assert_int_equal(wait_by(e, w.ep, ev, 4, 4, &temp), 0);
		assert_int_equal(wait_by(e, w.ep, ev, 4, 4, NULL), 0);
		assert_int_equal(wait_by(e, w.ep, ev, 4, 4, &full), 0);
		assert_true(now_ns() - start >= 12000000);
		assert_int_equal(runs, 0);
		assert_true(is_pending(SIGUSR1));
	}
	swallow(SIGUSR1);
	wset_close(&w);
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

struct sender {
	struct test_thread t;
	pthread_t to;
	int usec;
};

static void *sender_main(void *arg)
{
	struct sender *s = arg;
	struct timespec pause = {0, s->usec * 1000};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	pthread_kill(s->to, SIGUSR1);
	return NULL;
}

/* The mask changes and the wait begins in one step: a signal at any moment ends the wait. */
static void EP_SIG_06_no_window_between_mask_and_wait(void **state)
{
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);
	sigset_t before = block(SIGUSR1), none = set_of(0);
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[4];

	for (int round = 0; round < 100; round++) {
		struct sender s = {.to = pthread_self(), .usec = round};
		enum entry e;

		runs_clear();
		thread_start(&s.t, sender_main, &s);
		do {
			e = (enum entry)((unsigned int)rand() % ENTRIES);
		} while (!entry_takes_mask(e));
		assert_errno(wait_by(e, w.ep, ev, 4, 30000, &none), EINTR);
		assert_int_equal(runs, 1);
		assert_true(thread_join(&s.t, SOON_MS));
	}
	wset_close(&w);
	unblock_to(&before);
	restore(SIGUSR1, &old);
}

static void EP_SIG_07_fatal_signal_ends_a_busy_thread(void **state)
{
	static const int sigs[] = {SIGTERM, SIGKILL, SIGUSR1, SIGALRM};

	for (int n = 0; n < 4; n++) {
		for (int ready = 0; ready < 2; ready++) {
			struct child_job job = {.kind = WSET_OF(state),
						.how = (n * 2 + ready) % ENTRIES,
						.ready = ready == 1};
			pid_t pid = child_start(child_waits_for_ever, &job);
			int status;

			if (ready == 0)
				assert_true(process_reaches(pid, 'S', SOON_MS));
			else
				sleep_ms(5);
			assert_ok(kill(pid, sigs[n]));
			status = child_wait(pid);
			assert_true(WIFSIGNALED(status));
			assert_int_equal(WTERMSIG(status), sigs[n]);
		}
	}
}

/* Signal and event at the same moment: whichever is told, the event is not lost. */
static void EP_SIG_08_event_survives_eintr(void **state)
{
	static const uint32_t flags[] = {EPOLLET, EPOLLONESHOT};
	struct sigaction old = handle(SIGUSR1, count_run, SA_RESTART);

	for (int round = 0; round < 60; round++) {
		struct wset w = wset_open(WSET_OF(state), flags[round % 2]);
		struct waiter t;
		int i = round % w.nsub;

		waiter_start(&t, round % ENTRIES, w.ep, -1, NULL);
		if (round % 3 != 0)
			assert_true(thread_asleep(&t.t));
		if (round % 4 < 2)
			pthread_kill(t.t.id, SIGUSR1);
		subject_fill(&w.sub[i]);
		if (round % 4 >= 2)
			pthread_kill(t.t.id, SIGUSR1);
		waiter_join(&t);
		if (t.n == 1) {
			assert_int_equal(t.ev[0].data.u64, w.data[i]);
		} else {
			assert_int_equal(t.n, -1);
			assert_int_equal(t.err, EINTR);
			assert_true(ep_one(w.ep, EPOLLIN, w.data[i]));
		}
		assert_int_equal(ep_count(w.ep), 0);
		wset_close(&w);
	}
	restore(SIGUSR1, &old);
}

static struct subject handler_sub;

static void signal_sub(int sig)
{
	(void)sig;
	__atomic_add_fetch(&runs_count, 1, __ATOMIC_SEQ_CST);
	subject_poke(&handler_sub);
}

/* The event that the handler makes comes too late for the wait that it ended. */
static void EP_SIG_08_event_made_by_the_handler_stays_queued(void **state)
{
	struct sigaction old = handle(SIGUSR1, signal_sub, SA_RESTART);

	for (int e = 0; e < ENTRIES; e++) {
		struct wset w = wset_open(WSET_OF(state), EPOLLET);
		struct waiter t;

		handler_sub = w.sub[e % w.nsub];
		waiter_sleep(&t, e, w.ep, -1, NULL);
		interrupted(&t, SIGUSR1);
		assert_true(ep_one(w.ep, EPOLLIN, w.data[e % w.nsub]));
		assert_int_equal(ep_count(w.ep), 0);
		wset_close(&w);
	}
	restore(SIGUSR1, &old);
}

static sigjmp_buf away;
static bool jumps;

static void come_and_go(int sig)
{
	int saved = errno;

	(void)sig;
	subject_fill(&handler_sub);
	subject_drain(&handler_sub);
	errno = saved;
	if (jumps)
		siglongjmp(away, 1);
}

/* What the handler has made and taken back takes no slot of the next wait. */
static void EP_ORD_06_what_a_handler_took_back_takes_no_slot(void **state)
{
	struct sigaction old = handle(SIGALRM, come_and_go, SA_RESTART);

	(void)state;
	for (volatile int how = 0; how < 2 * ENTRIES; how++) {
		volatile int ep = ep_new();
		struct subject s[3];
		struct epoll_event ev[4];

		handler_sub = subject_new(how & 1 ? KIND_EVENTFD : KIND_PIPE);
		/* ThreadSanitizer runs handlers where it likes, also where none may jump. */
		jumps = (how & 2) && !(SANITIZED == 2 && under_pollux());
		ep_add(ep, handler_sub.fd, EPOLLIN, 9);
		for (int i = 0; i < 3; i++) {
			s[i] = subject_new(KIND_PIPE);
			ep_add(ep, s[i].fd, EPOLLIN, (uint64_t)i + 1);
		}
		if (sigsetjmp(away, 1) == 0) {
			alarms_every(20000);
			assert_errno(wait_by(how % ENTRIES, ep, ev, 4, SOON_MS, NULL), EINTR);
		}
		alarms_every(0);
		for (int i = 0; i < 3; i++)
			subject_fill(&s[i]);
		assert_int_equal(epoll_wait(ep, ev, 2, 0), 2);
		assert_int_equal(ev[0].data.u64, 1);
		assert_int_equal(ev[1].data.u64, 2);
		assert_int_equal(epoll_wait(ep, ev, 4, 0), 3);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(ev[i].data.u64, (2 + i) % 3 + 1);
			subject_close(&s[i]);
		}
		subject_close(&handler_sub);
		close(ep);
	}
	restore(SIGALRM, &old);
}

int main(void)
{
	static const struct CMUnitTest ep_sig[] = {
		EACH_WSET(EP_SIG_01_event_wins_over_a_pending_signal),
		EACH_WSET(EP_SIG_01_ready_set_never_gives_eintr),
		EACH_WSET(EP_SIG_02_handler_ends_the_sleep),
		cmocka_unit_test(EP_SIG_02_handler_ends_the_sleep_on_an_empty_epoll),
		EACH_WSET(EP_SIG_02_handler_ends_the_sleep_when_all_is_over),
		EACH_WSET(EP_SIG_02_other_sleepers_sleep_on),
		EACH_WSET(EP_SIG_02_handler_may_jump_out_of_the_wait),
		EACH_WSET(EP_SIG_03_ignored_signals_do_not_interrupt),
		EACH_WSET(EP_SIG_04_stop_and_continue_give_eintr),
		EACH_WSET(EP_SIG_05_timeout_zero_never_gives_eintr),
		EACH_WSET(EP_SIG_05_timeout_zero_in_a_storm_of_signals),
		EACH_WSET(EP_SIG_06_pending_signal_ends_an_empty_wait),
		EACH_WSET(EP_SIG_06_signal_let_in_during_the_sleep),
		EACH_WSET(EP_SIG_06_signal_kept_out_during_the_sleep),
		EACH_WSET(EP_SIG_06_other_endings_leave_the_signal_pending),
		EACH_WSET(EP_SIG_06_signal_blocked_on_both_sides_waits),
		EACH_WSET(EP_SIG_06_no_window_between_mask_and_wait),
		EACH_WSET(EP_SIG_07_fatal_signal_ends_a_busy_thread),
		EACH_WSET(EP_SIG_08_event_survives_eintr),
		EACH_WSET(EP_SIG_08_event_made_by_the_handler_stays_queued),
		cmocka_unit_test(EP_ORD_06_what_a_handler_took_back_takes_no_slot),
	};

	return run_group(ep_sig);
}
