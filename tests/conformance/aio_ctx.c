/* SPDX-License-Identifier: MIT */
/* What is a context and what is not: every pointer that a program may pass, and forks. */
#include "aio.h"

#include <limits.h>

/* Every call with this context; what differs from EINVAL is told by its name, or NULL. */
static const char *not_refused(aio_context_t ctx)
{
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev;
	struct timespec zero = {0};
	sigset_t none;
	struct aio_sigset set = {&none, 8};
	void *bad = (void *)8;

	aio_poll(&cb, -1, 0);
	sigemptyset(&none);
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((call) != -1 || errno != EINVAL)                                               \
			return #call;                                                              \
	} while (0)
	REFUSED(aio_submit(ctx, 0, NULL));
	REFUSED(aio_submit(ctx, 0, list));
	REFUSED(aio_submit(ctx, 1, list));
	REFUSED(aio_submit(ctx, 1, bad));
	REFUSED(aio_submit(ctx, LONG_MAX, list));
	REFUSED(aio_getevents(ctx, 0, 0, NULL, NULL));
	REFUSED(aio_getevents(ctx, 0, 1, &ev, NULL));
	REFUSED(aio_getevents(ctx, 1, 1, &ev, NULL));
	REFUSED(aio_getevents(ctx, 1, 1, bad, &zero));
	REFUSED(aio_pgetevents(ctx, 0, 1, &ev, NULL, NULL));
	REFUSED(aio_pgetevents(ctx, 1, 1, &ev, &zero, &set));
	REFUSED(aio_cancel(ctx, &cb, &ev));
	REFUSED(aio_cancel(ctx, &cb, NULL));
	REFUSED(aio_destroy(ctx));
#undef REFUSED
	return NULL;
}

