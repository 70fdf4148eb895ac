/* SPDX-License-Identifier: MIT */
/*
 * pipe descriptors.
 *
 * The numbers are those of a real pipe of the kernel, so fstat, /proc, capacity, flags and
 * the limits of users are the kernel's. While the pipe is served in process nothing is ever
 * in it; its ends are open and closed as the program's are, so a write without readers is
 * passed on, and gets its SIGPIPE and its error there.
 *
 * A pipe is used first of all to talk to a child, so it is not served from its creation.
 * Its numbers get tokens in the table, which cost two stores: "nobody has used this pipe yet,
 * and that number is its other end". The first call on one of the numbers takes the token
 * away, and the pipe is the kernel's for good; so does a fork, for all of them at once. If
 * the first call is epoll_ctl(ADD) on an epoll that is served in process, the pipe is adopted
 * then: it is a pipe by which threads of this process wake each other.
 *
 *   token     1, PENDING, the end, the other number, and a serial number
 *   PENDING   an adoption is under way, with signals blocked; others wait for its outcome
 *   floor     tokens with a lower serial number are void: a fork has come since
 *
 * Either an adoption is seen by the fork, or the fork by the adoption: this one counts
 * itself and then looks at the floor, that one raises the floor and then looks at the
 * count (plx_px_escape_all).
 */
#include "posix/front.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/inject.h"
#include "base/inside.h"
#include "base/sys.h"
#include "posix/quick.h"
#include "posix/uaccess.h"

#define PENDING 2ul
#define TOKEN_WRITES 4ul
#define TOKEN_PEER_SHIFT 3
#define TOKEN_PEER_BITS 21
#define TOKEN_SERIAL_SHIFT (TOKEN_PEER_SHIFT + TOKEN_PEER_BITS)
#define TOKEN_SERIALS (1ul << (64 - TOKEN_SERIAL_SHIFT))

/* So many pieces are served; more are left to the kernel. */
#define PIECES 16
/* No result: a write that has not begun. */
#define UNTRIED 1

static uint64_t serial_next, serial_floor;

/* --- tokens -------------------------------------------------------------------------- */

static uintptr_t token_make(int peer, bool writes, uint64_t serial)
{
	return PLX_TOKEN | (writes ? TOKEN_WRITES : 0) | (uintptr_t)peer << TOKEN_PEER_SHIFT |
	       serial << TOKEN_SERIAL_SHIFT;
}

static int token_peer(uintptr_t token)
{
	return token >> TOKEN_PEER_SHIFT & ((1ul << TOKEN_PEER_BITS) - 1);
}

static uintptr_t token_of(int fd)
{
	uintptr_t token;

	while ((token = (uintptr_t)plx_table_raw(fd)) & PLX_TOKEN) {
		if (!(token & PENDING))
			return token;
		sched_yield();
	}
	return 0;
}

static bool token_cas(int fd, uintptr_t from, uintptr_t to)
{
	struct pollux_file *old = (struct pollux_file *)from;

	return plx_cas(plx_table_slot(fd), &old, (struct pollux_file *)to);
}

void plx_pipe_forget(int fd)
{
	uintptr_t token;

	while (plx_unlikely(plx_is_token(plx_table_raw(fd)))) {
		token = token_of(fd);
		if (token && token_cas(fd, token, 0))
			return;
	}
}

PLX_CHILD_CODE void plx_pipe_forget_all(void)
{
	uint64_t next = plx_load(&serial_next);

	/* A page that is not written need not be copied by a fork. */
	if (plx_load(&serial_floor) != next)
		plx_store(&serial_floor, next);
	plx_mb();
}

/* Two new numbers that nobody has used yet. The serial number is older than they are. */
static void tokens_put(const int *fds, uint64_t serial)
{
	if ((fds[0] | fds[1]) >> TOKEN_PEER_BITS || serial >= TOKEN_SERIALS ||
	    plx_table_reserve(fds[0]) < 0 || plx_table_reserve(fds[1]) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		uintptr_t token = token_make(fds[!i], i, serial);
		struct pollux_file *old = plx_table_set(fds[i], (struct pollux_file *)token);

		/* Left by a close that went past us. */
		if (old)
			pollux_file_put(old);
	}
}

/* --- adoption ------------------------------------------------------------------------ */

static bool page_fits(void)
{
	static long page;

	if (!plx_load(&page))
		plx_store(&page, sysconf(_SC_PAGESIZE));
	return plx_load(&page) == PLX_PIPE_PAGE;
}

