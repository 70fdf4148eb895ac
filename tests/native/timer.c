/* SPDX-License-Identifier: MIT */
/*
 * A timer is ready when the clock says so, for whoever waits: the counts are those of timerfd, and
 * nothing has to run for it.
 */
#include "epoll/engine.h"

#include "native.h"

#include <poll.h>
#include <pollux/poll.h>
#include <pollux/timer.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#define MS 1000000ll

/* --- a clock that moves when everybody sleeps ------------------------------------------ */

static int64_t virtual_now;
static int parks;

static int virtual_park(void *arg, uint32_t *bell, int64_t deadline)
{
	(void)arg;
	parks++;
	if (pollux_bell_rung(bell))
		return 0;
	assert_true(deadline >= 0);
	if (virtual_now < deadline)
		virtual_now = deadline;
	return -ETIMEDOUT;
}

static void virtual_unpark(void *arg, uint32_t *bell)
{
	(void)arg;
	(void)bell;
}

static int64_t virtual_clock(void *arg)
{
	(void)arg;
	return virtual_now;
}

static const struct pollux_host virtual_host = {.size = sizeof(virtual_host),
						.park = virtual_park,
						.unpark_one = virtual_unpark,
						.now = virtual_clock};

static struct pollux_ep *virtual_ep(void)
{
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &virtual_host};
	struct pollux_ep *ep;

	virtual_now = 1000;
	parks = 0;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	return ep;
}

static struct pollux_timer *timer_new(const struct pollux_host *clock)
{
	struct pollux_timer *t;

	assert_int_equal(pollux_timer_new(&t, clock), 0);
	return t;
}

static void timer_put(struct pollux_timer *t)
{
	pollux_file_put(pollux_timer_file(t));
}

static void timer_set(struct pollux_timer *t, int64_t deadline, int64_t interval)
{
	assert_int_equal(pollux_timer_set(t, deadline, interval), 0);
}

static void timer_add(struct pollux_ep *ep, struct pollux_timer *t, uint32_t events, uint64_t data)
{
	ep_add(ep, pollux_timer_file(t), 0, events, data);
}

static int timer_read(struct pollux_timer *t)
{
	uint64_t n = 12345;
	int r = pollux_timer_read(t, &n);

	assert_true(r == 0 || (r == -EAGAIN && n == 12345));
	return r ? r : (int)n;
}

static bool timer_ready(struct pollux_timer *t)
{
	return pollux_file_poll(pollux_timer_file(t), EPOLLIN | EPOLLOUT) == EPOLLIN;
}

static void it_counts_as_a_timerfd(void **state)
{
	struct pollux_timer *t = timer_new(&virtual_host);

	(void)state;
	virtual_now = 1000;
	assert_false(timer_ready(t));
	assert_int_equal(timer_read(t), -EAGAIN);
	timer_set(t, 1010, 0);
	assert_false(timer_ready(t));
	virtual_now = 1009;
	assert_false(timer_ready(t));
	virtual_now = 1010;
	assert_true(timer_ready(t));
	virtual_now = 5000;
	assert_int_equal(timer_read(t), 1);
	assert_int_equal(timer_read(t), -EAGAIN);
	/* With an interval the grid stays. */
	timer_set(t, 5010, 100);
	virtual_now = 5309;
	assert_int_equal(timer_read(t), 3);
	assert_false(timer_ready(t));
	virtual_now = 5310;
	assert_int_equal(timer_read(t), 1);
	virtual_now = 5410;
	assert_true(timer_ready(t));
	/* What has not been read goes when it is set. */
	timer_set(t, 5500, 0);
	assert_false(timer_ready(t));
	virtual_now = 5500;
	assert_true(timer_ready(t));
	timer_set(t, -1, 0);
	assert_false(timer_ready(t));
	/* One that has passed expires at once. */
	timer_set(t, 5400, 25);
	assert_int_equal(timer_read(t), 5);
	timer_set(t, INT64_MAX - 10, INT64_MAX);
	virtual_now = INT64_MAX - 1;
	assert_int_equal(timer_read(t), 1);
	assert_int_equal(timer_read(t), -EAGAIN);
	assert_int_equal(pollux_timer_set(t, 0, -1), -EINVAL);
	timer_put(t);
}

