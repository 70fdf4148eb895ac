/* SPDX-License-Identifier: MIT */
/*
 * A context is destroyed and made anew, mostly at the same address, while threads submit to that
 * address, wait there, take events and cancel. Each call is one on a context or finds none; what
 * belongs to one context never comes out of the next; each accepted request tells its eventfd
 * once, when its context is gone at the latest; and from then on no buffer is written to.
 *
 * The kernel is held to the same.
 */
#include "aio.h"

#define WAITERS 3
#define SUBMITTERS 2
#define THREADS (WAITERS + SUBMITTERS + 1)
#define REQUESTS (1u << 20)
#define AT_ONCE 3
#define BUFFERS 8
#define PATTERN 0x5a

static const struct kind {
	int (*setup)(unsigned int nr, aio_context_t *ctx);
	int (*destroy)(aio_context_t ctx);
	int (*submit)(aio_context_t ctx, long nr, struct iocb **list);
	int (*cancel)(aio_context_t ctx, struct iocb *cb, struct io_event *ev);
	int (*getevents)(aio_context_t ctx, long min, long nr, struct io_event *ev,
			 struct timespec *timeout);
	int (*eventfd)(unsigned int value, int flags);
	ssize_t (*read)(int fd, void *buf, size_t n);
	int (*close)(int fd);
} ours = {
	.setup = pollux_io_setup,
	.destroy = pollux_io_destroy,
	.submit = pollux_io_submit,
	.cancel = pollux_io_cancel,
	.getevents = pollux_io_getevents,
	.eventfd = pollux_eventfd,
	.read = pollux_read,
	.close = pollux_close,
};

static int kernel_setup(unsigned int nr, aio_context_t *ctx)
{
	return (int)syscall(SYS_io_setup, nr, ctx);
}

static int kernel_destroy(aio_context_t ctx)
{
	return (int)syscall(SYS_io_destroy, ctx);
}

static int kernel_submit(aio_context_t ctx, long nr, struct iocb **list)
{
	return (int)syscall(SYS_io_submit, ctx, nr, list);
}

static int kernel_cancel(aio_context_t ctx, struct iocb *cb, struct io_event *ev)
{
	return (int)syscall(SYS_io_cancel, ctx, cb, ev);
}

static int kernel_getevents(aio_context_t ctx, long min, long nr, struct io_event *ev,
			    struct timespec *timeout)
{
	return (int)syscall(SYS_io_getevents, ctx, min, nr, ev, timeout);
}

static const struct kind kernel = {
	.setup = kernel_setup,
	.destroy = kernel_destroy,
	.submit = kernel_submit,
	.cancel = kernel_cancel,
	.getevents = kernel_getevents,
	.eventfd = eventfd,
	.read = read,
	.close = close,
};

struct world {
	const struct kind *kind;
	aio_context_t ctx;
	/* Odd while the context goes, and there is none. */
	uint32_t gen;
	int file, never, ready, told, full;
	/* Accepted ones; by number: which generation each belongs to, and whether it has come out.
	 */
	uint64_t accepted;
	uint32_t next;
	uint32_t of[REQUESTS];
	uint8_t out[REQUESTS];
	unsigned long gone, taken, cancelled, same;
	/* What the newest submissions of each thread were. */
	struct iocb cb[SUBMITTERS][BUFFERS];
	/* Nothing else is read into. */
	unsigned char buffer[SUBMITTERS][BUFFERS][BLOCK];
};

struct part {
	struct thread t;
	struct world *w;
	uint32_t r;
	int me;
};

static void make(struct iocb *cb, struct world *w, int me, uint32_t i, uint32_t r)
{
	memset(cb, 0, sizeof(*cb));
	cb->aio_flags = IOCB_FLAG_RESFD;
	cb->aio_resfd = (uint32_t)w->told;
	cb->aio_data = i;
	switch (r % 4) {
	case 0:
		cb->aio_lio_opcode = IOCB_CMD_POLL;
		cb->aio_fildes = (uint32_t)w->never;
		cb->aio_buf = POLLIN;
		break;
	case 1:
		cb->aio_lio_opcode = IOCB_CMD_POLL;
		cb->aio_fildes = (uint32_t)w->ready;
		cb->aio_buf = POLLIN;
		break;
	default:
		cb->aio_lio_opcode = IOCB_CMD_PREAD;
		cb->aio_fildes = (uint32_t)w->file;
		cb->aio_buf = (uintptr_t)w->buffer[me][r / 4 % BUFFERS];
		cb->aio_nbytes = BLOCK;
	}
}

static void submits(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	uint32_t first = REQUESTS;

	while (!stopping()) {
		uint32_t gen, many = 1 + rnd(&p->r) % AT_ONCE;
		struct iocb *list[AT_ONCE];
		int n;

		/* Numbers that have not been accepted are used again. */
		if (first == REQUESTS)
			first = atomic_add(&w->next, AT_ONCE);
		if (first + AT_ONCE > REQUESTS) {
			atomic_set(&w->full, 1);
			return;
		}
		for (uint32_t i = 0; i < many; i++) {
			uint32_t r = rnd(&p->r);

			list[i] = &w->cb[p->me][r >> 24 & (BUFFERS - 1)];
			/* Each of a list is another one. */
			for (uint32_t k = 0; k < i; k++)
				if (list[k] == list[i])
					many = i;
			if (i < many)
				make(list[i], w, p->me, first + i, r);
		}
		gen = atomic_get(&w->gen);
		n = w->kind->submit(atomic_get(&w->ctx), (long)many, list);
		if (n < 0 && errno != EINVAL && errno != EAGAIN)
			broken("io_submit: %s", strerror(errno));
		if (n > 0)
			atomic_add(&w->accepted, (uint64_t)n);
		if (n > 0 && !(gen & 1) && atomic_get(&w->gen) == gen)
			for (int i = 0; i < n; i++)
				atomic_set(&w->of[first + (uint32_t)i], gen);
		if (n > 0)
			first = REQUESTS;
		else
			usleep(50 + rnd(&p->r) % 200);
	}
}

