/* SPDX-License-Identifier: MIT */
/* EP-DEL: EPOLL_CTL_DEL. */
#include "waiting.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void EP_DEL_01_queued_event_goes(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	for (size_t m = 0; m < MODES; m++) {
		/* Queued by ADD. */
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		assert_int_equal(ep_count(ep), 0);
		/* Queued by a callback. */
		subject_drain(&s);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 2));
		subject_fill(&s);
		assert_ok(raw_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		assert_int_equal(ep_count(ep), 0);
		/* Queued again after a delivery. */
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 3));
		assert_true(ep_one(ep, EPOLLIN, 3));
		subject_fill(&s);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		assert_int_equal(ep_count(ep), 0);
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_DEL_01_queued_event_goes)

static void EP_DEL_01_later_edges_are_not_seen(enum kind kind)
{
	struct subject s = subject_new(kind);
	struct pollfd p = {.events = POLLIN};
	int ep = ep_new(), outer = ep_new();

	p.fd = ep;
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
	for (size_t m = 0; m < MODES; m++) {
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		for (int i = 0; i < 10; i++)
			subject_fill(&s);
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(ep_count(ep), 0);
		assert_int_equal(ep_count(outer), 0);
		subject_drain(&s);
	}
	close(ep);
	close(outer);
	subject_close(&s);
}
KIND_TESTS(EP_DEL_01_later_edges_are_not_seen)

static void EP_DEL_01_others_on_the_list_stay(enum kind kind)
{
	struct subject s[5];
	int ep = ep_new();

	for (int i = 0; i < 5; i++) {
		s[i] = subject_ready(kind);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, EPOLLIN, (uint64_t)i));
	}
	/* From the middle, the front and the end. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[2].fd, 0, 0));
	assert_true(ep_order(ep, 4, 0, 1, 3, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[0].fd, 0, 0));
	assert_true(ep_order(ep, 3, 1, 3, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[4].fd, 0, 0));
	assert_true(ep_order(ep, 2, 1, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[1].fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[3].fd, 0, 0));
	assert_int_equal(ep_count(ep), 0);
	for (int i = 0; i < 5; i++)
		subject_close(&s[i]);
	close(ep);
}
KIND_TESTS(EP_DEL_01_others_on_the_list_stay)

static void EP_DEL_01_of_a_mixed_set(void **state)
{
	struct subject e = subject_ready(KIND_EVENTFD), f = subject_ready(KIND_EVENTFD);
	struct subject p = subject_ready(KIND_PIPE), u = subject_ready(KIND_SOCKET);
	int ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e.fd, EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLIN, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, f.fd, EPOLLIN, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, p.fd, 0, 0));
	assert_true(ep_set(ep, 3, 2, 3, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, e.fd, 0, 0));
	assert_true(ep_set(ep, 2, 3, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, f.fd, 0, 0));
	assert_true(ep_set(ep, 1, 3));
	/* All in-process items gone and one back, the same with the others. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e.fd, EPOLLIN, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, u.fd, 0, 0));
	assert_true(ep_set(ep, 1, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, e.fd, 0, 0));
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN, 6));
	assert_true(ep_set(ep, 1, 6));
	close(ep);
	subject_close(&e);
	subject_close(&f);
	subject_close(&p);
	subject_close(&u);
}

static void EP_DEL_01_other_items_of_the_file_stay(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int d = assert_ok(dup(s.fd)), ep = ep_new(), other = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN | EPOLLET, 2));
	assert_ok(ep_ctl(other, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_true(ep_one(other, EPOLLIN, 3));
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_true(ep_one(other, EPOLLIN, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, d, 0, 0));
	subject_fill(&s);
	assert_int_equal(ep_count(ep), 0);
	assert_true(ep_one(other, EPOLLIN, 3));
	close(d);
	close(ep);
	close(other);
	subject_close(&s);
}
KIND_TESTS(EP_DEL_01_other_items_of_the_file_stay)

/*
 * A writer makes edges all the time and a waiter collects; the data say with
 * which ADD an event began. A wait that begins after a DEL has returned must
 * not report what was deleted.
 */