/* The kernel is asked the same: a second of it, all at once. */
static void its_expirations_are_those_of_the_kernels(void **state)
{
	static const int64_t intervals[] = {0, 1, 7 * MS, 333 * MS, 1000 * MS};
	int64_t now = now_ns(), first = now - 1000 * MS;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct pollux_timer *t = timer_new(NULL);

	(void)state;
	assert_true(fd >= 0);
	if (first <= 0)
		first = 1;
	for (size_t i = 0; i < sizeof(intervals) / sizeof(*intervals); i++) {
		int64_t every = intervals[i], before, after;
		struct itimerspec at = {
			.it_interval = {every / 1000000000, every % 1000000000},
			.it_value = {first / 1000000000, first % 1000000000},
		};
		uint64_t theirs, ours;

		assert_int_equal(timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL), 0);
		timer_set(t, first, every);
		before = now_ns();
		while (read(fd, &theirs, sizeof(theirs)) != sizeof(theirs))
			sleep_ms(1);
		assert_int_equal(pollux_timer_read(t, &ours), 0);
		after = now_ns();
		/* Between the two more may come. */
		assert_true(ours >= theirs);
		assert_true(ours - theirs <=
			    (every ? (uint64_t)((after - before) / every + 1) : 0));
	}
	close(fd);
	timer_put(t);
}

static void a_wait_sleeps_up_to_it(void **state)
{
	struct pollux_ep *ep = virtual_ep();
	struct pollux_timer *t = timer_new(&virtual_host);
	struct epoll_event ev;

	(void)state;
	timer_add(ep, t, EPOLLIN, 't');
	timer_set(t, 2000, 0);
	/* Its own end comes first, then the timer's. */
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), 0);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 500), 0);
	assert_int_equal(virtual_now, 1500);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 2000);
	assert_int_equal(ev.data.u64, 't');
	assert_int_equal(ev.events, EPOLLIN);
	assert_one(ep, EPOLLIN, 't');
	assert_int_equal(timer_read(t), 1);
	assert_none(ep);
	/* A time that was put off is looked at once in vain. */
	timer_set(t, 3000, 0);
	timer_set(t, 4000, 0);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 4000);
	/* What has passed is found by a call that does not sleep. */
	timer_set(t, 5000, 0);
	assert_none(ep);
	virtual_now = 5000;
	assert_one(ep, EPOLLIN, 't');
	assert_int_equal(timer_read(t), 1);
	/* One that is taken out, or not set, ends nothing. */
	timer_set(t, 6000, 0);
	assert_int_equal(ep_del(ep, pollux_timer_file(t), 0), 0);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 7000), 0);
	timer_add(ep, t, EPOLLIN, 't');
	assert_one(ep, EPOLLIN, 't');
	timer_set(t, -1, 0);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 9000), 0);
	assert_int_equal(virtual_now, 9000);
	timer_put(t);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 9500), 0);
	ep_put(ep);
}

static void each_expiration_is_an_edge(void **state)
{
	struct pollux_ep *ep = virtual_ep();
	struct pollux_timer *t = timer_new(&virtual_host);
	struct epoll_event ev;

	(void)state;
	timer_add(ep, t, EPOLLIN | EPOLLET, 't');
	timer_set(t, 2000, 100);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
		assert_int_equal(virtual_now, 2000 + 100 * i);
		assert_none(ep);
	}
	assert_int_equal(timer_read(t), 5);
	/* Several that nobody waited for are one. */
	virtual_now = 2950;
	assert_one(ep, EPOLLIN, 't');
	assert_none(ep);
	/* And a one-shot event comes once. */
	ep_mod(ep, pollux_timer_file(t), 0, EPOLLIN | EPOLLONESHOT, 'o');
	assert_one(ep, EPOLLIN, 'o');
	parks = 0;
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 9000), 0);
	assert_int_equal(parks, 1);
	assert_int_equal(timer_read(t), 66);
	ep_mod(ep, pollux_timer_file(t), 0, EPOLLIN | EPOLLONESHOT, 'o');
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 9100);
	ep_put(ep);
	timer_put(t);
}

