/* SPDX-License-Identifier: MIT */
/*
 * epoll_wait on an epoll that has a user-space side (epoll.h).
 *
 * While an epoll has no cached items a wait is the kernel's own, except that
 * the waiter is announced, so that the first item finds it. Afterwards a
 * wait collects from both sides: the side that goes first alternates, so that
 * neither starves the other when both are always ready. To sleep it makes sure that
 * the doorbell is registered in the kernel's epoll, announces itself, looks once more,
 * and enters the kernel's epoll_wait.
 *
 * Events of the kernel pass through a buffer of our own, because the doorbell's
 * must be taken out and nothing beyond the result may be written (EP-ARG-05). The
 * program's buffer is probed before, so that a bad one is noticed before events have
 * left the kernel (EP-ARG-03). Where the kernel has the program's buffer it may stumble over an
 * event that is not the program's: then it is asked again, with care (EP-ARG-02).
 *
 * The kernel is asked by the program's own number, which another thread may close or replace
 * meanwhile. A sleep goes on in the epoll that it began in (EP-WAIT-05), as the kernel has it.
 *
 * Argument. (1) A wait announces itself, and then looks whether the number still means its epoll
 * (number_lost); who takes the number from the table looks for sleepers after that, and before the
 * kernel hears of it. So a wait that comes to the kernel later than that is seen, and bars the
 * number: no epoll that gets it has cached items, and nobody is needed to ring for who sleeps in it
 * unannounced. (2) A look by a number that has changed hands is one of the epoll that it means by
 * then, as if the call had begun later. The doorbell's event of that one is taken out, as all
 * doorbells have the same data, and its sleepers are rung for again. (3) A wait that has slept is
 * one of its epoll to the end. If its number is lost and nothing has come, it cannot sleep there
 * again: it looks at our side, and is interrupted, as a wait may be at any time by a stop of the
 * process. (4) One that has not slept begins anew.
 *
 * That leaves who has found nothing in the table at a number that is about to become an epoll's.
 * The model is tests/model/number_lost.pml.
 */
#include "cache/epoll.h"

#include <limits.h>
#include <sys/single_threaded.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/sanitizer.h"
#include "base/sleep.h"
#include "base/spin.h"
#include "base/sys.h"
#include "cache/uaccess.h"

#define BOUNCE_STACK 32
/* So many events of the program's buffer are probed; a bad end beyond is not foreseen. */
#define PROBED 1024
/* Waits between two looks that may show that looks pay again. */
#define DIRECT_SLEEPS 8
/* One of so many looks asks the kernel although it can only know of writers past us. */
#define LOOKS_BLIND 64
/* epoll.turn */
enum { TURN_ANY, TURN_KERNEL, TURN_OURS, TURN_OURS_ALONE };
#define MAX_EVENTS (INT_MAX / (int)sizeof(struct epoll_event))

/*
 * The sleep that the calling thread is in. Where handlers are not seen (base/sleep.h) one may
 * leave it for good by siglongjmp; the note is how the next wait, or the end of the thread, finds
 * what it held. It is told from a sleep that a handler has merely interrupted by its frame.
 */
static __thread struct wait_note {
	struct pollux_file *file;
	void *frame;
	bool announced;
	bool counted;
	/* What the kernel is to store events in; nobody else's meanwhile. */
	struct bounce {
		struct epoll_event *ev;
		int room;
	} bounce;
} note;

/* Of a waiter, while it is asleep. */
struct waiter_sleep {
	/* Over as soon as a handler runs. */
	struct plx_sleep kernel;
	/* What the thread's note said before, of a sleep that a handler interrupted. */
	struct wait_note outer;
};

struct waiter {
	struct plx_epoll *pe;
	struct pollux_file *file;
	struct epoll_event *ev;
	int max;
	int epfd;
	const sigset_t *sigmask;
	bool announced;
	bool asleep;
	bool slept;
	/* ep.given before this looked at the kernel's side. */
	uint32_t given;
	struct waiter_sleep *sleep;
	/* In twaiters of the epoll: whoever is to have no lazy timers beside it knows. */
	bool counted;
	/* An event of a lazy timer has been taken out. */
	bool swallowed;
	/* plx_moves_over and the like, and epoll.ctls_over, before this looked at either side. */
	uint32_t moves, adoptions, ctls;
	/* Events of the kernel's that were there before those of ours; where the next one goes. */
	int theirs;
	struct epoll_event *at;
	/* For the first sleep of a wait that is the kernel's but for timers; else NULL. */
	const struct timespec *timeout;
	/* Deadline on CLOCK_MONOTONIC in ns; negative: none. */
	int64_t deadline;
	/*
	 * The program's call has a time in ms, and so has a sleep, as the filter that the process
	 * began under may know no other.
	 */
	bool in_ms;
};

/* What is not in use of the thread's memory for events. */
static __thread struct bounce spare;
static PLX_START_PAGE struct plx_key wait_key;
/* The end of the thread is to be heard of. */
static __thread bool begun;

static void note_drop(void);
static bool timers_enter(struct waiter *w);

/* The end of a thread that has waited; p is one of its thread-local variables. */
static void wait_thread_exit(void *p)
{
	PLX_INSIDE();
	(void)p;
	if (note.file)
		note_drop();
	plx_mem_put(spare.ev);
	spare = (struct bounce){0};
	/* A destructor of the program's may wait after this one. */
	begun = false;
}

PLX_START_CODE void plx_wait_init(void)
{
	(void)plx_key(&wait_key, wait_thread_exit);
}

static void wait_thread_begin(void)
{
	if (plx_likely(begun))
		return;
	begun = pthread_setspecific(plx_key(&wait_key, wait_thread_exit), &note) == 0;
}

/* Room for max events, or as many as can be had; the stack has the rest. */
static struct epoll_event *bounce_get(struct epoll_event *stack, int *max)
{
	if (*max <= BOUNCE_STACK)
		return stack;
	if (spare.room < *max) {
		struct epoll_event *p = plx_mem_get(*max * sizeof(*p));

		if (p) {
			wait_thread_begin();
			plx_mem_put(spare.ev);
			spare = (struct bounce){.ev = p, .room = *max};
		} else if (spare.room <= BOUNCE_STACK) {
			*max = BOUNCE_STACK;
			return stack;
		} else {
			*max = spare.room;
		}
	}
	return spare.ev;
}

