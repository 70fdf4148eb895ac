/* SPDX-License-Identifier: MIT */
/*
 * A pipe gives out what was put in: every byte once, each write of up to a page in one
 * piece, those of one writer in their order, an event for each that nobody has seen. Also
 * while it changes between its two ways of working, while its ends are closed, and while
 * handlers use it on top of calls on the same pipe.
 */
#include "torture.h"

#include <pollux/pipe.h>

#include "source/pipe.h"

#define WRITERS 3
#define RECORD_MAX 4096

static struct pollux_pipe *pipe_new(void)
{
	struct pollux_pipe *p = NULL;

	assert_int_equal(pollux_pipe_new(&p, 0), 0);
	return p;
}

static void pipe_put(struct pollux_pipe *p)
{
	pollux_file_put(pollux_pipe_read_end(p));
	pollux_file_put(pollux_pipe_write_end(p));
}

/* --- records that can be told apart -------------------------------------------------- */

/* Its first byte says whose and how long it is; a record of one byte is nothing else. */
#define KIND_BYTE 0
#define KIND_WORD 1
#define KIND_LONG 2

struct record {
	uint8_t what;
	uint8_t zero;
	uint16_t len;
	uint32_t seq;
	uint8_t body[RECORD_MAX - 8];
};

static size_t record_make(struct record *r, int writer, uint32_t seq, uint32_t random)
{
	uint32_t kind = random % 8;

	kind = kind < 4 ? KIND_BYTE : kind < 6 ? KIND_WORD : KIND_LONG;
	r->what = (uint8_t)(writer | (int)kind << 4);
	r->zero = 0;
	r->seq = seq;
	r->len = kind == KIND_BYTE ? 1 : 8;
	if (kind == KIND_LONG) {
		r->len += (random >> 8) % (random & 1024 ? 200 : sizeof(r->body));
		for (int i = 0; i < r->len - 8; i++)
			r->body[i] = (uint8_t)(seq + i);
	}
	return r->len;
}

/* The stream, put together by one reader. */
struct parser {
	struct record r;
	size_t have;
	uint32_t seq[WRITERS];
	unsigned long records, bytes;
};

static size_t parser_wants(const struct parser *ps)
{
	if (!ps->have)
		return 1;
	if (ps->r.what >> 4 == KIND_BYTE)
		return 1;
	return ps->have < 8 ? 8 : ps->r.len;
}

static void parser_record(struct parser *ps)
{
	int writer = ps->r.what & 15;

	if (writer >= WRITERS || ps->r.what >> 4 > KIND_LONG) {
		broken("a record begins with %#x", ps->r.what);
		return;
	}
	atomic_add(&ps->records, 1);
	if (ps->r.what >> 4 == KIND_BYTE) {
		ps->seq[writer]++;
		return;
	}
	if (ps->r.seq != ps->seq[writer])
		broken("record %u of writer %d where %u was expected", ps->r.seq, writer,
		       ps->seq[writer]);
	ps->seq[writer]++;
	for (int i = 0; i < ps->r.len - 8; i++) {
		if (ps->r.body[i] != (uint8_t)(ps->r.seq + i)) {
			broken("a record of %u bytes is torn at byte %d", ps->r.len, i + 8);
			break;
		}
	}
}

static void parser_feed(struct parser *ps, const uint8_t *b, size_t n)
{
	ps->bytes += n;
	while (n && !atomic_get(&torture_failed)) {
		size_t m = parser_wants(ps) - ps->have;

		m = m < n ? m : n;
		memcpy((uint8_t *)&ps->r + ps->have, b, m);
		ps->have += m;
		b += m;
		n -= m;
		if (ps->have == parser_wants(ps)) {
			parser_record(ps);
			ps->have = 0;
		}
	}
}

struct stream {
	struct pollux_pipe *p;
	struct pollux_ep *ep;
	bool blocks;
	int next;
	unsigned long sent, refused, events;
	struct parser ps;
};

