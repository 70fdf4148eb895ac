/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers that make calls of their own, whatever call they have interrupted and
 * at whatever instruction of it: nothing hangs, nothing is lost, and what a handler has
 * done is done. For a handler a system call is one step.
 *
 * One thread makes all kinds of calls under fire from a timer; each test is about one
 * thing that the handler does. POLLUX_TORTURE_SECONDS is the time for one test (default
 * 0.5, 20 in long runs).
 */
#include "harness.h"

#include <sched.h>
#include <setjmp.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define FILES 3

enum call {
	WRITE,
	READ,
	WAIT,
	SLEEP,
	CTL_MOD,
	ADD_DEL,
	NEW_CLOSE,
	DUP_CLOSE,
	POLL,
	SELECT,
	BLOCKED_READ,
	LEAVE,
	CALLS
};

static const char *const call_name[CALLS] = {"write", "read",	 "wait",	 "sleep",
					     "MOD",   "ADD+DEL", "new",		 "dup",
					     "poll",  "select",	 "blocked read", "leave"};

/*
 * What the victim works on. `efd` are watched by `ep` and by `own`; whatever is written
 * to the first is counted. Objects that have left for the kernel stay there, so they are
 * made anew now and then.
 */
static struct {
	int efd[FILES];
	int own, ep, pipe[2], blocked;
} set;
static unsigned long written, taken, fired, within[CALLS];
static volatile sig_atomic_t in_call, all_left;
static const char *volatile wrong;
static int stop;
static void (*act)(uint32_t *rnd);
static struct sigaction sa_old;
static uint32_t handler_rnd;
static timer_t timer;

static int wrong_errno;

static void went_wrong(const char *what)
{
	if (!wrong)
		wrong_errno = errno;
	wrong = what;
}

#define atomic_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define atomic_get(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define must(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			went_wrong(#cond);                                                         \
	} while (0)

static uint32_t random_below(uint32_t *s, uint32_t n)
{
	return rnd(s) % n;
}

static int64_t torture_ms(void)
{
	const char *s = getenv("POLLUX_TORTURE_SECONDS");

	if (s)
		return (int64_t)(strtod(s, NULL) * 1000);
	return getenv("POLLUX_TEST_LONG") ? 20000 : 500;
}

static void put(int fd, uint64_t v)
{
	if (write(fd, &v, sizeof(v)) == sizeof(v))
		atomic_add(&written, v);
	else
		wrong = "a write failed";
}

static void take(int fd)
{
	uint64_t v;

	if (read(fd, &v, sizeof(v)) == sizeof(v))
		atomic_add(&taken, v);
}

static void handler(int sig)
{
	int saved = errno;

	(void)sig;
	fired++;
	within[in_call]++;
	act(&handler_rnd);
	errno = saved;
}

static void set_open(void)
{
	set.own = epoll_create1(EPOLL_CLOEXEC);
	must(set.own >= 0);
	for (int i = 0; i < FILES; i++) {
		set.efd[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		must(set.efd[i] >= 0);
		must(ep_ctl(set.own, EPOLL_CTL_ADD, set.efd[i], EPOLLIN | EPOLLET, i) == 0);
		/* One has a single watch, for which there are shorter ways. */
		must(!i || ep_ctl(set.ep, EPOLL_CTL_ADD, set.efd[i], EPOLLIN | EPOLLET, i) == 0);
	}
	set.blocked = eventfd(0, EFD_CLOEXEC);
	must(set.blocked >= 0);
}

static void set_close(void)
{
	for (int i = 0; i < FILES; i++) {
		take(set.efd[i]);
		must(close(set.efd[i]) == 0);
	}
	must(close(set.blocked) == 0);
	must(close(set.own) == 0);
}

/* With the signal blocked: the handler must not find half a set. */
static void set_renew(void)
{
	sigset_t usr2;

	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &usr2, NULL);
	set_close();
	set_open();
	pthread_sigmask(SIG_UNBLOCK, &usr2, NULL);
}