static void sleep_begin(struct waiter *w, const struct epoll_event *buf)
{
	wait_thread_begin();
	w->sleep->outer = note;
	w->asleep = true;
	note = (struct wait_note){
		.file = w->file,
		.frame = w,
		.announced = w->announced,
		.counted = w->counted,
	};
	if (buf == spare.ev) {
		note.bounce = spare;
		spare = (struct bounce){0};
	}
}

static void sleep_end(struct waiter *w)
{
	/* A wait in a handler may have got memory of its own meanwhile. */
	if (spare.ev)
		plx_mem_put(note.bounce.ev);
	else
		spare = note.bounce;
	note = w->sleep->outer;
	w->asleep = false;
}

static int kernel_now(int epfd, struct epoll_event *ev, int max)
{
	return plx_sys6(PLX_EPOLL_WAIT, epfd, (long)ev, max, 0, 0, _NSIG / 8);
}

/* The arguments of epoll_wait, and of its relatives, which have a time and a mask. */
static int seen_sleep(struct waiter *w, long nr, int epfd, struct epoll_event *ev, int max,
		      long time)
{
	struct plx_sleep *s = &w->sleep->kernel;

	s->args[0] = epfd;
	s->args[1] = (long)ev;
	s->args[2] = max;
	s->args[3] = time;
	s->args[4] = (long)w->sigmask;
	s->args[5] = _NSIG / 8;
	return (int)plx_sleep(s, w->sigmask, nr);
}

static int libc_sleep(struct waiter *w, int epfd, struct epoll_event *ev, int max, int ms)
{
	int r = w->sigmask ? plx_libc.epoll_pwait(epfd, ev, max, ms, w->sigmask)
			   : plx_libc.epoll_wait(epfd, ev, max, ms);

	return r < 0 ? -errno : r;
}

static int libc_sleep2(struct waiter *w, int epfd, struct epoll_event *ev, int max,
		       const struct timespec *timeout)
{
	int r = plx_libc.epoll_pwait2(epfd, ev, max, timeout, w->sigmask);

	return r < 0 ? -errno : r;
}

/* Whether epoll_wait can express the time. */
static bool whole_ms(const struct timespec *t)
{
	return !(t->tv_nsec % 1000000) && t->tv_sec <= INT_MAX / 1000 &&
	       t->tv_sec * 1000 + t->tv_nsec / 1000000 <= INT_MAX;
}

/*
 * One wait in the kernel, by the call that libc's function makes: epoll_wait where that can express
 * the program's time, since a sandbox may know no other, else epoll_pwait2. What is left of a time
 * in ms is rounded up.
 */
static int kernel_sleep(struct waiter *w, bool seen, int epfd, struct epoll_event *ev, int max,
			const struct timespec *timeout)
{
	int ms = -1, r;

	if (timeout && !w->in_ms && !whole_ms(timeout) && !plx_load(&plx_pwait2_refused)) {
		r = seen ? seen_sleep(w, SYS_epoll_pwait2, epfd, ev, max, (long)timeout)
			 : libc_sleep2(w, epfd, ev, max, timeout);
		if (!plx_pwait2_refuses(r))
			return r;
	}
	if (timeout)
		ms = timeout->tv_sec < INT_MAX / 1000
			     ? timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000
			     : INT_MAX;
	if (seen)
		return seen_sleep(w, w->sigmask ? SYS_epoll_pwait : PLX_EPOLL_WAIT, epfd, ev, max,
				  ms);
	return libc_sleep(w, epfd, ev, max, ms);
}

/*
 * A signal that came during this call and has been handled only now interrupts it, as
 * one does that comes during the sleep; but events go before it (EP-SIG-01). With a mask
 * for the call it was handled before the call began: the mask might have held it up.
 */
static int unseen_sleep(struct waiter *w, int epfd, struct epoll_event *ev, int max,
			const struct timespec *timeout)
{
	PLX_OUTSIDE(sleep);
	int r;

	if (plx_likely(!sleep.interrupted || w->sigmask))
		return kernel_sleep(w, false, epfd, ev, max, timeout);
	r = kernel_now(epfd, ev, max);
	return r ? r : -EINTR;
}

/*
 * The result of the sleep. If that is over (plx_sleep_is_over), w holds nothing any more. Where
 * everything is the kernel's, it knows by itself who does not wait.
 */
static int kernel_wait(struct waiter *w, struct epoll_event *ev, int max,
		       const struct timespec *timeout)
{
	int epfd = w->epfd, r;

	w->slept = true;
	sleep_begin(w, ev);
	PLX_DELAY(wait_before_sleep);
	if (plx_likely(plx_load(&plx_sleeps_seen)))
		r = kernel_sleep(w, true, epfd, ev, max, timeout);
	else
		r = unseen_sleep(w, epfd, ev, max, timeout);
	if (plx_likely(!plx_sleep_is_over(r)))
		sleep_end(w);
	return r;
}

/*
 * Whether the count of an eventfd has moved from one side to the other since this wait began to
 * look (eventfd.h): of the two it may have seen the same count, or one and then the next, or none.
 *
 * Argument. (1) Seen on ours and then on the kernel's: it was written there by a flush, of which
 * the end comes after our look, or by a write through the kernel that began after it. (2) On the
 * kernel's and then on ours: a read has taken the mark away. Or it is a flush, as in 1. All of
 * these are counted in between, or begun before and not over. (3) Not seen: the kernel's side has
 * been looked at before, and ours after it. Who looks at ours first and at the kernel's then misses
 * nothing. The model is tests/model/cache_look.pml.
 */
static bool beside_move(const struct waiter *w)
{
	return plx_unlikely(plx_load_acq(&plx_moves_begun) != w->moves);
}

/*
 * Whether a count may have come from the kernel's side to ours since then: it may have been here
 * while this looked there, and there again while this looked here.
 */
static bool beside_adoption(const struct waiter *w)
{
	return plx_unlikely(plx_load_acq(&plx_adoptions_begun) != w->adoptions);
}

