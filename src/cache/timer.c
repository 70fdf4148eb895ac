/* SPDX-License-Identifier: MIT */
/*
 * timerfd descriptors: the kernel's, with a user-space side that spares settings.
 *
 * A loop that moves its time-out with every event sets a timer far more often than one expires.
 * So a timer may be lazy: the kernel's timer stays armed for a time that is not later than what
 * the program wants, and a new setting that is later still, or none, is only noted. When the
 * kernel's timer expires, whoever sees that sets it to what is wanted by then, and the program
 * hears nothing of it. A timer that is not lazy is true: all of it is the kernel's.
 *
 * Lazy is only a timer on CLOCK_MONOTONIC with one number and one registration, in an epoll that is
 * ours, level-triggered, for EPOLLIN and without flags, and not nested, with at most one thread in
 * a wait at a time. Its registration has other data meanwhile, by which a wait knows its event, and
 * is edge-triggered, so that the event leaves the kernel's ready list when it is collected.
 * Whatever else is done with the timer or the epoll makes it true first. The model of the protocol
 * is tests/model/timer.pml.
 *
 *   lock      everything below; held over the system calls that change the kernel's idea of it
 *   pe        atomic: the epoll that it is lazy in, or NULL
 *   gone      atomic, set once: the kernel's alone, or closed
 *   armed     when the kernel's timer expires: while lazy, and while `known`
 *   disarmed  the last setting was to never, or there was none
 *   slept_on  atomic: somebody may sleep on it in the kernel since before the process was prepared
 *   unmarked  it would be lazy but for that, or if its epoll had a mark
 *   stale     it may be on the kernel's ready list since an expiry that is over, though not ready
 *   asked     epoll.unseen when that was said there; 0: it has not been
 *   want, interval   what the program has set, while lazy; before that the same as the kernel
 *
 * Argument. (1) Never too early: an event of a lazy timer is never given out as it is, and a read
 * makes the timer true first; a true timer has been armed for exactly the time that was wanted. A
 * setting that makes a timer lazy is the kernel's after all if the one before it has expired in the
 * meantime, which a wait may have told by then. (2) Not lost: the kernel's expiry comes no later
 * than the wanted one. It is an event of the epoll; the one thread that waits there collects it,
 * finds our data, and makes the timer true before it goes on. If the wait was left by a jump or its
 * thread has ended, the next wait does so, or the end of the thread (wait.c); a second thread that
 * comes to wait meanwhile makes all timers true before it sleeps, so that nobody depends on a
 * thread which has the event in its hand and is preempted. Of a thread that comes to wait and one
 * that makes a timer lazy, each says so before it looks for the other. A wait says so as soon as it
 * knows that the epoll has a mark, and takes it back when it has no event in its hand any more. One
 * that does not know it is seen as a sleeper, until it has said so; or it looks at the kernel in an
 * RCU section, and no timer is lazy before that is over. (3) Its place among the events of others
 * is that of its expiry, if some thread has come by between the kernel's expiry and the wanted one.
 * Otherwise it is at the end of what is ready, as if the interrupt of the timer had come late, and
 * nobody has looked at the timer before. What is about to expire in the kernel is made true when a
 * wait returns, so that this takes a program that does not look at its epoll for NEAR. (4) Its
 * kernel's expiry takes no slot of a wait that began later: that begins by making it true. Who
 * looks for such is counted, so that no wait that begins meanwhile is misled by `soon`. (5) A
 * timer that was ready once and is not any more stays on the kernel's ready list until the kernel
 * comes by, and an expiry before that leaves it at its old place. So no timer becomes lazy before
 * it is known to be off the list: after it was set it adds to `unseen`; a wait reads that before
 * the kernel looks, and if the kernel has had room for more, so that it has looked through the
 * whole list, the wait stores what it has read to `seen`. The model is
 * tests/model/timer_place.pml.
 */
#include "cache/cold.h"
#include "cache/epoll.h"

#include <limits.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/inside.h"
#include "base/sys.h"
#include "cache/uaccess.h"