static void one_call(enum call call, uint32_t *r)
{
	struct pollfd p[3] = {{.fd = set.efd[0], .events = POLLIN},
			      {.fd = set.pipe[0], .events = POLLIN},
			      {.fd = set.efd[1], .events = POLLIN}};
	struct epoll_event ev[FILES];
	struct timeval tv = {.tv_usec = 50};
	int i = random_below(r, FILES);
	int fd, n;
	fd_set in;

	switch (call) {
	case WRITE:
		put(set.efd[i], 1);
		break;
	case READ:
		take(set.efd[i]);
		break;
	case WAIT:
		must(epoll_wait(set.own, ev, FILES, 0) >= 0);
		break;
	case SLEEP:
		n = epoll_wait(set.own, ev, 1, 1);
		must(n >= 0 || errno == EINTR);
		break;
	case CTL_MOD:
		must(ep_ctl(set.own, EPOLL_CTL_MOD, set.efd[i],
			    EPOLLIN | (random_below(r, 2) ? EPOLLET : 0), i) == 0);
		break;
	case ADD_DEL:
		fd = dup(set.efd[i]);
		must(fd >= 0);
		must(ep_ctl(set.own, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, i) == 0);
		must(ep_ctl(set.own, EPOLL_CTL_DEL, fd, 0, 0) == 0);
		must(close(fd) == 0);
		break;
	case NEW_CLOSE:
		fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
		must(fd >= 0);
		must(ep_ctl(set.own, EPOLL_CTL_ADD, fd, EPOLLIN, i) == 0);
		must(close(fd) == 0);
		break;
	case DUP_CLOSE:
		fd = fcntl(set.efd[i], F_DUPFD_CLOEXEC, 100);
		must(fd >= 100);
		must(close(fd) == 0);
		break;
	case POLL:
		n = poll(p, 3, 1);
		must(n >= 0 || errno == EINTR);
		break;
	case SELECT:
		FD_ZERO(&in);
		FD_SET(set.efd[i], &in);
		FD_SET(set.pipe[0], &in);
		n = select(set.efd[i] > set.pipe[0] ? set.efd[i] + 1 : set.pipe[0] + 1, &in, NULL,
			   NULL, &tv);
		must(n >= 0 || errno == EINTR);
		break;
	case BLOCKED_READ:
		put(set.blocked, 1);
		take(set.blocked);
		break;
	default:
		fd = dup(set.efd[i]);
		must(fcntl(fd, F_SETOWN, getpid()) == 0 || errno == EINVAL || errno == ENOTTY);
		must(close(fd) == 0);
		set_renew();
	}
}

static void *victim(void *arg)
{
	struct sigevent sev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	uint32_t r = 12345, turn = 0;

	(void)arg;
	sev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	must(timer_create(CLOCK_MONOTONIC, &sev, &timer) == 0);
	set_open();
	while (!atomic_get(&stop) && !wrong) {
		/* Leaving is dear, and all that follows is the kernel's own. */
		enum call call = random_below(&r, 400) ? random_below(&r, LEAVE) : LEAVE;

		/* All of them at first, for a slow machine does not come to a rare one. */
		if (turn < 2 * CALLS)
			call = turn++ % CALLS;
		if (all_left) {
			all_left = 0;
			set_renew();
		}
		in_call = call;
		for (int k = 0; k < 8; k++) {
			/* One shot each, so that a slow handler does not eat all the time. */
			struct itimerspec its = {.it_value.tv_nsec = 1 + random_below(&r, 15000)};

			timer_settime(timer, 0, &its, NULL);
			one_call(call, &r);
		}
	}
	timer_delete(timer);
	set_close();
	return NULL;
}

/*
 * Another thread, asleep most of the time, is told of what handlers write. Newer versions of libc's
 * fork block all signals for a moment: a child that ends then sends SIGCHLD to another thread,
 * whose sleep ends by it.
 */
static void *reader(void *arg)
{
	struct epoll_event ev[FILES];
	sigset_t chld;

	(void)arg;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &chld, NULL);
	while (!atomic_get(&stop))
		must(epoll_wait(set.ep, ev, FILES, 10) >= 0);
	return NULL;
}

