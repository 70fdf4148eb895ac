/* SPDX-License-Identifier: MIT */
/*
 * A signal at every instruction of a call.
 *
 * A child makes a call that sleeps; the parent lets it go on instruction by instruction, gives it
 * the signal after the first, in the next round after the second, and so on: up to the sleep, in
 * it, and from the end of the sleep, which the parent brings about, to that of the call. Wherever
 * the handler runs it makes an event of its own. The call returns, and of both events none is lost
 * and none comes twice (EP-SIG-01, EP-SIG-08, EFD-05).
 *
 * Then a second signal, of another number, at every instruction behind the first: up to where the
 * first one's handler has begun, whoever stands between the kernel and the program's handler. Both
 * handlers run once, and both signals are let in afterwards as they were before (EP-SIG-06).
 *
 * Of a long way to the sleep, which sanitizers make, only some instructions are tried, but all of
 * the last ones.
 */
#include "waiting.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>

/* So many single steps are made for one way of a call, roughly. */
#define BUDGET 3000
/* The last instructions before the sleep, and the first behind it: all of them. */
#define NEAR 48
/* So many instructions behind a first signal. */
#define BEHIND_FIRST 240

enum how { WAIT, PWAIT, WAIT_MIXED, POLL, SELECT, READ, READ_ENDS, SUBMIT, GETEVENTS, HOWS };

/* What child and parent have in common. */
struct shared {
	/* Rounds begun and ended. */
	int begun, ended;
	int ok;
	/* Signals of a round, and handlers that have run: of the first signal and of the second,
	   which may come in the middle of the first one's count. */
	int signals;
	int handled[2];
	long n;
	int err;
	int collected[3];
};

static struct shared *sh;
static enum how how;
static bool threads;
/* The handler's event, and the parent's, which the kernel makes. */
static int mine, own_pipe[2], theirs[2], ep;
static aio_context_t ctx;

static int handled(void)
{
	return sh->handled[0] + sh->handled[1];
}

static void handler(int sig)
{
	int saved = errno;
	uint64_t one = 1;

	sh->handled[sig == SIGUSR2]++;
	if (how == GETEVENTS)
		return;
	if (how == SUBMIT ? write(own_pipe[1], &one, 1) < 0 : write(mine, &one, 8) < 0)
		_exit(9);
	errno = saved;
}

/* Waits for two events, of which one comes. */
static long poll_and_wait(void)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (uint32_t)theirs[0]};
	struct iocb *list = &cb;
	struct io_event done[4];
	long n, rest;
	int saved;

	cb.aio_buf = POLLIN;
	if (syscall(SYS_io_submit, ctx, 1, &list) != 1)
		return 0;
	n = syscall(SYS_io_getevents, ctx, 2, 4, done, NULL);
	saved = errno;
	rest = syscall(SYS_io_getevents, ctx, 0, 4, done, NULL);
	sh->collected[1] = (int)((n < 0 ? 0 : n) + rest);
	drain_fd(theirs[0]);
	errno = saved;
	return n;
}

/* Linux AIO reads a pipe within io_submit; a signal ends the read, and not the call. */
static long submit_and_take(void)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)own_pipe[0]};
	struct iocb *list = &cb;
	struct io_event done;
	uint64_t v;
	long n;

	cb.aio_buf = (uintptr_t)&v;
	cb.aio_nbytes = 1;
	n = syscall(SYS_io_submit, ctx, 1, &list);
	if (n == 1 && syscall(SYS_io_getevents, ctx, 0, 1, &done, NULL) == 1)
		sh->collected[1] += done.res == 1;
	return n;
}

static void collect(const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++)
		sh->collected[ev[i].data.u64 % 3]++;
}

/* The call; what it has found counts as collected. */
static long call(void)
{
	struct epoll_event ev[4];
	struct pollfd p[2] = {{.fd = mine, .events = POLLIN}, {.fd = theirs[0], .events = POLLIN}};
	sigset_t none;
	fd_set set;
	uint64_t v;
	long n;

	sigemptyset(&none);
	switch (how) {
	case POLL:
		return poll(p, 2, -1);
	case SELECT:
		FD_ZERO(&set);
		FD_SET(mine, &set);
		FD_SET(theirs[0], &set);
		return select((mine > theirs[0] ? mine : theirs[0]) + 1, &set, NULL, NULL, NULL);
	case READ:
	case READ_ENDS:
		n = read(mine, &v, sizeof(v));
		sh->collected[1] += n == sizeof(v) ? (int)v : 0;
		return n;
	case GETEVENTS:
		return poll_and_wait();
	case SUBMIT:
		return submit_and_take();
	case PWAIT:
		n = epoll_pwait(ep, ev, 4, -1, &none);
		break;
	default:
		n = epoll_wait(ep, ev, 4, -1);
	}
	collect(ev, (int)n);
	return n;
}