/* No timer is lazy that expires in the kernel so soon, in ns. */
#define NEAR 10000000ll
#define NEVER INT64_MAX
/* Settings in seconds that are reckoned with. */
#define FAR (1ll << 31)
/*
 * After so many settings in a row that came before the expiry a timer may be lazy. Being lazy costs
 * three system calls; if it has not saved so many the next time takes more of them.
 */
#define ROW_FIRST 2
#define ROW_MOST 1024
#define WORTH 16

struct plx_timer {
	struct pollux_file file;
	plx_lock_t lock;
	uint32_t gone, slept_on;
	struct plx_epoll *pe;
	int fd;
	bool nonblock;
	bool known;
	bool disarmed;
	bool unmarked;
	bool stale;
	uint64_t asked;
	int64_t want, interval, armed;
	/* The registration, if there is one: in the epoll of this id. */
	uint64_t epid;
	int epfd;
	struct epoll_event ev;
	uint32_t row, row_needed, saved;
};

/* What settime was given. */
struct setting {
	int64_t value, interval;
	bool absolute, far;
};

static void timer_free(struct pollux_file *f)
{
	plx_free(plx_container_of(f, struct plx_timer, file));
}

static const struct pollux_file_ops timer_ops = {
	.size = sizeof(timer_ops), .poll = plx_never_ready, .free = timer_free};

static struct plx_timer *file_timer(struct pollux_file *f)
{
	return f && f->kind == PLX_KIND_TIMER ? plx_container_of(f, struct plx_timer, file) : NULL;
}

static struct plx_timer *timer_new(int flags)
{
	struct plx_timer *t = plx_zalloc(sizeof(*t));

	if (!t)
		return NULL;
	plx_file_init(&t->file, &timer_ops);
	t->file.kind = PLX_KIND_TIMER;
	t->nonblock = flags & TFD_NONBLOCK;
	t->disarmed = true;
	t->row_needed = ROW_FIRST;
	return t;
}

struct pollux_file *plx_timer_file(int fd, int flags)
{
	struct plx_timer *t = timer_new(flags);

	if (!t)
		return NULL;
	t->fd = fd;
	t->slept_on = 1;
	/* It may have expired, and so may be on the kernel's ready list. */
	t->disarmed = false;
	t->stale = true;
	return &t->file;
}

bool plx_timer_watched(struct pollux_file *f, struct plx_epoll *pe, int epfd,
		       const struct epoll_event *ev)
{
	struct plx_timer *t = file_timer(f);

	if (t->epid)
		return false;
	t->epid = pe->id;
	t->epfd = epfd;
	t->ev = *ev;
	return true;
}

long plx_px_timerfd_create(int clock, int flags)
{
	PLX_INSIDE();
	uint32_t since = plx_changes();
	struct plx_timer *t;
	long fd;

	if (clock != CLOCK_MONOTONIC || (flags & ~(TFD_NONBLOCK | TFD_CLOEXEC)) ||
	    (plx_px_no_adopt & (PLX_ADOPT_TIMERFD | PLX_ADOPT_EPOLL)) || !plx_px_begin())
		return PLX_PASS;
	t = timer_new(flags);
	if (!t)
		return PLX_PASS;
	fd = plx_sys2(SYS_timerfd_create, clock, flags);
	t->fd = (int)fd;
	if (fd >= 0 && fd < (long)PLX_TIMER_FDS && !plx_fd_of_stream((int)fd) &&
	    plx_table_made((int)fd, &t->file, since)) {
		plx_px_count(PLX_COUNT_TIMERS);
		return fd;
	}
	pollux_file_put(&t->file);
	if (fd >= 0)
		plx_px_given((int)fd);
	return fd;
}

/* --- the kernel's idea of it ------------------------------------------------------------ */

static long kernel_set(const struct plx_timer *t, int flags, const struct itimerspec *spec,
		       struct itimerspec *old)
{
	return plx_sys4(SYS_timerfd_settime, t->fd, flags, spec, old);
}

static long set_absolute(const struct plx_timer *t, int64_t at, int64_t interval,
			 struct itimerspec *old)
{
	struct itimerspec spec = {.it_interval = plx_timespec_ns(interval)};

	if (at != NEVER)
		spec.it_value = plx_timespec_ns(at);
	return kernel_set(t, TFD_TIMER_ABSTIME, &spec, old);
}