/* Takes flags and capacity from the kernel's pipe; false if it cannot be served. */
static bool pipe_like(struct pollux_pipe *p, const int *fds)
{
	long r = plx_sys2(SYS_fcntl, fds[0], F_GETFL), w = plx_sys2(SYS_fcntl, fds[1], F_GETFL);
	long size = plx_sys2(SYS_fcntl, fds[0], F_GETPIPE_SZ);
	int bytes = 1;

	if (r < 0 || w < 0 || size <= 0 || size % PLX_PIPE_PAGE ||
	    size > PLX_PIPE_SLOTS * PLX_PIPE_PAGE ||
	    plx_sys3(SYS_ioctl, fds[0], FIONREAD, &bytes) < 0 || bytes || ((r | w) & O_ASYNC))
		return false;
	p->rd_served.status = r & O_NONBLOCK;
	p->wr_served.status = w & O_NONBLOCK;
	p->packets = !!(w & O_DIRECT);
	p->capacity = size / PLX_PIPE_PAGE;
	return true;
}

static void pipe_drop(struct pollux_pipe *p)
{
	pollux_file_put(&p->rd);
	pollux_file_put(&p->wr);
}

/* Both tokens become files. plx_table_enter, signals blocked. */
static bool tokens_adopt(struct pollux_pipe *p, const int *fds, const uintptr_t *token)
{
	struct pollux_file *end[2] = {&p->rd, &p->wr};

	if (!token_cas(fds[0], token[0], token[0] | PENDING))
		return false;
	if (!token_cas(fds[1], token[1], token[1] | PENDING)) {
		token_cas(fds[0], token[0] | PENDING, 0);
		return false;
	}
	PLX_DELAY(pipe_adopt_pending);
	plx_px_count(PLX_COUNT_PIPES);
	plx_mb();
	if (token[0] >> TOKEN_SERIAL_SHIFT < plx_load(&serial_floor) || !pipe_like(p, fds)) {
		token_cas(fds[0], token[0] | PENDING, 0);
		token_cas(fds[1], token[1] | PENDING, 0);
		return false;
	}
	/* These fail only if a number was closed past us, and means something else by now. */
	if (!token_cas(fds[0], token[0] | PENDING, (uintptr_t)end[0])) {
		token_cas(fds[1], token[1] | PENDING, 0);
		return false;
	}
	if (!token_cas(fds[1], token[1] | PENDING, (uintptr_t)end[1]))
		return !token_cas(fds[0], (uintptr_t)end[0], 0);
	return true;
}

bool plx_pipe_adopt(int fd)
{
	uint64_t most = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)), mask;
	uintptr_t mine = token_of(fd), other, token[2];
	struct pollux_pipe *p;
	bool locked, done;
	int fds[2];

	if (!mine || (plx_px_no_adopt & PLX_ADOPT_PIPE))
		return false;
	other = token_of(token_peer(mine));
	fds[0] = mine & TOKEN_WRITES ? token_peer(mine) : fd;
	fds[1] = mine & TOKEN_WRITES ? fd : token_peer(mine);
	token[0] = mine & TOKEN_WRITES ? other : mine;
	token[1] = mine & TOKEN_WRITES ? mine : other;
	if (token[0] != token_make(fds[1], false, mine >> TOKEN_SERIAL_SHIFT) ||
	    token[1] != token_make(fds[0], true, mine >> TOKEN_SERIAL_SHIFT) || !page_fits() ||
	    pollux_pipe_new(&p, 0) < 0)
		return false;
	/* Whoever finds PENDING waits, also a handler. */
	plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &most, &mask, sizeof(mask));
	locked = plx_table_enter();
	done = tokens_adopt(p, fds, token);
	plx_table_leave(locked);
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
	if (!done)
		pipe_drop(p);
	return done;
}

static bool beyond_streams(const int *fds)
{
	return !plx_fd_of_stream(fds[0]) && !plx_fd_of_stream(fds[1]);
}

/* From the creation on. The numbers are fresh: nobody knows them. */
static void adopt_at_once(struct pollux_pipe *p, const int *fds)
{
	struct pollux_file *old[2] = {NULL};

	if (beyond_streams(fds) && plx_table_reserve(fds[0]) == 0 &&
	    plx_table_reserve(fds[1]) == 0 && pipe_like(p, fds)) {
		old[0] = plx_table_set(fds[0], &p->rd);
		old[1] = plx_table_set(fds[1], &p->wr);
		plx_px_count(PLX_COUNT_PIPES);
		p = NULL;
	}
	for (int i = 0; i < 2; i++)
		if (old[i])
			plx_file_put_locked(old[i]);
	if (p) {
		plx_file_put_locked(&p->rd);
		plx_file_put_locked(&p->wr);
	}
}

