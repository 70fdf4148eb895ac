/* SPDX-License-Identifier: MIT */
/*
 * An event is taken off when the function that it is handed to has taken it, and not before. What
 * stays is as after a wait of the kernel's that met memory which cannot be written (EP-ARG-03).
 */
#include "native.h"

#include <pollux/read.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#define OBJECTS 3

/* Takes so many, and refuses the next. */
struct store {
	int room;
	int err;
	int n;
	char got[8];
	uint32_t events;
};

static int store_event(void *arg, uint32_t events, uint64_t data)
{
	struct store *s = arg;

	if (s->n == s->room)
		return s->err;
	s->events = events;
	s->got[s->n++] = (char)data;
	return 0;
}

static int collect(struct pollux_ep *ep, int room, int max, char *got)
{
	struct store s = {.room = room, .err = -EFAULT};
	int r = pollux_ep_collect(ep, store_event, &s, max, 0, NULL);

	assert_true(r == s.n || (r < 0 && !s.n));
	strcpy(got, s.got);
	return r;
}

/* What four calls get, with room for 1, 0, 2 and all, of three objects that are ready. */
static void ours(uint32_t mode, char *out)
{
	static const int rooms[] = {1, 0, 2, OBJECTS};
	struct pollux_ep *ep = ep_new();
	struct obj *o[OBJECTS];

	*out = 0;
	for (int i = 0; i < OBJECTS; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | mode, 'a' + i);
	}
	for (int i = 0; i < 4; i++) {
		char got[8];
		int r = collect(ep, rooms[i], OBJECTS, got);

		out += sprintf(out, "%d \"%s\" ", r, got);
	}
	for (int i = 0; i < OBJECTS; i++)
		obj_put(o[i]);
	ep_put(ep);
}

static void kernels(uint32_t mode, char *out)
{
	static const int rooms[] = {1, 0, 2, OBJECTS};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *mem =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ep = epoll_create1(EPOLL_CLOEXEC), fd[OBJECTS];

	*out = 0;
	assert_true(mem != MAP_FAILED && ep >= 0);
	assert_int_equal(mprotect(mem + page, page, PROT_NONE), 0);
	for (int i = 0; i < OBJECTS; i++) {
		struct epoll_event ev = {.events = EPOLLIN | mode, .data.u64 = 'a' + i};

		fd[i] = eventfd(1, EFD_CLOEXEC);
		assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, fd[i], &ev), 0);
	}
	for (int i = 0; i < 4; i++) {
		struct epoll_event *ev = (void *)(mem + page - rooms[i] * sizeof(*ev)), one;
		char got[8] = "";
		int r = epoll_wait(ep, ev, OBJECTS, 0);

		r = r < 0 ? -errno : r;
		for (int k = 0; k < r; k++) {
			memcpy(&one, &ev[k], sizeof(one));
			got[k] = (char)one.data.u64;
		}
		out += sprintf(out, "%d \"%s\" ", r, got);
	}
	for (int i = 0; i < OBJECTS; i++)
		close(fd[i]);
	close(ep);
	munmap(mem, 2 * page);
}

static void what_is_refused_stays_as_in_the_kernel(void **state)
{
	static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT};
	char a[128], b[128];

	(void)state;
	for (int i = 0; i < 3; i++) {
		ours(modes[i], a);
		kernels(modes[i], b);
		assert_string_equal(a, b);
	}
}

static void it_hands_out_what_a_wait_reports(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	struct store s = {.room = 1};

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLRDHUP, 'x');
	assert_int_equal(pollux_ep_collect(ep, store_event, &s, 8, 0, NULL), 1);
	assert_int_equal(s.events, EPOLLIN | EPOLLRDHUP);
	assert_string_equal(s.got, "x");
	obj_put(o);
	ep_put(ep);
}

/* A removal tells that nobody has it. */
static void what_is_refused_is_given_to_nobody(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	char got[8];

	(void)state;
	for (int taken = 0; taken < 2; taken++) {
		ep_add(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'a');
		assert_int_equal(collect(ep, taken, 1, got), taken ? 1 : -EFAULT);
		assert_int_equal(pollux_ep_del(ep, &o->file, 0), taken);
	}
	obj_put(o);
	ep_put(ep);
}

static void it_fails_as_a_wait_does(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct store s = {.room = 0, .err = -EIO};
	int64_t start = now_ns();

	(void)state;
	assert_int_equal(pollux_ep_collect(ep, store_event, &s, 0, 0, NULL), -EINVAL);
	assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, 0, NULL), 0);
	assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, start + 2000000, NULL), 0);
	assert_true(now_ns() - start >= 2000000);
	pollux_ep_shutdown(ep);
	assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, POLLUX_FOREVER, NULL),
			 -ESHUTDOWN);
	ep_put(ep);
}

/* The kernel's side, whichever way it came. */
static void it_is_for_own_objects_alone(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct store s = {.room = 1};
	struct obj *o = obj_new(EPOLLIN);
	sigset_t none;
	int fd[2];

	(void)state;
	sigemptyset(&none);
	assert_int_equal(pipe(fd), 0);
	for (int way = 0; way < 2; way++) {
		struct pollux_ep *ep = ep_new();

		if (way == 0)
			assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev), 0);
		else
			assert_true(pollux_ep_fd(ep) >= 0);
		ep_add(ep, &o->file, 0, EPOLLIN, 'a');
		for (int masked = 0; masked < 2; masked++) {
			const sigset_t *mask = masked ? &none : NULL;

			assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, 0, mask),
					 -EOPNOTSUPP);
			assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, -1, mask),
					 -EOPNOTSUPP);
		}
		ep_put(ep);
	}
	obj_put(o);
	close(fd[0]);
	close(fd[1]);
}

