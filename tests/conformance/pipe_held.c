/* SPDX-License-Identifier: MIT */
/*
 * A call that sleeps on a pipe holds its end, whatever becomes of its number and of the pipe, until
 * a handler ends it or begins it anew, which is by the number again (pipe(7), signal(7)).
 */
#include "waiting.h"

#define PAGE 4096
#define FULL (16 * PAGE)

/* What becomes of the pipe while the call sleeps. */
enum fate { STAYS, LEAVES };
static const enum fate fates[] = {STAYS, LEAVES};

struct sleeper {
	struct test_thread t;
	int fds[2];
	/* A file with "other" in it, which takes the number. */
	int other;
	sigjmp_buf jump;
	/* A handler may jump there. */
	volatile sig_atomic_t reading;
	bool jumps, jumped;
	ssize_t result;
	int err;
	char got[16];
};

/* Of the one thread that reads. */
static struct sleeper *volatile sleeping;

static void on_signal(int sig)
{
	struct sleeper *s = sleeping;

	(void)sig;
	if (s->jumps && s->reading)
		siglongjmp(s->jump, 1);
}

static void *reader_main(void *arg)
{
	struct sleeper *s = arg;

	if (sigsetjmp(s->jump, 1)) {
		s->jumped = true;
		return NULL;
	}
	s->reading = 1;
	s->result = read(s->fds[0], s->got, sizeof(s->got));
	s->err = errno;
	s->reading = 0;
	return NULL;
}

static int other_new(void)
{
	int fd = (int)assert_ok(syscall(SYS_memfd_create, "other", 1u));

	assert_int_equal(write(fd, "other", 5), 5);
	assert_ok(lseek(fd, 0, SEEK_SET));
	return fd;
}

/* A number on which another thread sleeps; as close_in_use. */
static void replace_in_use(int from, int to)
{
#ifdef __SANITIZE_THREAD__
	assert_ok(syscall(SYS_dup3, from, to, 0));
#else
	assert_ok(dup2(from, to));
#endif
}

/* Asleep in a read; its number is another file's by then. */
static struct sleeper *sleeper_new(enum fate fate, bool jumps, int flags)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};
	struct sleeper *s;

	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers at places of its own");
	s = calloc(1, sizeof(*s));
	assert_non_null(s);
	sleeping = s;
	s->jumps = jumps;
	assert_ok(sigaction(SIGUSR1, &sa, NULL));
	signal(SIGPIPE, SIG_IGN);
	assert_ok(pipe2(s->fds, O_CLOEXEC));
	s->other = other_new();
	thread_start(&s->t, reader_main, s);
	assert_true(thread_asleep(&s->t));
	replace_in_use(s->other, s->fds[0]);
	if (fate == LEAVES)
		assert_ok(fcntl(s->fds[1], F_GETOWN));
	sleep_ms(QUIET_MS);
	assert_true(thread_asleep(&s->t));
	return s;
}

/* A signal, which ends it. */
static void sleeper_hears(struct sleeper *s)
{
	pthread_kill(s->t.id, SIGUSR1);
	assert_true(thread_join(&s->t, SOON_MS));
}

/* Its end has gone with the call. */
static void sleeper_gone(struct sleeper *s)
{
	assert_errno(write(s->fds[1], "x", 1), EPIPE);
	close(s->fds[0]);
	close(s->fds[1]);
	close(s->other);
	free(s);
}

static void PIPE_24_a_reader_that_is_interrupted_lets_go_of_its_end(void **state)
{
	const enum fate *fate = *state;
	struct sleeper *s = sleeper_new(*fate, false, 0);

	sleeper_hears(s);
	assert_int_equal(s->result, -1);
	assert_int_equal(s->err, EINTR);
	sleeper_gone(s);
}

static void PIPE_24_a_reader_that_begins_anew_does_so_by_its_number(void **state)
{
	const enum fate *fate = *state;
	struct sleeper *s = sleeper_new(*fate, false, SA_RESTART);

	sleeper_hears(s);
	assert_int_equal(s->result, 5);
	assert_memory_equal(s->got, "other", 5);
	sleeper_gone(s);
}

static void PIPE_24_a_reader_that_jumps_lets_go_of_its_end(void **state)
{
	const enum fate *fate = *state;
	struct sleeper *s = sleeper_new(*fate, true, 0);

	sleeper_hears(s);
	assert_true(s->jumped);
	sleeper_gone(s);
}

/* --- a write of which a part is done ----------------------------------------------------- */

struct writer {
	struct test_thread t;
	int fd;
	int begun;
	ssize_t done;
	char data[FULL + 3 * PAGE];
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	__atomic_store_n(&w->begun, 1, __ATOMIC_SEQ_CST);
	w->done = write(w->fd, w->data, sizeof(w->data));
	return NULL;
}

/* Reads until nobody writes any more; how many bytes were right and in line. */
static size_t drain_numbered(int fd, const struct writer *w)
{
	static char got[FULL];
	size_t total = 0;
	ssize_t n;

	while ((n = read(fd, got, sizeof(got))) > 0) {
		if (total + (size_t)n > sizeof(w->data) || memcmp(got, w->data + total, (size_t)n))
			return 0;
		total += (size_t)n;
	}
	return total;
}

/* The number becomes another file's while the write is under way, and the pipe leaves or does not.
 */
static void PIPE_12_a_write_of_which_a_part_is_done_keeps_its_end(void **state)
{
	const enum fate *fate = *state;
	struct writer *w = calloc(1, sizeof(*w));
	int64_t end = now_ms() + 300;

	assert_non_null(w);
	for (size_t i = 0; i < sizeof(w->data); i++)
		w->data[i] = (char)(i * 31 >> 3);
	for (unsigned int round = 0; now_ms() < end; round++) {
		int other = other_new(), fds[2], some = 0;
		size_t total;

		assert_ok(pipe2(fds, O_CLOEXEC));
		w->fd = fds[1];
		w->begun = 0;
		thread_start(&w->t, writer_main, w);
		/* It has brought a part, however little: the end is its own. */
		while (!some)
			assert_ok(ioctl(fds[0], FIONREAD, &some));
		for (volatile unsigned int i = 0; i < round * 37 % 4096; i++)
			;
		replace_in_use(other, fds[1]);
		if (*fate == LEAVES)
			assert_ok(fcntl(fds[0], F_GETOWN));
		total = drain_numbered(fds[0], w);
		assert_true(thread_join(&w->t, SOON_MS));
		assert_int_equal(w->done, sizeof(w->data));
		assert_int_equal(total, sizeof(w->data));
		assert_int_equal(lseek(other, 0, SEEK_CUR), 0);
		assert_int_equal(lseek(other, 0, SEEK_END), 5);
		close(fds[0]);
		close(fds[1]);
		close(other);
	}
	free(w);
}

#define EACH_FATE(fn)                                                                              \
	VARIANT(fn, "_which_stays", &fates[0]), VARIANT(fn, "_which_leaves", &fates[1])

int main(void)
{
	const struct CMUnitTest pipe_held[] = {
		EACH_FATE(PIPE_24_a_reader_that_is_interrupted_lets_go_of_its_end),
		EACH_FATE(PIPE_24_a_reader_that_begins_anew_does_so_by_its_number),
		EACH_FATE(PIPE_24_a_reader_that_jumps_lets_go_of_its_end),
		EACH_FATE(PIPE_12_a_write_of_which_a_part_is_done_keeps_its_end),
	};

	return run_group(pipe_held);
}