long plx_px_pipe2(int *user, int flags, bool at_once)
{
	PLX_INSIDE();
	uint64_t serial = plx_xadd(&serial_next, 1);
	struct pollux_pipe *p;
	int fds[2];
	bool locked;
	long r;

	if ((plx_px_no_adopt & PLX_ADOPT_PIPE) || !page_fits() ||
	    (flags & ~(O_CLOEXEC | O_NONBLOCK | O_DIRECT)) || !plx_px_begin())
		return PLX_PASS;
	if (at_once && pollux_pipe_new(&p, 0) < 0)
		return PLX_PASS;
	/* The kernel fills the program's array, and refuses a bad one. */
	locked = plx_table_enter();
	r = plx_sys2(SYS_pipe2, user, flags);
	if (r == 0 && plx_copy_in(fds, user, sizeof(fds)))
		fds[0] = fds[1] = 0;
	if (r == 0 && at_once)
		adopt_at_once(p, fds);
	plx_table_leave(locked);
	if (r == 0 && !at_once && beyond_streams(fds))
		tokens_put(fds, serial);
	if (r < 0 && at_once)
		pipe_drop(p);
	plx_retire_flush_if_full();
	return r;
}

/* --- ends whose numbers are closed ------------------------------------------------------- */

/*
 * A call that sleeps keeps its end open, as in the kernel, and goes on with it if the pipe becomes
 * the kernel's, though the number may be closed by then, and be another file's. So who closes or
 * replaces the number gives the end a hidden descriptor first, or the spill does, and the last of
 * the calls ends that; none while another does (plx_table_enter). Of a call and the others, each
 * has done its own part before it looks at the other's. A call that has not said so when it is
 * looked for has begun together with the close: it knows its pipe as long as that is ours.
 *
 * Who ends the descriptor looks for calls under the lock of hidden numbers, for it may have left
 * and another come by another number, or while the pipe leaves; and a call that goes on with the
 * descriptor has looked for it under that lock, after it has said that it is there: it finds none,
 * or one that stays. The model is tests/model/pins.pml.
 */
static struct plx_pipe_pin *pin_of(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	return f == &p->rd ? &p->rd_pin : &p->wr_pin;
}

/* plx_table_enter. The descriptor goes if nobody is there for it. */
static void end_unkeep(struct plx_pipe_pin *pin)
{
	plx_fd_unhide_unused(&pin->kfd, &pin->pins);
}

static __attribute__((noinline)) void keep_end(int fd)
{
	bool locked = plx_table_enter();
	struct pollux_file *f;

	plx_hidden_lock();
	plx_numbers_lock(fd, fd);
	f = plx_table_get(fd);
	if (f && plx_file_is_pipe(f) && plx_load(&pin_of(f)->kfd) < 0)
		plx_fd_hide_dup_private(fd, &pin_of(f)->kfd);
	plx_numbers_unlock(fd, fd);
	plx_hidden_unlock();
	PLX_DELAY(pipe_end_kept);
	/* Partner: unpin_put. */
	plx_mb();
	if (f && plx_file_is_pipe(f))
		end_unkeep(pin_of(f));
	plx_table_leave(locked);
	if (f)
		pollux_file_put(f);
}

void plx_pipe_keep_end(int fd)
{
	struct pollux_file *f;
	bool asleep;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	asleep = f && plx_file_is_pipe(f) && plx_load(&pin_of(f)->pins);
	plx_rcu_read_unlock();
	PLX_DELAY(pipe_end_looked);
	if (plx_unlikely(asleep))
		keep_end(fd);
}

/* Before its numbers leave: after that who closes one goes to the kernel, and keeps nothing. */
void plx_pipe_keep_filled(struct pollux_file *f)
{
	struct plx_pipe_pin *pin = pin_of(f);
	int number = plx_file_served(f)->number;

	if (!plx_load(&pin->pins) || plx_load(&pin->kfd) >= 0 || number < 0)
		return;
	plx_hidden_lock();
	plx_fd_hide_dup_private(number, &pin->kfd);
	plx_hidden_unlock();
	/* Partner: unpin_put. */
	plx_mb();
	end_unkeep(pin);
}

/* What a call holds that sleeps; and whether the end blocked no more when it let go of it. */
struct sleeping {
	struct pollux_file *f;
	bool nonblock;
};

static void unpin_put(void *arg)
{
	struct sleeping *s = arg;
	struct pollux_file *f = s->f;
	struct plx_pipe_pin *pin = pin_of(f);
	bool locked, last;

	s->nonblock = plx_load(&plx_file_served(f)->status) & O_NONBLOCK;

	last = plx_xadd(&pin->pins, -1) == 1;
	/* Partners: keep_end, plx_pipe_keep_filled. */
	plx_mb_after_rmw();
	if (last && plx_load(&pin->kfd) >= 0) {
		locked = plx_table_enter();
		end_unkeep(pin);
		plx_table_leave(locked);
	}
	pollux_file_put(f);
}

/* --- reading and writing ------------------------------------------------------------- */

/*
 * A call that slept while its pipe became the kernel's goes on sleeping there, also if
 * O_NONBLOCK was set meanwhile: that is for later calls.
 */
static long kernel_read(const int *number, const struct plx_pipe_call *call)
{
	return plx_kernel_sleep(number, POLLIN, PLX_SLEEP_RESTARTS, SYS_readv, call->iov,
				call->cnt);
}