/* What the call has left, in the end: every event once. */
static bool round_ok(void)
{
	struct pollfd rest = {.fd = mine, .events = POLLIN};
	struct epoll_event ev[4];
	sigset_t set;
	uint64_t v;

	if (sigprocmask(SIG_BLOCK, NULL, &set) || sigismember(&set, SIGUSR1) ||
	    sigismember(&set, SIGUSR2))
		return false;
	if (sh->n == -1 && (sh->err != EINTR || how == READ || how == SUBMIT))
		return false;
	/* What the signal has ended has taken nothing. */
	rest.fd = how == SUBMIT ? own_pipe[0] : mine;
	while (how == SUBMIT && poll(&rest, 1, 0) == 1)
		sh->collected[1] += read(own_pipe[0], &v, 1) == 1;
	if ((how == READ || how == READ_ENDS) && poll(&rest, 1, 0) == 1)
		sh->collected[1] += read(mine, &v, sizeof(v)) == sizeof(v) ? (int)v : 0;
	if (how <= WAIT_MIXED) {
		collect(ev, epoll_wait(ep, ev, 4, 0));
		if (read(mine, &v, sizeof(v)) != sizeof(v) || v != (uint64_t)sh->signals)
			return false;
	}
	if (how == POLL || how == SELECT) {
		sh->collected[1] += read(mine, &v, sizeof(v)) == sizeof(v) ? (int)v : 0;
		sh->collected[2] += read(theirs[0], &v, 1) == 1;
	}
	if (how == WAIT_MIXED)
		drain_fd(theirs[0]);
	if (handled() != sh->signals)
		return false;
	/* Two that come between two looks are one edge. */
	if (how <= WAIT_MIXED)
		return sh->collected[1] >= 1 && sh->collected[1] <= sh->signals;
	return sh->collected[1] == sh->signals;
}

static void *idle(void *arg)
{
	pause();
	return arg;
}

/* Rounds without end. It stops before each call and after it. */
static void child(void)
{
	struct sigaction sa = {.sa_handler = handler,
			       .sa_flags = how == READ_ENDS ? 0 : SA_RESTART};
	bool nonblock = how != READ && how != READ_ENDS;
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sigaction(SIGUSR1, &sa, NULL) || sigaction(SIGUSR2, &sa, NULL) ||
	    (threads && pthread_create(&t, NULL, idle, NULL)))
		_exit(2);
	mine = eventfd(0, nonblock ? EFD_NONBLOCK : 0);
	ep = epoll_create1(0);
	if (mine < 0 || ep < 0 || pipe(own_pipe) || (how >= SUBMIT && aio_setup_in_turn(4, &ctx)) ||
	    ep_ctl(ep, EPOLL_CTL_ADD, mine, EPOLLIN | EPOLLET, 1) ||
	    (how == WAIT_MIXED && ep_ctl(ep, EPOLL_CTL_ADD, theirs[0], EPOLLIN | EPOLLET, 2)) ||
	    ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(2);
	for (;;) {
		memset(sh->handled, 0, sizeof(sh->handled));
		memset(sh->collected, 0, sizeof(sh->collected));
		__atomic_add_fetch(&sh->begun, 1, __ATOMIC_SEQ_CST);
		raise(SIGSTOP);
		sh->n = call();
		sh->err = errno;
		__atomic_add_fetch(&sh->ended, 1, __ATOMIC_SEQ_CST);
		sh->ok = round_ok();
		if (how == READ_ENDS && sh->n != -1 && sh->n != 8)
			sh->ok = 0;
		raise(SIGSTOP);
	}
}

/* --- the parent ------------------------------------------------------------------------------- */

static pid_t pid;
/* The last signal that it was to get. */
static int last_signal;