#define assert_no_context(ctx)                                                                     \
	do {                                                                                       \
		const char *call_ = not_refused((aio_context_t)(ctx));                             \
		if (call_ != NULL) {                                                               \
			print_error("%s:%d: context %#llx: %s is not refused (errno %d)\n",        \
				    __FILE__, __LINE__, (unsigned long long)(ctx), call_, errno);  \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

#define child_no_context(ctx) child_check(not_refused(ctx) == NULL)

/* The context serves a request. */
static void serves(aio_context_t ctx, int fd)
{
	struct iocb cb;
	char buf[8] = {0};

	aio_does(ctx, aio_pread(&cb, fd, buf, 8, 3), 8);
	assert_true(file_matches(buf, 8, 3));
}

static void child_serves(aio_context_t ctx, int fd)
{
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev;
	char buf[8] = {0};

	aio_pread(&cb, fd, buf, 8, 3);
	child_check(aio_submit(ctx, 1, list) == 1);
	child_check(aio_getevents(ctx, 1, 1, &ev, NULL) == 1);
	child_check(ev.res == 8 && ev.obj == (uintptr_t)&cb && file_matches(buf, 8, 3));
}

static void not_contexts(void)
{
	static uint32_t in_data = 0;
	uint32_t on_stack[16] = {0};
	uint32_t *on_heap = calloc(1, 4096);
	char *guarded = edge_new(PROT_NONE);

	assert_no_context(0);
	for (size_t i = 0; i < BAD_ADDRESSES; i++)
		assert_no_context(bad_addresses[i]);
	for (uint64_t i = 1; i < 200; i++)
		assert_no_context(i);
	for (int bit = 0; bit < 64; bit++)
		assert_no_context(1ull << bit);
	assert_no_context((uintptr_t)unmapped());
	assert_no_context((uintptr_t)guarded);
	for (int k = 1; k < 5; k++)
		assert_no_context((uintptr_t)guarded - (uintptr_t)k);
	assert_no_context((uintptr_t)&in_data);
	assert_no_context((uintptr_t)on_stack);
	assert_no_context((uintptr_t)on_heap);
	assert_no_context((uintptr_t)&not_refused);
	assert_no_context((uintptr_t)&errno);
	assert_no_context((uintptr_t)stdin);
	edge_free(guarded);
	free(on_heap);
}

static void AIO_CTX_01_garbage_before_there_is_any_context(void **state)
{
	(void)state;
	not_contexts();
}

static void AIO_CTX_01_garbage_while_there_are_contexts(void **state)
{
	aio_context_t a = aio_new(1), b = aio_new(100);
	int fd = file_in_memory(64);

	(void)state;
	not_contexts();
	serves(a, fd);
	serves(b, fd);
	not_contexts();
	close(fd);
	aio_free(b);
	aio_free(a);
}

static void AIO_CTX_01_random_addresses(void **state)
{
	aio_context_t ctx = aio_new(1);
	uint64_t x = 0x9e3779b97f4a7c15ull;
	int fd = file_in_memory(64);
	struct iocb cb;
	struct io_event ev;

	(void)state;
	aio_poll(&cb, -1, 0);
	for (int i = 0; i < 20000; i++) {
		aio_context_t at;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		/* Some anywhere, most near to the context or within user space. */
		at = i % 4 == 0	  ? x
		     : i % 4 == 1 ? x & 0x7fffffffffffull
		     : i % 4 == 2 ? ctx + (x & 0xffffff) - 0x800000
				  : ctx ^ (1ull << (x & 63));
		if (at == ctx)
			continue;
		assert_errno(aio_submit(at, 0, NULL), EINVAL);
		assert_errno(aio_getevents(at, 0, 0, NULL, NULL), EINVAL);
		assert_errno(aio_cancel(at, &cb, &ev), EINVAL);
		assert_errno(aio_destroy(at), EINVAL);
	}
	serves(ctx, fd);
	close(fd);
	aio_free(ctx);
}

static void AIO_CTX_01_the_middle_of_a_context(void **state)
{
	aio_context_t ctx = aio_new(200);
	struct aio_ring *r = ring_of(ctx);
	size_t size = sizeof(*r) + r->nr * sizeof(r->ev[0]);
	int fd = file_in_memory(64);

	(void)state;
	for (size_t i = 1; i < 64; i++)
		assert_no_context(ctx + i);
	for (size_t i = 64; i < size; i += 512)
		assert_no_context(ctx + i);
	assert_no_context(ctx - 1);
	assert_no_context(ctx - 8);
	assert_no_context(ctx + size);
	assert_no_context(ctx | 1ull << 63);
	assert_no_context(ctx & 0xffffffff);
	serves(ctx, fd);
	close(fd);
	aio_free(ctx);
}

/* Memory that looks like a context in every byte is none, because it is elsewhere. */
static void AIO_CTX_01_a_copy_of_a_ring(void **state)
{
	aio_context_t ctx = aio_new(10);
	size_t size = sizeof(struct aio_ring) + ring_of(ctx)->nr * sizeof(struct io_event);
	char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char before[256];
	int fd = file_in_memory(64);

	(void)state;
	assert_true(copy != MAP_FAILED);
	memcpy(copy, ring_of(ctx), size);
	memcpy(before, copy, sizeof(before));
	assert_no_context((uintptr_t)copy);
	assert_memory_equal(copy, before, sizeof(before));
	serves(ctx, fd);
	aio_free(ctx);
	assert_no_context((uintptr_t)copy);
	munmap(copy, size);
	close(fd);
}

static void AIO_CTX_01_a_destroyed_context(void **state)
{
	aio_context_t a = aio_new(1), b = aio_new(10), c;
	int fd = file_in_memory(64);

	(void)state;
	aio_free(a);
	assert_no_context(a);
	serves(b, fd);
	aio_free(b);
	assert_no_context(a);
	assert_no_context(b);
	c = aio_new(1000);
	if (c != a)
		assert_no_context(a);
	if (c != b)
		assert_no_context(b);
	serves(c, fd);
	aio_free(c);
	close(fd);
}

/* Something else is mapped where a context was, with the number of a live one in it. */
static void AIO_CTX_01_other_memory_where_a_context_was(void **state)
{
	aio_context_t a = aio_new(10), b = aio_new(10);
	uint32_t id_a = ring_of(a)->id, id_b = ring_of(b)->id;
	struct aio_ring *other;
	int fd = file_in_memory(64);

	(void)state;
	assert_int_not_equal(id_a, id_b);
	aio_free(a);
	other = mmap((void *)(uintptr_t)a, AIO_PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (other == MAP_FAILED && errno == EEXIST) {
		aio_free(b);
		close(fd);
		SKIP("something else is there already");
	}
	assert_true(other == (void *)(uintptr_t)a);
	memcpy(other, ring_of(b), 128);
	assert_no_context(a);
	other->id = id_a;
	assert_no_context(a);
	/* The number is in use again, by a context which is elsewhere. */
	a = aio_new(10);
	assert_ptr_not_equal(ring_of(a), other);
	assert_int_equal(ring_of(a)->id, id_a);
	assert_no_context((uintptr_t)other);
	serves(a, fd);
	serves(b, fd);
	munmap(other, AIO_PAGE);
	assert_no_context((uintptr_t)other);
	aio_free(a);
	aio_free(b);
	close(fd);
}

static void AIO_CTX_01_a_ring_that_cannot_be_read(void **state)
{
	aio_context_t ctx = aio_new(10);
	struct iocb cb;
	char buf[8];
	int fd = file_in_memory(64);

	(void)state;
	aio_accept1(ctx, aio_pread(&cb, fd, buf, 8, 0));
	assert_ok(mprotect(ring_of(ctx), AIO_PAGE, PROT_NONE));
	assert_no_context(ctx);
	assert_ok(mprotect(ring_of(ctx), AIO_PAGE, PROT_READ | PROT_WRITE));
	aio_expect(ctx, &cb, 8);
	serves(ctx, fd);
	close(fd);
	aio_free(ctx);
}

static void unmapped_ring(void *arg)
{
	int fd = *(int *)arg;
	aio_context_t a = 0, b = 0;
	struct iocb cb, *list[1] = {&cb};
	size_t size;
	char buf[8];

	child_check(aio_setup_in_turn(10, &a) == 0);
	child_check(aio_setup_in_turn(10, &b) == 0);
	child_check(aio_submit(a, 1, (aio_pread(&cb, fd, buf, 8, 0), list)) == 1);
	size = sizeof(struct aio_ring) + ring_of(a)->nr * sizeof(struct io_event);
	child_check(munmap(ring_of(a), size) == 0);
	child_no_context(a);
	child_serves(b, fd);
	child_check(aio_destroy(b) == 0);
	child_no_context(a);
	/* The context that nobody can name any more goes away with the process. */
}

static void AIO_CTX_01_a_ring_that_was_unmapped(void **state)
{
	int fd = file_in_memory(64);

	(void)state;
	in_child(unmapped_ring, &fd);
	close(fd);
}

/* Pages of a file beyond its end can be named but not read: SIGBUS for who touches them. */
static void AIO_CTX_01_memory_beyond_the_end_of_a_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	int fd = file_in_memory(1), serve = file_in_memory(64);
	char *p = mmap(NULL, 2 * AIO_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	(void)state;
	assert_true(p != MAP_FAILED);
	assert_no_context((uintptr_t)p);
	assert_no_context((uintptr_t)p + AIO_PAGE);
	assert_no_context((uintptr_t)p + AIO_PAGE - 2);
	assert_ok(ftruncate(fd, 0));
	assert_no_context((uintptr_t)p);
	serves(ctx, serve);
	munmap(p, 2 * AIO_PAGE);
	close(fd);
	close(serve);
	aio_free(ctx);
}

static void AIO_CTX_01_memory_that_is_only_readable(void **state)
{
	aio_context_t ctx = aio_new(1);
	char *end = edge_new(PROT_READ | PROT_WRITE);

	(void)state;
	memcpy(end, ring_of(ctx), 128);
	assert_ok(mprotect(end, AIO_PAGE, PROT_READ));
	assert_no_context((uintptr_t)end);
	edge_free(end);
	aio_free(ctx);
}

/* Many contexts: each is found by its own address and by no other's number. */
#define MANY 400

static void many_contexts(void *arg)
{
	int fd = *(int *)arg;
	static aio_context_t ctx[MANY];

	for (int i = 0; i < MANY; i++) {
		child_check(aio_setup_in_turn(1, &ctx[i]) == 0);
		child_check(ring_of(ctx[i])->id == (uint32_t)i);
	}
	for (int i = 0; i < MANY; i++)
		child_serves(ctx[i], fd);
	for (int i = 0; i < MANY; i++) {
		uint32_t other = (uint32_t)(i * 7 + 1) % MANY;

		if (other == (uint32_t)i)
			continue;
		ring_of(ctx[i])->id = other;
		child_errno(aio_submit(ctx[i], 0, NULL), EINVAL);
		ring_of(ctx[i])->id = (uint32_t)i;
		child_check(aio_submit(ctx[i], 0, NULL) == 0);
	}
	for (uint32_t id = MANY; id != 0; id <<= 1) {
		ring_of(ctx[0])->id = id;
		child_no_context(ctx[0]);
	}
	ring_of(ctx[0])->id = UINT32_MAX;
	child_no_context(ctx[0]);
	ring_of(ctx[0])->id = 0;
	child_serves(ctx[0], fd);
	/* The rest is destroyed by the end of the process, all at once. */
	child_check(aio_destroy(ctx[MANY / 2]) == 0);
	child_no_context(ctx[MANY / 2]);
	child_serves(ctx[MANY / 2 - 1], fd);
	child_serves(ctx[MANY / 2 + 1], fd);
}

static void AIO_CTX_01_many_contexts(void **state)
{
	int fd = file_in_memory(64);

	(void)state;
	in_child(many_contexts, &fd);
	close(fd);
}

/* Calls race with the end of their context: either it is there or it is not. */
struct prober {
	struct test_thread t;
	aio_context_t ctx;
	int fd;
	int stop;
	long served;
	long refused;
};

static void *prober_main(void *arg)
{
	struct prober *p = arg;
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev;
	char buf[8];

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		aio_context_t ctx = __atomic_load_n(&p->ctx, __ATOMIC_ACQUIRE);
		long r;

		aio_pread(&cb, p->fd, buf, 8, 0);
		errno = 0;
		r = aio_submit(ctx, 1, list);
		/* EAGAIN: the events of earlier rounds were not all taken. */
		if (r == 1 || (r == -1 && errno == EAGAIN))
			p->served++;
		else if (r == -1 && errno == EINVAL)
			p->refused++;
		else
			return "io_submit";
		errno = 0;
		r = aio_getevents(ctx, 0, 1, &ev, NULL);
		if (r != 0 && r != 1 && !(r == -1 && errno == EINVAL))
			return "io_getevents";
		errno = 0;
		if (aio_cancel(ctx, &cb, &ev) != -1 || errno != EINVAL)
			return "io_cancel";
	}
	return NULL;
}

static void AIO_CTX_01_calls_race_with_create_and_destroy(void **state)
{
	struct prober *p = calloc(3, sizeof(*p));
	int fd = file_in_memory(64);
	long served = 0, refused = 0;

	(void)state;
	assert_non_null(p);
	for (int i = 0; i < 3; i++) {
		p[i].fd = fd;
		thread_start(&p[i].t, prober_main, &p[i]);
	}
	for (int round = 0; round < 40; round++) {
		aio_context_t ctx = aio_new(16);

		for (int i = 0; i < 3; i++)
			__atomic_store_n(&p[i].ctx, ctx, __ATOMIC_RELEASE);
		sleep_ms(1);
		aio_free(ctx);
	}
	for (int i = 0; i < 3; i++)
		__atomic_store_n(&p[i].stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++) {
		assert_true(thread_join(&p[i].t, SOON_MS));
		assert_null(p[i].t.ret);
		served += p[i].served;
		refused += p[i].refused;
	}
	assert_true(served > 0);
	assert_true(refused > 0);
	close(fd);
	free(p);
}

/* Threads that are cancelled at any instruction leave the context to others as it was. */
struct victim {
	aio_context_t ctx;
	int fd;
	uint32_t rounds;
};

static void *victim_main(void *arg)
{
	struct victim *v = arg;
	struct timespec none = {0};
	struct io_event ev;
	struct iocb cb, *list[1] = {&cb};
	char buf[8];

	aio_pread(&cb, v->fd, buf, 8, 0);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	while (v->fd >= 0) {
		(void)aio_submit(v->ctx, 1, list);
		(void)aio_getevents(v->ctx, 0, 1, &ev, &none);
		__atomic_add_fetch(&v->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void cancels_threads(void *arg)
{
	struct victim v = {.fd = *(int *)arg};
	struct io_event ev[64];
	struct timespec none = {0};
	struct iocb cb, *list[1] = {&cb};
	int64_t end = now_ms() + 3000;
	char buf[8];

	child_check(aio_setup_in_turn(16, &v.ctx) == 0);
	aio_pread(&cb, v.fd, buf, 8, 0);
	/* Fewer on a busy machine. */
	for (uint32_t i = 0; i < 300 && now_ms() < end; i++) {
		pthread_t t;

		v.rounds = 0;
		child_check(pthread_create(&t, NULL, victim_main, &v) == 0);
		while (__atomic_load_n(&v.rounds, __ATOMIC_RELAXED) < 10 + i % 17)
			sched_yield();
		child_check(pthread_cancel(t) == 0);
		child_check(pthread_join(t, NULL) == 0);
		child_check(aio_getevents(v.ctx, 0, 64, ev, &none) >= 0);
		child_check(aio_submit(v.ctx, 1, list) == 1);
		child_check(aio_getevents(v.ctx, 1, 1, ev, NULL) == 1);
	}
	child_check(aio_destroy(v.ctx) == 0);
}

static void AIO_CTX_01_threads_are_cancelled_in_calls(void **state)
{
	int fd = file_in_memory(64);

	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer does not know of such ends");
	in_child(cancels_threads, &fd);
	close(fd);
}

struct inherited {
	aio_context_t ctx;
	aio_context_t other;
	int fd;
};

static void child_of_fork(void *arg)
{
	struct inherited *in = arg;
	aio_context_t own = 0, second = 0;
	struct iocb cb;
	struct io_event ev;

	child_no_context(in->ctx);
	child_no_context(in->other);
	/* Its own contexts have numbers which the parent's have as well. */
	child_check(aio_setup_in_turn(4, &own) == 0);
	child_check(aio_setup_in_turn(4, &second) == 0);
	child_check(own != in->ctx && own != in->other);
	child_check(ring_of(own)->id == 0);
	child_check(ring_of(second)->id == 1);
	child_serves(own, in->fd);
	child_serves(second, in->fd);
	child_no_context(in->ctx);
	child_no_context(in->other);
	aio_poll(&cb, -1, 0);
	child_errno(aio_cancel(own, &cb, &ev), EINVAL);
	child_check(aio_destroy(own) == 0);
	child_no_context(own);
	child_no_context(in->ctx);
	child_serves(second, in->fd);
}

static void AIO_CTX_02_the_child_of_a_fork_has_no_contexts(void **state)
{
	struct inherited in = {.ctx = aio_new(4), .other = aio_new(4), .fd = file_in_memory(64)};
	struct iocb cb;
	char buf[8];

	(void)state;
	aio_accept1(in.ctx, aio_pread(&cb, in.fd, buf, 8, 0));
	for (int i = 0; i < 3; i++)
		in_child(child_of_fork, &in);
	/* The parent's are unaffected, what was pending included. */
	aio_expect(in.ctx, &cb, 8);
	serves(in.ctx, in.fd);
	serves(in.other, in.fd);
	aio_free(in.other);
	aio_free(in.ctx);
	close(in.fd);
}

static void grandchild_of_fork(void *arg)
{
	child_no_context(((struct inherited *)arg)->ctx);
	child_no_context(((struct inherited *)arg)->other);
}

static void child_that_forks(void *arg)
{
	struct inherited in = *(struct inherited *)arg;
	pid_t pid;

	in.other = 0;
	child_check(aio_setup_in_turn(4, &in.other) == 0);
	pid = fork_bounded();
	if (pid == 0) {
		grandchild_of_fork(&in);
		_exit(0);
	}
	child_check(pid > 0 && child_end(pid) == 0);
	child_no_context(in.ctx);
	child_serves(in.other, in.fd);
}

static void AIO_CTX_02_forks_of_a_child(void **state)
{
	struct inherited in = {.ctx = aio_new(4), .fd = file_in_memory(64)};

	(void)state;
	in_child(child_that_forks, &in);
	serves(in.ctx, in.fd);
	aio_free(in.ctx);
	close(in.fd);
}

/* The fork comes from another thread, while a thread waits for events and one submits. */
static void *forker_main(void *arg)
{
	struct inherited *in = arg;

	for (int i = 0; i < 5; i++) {
		pid_t pid = fork_bounded();

		if (pid == 0) {
			child_of_fork(in);
			_exit(0);
		}
		if (pid < 0 || child_end(pid) != 0)
			return "child";
	}
	return NULL;
}

static void AIO_CTX_02_forks_while_others_use_the_context(void **state)
{
	struct inherited in = {.ctx = aio_new(4), .other = aio_new(4), .fd = file_in_memory(64)};
	struct getter *g = getter_new(in.ctx, 1, 1, -1);
	struct test_thread t;
	struct iocb cb;
	char buf[8];

	(void)state;
	thread_start(&t, forker_main, &in);
	while (!thread_done(&t))
		aio_does(in.other, aio_pread(&cb, in.fd, buf, 8, 0), 8);
	assert_true(thread_join(&t, SOON_MS));
	assert_null(t.ret);
	assert_true(getter_sleeps(g));
	aio_accept1(in.ctx, aio_pread(&cb, in.fd, buf, 8, 0));
	getter_gets(g, 1);
	aio_check(&g->ev[0], &cb, 8);
	free(g);
	aio_free(in.other);
	aio_free(in.ctx);
	close(in.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_CTX_01_garbage_before_there_is_any_context),
		cmocka_unit_test(AIO_CTX_01_garbage_while_there_are_contexts),
		cmocka_unit_test(AIO_CTX_01_random_addresses),
		cmocka_unit_test(AIO_CTX_01_the_middle_of_a_context),
		cmocka_unit_test(AIO_CTX_01_a_copy_of_a_ring),
		cmocka_unit_test(AIO_CTX_01_a_destroyed_context),
		cmocka_unit_test(AIO_CTX_01_other_memory_where_a_context_was),
		cmocka_unit_test(AIO_CTX_01_a_ring_that_cannot_be_read),
		cmocka_unit_test(AIO_CTX_01_a_ring_that_was_unmapped),
		cmocka_unit_test(AIO_CTX_01_memory_beyond_the_end_of_a_file),
		cmocka_unit_test(AIO_CTX_01_memory_that_is_only_readable),
		cmocka_unit_test(AIO_CTX_01_many_contexts),
		cmocka_unit_test(AIO_CTX_01_calls_race_with_create_and_destroy),
		cmocka_unit_test(AIO_CTX_01_threads_are_cancelled_in_calls),
		cmocka_unit_test(AIO_CTX_02_the_child_of_a_fork_has_no_contexts),
		cmocka_unit_test(AIO_CTX_02_forks_of_a_child),
		cmocka_unit_test(AIO_CTX_02_forks_while_others_use_the_context),
	};

	return run_group(tests);
}