/* The rest of a write, of which the pipe had taken a part when it became the kernel's. */
static long kernel_write(const int *number, const struct plx_pipe_call *call, size_t done)
{
	/* What is done is done: any handler ends the call then. */
	enum plx_sleep_kind kind = done ? PLX_SLEEP_ENDS : PLX_SLEEP_RESTARTS;
	struct iovec rest[PIECES];
	int n = 0;

	for (int i = 0; i < call->cnt; i++) {
		size_t skip = done < call->iov[i].iov_len ? done : call->iov[i].iov_len;

		done -= skip;
		rest[n] = call->iov[i];
		rest[n].iov_base = (char *)rest[n].iov_base + skip;
		rest[n].iov_len -= skip;
		n += rest[n].iov_len > 0;
	}
	return plx_kernel_sleep(number, POLLOUT, kind, SYS_writev, rest, n);
}

/*
 * SIGPIPE, as the kernel sends it. After a sleep the number may be closed, and be another file's,
 * so the kernel's pipe cannot be made to.
 */
static void sigpipe(void)
{
	long pid = plx_sys0(SYS_getpid), tid = plx_sys0(SYS_gettid);
	siginfo_t info = {.si_signo = SIGPIPE, .si_code = SI_USER};

	info.si_pid = (pid_t)pid;
	info.si_uid = (uid_t)plx_sys0(SYS_getuid);
	/* A sandbox may know only the other. */
	if (plx_sys4(SYS_rt_tgsigqueueinfo, pid, tid, SIGPIPE, &info) < 0)
		plx_sys3(SYS_tgkill, pid, tid, SIGPIPE);
}

/*
 * A call has slept, and its pipe is the kernel's: by its own descriptor, if the number has been
 * closed. Its number may move away (plx_fd_evict), which breaks the sleep.
 */
static long kernel_call(struct pollux_file *f, int fd, const struct plx_pipe_call *call,
			size_t done)
{
	const struct plx_pipe_pin *pin = pin_of(f);
	bool own = plx_load(&pin->kfd) >= 0;
	const int *number = own ? &pin->kfd : &fd;
	uint32_t breaks = plx_inside.breaks;
	long r;

	do {
		r = call->writes ? kernel_write(number, call, done) : kernel_read(number, call);
	} while (own && r == -EINTR && breaks == plx_inside.breaks);
	return r;
}

/*
 * Whether kernel_call is to go on with it. The number alone will do for nobody who has an end of
 * his own: it may be closed at any time, and be another file's.
 */
static bool goes_on(struct pollux_file *f)
{
	bool own = plx_fd_used(&pin_of(f)->kfd) >= 0;

	PLX_DELAY(pipe_goes_on);
	return own || (plx_load(&plx_file_served(f)->status) & O_NONBLOCK);
}

static long read_sleeping(struct pollux_pipe *p, int fd, struct plx_pipe_io *io, long r,
			  const struct plx_pipe_call *call)
{
	bool slept = r == -EAGAIN;

	if (slept)
		r = plx_pipe_sleep_read(p, io);
	if (r != -ESTALE)
		return r;
	PLX_DELAY(pipe_left);
	plx_spill_wait(&p->rd);
	return slept && goes_on(&p->rd) ? kernel_call(&p->rd, fd, call, 0) : PLX_PASS;
}

/* The first part of a write that may sleep before the rest. */
static long write_first(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	long r;

	/* A change and what tells of it: one section (spill_run). */
	plx_rcu_read_lock();
	r = plx_pipe_try_write(p, io, true);
	plx_rcu_read_unlock();
	PLX_DELAY(pipe_tried);
	return r == -EPIPE ? PLX_PASS : r;
}

static long write_sleeping(struct pollux_pipe *p, int fd, struct plx_pipe_io *io, long r,
			   const struct plx_pipe_call *call)
{
	bool slept, goes;

	if (r == UNTRIED)
		r = write_first(p, io);
	slept = r == -EAGAIN;
	if (slept)
		r = plx_pipe_sleep_write(p, io);
	if (r == -ESTALE) {
		PLX_DELAY(pipe_left);
		plx_spill_wait(&p->wr);
		goes = goes_on(&p->wr);
		if (!io->done && !(slept && goes))
			return PLX_PASS;
		r = kernel_call(&p->wr, fd, call, io->done);
		return r < 0 && io->done ? (long)io->done : r + (long)io->done;
	}
	if (r == -EPIPE)
		sigpipe();
	return !r || io->done ? (long)io->done : r;
}

/*
 * Outside of the RCU section, with a reference: the call has to sleep, or may have to once it has
 * done a part, or the pipe has left.
 */
