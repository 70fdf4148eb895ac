/* SPDX-License-Identifier: MIT */
/*
 * A handler that runs while its thread sleeps in a call: for everybody else the thread does not
 * sleep there any more. It stands in no queue, it holds no file, and if the call begins anew
 * (SA_RESTART) it begins with what its number means by then (EP-SIG-02, EFD-05, EFD-10).
 */
#include "waiting.h"

#include <ucontext.h>

enum call { READ, WRITE, POLL, SELECT, WAIT, CALLS };

/* Thread that makes one call on fd, or waits on ep for it. */
struct caller {
	struct test_thread t;
	enum call how;
	int fd;
	int ep;
	long n;
	int err;
	uint64_t value;
};

static long call_make(struct caller *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set set;

	switch (c->how) {
	case READ:
		return read(c->fd, &c->value, sizeof(c->value));
	case WRITE:
		c->value = 1;
		return write(c->fd, &c->value, sizeof(c->value));
	case POLL:
		return poll(&p, 1, -1);
	case SELECT:
		FD_ZERO(&set);
		FD_SET(c->fd, &set);
		return select(c->fd + 1, &set, NULL, NULL, NULL);
	default:
		return epoll_wait(c->ep, &ev, 1, -1);
	}
}

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	errno = 0;
	c->n = call_make(c);
	c->err = errno;
	return NULL;
}

static void caller_start(struct caller *c, enum call how, int fd, int ep)
{
	*c = (struct caller){.how = how, .fd = fd, .ep = ep};
	thread_start(&c->t, caller_main, c);
	assert_true(thread_asleep(&c->t));
}

static void join(struct caller *c)
{
	assert_true(thread_join(&c->t, SOON_MS));
}

static struct sigaction handle_by(void (*handler)(int), int flags)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags}, old;

	assert_ok(sigaction(SIGUSR1, &sa, &old));
	return old;
}

static void handle_again(const struct sigaction *old)
{
	assert_ok(sigaction(SIGUSR1, old, NULL));
}

/* --- handlers that last --------------------------------------------------------------------- */

static int in_handler, leave_handler;

