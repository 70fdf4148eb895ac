/* SPDX-License-Identifier: MIT */
/*
 * A wake is a hint, poll decides: one too many makes no event, and who arms a doorbell in poll,
 * before it looks, misses nothing (pollux-embedding(7)).
 */
#include "native.h"

#define LETTERS 20000

static void one_in_vain_is_no_event(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *level = obj_new(0), *edge = obj_new(0);
	struct waiter *w;

	(void)state;
	ep_add(ep, &level->file, 0, EPOLLIN, 'l');
	ep_add(ep, &edge->file, 0, EPOLLIN | EPOLLET, 'e');
	for (int i = 0; i < 3; i++) {
		pollux_file_wake(&level->file, EPOLLIN);
		pollux_file_wake(&edge->file, EPOLLIN);
	}
	assert_none(ep);
	w = waiter_new(ep, 1);
	pollux_file_wake(&level->file, EPOLLIN);
	waiter_stays(w);
	/* Many for one change are one. */
	obj_set(edge, EPOLLIN);
	for (int i = 0; i < 3; i++)
		pollux_file_wake(&edge->file, EPOLLIN);
	waiter_gets(w, 'e');
	obj_put(level);
	obj_put(edge);
	ep_put(ep);
}

static void what_is_gone_at_the_collection_is_no_event(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_set(o, 0);
	assert_none(ep);
	/* And what came without a wake is reported with the next. */
	obj_fire(o, EPOLLIN | EPOLLPRI, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	obj_put(o);
	ep_put(ep);
}

/* Its producer wakes only if somebody has asked for it. */
struct bell {
	struct pollux_file file;
	unsigned int letters, armed;
};

static uint32_t bell_poll(struct pollux_file *f, uint32_t wanted)
{
	struct bell *b = pollux_container_of(f, struct bell, file);

	(void)wanted;
	__atomic_store_n(&b->armed, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&b->letters, __ATOMIC_SEQ_CST) ? EPOLLIN : 0u;
}

static const struct pollux_file_ops bell_ops = {.size = sizeof(bell_ops), .poll = bell_poll};

static void sends(struct thread *t)
{
	struct bell *b = t->arg;

	for (int i = 0; i < LETTERS; i++) {
		__atomic_fetch_add(&b->letters, 1, __ATOMIC_SEQ_CST);
		if (__atomic_exchange_n(&b->armed, 0, __ATOMIC_SEQ_CST))
			pollux_file_wake(&b->file, EPOLLIN);
	}
}

static void a_doorbell_is_armed_in_poll(void **state)
{
	const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct bell b = {.letters = 0};
		struct pollux_ep *ep = ep_new();
		struct epoll_event ev;
		struct thread t;
		unsigned int got = 0;

		pollux_file_init(&b.file, &bell_ops);
		ep_add(ep, &b.file, 0, kinds[i], 'b');
		thread_start(&t, sends, &b);
		while (got < LETTERS) {
			assert_int_equal(pollux_ep_wait(ep, &ev, 1, SOON_MS * 1000000ll), 1);
			got += __atomic_exchange_n(&b.letters, 0, __ATOMIC_SEQ_CST);
		}
		assert_int_equal(got, LETTERS);
		thread_join(&t);
		pollux_file_put(&b.file);
		ep_put(ep);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_in_vain_is_no_event),
		TEST(what_is_gone_at_the_collection_is_no_event),
		TEST(a_doorbell_is_armed_in_poll),
	};

	return RUN(tests);
}