static __attribute__((noinline)) long call_sleeping(struct pollux_file *f, int fd,
						    struct plx_pipe_io *io, long r,
						    const struct plx_pipe_call *call)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	struct sleeping s = {.f = f};
	bool got = pollux_file_tryget(f);

	plx_rcu_read_unlock();
	/* Gone from the table, by a close or a spill: the number is the kernel's. */
	if (!got)
		return PLX_PASS;
	PLX_DELAY(pipe_pins);
	plx_xadd(&pin_of(f)->pins, 1);
	PLX_HOLD_PUSH(unpin_put, &s);
	r = call->writes ? write_sleeping(p, fd, io, r, call) : read_sleeping(p, fd, io, r, call);
	PLX_HOLD_POP(1);
	/* A write that is woken looks at O_NONBLOCK before it looks at signals. */
	return plx_sleep_is_over(r) && call->writes && s.nonblock ? -EAGAIN : r;
}

long plx_pipe_call(struct pollux_file *f, int fd, const struct plx_pipe_call *call)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	struct plx_pipe_io io = {
		.iov = call->iov,
		.cnt = call->cnt,
		.copy = plx_copy_in,
		.total = call->total < PLX_RW_MAX ? call->total : PLX_RW_MAX,
	};
	bool nonblock;
	long r;

	/* The kernel knows what to say of the wrong end, and of nothing. */
	if (plx_unlikely(call->writes != (f == &p->wr) || !call->total)) {
		plx_rcu_read_unlock();
		return PLX_PASS;
	}
	nonblock = call->nonblock || (plx_load(&plx_file_served(f)->status) & O_NONBLOCK);
	/* Who has brought a part has to bring the rest to the same pipe, and says so before. */
	if (call->writes && !nonblock && plx_unlikely(io.total > PLX_PIPE_PAGE))
		return call_sleeping(f, fd, &io, UNTRIED, call);
	if (call->writes) {
		r = plx_pipe_try_write(p, &io, !nonblock);
		if (!r || (io.done && nonblock))
			r = (long)io.done;
	} else {
		r = plx_pipe_try_read(p, &io);
	}
	if (plx_unlikely(r == -ESTALE || (r == -EAGAIN && !nonblock)))
		return call_sleeping(f, fd, &io, r, call);
	plx_rcu_read_unlock();
	if (r == -EPIPE)
		return PLX_PASS;
	return r < 0 && io.done ? (long)io.done : r;
}

/* The write of few bytes with nothing in its way; all else is left to other, undone. */
ssize_t plx_px_write_pipe(struct pollux_file *f, uint32_t depth, int fd, const void *buf, size_t n,
			  plx_write_t other)
{
	struct pollux_pipe *p = plx_container_of(f, struct pollux_pipe, wr);
	uint64_t bytes = 0;
	bool done = false;

	if (plx_likely(n - 1 < sizeof(bytes))) {
		plx_pipe_ask_for_lines(p);
		done = plx_user_range(buf, n) && !plx_copy_in(&bytes, buf, n) &&
		       plx_pipe_put_few(p, bytes, n);
	}
	plx_rcu_read_unlock();
	if (plx_likely(done)) {
		plx_inside_end(&depth);
		return (ssize_t)n;
	}
	quick_outside(depth);
	return other(fd, buf, n);
}

/*
 * readv and writev, if fd is a pipe: false if it is not. The number is a real pipe of the
 * kernel, so what is wrong with the pieces is found there, before anything is done.
 */
bool plx_pipe_vector(int fd, const struct iovec *user, int cnt, int flags, bool writes, long *r)
{
	struct iovec iov[PIECES];
	struct plx_pipe_call call = {
		.iov = iov,
		.cnt = cnt,
		.writes = writes,
		.nonblock = flags & RWF_NOWAIT,
	};
	struct pollux_file *f;
	bool pipe;

	plx_pipe_forget(fd);
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	pipe = f && plx_file_is_pipe(f);
	plx_rcu_read_unlock();
	if (!pipe)
		return false;
	*r = PLX_PASS;
	if (cnt <= 0 || cnt > UIO_MAXIOV)
		return true;
	if (cnt > PIECES || (flags & ~RWF_NOWAIT)) {
		plx_px_escape(fd, PLX_OUT_VECTOR);
		return true;
	}
	if (plx_copy_in(iov, user, cnt * sizeof(*iov)))
		return true;
	for (int i = 0; i < cnt; i++) {
		if ((ssize_t)iov[i].iov_len < 0)
			return true;
		if (plx_piece_unsure(iov[i].iov_base, iov[i].iov_len, cnt))
			plx_px_escape(fd, PLX_OUT_VECTOR);
		if (!plx_user_range(iov[i].iov_base, iov[i].iov_len))
			return true;
		if (iov[i].iov_len > PLX_RW_MAX - call.total)
			iov[i].iov_len = PLX_RW_MAX - call.total;
		call.total += iov[i].iov_len;
	}
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && plx_file_is_pipe(f))
		*r = plx_pipe_call(f, fd, &call);
	else
		plx_rcu_read_unlock();
	return true;
}

/* --- flags and sizes ----------------------------------------------------------------- */

