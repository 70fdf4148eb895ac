/* SPDX-License-Identifier: MIT */
/*
 * A context becomes the kernel's while others use it: whoever calls finds the one or the
 * other, and no event is lost. Who destroys it at that moment need not wait for the call that
 * hands it over, and leaves its slot to the next one.
 */
#include "aio.h"

#include <fcntl.h>

#define THREADS 4
#define EACH 3
#define LENGTH 4096

struct shared {
	aio_context_t ctx;
	int direct, buffered, ready;
	struct meet m;
	unsigned long accepted;
	uint32_t given;
};

struct user {
	struct shared *s;
	int id;
	char *buf;
};

static struct iocb read_of(const struct user *u, int fd)
{
	return (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD,
			     .aio_fildes = (uint32_t)fd,
			     .aio_buf = (uintptr_t)u->buf,
			     .aio_nbytes = LENGTH};
}

static void submit(struct user *u, uint32_t *rng, bool direct)
{
	struct shared *s = u->s;
	struct iocb cb = read_of(u, direct ? s->direct : s->buffered), *list = &cb;
	int n;

	if (!direct && rnd(rng) % 4 == 0) {
		cb.aio_lio_opcode = IOCB_CMD_POLL;
		cb.aio_fildes = (uint32_t)s->ready;
		cb.aio_buf = POLLIN;
		cb.aio_nbytes = 0;
	}
	n = pollux_io_submit(s->ctx, 1, &list);
	if (n != 1)
		broken("io_submit: %d, %s", n, strerror(errno));
	else
		atomic_add(&s->accepted, 1);
}

/* Some make it the kernel's, some stand in the way of that, some only come at that moment. */
static void use(struct thread *t)
{
	struct user *u = t->arg;
	struct shared *s = u->s;
	uint32_t rng = (uint32_t)t->tid;

	while (meet(&s->m)) {
		for (int i = 0; i < EACH; i++) {
			struct timespec none = {0};
			struct io_event ev[2];
			int n;

			switch (u->id == 0 && i == 0 ? 0 : rnd(&rng) % 8) {
			case 0:
			case 1:
			case 2:
				submit(u, &rng, true);
				break;
			case 3:
				submit(u, &rng, false);
				break;
			case 4:
				if (pollux_io_submit(s->ctx, 0, NULL) != 0)
					broken("io_submit of nothing: %s", strerror(errno));
				break;
			default:
				n = pollux_io_getevents(s->ctx, 0, 2, ev, &none);
				if (n < 0)
					broken("io_getevents: %s", strerror(errno));
				atomic_add(&s->accepted, n > 0 ? (unsigned long)-n : 0);
				sched_yield();
			}
		}
		if (!meet(&s->m))
			return;
	}
}

static int direct_file(void)
{
	char name[] = "/var/tmp/pollux-torture-XXXXXX";
	char *buf = aligned_alloc(LENGTH, LENGTH);
	int fd = mkostemp(name, O_DIRECT | O_CLOEXEC);

	assert_non_null(buf);
	memset(buf, 7, LENGTH);
	if (fd >= 0) {
		unlink(name);
		if (write(fd, buf, LENGTH) != LENGTH) {
			close(fd);
			fd = -1;
		}
	}
	free(buf);
	return fd;
}

/* n threads that do fn with s, whose direct file is made here: there is no test without one. */
static void users_start(struct shared *s, struct user *u, struct thread *t, int n,
			void (*fn)(struct thread *))
{
	aio_begin();
	s->direct = direct_file();
	if (s->direct < 0) {
		print_message("no direct I/O in /var/tmp\n");
		skip();
	}
	for (int i = 0; i < n; i++) {
		u[i] = (struct user){.s = s, .id = i, .buf = aligned_alloc(LENGTH, LENGTH)};
		assert_non_null(u[i].buf);
		thread_start(&t[i], fn, &u[i]);
	}
}

static void users_end(struct shared *s, struct user *u, struct thread *t, int n,
		      unsigned long rounds)
{
	torture_end(t, n);
	print_message("%lu rounds\n", rounds);
	for (int i = 0; i < n; i++)
		free(u[i].buf);
	close(s->direct);
}

