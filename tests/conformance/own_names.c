/* SPDX-License-Identifier: MIT */
/*
 * A program that has functions of its own with names of libc's, as programs have that stop the
 * clock for a test, and libraries that are preloaded for such purposes. The kernel does not call
 * them, and takes no notice of the time that they tell. No rule says so; it follows from what a
 * name is.
 */
#include "waiting.h"

#include <linux/aio_abi.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

/*
 * While it is set for a thread these functions note that it calls them, and its clock stands still.
 * (The watchdog of the tests is another thread.)
 */
static __thread volatile int armed;
static const char *volatile called;

#define NOTE()                                                                                     \
	do {                                                                                       \
		if (armed)                                                                         \
			called = __func__;                                                         \
	} while (0)

/* Past whatever stands before libc's names, and without errno where a caller looks at it. */
static long kernel(long number, long a, long b, long c, long d)
{
	long r;

#if defined(__x86_64__)
	register long fourth __asm__("r10") = d;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
#else
	register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, nr __asm__("x8") = number;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(nr) : "memory");
	r = x0;
#endif
	if (r < 0 && r > -4096) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	NOTE();
	if (armed) {
		*ts = (struct timespec){.tv_sec = 1000000};
		return 0;
	}
	return (int)kernel(SYS_clock_gettime, clock, (long)ts, 0, 0);
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	NOTE();
	return (int)kernel(SYS_nanosleep, (long)t, (long)left, 0, 0);
}

int sched_yield(void)
{
	NOTE();
	return (int)kernel(SYS_sched_yield, 0, 0, 0, 0);
}

pid_t getpid(void)
{
	NOTE();
	return (pid_t)kernel(SYS_getpid, 0, 0, 0, 0);
}

int sched_getscheduler(pid_t pid)
{
	NOTE();
	return (int)kernel(SYS_sched_getscheduler, pid, 0, 0, 0);
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	NOTE();
	memset(set, 0, size);
	return kernel(SYS_sched_getaffinity, pid, (long)size, (long)set, 0) < 0 ? -1 : 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	NOTE();
	return (int)kernel(SYS_rt_sigprocmask, how, (long)set, (long)old, 8);
}

int fstat(int fd, struct stat *st)
{
	NOTE();
	return (int)kernel(SYS_fstat, fd, (long)st, 0, 0);
}

int munmap(void *at, size_t size)
{
	NOTE();
	return (int)kernel(SYS_munmap, (long)at, (long)size, 0, 0);
}

int raise(int sig)
{
	NOTE();
	return (int)kernel(SYS_tgkill, kernel(SYS_getpid, 0, 0, 0, 0),
			   kernel(SYS_gettid, 0, 0, 0, 0), sig, 0);
}

