/* SPDX-License-Identifier: MIT */
/*
 * A poll over files and descriptors says what poll(2) would, and sleeps as that does. Cases that
 * have a counterpart are tried with ppoll over eventfds of the kernel, too.
 */
#include "native.h"

#include <poll.h>
#include <pollux/poll.h>
#include <pollux/read.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum kind { KERNEL, FILES, MIXED, HOSTED, KINDS };

/* Two objects: of the kernel's, of ours, or the first of ours. */
struct set {
	enum kind kind;
	int fd[2];
	struct obj *o[2];
	struct pollux_pollfile v[2];
};

static int handled;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

/* A host that sleeps by naps; its calls are counted, and it can be ended. */
static struct {
	int parks, unparks, ended, late;
} host_saw;

static int host_park(void *arg, uint32_t *bell, int64_t deadline)
{
	(void)arg;
	__atomic_fetch_add(&host_saw.parks, 1, __ATOMIC_SEQ_CST);
	while (!pollux_bell_rung(bell)) {
		if (deadline >= 0 && now_ns() >= deadline)
			return -ETIMEDOUT;
		usleep(100);
	}
	return 0;
}

static void host_unpark(void *arg, uint32_t *bell)
{
	(void)arg;
	(void)bell;
	__atomic_fetch_add(&host_saw.unparks, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&host_saw.ended, __ATOMIC_SEQ_CST))
		__atomic_fetch_add(&host_saw.late, 1, __ATOMIC_SEQ_CST);
}

static int64_t host_now(void *arg)
{
	(void)arg;
	return now_ns();
}

static const struct pollux_host host = {
	.size = sizeof(host), .park = host_park, .unpark_one = host_unpark, .now = host_now};

static bool is_fd(enum kind kind, int i)
{
	return kind == KERNEL || (kind == MIXED && i == 1);
}

static struct set *set_new(enum kind kind)
{
	struct set *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->kind = kind;
	for (int i = 0; i < 2; i++) {
		s->v[i].events = EPOLLIN;
		s->v[i].fd = -1;
		if (is_fd(kind, i)) {
			s->fd[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
			assert_true(s->fd[i] >= 0);
			s->v[i].fd = s->fd[i];
		} else {
			s->o[i] = obj_new(0);
			s->v[i].file = &s->o[i]->file;
		}
	}
	memset(&host_saw, 0, sizeof(host_saw));
	return s;
}

static void set_put(struct set *s)
{
	for (int i = 0; i < 2; i++) {
		if (s->o[i])
			obj_put(s->o[i]);
		else
			close(s->fd[i]);
	}
	free(s);
}

static void set_ready(struct set *s, int i)
{
	uint64_t one = 1;

	if (s->o[i])
		obj_fire(s->o[i], EPOLLIN, EPOLLIN);
	else
		assert_int_equal(write(s->fd[i], &one, sizeof(one)), sizeof(one));
}

static void set_drain(struct set *s, int i)
{
	uint64_t n;

	if (s->o[i])
		obj_set(s->o[i], 0);
	else
		assert_int_equal(read(s->fd[i], &n, sizeof(n)), sizeof(n));
}

/* ns: as a time-out. What it says of the two goes to revents. */
static int set_poll(struct set *s, int64_t ns, const sigset_t *mask)
{
	struct pollfd p[2];
	struct timespec ts = {ns / 1000000000, ns % 1000000000};
	int n;

	if (s->kind != KERNEL)
		return pollux_files_poll(s->v, 2, ns > 0 ? now_ns() + ns : ns, mask,
					 s->kind == HOSTED ? &host : NULL);
	for (int i = 0; i < 2; i++)
		p[i] = (struct pollfd){.fd = s->v[i].fd, .events = (short)s->v[i].events};
	n = ppoll(p, 2, ns < 0 ? NULL : &ts, mask);
	for (int i = 0; i < 2; i++)
		s->v[i].revents = (unsigned short)p[i].revents;
	return n < 0 ? -errno : n;
}

/* --- what it says ------------------------------------------------------------------ */

static void it_says_what_is_ready(void **state)
{
	(void)state;
	for (enum kind kind = KERNEL; kind < KINDS; kind++) {
		struct set *s = set_new(kind);

		for (int times = 0; times < 2; times++) {
			int64_t ns = times ? POLLUX_FOREVER : 0;

			if (!times)
				assert_int_equal(set_poll(s, ns, NULL), 0);
			set_ready(s, 0);
			assert_int_equal(set_poll(s, ns, NULL), 1);
			assert_int_equal(s->v[0].revents, EPOLLIN);
			assert_int_equal(s->v[1].revents, 0);
			set_ready(s, 1);
			assert_int_equal(set_poll(s, ns, NULL), 2);
			assert_int_equal(s->v[0].revents, EPOLLIN);
			assert_int_equal(s->v[1].revents, EPOLLIN);
			set_drain(s, 0);
			assert_int_equal(set_poll(s, ns, NULL), 1);
			assert_int_equal(s->v[0].revents, 0);
			assert_int_equal(s->v[1].revents, EPOLLIN);
			set_drain(s, 1);
		}
		set_put(s);
	}
}

static void what_is_not_wanted_is_not_told(void **state)
{
	struct obj *o = obj_new(EPOLLOUT | EPOLLHUP);
	struct pollux_pollfile v[] = {
		{.file = &o->file, .events = EPOLLIN | EPOLLET | EPOLLONESHOT},
		{.fd = -1, .events = EPOLLIN, .revents = 7},
		{.fd = 100000, .events = EPOLLIN},
		{.file = &o->file, .events = EPOLLOUT},
	};

	(void)state;
	assert_int_equal(pollux_files_poll(v, 4, POLLUX_FOREVER, NULL, NULL), 3);
	assert_int_equal(v[0].revents, EPOLLHUP);
	assert_int_equal(v[1].revents, 0);
	assert_int_equal(v[2].revents, POLLNVAL);
	assert_int_equal(v[3].revents, EPOLLOUT | EPOLLHUP);
	assert_int_equal(pollux_files_poll(v, 1, 0, NULL, NULL), 1);
	assert_int_equal(pollux_files_poll(v, 0, 0, NULL, NULL), 0);
	assert_int_equal(pollux_files_poll(v + 1, 1, now_ns() + 1000000, NULL, NULL), 0);
	obj_put(o);
}

static void many_descriptors_and_files(void **state)
{
	enum { MANY = 200 };
	static struct pollux_pollfile v[MANY];
	struct obj *o[MANY] = {0};
	uint64_t one = 1;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		v[i] = (struct pollux_pollfile){.events = EPOLLIN, .fd = -1};
		if (i % 2) {
			o[i] = obj_new(0);
			v[i].file = &o[i]->file;
		} else {
			v[i].fd = eventfd(0, EFD_CLOEXEC);
			assert_true(v[i].fd >= 0);
		}
	}
	assert_int_equal(pollux_files_poll(v, MANY, 0, NULL, NULL), 0);
	assert_int_equal(pollux_files_poll(v, MANY, now_ns() + 1000000, NULL, NULL), 0);
	assert_int_equal(write(v[42].fd, &one, sizeof(one)), sizeof(one));
	obj_fire(o[77], EPOLLIN, EPOLLIN);
	assert_int_equal(pollux_files_poll(v, MANY, POLLUX_FOREVER, NULL, NULL), 2);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(v[i].revents, i == 42 || i == 77 ? EPOLLIN : 0);
		if (o[i])
			obj_put(o[i]);
		else
			close(v[i].fd);
	}
}