/* Each writer holds the end open by a reference of its own. */
static void stream_writer(struct thread *t)
{
	struct stream *s = t->arg;
	int me = atomic_add(&s->next, 1);
	uint32_t r = (uint32_t)t->tid, seq = 0;
	static __thread struct record rec;

	while (!stopping()) {
		size_t n = record_make(&rec, me, seq, rnd(&r));
		long w = pollux_pipe_write(s->p, &rec, n, s->blocks);

		if (w == (long)n) {
			seq++;
			atomic_add(&s->sent, n);
		} else if (w == -EAGAIN && !s->blocks) {
			atomic_add(&s->refused, 1);
			sched_yield();
		} else {
			broken("a write of %zu returned %ld", n, w);
		}
	}
	pollux_file_put(pollux_pipe_write_end(s->p));
}

static void stream_reader(struct thread *t)
{
	struct stream *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	static uint8_t buf[80000];
	bool over = false;

	while (!over) {
		struct epoll_event ev;
		long n;

		if (s->ep) {
			if (pollux_ep_wait(s->ep, &ev, 1, POLLUX_FOREVER) != 1)
				broken("no event");
			s->events++;
		}
		do {
			size_t want = 1 + rnd(&r) % (rnd(&r) % 4 ? 64 : sizeof(buf));

			n = pollux_pipe_read(s->p, buf, want, s->ep == NULL);
			if (n > 0)
				parser_feed(&s->ps, buf, n);
			else if (n == 0)
				over = true;
			else if (n != -EAGAIN || !s->ep)
				broken("a read returned %ld", n);
		} while (s->ep && n > 0);
	}
}

/* Sends the pipe to its other way of working, and has it counted, all the time. */
static void stream_changer(struct thread *t)
{
	struct stream *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		if (rnd(&r) % 2)
			(void)pollux_pipe_bytes(s->p);
		else
			(void)pollux_pipe_set_capacity(s->p, 4096ul << rnd(&r) % 6);
		(void)pollux_file_poll(pollux_pipe_write_end(s->p));
		sched_yield();
	}
}

static void run_stream(bool polls, bool blocks, bool changes)
{
	struct stream s = {.p = pipe_new(), .blocks = blocks};
	unsigned long helped = points_passed("pipe_before_help");
	unsigned long slow = points_passed("pipe_before_slow");
	struct thread t[WRITERS + 1], reader;

	torture_begin();
	if (polls) {
		s.ep = ep_new();
		ep_add(s.ep, pollux_pipe_read_end(s.p), 0, EPOLLIN | EPOLLET, 'r');
	}
	thread_start(&reader, stream_reader, &s);
	for (int i = 0; i < WRITERS; i++) {
		pollux_file_get(pollux_pipe_write_end(s.p));
		thread_start(&t[i], stream_writer, &s);
	}
	if (changes)
		thread_start(&t[WRITERS], stream_changer, &s);
	torture_sleep_until(atomic_get(&s.ps.records) > 100);
	torture_end(t, changes ? WRITERS + 1 : WRITERS);
	/* The last writer goes: the reader comes to the end. */
	pollux_file_put(pollux_pipe_write_end(s.p));
	thread_join(&reader);
	assert_false(torture_failed);
	assert_int_equal(s.ps.bytes, s.sent);
	assert_int_equal(s.ps.have, 0);
	print_message("%lu records, %lu bytes, %lu refused, %lu events; %lu helped, %lu slow\n",
		      s.ps.records, s.ps.bytes, s.refused, s.events,
		      points_passed("pipe_before_help") - helped,
		      points_passed("pipe_before_slow") - slow);
	assert_true(s.ps.records > 100);
	if (polls)
		ep_put(s.ep);
	pollux_file_put(pollux_pipe_read_end(s.p));
}

static void streams_of_records(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++)
		run_stream(i & 1, i & 2, i & 4);
}

/* --- several readers ----------------------------------------------------------------- */

struct shared {
	struct pollux_pipe *p;
	int next;
	uint64_t in, out;
	unsigned long reads;
};