/* Against a list of times, with a clock that jumps from one to the next. */
static void many_timers_come_in_their_order(void **state)
{
	enum { MANY = 100 };
	static struct pollux_timer *t[MANY];
	static int64_t next[MANY], every[MANY];
	struct pollux_ep *ep = virtual_ep();
	unsigned int seed = 1, added[MANY] = {0};

	(void)state;
	for (int i = 0; i < MANY; i++) {
		t[i] = timer_new(&virtual_host);
		next[i] = -1;
	}
	for (int step = 0; step < 20000; step++) {
		int i = rand_r(&seed) % MANY;
		struct epoll_event ev[MANY];
		int64_t first = -1;
		int n, due = 0;

		switch (rand_r(&seed) % 4) {
		case 0:
			next[i] = rand_r(&seed) % 4 ? virtual_now + rand_r(&seed) % 1000 : -1;
			every[i] = rand_r(&seed) % 2 ? rand_r(&seed) % 500 : 0;
			timer_set(t[i], next[i], every[i]);
			break;
		case 1:
			if (added[i])
				assert_int_equal(ep_del(ep, pollux_timer_file(t[i]), 0), 0);
			else
				timer_add(ep, t[i], EPOLLIN, i);
			added[i] = !added[i];
			break;
		default:
			for (int k = 0; k < MANY; k++)
				if (added[k] && next[k] >= 0 && (first < 0 || next[k] < first))
					first = next[k];
			if (first < 0)
				continue;
			if (first < virtual_now)
				first = virtual_now;
			for (int k = 0; k < MANY; k++)
				due += added[k] && next[k] >= 0 && next[k] <= first;
			n = pollux_ep_wait(ep, ev, MANY, POLLUX_FOREVER);
			assert_int_equal(virtual_now, first);
			assert_int_equal(n, due);
			for (int k = 0; k < n; k++) {
				int x = (int)ev[k].data.u64;
				int64_t past = virtual_now - next[x];

				assert_true(past >= 0);
				assert_int_equal(timer_read(t[x]),
						 every[x] ? past / every[x] + 1 : 1);
				next[x] = every[x] ? virtual_now - past % every[x] + every[x] : -1;
			}
		}
	}
	for (int i = 0; i < MANY; i++)
		timer_put(t[i]);
	ep_put(ep);
}

static void a_nested_epoll_has_the_times_of_its_own(void **state)
{
	struct pollux_ep *outer = virtual_ep(), *inner = virtual_ep();
	struct pollux_timer *t = timer_new(&virtual_host);
	struct epoll_event ev;

	(void)state;
	timer_add(inner, t, EPOLLIN, 't');
	ep_add(outer, pollux_ep_file(inner), 0, EPOLLIN, 'i');
	timer_set(t, 2000, 0);
	assert_int_equal(pollux_ep_wait(outer, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 2000);
	assert_int_equal(ev.data.u64, 'i');
	assert_one(inner, EPOLLIN, 't');
	assert_int_equal(timer_read(t), 1);
	assert_none(outer);
	/* One that comes when the outer one has looked already. */
	assert_int_equal(ep_del(inner, pollux_timer_file(t), 0), 0);
	timer_set(t, 3000, 0);
	assert_none(outer);
	timer_add(inner, t, EPOLLIN, 't');
	assert_int_equal(pollux_ep_wait(outer, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 3000);
	ep_put(outer);
	ep_put(inner);
	timer_put(t);
}

/* --- the real clock, and threads --------------------------------------------------------- */

static void a_sleep_ends_when_it_expires(void **state)
{
	struct pollux_timer *t = timer_new(NULL);

	(void)state;
	/* On a futex, and in the kernel. */
	for (int fds = 0; fds < 2; fds++) {
		struct pollux_ep *ep = ep_new();
		struct epoll_event ev = {.events = EPOLLIN};
		int fd = eventfd(0, EFD_CLOEXEC);
		int64_t end = now_ns() + 3 * MS;
		struct waiter *w;

		if (fds)
			assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), 0);
		timer_add(ep, t, EPOLLIN, 't');
		timer_set(t, end, 0);
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
		assert_true(now_ns() >= end);
		assert_int_equal(timer_read(t), 1);
		/* One that is set while somebody sleeps; one that comes; an earlier time. */
		w = waiter_new(ep, 1);
		timer_set(t, now_ns() + 1, 0);
		waiter_gets(w, 't');
		assert_int_equal(timer_read(t), 1);
		assert_int_equal(ep_del(ep, pollux_timer_file(t), 0), 0);
		timer_set(t, now_ns() + 100000 * MS, 0);
		w = waiter_new(ep, 1);
		timer_add(ep, t, EPOLLIN, 't');
		assert_true(thread_asleep(&w->t));
		timer_set(t, now_ns() + 5 * MS, 0);
		waiter_gets(w, 't');
		assert_int_equal(timer_read(t), 1);
		close(fd);
		ep_put(ep);
	}
	timer_put(t);
}

static void await_keeper(struct pollux_ep *ep)
{
	int64_t end = now_ns() + SOON_MS * MS;

	while (plx_due_unkept(ep) && now_ns() < end)
		sleep_ms(1);
	assert_false(plx_due_unkept(ep));
}