static void look_begins(struct waiter *w)
{
	w->moves = plx_load_acq(&plx_moves_over);
	w->adoptions = plx_load_acq(&plx_adoptions_over);
	w->ctls = plx_load_acq(&w->pe->ctls_over);
}

/*
 * What the two sides have may be two registrations of one eventfd: one has been made or changed.
 * The kernel has it after it is counted as begun, the engine before it is over. Ours is left then.
 */
static bool beside_ctl(const struct waiter *w)
{
	return beside_move(w) && plx_load_acq(&w->pe->ctls) != w->ctls;
}

static int sink_user(void *arg, uint32_t events, uint64_t data)
{
	struct waiter *w = arg;
	struct epoll_event ev = {.events = events, .data.u64 = data};
	int r;

	if (w->theirs && beside_ctl(w)) {
		plx_store(&w->pe->turn, TURN_OURS_ALONE);
		return -EAGAIN;
	}
	r = plx_copy_out(w->at, &ev, sizeof(ev));
	w->at += !r;
	return r;
}

/*
 * Of the n events that are stored, those from the middle on are of another look: none twice. With
 * the same data they are the same to the program, or two registrations that it cannot tell apart.
 */
static __attribute__((noinline)) int merge_events(struct waiter *w, int middle, int n)
{
	int kept = middle, before = middle;

	if (!w->theirs && beside_ctl(w)) {
		plx_ep_again(w->pe->ep);
		plx_store(&w->pe->turn, TURN_OURS_ALONE);
		kept = before = 0;
	}
	for (int i = middle; i < n; i++) {
		struct epoll_event ev, seen;
		bool twice = false;

		if (plx_copy_in(&ev, w->ev + i, sizeof(ev)))
			return n;
		for (int j = 0; !twice && j < before; j++) {
			twice = !plx_copy_in(&seen, w->ev + j, sizeof(seen)) &&
				seen.data.u64 == ev.data.u64;
			seen.events |= ev.events;
			if (twice && plx_copy_out(w->ev + j, &seen, sizeof(seen)))
				return n;
		}
		if (!twice && kept != i && plx_copy_out(w->ev + kept, &ev, sizeof(ev)))
			return n;
		kept += !twice;
	}
	return kept;
}

/* The number means another file, or none. Partner: number_out in fd.c. */
static bool number_lost(const struct waiter *w)
{
	return plx_unlikely(plx_table_peek(w->epfd) != w->file);
}

/*
 * A look that does not sleep. Where timers may be lazy this thread is counted before; where it has
 * not been, none becomes lazy before the end of the section. Partner: mark_epoll in timer.c.
 */
static int kernel_look(struct waiter *w, struct epoll_event *ev, int max)
{
	int r;

	plx_rcu_read_lock();
	if (plx_unlikely(plx_load(&w->pe->timer_mark)))
		timers_enter(w);
	w->given = plx_load_acq(&w->pe->ep->given);
	r = w->slept && number_lost(w) ? 0 : kernel_now(w->epfd, ev, max);
	plx_rcu_read_unlock();
	PLX_DELAY(wait_in_hand);
	return r < 0 && number_lost(w) ? 0 : r;
}

/* A doorbell's event has been taken out: that of this epoll, or of one that has its number. */
static void bell_taken(struct waiter *w)
{
	struct pollux_file *f;

	plx_bell_collect(w->pe->ep, 1);
	if (!number_lost(w))
		return;
	plx_rcu_read_lock();
	f = plx_table_peek(w->epfd);
	if (f && f->kind == PLX_KIND_EPOLL && f != w->file) {
		struct pollux_ep *ep = plx_file_ep(f);

		plx_bell_collect(ep, 1);
		plx_mb();
		if (!plx_ready_empty(ep))
			plx_ep_wake_one(ep);
	}
	plx_rcu_read_unlock();
}

/* The time to sleep in *ts, to the deadline; NULL if there is none. */
static const struct timespec *time_left(const struct waiter *w, struct timespec *ts)
{
	if (w->deadline < 0)
		return NULL;
	*ts = plx_time_left(w->deadline);
	return ts;
}

/*
 * The kernel has given n events, which the program does not have yet. Partner: heard in eventfd.c.
 * What is not counted was given before the first item was registered.
 */
static int heard_events(struct plx_epoll *pe, int n)
{
	if (n && plx_load_acq(&pe->inproc))
		plx_xadd(&pe->heard, 1);
	return n;
}

/*
 * Takes out of n events what is not the program's: the doorbell's, and those of lazy timers. The
 * number left.
 * whole: there was nothing else on the kernel's list. Then timers that have expired are given out
 * after everything else; otherwise they are on the list behind what has not been collected.
 */
static int filter_events(struct waiter *w, struct epoll_event *ev, int n, bool whole)
{
	struct plx_epoll *pe = w->pe;
	/* Who has the doorbell's event finds that there is one. */
	uint64_t marker = plx_load(&plx_bell_marker);
	bool bell = marker && !plx_load(&pe->foreign), timers = plx_load(&pe->timer_mark);
	int kept = 0, expired = 0;

	if (!bell && !timers)
		return heard_events(pe, n);
	for (int i = 0; i < n; i++) {
		if (bell && ev[i].data.u64 == marker && ev[i].events == EPOLLIN) {
			bell_taken(w);
		} else if (timers && ev[i].events == EPOLLIN &&
			   plx_timer_marked(pe, ev[i].data.u64)) {
			w->swallowed = true;
			if (plx_timer_fired(pe, &ev[i]) && whole)
				ev[kept + expired++] = ev[i];
		} else {
			struct epoll_event event = ev[i];

			/* Behind it. */
			if (plx_unlikely(expired))
				memmove(&ev[kept + 1], &ev[kept], expired * sizeof(*ev));
			ev[kept++] = event;
		}
	}
	return heard_events(pe, kept + expired);
}

/*
 * This thread may have taken a ring and leaves behind what it was for: another sleeper
 * is told. One that was woken for it finds nothing now and sleeps on.
 */
static void pass_ring_on(struct waiter *w)
{
	plx_mb();
	if (!plx_ready_empty(w->pe->ep))
		plx_ep_pass_on(w->pe->ep);
}