/* Words of a writer and a number. */
static void word_writer(struct thread *t)
{
	struct shared *s = t->arg;
	uint64_t me = (uint64_t)atomic_add(&s->next, 1), seq = 1, w[64];
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		int n = rnd(&r) % 4 ? 1 : 1 + (int)(rnd(&r) % 64);
		uint64_t sum = 0;

		for (int i = 0; i < n; i++) {
			w[i] = me << 56 | (seq + i);
			sum += w[i];
		}
		if (pollux_pipe_write(s->p, w, n * 8, 1) != n * 8)
			broken("a write failed");
		seq += n;
		atomic_add(&s->in, sum);
	}
	pollux_file_put(pollux_pipe_write_end(s->p));
}

static void word_reader(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	uint64_t last[16] = {0}, w[512];

	for (;;) {
		int want = rnd(&r) % 4 ? 1 + (int)(rnd(&r) % 8) : 1 + (int)(rnd(&r) % 512);
		long n = pollux_pipe_read(s->p, w, want * 8, 1);
		uint64_t sum = 0;

		if (n == 0)
			return;
		if (n < 0 || n % 8) {
			broken("a read returned %ld", n);
			return;
		}
		for (int i = 0; i < n / 8; i++) {
			uint64_t who = w[i] >> 56, seq = w[i] << 8 >> 8;

			if (who >= WRITERS || seq <= last[who])
				broken("word %llx after %llx", (unsigned long long)w[i],
				       (unsigned long long)last[who & 15]);
			last[who & 15] = seq;
			sum += w[i];
		}
		atomic_add(&s->out, sum);
		atomic_add(&s->reads, 1);
	}
}

static void several_readers(void **state)
{
	struct shared s = {.p = pipe_new()};
	struct thread w[WRITERS], r[3];

	(void)state;
	torture_begin();
	for (int i = 0; i < WRITERS; i++) {
		pollux_file_get(pollux_pipe_write_end(s.p));
		thread_start(&r[i], word_reader, &s);
		thread_start(&w[i], word_writer, &s);
	}
	torture_sleep_until(atomic_get(&s.reads) > 100);
	torture_end(w, WRITERS);
	pollux_file_put(pollux_pipe_write_end(s.p));
	for (int i = 0; i < WRITERS; i++)
		thread_join(&r[i]);
	assert_false(torture_failed);
	assert_true(s.in == s.out);
	assert_true(s.reads > 100);
	print_message("%lu reads\n", s.reads);
	pollux_file_put(pollux_pipe_read_end(s.p));
}

/* --- ends that are closed ------------------------------------------------------------ */

struct closing {
	struct meet m;
	struct pollux_pipe *p;
	bool reader_goes;
	int quit;
	unsigned long epipe, wrote;
};

static void closing_writer(struct thread *t)
{
	struct closing *c = t->arg;
	uint32_t r = (uint32_t)t->tid;
	char buf[300] = {0};

	for (;;) {
		struct pollux_pipe *p;

		if (!meet(&c->m) || atomic_get(&c->quit))
			return;
		p = c->p;
		for (uint32_t k = rnd(&r) % 40; k; k--) {
			long w = pollux_pipe_write(p, buf, 1 + rnd(&r) % (k % 4 ? 8 : 300), 0);

			if (w > 0)
				atomic_add(&c->wrote, w);
			else if (w == -EPIPE && c->reader_goes)
				atomic_add(&c->epipe, 1);
			else
				broken("a write returned %ld", w);
		}
		pollux_file_put(pollux_pipe_write_end(p));
		if (!meet(&c->m))
			return;
	}
}

