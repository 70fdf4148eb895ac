/* SPDX-License-Identifier: MIT */
/*
 * syscall(): the second way into every family.
 *
 * A number that concerns us does what the libc function of that name does here, with
 * the kernel's own argument layout. Everything else goes on in libc's function. No call made
 * through syscall() is a cancellation point.
 *
 *   io_setup...     Linux AIO, see aio.c
 *   io_uring_*      see uring.c
 *   seccomp         see prctl in exec.c
 */
#include "preload/preload.h"
#include "aio/aio.h"
#include "base/inside.h"
#include "base/sys.h"
#include "epoll/engine.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* A seventh argument is where the caller may have none: AddressSanitizer guards what is there. */
static __attribute__((noinline, no_sanitize("address"))) long
last_argument(const struct plx_args *s)
{
	return s->f;
}

static long pass(const struct plx_args *s)
{
	return plx_real.syscall(s->nr, s->a, s->b, s->c, s->d, s->e, last_argument(s));
}

/* What becomes of a call. */
enum kind {
	OTHER,
	/* Gives a descriptor, as its result, where it is passed on to the kernel. */
	GIVES,
	/* Goes to libc's function of that name; if its first argument, or anything, may be ours. */
	NAMED,
	OF_FD,
	OF_ANY,
	/* May sleep, and has other arguments, or another end, than in libc. */
	SLEEPS,
};

/* clang-format off */
static const uint8_t kinds[] = {
#define KIND(name, kind) [SYS_##name] = (kind)
	KIND(openat, GIVES), KIND(openat2, GIVES), KIND(open_by_handle_at, GIVES),
	KIND(open_tree, GIVES), KIND(fsopen, GIVES), KIND(fspick, GIVES), KIND(fsmount, GIVES),
	KIND(mq_open, GIVES), KIND(memfd_create, GIVES), KIND(userfaultfd, GIVES),
	KIND(socket, GIVES), KIND(accept, GIVES), KIND(accept4, GIVES),
	KIND(pidfd_open, GIVES), KIND(pidfd_getfd, GIVES), KIND(perf_event_open, GIVES),
	KIND(epoll_create1, GIVES), KIND(eventfd2, GIVES), KIND(timerfd_create, GIVES),
	KIND(signalfd4, GIVES), KIND(inotify_init1, GIVES), KIND(fanotify_init, GIVES),
	KIND(close, OF_FD),
	KIND(timerfd_settime, OF_FD), KIND(timerfd_gettime, OF_FD),
	KIND(dup, OF_ANY), KIND(dup3, OF_ANY),
	KIND(pipe2, NAMED), KIND(socketpair, NAMED), KIND(mremap, NAMED),
	KIND(unshare, NAMED), KIND(setns, NAMED),
	KIND(ppoll, SLEEPS), KIND(pselect6, SLEEPS),
	KIND(epoll_pwait, SLEEPS), KIND(epoll_pwait2, SLEEPS),
#ifdef SYS_open
	KIND(open, GIVES), KIND(creat, GIVES), KIND(epoll_create, GIVES),
	KIND(eventfd, GIVES), KIND(signalfd, GIVES), KIND(inotify_init, GIVES),
	KIND(dup2, OF_ANY), KIND(poll, SLEEPS), KIND(select, SLEEPS), KIND(epoll_wait, SLEEPS),
	KIND(pipe, NAMED),
#endif
#undef KIND
};
/* clang-format on */

static enum kind kind_of(const struct plx_args *s)
{
	if (s->nr == SYS_fcntl && (s->b == F_DUPFD || s->b == F_DUPFD_CLOEXEC))
		return GIVES;
	return (unsigned long)s->nr < sizeof(kinds) ? kinds[s->nr] : OTHER;
}

static long do_epoll_wait(const struct plx_args *s)
{
	bool has_mask = s->nr == SYS_epoll_pwait || s->nr == SYS_epoll_pwait2;
	const sigset_t *mask = has_mask ? (const sigset_t *)s->e : NULL;
	struct epoll_event *ev = (struct epoll_event *)s->b;
	long r;

	if (!plx_fd_ours((int)s->a) || (mask && last_argument(s) != 8))
		return PLX_PASS;
	if (s->nr == SYS_epoll_pwait2)
		r = plx_epoll_wait_ts((int)s->a, ev, (int)s->c, (struct timespec *)s->d, mask);
	else
		r = plx_epoll_wait_ms((int)s->a, ev, (int)s->c, (int)s->d, mask);
	return r == -1 ? -errno : r;
}