/* The one who keeps the time may leave for another reason. */
static void one_of_several_wakes_for_it(void **state)
{
	enum { N = 3 };
	struct pollux_timer *t = timer_new(NULL);
	struct obj *o = obj_new(0);

	(void)state;
	for (int fds = 0; fds < 2; fds++) {
		struct pollux_ep *ep = ep_new();
		struct waiter *w[N];

		if (fds)
			assert_true(pollux_ep_ctl_fd(ep, EPOLL_CTL_DEL, 0, NULL) < 0);
		obj_set(o, 0);
		ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
		timer_add(ep, t, EPOLLIN | EPOLLET, 't');
		timer_set(t, now_ns() + 100000 * MS, 0);
		for (int i = 0; i < N; i++)
			w[i] = waiter_new(ep, 1);
		/* Whoever it is that gets this, another keeps the time. */
		for (int i = 0; i < N - 1; i++) {
			int first;

			obj_fire(o, EPOLLIN, EPOLLIN);
			first = waiters_first(w, N);
			assert_int_equal(w[first]->ev[0].data.u64, 'o');
			free(w[first]);
			w[first] = NULL;
			await_keeper(ep);
		}
		timer_set(t, now_ns() + 5 * MS, 0);
		for (int i = 0; i < N; i++)
			if (w[i])
				waiter_gets(w[i], 't');
		/* And not all of them. */
		for (int i = 0; i < N; i++)
			w[i] = waiter_new(ep, 1);
		timer_set(t, now_ns() + 20 * MS, 0);
		{
			int first = waiters_first(w, N);

			assert_int_equal(w[first]->ev[0].data.u64, 't');
			free(w[first]);
			w[first] = NULL;
		}
		sleep_ms(QUIET_MS);
		for (int i = 0; i < N; i++)
			if (w[i])
				assert_false(thread_done(&w[i]->t));
		waiters_release(ep, w, N);
		ep_put(ep);
	}
	obj_put(o);
	timer_put(t);
}

static void a_foreign_loop_is_told(void **state)
{
	struct rlimit old, low;

	(void)state;
	/* The timer is there before, or comes after the descriptor is asked for. */
	for (int after = 0; after < 2; after++) {
		struct pollux_ep *ep = ep_new();
		struct pollux_timer *t = timer_new(NULL), *other = timer_new(NULL);
		int fd;

		if (!after)
			timer_add(ep, t, EPOLLIN, 't');
		fd = pollux_ep_fd(ep);
		assert_true(fd >= 0);
		if (after) {
			assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
			low = old;
			low.rlim_cur = 0;
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
			assert_int_equal(
				ep_ctl(ep, EPOLL_CTL_ADD, pollux_timer_file(t), 0, EPOLLIN, 't'),
				-EMFILE);
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
			timer_add(ep, t, EPOLLIN, 't');
		}
		assert_none(ep);
		assert_false(readable_within(fd, 0));
		for (int i = 0; i < 3; i++) {
			int64_t end = now_ns() + 5 * MS;

			timer_set(t, end, 0);
			/* It may be readable in vain at first: a look ends that. */
			while (readable_within(fd, 10000)) {
				struct epoll_event ev[2];

				if (pollux_ep_wait(ep, ev, 2, 0) == 1)
					break;
				assert_true(now_ns() < end + SOON_MS * MS);
			}
			assert_true(now_ns() >= end);
			assert_true(readable_within(fd, 0));
			assert_int_equal(timer_read(t), 1);
			assert_none(ep);
			assert_false(readable_within(fd, 0));
		}
		/* It does not go round while a time is there. */
		timer_set(t, now_ns() + 100000 * MS, 0);
		timer_add(ep, other, EPOLLIN, 'o');
		timer_set(other, now_ns() + 100000 * MS, 0);
		assert_none(ep);
		assert_none(ep);
		assert_false(readable_within(fd, 0));
		timer_put(t);
		timer_put(other);
		assert_none(ep);
		assert_false(readable_within(fd, 0));
		ep_put(ep);
	}
}