static void run_closing(bool reader_goes)
{
	struct closing c = {.m.n = 3, .reader_goes = reader_goes};
	struct pollux_ep *ep = ep_new();
	unsigned long rounds = 0;
	int64_t start = now_ns();
	struct thread t[2];
	uint32_t r = 7;

	torture_begin();
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], closing_writer, &c);
	while (torture_until(start, rounds > 20 && (!reader_goes || c.epipe > 20))) {
		struct pollux_file *rd;
		unsigned long got = 0;
		char buf[1000];
		long n;

		c.p = pipe_new();
		c.wrote = 0;
		rd = pollux_pipe_read_end(c.p);
		/* One reference for each writer. */
		pollux_file_get(pollux_pipe_write_end(c.p));
		ep_add(ep, rd, 0, EPOLLIN | EPOLLET, 'r');
		if (!meet(&c.m))
			break;
		if (reader_goes) {
			for (uint32_t k = rnd(&r) % 2000; k; k--)
				__asm__ __volatile__("" ::: "memory");
			pollux_file_put(rd);
		} else {
			struct epoll_event ev = {0};

			while (!(ev.events & EPOLLHUP)) {
				if (pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) != 1)
					broken("no event");
				while ((n = pollux_pipe_read(c.p, buf, 1 + rnd(&r) % sizeof(buf),
							     0)) > 0)
					got += n;
			}
			if (n != 0 || got != c.wrote)
				broken("%lu bytes of %lu, then %ld", got, c.wrote, n);
			pollux_file_put(rd);
		}
		if (!meet(&c.m))
			break;
		rounds++;
	}
	atomic_set(&c.quit, 1);
	(void)meet(&c.m);
	torture_end(t, 2);
	print_message("%lu rounds, %lu EPIPE\n", rounds, c.epipe);
	assert_true(rounds > 20);
	assert_true(!reader_goes || c.epipe > 20);
	ep_put(ep);
}

static void ends_that_are_closed(void **state)
{
	(void)state;
	run_closing(false);
	run_closing(true);
}

/* --- handlers ------------------------------------------------------------------------ */

enum call { WRITE, WRITE_WORD, WRITE_LONG, WRITE_PAGES, READ, READ_ALL, RESIZE, COUNT, CALLS };

static const char *const call_name[CALLS] = {"byte", "word",	 "long",   "pages",
					     "read", "read all", "resize", "count"};

static struct {
	struct pollux_pipe *p;
	unsigned long in, out;
	unsigned long inside[CALLS];
	volatile sig_atomic_t in_call;
	uint32_t random;
} h;

static void handled_write(size_t n)
{
	static const char zero[9000];
	long w = pollux_pipe_write(h.p, zero, n, 0);

	if (w > 0)
		atomic_add(&h.in, w);
	else if (w != -EAGAIN)
		broken("a write of %zu returned %ld", n, w);
}

static void handled_read(size_t n)
{
	char buf[70000];
	long r = pollux_pipe_read(h.p, buf, n, 0);

	if (r > 0)
		atomic_add(&h.out, r);
	else if (r != -EAGAIN)
		broken("a read returned %ld", r);
}

static void use_handler(int sig)
{
	uint32_t r = h.random;
	int call = h.in_call;

	(void)sig;
	if (call >= 0)
		atomic_add(&h.inside[call], 1);
	handled_write(1 + rnd(&r) % 8);
	if (rnd(&r) % 2)
		handled_write(1 + rnd(&r) % 200);
	if (rnd(&r) % 8 == 0)
		handled_write(5000);
	if (rnd(&r) % 2)
		handled_read(1 + rnd(&r) % 20);
	if (rnd(&r) % 8 == 0)
		handled_read(70000);
	h.random = r;
}

/* Every call in turn, under fire. */
static void victim(struct thread *t)
{
	uint32_t r = (uint32_t)t->tid;
	struct sigevent sev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	timer_t timer;

	sev._sigev_un._tid = t->tid;
	if (timer_create(CLOCK_MONOTONIC, &sev, &timer) != 0)
		broken("no timer");
	while (!stopping()) {
		int call = rnd(&r) % CALLS;

		h.in_call = call;
		for (int k = 0; k < 8; k++) {
			struct itimerspec its = {.it_value.tv_nsec = 1 + rnd(&r) % 10000};

			timer_settime(timer, 0, &its, NULL);
			switch (call) {
			case WRITE:
				handled_write(1);
				break;
			case WRITE_WORD:
				handled_write(8);
				break;
			case WRITE_LONG:
				handled_write(9 + rnd(&r) % 1000);
				break;
			case WRITE_PAGES:
				handled_write(9000);
				break;
			case READ:
				handled_read(1 + rnd(&r) % 40);
				break;
			case READ_ALL:
				handled_read(70000);
				break;
			case RESIZE:
				(void)pollux_pipe_set_capacity(h.p, 8192ul << rnd(&r) % 4);
				break;
			default:
				(void)pollux_pipe_bytes(h.p);
			}
		}
		h.in_call = -1;
	}
	timer_delete(timer);
}

