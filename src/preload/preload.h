/* SPDX-License-Identifier: MIT */
/*
 * Common to the families of interposed names.
 *
 * The rule for all of them: a call that concerns no descriptor of ours is a tail
 * call of the real function, after one look at the table. A call that does goes to
 * the POSIX layer; what that passes back (PLX_PASS) takes the real function, too.
 * Arguments that the kernel refuses before it looks at a descriptor are passed on
 * without more ado: the number is a real descriptor, so the kernel's own checks, in
 * its own order, give the right error.
 *
 * The child of a vfork lives in our memory with descriptors of its own. What the
 * table says is not true of it, so everything it calls goes to the real function.
 */
#pragma once

/* Otherwise the headers rename open to open64 and so on; both are defined here. */
#undef _FILE_OFFSET_BITS

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>

#include "aio/aio.h"
#include "base/clock.h"
#include "base/sys.h"
#include "cache/cold.h"
#include "cache/posix.h"
#include "cache/uaccess.h"
#include "preload/real.h"

#define PLX_EXPORT __attribute__((visibility("default")))

/* A second name of a function of the same file. */
#define PLX_ALIAS(name, target)                                                                    \
	PLX_EXPORT extern __typeof__(target) name __attribute__((alias(#target)))

#if !defined(__clang__)
/* The alias need not repeat the nonnull and nothrow of the header's declaration. */
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

/* Set for good by the first vfork or sandbox and the first pthread_cancel: one look for both. */
#define PLX_USED_VFORK 1u
#define PLX_USED_CANCEL 2u
extern uint32_t plx_used;

bool plx_vfork_child_check(void);
bool plx_vfork_child_only(void);

/* The child of a vfork, or a process in a sandbox of its own (signal.c): all calls are libc's. */
static inline bool plx_vfork_child(void)
{
	return plx_unlikely(plx_load(&plx_used) & PLX_USED_VFORK) && plx_vfork_child_check();
}

/* fd is in the table, and the table speaks of this process. */
static inline bool plx_ours(int fd)
{
	return plx_fd_ours(fd) && !plx_vfork_child();
}

/* Set when the first object is about to be adopted; before that nothing can be ours. */
extern uint32_t plx_active;

static inline bool plx_any(void)
{
	return plx_unlikely(plx_load(&plx_active)) && !plx_vfork_child();
}

/* Before an object is created that is cached from then on: true if it may be adopted at all. */
bool plx_activate(void);
/*
 * Something is about to be cached: handlers of ours before the program's, RCU, entries in the table
 * for what has been noted. False if that cannot be: then nothing is.
 */
bool plx_prepare(void);
/* What our constructor does, for those who come before it. */
void plx_start(void);
/* Ends adoption of descriptors in a program that calls the kernel by itself (inline.c). */
void plx_inline_look(void);

static inline bool plx_may_adopt(void)
{
	if (plx_vfork_child())
		return false;
	/* What may become hot is noted. But statistics tell of all objects. */
	return plx_likely(plx_load_acq(&plx_active)) ||
	       ((plx_adopts != PLX_ADOPTS_HOT || plx_stats_wanted) && plx_activate());
}

/*
 * Before the table is looked at: fd is closed, for certain, or an epoll would watch what is noted
 * still; it is about to be used in an unusual way, or closed, perhaps.
 */
static inline void plx_note_closes(int fd)
{
	if (plx_cold_noted(fd) && !plx_vfork_child())
		plx_cold_closes(fd);
}

static inline void plx_note_leaves(int fd)
{
	if (plx_cold_noted(fd) && !plx_vfork_child())
		plx_cold_leaves(fd);
}

/* fd has been made in a process that may not be prepared. */
static inline int plx_note_made(int fd, uint32_t kind, struct plx_cold_since since)
{
	if (fd < 0 || plx_load_acq(&plx_active) || plx_vfork_child())
		return fd;
	return plx_cold_made(fd, kind, since);
}

/* The program waits: something may be hot. */
void plx_note_waits_slow(void);
static inline bool plx_note_waits(void)
{
	if (!plx_cold_any())
		return false;
	if (plx_unlikely(plx_load(&plx_cold_wanted) == 1))
		plx_note_waits_slow();
	return true;
}

/* rw.c: before readv, writev and their like on fd, which is in the table. */
void plx_vector(int fd);
/* fd.c: before close_range, which may also give the caller a table of its own. */
void plx_note_range(unsigned int first, unsigned int last, unsigned int flags);
/* The system call, as it is made by syscall(): its result or PLX_PASS. */
long plx_serve_ioctl(int fd, unsigned long req, void *arg);

/* Adoption ends for good: the descriptor table is about to be split or watched. */
void plx_stop_adopting(enum plx_way_out why);
/* The same for all but contexts of AIO, which are no descriptors. */
void plx_stop_adopting_descriptors(enum plx_way_out why);
/* That is over. */
extern uint32_t plx_descriptors_out;
/*
 * The process is about to forbid itself system calls, ours perhaps among them; the arguments of
 * prctl's PR_SET_SECCOMP. Those that forbid nothing are told apart.
 */
void plx_sandbox(unsigned long mode, const void *filter);
/* exec.c */
void plx_before_prctl(int op, unsigned long a, const void *b);

/*
 * A filter at NULL is how programs ask what the kernel takes: it is refused by EINVAL, or else by
 * EFAULT, since nobody has the first page.
 */
static inline bool plx_confines(unsigned long mode, const void *filter)
{
	return mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && filter);
}

/* A close_range that the kernel accepts, and that gives the caller a table of its own. */
static inline bool plx_unshares(unsigned int first, unsigned int last, unsigned int flags)
{
	return (flags & CLOSE_RANGE_UNSHARE) && first <= last &&
	       !(flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC));
}

/*
 * After a call that has given the program a number, fd, which is not ours, or -1: what stands in
 * the table for it was closed past us. No errno is lost.
 */
void plx_given_slow(int fd);

static inline int plx_given(int fd)
{
	plx_aio_forget(fd);
	if (plx_unlikely(plx_fd_ours(fd) || plx_cold_noted(fd)))
		plx_given_slow(fd);
	return fd;
}

static inline void plx_escape_if_ours(int fd, enum plx_way_out why)
{
	plx_note_leaves(fd);
	if (plx_ours(fd))
		plx_px_escape(fd, why);
}

static inline void plx_cancel_point(void)
{
	if (plx_unlikely(plx_load(&plx_used) & PLX_USED_CANCEL))
		pthread_testcancel();
}

/*
 * A call that does not sleep, where nothing is rare: the caller, for plx_cold_say and
 * PLX_COLD_LOOK; or NULL. libc's function would only make the system call. After that each return
 * is one that the CPU has not foreseen, which costs as much as all the rest.
 */
static inline struct plx_cold_thread *plx_cold_looks(void)
{
	struct plx_cold_thread *t = plx_cold_mine;

	return plx_likely(t && !plx_load(&t->call.what) && plx_load(&plx_cold_wanted) != 1 &&
			  !plx_load(&plx_used))
		       ? t
		       : NULL;
}
long plx_cold_failed(long r);
/* Returns the result of the system call, unless the process is prepared. */
#define PLX_COLD_LOOK(t, made)                                                                     \
	do {                                                                                       \
		long r_ = PLX_PASS;                                                                \
		if (plx_cold_any())                                                                \
			r_ = (made);                                                               \
		plx_store_rel(&(t)->call.what, 0);                                                 \
		if (plx_likely(r_ >= 0))                                                           \
			return (int)r_;                                                            \
		if (r_ != PLX_PASS)                                                                \
			return (int)plx_cold_failed(r_);                                           \
	} while (0)

/* As plx_result, for calls on the way of which errno may have been touched. */
static inline long plx_result_saved(long r, int saved)
{
	errno = r < 0 ? (int)-r : saved;
	return r < 0 ? -1 : r;
}

/* Returns the result of a call of ours, unless it is one for libc. */
#define PLX_SERVED(call)                                                                           \
	do {                                                                                       \
		int saved_ = errno;                                                                \
		long r_ = (call);                                                                  \
                                                                                                   \
		if (r_ != PLX_PASS)                                                                \
			return plx_result_saved(r_, saved_);                                       \
		errno = saved_;                                                                    \
	} while (0)

/* --- what several files share ----------------------------------------------------------- */

/* A path that shows or hands over descriptors by number (path.c). */
void plx_path_check_slow(const char *path);
/* The number that is the last part of the program's string, or -1. */
int plx_path_number(const char *path);

static inline void plx_path_check(const char *path)
{
	if (plx_any())
		plx_path_check_slow(path);
}

/* signal.c: puts our handlers in front of the program's behind its back, once. */
void plx_guard_install(void);
/* SIGUSR2 prints statistics, as long as the program leaves it to its default. */
void plx_guard_statistics(void);
/* From now on handlers of the program run whatever they interrupt, and all calls are libc's. */
void plx_guard_keep_none(void);
bool plx_guard_keeps_none(void);
/* In the child of a fork; cleared: its signals have been reset to their defaults. */
void plx_guard_after_fork(bool cleared);
/* rt_sigaction with the kernel's own structure: 0, a negative errno, or PLX_PASS. */
long plx_guard_raw_sigaction(int sig, const void *act, void *old, size_t size);

/* unwind.c: before a thread is unwound, which needs what the C library loads by itself. */
void plx_unwind_find(void);

/* fork.c */
/* Before a clone with these flags: whether plx_fork_* have to stand around it. */
bool plx_clone_forks(unsigned long flags);
/* The process numbers of children may be those of another space from now on. */
void plx_pid_space(void);
/* In our constructor: the atfork handlers of ours. */
void plx_fork_register(void);
void plx_fork_prepare(void);
/* In both processes, with fork's result; errno is left as it is. */
void plx_fork_done(bool child);
/* Before a vfork; returns the real one. */
void *plx_vfork_enter(void);

/* epoll.c: PLX_PASS, or the result with errno set. */
long plx_epoll_wait_ts(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		       const sigset_t *mask);
long plx_epoll_wait_ms(int epfd, struct epoll_event *ev, int max, int timeout,
		       const sigset_t *mask);

/* aio.c */
/* A system call of the AIO family, ours or the kernel's: its result or a negative errno. */
long plx_aio_call(long nr, long a, long b, long c, long d, long e, long f);
long plx_aio_call_submit(aio_context_t ctx, long nr, struct iocb **iocbs);
long plx_aio_call_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			    const struct timespec *timeout);