/* Stays until it is let go, without a call that could be ours. */
static void linger(int sig)
{
	(void)sig;
	__atomic_store_n(&in_handler, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&leave_handler, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void lingers(struct caller *c)
{
	int64_t end = now_ms() + SOON_MS;

	__atomic_store_n(&in_handler, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&leave_handler, 0, __ATOMIC_RELEASE);
	assert_int_equal(pthread_kill(c->t.id, SIGUSR1), 0);
	while (!__atomic_load_n(&in_handler, __ATOMIC_ACQUIRE) && now_ms() < end)
		sched_yield();
	assert_int_equal(__atomic_load_n(&in_handler, __ATOMIC_ACQUIRE), 1);
}

static void leaves(void)
{
	__atomic_store_n(&leave_handler, 1, __ATOMIC_RELEASE);
}

/* An event goes to who waits, not to a thread in a handler. */
static void EP_SIG_02_event_goes_past_a_thread_in_a_handler(void **state)
{
	struct sigaction old = handle_by(linger, SA_RESTART);

	for (int first = 0; first < 2; first++) {
		struct wset w = wset_open(WSET_OF(state), EPOLLET);
		struct caller c[2];

		caller_start(&c[0], WAIT, -1, w.ep);
		caller_start(&c[1], WAIT, -1, w.ep);
		lingers(&c[first]);
		subject_fill(&w.sub[0]);
		join(&c[!first]);
		assert_int_equal(c[!first].n, 1);
		assert_int_equal(ep_count(w.ep), 0);
		leaves();
		join(&c[first]);
		assert_int_equal(c[first].n, -1);
		assert_int_equal(c[first].err, EINTR);
		wset_close(&w);
	}
	handle_again(&old);
}

/* Of two epolls that watch a file exclusively the one is told that somebody waits on. */
static void EP_EXC_05_exclusive_wake_goes_past_a_thread_in_a_handler(void **state)
{
	struct sigaction old = handle_by(linger, SA_RESTART);

	for (int first = 0; first < 2; first++) {
		struct subject s = subject_new(KIND_OF(state));
		int ep[2] = {ep_new(), ep_new()};
		struct caller c[2];

		for (int i = 0; i < 2; i++)
			ep_add(ep[i], s.fd, EPOLLIN | EPOLLEXCLUSIVE, 1);
		caller_start(&c[0], WAIT, -1, ep[0]);
		caller_start(&c[1], WAIT, -1, ep[1]);
		lingers(&c[first]);
		subject_fill(&s);
		join(&c[!first]);
		assert_int_equal(c[!first].n, 1);
		leaves();
		join(&c[first]);
		assert_int_equal(c[first].err, EINTR);
		subject_close(&s);
		close(ep[0]);
		close(ep[1]);
	}
	handle_again(&old);
}

/* While its only waiter is in a handler a file that is closed is gone from the epoll. */
static void EP_KEY_06_a_thread_in_a_handler_holds_no_file(void **state)
{
	static const enum call calls[] = {READ, POLL, SELECT};
	struct sigaction old = handle_by(linger, 0);

	(void)state;
	for (int i = 0; i < 3; i++) {
		int fd = efd_new(0, 0), ep = ep_new();
		struct caller c;

		ep_add(ep, fd, EPOLLIN | EPOLLOUT, 1);
		assert_true(ep_one(ep, EPOLLOUT, 1));
		caller_start(&c, calls[i], fd, -1);
		lingers(&c);
		assert_ok(close_in_use(fd));
		assert_int_equal(ep_count(ep), 0);
		leaves();
		join(&c);
		assert_int_equal(c.err, EINTR);
		close(ep);
	}
	handle_again(&old);
}

/* --- handlers that change what the number means --------------------------------------------- */

static int number, other;

static void replace_number(int sig)
{
	(void)sig;
	dup2(other, number);
}

static void close_number(int sig)
{
	(void)sig;
	close_in_use(number);
}

/* A read or write that begins anew finds what its number means then. */
static void EFD_05_restarted_read_reads_what_the_number_means_now(void **state)
{
	struct sigaction old = handle_by(replace_number, SA_RESTART);
	struct caller c;

	(void)state;
	number = efd_new(0, 0);
	other = efd_new(7, 0);
	caller_start(&c, READ, number, -1);
	pthread_kill(c.t.id, SIGUSR1);
	join(&c);
	assert_int_equal(c.n, 8);
	assert_int_equal(c.value, 7);
	close(number);
	close(other);
	handle_again(&old);
}

static void EFD_05_restarted_read_finds_its_number_closed(void **state)
{
	struct sigaction old = handle_by(close_number, SA_RESTART);
	struct caller c;

	(void)state;
	number = efd_new(0, 0);
	caller_start(&c, READ, number, -1);
	pthread_kill(c.t.id, SIGUSR1);
	join(&c);
	assert_int_equal(c.n, -1);
	assert_int_equal(c.err, EBADF);
	handle_again(&old);
}

static void EFD_10_restarted_write_writes_to_what_the_number_means_now(void **state)
{
	struct sigaction old = handle_by(replace_number, SA_RESTART);
	struct caller c;

	(void)state;
	number = efd_new(0, 0);
	other = efd_new(7, 0);
	efd_add(number, COUNT_MAX);
	caller_start(&c, WRITE, number, -1);
	pthread_kill(c.t.id, SIGUSR1);
	join(&c);
	assert_int_equal(c.n, 8);
	assert_int_equal(efd_take(other), 8);
	close(number);
	close(other);
	handle_again(&old);
}

/* It goes on as often as handlers come, and ends with one that has no SA_RESTART. */
static void EFD_05_read_goes_on_until_a_handler_that_ends_it(void **state)
{
	struct sigaction old = handle_by(SIG_IGN, 0);
	int fd = efd_new(0, 0);
	struct caller c;

	(void)state;
	handle_again(&old);
	old = handle_by(linger, SA_RESTART);
	caller_start(&c, READ, fd, -1);
	for (int i = 0; i < 20; i++) {
		lingers(&c);
		leaves();
		assert_true(thread_asleep(&c.t));
		assert_false(thread_done(&c.t));
	}
	handle_by(linger, 0);
	lingers(&c);
	leaves();
	join(&c);
	assert_int_equal(c.err, EINTR);
	close(fd);
	handle_again(&old);
}

/* --- handlers that do not return ------------------------------------------------------------ */

static __thread sigjmp_buf away;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(away, 1);
}

static void *jumper_main(void *volatile arg)
{
	struct caller *volatile c = arg;

	if (sigsetjmp(away, 1) == 0) {
		call_make(c);
		return NULL;
	}
	return c;
}

/* What a jump has left behind holds no file: closed, it is gone from the epoll that watches it. */
static void EP_KEY_06_jump_out_of_a_call_holds_no_file(void **state)
{
	static const enum call calls[] = {READ, POLL, SELECT, WAIT};
	struct sigaction old = handle_by(jump, 0);

	(void)state;
	for (int i = 0; i < 4; i++) {
		int fd = efd_new(0, 0), ep = ep_new(), inner = ep_new();
		struct caller c = {.how = calls[i], .fd = fd, .ep = inner};

		ep_add(ep, fd, EPOLLIN | EPOLLOUT, 1);
		assert_true(ep_one(ep, EPOLLOUT, 1));
		ep_add(inner, fd, EPOLLIN, 2);
		thread_start(&c.t, jumper_main, &c);
		assert_true(thread_asleep(&c.t));
		pthread_kill(c.t.id, SIGUSR1);
		join(&c);
		assert_ptr_equal(c.t.ret, &c);
		close(fd);
		assert_int_equal(ep_count(ep), 0);
		close(inner);
		close(ep);
	}
	handle_again(&old);
}

/* --- handlers that go elsewhere for a while ------------------------------------------------- */

#define ROUNDS 40

static ucontext_t fiber[2], fibers_begin;
static int running, fibers_over;
static int fiber_fd[2], fiber_ep[2];

/* Takes the thread away from one fiber and gives it to the other, in the middle of its sleep. */
static void switch_fibers(int sig)
{
	int from = running;

	(void)sig;
	if (fibers_over)
		return;
	running = !from;
	swapcontext(&fiber[from], &fiber[running]);
}

static void fiber_main(int me)
{
	struct epoll_event ev;
	uint64_t v;

	for (int i = 0; i < ROUNDS; i++) {
		if (i % 2 && epoll_wait(fiber_ep[me], &ev, 1, -1) == -1 && errno != EINTR)
			break;
		if (!(i % 2) && read(fiber_fd[me], &v, sizeof(v)) == -1 && errno != EINTR)
			break;
	}
	if (__atomic_add_fetch(&fibers_over, 1, __ATOMIC_RELEASE) == 2)
		setcontext(&fibers_begin);
	/* The other one, which is in its handler. */
	running = !me;
	setcontext(&fiber[running]);
}

static char fiber_stack[256 * 1024];

static void *fibers_main(void *arg)
{
	(void)arg;
	getcontext(&fibers_begin);
	if (__atomic_load_n(&fibers_over, __ATOMIC_ACQUIRE) == 2)
		return NULL;
	getcontext(&fiber[1]);
	fiber[1].uc_stack.ss_sp = fiber_stack;
	fiber[1].uc_stack.ss_size = sizeof(fiber_stack);
	makecontext(&fiber[1], (void (*)(void))fiber_main, 1, 1);
	fiber_main(0);
	return NULL;
}

/* Two fibers, of which each is preempted in its sleeps by a signal, and goes on after it. */
static void EP_SIG_02_handlers_may_switch_stacks(void **state)
{
	struct sigaction old = handle_by(switch_fibers, SA_NODEFER);
	struct test_thread t;
	int64_t end = now_ms() + SOON_MS;

	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer has to be told of stacks that are switched");
	running = fibers_over = 0;
	for (int i = 0; i < 2; i++) {
		fiber_fd[i] = efd_new(0, 0);
		fiber_ep[i] = ep_new();
		ep_add(fiber_ep[i], fiber_fd[i], EPOLLIN, 1);
	}
	thread_start(&t, fibers_main, NULL);
	while (__atomic_load_n(&fibers_over, __ATOMIC_ACQUIRE) == 0 && now_ms() < end) {
		/* Two signals may have come to one sleep, so that it is over sooner. */
		if (!thread_asleep(&t))
			break;
		pthread_kill(t.id, SIGUSR1);
	}
	assert_int_not_equal(__atomic_load_n(&fibers_over, __ATOMIC_ACQUIRE), 0);
	/* The other one's calls, up to the last. */
	for (int i = 0; i < 2; i++)
		efd_add(fiber_fd[i], 1);
	while (!thread_done(&t) && now_ms() < end) {
		for (int i = 0; i < 2; i++)
			efd_add(fiber_fd[i], 1);
		sleep_ms(1);
	}
	assert_true(thread_join(&t, 1));
	handle_again(&old);
	for (int i = 0; i < 2; i++) {
		close(fiber_fd[i]);
		close(fiber_ep[i]);
	}
}

/* --- a storm of handlers -------------------------------------------------------------------- */

#define TAKERS 3
#define EVENTS 400

struct storm {
	enum call how;
	bool jumps;
	int fd;
	int ep;
	uint64_t taken;
	int over;
};

static struct storm storm;
static __thread bool may_jump;

static void strike(int sig)
{
	static unsigned int count;

	(void)sig;
	if (may_jump)
		siglongjmp(away, 1);
	if (__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) % 8 == 0)
		sched_yield();
}