/* Others at the same time, so that there are waiters for locks, and helpers. */
static void bystander(struct thread *t)
{
	uint32_t r = (uint32_t)t->tid;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while (!stopping()) {
		if (rnd(&r) % 2)
			handled_write(1 + rnd(&r) % (rnd(&r) % 4 ? 8 : 9000));
		else
			handled_read(1 + rnd(&r) % 5000);
	}
}

static bool handled_everywhere(void)
{
	for (int i = 0; i < CALLS; i++)
		if (!atomic_get(&h.inside[i]))
			return false;
	return true;
}

static void handlers_that_write_and_read(void **state)
{
	struct sigaction sa = {.sa_handler = use_handler, .sa_flags = SA_RESTART};
	struct pollux_ep *ep = ep_new();
	struct thread t[2];

	(void)state;
	torture_begin();
	memset(&h, 0, sizeof(h));
	h.p = pipe_new();
	h.in_call = -1;
	ep_add(ep, pollux_pipe_read_end(h.p), 0, EPOLLIN | EPOLLET, 'r');
	sigaction(SIGUSR2, &sa, NULL);
	thread_start(&t[0], victim, NULL);
	thread_start(&t[1], bystander, NULL);
	torture_sleep_until(handled_everywhere());
	assert_true(handled_everywhere());
	torture_end(t, 2);
	while (h.in != h.out) {
		unsigned long before = h.out;

		handled_read(70000);
		if (before == h.out)
			break;
	}
	assert_int_equal(h.in, h.out);
	assert_int_equal(pollux_pipe_bytes(h.p), 0);
	print_message("%lu bytes; handlers in", h.in);
	for (int i = 0; i < CALLS; i++)
		print_message(" %s %lu", call_name[i], h.inside[i]);
	print_message("\n");
	ep_put(ep);
	pipe_put(h.p);
}

/* --- one thread stopped at one point ------------------------------------------------- */

struct halted {
	struct thread t;
	struct gate g;
	const char *point;
	struct pollux_pipe *p;
	char buf[5000];
	size_t n;
	bool writes, blocks;
	long r;
};

static void halted_main(struct thread *t)
{
	struct halted *s = t->arg;

	gate_arm(&s->g, s->point);
	s->r = s->writes ? pollux_pipe_write(s->p, s->buf, s->n, s->blocks)
			 : pollux_pipe_read(s->p, s->buf, s->n, s->blocks);
}

static struct halted *halted_start(const char *point, struct pollux_pipe *p, bool writes, size_t n)
{
	struct halted *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->point = point;
	s->p = p;
	s->writes = writes;
	s->n = n;
	memset(s->buf, 'H', sizeof(s->buf));
	thread_start(&s->t, halted_main, s);
	return s;
}

static struct halted *halted_new(const char *point, struct pollux_pipe *p, bool writes, size_t n)
{
	struct halted *s = halted_start(point, p, writes, n);

	assert_true(gate_reached(&s->g));
	return s;
}

static long halted_end(struct halted *s, char *first)
{
	long r;

	gate_open(&s->g);
	thread_join(&s->t);
	r = s->r;
	if (first)
		*first = s->buf[0];
	free(s);
	return r;
}

static long put(struct pollux_pipe *p, const char *text)
{
	return pollux_pipe_write(p, text, strlen(text), 0);
}

#define assert_read(p, n, want)                                                                    \
	do {                                                                                       \
		char got_[100] = "";                                                               \
		long r_ = pollux_pipe_read(p, got_, n, 0);                                         \
		assert_int_equal(r_, sizeof(want) - 1);                                            \
		assert_string_equal(got_, want);                                                   \
	} while (0)