static long kernel_ctl(const struct plx_timer *t, int op, const struct epoll_event *ev)
{
	return plx_sys4(SYS_epoll_ctl, t->epfd, op, t->fd, ev);
}

static void time_before(int64_t *soon, int64_t time)
{
	int64_t was = plx_load(soon);

	while (time < was && !plx_cas(soon, &was, time))
		;
}

/* Until the interrupt has come that makes an expired timer readable. */
static bool await_expiry(const struct plx_timer *t)
{
	struct timespec most = {.tv_nsec = 100000000};
	struct pollfd p = {.fd = t->fd, .events = POLLIN};

	return plx_sys6(SYS_ppoll, (long)&p, 1, (long)&most, 0, 8, 0) == 1;
}

static void not_lazy(struct plx_timer *t)
{
	plx_xadd(&t->pe->nlazy, (uint32_t)-1);
	plx_store_rel(&t->pe, NULL);
}

/*
 * The kernel's timer is as wanted: so is the registration from now on. If the timer has expired
 * and been set since, without its event being collected, the item is still on the kernel's ready
 * list, and would keep that place: only another registration has none. (That it cannot be had for
 * a moment is possible, if others use up the last of the limit just then.)
 */
static void unmark(struct plx_timer *t, bool listed)
{
	if (!listed) {
		kernel_ctl(t, EPOLL_CTL_MOD, &t->ev);
	} else if (kernel_ctl(t, EPOLL_CTL_DEL, NULL) == 0) {
		const struct timespec pause = {.tv_nsec = 100000};

		long r;

		while ((r = kernel_ctl(t, EPOLL_CTL_ADD, &t->ev)) == -ENOSPC || r == -ENOMEM)
			plx_sys2(SYS_nanosleep, &pause, NULL);
	}
	not_lazy(t);
	if (t->saved >= WORTH) {
		t->row = t->row_needed = ROW_FIRST;
	} else {
		t->row = 0;
		if (t->row_needed < ROW_MOST)
			t->row_needed *= 2;
	}
}

/*
 * Lock held, RCU section open, lazy. collected: its event has just been taken out. Whether it has
 * expired by now; it is at the end of the kernel's ready list then.
 */
static bool make_true(struct plx_timer *t, bool collected)
{
	bool expired = false;
	int64_t now;

	set_absolute(t, t->want, t->interval, NULL);
	PLX_DELAY(timer_true);
	now = plx_now_ns();
	if (now >= t->want)
		expired = await_expiry(t);
	unmark(t, !collected && now >= t->armed);
	t->known = false;
	return expired;
}

/* --- becoming lazy ------------------------------------------------------------------------ */

static uint64_t new_mark(struct plx_epoll *pe)
{
	uint64_t mark = plx_load(&pe->timer_mark), r;

	if (mark)
		return mark;
	if (plx_sys3(SYS_getrandom, &r, sizeof(r), 0) != sizeof(r))
		return 0;
	r &= ~(uint64_t)(PLX_TIMER_FDS - 1);
	return plx_cas(&pe->timer_mark, &mark, r) ? r : mark;
}

/* The epoll that its registration is in, if that allows it. Valid in the RCU section. */
static struct plx_epoll *epoll_of(struct plx_timer *t)
{
	struct pollux_file *ef = t->epid ? plx_table_peek(t->epfd) : NULL;
	struct plx_epoll *pe;

	if (!ef || ef->kind != PLX_KIND_EPOLL || !(t->ev.events & EPOLLIN) ||
	    (t->ev.events & PLX_EP_FLAGS))
		return NULL;
	pe = plx_file_epoll(ef);
	if (pe->id != t->epid || plx_load(&pe->evicted) || plx_load(&pe->notimers))
		return NULL;
	if (!plx_load_acq(&pe->timers) || plx_load_acq(&t->slept_on))
		t->unmarked = true;
	return t->unmarked ? NULL : pe;
}

/*
 * Outside of everything: what the timer at fd lacks to be lazy. Its epoll gets its mark; the
 * reference sees to it that who ends the epoll finds that.
 */
