/* SPDX-License-Identifier: MIT */
/*
 * A poller that comes to a file again while a wake stands on it, in the memory that the wake knows.
 * It does so in its own call, so it happens each time.
 */
#include "epoll/engine.h"

#include "native.h"

struct poller {
	struct plx_watch w;
	struct obj *o;
	/* Added in front of all while the poller is away. */
	struct pollux_ep *added;
	unsigned int calls;
	bool first;
};

static void comes_again(struct plx_watch *w, uint32_t key)
{
	struct poller *p = (struct poller *)w;

	(void)key;
	/* Once: it would go round. */
	if (p->calls++)
		return;
	p->first = plx_watch_unlink(&p->o->file, w);
	if (p->added)
		ep_add(p->added, &p->o->file, 0, EPOLLIN | EPOLLET, 'n');
	plx_watch_link(&p->o->file, w);
}

static void poller_come(struct poller *p, struct obj *o)
{
	*p = (struct poller){.w = {.call = comes_again, .place = PLX_WATCH_POLLER}, .o = o};
	plx_watch_link(&o->file, &p->w);
}

static void who_is_behind_is_called_once(void **state)
{
	struct pollux_ep *ep = ep_new(), *last = ep_new(), *added = ep_new();

	(void)state;
	for (int with = 0; with < 2; with++) {
		struct obj *o = obj_new(0);
		struct poller p;

		ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
		ep_add(last, &o->file, 0, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 'z');
		poller_come(&p, o);
		p.added = with ? added : NULL;
		obj_fire(o, EPOLLIN, EPOLLIN);
		assert_int_equal(p.calls, 1);
		assert_true(p.first);
		assert_one(ep, EPOLLIN, 'a');
		assert_one(last, EPOLLIN, 'z');
		if (with)
			assert_one(added, EPOLLIN, 'n');
		/* And by the next wake, where it is now. */
		obj_fire(o, EPOLLIN, EPOLLIN);
		assert_int_equal(p.calls, 2);
		assert_one(ep, EPOLLIN, 'a');
		assert_one(last, EPOLLIN, 'z');
		assert_true(plx_watch_unlink(&o->file, &p.w));
		obj_put(o);
	}
	ep_put(ep);
	ep_put(last);
	ep_put(added);
}

/* Who has come in front is called before; the poller must not lead to it again. */
static void one_that_had_somebody_in_front_says_so(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct poller p, other;

	(void)state;
	for (int stays = 0; stays < 2; stays++) {
		poller_come(&p, o);
		ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
		if (!stays)
			assert_int_equal(ep_del(ep, &o->file, 0), 0);
		assert_false(plx_watch_unlink(&o->file, &p.w));
		/* With the item behind it. */
		poller_come(&p, o);
		assert_true(plx_watch_unlink(&o->file, &p.w));
		poller_come(&p, o);
		poller_come(&other, o);
		if (stays)
			assert_true(plx_watch_unlink(&o->file, &other.w));
		assert_false(plx_watch_unlink(&o->file, &p.w));
		if (!stays)
			assert_true(plx_watch_unlink(&o->file, &other.w));
	}
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	ep_put(ep);
	obj_put(o);
}

static void who_comes_to_the_end_does_not_matter(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct poller p, end = {.w = {.call = comes_again, .place = PLX_WATCH_TAIL}};

	(void)state;
	poller_come(&p, o);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 'a');
	plx_watch_link(&o->file, &end.w);
	assert_true(plx_watch_unlink(&o->file, &p.w));
	/* What is no poller is not asked, and says no. */
	assert_false(plx_watch_unlink(&o->file, &end.w));
	ep_put(ep);
	obj_put(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_is_behind_is_called_once),
		TEST(one_that_had_somebody_in_front_says_so),
		TEST(who_comes_to_the_end_does_not_matter),
	};

	return RUN(tests);
}
