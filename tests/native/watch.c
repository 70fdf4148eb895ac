/* SPDX-License-Identifier: MIT */
/*
 * A watch is called with each wake of its file that concerns it, from its ADD to its removal, and
 * neither before nor after.
 */
#include "native.h"

#include <semaphore.h>

#include <pollux/level.h>
#include <pollux/read.h>
#include <pollux/watch.h>

/* A watch that notes its calls. */
struct note {
	struct pollux_watch w;
	int calls;
	uint32_t key;
	struct pollux_file *file;
	/* Of all notes: which call this one's last was. */
	int nth;
	/* Not NULL: the call posts entered, and waits for leave. */
	sem_t *entered, *leave;
};

static int calls_of_all;

static void note_call(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	struct note *n = pollux_container_of(w, struct note, w);

	n->key = key;
	n->file = f;
	n->nth = __atomic_add_fetch(&calls_of_all, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&n->calls, 1, __ATOMIC_SEQ_CST);
	if (n->entered) {
		sem_post(n->entered);
		while (sem_wait(n->leave))
			;
	}
}

static int note_add(struct note *n, struct pollux_file *f, uint32_t events)
{
	memset(&n->w, 0xff, sizeof(n->w));
	return pollux_watch_add(&n->w, f, events, note_call);
}

static void add_says_what_is_true(void **state)
{
	static const struct {
		uint32_t mask, events, said;
	} cases[] = {
		{0, EPOLLIN, 0},
		{EPOLLIN | EPOLLOUT, EPOLLIN, EPOLLIN},
		{EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLOUT | EPOLLET, EPOLLIN | EPOLLOUT},
		{EPOLLIN | EPOLLHUP, 0, EPOLLHUP},
		{EPOLLERR, EPOLLIN, EPOLLERR},
	};
	struct note n = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct obj *o = obj_new(cases[i].mask);

		assert_int_equal(note_add(&n, &o->file, cases[i].events), cases[i].said);
		assert_int_equal(pollux_watch_del(&n.w), 0);
		pollux_synchronize();
		obj_put(o);
	}
	assert_int_equal(n.calls, 0);
}

static void wakes_that_concern_it_call_it(void **state)
{
	struct obj *o = obj_new(0);
	struct note n = {0};

	(void)state;
	assert_int_equal(note_add(&n, &o->file, EPOLLIN), 0);
	obj_fire(o, EPOLLIN, EPOLLIN | EPOLLRDNORM);
	assert_int_equal(n.calls, 1);
	assert_int_equal(n.key, EPOLLIN | EPOLLRDNORM);
	assert_ptr_equal(n.file, &o->file);
	obj_fire(o, EPOLLIN, 0);
	assert_int_equal(n.calls, 2);
	assert_int_equal(n.key, 0);
	pollux_file_wake(&o->file, EPOLLOUT);
	assert_int_equal(n.calls, 2);
	pollux_file_wake(&o->file, EPOLLHUP);
	pollux_file_wake_all(&o->file, EPOLLERR);
	assert_int_equal(n.calls, 4);
	/* What the file says does not matter. */
	obj_fire(o, 0, EPOLLIN);
	assert_int_equal(n.calls, 5);
	pollux_watch_del_sync(&n.w);
	obj_put(o);
}

static void none_comes_after_the_removal(void **state)
{
	struct obj *o = obj_new(0);
	struct note n = {0}, other = {0};

	(void)state;
	assert_int_equal(note_add(&n, &o->file, EPOLLIN), 0);
	assert_int_equal(note_add(&other, &o->file, EPOLLIN), 0);
	assert_int_equal(pollux_watch_del(&n.w), 0);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(n.calls, 0);
	assert_int_equal(other.calls, 1);
	/* It may be asked again, and then be added again. */
	assert_int_equal(pollux_watch_del(&n.w), 0);
	pollux_watch_del_sync(&n.w);
	assert_int_equal(note_add(&n, &o->file, EPOLLIN), EPOLLIN);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(n.calls, 1);
	pollux_watch_del_sync(&n.w);
	pollux_watch_del_sync(&other.w);
	obj_put(o);
}

/* In front of all that wait in epolls, the newest first, and it takes no exclusive wake. */
static void it_takes_nothing_from_others(void **state)
{
	struct pollux_ep *ep[2] = {ep_new(), ep_new()};
	struct obj *o = obj_new(0);
	struct note n[2] = {0};
	struct waiter *w[2];
	int first;

	(void)state;
	for (int i = 0; i < 2; i++) {
		ep_add(ep[i], &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 'a' + i);
		assert_int_equal(note_add(&n[i], &o->file, EPOLLIN), 0);
		w[i] = waiter_new(ep[i], 1);
	}
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(n[0].calls + n[1].calls, 2);
	assert_int_equal(n[0].nth, n[1].nth + 1);
	first = waiters_first(w, 2);
	assert_int_equal(w[first]->n, 1);
	free(w[first]);
	waiter_stays(w[!first]);
	w[first] = NULL;
	waiters_release(ep[!first], w, 2);
	for (int i = 0; i < 2; i++) {
		pollux_watch_del_sync(&n[i].w);
		ep_put(ep[i]);
	}
	obj_put(o);
}