/*
 * What is the program's of n events that the kernel has given, and nobody's ring is kept. By who
 * has not slept, and may be within an RCU section.
 */
static int take_events(struct waiter *w, struct epoll_event *ev, int n)
{
	int kept = filter_events(w, ev, n, n < w->max);

	if (kept == n)
		return kept;
	plx_mb();
	if (!plx_ready_empty(w->pe->ep))
		plx_ep_wake_one(w->pe->ep);
	return kept;
}

/* The number stored, or -EFAULT. */
static int store_events(struct epoll_event *user, const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++)
		if (plx_copy_out(user + i, ev + i, sizeof(*ev)))
			return i ? i : -EFAULT;
	return n;
}

/* How many events of the n at ev can be stored before the first that cannot. */
static __attribute__((noinline)) int writable_events(struct epoll_event *ev, int n)
{
	int good = 0;

	while (good < n && plx_probe_write(ev + good, sizeof(*ev)) == 0)
		good++;
	return good;
}

/* Whether the kernel's side may have more than the doorbell's event. */
static bool kernel_has(const struct plx_epoll *pe)
{
	return plx_load(&pe->nkernel) || !plx_load_acq(&pe->inproc);
}

/*
 * Collects from the kernel into the program's buffer from index n on. block: may
 * sleep. Returns the number of events stored, or a negative errno.
 *
 * Where the buffer is not writable to its end, the kernel's wait is one for as many events as can
 * be stored. If there are so many it gets the rest of the buffer itself: it goes on through its
 * list, drops what is not ready, and stops at the first event, which stays, as it would have done.
 * If not even one can be stored, that is all, and the kernel says by EFAULT that there is an event.
 * It must be the program's: so the epoll has no lazy timers from now on, and what may be the
 * doorbell's is taken back, and the kernel asked again.
 */
static int collect_kernel(struct waiter *w, int n, bool block)
{
	struct epoll_event stack[BOUNCE_STACK];
	struct timespec left;
	int room = w->max - n;
	struct epoll_event *buf, *user = w->ev + n;
	bool taken = false, bad = false;
	uint64_t unseen;
	int got, kept;

	/* Nothing but the doorbell is there: one slot is enough to be woken. */
	if (!kernel_has(w->pe) && room > BOUNCE_STACK)
		room = BOUNCE_STACK;
	if (kernel_has(w->pe) &&
	    plx_unlikely(plx_probe_write(user, (room < PROBED ? room : PROBED) * sizeof(*user)))) {
		room = writable_events(user, room < PROBED ? room : PROBED);
		bad = true;
		plx_timers_leave(w->pe);
	}
	/* What would take a slot of this wait, and nobody else will take. */
	if (!block && plx_unlikely(plx_bell_stray(w->pe->ep)) && kernel_has(w->pe) &&
	    plx_epoll_live(w->pe))
		taken = plx_epoll_hush(w->pe);
	if (plx_likely(room))
		buf = bounce_get(stack, &room);
	else
		buf = user;
	for (;;) {
		plx_stat(PLX_STAT_MADE);
		/* Partner: ask in timer.c. With n events before, it may not have been asked. */
		unseen = plx_load_acq(&w->pe->unseen);
		PLX_DELAY(wait_before_kernel);
		if (block)
			got = kernel_wait(w, buf, room ? room : 1,
					  w->timeout ? w->timeout : time_left(w, &left));
		else
			got = kernel_look(w, buf, room ? room : 1);
		if (plx_sleep_is_over(got))
			return got;
		if (plx_unlikely(got == -EFAULT) && plx_epoll_hush(w->pe)) {
			if (block)
				return 0;
			taken = true;
			continue;
		}
		if (plx_unlikely(unseen != plx_load(&w->pe->seen)) && got < (room ? room : 1) &&
		    (got > 0 || (!got && !n)))
			plx_store_rel(&w->pe->seen, unseen);
		if (got <= 0) {
			/* In an earlier turn. */
			if (taken)
				pass_ring_on(w);
			return got;
		}
		kept = filter_events(w, buf, got, got < room);
		taken |= kept < got;
		if (plx_unlikely(bad) && got == room) {
			taken |= plx_epoll_hush(w->pe);
			(void)kernel_look(w, user + room, 1);
		}
		if (kept || block || got < room)
			break;
	}
	if (taken && !block)
		pass_ring_on(w);
	return buf == user ? kept : store_events(user, buf, kept);
}

static int collect_inproc(struct waiter *w, int n)
{
	int r;

	if (n >= w->max) {
		pass_ring_on(w);
		return 0;
	}
	w->at = w->ev + n;
	w->theirs = n;
	r = plx_ep_harvest(w->pe->ep, sink_user, w, w->max - n);
	if (n && r > 0 && beside_move(w))
		r = merge_events(w, n, n + r) - n;
	if (plx_unlikely(plx_load(&plx_stats_wanted)) && r > 0)
		plx_stat_turn(r);
	return r;
}

/*
 * Whether a wait that finds nothing in process may sleep at once. The kernel looks before it
 * sleeps, so another look would be a second system call for nothing. But what looks without a sleep
 * is not announced: where events come all the time, producers need not ring for it. So that is left
 * out only after it has been of no use, and where nobody else could ring.
 */
static bool sleeps_at_once(struct waiter *w)
{
	struct pollux_ep *ep = w->pe->ep;
	uint32_t direct = plx_load(&w->pe->direct);
	enum plx_spin_how how;

	if (!plx_load(&w->pe->nkernel) || plx_load(&w->pe->turn) == TURN_KERNEL ||
	    plx_timers_unseen(w->pe) || plx_bell_stray(ep))
		return false;
	if (__libc_single_threaded || !plx_load(&w->pe->inproc))
		return true;
	if (!direct)
		return false;
	how = plx_spin_how(&ep->yields, &ep->spin);
	plx_spin_not(how);
	if (how != PLX_SPIN_NOT)
		return false;
	plx_store(&w->pe->direct, direct - 1);
	return true;
}

/*
 * Whether something may have been there all the time although this wait, which looks at the two
 * sides one after the other, has found nothing on either: it was on ours when the kernel's had
 * nothing.
 *
 * Argument. What was on our list then is on it still, or has become unready, which the kernel does
 * not see either while it goes through its list, or others have collected it.
 */