static void run_victim(void (*what)(uint32_t *rnd), void *(*who)(void *), bool all_calls)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	int64_t start = now_ms();
	struct test_thread t[2];
	int calls = all_calls ? 0 : CALLS;

	written = taken = fired = 0;
	memset(within, 0, sizeof(within));
	handler_rnd = 4711;
	wrong = NULL;
	stop = 0;
	act = what;
	assert_ok(pipe2(set.pipe, O_NONBLOCK | O_CLOEXEC));
	set.ep = assert_ok(epoll_create1(EPOLL_CLOEXEC));
	assert_ok(sigaction(SIGUSR2, &sa, &sa_old));
	thread_start(&t[0], who, NULL);
	thread_start(&t[1], reader, NULL);
	while (!wrong && now_ms() - start < torture_ms())
		sleep_ms(5);
	/* Each kind of call has been met, if need be a little later. */
	while (!wrong && calls < CALLS && now_ms() - start < SOON_MS + torture_ms()) {
		for (calls = 0; calls < CALLS && atomic_get(&within[calls]); calls++)
			;
		sleep_ms(1);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	assert_true(thread_join(&t[0], SOON_MS));
	assert_true(thread_join(&t[1], SOON_MS));
	assert_ok(sigaction(SIGUSR2, &sa_old, NULL));
	print_message("%lu handlers, %lu written", fired, written);
	for (int i = 0; all_calls && i < CALLS; i++)
		print_message(" %s %lu", call_name[i], within[i]);
	print_message("\n");
	if (wrong)
		print_message("not so: %s (errno %d)\n", wrong, wrong_errno);
	assert_null((const char *)wrong);
	assert_int_equal(written, taken);
	assert_int_equal(calls, CALLS);
	close(set.pipe[0]);
	close(set.pipe[1]);
	close(set.ep);
}

static void run(void (*what)(uint32_t *rnd))
{
	run_victim(what, victim, true);
}

/* --- what handlers do ------------------------------------------------------------------- */

static void do_writes(uint32_t *r)
{
	char c = 'x';

	put(set.efd[random_below(r, FILES)], 1);
	if (write(set.pipe[1], &c, 1) < 0 && errno != EAGAIN)
		wrong = "a write to a pipe failed";
	if (random_below(r, 3) == 0)
		while (read(set.pipe[0], &c, 1) == 1)
			;
}

static void SIGNAL_handler_writes(void **state)
{
	(void)state;
	run(do_writes);
}

static void do_close(uint32_t *r)
{
	int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC), copy;
	struct epoll_event ev[16];
	int n;

	must(fd >= 0);
	must(ep_ctl(set.own, EPOLL_CTL_ADD, fd, EPOLLIN, 'h') == 0);
	copy = dup(fd);
	must(copy >= 0 && copy != fd);
	must(close(fd) == 0);
	/* Closed at the last number only: until then it is reported, from then on it is not. */
	if (random_below(r, 4) == 0) {
		n = epoll_wait(set.own, ev, 16, 0);
		while (n > 0 && ev[n - 1].data.u64 != 'h')
			n--;
		must(n > 0);
	}
	must(close(copy) == 0);
	must(fcntl(copy, F_GETFD) == -1 && errno == EBADF);
	n = epoll_wait(set.own, ev, 16, 0);
	while (n > 0)
		must(ev[--n].data.u64 != 'h');
}

static void SIGNAL_handler_closes(void **state)
{
	(void)state;
	run(do_close);
}

static void do_poll(uint32_t *r)
{
	struct pollfd p[2] = {{.fd = set.efd[random_below(r, FILES)], .events = POLLIN},
			      {.fd = set.pipe[0], .events = POLLIN}};
	struct timespec none = {0}, little = {.tv_nsec = 1000};
	fd_set in;

	must(ppoll(p, 2, random_below(r, 4) ? &none : &little, NULL) >= 0);
	FD_ZERO(&in);
	FD_SET(p[0].fd, &in);
	must(pselect(p[0].fd + 1, &in, NULL, NULL, &none, NULL) >= 0);
	if (p[0].revents & POLLIN)
		take(p[0].fd);
	else
		put(p[0].fd, 2);
}