static void a_poll_of_files_ends_by_it(void **state)
{
	struct pollux_timer *t = timer_new(NULL);
	int fd = eventfd(0, EFD_CLOEXEC);
	struct pollux_pollfile v[] = {
		{.file = pollux_timer_file(t), .events = EPOLLIN},
		{.fd = fd, .events = EPOLLIN},
	};

	(void)state;
	for (int n = 1; n <= 2; n++) {
		int64_t end = now_ns() + 3 * MS;

		timer_set(t, end, 0);
		/* This thread may be late. */
		assert_true(pollux_files_poll(v, n, 0, NULL, NULL) == 0 || now_ns() >= end);
		assert_true(pollux_files_poll(v, n, end - 2 * MS, NULL, NULL) == 0 ||
			    now_ns() >= end);
		assert_int_equal(pollux_files_poll(v, n, POLLUX_FOREVER, NULL, NULL), 1);
		assert_true(now_ns() >= end);
		assert_int_equal(timer_read(t), 1);
	}
	virtual_now = 1000;
	timer_put(t);
	t = timer_new(&virtual_host);
	v[0].file = pollux_timer_file(t);
	timer_set(t, 2000, 0);
	assert_int_equal(pollux_files_poll(v, 1, POLLUX_FOREVER, NULL, &virtual_host), 1);
	assert_int_equal(virtual_now, 2000);
	close(fd);
	timer_put(t);
}

/* --- times of files of the program's ------------------------------------------------------ */

struct own {
	struct pollux_file file;
	int64_t at;
};

static uint32_t own_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return virtual_now >= pollux_container_of(f, struct own, file)->at ? EPOLLPRI : 0;
}

static int64_t own_due(struct pollux_file *f)
{
	return pollux_container_of(f, struct own, file)->at;
}

static const struct pollux_file_ops own_ops = {
	.size = sizeof(own_ops), .poll = own_poll, .due = own_due};

static void any_file_may_have_times(void **state)
{
	struct pollux_ep *ep = virtual_ep();
	struct own o = {.at = 3000};
	struct epoll_event ev;

	(void)state;
	pollux_file_init(&o.file, &own_ops);
	ep_add(ep, &o.file, 0, EPOLLPRI, 'p');
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 3000);
	o.at = 5000;
	assert_none(ep);
	o.at = 4000;
	pollux_file_wake(&o.file, 0);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(virtual_now, 4000);
	pollux_file_put(&o.file);
	ep_put(ep);
}

/* A clock that moves whenever somebody looks at it. */
static int64_t stepping_clock(void *arg)
{
	(void)arg;
	return virtual_now++;
}

/* Whatever the next look at the clock is for. */
static void it_may_expire_at_any_moment(void **state)
{
	struct pollux_host host = virtual_host;
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_pollfile v = {.events = EPOLLIN};
	struct pollux_timer *t;
	struct pollux_ep *ep;
	uint64_t times;

	(void)state;
	host.now = stepping_clock;
	virtual_now = 1000;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	assert_int_equal(pollux_timer_new(&t, &host), 0);
	v.file = pollux_timer_file(t);
	ep_add(ep, v.file, 0, EPOLLIN, 0);
	for (int ns = 0; ns < 30; ns++) {
		for (int how = 0; how < 4; how++) {
			if (how == 1)
				assert_int_equal(ep_del(ep, v.file, 0), 0);
			assert_int_equal(pollux_timer_set(t, virtual_now + ns, 0), 0);
			if (how == 1)
				ep_add(ep, v.file, 0, EPOLLIN, 0);
			else if (how == 2)
				ep_mod(ep, v.file, 0, EPOLLIN, 0);
			if (how == 3)
				assert_int_equal(
					pollux_files_poll(&v, 1, POLLUX_FOREVER, NULL, &host), 1);
			assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
			assert_int_equal(pollux_timer_read(t, &times), 0);
			assert_int_equal(times, 1);
		}
	}
	pollux_file_put(v.file);
	ep_put(ep);
}

static void a_clock_has_to_be_a_host(void **state)
{
	struct pollux_host bad = virtual_host;
	struct pollux_timer *t = NULL;

	(void)state;
	bad.now = NULL;
	assert_int_equal(pollux_timer_new(&t, &bad), -EINVAL);
	bad = virtual_host;
	bad.size = 8;
	assert_int_equal(pollux_timer_new(&t, &bad), -EINVAL);
	assert_null(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_counts_as_a_timerfd),
		TEST(its_expirations_are_those_of_the_kernels),
		TEST(a_wait_sleeps_up_to_it),
		TEST(each_expiration_is_an_edge),
		TEST(many_timers_come_in_their_order),
		TEST(a_nested_epoll_has_the_times_of_its_own),
		TEST(a_sleep_ends_when_it_expires),
		TEST(one_of_several_wakes_for_it),
		TEST(a_foreign_loop_is_told),
		TEST(a_poll_of_files_ends_by_it),
		TEST(any_file_may_have_times),
		TEST(it_may_expire_at_any_moment),
		TEST(a_clock_has_to_be_a_host),
	};

	return RUN(tests);
}