static bool may_have_missed(const struct waiter *w)
{
	struct pollux_ep *ep = w->pe->ep;

	/* Partner: plx_ep_harvest, which counts before it says that the list is empty. */
	return !plx_ready_empty(ep) || w->given != plx_load(&ep->given);
}

/* Whether a look is to ask the kernel. */
static bool asks_kernel(struct plx_epoll *pe)
{
	uint32_t looks;

	if (kernel_has(pe))
		return true;
	looks = plx_load(&pe->looks) + 1;
	plx_store(&pe->looks, looks);
	return looks % LOOKS_BLIND == 0;
}

static int counts_there(void *arg, struct pollux_file *f, int key, const struct epoll_event *ev)
{
	++*(int32_t *)arg;
	(void)key;
	(void)ev;
	return f->kind != PLX_KIND_EVENTFD || plx_eventfd_may_be_kernels(f);
}

/* So many looks at the kernel's side for nothing, and a walk through the set may pay. */
#define UNASKED 16

/*
 * If no eventfd of the set can have a count in the kernel, and there is nothing else, waits look at
 * our side alone. The argument is at plx_epoll_counts.
 */
static __attribute__((noinline)) void kernel_leaves(struct plx_epoll *pe)
{
	uint32_t n = PLX_KERNEL_EVENTFDS;
	int32_t passed = 0;

	if (!plx_cas(&pe->nkernel, &n, PLX_KERNEL_LEAVING))
		return;
	PLX_DELAY(kernel_leaves);
	/* Partner: plx_epoll_counts. */
	plx_mb_after_rmw();
	if (pollux_ep_for_each(pe->ep, counts_there, &passed)) {
		plx_store(&pe->unasked, -UNASKED * (passed < 65536 ? passed : 65536));
		n = PLX_KERNEL_EVENTFDS;
	} else {
		plx_store(&pe->unasked, 0);
		n = PLX_KERNEL_NOTHING;
	}
	PLX_DELAY(kernel_left);
	plx_cas(&pe->nkernel, &(uint32_t){PLX_KERNEL_LEAVING}, n);
}

/* The kernel's side had nothing, and ours had something. */
static void asked_for_nothing(struct plx_epoll *pe)
{
	int32_t n = plx_load(&pe->unasked) + 1;

	plx_store(&pe->unasked, n);
	if (plx_unlikely(n >= UNASKED) && plx_load(&pe->nkernel) == PLX_KERNEL_EVENTFDS)
		kernel_leaves(pe);
}

/*
 * What both sides have now; a negative errno only if nothing was stored. The kernel is
 * asked first, unless it filled the whole buffer the last time. sleeps: it is going to be asked by
 * a sleep if our side has nothing, so it is asked here only for what goes with that; if there is
 * no room for it, it comes first the next time.
 */
static int collect_both(struct waiter *w, bool sleeps)
{
	bool kernel = asks_kernel(w->pe);
	uint32_t turn = plx_load(&w->pe->turn);
	bool kernel_first = kernel && !sleeps && turn < TURN_OURS;
	int n = 0, theirs = 0, r;

	if (kernel_first) {
		r = collect_kernel(w, 0, false);
		if (r < 0) {
			pass_ring_on(w);
			return r;
		}
		n = theirs = r;
		plx_store(&w->pe->turn, n == w->max ? TURN_OURS : TURN_ANY);
	} else if (kernel) {
		plx_store(&w->pe->turn, TURN_ANY);
	}
	r = collect_inproc(w, n);
	if (r < 0)
		return n ? n : r;
	n += r;
	if (kernel_first && !theirs && r)
		asked_for_nothing(w->pe);
	if (sleeps && !n)
		return 0;
	if (n && turn == TURN_OURS_ALONE)
		return n;
	if (sleeps && n == w->max)
		plx_store(&w->pe->turn, TURN_KERNEL);
	/*
	 * What has left our list since the kernel was asked is there now. It is not asked twice for
	 * what it has, which may have been registered anew meanwhile.
	 */
	if (kernel && n < w->max && (!kernel_first || (n && !theirs && beside_move(w)))) {
		r = collect_kernel(w, n, false);
		if (r < 0)
			return n ? n : r;
		if (n && r && beside_move(w))
			r = merge_events(w, n, n + r) - n;
		n += r;
	}
	if (kernel && !n)
		plx_store(&w->pe->direct, DIRECT_SLEEPS);
	return n;
}

static void waiter_retract(struct waiter *w)
{
	w->announced = false;
	plx_ep_retract(w->pe->ep);
}

/* Leaves without a harvest: a ring that was meant for this thread goes on to another. */
static void waiter_leave(struct waiter *w)
{
	waiter_retract(w);
	pass_ring_on(w);
}

/*
 * Says that this thread waits where there may be lazy timers, before it can have the event of one
 * in its hand, and until it has none any more. If another one does, too, or sleeps since before
 * there was a mark, there are none any more: each of the two could have the event that the other
 * should be woken for. False if there are none in any case.
 */
static __attribute__((noinline)) bool timers_enter(struct waiter *w)
{
	uint32_t others;

	if (w->counted)
		return true;
	if (plx_load_acq(&w->pe->notimers) || plx_load_acq(&w->pe->evicted)) {
		/* Who has said so may not have got round to them. Partner: become_lazy. */
		plx_mb();
		plx_timers_true(w->pe);
		return false;
	}
	w->counted = true;
	others = plx_xadd(&w->pe->twaiters, 1);
	/* Who is asleep and does not know the mark has said so before it was there. */
	plx_mb_after_rmw();
	PLX_DELAY(wait_counted);
	if (others || plx_load(&w->pe->ep->sleepers) > w->announced)
		plx_timers_leave(w->pe);
	else if (plx_load(&w->pe->nlazy))
		plx_timers_soon(w->pe);
	return true;
}

/*
 * Whether this thread, whose wait ends, is to see to the timers that expire soon: one at a time, as
 * who looks for them takes back the time that says when to look. One that has slept since before
 * there was a mark is counted only now. If there is another, that does it when it ends. The model
 * is tests/model/timer_soon.pml.
 */
