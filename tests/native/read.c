/* SPDX-License-Identifier: MIT */
/* Nothing that a read section may look at is freed before its end. */
#include "native.h"

#include <pollux/read.h>

static int freed;

struct section {
	struct thread t;
	int nested, leave;
};

static void reads(struct thread *t)
{
	struct section *s = t->arg;

	pollux_read_lock();
	if (s->nested) {
		pollux_read_lock();
		pollux_read_unlock();
	}
	__atomic_store_n(&s->nested, 2, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&s->leave, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	pollux_read_unlock();
}

static void quiesces(struct thread *t)
{
	struct obj *o = t->arg;

	obj_put(o);
	pollux_quiesce();
}

static void synchronizes(struct thread *t)
{
	(void)t;
	pollux_synchronize();
}

static void waits_for_a_section(void (*fn)(struct thread *), bool nested)
{
	struct section s = {.nested = nested};
	struct obj *o = obj_new(0);
	struct thread t;

	freed = 0;
	o->freed = &freed;
	thread_start(&s.t, reads, &s);
	while (__atomic_load_n(&s.nested, __ATOMIC_SEQ_CST) != 2)
		sleep_ms(1);
	thread_start(&t, fn, o);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&t));
	assert_int_equal(__atomic_load_n(&freed, __ATOMIC_SEQ_CST), 0);
	__atomic_store_n(&s.leave, 1, __ATOMIC_SEQ_CST);
	thread_join(&s.t);
	thread_join(&t);
	if (fn == synchronizes)
		obj_put(o);
	pollux_quiesce();
	assert_int_equal(freed, 1);
}

static void free_waits_for_sections(void **state)
{
	(void)state;
	waits_for_a_section(quiesces, false);
	waits_for_a_section(quiesces, true);
}

static void synchronize_waits_for_sections(void **state)
{
	(void)state;
	waits_for_a_section(synchronizes, false);
	waits_for_a_section(synchronizes, true);
}

/* As an upcall does that comes late: by what it knows it finds the object, or nothing. */
static struct obj *table;

static void tryget_tells_whether_it_has_gone(void **state)
{
	struct obj *o = obj_new(0);

	(void)state;
	table = o;
	pollux_read_lock();
	assert_int_equal(pollux_file_tryget(&table->file), 1);
	pollux_read_unlock();
	obj_put(o);
	obj_put(o);
	pollux_read_lock();
	/* Still readable, as nothing has been freed in between. */
	assert_int_equal(pollux_file_tryget(&table->file), 0);
	pollux_read_unlock();
	table = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(free_waits_for_sections),
		TEST(synchronize_waits_for_sections),
		TEST(tryget_tells_whether_it_has_gone),
	};

	return RUN(tests);
}