static void SIGNAL_handler_polls(void **state)
{
	(void)state;
	run(do_poll);
}

static void do_ctl(uint32_t *r)
{
	int inner, fd = set.efd[random_below(r, FILES)];
	struct epoll_event ev[FILES];
	char c = 'x';

	inner = epoll_create1(EPOLL_CLOEXEC);
	must(inner >= 0);
	must(ep_ctl(inner, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
	must(ep_ctl(inner, EPOLL_CTL_ADD, set.pipe[0], EPOLLIN, 2) == 0);
	put(fd, 1);
	must(write(set.pipe[1], &c, 1) == 1);
	must(epoll_wait(inner, ev, FILES, -1) == 2);
	must(ep_ctl(inner, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 3) == 0);
	must(read(set.pipe[0], &c, 1) == 1);
	must(epoll_wait(inner, ev, FILES, 0) == 1 && ev[0].data.u64 == 3);
	must(ep_ctl(inner, EPOLL_CTL_DEL, fd, 0, 0) == 0);
	must(close(inner) == 0);
}

static void SIGNAL_handler_uses_an_epoll_of_its_own(void **state)
{
	(void)state;
	run(do_ctl);
}

static void do_dup(uint32_t *r)
{
	int fd = set.efd[random_below(r, FILES)];
	int to = 200 + (int)random_below(r, 4);

	must(dup2(fd, to) == to);
	put(to, 1);
	must(dup3(set.pipe[0], to, O_CLOEXEC) == to);
	must(close(to) == 0);
}

static void SIGNAL_handler_duplicates(void **state)
{
	(void)state;
	run(do_dup);
}

/* The object in the handler's hands, and nothing else, becomes the kernel's. */
static void do_escape(uint32_t *r)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, c = 'x';
	struct iovec iov = {.iov_base = &c, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
	int s[2], fd;

	fd = random_below(r, 64) ? eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC)
				 : dup(set.efd[random_below(r, FILES)]);
	must(ep_ctl(set.own, EPOLL_CTL_ADD, fd, EPOLLIN, 'h') == 0);
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, s) == 0);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	must(sendmsg(s[0], &m, 0) == 1);
	must(close(s[0]) == 0 && close(s[1]) == 0);
	must(ep_ctl(set.own, EPOLL_CTL_DEL, fd, 0, 0) == 0);
	must(close(fd) == 0);
}

static void SIGNAL_handler_passes_descriptors(void **state)
{
	(void)state;
	run(do_escape);
}