/* Reads a file of the child's folder in /proc. */
static bool child_says(const char *file, char *line, size_t room)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, line, room - 1);
	close(fd);
	line[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* Whether it sleeps in a call of those that this is about, with something to wait for. */
static bool child_sleeps(void)
{
	static const long calls[] = {
#ifdef SYS_epoll_wait
		SYS_epoll_wait,	 SYS_select,	   SYS_poll,
#endif
		SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll,	  SYS_pselect6,
		SYS_read,	 SYS_futex,	   SYS_io_submit, SYS_io_getevents,
	};
	char line[512], *at, *end;
	long nr;

	if (!child_says("stat", line, sizeof(line)))
		return false;
	at = strrchr(line, ')');
	if (!at || at[2] != 'S' || !child_says("syscall", line, sizeof(line)))
		return false;
	nr = strtol(line, &end, 10);
	if (end == line || strtoul(end, NULL, 16) == 0)
		return false;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i] == nr)
			return true;
	return false;
}

enum event { STEPPED, STOPPED, SIGNALLED, ASLEEP, GONE };

/* What it comes to next; ASLEEP if it sleeps, and nothing comes. */
static enum event next(bool may_sleep)
{
	int status, seen = 0;
	int64_t end = 0;
	pid_t r;

	/* To sleep for it would take longer than what it does. */
	for (int i = 1; !(r = waitpid(pid, &status, WNOHANG)); i++) {
		if (i % 64)
			continue;
		sched_yield();
		/* It may be about to wake; one that is stopped shows as such. */
		if (may_sleep && child_sleeps() && ++seen > 2)
			return waitpid(pid, &status, WNOHANG) == pid ? GONE : ASLEEP;
		if (!end)
			end = now_ms() + SOON_MS;
		else if (now_ms() > end)
			return ASLEEP;
	}
	if (r < 0)
		return GONE;
	if (!WIFSTOPPED(status))
		return GONE;
	if (WSTOPSIG(status) == SIGTRAP)
		return STEPPED;
	last_signal = WSTOPSIG(status);
	return last_signal == SIGSTOP ? STOPPED : SIGNALLED;
}

static void go(int request, int sig)
{
	assert_ok(ptrace((enum __ptrace_request)request, pid, NULL, (void *)(long)sig));
}

/* It may send itself what it has kept. */
static enum event next_but_signals(void)
{
	enum event e = next(true);

	for (; e == SIGNALLED; e = next(true))
		go(PTRACE_CONT, last_signal);
	return e;
}

static void to_stop(void)
{
	enum event e;

	go(PTRACE_CONT, 0);
	e = next(true);
	assert_int_equal(e, STOPPED);
}

/* Whether the next instruction is a system call: others do not sleep. */
static bool at_system_call(void)
{
	struct user_regs_struct regs;
	struct iovec iov = {.iov_base = &regs, .iov_len = sizeof(regs)};
	long code;

	assert_ok(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &iov));
	errno = 0;
#if defined(__x86_64__)
	code = ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL);
	return errno || (code & 0xffff) == 0x050f;
#elif defined(__aarch64__)
	code = ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.pc, NULL);
	return errno || (code & 0xffffffff) == 0xd4000001;
#else
#error "which instruction is a system call?"
#endif
}

/* Up to n stops of this kind; how many have been made. *e is what came instead of the last. */
static int advance(int request, int n, enum event *e)
{
	*e = STEPPED;
	for (int i = 0; i < n; i++) {
		bool may_sleep = request != PTRACE_SINGLESTEP || at_system_call();

		go(request, 0);
		*e = next(may_sleep);
		if (*e != STEPPED)
			return i;
	}
	return n;
}

/* The begins and ends of so many system calls, and so many instructions. */
static enum event advance_to(int calls, int n)
{
	enum event e;

	if (advance(PTRACE_SYSCALL, 2 * calls, &e) == 2 * calls)
		advance(PTRACE_SINGLESTEP, n, &e);
	assert_true(e == STEPPED || e == ASLEEP);
	return e;
}

/* It sleeps, and is woken by a signal, which is not given to it yet. */
static void signal_sleeper(int sig)
{
	enum event e;

	assert_ok(kill(pid, sig));
	e = next(false);
	if (e == STEPPED) {
		go(PTRACE_CONT, 0);
		e = next(false);
	}
	assert_int_equal(e, SIGNALLED);
}

/*
 * Whatever the call needs to end, if it has nothing of its own. The signal came so many
 * instructions after so many system calls; -1: after the sleep; -2: after another signal.
 */
static void finish(int calls, int i, bool told)
{
	enum event e = next_but_signals();

	if (e == ASLEEP && !told && (how == WAIT_MIXED || how == POLL || how == SELECT)) {
		assert_int_equal(write(theirs[1], "x", 1), 1);
		e = next_but_signals();
	}
	if (e != STOPPED || sh->begun != sh->ended || !sh->ok) {
		print_error(
			"signal %d instructions after %d system calls: event %d, %d of %d calls "
			"ended, result %ld (%s), handler ran %d times, events %d and %d\n",
			i, calls, e, sh->ended, sh->begun, sh->n, strerror(sh->err), handled(),
			sh->collected[1], sh->collected[2]);
		fail();
	}
}