static __attribute__((noinline)) void mark_epoll(int fd, int epfd, uint64_t epid)
{
	struct pollux_file *ef = plx_table_get(epfd), *f = plx_table_get(fd);
	struct plx_epoll *pe = ef && ef->kind == PLX_KIND_EPOLL ? plx_file_epoll(ef) : NULL;

	if (file_timer(f) && plx_load(&file_timer(f)->slept_on) && !plx_cold_busy(f))
		plx_store_rel(&file_timer(f)->slept_on, 0);
	if (f)
		pollux_file_put(f);

	if (pe && pe->id == epid && !plx_load(&pe->evicted) && !plx_cold_busy(ef)) {
		/*
		 * A look may last: then a later setting tries again. Partners: kernel_look; in
		 * wait_kernel and wait_mixed, an announced sleeper.
		 */
		if (!new_mark(pe))
			plx_store(&pe->notimers, 1);
		else if (plx_rcu_try(plx_rcu_note()))
			plx_store_rel(&pe->timers, 1);
	}
	if (ef)
		pollux_file_put(ef);
}

/* It may have been ready until now. */
static void gets_stale(struct plx_timer *t)
{
	t->stale = true;
	t->asked = 0;
}

/* After the kernel has made it unready: the next looks are to say that they have come by. */
static void ask(struct plx_timer *t, struct plx_epoll *pe)
{
	if (plx_likely(!t->stale) || t->asked)
		return;
	PLX_DELAY(timer_before_ask);
	/* Partners: collect_kernel, of which one that reads this looks after the setting. */
	t->asked = plx_xadd(&pe->unseen, 1) + 1;
}

/* Whether it is on the list only if it is ready. */
static bool not_stale(struct plx_timer *t, struct plx_epoll *pe)
{
	if (plx_unlikely(t->stale) && t->asked && plx_load_acq(&pe->seen) >= t->asked)
		t->stale = false;
	return !t->stale;
}

/* What the kernel's timer is set to is known, and not soon; it is not on the ready list. */
static bool become_lazy(struct plx_timer *t, struct plx_epoll *pe)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	bool marked = false;

	t->saved = 0;
	plx_store(&t->pe, pe);
	plx_xadd(&pe->nlazy, 1);
	time_before(&pe->soon, t->armed);
	/*
	 * Partners: those who announce a sleep in wait.c, plx_timers_leave, plx_timers_soon; a
	 * fork, which is a change, and goes through the table then.
	 */
	plx_mb();
	PLX_DELAY(timer_said);
	ev.data.u64 = plx_load(&pe->timer_mark) | (uint32_t)t->fd;
	if (!plx_load(&pe->notimers) && !plx_load(&pe->evicted) && !plx_changed(plx_changes()) &&
	    plx_load(&pe->ep->sleepers) <= 1) {
		PLX_DELAY(timer_before_mark);
		marked = kernel_ctl(t, EPOLL_CTL_MOD, &ev) == 0;
	}
	/* Nor has it expired before that: nobody has been told so. */
	if (marked && plx_now_ns() < t->armed)
		return true;
	unmark(t, marked);
	return false;
}

/* --- settime and gettime ------------------------------------------------------------------- */

static struct setting setting_of(int flags, const struct itimerspec *spec)
{
	struct setting s = {
		.absolute = flags & TFD_TIMER_ABSTIME,
		.far = spec->it_value.tv_sec >= FAR || spec->it_interval.tv_sec >= FAR,
	};

	if (!s.far) {
		s.value = spec->it_value.tv_sec * PLX_NSEC + spec->it_value.tv_nsec;
		s.interval = spec->it_interval.tv_sec * PLX_NSEC + spec->it_interval.tv_nsec;
	}
	return s;
}

static int64_t deadline(const struct setting *s, int64_t now)
{
	if (!s->value)
		return NEVER;
	return s->absolute ? s->value : now + s->value;
}

/* Of one that has not expired. */
static void time_left(const struct plx_timer *t, int64_t now, struct itimerspec *left)
{
	left->it_interval = plx_timespec_ns(t->interval);
	left->it_value = plx_timespec_ns(t->want == NEVER ? 0 : t->want - now);
}

/* Whether the kernel need not hear of a setting, now. */
static bool may_wait(const struct plx_timer *t, const struct setting *s, int64_t now)
{
	return !s->far && now + NEAR <= t->armed && deadline(s, now) >= t->armed;
}

