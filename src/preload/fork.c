/* SPDX-License-Identifier: MIT */
/*
 * fork, _Fork                    everything escapes, then the real call with the layer's
 *                                hooks around it
 * vfork                          everything escapes; the child runs past us
 * clone                          without CLONE_VM like fork; like vfork if it is one;
 *                                sharing memory but not descriptors: everything escapes and
 *                                adoption ends; threads pass
 * unshare                        with CLONE_FILES: everything escapes and adoption ends
 * setns                          the same with CLONE_NEWTIME: noted times are of another clock
 * __register_atfork              (pthread_atfork is in the program) ours before any other
 */
#include "preload/preload.h"

#include <sched.h>
#include <stdarg.h>

#include "aio/aio.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "epoll/engine.h"

/* The process whose thread called vfork and has not been seen to return; else 0. */
static __thread pid_t vfork_parent;
/* What robust_list was then, if it is to be asked again. */
static __thread void *vfork_robust;
/* The next child may be in another space of process numbers. */
static uint32_t pid_spaces;

void plx_pid_space(void)
{
	plx_store(&pid_spaces, 1);
}

/* Where the kernel looks for the robust mutexes of the thread. The child of a vfork has none. */
static void *robust_list(void)
{
	void *list = NULL;
	size_t size;

	plx_sys3(SYS_get_robust_list, 0, &list, &size);
	return list;
}

/*
 * The thread that called vfork runs on once the child is gone, in the same memory,
 * so only the process number tells who is asking. In another space of such numbers a child may have
 * that of its parent; then what the kernel does not hand on tells.
 */
bool plx_vfork_child_only(void)
{
	if (!vfork_parent)
		return false;
	if (plx_sys0(SYS_getpid) != vfork_parent || (vfork_robust && robust_list() != vfork_robust))
		return true;
	vfork_parent = 0;
	return false;
}

bool plx_vfork_child_check(void)
{
	return plx_guard_keeps_none() || plx_vfork_child_only();
}

void plx_fork_prepare(void)
{
	plx_aio_before_fork();
	plx_px_fork_prepare();
}

/*
 * Beside other threads a vfork is a change, as the start of a program is (inherit.c). It returns
 * twice, and we do not see that: the change ends when the child, which has our memory, executes a
 * program or ends, or with the next start of the thread. Should none come nothing more is adopted.
 */
static __thread bool vfork_beside;

static PLX_CHILD_CODE void begin_child(void)
{
	/* In a sandbox nothing comes of it. */
	if (!plx_guard_keeps_none())
		plx_cold_born();
	plx_guard_after_fork(false);
	if (plx_unlikely(vfork_beside))
		vfork_beside = false;
	plx_px_fork_child();
}

void plx_fork_done(bool child)
{
	int saved;

	if (child) {
		begin_child();
		return;
	}
	saved = errno;
	plx_px_fork_parent();
	/* A page that is not written need not be copied. */
	if (errno != saved)
		errno = saved;
}

static pid_t fork_with(pid_t (*real)(void))
{
	pid_t pid;

	plx_fork_prepare();
	pid = real();
	plx_fork_done(pid == 0);
	return pid;
}

/*
 * libc runs the program's atfork handlers inside fork, and they may use what is ours. So objects
 * escape, and locks are taken and given back, in handlers of our own, also where libc forks by
 * itself (daemon, forkpty). They are the first that libc is given, so they run last before the fork
 * and first after it: our constructor registers them, and so does who comes before it, the
 * constructor of a library that the program is linked with.
 *
 * They are for libc's fork alone. pthread_atfork looks for __register_atfork by its name, and
 * Firefox has one of its own, whose handlers it runs itself before it calls clone, which takes the
 * locks as well. So ours go to the next after us. This library stays until the end: no object is
 * named whose end would take them away.
 */
static PLX_START_PAGE bool handlers;
/* The fork is none of ours: the thread is inside between the first and the other two. */
static __thread bool forks_beside;

static void at_prepare(void)
{
	bool beside = plx_vfork_child();

	if (!beside)
		plx_fork_prepare();
	/* Now: until signals are kept away a handler may fork in between. */
	if (forks_beside != beside)
		forks_beside = beside;
}

static void at_parent(void)
{
	if (!forks_beside)
		plx_fork_done(false);
}

static PLX_CHILD_CODE void at_child(void)
{
	if (!forks_beside)
		begin_child();
}

PLX_START_CODE void plx_fork_register(void)
{
	if (plx_px_fork_known)
		return;
	plx_px_fork_known = true;
#if PLX_MEM_OF_LIBC
	plx_mem_forks_known = true;
#endif
	handlers = plx_real.__register_atfork(at_prepare, at_parent, at_child, NULL) == 0;
}

/*
 * ThreadSanitizer's run-time registers before everybody else. What its handler takes before a fork
 * every other thread needs at its next step, whatever it holds by then. So ours, which wait for the
 * others, have to run before it: they come second. (Instrumented code cannot run that early, of
 * which this would be.)
 */
#ifndef PLX_TSAN
static PLX_START_PAGE bool tsan_has;

PLX_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
				 void *object)
{
	if (plx_tsan_here() && !tsan_has)
		tsan_has = true;
	else
		plx_fork_register();
	return plx_real.__register_atfork(prepare, parent, child, object);
}
#endif

/*
 * A child would look up what it calls in pages that it then has to copy. Who forks for the second
 * time, like a server with a process for each client, does it for all children to come.
 */
