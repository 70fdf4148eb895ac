/* SPDX-License-Identifier: MIT */
/* An epoll as text: what it says, and that it can be asked anywhere. */
#include "native.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <pollux/level.h>
#include <pollux/timer.h>

static int text_fd;

static const char *dumped(struct pollux_ep *ep)
{
	static char text[65536];
	ssize_t n;

	assert_int_equal(ftruncate(text_fd, 0), 0);
	assert_int_equal(lseek(text_fd, 0, SEEK_SET), 0);
	errno = ENOTTY;
	assert_int_equal(pollux_ep_dump(ep, text_fd), 0);
	assert_int_equal(errno, ENOTTY);
	n = pread(text_fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = 0;
	return text;
}

#define says(ep, what) says_check(ep, what, true, __LINE__)
#define says_not(ep, what) says_check(ep, what, false, __LINE__)
static void says_check(struct pollux_ep *ep, const char *what, bool is, int line)
{
	const char *text = dumped(ep);

	if (!strstr(text, what) == is) {
		print_message("line %d, \"%s\":\n%s", line, what, text);
		fail();
	}
}

static const char *item(struct pollux_file *f, const char *rest)
{
	static char line[256];

	snprintf(line, sizeof(line), "  file %p, %s\n", (void *)f, rest);
	return line;
}

static void it_tells_of_each_registration(void **state)
{
	struct pollux_ep *ep = ep_new(), *inner = ep_new();
	struct obj *o = obj_new(0), *other = obj_new(EPOLLIN);
	char line[256];

	(void)state;
	snprintf(line, sizeof(line), "epoll %p: nothing is queued, threads asleep: 0\n",
		 (void *)ep);
	says(ep, line);
	says(ep, "  0 events in 0 collections; 0 registrations\n");
	ep_add(ep, &o->file, -7, EPOLLIN | EPOLLET, 0xabcd);
	ep_add(ep, &other->file, 3, EPOLLIN | EPOLLONESHOT, UINT64_MAX);
	ep_add(ep, pollux_ep_file(inner), INT32_MIN, EPOLLIN, 0);
	says(ep, item(&o->file, "key -7: wants 0x80000019, data 0xabcd"));
	says(ep, item(&other->file, "key 3: wants 0x40000019, data 0xffffffffffffffff, queued"));
	says(ep, item(pollux_ep_file(inner), "key -2147483648: wants 0x19, data 0x0, an epoll"));
	says(ep, ": something is queued");
	says(ep, "; 3 registrations\n");
	assert_one(ep, EPOLLIN, UINT64_MAX);
	says(ep, item(&other->file, "key 3: wants 0x40000000, data 0xffffffffffffffff, reported"));
	says(ep, "  1 events in 1 collections; 3 registrations\n");
	obj_put(o);
	obj_put(other);
	ep_put(inner);
	says(ep, "; 0 registrations\n");
	ep_put(ep);
}

/* Longer than what is written at once. */
static void there_may_be_many(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	const char *at;
	int n = 0;

	(void)state;
	for (int i = 0; i < 500; i++)
		ep_add(ep, &o->file, i, EPOLLIN, (uint64_t)i);
	for (at = dumped(ep); (at = strstr(at, "  file ")) != NULL; at++)
		n++;
	assert_int_equal(n, 500);
	says(ep, item(&o->file, "key 499: wants 0x19, data 0x1f3"));
	obj_put(o);
	ep_put(ep);
}

static void it_tells_of_its_state(void **state)
{
	const struct pollux_host host = host_of_no_time();
	const struct pollux_ep_attr hosted = {.size = sizeof(hosted), .host = &host};
	const struct pollux_ep_attr batches = {.size = sizeof(batches), .flags = POLLUX_EP_BATCHES};
	struct pollux_ep *ep;
	struct obj *o = obj_new(0);
	struct pollux_timer *timer;
	struct waiter *w;
	char line[64];

	(void)state;
	assert_int_equal(pollux_ep_new(&ep, &hosted), 0);
	says(ep, ", with a host\n");
	ep_put(ep);
	assert_int_equal(pollux_ep_new(&ep, &batches), 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	says(ep, ", with batches\n");
	says(ep, "  threads at events of it: 0\n");
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	says(ep, "  threads at events of it: 1\n");
	says_not(ep, "descriptors:");
	says_not(ep, "is due at");
	snprintf(line, sizeof(line), "/proc/self/fdinfo/%d\n", pollux_ep_fd(ep));
	says(ep, line);
	assert_int_equal(pollux_timer_new(&timer, NULL), 0);
	assert_int_equal(pollux_timer_set(timer, INT64_MAX / 2, 0), 0);
	ep_add(ep, pollux_timer_file(timer), 0, EPOLLIN, 't');
	says(ep, "  one is due at 4611686018427387903 ns\n");
	ep_put(ep);
	pollux_file_put(pollux_timer_file(timer));
	ep = ep_new();
	w = waiter_new(ep, 1);
	assert_true(thread_asleep(&w->t));
	says(ep, "threads asleep: 1");
	says_not(ep, "shut down");
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	waiter_gets(w, 'a');
	says(ep, "threads asleep: 0");
	pollux_ep_shutdown(ep);
	says(ep, ", shut down\n");
	obj_put(o);
	ep_put(ep);
}

/* With the mutex held: it says so, and does not wait for who holds it. */
static struct pollux_ep *inside;

static uint32_t dumping_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	says(inside, "  its registrations are being changed or looked at\n");
	says_not(inside, "  file ");
	return EPOLLIN;
}

static void operations_may_ask(void **state)
{
	static const struct pollux_file_ops ops = {.size = sizeof(ops), .poll = dumping_poll};
	static struct pollux_file f;

	(void)state;
	inside = ep_new();
	pollux_file_init(&f, &ops);
	ep_add(inside, &f, 0, EPOLLIN, 'a');
	assert_one(inside, EPOLLIN, 'a');
	says(inside, item(&f, "key 0: wants 0x19, data 0x61, queued, reported"));
	pollux_file_put(&f);
	ep_put(inside);
}

/* Whatever the handler has interrupted. */
static struct pollux_ep *asked;
static int null_fd, asks, fails;
#define ASKS 400

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&asks, 1, __ATOMIC_SEQ_CST);
	if (pollux_ep_dump(asked, null_fd))
		__atomic_fetch_add(&fails, 1, __ATOMIC_SEQ_CST);
}