static void put_off(struct plx_timer *t, const struct setting *s, int64_t now)
{
	plx_stat(PLX_STAT_TIMER_KEPT);
	t->want = deadline(s, now);
	t->interval = s->interval;
	t->disarmed = t->want == NEVER;
	t->saved++;
}

/* Tells the kernel; in such a way that it is known what, if that is wanted and worth it. */
static long kernel_told(struct plx_timer *t, bool wanted, int flags, const struct itimerspec *spec,
			struct itimerspec *old)
{
	struct setting s;
	int64_t want;

	t->known = false;
	t->disarmed = !spec->it_value.tv_sec && !spec->it_value.tv_nsec;
	if (!wanted)
		return kernel_set(t, flags, spec, old);
	s = setting_of(flags, spec);
	want = s.far ? NEVER : deadline(&s, plx_now_ns());
	if (want == NEVER || want < plx_now_ns() + 2 * NEAR)
		return kernel_set(t, flags, spec, old);
	t->known = true;
	t->want = t->armed = want;
	t->interval = s.interval;
	return set_absolute(t, want, s.interval, old);
}

static long set_lazy(struct plx_timer *t, int flags, const struct itimerspec *spec,
		     struct itimerspec *old)
{
	struct setting s = setting_of(flags, spec);
	int64_t now = plx_now_ns(), armed = t->armed;
	bool running = now < t->want;
	long r;

	if (running)
		time_left(t, now, old);
	if (may_wait(t, &s, now)) {
		put_off(t, &s, now);
		return 0;
	}
	/* Expired, though nobody has seen it: the kernel is to tell what was left. */
	if (!running) {
		make_true(t, false);
		gets_stale(t);
		return kernel_told(t, false, flags, spec, old);
	}
	r = kernel_told(t, t->saved >= WORTH, flags, spec, NULL);
	unmark(t, plx_now_ns() >= armed);
	return r;
}

static long set_true(struct plx_timer *t, int flags, const struct itimerspec *spec,
		     struct itimerspec *old)
{
	struct plx_epoll *pe = t->row >= t->row_needed ? epoll_of(t) : NULL;
	int64_t armed = t->known ? t->armed : 0;
	bool was_disarmed = t->disarmed;
	long r;

	if (pe && t->known && not_stale(t, pe)) {
		struct setting s = setting_of(flags, spec);
		int64_t now = plx_now_ns();

		if (may_wait(t, &s, now) && become_lazy(t, pe)) {
			time_left(t, now, old);
			put_off(t, &s, now);
			return 0;
		}
	}
	r = kernel_told(t, pe, flags, spec, old);
	if (r == 0 && (old->it_value.tv_sec || old->it_value.tv_nsec)) {
		t->row++;
		/* With an interval it may have expired all the same. */
		if ((old->it_interval.tv_sec || old->it_interval.tv_nsec) && plx_now_ns() >= armed)
			gets_stale(t);
	} else if (r < 0 || !was_disarmed) {
		/* It had expired. */
		t->row = 0;
		t->known = false;
		gets_stale(t);
	}
	if (pe)
		ask(t, pe);
	return r;
}

/* RCU section open: the timer behind fd, locked, unless it is the kernel's alone. */
static struct plx_timer *timer_lock(struct plx_timer *t)
{
	if (!t || plx_load(&t->gone))
		return NULL;
	plx_lock(&t->lock, PLX_RANK_TIMER);
	if (plx_likely(!t->gone))
		return t;
	plx_unlock(&t->lock, PLX_RANK_TIMER);
	return NULL;
}

static void timer_unlock(struct plx_timer *t)
{
	plx_unlock(&t->lock, PLX_RANK_TIMER);
}

long plx_px_timerfd_settime(int fd, int flags, const struct itimerspec *value,
			    struct itimerspec *old)
{
	PLX_INSIDE();
	struct itimerspec spec, was = {0};
	uint64_t unmarked = 0;
	struct plx_timer *t;
	int epfd = -1;
	long r;