static long serve_sleeping(const struct plx_args *s)
{
	switch (s->nr) {
	/* The kernel says how much of the time is left of a ppoll. */
	case SYS_ppoll:
#ifdef SYS_poll
	case SYS_poll:
#endif
		plx_px_poll_leaves((struct pollfd *)s->a, (unsigned int)s->b);
		return PLX_PASS;
	case SYS_pselect6:
#ifdef SYS_select
	case SYS_select:
#endif
		plx_px_select((int)s->a, (fd_set *)s->b, (fd_set *)s->c, (fd_set *)s->d);
		return PLX_PASS;
	default:
		return do_epoll_wait(s);
	}
}

static __attribute__((noinline)) long sleeping(const struct plx_args *s)
{
	int state;
	long r;

	if (plx_note_waits() && !plx_vfork_child())
		PLX_COLD_SLEEPS(plx_sys6(s->nr, s->a, s->b, s->c, s->d, s->e, last_argument(s)),
				.what = PLX_COLD_SLEEP);
	if (!plx_any())
		return PLX_PASS;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	r = serve_sleeping(s);
	pthread_setcancelstate(state, NULL);
	return r;
}

static bool concerns_us(int fd)
{
	return (plx_fd_ours(fd) || plx_cold_noted(fd)) && !plx_vfork_child();
}

static long call_libc(const struct plx_args *s)
{
	int fd = (int)s->a;

	switch (s->nr) {
	case SYS_dup:
		return dup(fd);
	case SYS_close:
		return close(fd);
	case SYS_epoll_ctl:
		return epoll_ctl(fd, (int)s->b, (int)s->c, (struct epoll_event *)s->d);
	case SYS_timerfd_settime:
		return timerfd_settime(fd, (int)s->b, (const struct itimerspec *)s->c,
				       (struct itimerspec *)s->d);
	case SYS_timerfd_gettime:
		return timerfd_gettime(fd, (struct itimerspec *)s->b);
#ifdef SYS_poll
	case SYS_dup2:
		return dup2(fd, (int)s->b);
	case SYS_pipe:
		return pipe((int *)s->a);
#endif
	case SYS_dup3:
		return dup3(fd, (int)s->b, (int)s->c);
	case SYS_pipe2:
		return pipe2((int *)s->a, (int)s->b);
	case SYS_socketpair:
		return socketpair((int)s->a, (int)s->b, (int)s->c, (int *)s->d);
	case SYS_mremap:
		return (long)mremap((void *)s->a, s->b, s->c, (int)s->d, (void *)s->e);
	case SYS_setns:
		return setns((int)s->a, (int)s->b);
	default:
		return unshare((int)s->a);
	}
}

/* What libc's function of that name does, of those that do not sleep. */
static __attribute__((noinline)) long by_name(const struct plx_args *s)
{
	int state;
	long r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	r = call_libc(s);
	pthread_setcancelstate(state, NULL);
	return r < 0 ? -errno : r;
}

static __attribute__((noinline)) long do_rw(const struct plx_args *s)
{
	int state;
	long r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (s->nr == SYS_read)
		r = plx_px_read((int)s->a, (void *)s->b, s->c);
	else
		r = plx_px_write((int)s->a, (const void *)s->b, s->c);
	pthread_setcancelstate(state, NULL);
	return r;
}

static long do_send(const struct plx_args *s)
{
	PLX_COLD_CHANGES(s->nr == SYS_sendmsg
				 ? plx_cold_sent(plx_sys3(s->nr, s->a, s->b, s->c), (void *)s->b)
				 : plx_cold_sent_many((int)plx_sys4(s->nr, s->a, s->b, s->c, s->d),
						      (void *)s->b));
	if (!plx_any())
		return PLX_PASS;
	if (s->nr == SYS_sendmsg)
		plx_escape_message((const struct msghdr *)s->b);
	else
		plx_escape_messages((const struct mmsghdr *)s->b, s->c);
	return PLX_PASS;
}

