/* SPDX-License-Identifier: MIT */
/*
 * The actions of signals: each call of sigaction is one step, whatever other threads do. What it
 * returns, and what a handler runs with, is one action as it was set. No rule says so.
 */
#include "waiting.h"

#include <linux/aio_abi.h>

/* More than anybody keeps a place for. */
#define MANY 2000
#define FEW 40
#define RESTORER 0x04000000
#define STORM_MS 300
#define SETTERS 2

static const int sigs[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM, SIGFPE, SIGSEGV, SIGBUS};
#define SIGS ((int)(sizeof(sigs) / sizeof(sigs[0])))

static volatile sig_atomic_t runs;
static uint64_t run_with;

static void notes_mask(int sig)
{
	sigset_t now;

	(void)sig;
	sigprocmask(SIG_BLOCK, NULL, &now);
	run_with = *(uint64_t *)&now;
	runs++;
}

static void notes_info(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_signo == sig)
		notes_mask(sig);
}

static struct sigaction nth_action(int i)
{
	static const int flags[] = {
		0,	    SA_RESTART,	  SA_ONSTACK,	SA_NODEFER,
		SA_SIGINFO, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_RESTART | SA_ONSTACK};
	struct sigaction act = {.sa_handler = notes_mask, .sa_flags = flags[i % 8]};

	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction = notes_info;
	if (i % 11 == 7)
		act.sa_handler = i % 2 ? SIG_DFL : SIG_IGN;
	*(uint64_t *)&act.sa_mask = (uint64_t)(i + 1) << 40;
	return act;
}

static void assert_same_action(const struct sigaction *a, const struct sigaction *b)
{
	assert_ptr_equal(a->sa_handler, b->sa_handler);
	assert_int_equal(a->sa_flags & ~RESTORER, b->sa_flags & ~RESTORER);
	assert_true(*(const uint64_t *)&a->sa_mask == *(const uint64_t *)&b->sa_mask);
}

/* An eventfd works in between. */
static void count_up(int fd)
{
	uint64_t v = 1;

	assert_int_equal(write(fd, &v, sizeof(v)), 8);
	assert_int_equal(read(fd, &v, sizeof(v)), 8);
	assert_true(v == 1);
}

static void set_actions(int n)
{
	struct sigaction was[SIGS], old, now, first[SIGS];
	int fd = efd_new(0, EFD_NONBLOCK);

	for (int k = 0; k < SIGS; k++) {
		assert_ok(sigaction(sigs[k], NULL, &was[k]));
		first[k] = was[k];
	}
	for (int i = 0; i < n; i++) {
		int k = i % SIGS;
		struct sigaction act = nth_action(i);

		assert_ok(sigaction(sigs[k], &act, &old));
		assert_same_action(&old, &was[k]);
		was[k] = act;
		assert_ok(sigaction(sigs[k], NULL, &now));
		assert_same_action(&now, &act);
		count_up(fd);
		if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN)
			continue;
		runs = 0;
		assert_ok(raise(sigs[k]));
		assert_int_equal(runs, 1);
		assert_true(run_with == (*(uint64_t *)&act.sa_mask |
					 (act.sa_flags & SA_NODEFER ? 0 : 1ull << (sigs[k] - 1))));
	}
	for (int k = 0; k < SIGS; k++)
		assert_ok(sigaction(sigs[k], &first[k], NULL));
	close(fd);
}

static void SIGNAL_actions_are_read_back_as_they_were_set(void **state)
{
	(void)state;
	set_actions(FEW);
}

static void SIGNAL_a_handler_that_is_reset_leaves_its_action(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (int k = 0; k < SIGS; k++) {
		struct sigaction act = {.sa_handler = notes_mask,
					.sa_flags = (int)SA_RESETHAND | SA_RESTART},
				 old, now;

		sigaddset(&act.sa_mask, SIGHUP);
		assert_ok(sigaction(sigs[k], &act, &old));
		runs = 0;
		assert_ok(raise(sigs[k]));
		assert_int_equal(runs, 1);
		act.sa_handler = SIG_DFL;
		assert_ok(sigaction(sigs[k], NULL, &now));
		assert_same_action(&now, &act);
		assert_ok(sigaction(sigs[k], &old, NULL));
	}
	close(fd);
}

/* --- beside others ------------------------------------------------------------------------ */

static void on_first(int sig);
static void on_second(int sig);
static const struct {
	void (*handler)(int);
	int flags, masks;
} two[2] = {{on_first, SA_RESTART, SIGHUP}, {on_second, 0, SIGTERM}};

static bool stop;
static unsigned long met[2];
static const char *wrong;

static void mixed_up(const char *what)
{
	__atomic_store_n(&wrong, what, __ATOMIC_RELAXED);
}