	/* What the kernel refuses before it looks at the descriptor. */
	if (plx_copy_in(&spec, value, sizeof(spec)) ||
	    (flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) ||
	    plx_timespec_bad(&spec.it_value) || plx_timespec_bad(&spec.it_interval))
		return PLX_PASS;
	plx_rcu_read_lock();
	t = timer_lock(file_timer(plx_table_peek(fd)));
	if (!t) {
		plx_rcu_read_unlock();
		return PLX_PASS;
	}
	r = t->pe ? set_lazy(t, flags, &spec, &was) : set_true(t, flags, &spec, &was);
	if (plx_unlikely(t->unmarked)) {
		t->unmarked = false;
		unmarked = t->epid;
		epfd = t->epfd;
	}
	timer_unlock(t);
	plx_rcu_read_unlock();
	if (plx_unlikely(unmarked))
		mark_epoll(fd, epfd, unmarked);
	/* It is set even if the old value cannot be stored (TFD-04). */
	return r == 0 && old && plx_copy_out(old, &was, sizeof(was)) ? -EFAULT : r;
}

long plx_px_timerfd_gettime(int fd, struct itimerspec *value)
{
	PLX_INSIDE();
	struct itimerspec left;
	struct plx_timer *t;
	int64_t now;
	long r = 0;

	plx_rcu_read_lock();
	t = timer_lock(file_timer(plx_table_peek(fd)));
	if (!t) {
		plx_rcu_read_unlock();
		return PLX_PASS;
	}
	now = t->pe ? plx_now_ns() : 0;
	if (t->pe && now < t->want) {
		time_left(t, now, &left);
	} else {
		if (t->pe)
			make_true(t, false);
		r = plx_sys2(SYS_timerfd_gettime, t->fd, &left);
	}
	timer_unlock(t);
	plx_rcu_read_unlock();
	return r == 0 && plx_copy_out(value, &left, sizeof(left)) ? -EFAULT : r;
}

/* --- everything else ------------------------------------------------------------------------ */

/*
 * One that blocks may sleep in the kernel while others set the timer: no laziness any more. Who
 * provides the program's memory may wait for the section (userfaultfd): it is stored after that.
 */
long plx_timer_read(struct pollux_file *f, int fd, void *buf, size_t n)
{
	struct plx_timer *t = timer_lock(file_timer(f));
	/* The kernel refuses such a buffer before it takes anything. */
	bool passes = t && (!t->nonblock || n < sizeof(uint64_t) || !plx_user_range(buf, n));
	bool blocks = t && !t->nonblock;
	uint64_t value;
	long r = PLX_PASS;

	if (t) {
		if (t->pe)
			make_true(t, false);
		if (!passes)
			r = plx_sys3(SYS_read, t->fd, &value, sizeof(value));
		timer_unlock(t);
	}
	plx_rcu_read_unlock();
	if (blocks && plx_timer_escape(fd))
		plx_px_evicted(PLX_OUT_TIMER_READ, 1);
	/* The expirations are gone even if they cannot be stored. */
	if (r == sizeof(value) && plx_unlikely(plx_copy_out(buf, &value, sizeof(value))))
		r = -EFAULT;
	return r;
}

long plx_timer_ctl(struct pollux_file *f, struct plx_epoll *pe, int epfd, int op, int fd,
		   struct epoll_event *ev)
{
	struct epoll_event copy;
	bool ours = pe && !plx_load_acq(&pe->evicted), leaves = false;
	struct plx_timer *t;
	long r = PLX_PASS;

	if (op != EPOLL_CTL_DEL && plx_copy_in(&copy, ev, sizeof(copy)))
		return -EFAULT;
	plx_rcu_read_lock();
	t = timer_lock(file_timer(f));
	if (t) {
		if (t->pe)
			make_true(t, false);
		if (ours)
			r = plx_sys4(SYS_epoll_ctl, epfd, op, fd, &copy);
		/* In a second epoll, or in one that we do not know. */
		leaves = op == EPOLL_CTL_ADD && (!ours || (r == 0 && t->epid));
		if (r == 0 && op == EPOLL_CTL_ADD) {
			t->epid = pe->id;
			t->epfd = epfd;
			t->stale = false;
		} else if (r == 0 && op == EPOLL_CTL_DEL && t->epid == pe->id) {
			t->epid = 0;
		}
		if (r == 0 && op != EPOLL_CTL_DEL)
			t->ev = copy;
		timer_unlock(t);
	}
	plx_rcu_read_unlock();
	if (leaves && plx_timer_escape(fd))
		plx_px_evicted(ours ? PLX_OUT_WATCHED : PLX_OUT_FOREIGN_EPOLL, 1);
	return r;
}