/*
 * Serialises changes of flags and sizes, so that the kernel's and ours are those of the same call.
 * Who pours a pipe into the kernel's changes the kernel's flags for that, and counts on its size:
 * whoever has the lock before that is waited for, and who comes later sees that the pipe is gone.
 */
static plx_lock_t flags_lock;

/* False: it is the kernel's by now. */
static bool flags_begin(struct pollux_file *f)
{
	plx_lock(&flags_lock, PLX_RANK_FLAGS);
	if (plx_likely(!plx_file_gone(f)))
		return true;
	plx_unlock(&flags_lock, PLX_RANK_FLAGS);
	plx_spill_wait(f);
	return false;
}

static void flags_end(void)
{
	PLX_DELAY(pipe_flags_set);
	plx_unlock(&flags_lock, PLX_RANK_FLAGS);
}

static void status_set(struct pollux_file *f, uint32_t nonblock)
{
	plx_store(&plx_file_served(f)->status, nonblock);
}

static long set_flags(struct pollux_file *f, int fd, long flags)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	long r;

	if (!flags_begin(f))
		return PLX_PASS;
	r = plx_sys3(SYS_fcntl, fd, F_SETFL, flags);
	if (r == 0) {
		status_set(f, flags & O_NONBLOCK);
		if (f == &p->wr)
			pollux_pipe_set_packets(p, flags & O_DIRECT);
	}
	flags_end();
	return r;
}

PLX_CHILD_CODE void plx_pipe_after_fork_child(void)
{
	plx_lock_reset(&flags_lock);
}

/*
 * The kernel's pipe is empty, so that it never refuses what it would not refuse a new one;
 * whether ours has more in it than would fit is seen first.
 */
static long set_size(struct pollux_file *f, int fd, unsigned long bytes)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	uint32_t before, slots = 1;
	long r = 0;

	/* The kernel takes an int; beyond that size it has an error of its own. */
	bytes = (unsigned int)bytes;
	while (slots <= PLX_PIPE_SLOTS && (unsigned long)slots * PLX_PIPE_PAGE < bytes)
		slots *= 2;
	if (slots > PLX_PIPE_SLOTS) {
		plx_px_escape(fd, PLX_OUT_FCNTL);
		return PLX_PASS;
	}
	if (!flags_begin(f))
		return PLX_PASS;
	before = plx_load(&p->capacity);
	if (slots < before)
		r = plx_pipe_resize(p, slots);
	if (r == 0) {
		r = plx_sys3(SYS_fcntl, fd, F_SETPIPE_SZ, bytes);
		if ((r < 0 ? slots < before : slots >= before) &&
		    plx_pipe_resize(p, r < 0 ? before : (uint32_t)(r / PLX_PIPE_PAGE)) == -ESTALE)
			r = -ESTALE;
	}
	flags_end();
	/* Frozen just now: the kernel answers for it. */
	if (r != -ESTALE)
		return r;
	plx_spill_wait(f);
	return PLX_PASS;
}

long plx_pipe_fcntl(struct pollux_file *f, int fd, int cmd, long arg)
{
	switch (cmd) {
	case F_GETFL:
	case F_GETFD:
	case F_SETFD:
	case F_GETPIPE_SZ:
		return PLX_PASS;
	case F_SETFL:
		if (!(arg & O_ASYNC))
			return set_flags(f, fd, arg);
		break;
	case F_SETPIPE_SZ:
		return set_size(f, fd, arg);
	}
	plx_px_escape(fd, PLX_OUT_FCNTL);
	return PLX_PASS;
}

long plx_pipe_ioctl(struct pollux_file *f, int fd, unsigned long req, void *arg)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	int value;
	long r;

	switch (req) {
	case FIONREAD:
		value = pollux_pipe_bytes(p);
		if (plx_file_gone(f)) {
			plx_spill_wait(f);
			return PLX_PASS;
		}
		return plx_copy_out(arg, &value, sizeof(value));
	case FIONBIO:
		if (plx_copy_in(&value, arg, sizeof(value)))
			return -EFAULT;
		if (!flags_begin(f))
			return PLX_PASS;
		r = plx_sys3(SYS_ioctl, fd, FIONBIO, &value);
		if (r == 0)
			status_set(f, value ? O_NONBLOCK : 0);
		flags_end();
		return r;
	case FIOCLEX:
	case FIONCLEX:
	case TCGETS:
		return PLX_PASS;
	}
	plx_px_escape(fd, PLX_OUT_IOCTL);
	return PLX_PASS;
}

/* The same on a number with a token: what may be done before an adoption. */
void plx_pipe_fcntl_unused(int fd, int cmd, long arg)
{
	bool kept = cmd == F_GETFD || cmd == F_SETFD || cmd == F_GETFL || cmd == F_GETPIPE_SZ ||
		    cmd == F_SETPIPE_SZ || (cmd == F_SETFL && !(arg & O_ASYNC));

	if (!kept)
		plx_pipe_forget(fd);
}

