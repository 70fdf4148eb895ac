/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/sysinfo.h>

#define WATCHDOG_MS 60000
#define EXIT_WATCHDOG 98
#define EXIT_NOT_UNDER_POLLUX 99
#define POLL_MAX 64

int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev;

	memset(&ev, 0, sizeof(ev));
	ev.events = events;
	ev.data.u64 = data;
	return epoll_ctl(ep, op, fd, &ev);
}

int ep_poll(int ep, struct epoll_event *ev, int max)
{
	return epoll_wait(ep, ev, max, 0);
}

int ep_count(int ep)
{
	struct epoll_event ev[POLL_MAX];

	return ep_poll(ep, ev, POLL_MAX);
}

bool ep_one(int ep, uint32_t events, uint64_t data)
{
	struct epoll_event ev[POLL_MAX];
	int n = ep_poll(ep, ev, POLL_MAX);

	return n == 1 && ev[0].events == events && ev[0].data.u64 == data;
}

int efd_new(unsigned int init, int flags)
{
	return (int)assert_ok(eventfd(init, flags));
}

void efd_add(int fd, uint64_t v)
{
	assert_int_equal(assert_ok(write(fd, &v, sizeof(v))), sizeof(v));
}

uint64_t efd_take(int fd)
{
	uint64_t v = 0;

	assert_int_equal(assert_ok(read(fd, &v, sizeof(v))), sizeof(v));
	return v;
}

void tcp_waiting(int *listener, int *client)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(a);

	*listener = (int)assert_ok(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	assert_ok(bind(*listener, (struct sockaddr *)&a, n));
	assert_ok(listen(*listener, 1));
	assert_ok(getsockname(*listener, (struct sockaddr *)&a, &n));
	*client = (int)assert_ok(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	assert_ok(connect(*client, (struct sockaddr *)&a, n));
}

struct start {
	struct test_thread *t;
	sem_t begun;
};

static void *trampoline(void *p)
{
	struct start *s = p;
	struct test_thread *t = s->t;

	t->tid = (pid_t)syscall(SYS_gettid);
	sem_post(&s->begun);
	t->ret = t->fn(t->arg);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

void thread_start(struct test_thread *t, void *(*fn)(void *), void *arg)
{
	struct start s = {.t = t};

	memset(t, 0, sizeof(*t));
	t->fn = fn;
	t->arg = arg;
	assert_int_equal(sem_init(&s.begun, 0, 0), 0);
	assert_int_equal(pthread_create(&t->id, NULL, trampoline, &s), 0);
	while (sem_wait(&s.begun) == -1)
		assert_int_equal(errno, EINTR);
	sem_destroy(&s.begun);
}

bool thread_asleep(struct test_thread *t)
{
	return task_asleep(OF_THREAD, t->tid, &t->done);
}

bool thread_done(struct test_thread *t)
{
	return __atomic_load_n(&t->done, __ATOMIC_ACQUIRE) != 0;
}

/*
 * The joins with a deadline either follow the wall clock, which may be set, or
 * are unknown to the thread sanitizer; so this one asks again and again.
 */
bool thread_join(struct test_thread *t, int ms)
{
	const struct timespec pause = {.tv_nsec = 200000};
	int64_t end = now_ms() + ms;

	while (pthread_tryjoin_np(t->id, NULL) != 0) {
		if (now_ms() > end)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

bool under_pollux(void)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL)
		found = strstr(line, "libpollux-preload.so") != NULL;
	fclose(f);
	return found;
}

static int (*served_function(void))(int)
{
	int (*served)(int);

	*(void **)&served = dlsym(RTLD_DEFAULT, "pollux_fd_served");
	return served;
}

bool fd_served(int fd)
{
	int (*served)(int) = served_function();

	return served != NULL && served(fd) == 1;
}

bool edge_may_repeat(int fd)
{
	int (*served)(int) = served_function();

	return served != NULL && served(fd) != 1;
}

/*
 * The watchdog is a thread with every signal blocked which holds no
 * descriptor: it takes no signal meant for a test, no fd number, and a forked
 * child is without it. Each test has its own deadline; 0 is none. On a machine
 * with more to do than it has CPUs a test has as much longer.
 */
static int64_t deadline;
static const struct CMUnitTest *current;
/*
 * A thread allocates as it begins, and AddressSanitizer's allocator does not see to its locks in a
 * fork: none is made before the watchdog has begun.
 */
static int watching;

/* What a thread that wants to run does not have of a CPU, in thousandths. */
static int64_t lacking(void)
{
	struct sysinfo info;
	cpu_set_t cpus;
	int64_t load;

	if (sysinfo(&info) || sched_getaffinity(0, sizeof(cpus), &cpus))
		return 0;
	load = (int64_t)info.loads[0] * 1000 >> SI_LOAD_SHIFT;
	return load > CPU_COUNT(&cpus) * 1000 ? 1000 - CPU_COUNT(&cpus) * 1000000 / load : 0;
}

static void *watchdog(void *arg)
{
	int64_t before = now_ms(), seen = 0, longer = 0;

	(void)arg;
	__atomic_store_n(&watching, 1, __ATOMIC_RELEASE);
	for (;;) {
		int64_t end = __atomic_load_n(&deadline, __ATOMIC_ACQUIRE), now = now_ms();
		const struct CMUnitTest *t = __atomic_load_n(&current, __ATOMIC_ACQUIRE);

		longer = end == seen ? longer + (now - before) * lacking() / 1000 : 0;
		seen = end;
		before = now;
		if (end != 0 && now >= end + longer &&
		    end == __atomic_load_n(&deadline, __ATOMIC_ACQUIRE)) {
			char msg[256];
			int n = snprintf(msg, sizeof(msg), "watchdog: %s did not end in %d s\n",
					 t->name, (int)((WATCHDOG_MS + longer) / 1000));

			/* A result of this write would change nothing. */
			if (write(STDERR_FILENO, msg, (size_t)n) < 0)
				_exit(EXIT_WATCHDOG);
			_exit(EXIT_WATCHDOG);
		}
		sleep_ms(250);
	}
	return NULL;
}

static void watchdog_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t id;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&id, &attr, watchdog, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0) {
		fprintf(stderr, "no watchdog thread: %s\n", strerror(r));
		exit(EXIT_WATCHDOG);
	}
	while (!__atomic_load_n(&watching, __ATOMIC_ACQUIRE))
		sched_yield();
}