static __attribute__((noinline)) bool timers_end(struct waiter *w)
{
	if (w->counted)
		return true;
	w->counted = true;
	/* Partner: timers_enter. */
	return plx_xadd(&w->pe->twaiters, 1) == 0;
}

static void note_drop(void)
{
	struct waiter left = {.file = note.file, .pe = plx_file_epoll(note.file)};

	/* It may have had the event of one in its hand: before others think that nobody has. */
	plx_timers_true(left.pe);
	PLX_DELAY(wait_dropped);
	if (note.announced)
		waiter_leave(&left);
	if (note.counted)
		plx_xadd(&left.pe->twaiters, (uint32_t)-1);
	plx_mem_put(note.bounce.ev);
	note = (struct wait_note){0};
	pollux_file_put(left.file);
}

/* At the beginning of a wait: if an earlier one was left by a jump, ends it. */
static void note_check(void *frame)
{
	stack_t stack;

	if (plx_likely(!note.file))
		return;
	if ((char *)frame < (char *)note.frame || plx_sys2(SYS_sigaltstack, NULL, &stack) < 0 ||
	    (stack.ss_flags & SS_ONSTACK))
		return;
	note_drop();
}

/* Also runs when the thread is cancelled in the kernel's wait, or begins a handler in it. */
static void waiter_done(void *p)
{
	struct waiter *w = p;

	if (w->asleep && w->sleep->kernel.over) {
		/* By a handler, which has nothing in its hand. */
		sleep_end(w);
	} else if (w->asleep) {
		sleep_end(w);
		plx_timers_true(w->pe);
	}
	if (w->announced)
		waiter_leave(w);
	if (plx_unlikely(plx_load(&w->pe->nlazy)) && timers_end(w))
		plx_timers_soon(w->pe);
	if (w->counted)
		plx_xadd(&w->pe->twaiters, (uint32_t)-1);
	pollux_file_put(w->file);
	plx_retire_flush_if_full();
}

/* Its number is lost. */
static __attribute__((noinline)) long wait_lost(struct waiter *w)
{
	int n = plx_load_acq(&w->pe->inproc) ? collect_inproc(w, 0) : 0;

	if (n)
		return n;
	if (!w->slept)
		return PLX_SLEEP_ANEW;
	return w->deadline >= 0 && plx_now_ns() >= w->deadline ? 0 : -EINTR;
}

/*
 * The wait is going to sleep, and is to be rung for: 0, unless it has to begin anew, as its epoll
 * has no items of ours. If there is no doorbell to be had, it becomes the kernel's.
 */
static __attribute__((noinline)) long wait_ring(struct waiter *w)
{
	int r = plx_epoll_ring(w->pe, w->epfd);

	if (r == -EAGAIN)
		return PLX_SLEEP_ANEW;
	if (r < 0 && !number_lost(w))
		plx_epoll_escape(w->file, PLX_OUT_NO_FD);
	return 0;
}

/* Of an epoll with items, or with timers that may be lazy. */
static long wait_mixed(struct waiter *w, bool poll_only)
{
	bool over = poll_only, slept = false, hit = false;
	int tries = 0;

	if (!poll_only)
		plx_flood_wait();
	for (;;) {
		bool items = plx_load_acq(&w->pe->inproc), at_once;
		uint32_t handlers, since;
		int n = 0;

		look_begins(w);
		w->swallowed = false;
		at_once = !over && sleeps_at_once(w);
		if (!at_once || !plx_ready_empty(w->pe->ep)) {
			n = collect_both(w, at_once);
			plx_spin_brought(&w->pe->ep->yields, n);
			if (n)
				return n;
			/* The timer may have expired by now. */
			if (plx_unlikely(w->swallowed))
				continue;
		}
		if (slept)
			plx_stat(PLX_STAT_IDLE);
		slept = false;
		if (number_lost(w))
			return wait_lost(w);
		if (over) {
			if (plx_load(&w->pe->nkernel) && plx_unlikely(may_have_missed(w)))
				continue;
			if (plx_load_acq(&w->pe->inproc) && beside_adoption(w)) {
				plx_await_step(tries++);
				continue;
			}
			if (beside_move(w)) {
				n = collect_kernel(w, 0, false);
				if (n)
					return n;
			}
			return hit ? -EINTR : 0;
		}
		if (items && plx_unlikely(plx_load_acq(&w->pe->doorbell) < 0) && wait_ring(w))
			return PLX_SLEEP_ANEW;
		if (!at_once && plx_ep_spin(w->pe->ep))
			continue;
		w->announced = true;
		handlers = plx_inside.handlers;
		if (plx_ep_announce(w->pe->ep)) {
			if (number_lost(w)) {
				waiter_leave(w);
				return wait_lost(w);
			}
			/* The first item has come. Partner: epoll_setup. */
			if (plx_unlikely(!items && plx_load_acq(&w->pe->inproc))) {
				waiter_leave(w);
				continue;
			}
			if (plx_unlikely(plx_load(&w->pe->timer_mark)))
				timers_enter(w);
			if (items)
				w->timeout = NULL;
			plx_px_count(PLX_COUNT_SLEEPS);
			since = plx_spin_sleeps(&w->pe->ep->spin);
			n = collect_kernel(w, 0, true);
			if (plx_sleep_is_over(n))
				return n;
			plx_spin_slept(&w->pe->ep->spin, since);
			w->timeout = NULL;
			slept = true;
		}
		/*
		 * The kernel looks for events before it looks for signals, so with
		 * EINTR there was nothing; what the handler made stays (EP-SIG-08).
		 */
		if (n < 0) {
			waiter_leave(w);
			return n;
		}
		waiter_retract(w);
		/* A sleep has looked at the kernel's side: it need not be asked again. */
		if (n > 0 || slept) {
			int more = collect_inproc(w, n);

			n += more > 0 ? more : 0;
			plx_spin_brought(&w->pe->ep->yields, n);
			if (n)
				return n;
		}
		if (slept && !w->swallowed && !plx_load_acq(&w->pe->inproc))
			return 0;
		/* A signal that came with it ends the wait; if it was a ring, events go before. */
		hit = plx_unlikely(handlers != plx_inside.handlers);
		if (plx_unlikely(w->swallowed) && hit)
			return -EINTR;
		over = hit;
		if (w->deadline >= 0 && plx_now_ns() >= w->deadline)
			over = true, hit = false;
	}
}