static void names_before_fork(void)
{
	static PLX_START_PAGE uint32_t forks;

	if (plx_load(&forks) < 2 && plx_xadd(&forks, 1) == 1)
		plx_real_init();
}

PLX_EXPORT PLX_CHILD_CODE pid_t fork(void)
{
	if (plx_vfork_child())
		return plx_real.fork();
	plx_needless_before_fork();
	names_before_fork();
	return handlers ? plx_real.fork() : fork_with(plx_real.fork);
}
pid_t __fork(void);
PLX_ALIAS(__fork, fork);

PLX_EXPORT pid_t _Fork(void)
{
	return plx_vfork_child() ? plx_real._Fork() : fork_with(plx_real._Fork);
}

PLX_CHILD_CODE void plx_vfork_over(void)
{
	if (plx_unlikely(vfork_beside)) {
		vfork_beside = false;
		plx_change_end();
	}
}

static bool inherited(int fd)
{
	(void)fd;
	return true;
}

void *plx_vfork_enter(void)
{
	int saved = errno;

	if (!plx_vfork_child()) {
		if (!vfork_beside && !plx_px_alone()) {
			vfork_beside = true;
			plx_change_begin();
		}
		if (plx_cold_any())
			plx_cold_end_all(NULL);
		if (plx_load(&plx_active))
			plx_px_escape_inherited(inherited, PLX_OUT_VFORK);
		vfork_robust = plx_load(&pid_spaces) ? robust_list() : NULL;
		vfork_parent = plx_sys0(SYS_getpid);
		(void)plx_or(&plx_used, PLX_USED_VFORK);
	}
	errno = saved;
	return (void *)plx_load(&plx_real.vfork);
}

/* It returns twice into the caller's frame: no frame of ours may lie between. */
PLX_ENTRY(vfork, plx_vfork_enter);
__asm__(".globl __vfork\n"
	".set __vfork, vfork\n");

static bool like_vfork(unsigned long flags)
{
	return (flags & (CLONE_VM | CLONE_VFORK | CLONE_SETTLS)) == (CLONE_VM | CLONE_VFORK);
}

/*
 * Chromium gives such a child zeros for its thread-local memory, which is enough for calls of
 * libc's that succeed. Ours look there first. So it gets its parent's, as the child of a vfork
 * does: who has that does not run meanwhile. (In a thread's own the first word is not 0.)
 */
static bool has_zeros(unsigned long flags, const uintptr_t *tls)
{
	return (flags & (CLONE_SETTLS | CLONE_THREAD)) == CLONE_SETTLS &&
	       like_vfork(flags & ~(unsigned long)CLONE_SETTLS) && !plx_guard_keeps_none() &&
	       plx_word_readable((uintptr_t)tls) && !*tls;
}

bool plx_clone_forks(unsigned long flags)
{
	if (plx_vfork_child())
		return false;
	if ((flags & (CLONE_VM | CLONE_FILES)) == (CLONE_VM | CLONE_FILES)) {
		plx_store(&plx_px_raw_threads, 1);
		/* Two threads would have our variables of one. */
		if (!(flags & CLONE_SETTLS))
			plx_stop_adopting(PLX_OUT_CLONE);
		return false;
	}
	if (flags & CLONE_NEWPID)
		plx_pid_space();
	if (like_vfork(flags)) {
		plx_vfork_enter();
		return false;
	}
	if (flags & CLONE_VM)
		plx_store(&plx_px_raw_threads, 1);
	if (flags & (CLONE_VM | CLONE_FILES))
		plx_stop_adopting(PLX_OUT_CLONE);
	return !(flags & CLONE_VM);
}

struct clone_start {
	int (*fn)(void *);
	void *arg;
};

/* In the child, in its copy of the parent's memory. */
static int clone_child(void *p)
{
	struct clone_start start = *(struct clone_start *)p;

	plx_fork_done(true);
	return start.fn(start.arg);
}

PLX_EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	struct clone_start start = {.fn = fn, .arg = arg};
	void *ptid, *tls, *ctid;
	int pid, saved = errno;
	va_list ap;
	bool zeros;

	va_start(ap, arg);
	ptid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	ctid = va_arg(ap, void *);
	va_end(ap);
	zeros = has_zeros((unsigned int)flags, tls);
	if (zeros)
		flags &= ~CLONE_SETTLS;
	if (!fn || !stack || !plx_clone_forks((unsigned int)flags)) {
		pid = plx_real.clone(fn, stack, flags, arg, ptid, tls, ctid);
		/* The child's errors were not to be seen here. */
		if (zeros && pid >= 0)
			errno = saved;
		return pid;
	}
	plx_fork_prepare();
	pid = plx_real.clone(clone_child, stack, flags, &start, ptid, tls, ctid);
	plx_fork_done(false);
	return pid;
}
PLX_ALIAS(__clone, clone);

PLX_EXPORT int unshare(int flags)
{
	if ((flags & CLONE_FILES) && !plx_vfork_child())
		plx_stop_adopting(PLX_OUT_UNSHARE);
	if (flags & CLONE_NEWPID)
		plx_pid_space();
	return plx_real.unshare(flags);
}

/* Of type 0 it may be any. */
PLX_EXPORT int setns(int fd, int type)
{
	if ((!type || (type & CLONE_NEWTIME)) && !plx_vfork_child())
		plx_stop_adopting(PLX_OUT_UNSHARE);
	if (!type || (type & CLONE_NEWPID))
		plx_pid_space();
	return plx_real.setns(fd, type);
}