/* Calls that do not return twice. */
static long serve(const struct plx_args *s)
{
	switch (s->nr) {
	case SYS_epoll_ctl:
		return concerns_us((int)s->a) || concerns_us((int)s->c) ? by_name(s) : PLX_PASS;
	case SYS_read:
	case SYS_write:
		plx_note_leaves((int)s->a);
		return plx_ours(s->a) ? do_rw(s) : PLX_PASS;
	case SYS_ioctl:
		return plx_serve_ioctl((int)s->a, (unsigned int)s->b, (void *)s->c);
	case SYS_sendmsg:
	case SYS_sendmmsg:
		return do_send(s);
	case SYS_prctl:
		plx_before_prctl((int)s->a, (unsigned long)s->b, (const void *)s->c);
		return PLX_PASS;
	case SYS_readv:
	case SYS_writev:
	case SYS_preadv2:
	case SYS_pwritev2:
		plx_note_leaves((int)s->a);
		if ((s->nr == SYS_readv || s->nr == SYS_writev || s->d == -1) &&
		    plx_ours((int)s->a))
			plx_vector((int)s->a);
		return PLX_PASS;
	case SYS_epoll_create1:
		return plx_may_adopt() ? plx_px_epoll_create1(s->a) : PLX_PASS;
	case SYS_timerfd_create:
		return plx_may_adopt() ? plx_px_timerfd_create(s->a, s->b) : PLX_PASS;
	case SYS_eventfd2:
		return plx_may_adopt() ? plx_px_eventfd(s->a, s->b) : PLX_PASS;
#ifdef SYS_epoll_create
	case SYS_epoll_create:
		return (int)s->a > 0 && plx_may_adopt() ? plx_px_epoll_create1(0) : PLX_PASS;
	case SYS_eventfd:
		return plx_may_adopt() ? plx_px_eventfd(s->a, 0) : PLX_PASS;
	case SYS_open:
		plx_path_check((const char *)s->a);
		return PLX_PASS;
#endif
	case SYS_close_range:
		plx_note_range(s->a, s->b, s->c);
		return plx_any() ? plx_px_close_range(s->a, s->b, s->c) : PLX_PASS;
	case SYS_fcntl:
		if (s->b != F_GETFL && s->b != F_GETFD)
			plx_note_leaves((int)s->a);
		return plx_ours(s->a) ? plx_px_fcntl(s->a, s->b, s->c) : PLX_PASS;
	case SYS_pidfd_getfd:
		plx_escape_if_ours(s->b, PLX_OUT_SYSCALL);
		return PLX_PASS;
	case SYS_openat:
	case SYS_openat2:
		plx_path_check((const char *)s->b);
		return PLX_PASS;
	case SYS_rt_sigaction:
		return plx_guard_raw_sigaction(s->a, (const void *)s->b, (void *)s->c, s->d);
	case SYS_seccomp:
		/* What it is to do is the mode of prctl less one. */
		plx_sandbox((unsigned int)s->a + 1ul, (const void *)s->c);
		return PLX_PASS;
	default:
		return PLX_PASS;
	}
}

/*
 * Of a ring that is followed, with the n requests that have been looked at. The kernel does not
 * wait if it gets fewer than it is told of. Where it may wait for more than these it is asked to by
 * a call of its own: the program may write to their places as soon as they have been taken.
 */
static long enter_ring(const struct plx_args *s, struct ring *ring, uint32_t n)
{
	bool waits = n == (uint32_t)s->b && (s->d & IORING_ENTER_GETEVENTS);
	bool apart = waits && (uint32_t)s->c > n;
	int saved = errno;
	long r;

	r = plx_real.syscall(s->nr, s->a, (long)n, apart ? 0l : s->c,
			     waits && !apart ? s->d : s->d & ~IORING_ENTER_GETEVENTS, s->e,
			     last_argument(s));
	plx_uring_left(ring, n);
	if (apart && r == n) {
		plx_real.syscall(s->nr, s->a, 0l, s->c, s->d, s->e, last_argument(s));
		errno = saved;
	}
	return r;
}

static __attribute__((noinline)) long do_uring(const struct plx_args *s)
{
	uint32_t n = (uint32_t)s->b;
	struct ring *ring = NULL;
	int saved = errno;
	long r;

	if (s->nr == SYS_io_uring_enter)
		ring = plx_uring_enter((int)s->a, &n, (unsigned int)s->d);
	else if (s->nr == SYS_io_uring_register)
		plx_uring();
	errno = saved;
	r = ring ? enter_ring(s, ring, n) : pass(s);
	if (s->nr == SYS_io_uring_setup && r >= 0) {
		plx_given((int)r);
		plx_uring_made((int)r, (const void *)s->b);
		errno = saved;
	}
	return r;
}

/* For a copy that nobody answers a fault in, as the process is not prepared. */
static bool readable(long at, size_t n)
{
	return plx_load(&plx_active) ||
	       (plx_word_readable((uintptr_t)at) && plx_word_readable((uintptr_t)at + n - 8));
}

/* Whether a clone is like a fork, and stays on this stack. Otherwise the entry makes it by a jump.
 */