/* The same where a signal has come with what was not the program's. */
static __attribute__((noinline)) long wait_hit(struct waiter *w)
{
	long r = wait_mixed(w, true);

	return r || (w->deadline >= 0 && plx_now_ns() >= w->deadline) ? r : -EINTR;
}

/* A sleep of an epoll with no item so far, or none any more: the kernel's own, announced. */
static long wait_kernel(struct waiter *w, const struct timespec *timeout)
{
	uint32_t handlers = plx_inside.handlers;
	int n, more;

	w->timeout = timeout;
	if (plx_unlikely(plx_load(&w->pe->timer_mark)) && timers_enter(w))
		return wait_mixed(w, false);
	w->announced = true;
	plx_xadd(&w->pe->ep->sleepers, 1);
	plx_mb_after_rmw();
	if (number_lost(w)) {
		waiter_leave(w);
		return wait_lost(w);
	}
	if (plx_epoll_live(w->pe)) {
		waiter_retract(w);
		return wait_mixed(w, false);
	}
	if (plx_unlikely(plx_load(&w->pe->timer_mark)) && timers_enter(w)) {
		waiter_retract(w);
		return wait_mixed(w, false);
	}
	n = kernel_wait(w, w->ev, w->max, timeout);
	if (plx_sleep_is_over(n))
		return n;
	w->timeout = NULL;
	if (n < 0) {
		waiter_leave(w);
		if (n == -EFAULT && !plx_epoll_evicted(w->pe) &&
		    (plx_load_acq(&w->pe->inproc) || plx_load(&w->pe->timer_mark))) {
			if (handlers != plx_inside.handlers)
				return wait_hit(w);
			return wait_mixed(w, false);
		}
		return n;
	}
	/* From a sleeper that was there before the mark: its event may be that of a lazy timer. */
	if (plx_unlikely(plx_load(&w->pe->timer_mark)))
		timers_enter(w);
	waiter_retract(w);
	PLX_DELAY(wait_in_hand);
	if (plx_likely(!plx_load_acq(&w->pe->inproc) && !plx_load(&w->pe->timer_mark)))
		return n;
	/* The first in-process item, or lazy timer, came while this thread slept. */
	if (n > 0) {
		n = filter_events(w, w->ev, n, n < w->max);
		if (!n && w->swallowed && handlers != plx_inside.handlers)
			return -EINTR;
		if (!n)
			return handlers != plx_inside.handlers ? wait_hit(w) : wait_mixed(w, false);
	}
	if (!plx_load_acq(&w->pe->inproc))
		return n;
	if (!n)
		return wait_mixed(w, true);
	more = collect_inproc(w, n);
	return more > 0 ? n + more : n;
}

/*
 * A look has n events, of the kernel's, in an RCU section, which is left here. What has become
 * ready on our side meanwhile goes with them: whose write has made one of these may have made one
 * of ours before.
 */
static __attribute__((noinline)) long look_found(struct waiter *w, struct epoll_event *buf, int n)
{
	struct plx_epoll *pe = w->pe;
	int kept = take_events(w, buf, n), more = 0;
	long r = kept ? kept : PLX_PASS;

	if (kept)
		plx_stat(buf == w->ev ? PLX_STAT_KERNEL_WAITS : PLX_STAT_WAITS);
	if (kept && buf != w->ev) {
		plx_stat(PLX_STAT_MADE);
		r = store_events(w->ev, buf, kept);
		if (r == w->max)
			plx_store(&pe->turn, TURN_OURS);
		plx_spin_brought(&pe->ep->yields, (int)r);
	}
	if (r > 0)
		plx_tsan_after(pe);
	PLX_DELAY(wait_looked);
	if (r <= 0 || r >= w->max || !plx_load_acq(&pe->inproc) || plx_ready_empty(pe->ep) ||
	    !pollux_file_tryget(w->file)) {
		plx_rcu_read_unlock();
		return r;
	}
	plx_rcu_read_unlock();
	PLX_HOLD_PUSH(waiter_done, w);
	more = collect_inproc(w, (int)r);
	PLX_HOLD_POP(1);
	return more > 0 ? r + more : r;
}

/*
 * A wait that does not sleep, of an epoll in which only the kernel may have something: in one RCU
 * section, so that no reference is taken. What cannot be done in that has not been begun.
 *
 * There are no lazy timers in the section, as it has begun before the look at their mark
 * (kernel_look). ep.ends stands for ep.given (may_have_missed): who gives an event ends a harvest,
 * and says so before the list is empty. An error is left to the whole wait.
 */