/* Sleeps until there may be something; handlers may leave it by a jump. */
static void storm_sleep(void)
{
	struct pollfd p = {.fd = storm.fd, .events = POLLIN};
	struct epoll_event ev;

	if (storm.jumps && sigsetjmp(away, 1) != 0) {
		may_jump = false;
		return;
	}
	may_jump = storm.jumps;
	if (storm.how == POLL)
		poll(&p, 1, -1);
	else
		epoll_wait(storm.ep, &ev, 1, -1);
	may_jump = false;
}

/* Takes until it is over. Only what is not taken by a read that blocks is slept for. */
static void *taker_main(void *arg)
{
	uint64_t v;
	ssize_t n;

	while (!__atomic_load_n(&storm.over, __ATOMIC_ACQUIRE)) {
		if (storm.how != READ)
			storm_sleep();
		n = read(storm.fd, &v, sizeof(v));
		if (n > 0)
			__atomic_add_fetch(&storm.taken, 1, __ATOMIC_RELEASE);
	}
	return arg;
}

static void storm_event(void)
{
	uint64_t one = 1;

	assert_int_equal(write(storm.fd, &one, sizeof(one)), sizeof(one));
}

/* Event after event, each of which somebody takes, while all of them run handlers. */
static void storm_run(enum call how, bool jumps)
{
	struct sigaction old = handle_by(strike, SA_RESTART);
	struct test_thread t[TAKERS];

	storm = (struct storm){.how = how, .jumps = jumps, .ep = ep_new()};
	storm.fd = efd_new(0, EFD_SEMAPHORE | (how == READ ? 0 : EFD_NONBLOCK));
	ep_add(storm.ep, storm.fd, EPOLLIN, 1);
	for (int i = 0; i < TAKERS; i++)
		thread_start(&t[i], taker_main, NULL);
	for (uint64_t n = 1; n <= EVENTS; n++) {
		int64_t end = now_ms() + SOON_MS;

		storm_event();
		for (int i = 0; __atomic_load_n(&storm.taken, __ATOMIC_ACQUIRE) < n; i++) {
			if (i < 3)
				pthread_kill(t[(n + (uint64_t)i) % TAKERS].id, SIGUSR1);
			else
				sched_yield();
			if (now_ms() > end) {
				print_error("event %d of %d is not taken\n", (int)n, EVENTS);
				fail();
			}
		}
		for (int i = 0; i < TAKERS; i++)
			pthread_kill(t[i].id, SIGUSR1);
	}
	__atomic_store_n(&storm.over, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < TAKERS; i++)
		storm_event();
	for (int i = 0; i < TAKERS; i++) {
		/* One may have taken what was for another. */
		while (!thread_join(&t[i], 10))
			storm_event();
	}
	handle_again(&old);
	close(storm.ep);
	close(storm.fd);
}

