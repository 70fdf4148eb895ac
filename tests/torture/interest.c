/* SPDX-License-Identifier: MIT */
/*
 * Threads register a file in epolls of their own, change what they want, have one-shot events
 * delivered and remove it, all at once. The calls of interest come one at a time, the last one says
 * what is wanted in the end, and none comes after the release.
 */
#include "torture.h"

#define THREADS 4
#define EVENTS (EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP)

struct teller {
	struct pollux_file file;
	uint32_t wanted;
	int inside, released;
	unsigned long told;
};

struct changer {
	struct thread t;
	struct teller *x;
	unsigned int seed;
	unsigned long delivered;
	bool leaves;
	uint32_t wants;
};

static uint32_t teller_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted;
}

static void teller_interest(struct pollux_file *f, uint32_t wanted)
{
	struct teller *x = pollux_container_of(f, struct teller, file);

	if (__atomic_exchange_n(&x->inside, 1, __ATOMIC_SEQ_CST))
		broken("two calls of interest at a time");
	if (__atomic_load_n(&x->released, __ATOMIC_SEQ_CST))
		broken("a call of interest after the release");
	x->wanted = wanted;
	x->told++;
	__atomic_store_n(&x->inside, 0, __ATOMIC_SEQ_CST);
}

static void teller_release(struct pollux_file *f)
{
	__atomic_store_n(&pollux_container_of(f, struct teller, file)->released, 1,
			 __ATOMIC_SEQ_CST);
}

static void teller_free(struct pollux_file *f)
{
	free(pollux_container_of(f, struct teller, file));
}

static const struct pollux_file_ops teller_ops = {
	.size = sizeof(teller_ops),
	.poll = teller_poll,
	.interest = teller_interest,
	.release = teller_release,
	.free = teller_free,
};

static void changer_main(struct thread *t)
{
	struct changer *c = t->arg;
	struct pollux_ep *ep = ep_new();
	struct epoll_event ev;
	uint32_t mode = 0;

	for (int i = 0; i < 200; i++) {
		uint32_t events = rand_r(&c->seed) & EVENTS;

		mode = rand_r(&c->seed) % 2 ? EPOLLONESHOT : 0;
		if (i == 0)
			ep_add(ep, &c->x->file, 0, events | mode, 'a');
		else
			ep_mod(ep, &c->x->file, 0, events | mode, 'a');
		c->wants = events | EPOLLERR | EPOLLHUP;
		if (rand_r(&c->seed) % 2 && pollux_ep_wait(ep, &ev, 1, 0) == 1) {
			c->delivered++;
			if (mode)
				c->wants = 0;
		}
	}
	if (c->leaves)
		c->wants = 0;
	/* A registration that stays goes with the file, or with the epoll: both at once. */
	if (c->leaves || rand_r(&c->seed) % 2)
		pollux_file_put(&c->x->file);
	else
		t = NULL;
	ep_put(ep);
	if (!t)
		pollux_file_put(&c->x->file);
}

static void calls_are_in_order_and_end_before_the_release(void **state)
{
	unsigned long rounds = 0, told = 0, delivered = 0;
	int64_t start = now_ns();
	unsigned int seed = 1;

	(void)state;
	torture_begin();
	while (torture_until(start, rounds > 5 && delivered)) {
		struct teller *x = calloc(1, sizeof(*x));
		struct changer c[THREADS];
		struct pollux_ep *ep = ep_new();

		assert_non_null(x);
		pollux_file_init(&x->file, &teller_ops);
		ep_add(ep, &x->file, 0, EPOLLRDBAND, 'z');
		for (int i = 0; i < THREADS; i++) {
			c[i] = (struct changer){.x = x, .seed = seed++, .leaves = rounds % 2};
			pollux_file_get(&x->file);
			thread_start(&c[i].t, changer_main, &c[i]);
		}
		if (rounds % 2) {
			/* Only the one registration of the beginning is left. */
			for (int i = 0; i < THREADS; i++)
				thread_join(&c[i].t);
			check(x->wanted == (EPOLLRDBAND | EPOLLERR | EPOLLHUP));
			told += x->told;
			pollux_file_put(&x->file);
		} else {
			pollux_file_put(&x->file);
			for (int i = 0; i < THREADS; i++)
				thread_join(&c[i].t);
		}
		for (int i = 0; i < THREADS; i++)
			delivered += c[i].delivered;
		ep_put(ep);
		rounds++;
	}
	printf("%lu rounds, %lu calls of interest in half of them, %lu events\n", rounds, told,
	       delivered);
	assert_false(torture_failed);
	assert_true(told > 0 && delivered > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(calls_are_in_order_and_end_before_the_release),
	};

	return RUN(tests);
}
