/* SPDX-License-Identifier: MIT */
/*
 * The child of a fork can use the files of before, whatever other threads were in the middle of
 * changing about them; epolls of before say that they are dead.
 */
#include "torture.h"

#include <sys/wait.h>

#include <pollux/watch.h>

struct world {
	struct pollux_ep *ep;
	struct obj *o;
	struct pollux_efd *e;
	struct pollux_watch w;
	bool watched;
};

static uint32_t told;

static void told_interest(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	atomic_set(&told, wanted);
}

static const struct pollux_file_ops telling_ops = {
	.size = sizeof(telling_ops),
	.poll = obj_poll,
	.interest = told_interest,
	.release = obj_release,
	.free = obj_free,
};

static int watch_calls;

static void watch_call(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	(void)w;
	(void)f;
	(void)key;
	atomic_add(&watch_calls, 1);
}

static struct world world_new(void)
{
	struct world x = {.ep = ep_new(), .o = obj_new(0), .e = efd_new(0, 0)};

	pollux_file_init(&x.o->file, &telling_ops);
	ep_add(x.ep, &x.o->file, 0, EPOLLIN, 'o');
	ep_add(x.ep, pollux_efd_file(x.e), 0, EPOLLIN, 'e');
	return x;
}

static void world_put(struct world *x)
{
	obj_put(x->o);
	efd_put(x->e);
	ep_put(x->ep);
}

static void child(struct world *x)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 'o'};
	struct pollux_ep *own = NULL;
	uint64_t v;

	alarm(SOON_MS / 1000);
	watch_calls = 0;
	(void)pollux_efd_write(x->e, 1, 0);
	obj_fire(x->o, EPOLLIN, EPOLLIN);
	must(pollux_ep_wait(x->ep, &ev, 1, POLLUX_FOREVER) == -EOWNERDEAD);
	must(pollux_ep_del(x->ep, &x->o->file, 0) == -EOWNERDEAD);
	must(pollux_ep_new(&own, NULL) == 0);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, &x->o->file, 0, &ev) == 0);
	for (int i = 0; i < 3; i++) {
		must(pollux_ep_wait(own, &ev, 1, POLLUX_FOREVER) == 1 && ev.data.u64 == 'o');
		must(pollux_ep_wait(own, &ev, 1, 0) == 0);
		obj_fire(x->o, EPOLLIN, EPOLLIN);
	}
	must(pollux_ep_del(own, &x->o->file, 0) == 1);
	ev.data.u64 = 'e';
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, pollux_efd_file(x->e), 0, &ev) == 0);
	for (int i = 0; i < 3; i++) {
		must(pollux_ep_wait(own, &ev, 1, POLLUX_FOREVER) == 1 && ev.data.u64 == 'e');
		must(pollux_efd_read(x->e, &v, 0) == 0 && v > 0);
		must(pollux_efd_write(x->e, 1, 0) == 0);
	}
	must(watch_calls == 0);
	/* Who was in a call is not here. */
	must(!x->watched || pollux_watch_del(&x->w) == 0);
	pollux_ep_put(own);
	/* Others may have references. */
	obj_put(x->o);
	pollux_ep_put(x->ep);
	pollux_quiesce();
	must(pollux_ep_watches() == 0);
	_exit(0);
}

static void check_child(struct world *x)
{
	pid_t pid = fork();

	if (pid == 0)
		child(x);
	child_passes(pid);
}

/* --- a thread that stands at a point ------------------------------------------------------- */

enum act { ADD, DEL, WAKE, WRITE, WAIT, WATCH };

static const struct {
	const char *point;
	enum act act;
} stands[] = {
	/* With the mutex of the epoll, before the item is queued, or its push complete. */
	{"add_before_sample", ADD},
	/* The file's lock. */
	{"interest_before_tell", DEL},
	{"remove_before_dead", DEL},
	/* A mark is set, and not pushed; or pushed, and nobody told. */
	{"push_before_link", WRITE},
	{"push_before_pushed", WRITE},
	{"wake_before_tell", WAKE},
	{"watch_before_count", WATCH},
	{"watch_before_call", WATCH},
	{"watch_after_call", WATCH},
};

struct stander {
	struct thread t;
	struct gate g;
	struct world *x;
	int i;
};