char *getenv(const char *name)
{
	size_t n = strlen(name);

	NOTE();
	for (char **e = environ; e && *e; e++)
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

unsigned long getauxval(unsigned long type)
{
	NOTE();
	(void)type;
	return 0;
}

/* --------------------------------------------------------------------------------------------- */

static int64_t true_ms(void)
{
	struct timespec ts;

	kernel(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&ts, 0, 0);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

static int64_t begun;

static void arm(void)
{
	called = NULL;
	begun = true_ms();
	armed = 1;
}

static void disarm(void)
{
	armed = 0;
	if (called) {
		print_error("%s of the program was called\n", called);
		fail();
	}
}

/* The call since arm() has ended for its time-out. */
static void timed_out(int r, int ms)
{
	int64_t took = true_ms() - begun;

	disarm();
	assert_int_equal(r, 0);
	assert_true(took >= ms);
}

#define MS 50

/* An epoll with files of both kinds, of which none is ready. */
static int idle_epoll(int *fd)
{
	int ep = ep_new(), p[2];

	*fd = efd_new(0, EFD_NONBLOCK);
	assert_ok(pipe(p));
	ep_add(ep, *fd, EPOLLIN, 1);
	ep_add(ep, p[0], EPOLLIN, 2);
	return ep;
}

static void own_name_clock_of_epoll_wait(void **state)
{
	struct timespec ts = {.tv_nsec = MS * 1000000};
	int fd, ep = idle_epoll(&fd), r;
	struct epoll_event ev;

	(void)state;
	arm();
	r = epoll_wait(ep, &ev, 1, MS);
	timed_out(r, MS);
	arm();
	r = epoll_pwait(ep, &ev, 1, MS, NULL);
	timed_out(r, MS);
	arm();
	r = epoll_pwait2(ep, &ev, 1, &ts, NULL);
	timed_out(r, MS);
}

static void own_name_clock_of_poll(void **state)
{
	struct timespec ts = {.tv_nsec = MS * 1000000};
	struct timeval tv = {.tv_usec = MS * 1000};
	struct pollfd p = {.events = POLLIN};
	fd_set set;
	int r;

	(void)state;
	p.fd = efd_new(0, EFD_NONBLOCK);
	arm();
	r = poll(&p, 1, MS);
	timed_out(r, MS);
	arm();
	r = ppoll(&p, 1, &ts, NULL);
	timed_out(r, MS);
	FD_ZERO(&set);
	FD_SET(p.fd, &set);
	arm();
	r = select(p.fd + 1, &set, NULL, NULL, &tv);
	timed_out(r, MS);
	/* What is left of it. */
	assert_int_equal(tv.tv_sec, 0);
	assert_int_equal(tv.tv_usec, 0);
	FD_SET(p.fd, &set);
	arm();
	r = pselect(p.fd + 1, &set, NULL, NULL, &ts, NULL);
	timed_out(r, MS);
}

static void own_name_clock_of_a_timer(void **state)
{
	int ep = ep_new(), t = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct itimerspec set = {.it_value.tv_nsec = MS * 1000000}, is;
	struct epoll_event ev;
	int r = 0;

	(void)state;
	ep_add(ep, t, EPOLLIN, 3);
	arm();
	/* So often that the kernel may not be told each time. */
	for (int i = 0; i < 20; i++) {
		r |= timerfd_settime(t, 0, &set, NULL);
		r |= epoll_wait(ep, &ev, 1, 0);
	}
	begun = true_ms();
	r |= timerfd_settime(t, 0, &set, NULL);
	r |= timerfd_gettime(t, &is);
	r |= epoll_wait(ep, &ev, 1, 10000) != 1;
	timed_out(r, MS);
	assert_true(is.it_value.tv_sec == 0 && is.it_value.tv_nsec <= MS * 1000000);
	assert_true(true_ms() - begun < 5000);
}

static void own_name_clock_of_aio(void **state)
{
	struct timespec ts = {.tv_nsec = MS * 1000000};
	aio_context_t ctx = 0;
	struct io_event ev;
	int r;

	(void)state;
	if (aio_setup_in_turn(8, &ctx))
		SKIP("no context of AIO: %s", strerror(errno));
	arm();
	r = (int)syscall(SYS_io_getevents, ctx, 1, 1, &ev, &ts);
	timed_out(r, MS);
	assert_ok(syscall(SYS_io_destroy, ctx));
}

static void *waits(void *arg)
{
	struct epoll_event ev;

	armed = 1;
	return (void *)(long)epoll_wait(*(int *)arg, &ev, 1, -1);
}

/* Sleeps and wakes, large counts, second numbers, a fork, a program that is looked for. */
static void own_name_is_not_called(void **state)
{
	int fd, ep = idle_epoll(&fd), second, status;
	struct epoll_event ev;
	pthread_t t;
	void *ret;
	pid_t pid;

	(void)state;
	arm();
	for (int i = 0; i < 200; i++) {
		pthread_create(&t, NULL, waits, &ep);
		if (i & 1)
			kernel(SYS_nanosleep, (long)&(struct timespec){.tv_nsec = 200000}, 0, 0, 0);
		eventfd_write(fd, 1);
		pthread_join(t, &ret);
		eventfd_write(fd, 0xfffffffffffffff0);
		epoll_wait(ep, &ev, 1, 0);
		eventfd_read(fd, &(eventfd_t){0});
	}
	second = dup(fd);
	close(second);
	pid = fork();
	if (!pid) {
		eventfd_write(fd, 1);
		if (epoll_wait(ep, &ev, 1, 1000) != 1)
			_exit(1);
		if (called)
			_exit(2);
		execlp("true", "true", (char *)NULL);
		_exit(3);
	}
	waitpid(pid, &status, 0);
	disarm();
	assert_true(pid > 0);
	assert_int_equal(status, 0);
}

/* What searches for a program calls only libc's. */
static void own_name_is_not_called_by_a_search(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	arm();
	pid = vfork();
	if (!pid) {
		execlp("true", "true", (char *)NULL);
		_exit(3);
	}
	waitpid(pid, &status, 0);
	disarm();
	assert_int_equal(status, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_name_clock_of_epoll_wait),
		cmocka_unit_test(own_name_clock_of_poll),
		cmocka_unit_test(own_name_clock_of_a_timer),
		cmocka_unit_test(own_name_clock_of_aio),
		cmocka_unit_test(own_name_is_not_called),
		cmocka_unit_test(own_name_is_not_called_by_a_search),
	};

	return run_group(tests);
}