/* The initial state of every test that cmocka runs is the caller's own entry. */
static int test_setup(void **state)
{
	const struct CMUnitTest *t = *state;

	__atomic_store_n(&current, t, __ATOMIC_RELEASE);
	__atomic_store_n(&deadline, now_ms() + WATCHDOG_MS, __ATOMIC_RELEASE);
	*state = t->initial_state;
	return t->setup_func != NULL ? t->setup_func(state) : 0;
}

static int test_teardown(void **state)
{
	int r = current->teardown_func != NULL ? current->teardown_func(state) : 0;

	__atomic_store_n(&deadline, 0, __ATOMIC_RELEASE);
	return r;
}

#if SANITIZED == 2
void __sanitizer_symbolize_pc(void *pc, const char *format, char *out, size_t size);
#endif

/*
 * To name functions ThreadSanitizer opens all files of the process, once, and the drop-in has open.
 * In a report the run-time holds locks that it needs for what the drop-in does.
 */
static void learn_names(void)
{
#if SANITIZED == 2
	char name[64];

	__sanitizer_symbolize_pc(__builtin_return_address(0), "%f", name, sizeof(name));
#endif
}

int harness_run(const char *name, const struct CMUnitTest *tests, size_t n)
{
	const char *expect = getenv("POLLUX_EXPECT");
	struct CMUnitTest *copy;
	int r;

	if (expect != NULL && strcmp(expect, "1") == 0 && !under_pollux()) {
		fprintf(stderr, "%s: POLLUX_EXPECT=1, but libpollux-preload.so is not mapped\n",
			name);
		exit(EXIT_NOT_UNDER_POLLUX);
	}
	/* What the tests printed must survive the _exit of the watchdog. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stderr, NULL, _IOLBF, 0);
	copy = calloc(n, sizeof(*copy));
	if (copy == NULL)
		abort();
	for (size_t i = 0; i < n; i++) {
		copy[i].name = tests[i].name;
		copy[i].test_func = tests[i].test_func;
		copy[i].setup_func = test_setup;
		copy[i].teardown_func = test_teardown;
		copy[i].initial_state = (void *)(uintptr_t)&tests[i];
	}
	learn_names();
	watchdog_start();
	r = _cmocka_run_group_tests(name, copy, n, NULL, NULL);
	free(copy);
	return r != 0;
}