static void stander_main(struct thread *t)
{
	struct stander *s = t->arg;
	struct world *x = s->x;

	gate_arm(&s->g, stands[s->i].point);
	switch (stands[s->i].act) {
	case ADD:
		ep_add(x->ep, &x->o->file, 1, EPOLLIN, 'p');
		(void)ep_del(x->ep, &x->o->file, 1);
		break;
	case DEL:
		ep_mod(x->ep, &x->o->file, 0, EPOLLOUT, 'p');
		(void)ep_del(x->ep, &x->o->file, 0);
		break;
	case WRITE:
		efd_add(x->e, 1);
		break;
	default:
		obj_fire(x->o, EPOLLIN, EPOLLIN);
	}
}

static void whoever_stands_anywhere(void **state)
{
	(void)state;
	torture_stop = torture_failed = 0;
	points_delay(false);
	for (int i = 0; i < (int)(sizeof(stands) / sizeof(stands[0])); i++) {
		struct world x = world_new();
		struct stander s = {.x = &x, .i = i};

		x.watched = stands[i].act == WATCH;
		if (x.watched)
			check(pollux_watch_add(&x.w, &x.o->file, EPOLLIN, watch_call) == 0);
		start_to_gate(&s.t, stander_main, &s, &s.g);
		check_child(&x);
		gate_open(&s.g);
		thread_join(&s.t);
		if (x.watched)
			pollux_watch_del_sync(&x.w);
		world_put(&x);
	}
	assert_false(torture_failed);
}

/* --- wakes in the child --------------------------------------------------------------------- */

static void adds(struct thread *t)
{
	struct world *x = t->arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 'o'};

	must(pollux_ep_ctl(x->ep, EPOLL_CTL_ADD, &x->o->file, 0, &ev) == 0);
}

/* A wake has found the item of before, and marks it when the file has been added anew. */
static void wakes_child(struct world *x)
{
	struct stopped s;
	struct epoll_event ev;
	struct thread t;

	alarm(SOON_MS / 1000);
	must(pollux_ep_new(&x->ep, NULL) == 0);
	stopped_start(&s, "queue_before_mark", NULL, x->o);
	thread_start(&t, adds, x);
	/* It waits for the wake, as it should, or has not come to the ADD. */
	sleep_ms(QUIET_MS);
	must(!thread_done(&t));
	stopped_go(&s);
	thread_join(&t);
	for (int i = 0; i < 3; i++) {
		must(pollux_ep_wait(x->ep, &ev, 1, POLLUX_FOREVER) == 1 && ev.data.u64 == 'o');
		obj_fire(x->o, EPOLLIN, EPOLLIN);
	}
	_exit(0);
}

static void a_wake_of_the_child_has_found_an_item_of_before(void **state)
{
	struct world x;
	pid_t pid;

	(void)state;
#if defined(__SANITIZE_THREAD__)
	print_message("with ThreadSanitizer no child of several threads makes threads\n");
	skip();
#endif
	x = world_new();
	torture_stop = torture_failed = 0;
	points_delay(false);
	pid = fork();
	if (pid == 0)
		wakes_child(&x);
	child_passes(pid);
	world_put(&x);
}

/* --- threads that are busy ------------------------------------------------------------------ */

static void busy(struct thread *t)
{
	struct world *x = t->arg;
	uint32_t seed = (uint32_t)t->tid;
	int key = t->tid;
	struct pollux_watch w;
	struct epoll_event ev[4];

	while (!stopping()) {
		switch (rnd(&seed) % 6) {
		case ADD:
			(void)ep_ctl(x->ep, EPOLL_CTL_ADD, &x->o->file, key, EPOLLIN, 'p');
			break;
		case DEL:
			(void)ep_del(x->ep, &x->o->file, key);
			break;
		case WAKE:
			obj_fire(x->o, EPOLLIN, EPOLLIN);
			break;
		case WRITE:
			(void)pollux_efd_write(x->e, 1, 0);
			break;
		case WAIT:
			(void)pollux_ep_wait(x->ep, ev, 4, 0);
			break;
		default:
			check(pollux_watch_add(&w, &x->o->file, EPOLLIN, watch_call) >= 0);
			pollux_file_wake(&x->o->file, EPOLLIN);
			pollux_watch_del_sync(&w);
		}
	}
	(void)ep_del(x->ep, &x->o->file, key);
}

static void whatever_others_do(void **state)
{
	struct world x = world_new();
	unsigned long forks = 0;
	struct thread t[3];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i < 3; i++)
		thread_start(&t[i], busy, &x);
	while (torture_until(start, forks >= 20)) {
		check_child(&x);
		forks++;
	}
	torture_end(t, 3);
	printf("%lu children\n", forks);
	world_put(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whoever_stands_anywhere),
		TEST(a_wake_of_the_child_has_found_an_item_of_before),
		TEST(whatever_others_do),
	};

	return RUN(tests);
}
