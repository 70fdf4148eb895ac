/* SPDX-License-Identifier: MIT */
/*
 * timerfds: far off, or expired before the next step. A timer that is about to expire is
 * waited for, so that what is compared does not depend on when.
 */
#include "differential.h"

#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>

static bool new_make(struct gen *g, struct step *s)
{
	static const int clocks[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC, CLOCK_REALTIME,
				     CLOCK_BOOTTIME};

	s->a = pick_free(g);
	s->how = below(g, 3);
	s->n = rare(g, 30) ? pick(g, ((const int[]){-1, 4, 99, CLOCK_PROCESS_CPUTIME_ID}))
			   : pick(g, clocks);
	s->flags = chance(g, 90) ? TFD_NONBLOCK : 0;
	if (chance(g, 25))
		s->flags |= TFD_CLOEXEC;
	if (rare(g, 40))
		s->flags |= 1;
	return s->a != NO_SLOT;
}

static void new_apply(struct model *m, struct step *s)
{
	bool clock = s->n == CLOCK_MONOTONIC || s->n == CLOCK_REALTIME || s->n == CLOCK_BOOTTIME;
	struct obj *o =
		clock && !(s->flags & 1) ? model_new(m, KIND_TIMER, s->flags & TFD_NONBLOCK) : NULL;

	if (!o || !model_install(m, s->a, o)) {
		m->me->slot[s->a] = -1;
		if (o)
			o->kind = KIND_NONE;
	} else {
		o->count = s->n;
	}
}

static void new_run(const struct step *s)
{
	log_fd(s->a, s->how == 2 ? (int)syscall(SYS_timerfd_create, s->n, s->flags)
				 : timerfd_create(s->n, s->flags));
}

static void new_text(const struct step *s)
{
	call("timerfd_create(%d, %#x)", s->n, s->flags);
}

/* --- timerfd_settime ------------------------------------------------------------------- */

enum when {
	WHEN_NEVER,
	/* In 1000 s. */
	WHEN_FAR,
	/* In 1000 s, every 1000 s. */
	WHEN_FAR_PERIODIC,
	/* In 20 us, waited for. */
	WHEN_NEAR,
	/* A second after the clock's beginning. */
	WHEN_PAST,
	/* 2500 s ago and every 1000 s: has expired three times for the next 500 s. */
	WHEN_PAST_PERIODIC,
	WHEN_BAD_NSEC,
	WHEN_BAD_INTERVAL,
	WHEN_NEGATIVE,
	WHEN_BAD_FLAGS,
	WHEN_COUNT,
};

static bool set_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, rare(g, 40) ? ANY_KIND : KINDS(KIND_TIMER));
	if (s->a == NO_SLOT)
		return false;
	s->n = chance(g, 90) ? below(g, WHEN_BAD_NSEC) : below(g, WHEN_COUNT);
	/* Whether the old value is asked for. */
	s->how = below(g, 2);
	if (rare(g, 40)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, 40);
	}
	return true;
}

static void set_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj_kind(m, s->a, KIND_TIMER);

	/* Only the real-time clock is sure to have had 2500 s. */
	s->u = o ? o->count : CLOCK_REALTIME;
	if (s->n == WHEN_PAST_PERIODIC && s->u != CLOCK_REALTIME)
		s->n = WHEN_PAST;
}

static int make_spec(const struct step *s, struct itimerspec *spec)
{
	int flags = 0;

	memset(spec, 0, sizeof(*spec));
	switch (s->n) {
	case WHEN_FAR_PERIODIC:
		spec->it_interval.tv_sec = 1000;
		spec->it_value.tv_sec = 1000;
		break;
	case WHEN_FAR:
		spec->it_value.tv_sec = 1000;
		break;
	case WHEN_NEAR:
		spec->it_value.tv_nsec = 20000;
		break;
	case WHEN_PAST:
		spec->it_value.tv_sec = 1;
		flags = TFD_TIMER_ABSTIME;
		break;
	case WHEN_PAST_PERIODIC:
		clock_gettime(CLOCK_REALTIME, &spec->it_value);
		spec->it_value.tv_sec -= 2500;
		spec->it_interval.tv_sec = 1000;
		flags = TFD_TIMER_ABSTIME;
		break;
	case WHEN_BAD_NSEC:
		spec->it_value.tv_nsec = 1000000000;
		break;
	case WHEN_BAD_INTERVAL:
		spec->it_value.tv_sec = 1000;
		spec->it_interval.tv_nsec = -1;
		break;
	case WHEN_NEGATIVE:
		spec->it_value.tv_sec = -1;
		break;
	case WHEN_BAD_FLAGS:
		flags = 64;
		break;
	default:
		break;
	}
	return flags;
}