void plx_pipe_ioctl_unused(int fd, unsigned long req)
{
	if (req != FIONREAD && req != FIONBIO && req != FIOCLEX && req != FIONCLEX && req != TCGETS)
		plx_pipe_forget(fd);
}

/* --- becoming the kernel's ----------------------------------------------------------- */

struct pollux_file *plx_pipe_peer(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	return f == &p->rd ? &p->wr : &p->rd;
}

uint32_t plx_pipe_gone(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	PLX_INVARIANT(plx_pipe_freeze(p) == 0,
		      "there is memory for turning objects into kernel objects");
	/* Partner: flags_begin. */
	plx_lock(&flags_lock, PLX_RANK_FLAGS);
	plx_unlock(&flags_lock, PLX_RANK_FLAGS);
	if (f == &p->rd)
		return (p->used ? EPOLLIN | EPOLLRDNORM : 0) | (p->writers ? 0 : EPOLLHUP);
	return (p->used < p->capacity ? EPOLLOUT | EPOLLWRNORM : 0) | (p->readers ? 0 : EPOLLERR);
}

/* A descriptor by a call that may need a higher limit for it. */
static int with_limit(long (*get)(const int *arg, int *out), const int *arg, int *out)
{
	struct rlimit lim;
	long r = get(arg, out);

	if (r != -EMFILE)
		return r;
	plx_limit_raise(&lim);
	r = get(arg, out);
	plx_limit_restore(&lim);
	return r;
}

