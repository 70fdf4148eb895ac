/* SPDX-License-Identifier: MIT */
/*
 * The POSIX layer: descriptors in front of the engine.
 *
 * Functions named plx_px_* take what the system call of that name takes and return
 * its result or a negative errno. PLX_PASS means that the call is not ours (no
 * longer ours, perhaps: the object may just have become a kernel object) and has
 * to go to libc or the kernel unchanged. Pointers of the program are only touched
 * through the guarded copies of uaccess.h.
 *
 * All of them are safe from any thread, and from signal handlers if somebody keeps
 * signals away from threads that are inside (base/inside.h). Without that, plx_px_read
 * and plx_px_write on a non-blocking eventfd are.
 */
#pragma once

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/sleep.h"
#include "cache/table.h"

#define PLX_PASS (-65536L)

/* What a function of libc's returns for it. */
static inline long plx_result(long r)
{
	if (plx_unlikely(r < 0)) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

/*
 * The blocking calls of the layer go through these, because they must be libc's
 * (cancellation points) and must not be our own replacements. The library sets
 * them to libc's functions, the drop-in to what dlsym(RTLD_NEXT) finds.
 */
struct plx_libc {
	int (*epoll_wait)(int, struct epoll_event *, int, int);
	int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
	int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *,
			    const sigset_t *);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	/* Not a call that blocks, but one that the run-time of a sanitizer is to see. */
	int (*close)(int);
};
extern struct plx_libc plx_libc;

/* Which kinds are served in process; bits of plx_px_no_adopt. */
#define PLX_ADOPT_EPOLL 1u
#define PLX_ADOPT_EVENTFD 2u
#define PLX_ADOPT_AIO 16u
#define PLX_ADOPT_TIMERFD 32u
#define PLX_ADOPT_INLINE 64u
extern uint32_t plx_px_no_adopt;
/*
 * What is adopted only on request: descriptors of a program that makes system calls by itself
 * (PLX_ADOPT_INLINE).
 */
extern uint32_t plx_px_adopt;

/*
 * When an eventfd is cached: from its creation; while it is written to often; or, for tests, at
 * every fourth call on it, by chance, until the next one.
 */
enum plx_adopts { PLX_ADOPTS_ALWAYS, PLX_ADOPTS_HOT, PLX_ADOPTS_RANDOM };
extern enum plx_adopts plx_adopts;
void plx_adopts_choose(const char *list);

/* Reads POLLUX_NO_ADOPT, POLLUX_ADOPT, POLLUX_SPIN and the kernel's limits. Idempotent. */
void plx_px_init(void);

/* --- epoll (epoll.c, wait.c) ------------------------------------------------------- */
long plx_px_epoll_create1(int flags);
long plx_px_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
/*
 * timeout NULL: for ever. has_mask: sigmask is to be installed for the wait.
 * timeout and sigmask are already copied from the program. Returns PLX_PASS only
 * if epfd is not ours.
 */
long plx_px_epoll_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		       const sigset_t *sigmask);
/* The same with a time of 0 and no mask, if it is quickly done; else the result of other. */
typedef int (*plx_look_t)(int epfd, struct epoll_event *ev, int max);
int plx_px_look(int epfd, struct epoll_event *ev, int max, plx_look_t other);

/* --- eventfd (eventfd.c) ------------------------------------------------------------- */
long plx_px_eventfd(unsigned int init, int flags);
long plx_px_read(int fd, void *buf, size_t n);
long plx_px_write(int fd, const void *buf, size_t n);

/* --- timerfd (timer.c) ----------------------------------------------------------------- */
long plx_px_timerfd_create(int clock, int flags);
long plx_px_timerfd_settime(int fd, int flags, const struct itimerspec *value,
			    struct itimerspec *old);
long plx_px_timerfd_gettime(int fd, struct itimerspec *value);

/* --- descriptors (fd.c) -------------------------------------------------------------- */
long plx_px_close(int fd);
/*
 * The kernel has just given the caller this number, for something that is not ours: what stands in
 * the table for it was closed past us.
 */