static void EP_SIG_08_no_event_is_lost_in_a_storm_of_handlers(void **state)
{
	(void)state;
	storm_run(WAIT, false);
}

static void EP_SIG_08_no_event_is_lost_in_a_storm_of_jumps(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes, also where none may jump");
	storm_run(WAIT, true);
	storm_run(POLL, true);
}

static void ESCAPE_no_poll_is_lost_in_a_storm_of_handlers(void **state)
{
	(void)state;
	storm_run(POLL, false);
}

static void EFD_05_no_read_is_lost_in_a_storm_of_handlers(void **state)
{
	(void)state;
	storm_run(READ, false);
}

int main(void)
{
	static const struct CMUnitTest handlers[] = {
		EACH_WSET(EP_SIG_02_event_goes_past_a_thread_in_a_handler),
		EACH_KIND(EP_EXC_05_exclusive_wake_goes_past_a_thread_in_a_handler),
		cmocka_unit_test(EP_KEY_06_a_thread_in_a_handler_holds_no_file),
		cmocka_unit_test(EFD_05_restarted_read_reads_what_the_number_means_now),
		cmocka_unit_test(EFD_05_restarted_read_finds_its_number_closed),
		cmocka_unit_test(EFD_10_restarted_write_writes_to_what_the_number_means_now),
		cmocka_unit_test(EFD_05_read_goes_on_until_a_handler_that_ends_it),
		cmocka_unit_test(EP_KEY_06_jump_out_of_a_call_holds_no_file),
		cmocka_unit_test(EP_SIG_02_handlers_may_switch_stacks),
		cmocka_unit_test(EP_SIG_08_no_event_is_lost_in_a_storm_of_handlers),
		cmocka_unit_test(EP_SIG_08_no_event_is_lost_in_a_storm_of_jumps),
		cmocka_unit_test(ESCAPE_no_poll_is_lost_in_a_storm_of_handlers),
		cmocka_unit_test(EFD_05_no_read_is_lost_in_a_storm_of_handlers),
	};

	NEEDS_HANDLERS_IN_PLACE();
	return run_group(handlers);
}