static void a_writer_before_its_cell(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct halted *s;

	(void)state;
	points_delay(false);
	s = halted_new("pipe_before_cell", p, true, 1);
	assert_int_equal(put(p, "ab"), 2);
	assert_read(p, 10, "ab");
	assert_int_equal(put(p, "c"), 1);
	assert_int_equal(halted_end(s, NULL), 1);
	assert_read(p, 10, "cH");
	/* It comes to its cell when that is in use again, many turns later. */
	s = halted_new("pipe_before_look", p, true, 1);
	for (int i = 0; i < 127; i++) {
		assert_int_equal(put(p, "x"), 1);
		assert_read(p, 1, "x");
	}
	assert_int_equal(put(p, "abcd"), 4);
	assert_int_equal(put(p, "efgh"), 4);
	assert_int_equal(halted_end(s, NULL), 1);
	assert_read(p, 10, "abcdefghH");
	pipe_put(p);
}

static void a_writer_between_cell_and_ctl(void **state)
{
	unsigned long helped = points_passed("pipe_before_help");
	struct pollux_pipe *p = pipe_new();
	struct halted *s;
	char buf[10];

	(void)state;
	points_delay(false);
	s = halted_new("pipe_before_ctl", p, true, 2);
	/* It has not returned, so there need be nothing yet. */
	assert_int_equal(pollux_pipe_read(p, buf, 10, 0), -EAGAIN);
	assert_int_equal(put(p, "ab"), 2);
	assert_int_equal(points_passed("pipe_before_help") - helped, 1);
	assert_read(p, 10, "HHab");
	assert_int_equal(halted_end(s, NULL), 2);
	assert_int_equal(pollux_pipe_bytes(p), 0);
	/* The same, helped by somebody who needs the lock. */
	s = halted_new("pipe_before_ctl", p, true, 2);
	assert_int_equal(pollux_pipe_set_capacity(p, 8192), 8192);
	assert_int_equal(pollux_pipe_bytes(p), 2);
	assert_read(p, 1, "H");
	assert_int_equal(halted_end(s, NULL), 2);
	assert_read(p, 10, "H");
	/* And one whose place has been drained meanwhile: it opens a new slot. */
	assert_int_equal(pollux_pipe_set_capacity(p, 4096), 4096);
	assert_int_equal(put(p, "a"), 1);
	s = halted_new("pipe_before_ctl", p, true, 2);
	assert_read(p, 10, "a");
	assert_int_equal(halted_end(s, NULL), 2);
	assert_int_equal(pollux_pipe_write(p, (char[4094]){0}, 4094, 0), 4094);
	pipe_put(p);
}

static void a_reader_before_it_takes(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct halted *s;
	char first;

	(void)state;
	points_delay(false);
	assert_int_equal(put(p, "abcd"), 4);
	s = halted_new("pipe_before_take", p, false, 2);
	/* More comes behind: it still takes its own. */
	assert_int_equal(put(p, "ef"), 2);
	assert_int_equal(halted_end(s, &first), 2);
	assert_int_equal(first, 'a');
	assert_read(p, 10, "cdef");
	pipe_put(p);
	/* What it could have had is put together in another way meanwhile. */
	p = pipe_new();
	assert_int_equal(put(p, "abcd"), 4);
	s = halted_new("pipe_before_take", p, false, 3);
	assert_int_equal(pollux_pipe_set_capacity(p, 8192), 8192);
	assert_int_equal(halted_end(s, &first), 3);
	assert_int_equal(first, 'a');
	assert_read(p, 10, "d");
	pipe_put(p);
}

/* A reader's memory beyond its result is left alone. */
static void only_got(struct halted *s, long r, const char *bytes)
{
	gate_open(&s->g);
	thread_join(&s->t);
	assert_int_equal(s->r, r);
	for (size_t i = 0; i < sizeof(s->buf); i++)
		assert_int_equal(s->buf[i], (long)i < r ? bytes[i] : 'H');
	free(s);
}

/*
 * Of two readers each gets what the other has not got, and nothing else is written. point: where
 * the first one stands when the second comes.
 */
static void run_two_readers(const char *point, bool enough)
{
	struct pollux_pipe *p = pipe_new();
	struct halted *a, *b;

	assert_int_equal(put(p, enough ? "abcd" : "ab"), enough ? 4 : 2);
	a = halted_new(point, p, false, 2);
	b = halted_start("none", p, false, 4000);
	/* It comes when the first has taken. */
	assert_true(thread_asleep(&b->t));
	only_got(a, 2, "ab");
	only_got(b, enough ? 2 : -EAGAIN, "cd");
	/* Now they take turns. */
	assert_int_equal(put(p, "efgh"), 4);
	a = halted_new("pipe_before_take", p, false, 4);
	b = halted_start("none", p, false, 4000);
	assert_true(thread_asleep(&b->t));
	only_got(a, 4, "efgh");
	only_got(b, -EAGAIN, "");
	pipe_put(p);
}