/* Times that differ by what a run may take are the same: in units of 100 s. */
static void log_spec(const struct itimerspec *spec)
{
	log_value("old.it_interval.tv_sec", spec->it_interval.tv_sec);
	log_value("old.it_interval.tv_nsec", spec->it_interval.tv_nsec);
	log_value("(old.it_value.tv_sec + 50) / 100", (spec->it_value.tv_sec + 50) / 100);
	log_value("old.it_value.tv_sec || old.it_value.tv_nsec",
		  spec->it_value.tv_sec || spec->it_value.tv_nsec);
}

static void set_run(const struct step *s)
{
	struct itimerspec spec, old = {0}, *p;
	int fd = number_of(s->a), flags = make_spec(s, &spec), r;

	p = pointer(s, &spec);
	r = timerfd_settime(fd, flags, p, s->how ? &old : NULL);
	log_ret(r);
	if (r == 0 && s->how)
		log_spec(&old);
	if (r == 0 && s->n >= WHEN_NEAR && s->n <= WHEN_PAST_PERIODIC && s->ptr == PTR_GOOD) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};

		do
			r = poll(&pfd, 1, 10000);
		while (storm_ended(r));
		log_value("poll(&pfd, 1, 10000)", r);
	}
}

static void set_text(const struct step *s)
{
	static const char *const specs[] = {
		[WHEN_NEVER] = "{{0}, {0}}",
		[WHEN_FAR] = "{{0}, {1000, 0}}",
		[WHEN_FAR_PERIODIC] = "{{1000, 0}, {1000, 0}}",
		[WHEN_NEAR] = "{{0}, {0, 20000}}",
		[WHEN_PAST] = "{{0}, {1, 0}}",
		[WHEN_PAST_PERIODIC] = "{{1000, 0}, {time(NULL) - 2500, 0}}",
		[WHEN_BAD_NSEC] = "{{0}, {0, 1000000000}}",
		[WHEN_BAD_INTERVAL] = "{{0, -1}, {1000, 0}}",
		[WHEN_NEGATIVE] = "{{0}, {-1, 0}}",
		[WHEN_BAD_FLAGS] = "{{0}, {0}}",
	};
	struct itimerspec spec;
	char good[80];

	snprintf(good, sizeof(good), "&(struct itimerspec)%s", specs[s->n]);
	call("timerfd_settime(%s, %d, %s, %s)", slot_name(s->a), make_spec(s, &spec),
	     ptr_name(s, good), s->how ? "&old" : "NULL");
}

/* --- a timer that a loop watches -----------------------------------------------------------
 *
 * One whose settings the kernel need not be told.
 */
static bool watched_make(struct gen *g, struct step *s)
{
	s->a = pick_free(g);
	s->b = pick_slot(g, KINDS(KIND_EPOLL));
	s->u = 0x100 * (1 + below(g, 200)) + (uint8_t)s->a;
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

static void watched_apply(struct model *m, struct step *s)
{
	struct obj *ep = model_obj_kind(m, s->b, KIND_EPOLL);
	struct obj *o = model_new(m, KIND_TIMER, true);
	struct item *it;

	if (!o || !model_install(m, s->a, o)) {
		m->me->slot[s->a] = -1;
		if (o)
			o->kind = KIND_NONE;
		return;
	}
	o->count = CLOCK_MONOTONIC;
	it = ep ? model_add_item(m, ep, o, model_number(m, s->a)) : NULL;
	if (it)
		it->events = EPOLLIN;
}

static void watched_run(const struct step *s)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = s->u};

	log_fd(s->a, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	log_value("epoll_ctl(ep, EPOLL_CTL_ADD, timer, &ev)",
		  epoll_ctl(number_of(s->b), EPOLL_CTL_ADD, number_of(s->a), &ev));
}

static void watched_text(const struct step *s)
{
	call("timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK); ep = %s; timer = %s; ev = (struct "
	     "epoll_event){.events = EPOLLIN, .data.u64 = %s}",
	     slot_name(s->b), slot_name(s->a), number_text(s->u));
}

/* --- set again and again, far off ----------------------------------------------------------
 *
 * The kernel need not be told of each; what comes next may find it told of an earlier one, whose
 * time has passed, perhaps, while the one that is wanted has not, or has.
 */
#define ROW 10

enum row {
	/* Nothing passes. */
	ROW_FAR,
	/* The time of the row does. */
	ROW_EARLY,
	/* And that of the last one, which is looked for. */
	ROW_DUE,
};