/* stdio.c: what has made a stream, or NULL, returns through this. */
FILE *plx_stream_begins(FILE *f);

/*
 * inherit.c: before another program takes the place of this one, or is started beside it; what they
 * return is for the end of that, if it comes.
 */
#ifdef PLX_STARTER
static inline bool plx_before_exec(void)
{
	return false;
}

static inline bool plx_before_spawn(bool actions)
{
	(void)actions;
	return false;
}

static inline void plx_after_start(const bool *beside)
{
	(void)beside;
}
#else
bool plx_before_exec(void);
bool plx_before_spawn(bool actions);
void plx_after_start(const bool *beside);
/* fork.c: the child of the caller's vfork is there, or there was none. */
void plx_vfork_over(void);
#endif

/*
 * needless.c: programs that are started without us, as they have no use for us, or with the library
 * for those that only start others. Both libraries, and `pollux run`, judge so.
 */
struct plx_execution {
	/* As for execveat; or a file that is searched as by execvp. */
	int dir;
	const char *path;
	int flags;
	bool search;
	/* A relative path may start from another folder than this process's. */
	bool elsewhere;
	/* The program does not take the place of this one, and of its threads. */
	bool beside;
};

/* What a program is to be loaded with. */
enum plx_load {
	PLX_LOAD_WHOLE,
	PLX_LOAD_STARTER,
	PLX_LOAD_NOTHING,
};