static void whoever_calls_is_served(void **state)
{
	struct shared s = {
		.m.n = THREADS + 1, .buffered = aio_file(), .ready = eventfd(1, EFD_CLOEXEC)};
	struct user u[THREADS];
	struct thread t[THREADS];
	unsigned long rounds = 0;
	int64_t start;

	(void)state;
	assert_int_equal(ftruncate(s.buffered, LENGTH), 0);
	users_start(&s, u, t, THREADS, use);
	start = now_ns();
	while (rounds < 5 || torture_goes_on(start)) {
		struct io_event ev[THREADS * EACH];
		struct timespec soon = {.tv_sec = SOON_MS / 1000};

		s.ctx = aio_new(THREADS * EACH);
		s.accepted = 0;
		if (!meet(&s.m) || !meet(&s.m))
			break;
		while (s.accepted) {
			int n = pollux_io_getevents(s.ctx, 1, THREADS * EACH, ev, &soon);

			if (n <= 0 || (unsigned long)n > s.accepted) {
				broken("%lu accepted and not taken; io_getevents: %d, %s",
				       s.accepted, n, strerror(errno));
				break;
			}
			for (int i = 0; i < n; i++)
				if (ev[i].res != LENGTH && ev[i].res != POLLIN)
					broken("a result of %lld", (long long)ev[i].res);
			s.accepted -= (unsigned long)n;
		}
		if (pollux_io_getevents(s.ctx, 0, 1, ev, NULL) != 0)
			broken("an event too much");
		if (pollux_io_destroy(s.ctx) != 0)
			broken("io_destroy: %s", strerror(errno));
		rounds++;
		if (torture_failed)
			break;
	}
	users_end(&s, u, t, THREADS, rounds);
	close(s.buffered);
	close(s.ready);
}

/* The kernel moves this ring page by page, and only then notes where it is. */
#define LARGE 20000

/* There is a context at each moment of its move. */
static void call(struct thread *t)
{
	struct shared *s = ((struct user *)t->arg)->s;

	while (meet(&s->m)) {
		while (!atomic_get(&s->given) && !stopping())
			if (pollux_io_submit(s->ctx, 0, NULL) != 0)
				broken("io_submit of nothing: %s", strerror(errno));
		if (!meet(&s->m))
			return;
	}
}

static void whoever_calls_finds_it(void **state)
{
	struct shared s = {.m.n = 3, .ready = eventfd(0, EFD_CLOEXEC)};
	struct user u[2];
	struct thread t[2];
	aio_context_t other = 0;
	unsigned long rounds = 0;
	int64_t start;

	(void)state;
	users_start(&s, u, t, 2, call);
	/* The kernel's numbers of contexts are not ours. */
	assert_int_equal(syscall(SYS_io_setup, 1, &other), 0);
	start = now_ns();
	while (rounds < 5 || torture_goes_on(start)) {
		struct iocb cb = {.aio_lio_opcode = IOCB_CMD_POLL,
				  .aio_fildes = (uint32_t)s.ready,
				  .aio_buf = POLLIN},
			    *list = &cb;

		s.ctx = aio_new(LARGE);
		atomic_set(&s.given, 0);
		if (!meet(&s.m))
			break;
		if (pollux_io_submit(s.ctx, 1, &list) != 1)
			broken("io_submit: %s", strerror(errno));
		atomic_set(&s.given, 1);
		if (!meet(&s.m))
			break;
		if (pollux_io_destroy(s.ctx) != 0)
			broken("io_destroy: %s", strerror(errno));
		rounds++;
		if (torture_failed)
			break;
	}
	users_end(&s, u, t, 2, rounds);
	assert_int_equal(syscall(SYS_io_destroy, other), 0);
	close(s.ready);
}

/* More than a thread keeps before it releases what it has destroyed. */
#define OTHERS 200

/* The first request comes while the context is destroyed. */
static void submit_or_destroy(struct thread *t)
{
	struct user *u = t->arg;
	struct shared *s = u->s;

	while (meet(&s->m)) {
		struct iocb cb = read_of(u, s->direct), *list = &cb;

		if (u->id) {
			if (pollux_io_destroy(s->ctx) != 0)
				broken("io_destroy: %s", strerror(errno));
			for (int i = 0; i < OTHERS; i++)
				if (pollux_io_destroy(aio_new(1)) != 0)
					broken("io_destroy: %s", strerror(errno));
		} else if (pollux_io_submit(s->ctx, 1, &list) != 1 && errno != EINVAL) {
			broken("io_submit: %s", strerror(errno));
		}
		if (!meet(&s->m))
			return;
	}
}

static void whoever_destroys_has_destroyed(void **state)
{
	struct shared s = {.m.n = 3};
	struct user u[2];
	struct thread t[2];
	unsigned long rounds = 0;
	int64_t start;

	(void)state;
	users_start(&s, u, t, 2, submit_or_destroy);
	start = now_ns();
	while (rounds < 5 || torture_goes_on(start)) {
		s.ctx = aio_new(1);
		/* The first word of a ring is its number, and it is the only one. */
		if (*(uint32_t *)s.ctx != 0)
			broken("the slot of a context before it is not free");
		if (!meet(&s.m) || !meet(&s.m))
			break;
		rounds++;
		if (torture_failed)
			break;
	}
	users_end(&s, u, t, 2, rounds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whoever_calls_is_served),
		TEST(whoever_calls_finds_it),
		TEST(whoever_destroys_has_destroyed),
	};

	return RUN(tests);
}