static long open_both_ways(const int *fd, int *out)
{
	char path[64];

	(void)out;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	return plx_sys4(SYS_openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
}

static long new_pipe(const int *flags, int *out)
{
	return plx_sys2(SYS_pipe2, out, O_NONBLOCK | O_CLOEXEC | *flags);
}

/* The whole of the kernel's page of a slot: what has been read of it, and what has not. */
static void slot_write(struct pollux_pipe *p, const struct plx_pipe_slot *s, int to)
{
	static const char read_already[PLX_PIPE_PAGE];
	struct iovec iov[2] = {
		{.iov_base = (void *)read_already, .iov_len = s->end - s->len},
		{.iov_base = plx_pipe_chunk(p, s->chunk) + s->start, .iov_len = s->len},
	};
	long r = plx_sys3(SYS_writev, to, iov, 2);

	PLX_INVARIANT(r == s->end, "the kernel's pipe has room for what was in ours");
}

static void skip_read(int from, size_t n)
{
	char skipped[PLX_PIPE_PAGE];

	if (n)
		plx_sys3(SYS_read, from, skipped, n);
}

/*
 * A slot that the kernel would have continued, and did not, because its writer had slept:
 * it comes from another pipe as it is.
 */
static void slot_splice(struct pollux_pipe *p, const struct plx_pipe_slot *s, int to)
{
	int flags = s->packet ? O_DIRECT : 0;
	int fds[2];

	PLX_INVARIANT(with_limit(new_pipe, &flags, fds) == 0,
		      "there is a descriptor for turning an object into a kernel object");
	slot_write(p, s, fds[1]);
	skip_read(fds[0], s->end - s->len);
	plx_sys6(SYS_splice, fds[0], 0, to, 0, s->len, 0);
	plx_sys1(SYS_close, fds[0]);
	plx_sys1(SYS_close, fds[1]);
}

/* Slot by slot, so that the kernel's are the same: those from first on, before end. */
static void slots_pour(struct pollux_pipe *p, int from, int to, uint32_t first, uint32_t end)
{
	long flags = plx_sys2(SYS_fcntl, to, F_GETFL), now = flags;
	const struct plx_pipe_slot *before = first ? plx_pipe_slot(p, first - 1) : NULL;

	for (uint32_t i = first; i < end; i++) {
		const struct plx_pipe_slot *s = plx_pipe_slot(p, i);
		long want = (flags & ~(long)O_DIRECT) | O_NONBLOCK | (s->packet ? O_DIRECT : 0);

		if (now != want)
			plx_sys3(SYS_fcntl, to, F_SETFL, now = want);
		if (PLX_INJECTED(forgotten_slot))
			continue;
		if (before && !before->packet && s->end % PLX_PIPE_PAGE &&
		    before->end + s->end <= PLX_PIPE_PAGE)
			slot_splice(p, s, to);
		else
			slot_write(p, s, to);
		if (!i)
			skip_read(from, s->end - s->len);
		before = s;
	}
	if (now != flags)
		plx_sys3(SYS_fcntl, to, F_SETFL, flags);
}

/*
 * Writers gone and bytes left: they go into the kernel's pipe by a way of our own, or,
 * without /proc, into another one that takes its place.
 */
static void pour_alone(struct pollux_pipe *p, int fd)
{
	long both = with_limit(open_both_ways, &fd, NULL);
	int none = 0, fds[2];

	if (both >= 0) {
		slots_pour(p, both, both, 0, p->used);
		plx_sys1(SYS_close, both);
		return;
	}
	/* Whether a pipe without readers is full shows in its mask alone. */
	if (!p->readers || with_limit(new_pipe, &none, fds) < 0)
		return;
	plx_sys3(SYS_fcntl, fds[1], F_SETPIPE_SZ, (long)p->capacity * PLX_PIPE_PAGE);
	slots_pour(p, fds[0], fds[1], 0, p->used);
	plx_sys3(SYS_fcntl, fds[0], F_SETFL, plx_sys2(SYS_fcntl, fd, F_GETFL));
	plx_sys3(SYS_dup3, fds[0], fd,
		 plx_sys2(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	plx_sys1(SYS_close, fds[0]);
	plx_sys1(SYS_close, fds[1]);
}

/* Of the end of a frozen pipe: a descriptor that it has in the kernel, or -1. */
static int end_number(struct pollux_file *f)
{
	const struct plx_served *served = plx_file_served(f);

	if (!served->picked)
		return -1;
	return served->number >= 0 ? served->number : plx_load(&pin_of(f)->kfd);
}

void plx_pipe_fill(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	int r = end_number(&p->rd), w = end_number(&p->wr);

	/* Once for both ends. */
	if (f == &p->wr && p->rd_served.picked)
		return;
	if (!p->used)
		return;
	if (r >= 0 && w >= 0)
		slots_pour(p, r, w, 0, p->used - p->last_out);
	else if (r >= 0 || w >= 0)
		pour_alone(p, r >= 0 ? r : w);
}

bool plx_pipe_keep_room(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	if (p->raised || p->used < p->capacity || !p->readers || !p->rd_served.picked ||
	    !p->wr_served.picked || p->rd_served.number < 0 || p->wr_served.number < 0)
		return false;
	p->last_out = true;
	p->raised = 1;
	return true;
}

/* The kernel's pipe is as ours, so its size can always come back. */
static bool make_room(struct pollux_pipe *p, bool on)
{
	long size = (long)p->capacity * PLX_PIPE_PAGE;

	return plx_sys3(SYS_fcntl, p->wr_served.number, F_SETPIPE_SZ, on ? 2 * size : size) > 0;
}

bool plx_pipe_raise(struct pollux_file *f, bool on)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	bool reads = f->kind == PLX_KIND_PIPE_READ;
	char byte = 0;

	if (!plx_file_is_pipe(f) || p->wr_served.number < 0 ||
	    (reads ? p->used || !p->writers || p->rd_served.number < 0
		   : p->used < p->capacity || !p->readers))
		return false;
	if (on ? p->raised++ : --p->raised)
		return true;
	if (p->last_out) {
		slots_pour(p, p->rd_served.number, p->wr_served.number, p->used - 1, p->used);
		p->last_out = false;
		return true;
	}
	if (!reads) {
		if (make_room(p, on))
			return true;
		p->raised = 0;
		return false;
	}
	if (on)
		plx_sys3(SYS_write, p->wr_served.number, &byte, 1);
	else
		plx_sys3(SYS_read, p->rd_served.number, &byte, 1);
	return true;
}

/* A write of a byte that cannot be read, with what is there afterwards: 0, nothing. */
static long write_unreadable(int to, int from, const void *nowhere)
{
	struct pollfd p = {.fd = from, .events = POLLIN};
	struct timespec none = {0};

	plx_sys3(SYS_write, to, (long)nowhere, 1);
	return plx_sys6(SYS_ppoll, (long)&p, 1, (long)&none, 0, 8, 0);
}

/* Tried with a pipe that nobody sees. */
static bool unreadable_is_nothing(const void *nowhere)
{
	static enum { UNKNOWN, YES, NO } known;
	int flags = O_NONBLOCK;
	int fds[2];

	if (known == UNKNOWN && with_limit(new_pipe, &flags, fds) == 0) {
		known = write_unreadable(fds[1], fds[0], nowhere) == 0 ? YES : NO;
		plx_sys1(SYS_close, fds[0]);
		plx_sys1(SYS_close, fds[1]);
	}
	return known == YES;
}

bool plx_pipe_tell_readers(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	long nowhere;
	bool told;

	if (p->used || !p->writers || p->wr_served.number < 0 || p->rd_served.number < 0)
		return false;
	nowhere =
		plx_sys6(SYS_mmap, 0, PLX_PIPE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nowhere < 0 && nowhere > -4096)
		return false;
	told = unreadable_is_nothing((void *)nowhere);
	if (told)
		write_unreadable(p->wr_served.number, p->rd_served.number, (void *)nowhere);
	plx_sys2(SYS_munmap, nowhere, PLX_PIPE_PAGE);
	return told;
}

void plx_pipe_tell_writers(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	if (p->wr_served.number >= 0)
		plx_sys3(SYS_fcntl, p->wr_served.number, F_SETPIPE_SZ,
			 (long)p->capacity * PLX_PIPE_PAGE);
}