/* Mostly one that a loop watches. */
static int pick_watched(struct gen *g)
{
	int8_t found[SLOTS];
	int n = 0;

	for (int i = 0; i < SLOTS; i++) {
		struct obj *o = model_obj_kind(&g->m, i, KIND_TIMER);
		int number = model_number(&g->m, i);
		bool watched = false;

		for (int k = 0; o && k < g->m.nobjs && !watched; k++) {
			struct obj *ep = &g->m.objs[k];
			struct item *it =
				ep->kind == KIND_EPOLL ? model_item(&g->m, ep, o, number) : NULL;

			watched = it && it->events == EPOLLIN;
		}
		if (watched)
			found[n++] = (int8_t)i;
	}
	return n && chance(g, 80) ? found[below(g, n)] : pick_slot(g, KINDS(KIND_TIMER));
}

static bool row_make(struct gen *g, struct step *s)
{
	static const enum when last[] = {WHEN_NEVER, WHEN_FAR, WHEN_FAR, WHEN_FAR_PERIODIC};

	s->a = pick_watched(g);
	s->n = pick(g, last);
	s->u = 2 + below(g, ROW);
	/* They take their time. */
	s->how = !rare(g, 30) ? ROW_FAR : chance(g, 70) ? ROW_EARLY : ROW_DUE;
	return s->a != NO_SLOT;
}

static void row_apply(struct model *m, struct step *s)
{
	(void)m;
	(void)s;
}

/* To a point of time: signals take none of what is left of it. */
static void pass_ms(int ms)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += ms * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

static void row_run(const struct step *s)
{
	struct itimerspec spec = {0}, old = {0};
	int fd = number_of(s->a), r = 0, flags;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (uint64_t i = 0; i < s->u; i++) {
		spec.it_value.tv_sec = s->how == ROW_FAR ? 1000 : 0;
		spec.it_value.tv_nsec = s->how == ROW_FAR ? 0 : 40000000;
		r = timerfd_settime(fd, 0, &spec, &old);
		if (r == 0 && i && s->how == ROW_FAR)
			log_spec(&old);
	}
	flags = make_spec(s, &spec);
	if (s->how == ROW_DUE)
		spec = (struct itimerspec){.it_value.tv_nsec = 45000000};
	log_ret(r ? r : timerfd_settime(fd, flags, &spec, &old));
	if (r == 0 && s->how == ROW_FAR)
		log_spec(&old);
	if (s->how != ROW_FAR)
		pass_ms(45);
	if (r == 0 && s->how == ROW_DUE) {
		while (timerfd_gettime(fd, &old) == 0 && old.it_value.tv_nsec)
			pass_ms(1);
		/* No time is left, and yet the interrupt of another CPU may be late. */
		while (poll(&p, 1, 0) < 1)
			pass_ms(1);
		log_spec(&old);
	}
}

static void row_text(const struct step *s)
{
	call("for (int i = 0; i < %d; i++) timerfd_settime(%s, 0, {{0}, %s}, &old); "
	     "timerfd_settime(%s, 0, &last_%d, &old)",
	     (int)s->u, slot_name(s->a), s->how == ROW_FAR ? "{1000, 0}" : "{0, 40000000}",
	     slot_name(s->a), s->how == ROW_DUE ? -1 : s->n);
	if (s->how != ROW_FAR)
		call("; usleep(45000)");
	if (s->how == ROW_DUE)
		call("; timerfd_gettime(%s, &old); poll({%s, POLLIN}, 1, -1)", slot_name(s->a),
		     slot_name(s->a));
}

/* --- timerfd_gettime and ioctl ----------------------------------------------------------- */

static bool get_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, KINDS(KIND_TIMER));
	s->how = rare(g, 10);
	s->u = below(g, 4);
	return s->a != NO_SLOT;
}

static void get_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	if (s->how && o && o->kind != KIND_EPOLL)
		model_escape_maybe(m, o);
}

static void get_run(const struct step *s)
{
	struct itimerspec old = {0};
	int fd = number_of(s->a), r;

	if (s->how) {
		log_ret(ioctl(fd, _IOW('T', 0, uint64_t), &s->u));
		return;
	}
	r = timerfd_gettime(fd, &old);
	log_ret(r);
	if (r == 0)
		log_spec(&old);
}

static void get_text(const struct step *s)
{
	if (s->how)
		call("ioctl(%s, TFD_IOC_SET_TICKS, &(uint64_t){%s})", slot_name(s->a),
		     number_text(s->u));
	else
		call("timerfd_gettime(%s, &old)", slot_name(s->a));
}

const struct op ops_timer[] = {
	{"new_timer", {0, 10, 3, 5}, new_make, new_apply, new_run, new_text, false},
	{"new_watched_timer",
	 {0, 8, 4, 6},
	 watched_make,
	 watched_apply,
	 watched_run,
	 watched_text,
	 false},
	{"settime", {0, 12, 3, 6}, set_make, set_apply, set_run, set_text, false},
	{"rearm", {0, 30, 8, 15}, row_make, row_apply, row_run, row_text, false},
	{"gettime", {0, 3, 1, 2}, get_make, get_apply, get_run, get_text, false},
	{0},
};
