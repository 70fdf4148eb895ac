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
#ifndef PLX_CACHE_POSIX_H
#define PLX_CACHE_POSIX_H

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
/* Before readv, writev and their like. */
long plx_px_vector(int fd);

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
/* PLX_PASS when no descriptor in the set is ours. timeout: as that of ppoll, not written back. */
long plx_px_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout);
/* What fd is ready for now of events, ERR and HUP; 0 if nothing, or if that is not so simple. */
uint16_t plx_px_ready(int fd, uint16_t events);
/* What a bare poll, or one with a mask, names is the kernel's from now on. */
void plx_px_poll_leaves(struct pollfd *fds, nfds_t n);
/* What the sets of a select name is the kernel's from now on. */
void plx_px_select(int n, const fd_set *r, const fd_set *w, const fd_set *e);

/* --- ways out (escape.c, fork.c) ------------------------------------------------------ */

/* Why an object left our sight; rows of the table in escape.c. */
enum plx_way_out {
	PLX_OUT_FORK,
	PLX_OUT_VFORK,
	PLX_OUT_CLONE,
	PLX_OUT_UNSHARE,
	PLX_OUT_EXEC,
	PLX_OUT_SPAWN,
	PLX_OUT_SCM_RIGHTS,
	PLX_OUT_VECTOR,
	PLX_OUT_DUP,
	PLX_OUT_CLOSED,
	PLX_OUT_STDIO,
	PLX_OUT_FCNTL,
	PLX_OUT_IOCTL,
	PLX_OUT_IOCTL_FDS,
	PLX_OUT_FDINFO,
	PLX_OUT_AIO,
	PLX_OUT_IO_URING,
	PLX_OUT_NESTED,
	PLX_OUT_FOREIGN_EPOLL,
	PLX_OUT_NO_FD,
	PLX_OUT_NUMBER,
	PLX_OUT_MASK,
	PLX_OUT_WATCHED,
	PLX_OUT_STRANGER,
	PLX_OUT_POLL,
	PLX_OUT_SELECT,
	PLX_OUT_SYSCALL,
	PLX_OUT_CANCEL,
	PLX_OUT_TIMER_DUP,
	PLX_OUT_TIMER_READ,
	PLX_OUT_TIMER_WATCHED,
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

/* In the child, first of all: true if there is nothing else to do. */
static inline bool plx_px_fork_child_empty(void)
{
	uint64_t s = plx_load(&plx_px_begun);

	if (s == PLX_BEGUN)
		return false;
	if (plx_unlikely(s & PLX_FORKED_BESIDE)) {
		plx_changes_after_fork_child();
		plx_and(&plx_px_begun, ~(uint64_t)PLX_FORKED_BESIDE);
	}
	return true;
}
/* The same after a quiet fork (fork.c). */
bool plx_px_fork_child_quiet(void);

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

#endif