/* RCU section open. */
static bool give_up(struct plx_timer *t)
{
	if (!timer_lock(t))
		return false;
	if (t->pe)
		make_true(t, false);
	plx_store(&t->gone, 1);
	timer_unlock(t);
	return true;
}

bool plx_timer_escape(int fd)
{
	struct pollux_file *f, *mine;
	bool escaped = false, taken = false;

	plx_rcu_read_lock();
	mine = f = plx_table_peek(fd);
	if (plx_unlikely(file_timer(f))) {
		escaped = give_up(file_timer(f));
		taken = plx_cas(plx_table_slot(fd), &mine, NULL);
	}
	plx_rcu_read_unlock();
	if (taken)
		plx_file_put_locked(f);
	return escaped;
}

void plx_timer_close(struct pollux_file *f)
{
	(void)give_up(file_timer(f));
}

bool plx_timer_lost(struct pollux_file *f)
{
	struct plx_timer *t;
	struct itimerspec s;
	bool there = false;

	plx_rcu_read_lock();
	t = timer_lock(file_timer(f));
	if (t) {
		/* A new one has not been set. */
		there = t->pe && plx_sys2(SYS_timerfd_gettime, t->fd, &s) == 0 &&
			(s.it_value.tv_sec || s.it_value.tv_nsec);
		if (t->pe && !there)
			not_lazy(t);
		plx_store(&t->gone, !there);
		timer_unlock(t);
	}
	plx_rcu_read_unlock();
	return !there;
}

bool plx_timer_fired(struct plx_epoll *pe, struct epoll_event *ev)
{
	int fd = (int)(ev->data.u64 & (PLX_TIMER_FDS - 1));
	bool expired = false;
	struct plx_timer *t;

	plx_rcu_read_lock();
	t = timer_lock(file_timer(plx_table_peek(fd)));
	if (t) {
		if (t->pe == pe) {
			plx_stat(PLX_STAT_TIMER_EARLY);
			expired = make_true(t, true);
			ev->data = t->ev.data;
		}
		timer_unlock(t);
	}
	plx_rcu_read_unlock();
	return expired;
}

/* Those of the epoll that expire in the kernel up to this time. */
static void each_lazy(struct plx_epoll *pe, int64_t until)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct plx_timer *t;

		plx_rcu_read_lock();
		t = file_timer(plx_table_peek(fd));
		if (t && plx_load(&t->pe) && (t = timer_lock(t))) {
			if (t->pe == pe) {
				if (t->armed <= until)
					make_true(t, false);
				else
					time_before(&pe->soon, t->armed);
			}
			timer_unlock(t);
		}
		plx_rcu_read_unlock();
	}
}

void plx_timers_true(struct plx_epoll *pe)
{
	if (plx_load(&pe->nlazy))
		each_lazy(pe, INT64_MAX);
}

void plx_timers_leave(struct plx_epoll *pe)
{
	plx_store(&pe->notimers, 1);
	/* Partner: become_lazy. */
	plx_mb();
	PLX_DELAY(timer_leave);
	plx_timers_true(pe);
}

void plx_timers_soon(struct plx_epoll *pe)
{
	struct timespec ts;
	int64_t until;

	/* Cheaper, and behind by up to a tick. */
	plx_clock(CLOCK_MONOTONIC_COARSE, &ts);
	until = ts.tv_sec * PLX_NSEC + ts.tv_nsec + 2 * NEAR;
	if (until < plx_load(&pe->soon))
		return;
	plx_store(&pe->soon, INT64_MAX);
	/*
	 * Partner: become_lazy. Who does so is found below, or stores its time after this
	 * (tests/model/timer_soon.pml).
	 */
	plx_mb();
	PLX_DELAY(timer_soon);
	each_lazy(pe, until);
}