static void came_out(struct world *w, const struct io_event *ev, uint32_t gen)
{
	uint32_t of;

	if (ev->data >= REQUESTS) {
		broken("an event of nothing");
		return;
	}
	if (__atomic_exchange_n(&w->out[ev->data], 1, __ATOMIC_SEQ_CST))
		broken("two events of one request");
	of = atomic_get(&w->of[ev->data]);
	/* Of a context in whose place there was another one when this call began. */
	if (of && of + 1 < gen)
		broken("an event of generation %u in %u", of, gen);
}

static void waits(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	while (!stopping()) {
		uint32_t r = rnd(&p->r), gen = atomic_get(&w->gen);
		struct timespec ts = {.tv_nsec = (r >> 8) % 3 * 300000};
		long min = r % 4, nr = min ? min + (r >> 4) % 3 : 4;
		struct io_event ev[8];
		int n = w->kind->getevents(atomic_get(&w->ctx), min, nr, ev,
					   (r >> 16) % 4 ? NULL : &ts);

		if (n < 0 && errno != EINVAL)
			broken("io_getevents: %s", strerror(errno));
		if (n > nr)
			broken("%d events where %ld were asked for", n, nr);
		for (int i = 0; i < n; i++)
			came_out(w, &ev[i], gen);
		if (n > 0)
			atomic_add(&w->taken, (unsigned long)n);
		else
			/* The kernel's end of a context is the work of its own threads, too. */
			usleep((r >> 20) % 256);
	}
}

static void cancels(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	while (!stopping()) {
		uint32_t r = rnd(&p->r);
		struct io_event ev;

		errno = 0;
		if (w->kind->cancel(atomic_get(&w->ctx),
				    &w->cb[r % SUBMITTERS][r >> 8 & (BUFFERS - 1)], &ev) != -1 ||
		    (errno != EINVAL && errno != EINPROGRESS))
			broken("io_cancel: %s", strerror(errno));
		if (errno == EINPROGRESS)
			atomic_add(&w->cancelled, 1);
		else
			usleep(50 + (r >> 16) % 200);
	}
}

/* From the end of io_destroy on, until there is another context. */
static void assert_untouched(struct world *w)
{
	memset(w->buffer, PATTERN, sizeof(w->buffer));
	usleep(50);
	for (size_t i = 0; i < sizeof(w->buffer); i++)
		if (((unsigned char *)w->buffer)[i] != PATTERN) {
			broken("a buffer is written to after io_destroy");
			return;
		}
}

static void renew(struct world *w)
{
	aio_context_t old = w->ctx, ctx = 0;

	atomic_add(&w->gen, 1);
	if (w->kind->destroy(old) != 0)
		broken("io_destroy: %s", strerror(errno));
	assert_untouched(w);
	errno = 0;
	if (w->kind->destroy(old) != -1 || errno != EINVAL)
		broken("a context that was destroyed is there");
	if (w->kind->setup(16, &ctx) != 0)
		broken("io_setup: %s", strerror(errno));
	w->same += ctx == old;
	w->gone++;
	atomic_set(&w->ctx, ctx);
	atomic_add(&w->gen, 1);
}

static bool met(const struct world *w)
{
	/* The kernel's end of a context waits for a grace period of its own. */
	return w->gone > 5 && atomic_get(&w->taken) > 10 && atomic_get(&w->accepted) > 20 &&
	       atomic_get(&w->cancelled) > 0 && w->same > 0;
}

static void again(const struct kind *kind)
{
	static struct world w;
	struct part p[THREADS];
	int64_t start = now_ns();
	uint64_t told = 0;
	uint32_t seed = 21;

	aio_begin();
	memset(&w, 0, sizeof(w));
	w.kind = kind;
	w.file = aio_file();
	assert_int_equal(ftruncate(w.file, BLOCK), 0);
	w.never = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	w.ready = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	w.told = kind->eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(kind->setup(16, &w.ctx), 0);
	w.gen = 2;
	for (int i = 0; i < THREADS; i++) {
		p[i] = (struct part){.w = &w, .r = rnd(&seed), .me = i % SUBMITTERS};
		thread_start(&p[i].t,
			     i < WAITERS		? waits
			     : i < WAITERS + SUBMITTERS ? submits
							: cancels,
			     &p[i]);
	}
	while (torture_part_until(start, 2, met(&w)) && !atomic_get(&w.full)) {
		usleep(rnd(&seed) % 1000);
		renew(&w);
	}
	__atomic_store_n(&torture_stop, 1, __ATOMIC_SEQ_CST);
	/* Whoever sleeps there is let go; nobody comes any more. */
	assert_int_equal(kind->destroy(w.ctx), 0);
	for (int i = 0; i < THREADS; i++)
		thread_join(&p[i].t);
	assert_false(torture_failed);
	kind->read(w.told, &told, sizeof(told));
	print_message("%lu contexts, %lu at the same address, %lu requests, %lu events taken, %lu "
		      "cancelled\n",
		      w.gone, w.same, (unsigned long)w.accepted, w.taken, w.cancelled);
	assert_int_equal(told, w.accepted);
	assert_true(met(&w));
	kind->close(w.told);
	close(w.file);
	close(w.never);
	close(w.ready);
}

static void again_in_the_kernel(void **state)
{
	(void)state;
	again(&kernel);
}

static void again_here(void **state)
{
	(void)state;
	again(&ours);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(again_in_the_kernel),
		TEST(again_here),
	};

	return RUN(tests);
}