/* --- how it sleeps ----------------------------------------------------------------- */

struct poller {
	struct thread t;
	struct set *s;
	const sigset_t *mask;
	int n;
};

static void poller_main(struct thread *t)
{
	struct poller *p = t->arg;
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	if (p->mask)
		pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	p->n = set_poll(p->s, POLLUX_FOREVER, p->mask);
}

/* Between its naps it wants a CPU, which a busy machine may not have for it. */
static bool parked(void)
{
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	while (!__atomic_load_n(&host_saw.parks, __ATOMIC_SEQ_CST) && now_ns() < end)
		sleep_ms(1);
	return now_ns() < end;
}

static struct poller *poller_new(struct set *s, const sigset_t *mask)
{
	struct poller *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->s = s;
	p->mask = mask;
	thread_start(&p->t, poller_main, p);
	assert_true(s->kind == HOSTED ? parked() : thread_asleep(&p->t));
	return p;
}

static void each_ends_a_sleep(void **state)
{
	(void)state;
	for (enum kind kind = KERNEL; kind < KINDS; kind++) {
		for (int i = 0; i < 2; i++) {
			struct set *s = set_new(kind);
			struct poller *p = poller_new(s, NULL);

			/* A wake in vain does not. */
			if (s->o[i]) {
				pollux_file_wake(&s->o[i]->file, EPOLLIN);
				pollux_file_wake(&s->o[i]->file, EPOLLOUT);
				sleep_ms(QUIET_MS);
				assert_false(thread_done(&p->t));
			}
			set_ready(s, i);
			thread_join(&p->t);
			assert_int_equal(p->n, 1);
			assert_int_equal(s->v[i].revents, EPOLLIN);
			assert_int_equal(s->v[!i].revents, 0);
			free(p);
			set_put(s);
		}
	}
}

static void time_outs_are_kept(void **state)
{
	(void)state;
	for (enum kind kind = KERNEL; kind < KINDS; kind++) {
		struct set *s = set_new(kind);
		int64_t start = now_ns();

		assert_int_equal(set_poll(s, 3000000, NULL), 0);
		assert_true(now_ns() - start >= 3000000);
		if (kind != KERNEL)
			assert_int_equal(pollux_files_poll(s->v, 2, 1, NULL, NULL), 0);
		set_put(s);
	}
}

static void signals_end_a_sleep(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	(void)state;
	sigaction(SIGUSR1, &sa, NULL);
	for (enum kind kind = KERNEL; kind < HOSTED; kind++) {
		struct set *s = set_new(kind);
		struct poller *p;

		handled = 0;
		p = poller_new(s, NULL);
		pthread_kill(p->t.id, SIGUSR1);
		thread_join(&p->t);
		assert_int_equal(p->n, -EINTR);
		assert_int_equal(handled, 1);
		free(p);
		set_put(s);
	}
	signal(SIGUSR1, SIG_DFL);
}