void plx_px_given(int fd);
long plx_px_close_range(unsigned int first, unsigned int last, unsigned int flags);
long plx_px_dup(int fd);
/* dup2 and dup3 (with flags -1: dup2). Also to be called when only newfd is ours. */
long plx_px_dup3(int oldfd, int newfd, int flags);
long plx_px_fcntl(int fd, int cmd, long arg);
long plx_px_ioctl(int fd, unsigned long req, void *arg);

/* --- poll and select (poll.c) ---------------------------------------------------------- */
/*
 * As poll, which sleeps by that call. A negative ms: no end. PLX_PASS when no descriptor in the set
 * is ours.
 */
long plx_px_poll(struct pollfd *fds, nfds_t n, int ms);
/* The same as ppoll without a mask. timeout is not written back. */
long plx_px_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout);
/* What fd is ready for now of events, ERR and HUP; 0 if nothing, or if that is not so simple. */
uint16_t plx_px_ready(int fd, uint16_t events);
/* What a bare poll, or one with a mask, names is the kernel's from now on. */
void plx_px_poll_leaves(struct pollfd *fds, nfds_t n);
/* What the sets of a select name is the kernel's from now on. */
void plx_px_select(int n, const fd_set *r, const fd_set *w, const fd_set *e);

/* --- ways out (escape.c, fork.c) ------------------------------------------------------ */

/* Why an object left our sight: the name for --stats, and what becomes the kernel's then. */
/* clang-format off */
#define PLX_WAYS_OUT(X) \
	X(FORK, "fork", "all objects; both sides go on with the kernel's") \
	X(VFORK, "vfork", "all objects; the child shares memory, not descriptors") \
	X(CLONE, "clone", "all objects, unless it makes a thread") \
	X(UNSHARE, "unshare", "all objects, also by setns; nothing is adopted afterwards") \
	X(EXEC, "exec", "objects with a descriptor that is not close-on-exec") \
	X(SPAWN, "spawn", "as exec, and what file actions have named") \
	X(SCM_RIGHTS, "scm_rights", "the objects whose descriptors are sent") \
	X(VECTOR, "vector", "the object, for reads and writes in several pieces") \
	X(DUP, "dup", "what gets a second number, but for epolls") \
	X(CLOSED, "closed", "an epoll that close_range closes") \
	X(STDIO, "stdio", "the object given to fdopen or dprintf, or at 0, 1 or 2") \
	X(FCNTL, "fcntl", "the object, for owners, signals, leases, locks, and for what is inherited from now on") \
	X(IOCTL, "ioctl", "a timer, for requests other than FIOCLEX and its like; what is inherited from now on") \
	X(IOCTL_FDS, "ioctl_fds", "all objects, for requests that may carry descriptors") \
	X(FDINFO, "fdinfo", "the object at N, where a file named N is opened") \
	X(AIO, "aio", "objects named by an iocb") \
	X(IO_URING, "io_uring", "all objects, and nothing is adopted afterwards") \
	X(NESTED, "nested", "both epolls and what they watch") \
	X(FOREIGN_EPOLL, "foreign_epoll", "an object added to an epoll that is not ours") \
	X(NO_FD, "no_fd", "what is watched where no doorbell is to be had, or the program takes its number") \
	X(NUMBER, "number", "an object, and its epoll, whose number changes hands") \
	X(MASK, "mask", "an object that is watched for more than input, or once, or exclusively") \
	X(WATCHED, "watched", "what a second epoll watches") \
	X(STRANGER, "stranger", "an eventfd that somebody writes to past us") \
	X(POLL, "poll", "an epoll or timer that is polled; all, with a mask or a bare call") \
	X(SELECT, "select", "what is named in a set of select") \
	X(SYSCALL, "syscall", "objects named by a raw call that we do not serve") \
	X(CANCEL, "cancel", "all objects, where threads may be cancelled at any moment") \
	X(TIMER_READ, "timer_read", "a timer that is read without O_NONBLOCK")
/* clang-format on */