/* The signal where it is. */
static void signal_and_finish(enum event at, int calls, int i, bool told)
{
	if (at == ASLEEP)
		signal_sleeper(SIGUSR1);
	go(PTRACE_CONT, SIGUSR1);
	finish(calls, i, told);
}

static void tracee_start(enum how h)
{
	how = h;
	memset(sh, 0, sizeof(*sh));
	sh->signals = 1;
	assert_ok(pipe2(theirs, O_NONBLOCK));
	pid = (pid_t)assert_ok(fork());
	if (!pid)
		child();
	assert_int_equal(next(false), STOPPED);
}

static void tracee_end(void)
{
	int status;

	assert_ok(kill(pid, SIGKILL));
	while (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status))
		;
	close(theirs[0]);
	close(theirs[1]);
}

/* The instructions from the end of the calls-th system call to the sleep. */
static int way_left(int calls)
{
	enum event e;
	int n = 0;

	to_stop();
	e = advance_to(calls, 0);
	if (e != ASLEEP)
		n = advance(PTRACE_SINGLESTEP, INT_MAX, &e);
	assert_int_equal(e, ASLEEP);
	signal_and_finish(e, calls, n, false);
	return n;
}

/* Before the sleep and in it. */
static void signals_before(enum how h)
{
	int calls, n, left, tried = 0, all;
	enum event e;

	tracee_start(h);
	/* The first time functions are bound. */
	signal_and_finish(STEPPED, 0, 0, false);
	to_stop();
	calls = advance(PTRACE_SYSCALL, INT_MAX, &e) / 2;
	assert_int_equal(e, ASLEEP);
	signal_and_finish(e, calls, 0, false);
	n = all = way_left(0);
	for (int c = 0; c <= calls; c++, n = left) {
		int stride = 1;

		left = c < calls ? way_left(c + 1) : -1;
		while ((int64_t)(n - left) * (n - left) / 2 / stride > BUDGET)
			stride++;
		for (int i = 0, near = n - left - NEAR; i < n - left;) {
			to_stop();
			signal_and_finish(advance_to(c, i), c, i, false);
			tried++;
			i += stride < near - i ? stride : i < near ? near - i : 1;
		}
	}
	print_message("%d of %d instructions before the sleep\n", tried, all);
	tracee_end();
}

/* Behind the sleep, which ends by an event of the parent's. */
static void signals_behind(enum how h)
{
	enum event e;
	int n, i = 0;

	tracee_start(h);
	for (;;) {
		advance(PTRACE_SYSCALL, INT_MAX, &e);
		assert_int_equal(e, ASLEEP);
		assert_int_equal(write(theirs[1], "x", 1), 1);
		assert_int_equal(next(false), STEPPED);
		n = advance(PTRACE_SINGLESTEP, i, &e);
		/* The call has ended: the signal has nothing to do with it any more. */
		if (sh->begun == sh->ended)
			break;
		assert_int_equal(e, STEPPED);
		signal_and_finish(e, -1, i, true);
		assert_int_equal(sh->collected[2], 1);
		i += i < NEAR ? 1 : 1 + i / 8;
		to_stop();
	}
	print_message("%d instructions behind the sleep\n", n);
	assert_true(n > 20);
	tracee_end();
}

/* From one event, which is not enough, to the sleep that goes on; the kernel does not wake for it.
 */
static void signals_between(enum how h)
{
	enum event e;
	int n, i = INT_MAX, all = 0, tried = 0;

	tracee_start(h);
	/* First to see how many there are. */
	do {
		if (tried)
			to_stop();
		advance(PTRACE_SYSCALL, INT_MAX, &e);
		assert_int_equal(e, ASLEEP);
		assert_int_equal(write(theirs[1], "x", 1), 1);
		sleep_ms(1);
		e = next(true);
		n = e == STEPPED ? advance(PTRACE_SINGLESTEP, i, &e) : 0;
		signal_and_finish(e, -1, n, true);
		if (!tried++) {
			assert_int_equal(e, ASLEEP);
			all = n;
			i = 0;
		} else {
			int stride = 1 + i / 8, near = all - NEAR - i;

			i += i < NEAR || near <= 0 ? 1 : stride < near ? stride : near;
		}
	} while (i <= all || e != ASLEEP);
	print_message("%d of %d instructions from sleep to sleep\n", tried - 1, all);
	tracee_end();
}