static inline __attribute__((always_inline)) long look(int epfd, struct epoll_event *ev, int max)
{
	PLX_INSIDE();
	struct epoll_event stack[BOUNCE_STACK], *buf = ev;
	uint32_t moves, adoptions, ctls, ends;
	struct pollux_file *f;
	struct plx_epoll *pe;
	struct pollux_ep *ep;
	long r = PLX_PASS;
	int n;

	if (plx_unlikely(note.file || max <= 0 || max > MAX_EVENTS ||
			 !plx_user_range(ev, max * sizeof(*ev))))
		return r;
	plx_rcu_read_lock();
	f = plx_table_peek(epfd);
	if (plx_unlikely(!f || f->kind != PLX_KIND_EPOLL))
		goto out;
	ep = plx_file_ep(f);
	pe = ep->owner;
	PLX_DELAY(wait_found);
	if (plx_unlikely(plx_load(&pe->timer_mark) || plx_load(&pe->wanted) == PLX_WANTED))
		goto out;
	moves = plx_load_acq(&plx_moves_over);
	adoptions = plx_load_acq(&plx_adoptions_over);
	ctls = plx_load_acq(&pe->ctls_over);
	ends = plx_load_acq(&ep->ends);
	if (plx_epoll_live(pe)) {
		if (plx_unlikely(plx_ready_any(ep)))
			goto out;
		if (!asks_kernel(pe)) {
			if (plx_likely(plx_load(&ep->ends) == ends)) {
				plx_stat(PLX_STAT_WAITS);
				r = 0;
			}
			goto out;
		}
		buf = max <= BOUNCE_STACK ? stack : spare.ev;
		if (plx_unlikely(plx_load(&pe->turn) != TURN_ANY || plx_bell_stray(ep) ||
				 (buf != stack && spare.room < max) ||
				 plx_probe_write(ev, (max < PROBED ? max : PROBED) * sizeof(*ev))))
			goto out;
	}
	PLX_DELAY(wait_look);
	n = kernel_now(epfd, buf, max);
	PLX_DELAY(wait_in_hand);
	/* What has been the kernel's only since may have had a doorbell until now. */
	if (buf == ev && n >= 0 &&
	    plx_likely(!(n ? plx_load_acq(&pe->inproc) : plx_epoll_live(pe)) &&
		       !plx_load(&pe->timer_mark) && plx_table_peek(epfd) == f)) {
		plx_stat(PLX_STAT_KERNEL_WAITS);
		if (n > 0)
			plx_tsan_after(pe);
		r = n;
	} else if (n > 0) {
		struct waiter w = {
			.pe = pe,
			.file = f,
			.ev = ev,
			.max = max,
			.epfd = epfd,
			.moves = moves,
			.adoptions = adoptions,
			.ctls = ctls,
		};

		return look_found(&w, buf, n);
	} else if (!n && buf != ev && !plx_ready_any(ep) &&
		   plx_likely(plx_load(&ep->ends) == ends &&
			      plx_load_acq(&plx_adoptions_begun) == adoptions &&
			      plx_table_peek(epfd) == f)) {
		if (plx_unlikely(plx_load(&plx_stats_wanted))) {
			plx_stat_add(PLX_STAT_MADE, 1);
			plx_stat_add(PLX_STAT_WAITS, 1);
		}
		if (plx_load(&pe->direct) != DIRECT_SLEEPS)
			plx_store(&pe->direct, DIRECT_SLEEPS);
		r = 0;
	}
out:
	plx_rcu_read_unlock();
	return r;
}

int plx_px_look(int epfd, struct epoll_event *ev, int max, plx_look_t other)
{
	int r = (int)look(epfd, ev, max);

	return plx_likely(r >= 0) ? r : other(epfd, ev, max);
}

/* As in struct waiter; deadline is 0 if it is still to be made of the timeout. */
struct wait_time {
	int64_t deadline;
	bool in_ms;
};

static long wait_call(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		      const sigset_t *sigmask, struct wait_time *time)
{
	struct waiter_sleep sleep;
	struct waiter w = {.ev = ev,
			   .max = max,
			   .epfd = epfd,
			   .sigmask = sigmask,
			   .sleep = &sleep,
			   .in_ms = time->in_ms};
	bool poll_only = timeout && !timeout->tv_sec && !timeout->tv_nsec;
	long r;

	w.file = plx_table_get(epfd);
	if (!w.file) {
		plx_bell_take(epfd);
		return PLX_PASS;
	}
	if (w.file->kind != PLX_KIND_EPOLL) {
		pollux_file_put(w.file);
		return PLX_PASS;
	}
	w.pe = plx_file_epoll(w.file);
	if (plx_unlikely(plx_load(&w.pe->wanted) == PLX_WANTED))
		plx_epoll_prepare(w.pe, epfd);
	sleep.kernel.over = 0;
	w.deadline = time->deadline ? time->deadline : -1;
	look_begins(&w);
	note_check(&w);
	plx_stat(plx_epoll_live(w.pe) ? PLX_STAT_WAITS : PLX_STAT_KERNEL_WAITS);
	if (timeout && !poll_only && !time->deadline) {
		int64_t now = plx_now_ns();

		if (timeout->tv_sec < (INT64_MAX - now) / PLX_NSEC - 1)
			w.deadline = now + timeout->tv_sec * PLX_NSEC + timeout->tv_nsec;
		time->deadline = w.deadline;
	}
	PLX_HOLD_PUSH(waiter_done, &w);
	if (max <= 0 || max > MAX_EVENTS)
		r = -EINVAL;
	else if (!plx_user_range(ev, max * sizeof(*ev)))
		r = -EFAULT;
	else if (poll_only || plx_epoll_live(w.pe))
		r = wait_mixed(&w, poll_only);
	else
		r = wait_kernel(&w, timeout);
	PLX_HOLD_POP(1);
	if (r > 0)
		plx_tsan_after(w.pe);
	if (r > 0 && PLX_INJECTED(wrong_data))
		ev[0].data.u64 ^= 1;
	return r > 0 && PLX_INJECTED(wrong_errno) ? -EBADF : r;
}

/* It begins anew: a handler has run in its sleep, or its number has changed hands. */
static __attribute__((noinline)) long wait_again(long r, int epfd, struct epoll_event *ev, int max,
						 const struct timespec *timeout,
						 const sigset_t *sigmask, struct wait_time time)
{
	static const struct timespec now;
	struct waiter w = {.deadline = time.deadline};
	struct timespec left;

	while (r == PLX_SLEEP_ANEW) {
		if (time.deadline > 0)
			timeout = time_left(&w, &left);
		r = wait_call(epfd, ev, max, timeout, sigmask, &time);
	}
	if (!plx_sleep_is_over(r))
		return r;
	/* Events go before the signal (EP-SIG-01). */
	if (r == PLX_SLEEP_LOOK)
		r = wait_call(epfd, ev, max, &now, sigmask, &time);
	/* The handler may have sent all to the kernel, as by a fork. */
	if (r == PLX_PASS)
		r = kernel_now(epfd, ev, max);
	/* What the handler has made of the number is no error of this call's. */
	return r > 0 || r == -EFAULT ? r : -EINTR;
}

long plx_px_epoll_wait(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		       const sigset_t *sigmask)
{
	PLX_INSIDE();
	struct wait_time time = {.in_ms = plx_px_filtered && timeout && whole_ms(timeout)};
	long r = wait_call(epfd, ev, max, timeout, sigmask, &time);

	/* PLX_PASS is greater. */
	return plx_sleep_is_over(r) ? wait_again(r, epfd, ev, max, timeout, sigmask, time) : r;
}