static void a_producer_that_found_all_told_calls_it(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);
	struct note n = {0};

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'a');
	/* The item is on the list: from now on writes tell nobody. */
	for (int i = 0; i < 4; i++)
		efd_add(e, 1);
	assert_int_equal(note_add(&n, pollux_efd_file(e), EPOLLIN), EPOLLIN);
	for (int i = 0; i < 4; i++)
		efd_add(e, 1);
	assert_int_equal(n.calls, 4);
	pollux_watch_del_sync(&n.w);
	efd_add(e, 1);
	assert_int_equal(n.calls, 4);
	assert_one(ep, EPOLLIN, 'a');
	efd_put(e);
	ep_put(ep);
}

static void levels_call_it(void **state)
{
	struct pollux_level l;
	struct note n = {0};

	(void)state;
	pollux_level_init(&l, 0, NULL);
	assert_int_equal(note_add(&n, &l.file, EPOLLIN | EPOLLPRI), 0);
	pollux_level_set(&l, EPOLLIN);
	pollux_level_set(&l, EPOLLIN | EPOLLPRI);
	assert_int_equal(n.calls, 2);
	assert_int_equal(n.key, EPOLLPRI);
	pollux_watch_del_sync(&n.w);
	pollux_file_put(&l.file);
	pollux_synchronize();
}

static void it_has_a_reference(void **state)
{
	int released = 0, freed = 0;
	struct obj *o = obj_new(EPOLLIN);
	struct note n = {0};

	(void)state;
	o->released = &released;
	o->freed = &freed;
	assert_int_equal(note_add(&n, &o->file, EPOLLIN), EPOLLIN);
	obj_put(o);
	assert_int_equal(released, 0);
	pollux_file_wake(&o->file, EPOLLIN);
	assert_int_equal(n.calls, 1);
	pollux_watch_del_sync(&n.w);
	assert_int_equal(released, 1);
	pollux_quiesce();
	assert_int_equal(freed, 1);
}

/* What its release tries. */
static struct {
	struct pollux_file file;
	struct note n;
	int r;
} ends;

static uint32_t ends_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted;
}

static void ends_release(struct pollux_file *f)
{
	ends.r = note_add(&ends.n, f, EPOLLIN);
}

static void a_file_that_ends_is_not_watched(void **state)
{
	static const struct pollux_file_ops ops = {
		.size = sizeof(ops), .poll = ends_poll, .release = ends_release};

	(void)state;
	pollux_file_init(&ends.file, &ops);
	pollux_file_put(&ends.file);
	assert_int_equal(ends.r, -EBADF);
}

static void an_epoll_is_watched_or_has_descriptors(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct note n = {0};
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(note_add(&n, pollux_ep_file(ep), EPOLLIN), 0);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_int_equal(n.calls, 0);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(n.calls, 1);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev), -EOPNOTSUPP);
	pollux_watch_del_sync(&n.w);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd[0], &ev), 0);
	assert_int_equal(note_add(&n, pollux_ep_file(ep), EPOLLIN), -EOPNOTSUPP);
	obj_put(o);
	ep_put(ep);
	close(fd[0]);
	close(fd[1]);
}

static void fires(struct thread *t)
{
	obj_fire(t->arg, EPOLLIN, EPOLLIN);
}

static void removes(struct thread *t)
{
	pollux_watch_del_sync(t->arg);
}

static void removal_tells_of_a_call(void **state)
{
	struct obj *o = obj_new(0);
	sem_t entered, leave;
	struct note n = {.entered = &entered, .leave = &leave};
	struct thread t, sync;

	(void)state;
	sem_init(&entered, 0, 0);
	sem_init(&leave, 0, 0);
	assert_int_equal(note_add(&n, &o->file, EPOLLIN), 0);
	thread_start(&t, fires, o);
	while (sem_wait(&entered))
		;
	assert_int_equal(pollux_watch_del(&n.w), 1);
	assert_int_equal(pollux_watch_del(&n.w), 1);
	/* No other begins. */
	pollux_file_wake(&o->file, EPOLLIN);
	assert_int_equal(n.calls, 1);
	thread_start(&sync, removes, &n.w);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&sync));
	sem_post(&leave);
	thread_join(&sync);
	thread_join(&t);
	assert_int_equal(pollux_watch_del(&n.w), 0);
	assert_int_equal(n.calls, 1);
	sem_destroy(&entered);
	sem_destroy(&leave);
	obj_put(o);
}

static struct obj *handled;

static void on_signal(int sig)
{
	(void)sig;
	obj_fire(handled, EPOLLIN, EPOLLIN);
}

static void a_handler_may_call_it(void **state)
{
	struct note n = {0};

	(void)state;
	handled = obj_new(0);
	assert_int_equal(note_add(&n, &handled->file, EPOLLIN), 0);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(n.calls, 1);
	assert_int_equal(pollux_watch_del(&n.w), 0);
	pollux_synchronize();
	obj_put(handled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(add_says_what_is_true),
		TEST(wakes_that_concern_it_call_it),
		TEST(none_comes_after_the_removal),
		TEST(it_takes_nothing_from_others),
		TEST(a_producer_that_found_all_told_calls_it),
		TEST(levels_call_it),
		TEST(it_has_a_reference),
		TEST(a_file_that_ends_is_not_watched),
		TEST(an_epoll_is_watched_or_has_descriptors),
		TEST(removal_tells_of_a_call),
		TEST(a_handler_may_call_it),
	};

	return RUN(tests);
}