static void works(struct thread *t)
{
	struct obj *o = obj_new(EPOLLIN);
	struct epoll_event ev[4];
	int key = (int)(intptr_t)t->arg;

	while (__atomic_load_n(&asks, __ATOMIC_SEQ_CST) < ASKS) {
		ep_add(asked, &o->file, key, EPOLLIN, 'a');
		(void)pollux_ep_wait(asked, ev, 4, 0);
		pollux_file_wake(&o->file, EPOLLIN);
		ep_mod(asked, &o->file, key, EPOLLIN | EPOLLET, 'b');
		assert_int_equal(ep_del(asked, &o->file, key), 0);
	}
	obj_put(o);
}

static void handlers_may_ask(void **state)
{
	const struct pollux_ep_attr batches = {.size = sizeof(batches), .flags = POLLUX_EP_BATCHES};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct thread t[2];

	(void)state;
	assert_int_equal(pollux_ep_new(&asked, &batches), 0);
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_true(null_fd >= 0);
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], works, (void *)(intptr_t)i);
	for (int done = 0; !done;) {
		done = 1;
		for (int i = 0; i < 2; i++) {
			if (thread_done(&t[i]))
				continue;
			done = 0;
			pthread_kill(t[i].id, SIGUSR1);
		}
		usleep(50);
	}
	for (int i = 0; i < 2; i++)
		thread_join(&t[i]);
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(fails, 0);
	says(asked, "; 0 registrations\n");
	close(null_fd);
	ep_put(asked);
}

static void it_says_why_it_cannot_write(void **state)
{
	struct pollux_ep *ep = ep_new();
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	(void)state;
	assert_true(full >= 0);
	assert_int_equal(pollux_ep_dump(ep, -1), -EBADF);
	assert_int_equal(pollux_ep_dump(ep, full), -ENOSPC);
	close(full);
	ep_put(ep);
}

static void a_child_may_ask(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	int status;
	pid_t pid;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		const char *text = dumped(ep);

		_exit(!strstr(text, "  it is from before a fork\n") || strstr(text, "  file "));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	obj_put(o);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_tells_of_each_registration),
		TEST(there_may_be_many),
		TEST(it_tells_of_its_state),
		TEST(operations_may_ask),
		TEST(handlers_may_ask),
		TEST(it_says_why_it_cannot_write),
		TEST(a_child_may_ask),
	};

	text_fd = memfd_create("text", MFD_CLOEXEC);
	return text_fd < 0 ? 1 : RUN(tests);
}