struct chase {
	int ep;
	struct subject s;
	uint64_t deleted; /* the last generation whose DEL has returned */
	int end;
	int stale;
	int seen;
	int wrong;
};

static void *chase_writer(void *arg)
{
	struct chase *c = arg;
	bool counter = c->s.kind == KIND_EVENTFD;
	char buf[64];

	for (unsigned int i = 0; !__atomic_load_n(&c->end, __ATOMIC_ACQUIRE); i++) {
		/* Counts become large and small again. */
		uint64_t value = i % 8 ? 1 : 1 << 21;

		if (((write(c->s.peer, &value, counter ? sizeof(value) : 1) == -1) |
		     (counter && i % 16 == 3)) &&
		    read(c->s.fd, buf, sizeof(buf)) == -1)
			__atomic_add_fetch(&c->wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *chase_waiter(void *arg)
{
	struct chase *c = arg;

	while (!__atomic_load_n(&c->end, __ATOMIC_ACQUIRE)) {
		uint64_t gone = __atomic_load_n(&c->deleted, __ATOMIC_ACQUIRE);
		struct epoll_event ev[4];
		int n = epoll_wait(c->ep, ev, 4, 1);

		for (int i = 0; i < n; i++) {
			__atomic_add_fetch(&c->seen, 1, __ATOMIC_RELAXED);
			if (ev[i].data.u64 <= gone)
				__atomic_add_fetch(&c->stale, 1, __ATOMIC_RELAXED);
		}
		if (n < 0 || n > 1)
			__atomic_add_fetch(&c->wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void chase(enum kind kind, uint32_t mode)
{
	struct chase *c = calloc(1, sizeof(*c));
	struct test_thread *t = calloc(2, sizeof(*t));
	int64_t end = now_ms() + 700;

	assert_non_null(c);
	assert_non_null(t);
	c->ep = ep_new();
	c->s = subject_new(kind);
	thread_start(&t[0], chase_writer, c);
	thread_start(&t[1], chase_waiter, c);
	for (uint64_t i = 1; now_ms() < end || !__atomic_load_n(&c->seen, __ATOMIC_RELAXED); i++) {
		assert_ok(ep_ctl(c->ep, EPOLL_CTL_ADD, c->s.fd, EPOLLIN | mode, i));
		if (i % 8 == 0)
			sched_yield();
		assert_ok(ep_ctl(c->ep, EPOLL_CTL_DEL, c->s.fd, 0, 0));
		__atomic_store_n(&c->deleted, i, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&c->end, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&t[0], SOON_MS));
	assert_true(thread_join(&t[1], SOON_MS));
	assert_int_equal(c->stale, 0);
	assert_int_equal(c->wrong, 0);
	close(c->ep);
	subject_close(&c->s);
	free(c);
	free(t);
}

static void EP_DEL_01_deleted_is_never_reported_again(enum kind kind)
{
	chase(kind, 0);
	chase(kind, EPOLLET);
}
KIND_TESTS(EP_DEL_01_deleted_is_never_reported_again)

/*
 * A page that is missing until the test supplies it holds a collection at the
 * moment in which it stores its event.
 */
struct late_page {
	int uffd;
	char *page;
	size_t size;
};

static bool late_page_new(struct late_page *l)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg;

	l->size = (size_t)sysconf(_SC_PAGESIZE);
	l->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (l->uffd == -1)
		return false;
	assert_ok(ioctl(l->uffd, UFFDIO_API, &api));
	l->page = mmap(NULL, l->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(l->page, MAP_FAILED);
	memset(&reg, 0, sizeof(reg));
	reg.range.start = (uintptr_t)l->page;
	reg.range.len = l->size;
	reg.mode = UFFDIO_REGISTER_MODE_MISSING;
	assert_ok(ioctl(l->uffd, UFFDIO_REGISTER, &reg));
	return true;
}

static void late_page_await_fault(struct late_page *l)
{
	struct pollfd p = {.fd = l->uffd, .events = POLLIN};
	struct uffd_msg msg;

	assert_int_equal(poll(&p, 1, SOON_MS), 1);
	assert_int_equal(assert_ok(read(l->uffd, &msg, sizeof(msg))), sizeof(msg));
	assert_int_equal(msg.event, UFFD_EVENT_PAGEFAULT);
}

static void late_page_supply(struct late_page *l)
{
	struct uffdio_zeropage z;

	memset(&z, 0, sizeof(z));
	z.range.start = (uintptr_t)l->page;
	z.range.len = l->size;
	assert_ok(ioctl(l->uffd, UFFDIO_ZEROPAGE, &z));
}

struct late_call {
	int ep;
	int fd;
	struct epoll_event *ev;
	int r;
};

static void *late_wait(void *arg)
{
	struct late_call *c = arg;

	c->r = epoll_wait(c->ep, c->ev, 1, -1);
	return NULL;
}

static void *late_del(void *arg)
{
	struct late_call *c = arg;

	c->r = ep_ctl(c->ep, EPOLL_CTL_DEL, c->fd, 0, 0);
	return NULL;
}

static void EP_DEL_02_waits_for_a_collection(enum kind kind)
{
	struct subject s = subject_new(kind);
	struct test_thread *t = calloc(2, sizeof(*t));
	struct late_call *c = calloc(2, sizeof(*c));
	struct late_page l = {.uffd = -1};
	int ep = ep_new();

	assert_non_null(t);
	assert_non_null(c);
	if (!late_page_new(&l)) {
		print_message("skipped: no userfaultfd (errno %d)\n", errno);
		free(t);
		free(c);
		close(ep);
		subject_close(&s);
		skip();
	}
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 0x1234567887654321));
	c[0] = (struct late_call){.ep = ep, .fd = s.fd, .ev = (struct epoll_event *)l.page};
	c[1] = c[0];
	thread_start(&t[0], late_wait, &c[0]);
	assert_true(thread_asleep(&t[0]));
	subject_fill(&s);
	late_page_await_fault(&l);
	thread_start(&t[1], late_del, &c[1]);
	sleep_ms(4 * QUIET_MS);
	assert_false(thread_done(&t[1]));
	assert_false(thread_done(&t[0]));
	late_page_supply(&l);
	/* The event that was on its way is valid, and DEL has done its work. */
	assert_true(thread_join(&t[0], SOON_MS));
	assert_true(thread_join(&t[1], SOON_MS));
	assert_int_equal(c[0].r, 1);
	assert_int_equal(c[0].ev->events, EPOLLIN);
	assert_int_equal(c[0].ev->data.u64, 0x1234567887654321);
	assert_int_equal(c[1].r, 0);
	subject_fill(&s);
	assert_int_equal(ep_count(ep), 0);
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0), ENOENT);
	munmap(l.page, l.size);
	close(l.uffd);
	close(ep);
	subject_close(&s);
	free(t);
	free(c);
}
KIND_TESTS(EP_DEL_02_waits_for_a_collection)

static void EP_DEL_02_collected_events_stay_valid(void **state)
{
	struct subject e = subject_new(KIND_EVENTFD), p = subject_new(KIND_PIPE);
	int ep = ep_new();
	struct waiter *w;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN, 2));
	w = waiter_new(ep, 8);
	subject_fill(&p);
	waiter_join(w);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, p.fd, 0, 0));
	subject_close(&p);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, 2);
	free(w);
	w = waiter_new(ep, 8);
	subject_fill(&e);
	waiter_join(w);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, e.fd, 0, 0));
	subject_close(&e);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, 1);
	free(w);
	close(ep);
}

