/* SPDX-License-Identifier: MIT */
/* A file that asks for it is told what its watchers want, whenever that has changed. */
#include "native.h"

#define ALWAYS (EPOLLERR | EPOLLHUP)

struct teller {
	struct pollux_file file;
	uint32_t mask;
	uint32_t wanted;
	int told, released;
};

static uint32_t teller_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return pollux_container_of(f, struct teller, file)->mask;
}

static void teller_interest(struct pollux_file *f, uint32_t wanted)
{
	struct teller *x = pollux_container_of(f, struct teller, file);

	assert_int_equal(x->released, 0);
	x->wanted = wanted;
	x->told++;
}

static void teller_release(struct pollux_file *f)
{
	pollux_container_of(f, struct teller, file)->released = 1;
}

static const struct pollux_file_ops teller_ops = {
	.size = sizeof(teller_ops),
	.poll = teller_poll,
	.interest = teller_interest,
	.release = teller_release,
};

#define assert_told(x, times, events)                                                              \
	do {                                                                                       \
		assert_int_equal((x)->told, times);                                                \
		assert_int_equal((x)->wanted, events);                                             \
	} while (0)

static void teller_init(struct teller *x)
{
	memset(x, 0, sizeof(*x));
	pollux_file_init(&x->file, &teller_ops);
}

static void it_is_the_union_of_all_watchers(void **state)
{
	struct pollux_ep *one = ep_new(), *two = ep_new();
	struct teller x;

	(void)state;
	teller_init(&x);
	ep_add(one, &x.file, 0, EPOLLIN, 'a');
	assert_told(&x, 1, EPOLLIN | ALWAYS);
	/* Nothing that is new. Flags are no events. */
	ep_add(two, &x.file, 0, EPOLLIN | EPOLLET, 'b');
	assert_told(&x, 1, EPOLLIN | ALWAYS);
	ep_add(two, &x.file, 1, EPOLLOUT | EPOLLEXCLUSIVE, 'c');
	assert_told(&x, 2, EPOLLIN | EPOLLOUT | ALWAYS);
	ep_mod(one, &x.file, 0, EPOLLPRI, 'a');
	assert_told(&x, 3, EPOLLIN | EPOLLOUT | EPOLLPRI | ALWAYS);
	assert_int_equal(ep_del(two, &x.file, 0), 0);
	assert_told(&x, 4, EPOLLOUT | EPOLLPRI | ALWAYS);
	/* An end of an epoll is one of its registrations. */
	ep_put(two);
	assert_told(&x, 5, EPOLLPRI | ALWAYS);
	ep_put(one);
	assert_told(&x, 6, 0);
	pollux_file_put(&x.file);
	assert_told(&x, 6, 0);
}

static void a_one_shot_that_was_delivered_wants_nothing(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct teller x;

	(void)state;
	teller_init(&x);
	ep_add(ep, &x.file, 0, EPOLLIN | EPOLLONESHOT, 'a');
	assert_told(&x, 1, EPOLLIN | ALWAYS);
	x.mask = EPOLLIN;
	pollux_file_wake(&x.file, EPOLLIN);
	assert_told(&x, 1, EPOLLIN | ALWAYS);
	assert_one(ep, EPOLLIN, 'a');
	assert_told(&x, 2, 0);
	ep_mod(ep, &x.file, 0, EPOLLOUT | EPOLLONESHOT, 'a');
	assert_told(&x, 3, EPOLLOUT | ALWAYS);
	/* The end of the file itself is not told of: there is release. */
	pollux_file_put(&x.file);
	assert_told(&x, 3, EPOLLOUT | ALWAYS);
	assert_int_equal(x.released, 1);
	ep_put(ep);
}

/* An ADD that fails leaves no trace. */
static void an_add_that_is_refused_is_taken_back(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct teller x;

	(void)state;
	teller_init(&x);
	pollux_ep_set_max_watches(0);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &x.file, 0, EPOLLIN, 'a'), -ENOSPC);
	pollux_ep_set_max_watches(-1);
	assert_told(&x, 0, 0);
	ep_add(ep, &x.file, 0, EPOLLIN, 'a');
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &x.file, 0, EPOLLOUT, 'a'), -EEXIST);
	assert_told(&x, 1, EPOLLIN | ALWAYS);
	ep_put(ep);
	pollux_file_put(&x.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_is_the_union_of_all_watchers),
		TEST(a_one_shot_that_was_delivered_wants_nothing),
		TEST(an_add_that_is_refused_is_taken_back),
	};

	return RUN(tests);
}