/* Which of the two an action is. */
static int which(const struct sigaction *act)
{
	int i = act->sa_handler == on_second;

	if (act->sa_handler != two[i].handler)
		mixed_up("a handler of nobody");
	else if ((act->sa_flags & ~RESTORER) != two[i].flags ||
		 *(const uint64_t *)&act->sa_mask != 1ull << (two[i].masks - 1))
		mixed_up("the rest of another action");
	return i;
}

static void on(int i)
{
	sigset_t now;

	sigprocmask(SIG_BLOCK, NULL, &now);
	if (sigismember(&now, two[i].masks) != 1 || sigismember(&now, two[!i].masks) != 0)
		mixed_up("the mask of another action");
	met[i]++;
}

static void on_first(int sig)
{
	(void)sig;
	on(0);
}

static void on_second(int sig)
{
	(void)sig;
	on(1);
}

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&wrong, __ATOMIC_RELAXED);
}

static void set(int i, struct sigaction *old)
{
	struct sigaction act = {.sa_handler = two[i].handler, .sa_flags = two[i].flags};

	sigaddset(&act.sa_mask, two[i].masks);
	sigaction(SIGUSR1, &act, old);
}

/* What each call returns is what one of the others has set, or this one before. */
static void *setter(void *arg)
{
	long *balance = arg;
	struct sigaction old;

	for (int i = 0; !stopped(); i = !i) {
		set(i, &old);
		*balance += i - which(&old);
		sigaction(SIGUSR1, NULL, &old);
		(void)which(&old);
	}
	return NULL;
}

static void *victim(void *arg)
{
	int *fd = arg;
	struct epoll_event ev;
	uint64_t v = 1;

	while (!stopped()) {
		if (write(fd[0], &v, sizeof(v)) != sizeof(v) || epoll_wait(fd[1], &ev, 1, 0) < 0 ||
		    read(fd[0], &v, sizeof(v)) != sizeof(v))
			mixed_up("a call has failed");
		raise(SIGUSR1);
		v = 1;
	}
	return NULL;
}

static void SIGNAL_an_action_is_one_whole_beside_others(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct test_thread setters[SETTERS], v;
	struct sigaction was, first, last;
	long balance[SETTERS] = {0}, sum = 0;
	int fd[2] = {efd_new(0, EFD_NONBLOCK), assert_ok(epoll_create1(0))};
	int64_t end = now_ms() + STORM_MS;

	(void)state;
	assert_ok(epoll_ctl(fd[1], EPOLL_CTL_ADD, fd[0], &ev));
	set(0, &was);
	set(0, &first);
	thread_start(&v, victim, fd);
	for (int i = 0; i < SETTERS; i++)
		thread_start(&setters[i], setter, &balance[i]);
	while (now_ms() < end && !stopped())
		pthread_kill(v.id, SIGUSR1);
	/* Both handlers have run. */
	while (now_ms() < end + SOON_MS && !stopped() && (!met[0] || !met[1]))
		pthread_kill(v.id, SIGUSR1);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	assert_true(thread_join(&v, SOON_MS));
	for (int i = 0; i < SETTERS; i++) {
		assert_true(thread_join(&setters[i], SOON_MS));
		sum += balance[i];
	}
	print_message("%lu and %lu handlers\n", met[0], met[1]);
	assert_null(wrong);
	assert_true(met[0] && met[1]);
	/* Each action has been returned once for each time that it was set, but for the last. */
	assert_ok(sigaction(SIGUSR1, &was, &last));
	assert_int_equal(sum, which(&last));
	close(fd[0]);
	close(fd[1]);
}

/* What Pollux keeps of actions is used up by it, for what follows. */
static void SIGNAL_of_any_number_of_actions(void **state)
{
	(void)state;
	set_actions(MANY);
}

/* After that nobody but the program hears of a fault. */
static void SIGNAL_bad_pointers_are_faults_of_the_call_then(void **state)
{
	int ep = assert_ok(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event ev;
	struct io_event got;
	aio_context_t ctx = 0;
	char *bad = (char *)16;

	(void)state;
	assert_errno(syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8L), EFAULT);
	assert_errno(syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8L), EFAULT);
	assert_errno(syscall(SYS_epoll_pwait2, ep, &ev, 1, bad, NULL, 8L), EFAULT);
	assert_errno(syscall(SYS_clone3, bad, 64L), EFAULT);
	if (syscall(SYS_io_setup, 1, &ctx) == 0) {
		assert_errno(syscall(SYS_io_getevents, ctx, 1L, 1L, &got, bad), EFAULT);
		assert_ok(syscall(SYS_io_destroy, ctx));
	}
	close(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(SIGNAL_actions_are_read_back_as_they_were_set),
		cmocka_unit_test(SIGNAL_a_handler_that_is_reset_leaves_its_action),
		cmocka_unit_test(SIGNAL_an_action_is_one_whole_beside_others),
		cmocka_unit_test(SIGNAL_of_any_number_of_actions),
		cmocka_unit_test(SIGNAL_bad_pointers_are_faults_of_the_call_then),
	};

	NEEDS_HANDLERS_IN_PLACE();
	return run_group(tests);
}