#define PLX_PRELOAD_MAX 256

/* What plx_needless has found, until the call is made. */
struct plx_needless {
	char *const *envp;
	enum plx_load load;
	bool library_path, others, whole, beside;
	/* Of LD_PRELOAD in envp, and the number of variables. */
	uint32_t at, count;
	/* The variable as the program gets it; at first without our entry. */
	char preload[PLX_PRELOAD_MAX];
};

/*
 * Whether the eight bytes that are there can be read, without a fault. The kernel reads the mask
 * before it looks at what is to be done with it, which is nothing: EINVAL, or EFAULT.
 */
static inline bool plx_word_readable(uintptr_t at)
{
	return plx_sys4(SYS_rt_sigprocmask, -1, at, 0, 8) == -EINVAL;
}

/*
 * The same of a string, to its end or for 4096 bytes. The kernel copies a name before it finds that
 * there is no folder to look in. (One that begins with a slash it looks for.) No byte is read that
 * is not the string's: valgrind would report it.
 */
static inline bool plx_string_readable(uintptr_t at)
{
	struct stat unused;

	return plx_sys4(SYS_newfstatat, -1, at, &unused, 0) != -EFAULT;
}

/* Before all others: the path by which the loader has loaded the drop-in, or would; it stays. */
void plx_needless_begin(const char *dropin);
/* Looks at what is to be executed; says how many pointers plx_needless_env needs room for. */
uint32_t plx_needless(struct plx_needless *n, const struct plx_execution *x, char *const *envp);
/* The environment for it: the program's array, which is never changed, or `room`. */
char *const *plx_needless_env(struct plx_needless *n, char **room);
/* Parent and child shall remember the same verdicts. */
void plx_needless_before_fork(void);
/* System calls may be forbidden from now on. */
void plx_needless_never(void);
/* The process has one thread, whoever has made it. */
bool plx_one_thread(void);

/* liburing.c: a ring of io_uring has been made, or is about to be used. errno may change. */
void plx_uring(void);
/*
 * uring.c; errno may change. After a setup that gave fd, with the program's parameters. Before an
 * enter with *n requests, of which so many as are there by then are to be handed over; and after
 * it, with what the first has returned. A number of a ring is closed.
 */
void plx_uring_made(int fd, const void *params);
struct ring *plx_uring_enter(int fd, uint32_t *n, unsigned int flags);
void plx_uring_left(struct ring *r, uint32_t n);
void plx_uring_end(int fd);
void plx_urings_end(unsigned int first, unsigned int last);
void plx_urings_unmapped(const void *at, size_t size);
/* Those with higher numbers are not followed. */
#define PLX_URINGS 1024
/* inline.c; NULL before one has been followed: whether the ring that is mapped there is. */
extern bool (*plx_uring_followed)(uintptr_t at);
static inline void plx_uring_closes(int fd)
{
	if (plx_unlikely(plx_load(&plx_uring_followed)) && !plx_vfork_child())
		plx_uring_end(fd);
}

/* socket.c */
void plx_escape_message(const struct msghdr *m);
void plx_escape_messages(const struct mmsghdr *m, unsigned int n);
/* The same of what has been noted, after the call, of which r is the result, which they return. */
ssize_t plx_cold_sent(ssize_t r, const struct msghdr *m);
int plx_cold_sent_many(int r, const struct mmsghdr *m);