/* A thread in one call that sleeps. */
struct collector {
	struct thread t;
	struct pollux_ep *ep;
	struct store s;
	const sigset_t *mask;
	int r;
};

static void collector_main(struct thread *t)
{
	struct collector *c = t->arg;

	c->r = pollux_ep_collect(c->ep, store_event, &c->s, 1, POLLUX_FOREVER, c->mask);
}

static struct collector *collector_new(struct pollux_ep *ep, int room, const sigset_t *mask)
{
	struct collector *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->ep = ep;
	c->mask = mask;
	c->s = (struct store){.room = room, .err = -EFAULT};
	thread_start(&c->t, collector_main, c);
	assert_true(thread_asleep(&c->t));
	return c;
}

/* A side that is there for a mask has no descriptors, and gets none once somebody collects there.
 */
static void after_a_sleep_there_it_gets_no_descriptors(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	sigset_t none;
	int fd[2];

	(void)state;
	sigemptyset(&none);
	assert_int_equal(pipe(fd), 0);
	for (int way = 0; way < 3; way++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(0);
		struct store s = {.room = 1};
		struct collector *c;

		ep_add(ep, &o->file, 0, EPOLLIN, 'a');
		assert_int_equal(pollux_ep_pwait(ep, &ev, 1, 1, &none), 0);
		assert_int_equal(pollux_ep_collect(ep, store_event, &s, 1, 0, &none), 0);
		if (way < 2) {
			c = collector_new(ep, 1, way ? &none : NULL);
			obj_fire(o, EPOLLIN, EPOLLIN);
			thread_join(&c->t);
			assert_int_equal(c->r, 1);
			free(c);
			assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev),
					 -EOPNOTSUPP);
			assert_int_equal(pollux_ep_fd(ep), -EOPNOTSUPP);
		} else {
			assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev), 0);
		}
		obj_put(o);
		ep_put(ep);
	}
	close(fd[0]);
	close(fd[1]);
}

/* Who refuses wakes the next, until one takes it. */
static void a_sleep_ends(const sigset_t *mask)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct collector *c[3];
	int took = 0;

	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 3; i++)
		c[i] = collector_new(ep, 0, mask);
	obj_fire(o, EPOLLIN, EPOLLIN);
	for (int i = 0; i < 3; i++) {
		thread_join(&c[i]->t);
		took += c[i]->r;
		free(c[i]);
	}
	assert_int_equal(took, -3 * EFAULT);
	assert_one(ep, EPOLLIN, 'a');
	assert_none(ep);
	c[0] = collector_new(ep, 1, mask);
	obj_fire(o, EPOLLIN, EPOLLIN);
	thread_join(&c[0]->t);
	assert_int_equal(c[0]->r, 1);
	free(c[0]);
	obj_put(o);
	ep_put(ep);
}

static void a_sleep_ends_and_what_is_refused_goes_on(void **state)
{
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	a_sleep_ends(NULL);
	a_sleep_ends(&none);
}

/* A sleep of either kind, and its batch. */
static void so_it_is_with_batches_and_a_mask(void **state)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct obj *o = obj_new(0);
	struct pollux_ep *ep;
	int freed = 0;
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	o->freed = &freed;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 3; i++) {
		struct collector *c = collector_new(ep, 1, &none);

		obj_fire(o, EPOLLIN, EPOLLIN);
		thread_join(&c->t);
		assert_int_equal(c->r, 1);
		free(c);
	}
	obj_set(o, EPOLLIN);
	pollux_file_wake(&o->file, EPOLLIN);
	assert_int_equal(pollux_ep_collect(ep, store_event, &(struct store){.room = 1}, 1,
					   POLLUX_FOREVER, &none),
			 1);
	obj_put(o);
	(void)pollux_reclaim(0);
	(void)pollux_reclaim(0);
	assert_int_equal(freed, 0);
	assert_int_equal(
		pollux_ep_collect(ep, store_event, &(struct store){.room = 1}, 1, 0, &none), 0);
	pollux_barrier();
	assert_int_equal(freed, 1);
	ep_put(ep);
}

static void a_shutdown_ends_a_sleep_with_a_mask(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct collector *c[2];
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	c[0] = collector_new(ep, 1, &none);
	c[1] = collector_new(ep, 1, &none);
	pollux_ep_shutdown(ep);
	for (int i = 0; i < 2; i++) {
		thread_join(&c[i]->t);
		assert_int_equal(c[i]->r, -ESHUTDOWN);
		free(c[i]);
	}
	ep_put(ep);
}

static void a_descriptor_ends_a_sleep(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *ep = ep_new();
	struct collector *c = collector_new(ep, 1, NULL);
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev), 0);
	thread_join(&c->t);
	assert_int_equal(c->r, -EOPNOTSUPP);
	free(c);
	close(fd[0]);
	close(fd[1]);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_hands_out_what_a_wait_reports),
		TEST(what_is_refused_stays_as_in_the_kernel),
		TEST(what_is_refused_is_given_to_nobody),
		TEST(it_fails_as_a_wait_does),
		TEST(it_is_for_own_objects_alone),
		TEST(after_a_sleep_there_it_gets_no_descriptors),
		TEST(a_sleep_ends_and_what_is_refused_goes_on),
		TEST(so_it_is_with_batches_and_a_mask),
		TEST(a_shutdown_ends_a_sleep_with_a_mask),
		TEST(a_descriptor_ends_a_sleep),
	};

	return RUN(tests);
}