/* As ppoll: set for the sleep, and events go before signals. */
static void it_has_a_mask(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal};
	sigset_t none, usr1, now;

	(void)state;
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigaction(SIGUSR1, &sa, NULL);
	for (enum kind kind = KERNEL; kind < HOSTED; kind++) {
		struct set *s = set_new(kind);
		struct poller *p;

		handled = 0;
		p = poller_new(s, &none);
		pthread_kill(p->t.id, SIGUSR1);
		thread_join(&p->t);
		assert_int_equal(p->n, -EINTR);
		assert_int_equal(handled, 1);
		free(p);
		pthread_sigmask(SIG_BLOCK, &usr1, NULL);
		pthread_kill(pthread_self(), SIGUSR1);
		set_ready(s, 0);
		assert_int_equal(set_poll(s, POLLUX_FOREVER, &none), 1);
		set_drain(s, 0);
		assert_int_equal(set_poll(s, 1000000, &usr1), 0);
		sleep_ms(1);
		assert_int_equal(handled, 1);
		assert_int_equal(set_poll(s, POLLUX_FOREVER, &none), -EINTR);
		sleep_ms(1);
		assert_int_equal(handled, 2);
		pthread_sigmask(SIG_BLOCK, NULL, &now);
		assert_true(sigismember(&now, SIGUSR1));
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
		set_put(s);
	}
	signal(SIGUSR1, SIG_DFL);
}

static void it_holds_what_it_sleeps_on(void **state)
{
	struct set *s = set_new(FILES);
	struct poller *p = poller_new(s, NULL);

	(void)state;
	obj_put(s->o[1]);
	set_ready(s, 0);
	thread_join(&p->t);
	assert_int_equal(p->n, 1);
	s->o[1] = obj_new(0);
	free(p);
	set_put(s);
}

static void an_epoll_is_one_of_the_files(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct set *s = set_new(FILES);
	struct epoll_event ev = {.events = EPOLLIN};
	struct poller *p;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	ep_add(ep, &s->o[1]->file, 0, EPOLLIN, 'a');
	s->v[1].file = pollux_ep_file(ep);
	p = poller_new(s, NULL);
	/* While it is watched it takes no descriptors. */
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), -EOPNOTSUPP);
	set_ready(s, 1);
	thread_join(&p->t);
	assert_int_equal(p->n, 1);
	assert_int_equal(s->v[1].revents, EPOLLIN);
	free(p);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	assert_int_equal(set_poll(s, 0, NULL), -EOPNOTSUPP);
	s->v[1].file = NULL;
	s->v[1].fd = pollux_ep_fd(ep);
	assert_int_equal(set_poll(s, 0, NULL), 1);
	assert_int_equal(s->v[1].revents, EPOLLIN);
	close(fd);
	ep_put(ep);
	set_put(s);
}

static void a_watch_that_has_left_is_not_called(void **state)
{
	struct set *s = set_new(HOSTED);

	(void)state;
	assert_int_equal(set_poll(s, 1000000, NULL), 0);
	assert_true(host_saw.parks > 0);
	host_saw.ended = 1;
	set_ready(s, 0);
	set_ready(s, 1);
	assert_int_equal(host_saw.late, 0);
	set_put(s);
}

static void it_fails_where_it_cannot_be(void **state)
{
	struct pollux_host bad = host;
	struct rlimit old, low;
	struct set *s = set_new(MIXED);
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	assert_int_equal(pollux_files_poll(s->v, 2, 0, NULL, &host), -EOPNOTSUPP);
	assert_int_equal(pollux_files_poll(s->v, 1, 0, &none, &host), -EOPNOTSUPP);
	assert_int_equal(pollux_files_poll(s->v, 1, 0, NULL, &host), 0);
	bad.size--;
	assert_int_equal(pollux_files_poll(s->v, 1, 0, NULL, &bad), -EINVAL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(set_poll(s, 0, NULL), 0);
	assert_int_equal(set_poll(s, POLLUX_FOREVER, NULL), -EMFILE);
	/* A deadline that has passed is no sleep. */
	assert_int_equal(pollux_files_poll(s->v, 2, 1, NULL, NULL), 0);
	assert_int_equal(pollux_files_poll(s->v, 1, now_ns() + 1000, NULL, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	set_put(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_says_what_is_ready),
		TEST(what_is_not_wanted_is_not_told),
		TEST(many_descriptors_and_files),
		TEST(each_ends_a_sleep),
		TEST(time_outs_are_kept),
		TEST(signals_end_a_sleep),
		TEST(it_has_a_mask),
		TEST(it_holds_what_it_sleeps_on),
		TEST(an_epoll_is_one_of_the_files),
		TEST(a_watch_that_has_left_is_not_called),
		TEST(it_fails_where_it_cannot_be),
	};

	return RUN(tests);
}