enum plx_way_out {
#define PLX_OUT(id, name, what) PLX_OUT_##id,
	PLX_WAYS_OUT(PLX_OUT)
#undef PLX_OUT
		PLX_OUT_COUNT,
};

/* The object behind fd becomes a kernel object, for good. No effect on others. */
void plx_px_escape(int fd, enum plx_way_out why);
void plx_px_escape_pair(int fd, int other, enum plx_way_out why);
/* For --stats: n objects have left so. */
void plx_px_evicted(enum plx_way_out why, int n);
/* Everything that is served in process does. */
void plx_px_escape_all(enum plx_way_out why);
/* The same for good: nothing but contexts of AIO is adopted afterwards. */
void plx_px_ends(enum plx_way_out why);
/* Everything whose descriptor a new program gets does. */
void plx_px_escape_inherited(bool (*survives)(int fd), enum plx_way_out why);
/* By execve; by posix_spawn with file actions, which may name close-on-exec descriptors, too. */
bool plx_survives_exec(int fd);
bool plx_survives_spawn(int fd);
/* File actions duplicate fd, or open a file that shows it. */
void plx_px_named_in_actions(int fd);
/* Calls each with the descriptors in the SCM_RIGHTS messages of msg. */
void plx_px_passed(const struct msghdr *msg, void (*each)(int fd));
/* Every descriptor an iocb array of io_submit names does. */
void plx_px_escape_iocbs(long n, void *const *iocbs);
/* Whether this ioctl, on a descriptor that is not ours, may carry descriptors of ours. */
bool plx_px_ioctl_carries_fds(unsigned long req);

/*
 * Before anything of ours exists, on the way to the first object: false while a fork is on
 * its way that found nothing and therefore does nothing. What was to be made is the
 * kernel's then.
 */
#define PLX_BEGUN 1u
/* Some of those forks was made beside other threads. */
#define PLX_FORKED_BESIDE 2u
extern uint64_t plx_px_begun;
bool plx_px_begin_slow(void);

static inline bool plx_px_begin(void)
{
	return plx_likely(plx_load_acq(&plx_px_begun) == PLX_BEGUN) || plx_px_begin_slow();
}

/* The process has a seccomp filter: no system call that libc would not make. */
extern bool plx_px_filtered;

/* Around fork, in the thread that forks. prepare evicts everything. */
void plx_px_fork_prepare(void);
/* Changes before and after each fork: what is the same at two moments was the same between. */
extern uint32_t plx_px_forks;
/* Set for good when a thread is made that libc does not know of. */
extern uint32_t plx_px_raw_threads;

/* The process has no thread but this one. */
static inline bool plx_px_alone(void)
{
	return __libc_single_threaded && !plx_load(&plx_px_raw_threads);
}

/* FD_CLOEXEC is about to be taken off: whether a program that another thread starts may get fd. */
static inline bool plx_becomes_inherited(int fd)
{
	return !plx_px_alone() && !plx_survives_exec(fd);
}

/* fork does all this by itself: it is the drop-in's. */
extern bool plx_px_fork_known;
void plx_px_fork_parent(void);
/*
 * Neither allocates nor frees, so that it can be the first of the child's atfork handlers: an
 * allocator may hold its locks until its own has run.
 */
void plx_px_fork_child(void);

/* The native API's calls on descriptors come by here. */
void plx_epoll_init(void);
/* The key by which wait.c hears of the ends of threads. */
void plx_wait_init(void);

/* --- statistics ------------------------------------------------------------------------ */
static inline void plx_px_count(enum plx_stat what)
{
	plx_stat_add(what, 1);
}

/*
 * Prints what this process served, what went to the kernel and what evicted, to standard error, if
 * descriptor 2 is still what it was at the start. nothing_too: also when there was nothing.
 */
void plx_px_stats_begin(void);
void plx_px_stats_print(bool nothing_too);
/* From here on system calls may be forbidden: what descriptor 2 is now counts. */
void plx_px_stats_sandbox(void);
int plx_px_fd_served(int fd);
