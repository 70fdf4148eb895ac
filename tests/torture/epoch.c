/* SPDX-License-Identifier: MIT */
/*
 * A producer that stands between its look at a file and its mark notices that the item it has found
 * was removed meanwhile, also after as many moves of EPOCH as a busy file makes in seconds.
 */
#include "epoll/engine.h"

#include "torture.h"

/* As if the file had made so many moves since the word was `was`. */
static void moved(struct pollux_file *f, uint64_t was, uint64_t moves)
{
	uint64_t epoch = was - was % PLX_EPOCH_ONE + moves * PLX_EPOCH_ONE;

	plx_store(&f->word, epoch + plx_load(&f->word) % PLX_EPOCH_ONE);
}

static void removed_under_a_producer(bool counter, const char *point)
{
	torture_begin();
	points_delay(false);
	for (int bits = 16; bits < 31; bits++) {
		struct pollux_ep *ep = ep_new();
		struct pollux_efd *e = counter ? efd_new(0, 0) : NULL;
		struct obj *o = counter ? NULL : obj_new(0);
		struct pollux_file *f = counter ? pollux_efd_file(e) : &o->file;
		struct stopped s;
		uint64_t was;

		ep_add(ep, f, 0, EPOLLIN, 'a');
		was = plx_load(&f->word);
		stopped_start(&s, point, e, o);
		assert_int_equal(ep_del(ep, f, 0), 0);
		ep_add(ep, f, 0, EPOLLIN, 'b');
		moved(f, was, 1ull << bits);
		stopped_go(&s);
		assert_one(ep, EPOLLIN, 'b');
		if (counter)
			efd_put(e);
		else
			obj_put(o);
		ep_put(ep);
	}
}

static void a_write_that_marks_as_it_adds(void **state)
{
	(void)state;
	removed_under_a_producer(true, "add_before_cas");
}

static void a_wake(void **state)
{
	(void)state;
	removed_under_a_producer(false, "queue_before_mark");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_write_that_marks_as_it_adds),
		TEST(a_wake),
	};

	return RUN(tests);
}