static void two_readers(void **state)
{
	(void)state;
	points_delay(false);
	for (int enough = 0; enough < 2; enough++)
		run_two_readers("pipe_before_take", enough);
}

/* The reader has found that it is alone, and is not any more. */
static void a_reader_that_was_alone(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct halted *a, *b;

	(void)state;
	points_delay(false);
	assert_int_equal(put(p, "abcd"), 4);
	a = halted_new("pipe_reading", p, false, 2);
	b = halted_start("pipe_sharing", p, false, 1);
	assert_true(gate_reached(&b->g));
	/* It sees the other, which has its barrier behind it, and waits for nobody in its turn. */
	only_got(a, 2, "ab");
	only_got(b, 1, "c");
	assert_read(p, 10, "d");
	pipe_put(p);
}

static void freezes(struct thread *t)
{
	if (plx_pipe_freeze(t->arg) != 0)
		broken("no memory");
}

/* What freezes the pipe leaves no reader with bytes that are another's by then. */
static void a_reader_of_a_pipe_that_leaves(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct thread t;
	struct halted *a;

	(void)state;
	points_delay(false);
	assert_int_equal(put(p, "abcd"), 4);
	a = halted_new("pipe_before_take", p, false, 2);
	thread_start(&t, freezes, p);
	assert_true(thread_asleep(&t));
	only_got(a, 2, "ab");
	thread_join(&t);
	a = halted_start("none", p, false, 2);
	only_got(a, -ESTALE, "");
	pipe_put(p);
}

static void one_who_is_about_to_use_the_lock(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct halted *s, *w;

	(void)state;
	points_delay(false);
	assert_int_equal(put(p, "ab"), 2);
	s = halted_new("pipe_before_slow", p, true, 5000);
	/* Readers go on without it, writers have to wait. */
	assert_read(p, 1, "a");
	w = halted_start("none", p, true, 1);
	assert_true(thread_asleep(&w->t));
	assert_read(p, 10, "b");
	assert_int_equal(halted_end(s, NULL), 5000);
	assert_int_equal(halted_end(w, NULL), 1);
	assert_int_equal(pollux_pipe_bytes(p), 5001);
	pipe_put(p);
}

/* PIPE-24: pollers hear of what a reader leaves behind that has slept. */
static void a_reader_that_has_slept_tells_pollers(void **state)
{
	struct pollux_pipe *p = pipe_new();
	struct pollux_ep *ep = ep_new();
	struct halted *s;

	(void)state;
	points_delay(false);
	ep_add(ep, pollux_pipe_read_end(p), 0, EPOLLIN | EPOLLET, 'r');
	s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->p = p;
	s->point = "pipe_before_take";
	s->n = 1;
	s->blocks = true;
	thread_start(&s->t, halted_main, s);
	assert_true(thread_asleep(&s->t));
	assert_int_equal(put(p, "ab"), 2);
	assert_true(gate_reached(&s->g));
	assert_one(ep, EPOLLIN, 'r');
	assert_none(ep);
	assert_int_equal(halted_end(s, NULL), 1);
	assert_one(ep, EPOLLIN, 'r');
	ep_put(ep);
	pipe_put(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(streams_of_records),
		TEST(several_readers),
		TEST(ends_that_are_closed),
		TEST(handlers_that_write_and_read),
		TEST(a_writer_before_its_cell),
		TEST(a_writer_between_cell_and_ctl),
		TEST(a_reader_before_it_takes),
		TEST(two_readers),
		TEST(a_reader_that_was_alone),
		TEST(a_reader_of_a_pipe_that_leaves),
		TEST(one_who_is_about_to_use_the_lock),
		TEST(a_reader_that_has_slept_tells_pollers),
	};

	return RUN(tests);
}