static void EP_DEL_03_del_and_add_go_to_the_tail(enum kind kind)
{
	for (size_t m = 0; m < MODES; m++) {
		struct subject s[3];
		int ep = ep_new();

		for (int i = 0; i < 3; i++) {
			s[i] = subject_ready(kind);
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, EPOLLIN | modes[m],
					 (uint64_t)i));
		}
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[0].fd, 0, 0));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0].fd, EPOLLIN | modes[m], 10));
		assert_true(ep_order(ep, 3, 1, 2, 10));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[1].fd, 0, 0));
		assert_ok(raw_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN | modes[m], 11));
		if (modes[m] == 0)
			assert_true(ep_order(ep, 3, 2, 10, 11));
		else
			assert_true(ep_order(ep, 1, 11));
		for (int i = 0; i < 3; i++)
			subject_close(&s[i]);
		close(ep);
	}
}
KIND_TESTS(EP_DEL_03_del_and_add_go_to_the_tail)

/* Nothing of the old item may reach the new one of the same key. */
static void EP_DEL_03_new_item_begins_anew(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();

	/* A disarmed ONESHOT, a pending edge and an old mask. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLONESHOT, 1));
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	subject_drain(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 3));
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLPRI, 4));
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_DEL_03_new_item_begins_anew)

static void del_wakes_nobody(enum kind kind, enum kind bystander)
{
	struct subject s = subject_new(kind), b = subject_new(bystander);
	int ep = ep_new(), outer = ep_new();
	struct waiter *w, *p, *o;

	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 2));
	w = waiter_new(ep, 8);
	p = poller_new(ep);
	o = waiter_new(outer, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_true(waiter_sleeps(w));
	assert_true(waiter_sleeps(p));
	assert_true(waiter_sleeps(o));
	subject_fill(&s);
	assert_true(waiter_sleeps(w));
	/* Also when nothing is left to wait for. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, b.fd, 0, 0));
	assert_true(waiter_sleeps(w));
	assert_true(waiter_sleeps(p));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 3));
	subject_fill(&b);
	waiter_got(w, EPOLLIN, 3);
	poller_got_in(p);
	waiter_got(o, EPOLLIN, 5);
	close(ep);
	close(outer);
	subject_close(&s);
	subject_close(&b);
}

static void EP_DEL_04_wakes_nobody(enum kind kind)
{
	del_wakes_nobody(kind, kind);
}
KIND_TESTS(EP_DEL_04_wakes_nobody)

static void EP_DEL_04_wakes_nobody_on_a_mixed_set(void **state)
{
	(void)state;
	del_wakes_nobody(KIND_EVENTFD, KIND_PIPE);
	del_wakes_nobody(KIND_PIPE, KIND_EVENTFD);
}

static void EP_DEL_04_of_a_queued_item_is_no_edge(enum kind kind)
{
	struct subject s = subject_ready(kind), t = subject_ready(kind);
	int ep = ep_new(), outer = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, t.fd, EPOLLIN | EPOLLET, 2));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
	assert_true(ep_one(outer, EPOLLIN, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_int_equal(ep_count(outer), 0);
	assert_true(ep_one(ep, EPOLLIN, 2));
	close(ep);
	close(outer);
	subject_close(&s);
	subject_close(&t);
}
KIND_TESTS(EP_DEL_04_of_a_queued_item_is_no_edge)

int main(void)
{
	const struct CMUnitTest tests[] = {
		kind_unit_tests(EP_DEL_01_queued_event_goes),
		kind_unit_tests(EP_DEL_01_later_edges_are_not_seen),
		kind_unit_tests(EP_DEL_01_others_on_the_list_stay),
		cmocka_unit_test(EP_DEL_01_of_a_mixed_set),
		kind_unit_tests(EP_DEL_01_other_items_of_the_file_stay),
		kind_unit_tests(EP_DEL_01_deleted_is_never_reported_again),
		kind_unit_tests(EP_DEL_02_waits_for_a_collection),
		cmocka_unit_test(EP_DEL_02_collected_events_stay_valid),
		kind_unit_tests(EP_DEL_03_del_and_add_go_to_the_tail),
		kind_unit_tests(EP_DEL_03_new_item_begins_anew),
		kind_unit_tests(EP_DEL_04_wakes_nobody),
		cmocka_unit_test(EP_DEL_04_wakes_nobody_on_a_mixed_set),
		kind_unit_tests(EP_DEL_04_of_a_queued_item_is_no_edge),
	};

	return run_group(tests);
}