/* A second signal behind the first, which comes on the way to the sleep or in it. */
static void second_signals(enum how h, bool in_sleep)
{
	enum event e;
	int j, within, stride;

	tracee_start(h);
	signal_and_finish(STEPPED, 0, 0, false);
	within = way_left(0) / 3;
	sh->signals = 2;
	for (j = 0; j < BEHIND_FIRST; j += stride) {
		to_stop();
		if (in_sleep) {
			go(PTRACE_CONT, 0);
			e = next(true);
			assert_int_equal(e, ASLEEP);
		} else {
			e = advance_to(0, within);
		}
		if (e == ASLEEP)
			signal_sleeper(SIGUSR1);
		go(PTRACE_SINGLESTEP, SIGUSR1);
		assert_int_equal(next(false), STEPPED);
		advance(PTRACE_SINGLESTEP, j, &e);
		if (e != STEPPED || handled())
			break;
		/* For this thread: another might take it, and handle it when all is over. */
		assert_ok(syscall(SYS_tgkill, pid, pid, SIGUSR2));
		go(PTRACE_CONT, 0);
		finish(-2, j, false);
		/* The way to where the first comes is long. */
		stride = in_sleep ? (j < BEHIND_FIRST / 2 ? 1 : 3) : j < NEAR ? 1 : 1 + j / 16;
	}
	print_message("%d instructions behind the first of two signals\n", j);
	assert_true(j > 0);
	tracee_end();
}

static void all_ways(enum how h)
{
	if (SANITIZED)
		SKIP("a sanitizer makes the ways many times as long, or runs handlers where it "
		     "likes");
	if (h == GETEVENTS) {
		signals_between(h);
		return;
	}
	for (int t = 0; t < (h == WAIT_MIXED || h == READ ? 2 : 1); t++) {
		threads = t;
		signals_before(h);
		if (h == WAIT_MIXED || h == POLL || h == SELECT)
			signals_behind(h);
	}
	if (h == WAIT)
		second_signals(h, false);
	if (h == WAIT || h == POLL || h == READ || h == SUBMIT)
		second_signals(h, true);
}

#define AT_EVERY_INSTRUCTION(name, h)                                                              \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		all_ways(h);                                                                       \
	}

AT_EVERY_INSTRUCTION(EP_SIG_08_signal_at_every_instruction_of_epoll_wait, WAIT)
AT_EVERY_INSTRUCTION(EP_SIG_08_signal_at_every_instruction_of_epoll_pwait, PWAIT)
AT_EVERY_INSTRUCTION(EP_SIG_08_signal_at_every_instruction_of_a_mixed_wait, WAIT_MIXED)
AT_EVERY_INSTRUCTION(ESCAPE_signal_at_every_instruction_of_poll, POLL)
AT_EVERY_INSTRUCTION(ESCAPE_signal_at_every_instruction_of_select, SELECT)
AT_EVERY_INSTRUCTION(EFD_05_signal_at_every_instruction_of_a_read, READ)
AT_EVERY_INSTRUCTION(EFD_05_signal_at_every_instruction_of_a_read_that_it_ends, READ_ENDS)
AT_EVERY_INSTRUCTION(AIO_SUBMIT_12_signal_at_every_instruction_of_io_submit, SUBMIT)
AT_EVERY_INSTRUCTION(AIO_GET_07_signal_at_every_instruction_between_two_sleeps, GETEVENTS)

int main(void)
{
	static const struct CMUnitTest instructions[] = {
		cmocka_unit_test(EP_SIG_08_signal_at_every_instruction_of_epoll_wait),
		cmocka_unit_test(EP_SIG_08_signal_at_every_instruction_of_epoll_pwait),
		cmocka_unit_test(EP_SIG_08_signal_at_every_instruction_of_a_mixed_wait),
		cmocka_unit_test(ESCAPE_signal_at_every_instruction_of_poll),
		cmocka_unit_test(ESCAPE_signal_at_every_instruction_of_select),
		cmocka_unit_test(EFD_05_signal_at_every_instruction_of_a_read),
		cmocka_unit_test(EFD_05_signal_at_every_instruction_of_a_read_that_it_ends),
		cmocka_unit_test(AIO_SUBMIT_12_signal_at_every_instruction_of_io_submit),
		cmocka_unit_test(AIO_GET_07_signal_at_every_instruction_between_two_sleeps),
	};

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 1;
	return run_group(instructions);
}