static void do_fork(uint32_t *r)
{
	int fd = set.efd[random_below(r, FILES)], status;
	uint64_t one = 1;
	pid_t pid;

	/* Each takes a while; most signals find a handler that only writes. */
	if (random_below(r, 40)) {
		put(fd, 1);
		return;
	}
	pid = random_below(r, 2) ? fork() : _Fork();
	if (pid == 0) {
		struct epoll_event ev[FILES];

		if (write(fd, &one, sizeof(one)) != sizeof(one) ||
		    epoll_wait(set.own, ev, FILES, 0) < 0 || close(fd) != 0)
			_exit(1);
		_exit(0);
	}
	must(pid > 0);
	all_left = 1;
	must(waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* The counter is shared (EFD-19). */
	atomic_add(&written, 1);
}

static void SIGNAL_handler_forks(void **state)
{
	(void)state;
	run(do_fork);
}

static void do_exec(uint32_t *r)
{
	static char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
	int status;
	pid_t pid;

	if (random_below(r, 100)) {
		put(set.efd[random_below(r, FILES)], 1);
		return;
	}
	pid = _Fork();
	if (pid == 0) {
		/* Inherited, hence the kernel's before the new program starts. */
		(void)fcntl(set.efd[0], F_SETFD, 0);
		execve("/bin/true", argv, envp);
		_exit(1);
	}
	must(pid > 0);
	all_left = 1;
	must(waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void SIGNAL_handler_forks_and_executes(void **state)
{
	(void)state;
	run(do_exec);
}

/* --- handlers that have interrupted malloc ----------------------------------------------- */

/* Objects are made and lost, so that whoever keeps memory for them has to get and free some. */
static void do_without_malloc(uint32_t *r)
{
	static struct epoll_event many[200];
	struct pollfd p[20];
	int fd[20], to;
	fd_set rd;

	for (int i = 0; i < 20; i++) {
		fd[i] = eventfd(i == 3, EFD_NONBLOCK | EFD_CLOEXEC);
		must(fd[i] >= 0);
		must(ep_ctl(set.own, EPOLL_CTL_ADD, fd[i], EPOLLIN, i) == 0);
	}
	must(epoll_wait(set.own, many, 200, 0) >= 1);
	FD_ZERO(&rd);
	for (int i = 0; i < 20; i++) {
		p[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
		FD_SET(fd[i], &rd);
	}
	must(poll(p, 20, -1) == 1);
	must(random_below(r, 16) != 0 || poll(p, 3, 1) == 0);
	must(select(FD_SETSIZE, &rd, NULL, NULL, NULL) == 1);
	to = 1500 + (int)random_below(r, 3) * 1200;
	if (random_below(r, 8) == 0 && dup2(fd[0], to) == to)
		must(close(to) == 0);
	for (int i = 0; i < 20; i++)
		must(close(fd[i]) == 0);
}

static void *allocator(void *arg)
{
	struct sigevent sev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	void *p[64] = {NULL};
	uint32_t r = 777;

	(void)arg;
	sev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	must(timer_create(CLOCK_MONOTONIC, &sev, &timer) == 0);
	set_open();
	while (!atomic_get(&stop) && !wrong) {
		struct itimerspec its = {.it_value.tv_nsec = 1 + random_below(&r, 30000)};

		timer_settime(timer, 0, &its, NULL);
		if (all_left) {
			all_left = 0;
			set_renew();
		}
		for (int k = 0; k < 200; k++) {
			int i = random_below(&r, 64);

			free(p[i]);
			p[i] = malloc(random_below(&r, 30000));
		}
	}
	timer_delete(timer);
	for (int i = 0; i < 64; i++)
		free(p[i]);
	set_close();
	return NULL;
}

static void SIGNAL_handler_has_interrupted_malloc(void **state)
{
	(void)state;
	if (SANITIZED) {
		print_message("skipped: with a sanitizer memory is its malloc's\n");
		skip();
	}
	run_victim(do_without_malloc, allocator, false);
}

/* --- a poll in a handler that has interrupted a poll -------------------------------------- */

static struct {
	int mine, other;
	unsigned long taken;
	int polling;
} nest;

static void poll_other(int sig)
{
	struct pollfd p = {.fd = nest.other, .events = POLLIN};
	struct timespec little = {.tv_nsec = 1};
	int saved = errno;

	(void)sig;
	must(ppoll(&p, 1, &little, NULL) == 0);
	errno = saved;
}

static void *nest_victim(void *arg)
{
	struct pollfd p = {.fd = nest.mine, .events = POLLIN};
	uint64_t v;

	(void)arg;
	while (!atomic_get(&stop)) {
		__atomic_store_n(&nest.polling, 1, __ATOMIC_SEQ_CST);
		/* Only the signal of this round can interrupt, and it takes nothing away. */
		if (poll(&p, 1, -1) != 1)
			continue;
		must(read(nest.mine, &v, sizeof(v)) == sizeof(v));
		__atomic_store_n(&nest.polling, 0, __ATOMIC_SEQ_CST);
		atomic_add(&nest.taken, v);
	}
	return NULL;
}

static void SIGNAL_a_poll_in_a_handler_takes_no_wake(void **state)
{
	struct sigaction sa = {.sa_handler = poll_other}, old;
	int64_t start = now_ms(), soon;
	unsigned long rounds = 0;
	struct test_thread t;
	uint32_t r = 99;

	(void)state;
	stop = 0;
	wrong = NULL;
	nest.taken = 0;
	nest.mine = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	nest.other = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	thread_start(&t, nest_victim, NULL);
	while (!wrong && now_ms() - start < torture_ms()) {
		while (!atomic_get(&nest.polling) && !wrong)
			sched_yield();
		for (uint32_t i = random_below(&r, 3000); i; i--)
			__asm__ __volatile__("");
		assert_int_equal(pthread_kill(t.id, SIGUSR1), 0);
		for (uint32_t i = random_below(&r, 2000); i; i--)
			__asm__ __volatile__("");
		efd_add(nest.mine, 1);
		rounds++;
		soon = now_ms() + SOON_MS;
		while (atomic_get(&nest.taken) < rounds && now_ms() < soon)
			sched_yield();
		assert_int_equal(atomic_get(&nest.taken), rounds);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	efd_add(nest.mine, 1);
	assert_true(thread_join(&t, SOON_MS));
	assert_null((const char *)wrong);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	print_message("%lu rounds\n", rounds);
	close(nest.mine);
	close(nest.other);
}

/* --- ignored signals ---------------------------------------------------------------------- */

static void *sleep_on(void *arg)
{
	struct epoll_event ev;

	return (void *)(intptr_t)(epoll_wait(*(int *)arg, &ev, 1, -1) == 1 ? 0 : errno);
}

/* What a call of one thread does about signals must not be felt by another (EP-SIG-03). */
static void SIGNAL_children_that_end_interrupt_nobody(void **state)
{
	int ep = assert_ok(epoll_create1(EPOLL_CLOEXEC)), fd = efd_new(0, EFD_CLOEXEC);
	struct test_thread t;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	thread_start(&t, sleep_on, &ep);
	assert_true(thread_asleep(&t));
	for (int i = 0; i < 300 && !thread_done(&t); i++) {
		/* Not by libc's fork, of which some versions block signals themselves. */
		long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0)
			_exit(0);
		assert_true(pid > 0);
		assert_int_equal(waitpid((pid_t)pid, NULL, 0), pid);
		/* There is something to turn into kernel objects the next time, too. */
		close(efd_new(0, EFD_CLOEXEC));
	}
	assert_false(thread_done(&t));
	efd_add(fd, 1);
	assert_true(thread_join(&t, SOON_MS));
	assert_int_equal((intptr_t)t.ret, 0);
	close(fd);
	close(ep);
}

static void count_one(int sig)
{
	(void)sig;
	fired++;
}

/* A signal that comes while a bad pointer becomes EFAULT leaves nothing blocked. */
static void SIGNAL_bad_pointers_under_fire(void **state)
{
	struct sigevent sev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	int ep = assert_ok(epoll_create1(EPOLL_CLOEXEC)), fd = efd_new(0, EFD_CLOEXEC);
	struct epoll_event *volatile bad = (void *)8;
	struct sigaction sa = {.sa_handler = count_one};
	int64_t start = now_ms();
	uint32_t r = 99;
	sigset_t mask;

	(void)state;
	fired = 0;
	sev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	assert_ok(sigaction(SIGUSR2, &sa, &sa_old));
	assert_ok(timer_create(CLOCK_MONOTONIC, &sev, &timer));
	while (now_ms() - start < torture_ms() || fired < 1000) {
		struct itimerspec its = {.it_value.tv_nsec = 1 + random_below(&r, 6000)};

		timer_settime(timer, 0, &its, NULL);
		for (int i = 0; i < 4; i++)
			assert_errno(epoll_ctl(ep, EPOLL_CTL_ADD, fd, bad), EFAULT);
	}
	timer_delete(timer);
	assert_ok(sigaction(SIGUSR2, &sa_old, NULL));
	assert_ok(pthread_sigmask(SIG_BLOCK, NULL, &mask));
	assert_false(sigismember(&mask, SIGSEGV));
	assert_false(sigismember(&mask, SIGUSR2));
	close(fd);
	close(ep);
}

static sigjmp_buf after_fault;
static sigset_t mask_in_fault;

static void on_fault(int sig)
{
	(void)sig;
	pthread_sigmask(SIG_BLOCK, NULL, &mask_in_fault);
	siglongjmp(after_fault, 1);
}

/* A fault of the program's own: its handler has the mask that it asked for. */
static void SIGNAL_a_fault_has_the_mask_of_its_handler(void **state)
{
	int ep = assert_ok(epoll_create1(EPOLL_CLOEXEC));
	struct sigaction sa = {.sa_handler = on_fault}, old;
	volatile char *volatile bad = (char *)8;

	(void)state;
	sigaddset(&sa.sa_mask, SIGUSR1);
	assert_ok(sigaction(SIGSEGV, &sa, &old));
	if (!sigsetjmp(after_fault, 1))
		*bad = 1;
	assert_true(sigismember(&mask_in_fault, SIGSEGV));
	assert_true(sigismember(&mask_in_fault, SIGUSR1));
	assert_false(sigismember(&mask_in_fault, SIGUSR2));
	assert_ok(sigaction(SIGSEGV, &old, NULL));
	close(ep);
}

/* ---- a signal that comes with a wake for nothing ---- */

enum sleep_in { IN_POLL, IN_SELECT, IN_READ, IN_WRITE, SLEEPS };

static struct {
	enum sleep_in how;
	int fd, r, err;
} sleeping;

static void *sleep_main(void *p)
{
	struct pollfd set = {.fd = sleeping.fd, .events = POLLIN};
	uint64_t one = 1;
	fd_set fds;

	(void)p;
	FD_ZERO(&fds);
	FD_SET(sleeping.fd, &fds);
	switch (sleeping.how) {
	case IN_POLL:
		sleeping.r = poll(&set, 1, -1);
		break;
	case IN_SELECT:
		sleeping.r = select(sleeping.fd + 1, &fds, NULL, NULL, NULL);
		break;
	case IN_WRITE:
		sleeping.r = (int)write(sleeping.fd, &one, sizeof(one));
		break;
	default:
		sleeping.r = (int)read(sleeping.fd, &one, sizeof(one));
	}
	sleeping.err = errno;
	return NULL;
}

/* The sleeper was quicker, as it may be on a busy machine; what is to be over waits for ever then.
 */
static bool over;

static void *make_over(void *sleeper)
{
	uint64_t v = 1;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		if (!thread_done(sleeper)) {
			sleep_ms(1);
			continue;
		}
		if (sleeping.how == IN_WRITE)
			return read(sleeping.fd, &v, sizeof(v)) < 0 ? &over : NULL;
		return write(sleeping.fd, &v, sizeof(v)) < 0 ? &over : NULL;
	}
	return NULL;
}

static void on_nothing(int sig)
{
	(void)sig;
}

/* Something comes and is over before the sleeper has looked, mostly; then the signal. */
static void SIGNAL_ends_a_sleep_that_was_woken_for_nothing(void **state)
{
	cpu_set_t cpus;

	(void)state;
	on_one_cpu(&cpus);
	for (int round = 0; round < 8 * SLEEPS; round++) {
		struct sigaction sa = {.sa_handler = on_nothing}, old;
		enum sleep_in how = (enum sleep_in)(round % SLEEPS);
		bool restart = round / SLEEPS % 2, again = restart && how > IN_SELECT;
		const uint64_t full = UINT64_MAX - 1;
		struct test_thread t = {.fn = NULL}, helper = {.fn = NULL};
		int fd = efd_new(0, 0);

		sa.sa_flags = restart ? SA_RESTART : 0;
		assert_ok(sigaction(SIGUSR1, &sa, &old));
		if (how == IN_WRITE)
			assert_int_equal(write(fd, &full, 8), 8);
		sleeping.how = how;
		sleeping.fd = fd;
		thread_start(&t, sleep_main, NULL);
		assert_true(thread_asleep(&t));
		__atomic_store_n(&over, how <= IN_SELECT, __ATOMIC_RELEASE);
		thread_start(&helper, make_over, &t);
		if (how == IN_WRITE) {
			efd_take(fd);
			assert_int_equal(write(fd, &full, 8), 8);
		} else {
			uint64_t one = 1;

			assert_int_equal(write(fd, &one, 8), 8);
			assert_int_equal(read(fd, &one, 8), 8);
		}
		__atomic_store_n(&over, true, __ATOMIC_RELEASE);
		pthread_kill(t.id, SIGUSR1);
		assert_true(thread_join(&helper, SOON_MS));
		assert_null(helper.ret);
		if (again) {
			sleep_ms(2);
			assert_true(thread_done(&t) || thread_asleep(&t));
			if (how == IN_WRITE)
				efd_take(fd);
			else
				assert_int_equal(write(fd, &full, 8), 8);
		}
		assert_true(thread_join(&t, SOON_MS));
		if (again || sleeping.r >= 0) {
			assert_true(sleeping.r > 0);
		} else {
			assert_int_equal(sleeping.r, -1);
			assert_int_equal(sleeping.err, EINTR);
		}
		close(fd);
		assert_ok(sigaction(SIGUSR1, &old, NULL));
	}
	on_any_cpu(&cpus);
}

/* As the kernel has it. */
struct bare_action {
	uintptr_t handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};

/* libc gives every action its own restorer; what makes the call by itself is told what it has set.
 */
static void SIGNAL_a_bare_call_reads_back_what_it_has_set(void **state)
{
	static const int sigs[] = {SIGUSR1, SIGTERM, SIGSEGV, SIGCHLD};
	static const uintptr_t handlers[] = {0 /* SIG_DFL */, 1 /* SIG_IGN */};
	static const unsigned long flags[] = {0, SA_RESTART, 0x04000000 /* SA_RESTORER */};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		struct sigaction was;

		assert_ok(sigaction(sigs[i], NULL, &was));
		for (size_t k = 0; k < 6; k++) {
			struct bare_action act = {.handler = handlers[k % 2],
						  .flags = flags[k / 2],
						  .restorer = k / 2 == 2 ? 0x1234 : 0,
						  .mask = 1ull << (SIGHUP - 1)};
			struct bare_action got = {.handler = 99};

			assert_ok(syscall(SYS_rt_sigaction, sigs[i], &act, NULL, 8));
			assert_ok(syscall(SYS_rt_sigaction, sigs[i], NULL, &got, 8));
			assert_memory_equal(&got, &act, sizeof(act));
		}
		assert_ok(sigaction(sigs[i], &was, NULL));
	}
	close(fd);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
	/* It holds handlers back and runs them where it likes, inside calls of ours as well. */
	fprintf(stderr, "ThreadSanitizer runs signal handlers at places of its own\n");
	return EXIT_SKIPPED;
#endif
	const struct CMUnitTest signals[] = {
		cmocka_unit_test(SIGNAL_handler_writes),
		cmocka_unit_test(SIGNAL_handler_closes),
		cmocka_unit_test(SIGNAL_handler_polls),
		cmocka_unit_test(SIGNAL_handler_uses_an_epoll_of_its_own),
		cmocka_unit_test(SIGNAL_handler_duplicates),
		cmocka_unit_test(SIGNAL_handler_passes_descriptors),
		cmocka_unit_test(SIGNAL_handler_forks),
		cmocka_unit_test(SIGNAL_handler_forks_and_executes),
		cmocka_unit_test(SIGNAL_handler_has_interrupted_malloc),
		cmocka_unit_test(SIGNAL_children_that_end_interrupt_nobody),
		cmocka_unit_test(SIGNAL_a_poll_in_a_handler_takes_no_wake),
		cmocka_unit_test(SIGNAL_ends_a_sleep_that_was_woken_for_nothing),
		cmocka_unit_test(SIGNAL_bad_pointers_under_fire),
		cmocka_unit_test(SIGNAL_a_fault_has_the_mask_of_its_handler),
		cmocka_unit_test(SIGNAL_a_bare_call_reads_back_what_it_has_set),
	};

	return run_group(signals);
}