static __attribute__((noinline)) bool clone_forks(const struct plx_args *s)
{
	unsigned long flags = s->a;
	bool own_stack = s->b;
	int saved = errno;
	bool forks;

	/* As plx_clone_forks, and before anything is copied: nobody may answer a fault. */
	if (plx_vfork_child())
		return false;
	if (s->nr == SYS_clone3) {
		struct clone_args args = {0};

		if (s->b < CLONE_ARGS_SIZE_VER0 || !readable(s->a, CLONE_ARGS_SIZE_VER0) ||
		    plx_copy_in(&args, (const void *)s->a, CLONE_ARGS_SIZE_VER0))
			return false;
		flags = args.flags;
		own_stack = args.stack;
	}
	forks = plx_clone_forks(flags);
	if (forks && own_stack) {
		/* The child does not come back to us: it must have nothing of ours. */
		plx_stop_adopting(PLX_OUT_CLONE);
		forks = false;
	}
	errno = saved;
	return forks;
}

static __attribute__((noinline)) long do_fork(const struct plx_args *s)
{
	struct clone_args args = {0};
	long pid;

	if (s->nr == SYS_clone3)
		plx_copy_in(&args, (const void *)s->a, CLONE_ARGS_SIZE_VER0);
	plx_fork_prepare();
	pid = pass(s);
	plx_fork_done(pid == 0);
	if (pid == 0 && (args.flags & CLONE_CLEAR_SIGHAND))
		plx_guard_after_fork(true);
	return pid;
}

static __attribute__((noinline)) long do_exec(const struct plx_args *s)
{
	struct plx_execution x = {.dir = AT_FDCWD, .path = (const char *)s->a};
	struct plx_args with = *s;
	long *envp = &with.c;
	struct plx_needless n;

	if (s->nr == SYS_execveat) {
		x.dir = (int)s->a;
		x.path = (const char *)s->b;
		x.flags = (int)s->e;
		envp = &with.d;
	}
	bool beside = plx_before_exec();
	char *room[plx_needless(&n, &x, (char *const *)*envp)];
	long r;

	*envp = (long)plx_needless_env(&n, room);
	r = pass(&with);
	plx_after_start(&beside);
	return r;
}

static struct plx_outcome done(long result)
{
	return (struct plx_outcome){.result = result};
}

static struct plx_outcome jump(void)
{
	return (struct plx_outcome){.next = (void *)plx_load(&plx_real.syscall)};
}

static __attribute__((noinline)) struct plx_outcome enter(const struct plx_args *s)
{
	int saved = errno;
	enum kind kind = kind_of(s);
	long r;

	if (kind == NAMED)
		r = by_name(s);
	else if (kind == OF_FD)
		r = concerns_us((int)s->a) ? by_name(s) : PLX_PASS;
	else if (kind == OF_ANY)
		r = (plx_any() || plx_cold_any()) && !plx_vfork_child() ? by_name(s) : PLX_PASS;
	else
		r = kind == SLEEPS ? sleeping(s) : serve(s);
	errno = saved;
	if (r != PLX_PASS)
		return done(plx_result(r));
	return kind == GIVES ? done(plx_given((int)pass(s))) : jump();
}

__attribute__((used, visibility("hidden"))) struct plx_outcome
plx_syscall(const struct plx_args *s);
/* What is rare is not part of it, or each call would need more stack. */
struct plx_outcome plx_syscall(const struct plx_args *s)
{
	switch (s->nr) {
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
	case SYS_io_uring_register:
		return done(do_uring(s));
	case SYS_close:
		plx_uring_closes((int)s->a);
		return enter(s);
#ifdef SYS_dup2
	case SYS_dup2:
#endif
	case SYS_dup3:
		plx_uring_closes((int)s->b);
		return enter(s);
	case SYS_munmap:
		if (plx_unlikely(plx_load(&plx_uring_followed)))
			plx_urings_unmapped((const void *)s->a, (size_t)s->b);
		break;
	case SYS_io_setup:
	case SYS_io_destroy:
	case SYS_io_submit:
	case SYS_io_cancel:
	case SYS_io_getevents:
	case SYS_io_pgetevents:
		return done(plx_result(
			plx_aio_call(s->nr, s->a, s->b, s->c, s->d, s->e, last_argument(s))));
#ifdef SYS_fork
	case SYS_fork:
		if (plx_vfork_child())
			break;
		return done(do_fork(s));
	case SYS_vfork:
		plx_vfork_enter();
		break;
#endif
	case SYS_clone:
	case SYS_clone3:
		if (!clone_forks(s))
			break;
		return done(do_fork(s));
	case SYS_execve:
	case SYS_execveat:
		return done(do_exec(s));
	default:
		return enter(s);
	}
	return jump();
}

PLX_ENTRY(syscall, plx_syscall);
