/* SPDX-License-Identifier: MIT */
/* epoll_create, epoll_ctl, epoll_wait and their variants. */
#include "differential.h"

#include <limits.h>
#include <time.h>

/* --- epoll_create ------------------------------------------------------------------- */

static bool create_make(struct gen *g, struct step *s)
{
	static const uint32_t bad[] = {O_NONBLOCK, 1, EPOLL_CLOEXEC | 2, ~0u};

	s->a = pick_free(g);
	s->how = below(g, 4);
	s->flags = chance(g, 30) ? EPOLL_CLOEXEC : 0;
	s->n = rare(g, 20) ? (int)below(g, 3) - 2 : 1 + (int)below(g, 100);
	if (rare(g, 20))
		s->flags = pick(g, bad);
	return s->a != NO_SLOT;
}

static void create_apply(struct model *m, struct step *s)
{
	bool good = s->how == 3 ? s->n > 0 : !(s->flags & ~(uint32_t)EPOLL_CLOEXEC);
	struct obj *o = good ? model_new(m, KIND_EPOLL, false) : NULL;

	if (!o || !model_install(m, s->a, o)) {
		m->me->slot[s->a] = -1;
		if (o)
			o->kind = KIND_NONE;
	}
}

static void create_run(const struct step *s)
{
	int fd;

	if (s->how == 3)
		fd = epoll_create(s->n);
	else if (s->how == 2)
		fd = syscall(SYS_epoll_create1, s->flags);
	else
		fd = epoll_create1(s->flags);
	log_fd(s->a, fd);
}

static void create_text(const struct step *s)
{
	if (s->how == 3)
		call("epoll_create(%d)", s->n);
	else if (s->how == 2)
		call("syscall(SYS_epoll_create1, %#x)", s->flags);
	else
		call("epoll_create1(%s)",
		     s->flags == EPOLL_CLOEXEC ? "EPOLL_CLOEXEC" : number_text(s->flags));
}

/* --- epoll_ctl ----------------------------------------------------------------------- */

/* An object whose registration has more than this is the kernel's. */
#define CACHED_EVENTS                                                                              \
	(EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLET)

static uint32_t make_events(struct gen *g)
{
	static const uint32_t usual[] = {EPOLLIN, EPOLLIN, EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLOUT};
	static const uint32_t in[] = {EPOLLIN,
				      EPOLLIN,
				      EPOLLIN,
				      EPOLLIN | EPOLLRDHUP,
				      EPOLLIN | EPOLLPRI,
				      EPOLLRDNORM,
				      EPOLLHUP | EPOLLIN,
				      EPOLLERR,
				      0};
	static const uint32_t odd[] = {
		0,
		EPOLLIN | EPOLLRDHUP,
		EPOLLIN | EPOLLPRI,
		EPOLLRDNORM,
		EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM,
		EPOLLRDHUP,
		EPOLLERR,
		EPOLLHUP | EPOLLIN,
		EPOLLWRBAND | EPOLLRDBAND,
		EPOLLIN | 0x04000000,
		0x7fffffff & ~(uint32_t)EPOLLEXCLUSIVE,
	};
	bool cached = g->m.profile == PROFILE_INPROC ? !rare(g, 200) : chance(g, 60);
	uint32_t e = cached ? pick(g, in) : chance(g, 88) ? pick(g, usual) : pick(g, odd);

	if (chance(g, 40))
		e |= EPOLLET;
	if (cached)
		return e;
	if (chance(g, 12))
		e |= EPOLLONESHOT;
	if (chance(g, 3))
		e |= EPOLLWAKEUP;
	return e;
}

/* Names the object, as a program's data would; sometimes the same for all, or noise. */
static uint64_t make_data(struct gen *g, int slot)
{
	if (rare(g, 15))
		return 7;
	return rare(g, 20) ? rnd(g) : 0x100 * (1 + below(g, 200)) + (uint8_t)slot;
}

static bool ctl_make(struct gen *g, struct step *s)
{
	static const int bad_op[] = {0, 4, -1, 1000};
	struct obj *ep, *o;
	struct item *it = NULL;
	bool nested = g->m.profile == PROFILE_NESTED || g->m.profile == PROFILE_FORK;
	uint32_t kinds = POLLABLE;

	s->a = pick_slot_or_hidden(g, KINDS(KIND_EPOLL));
	if (s->a == NO_SLOT)
		return false;
	/* An epoll in an epoll puts both out of Pollux's hands. */
	if (nested ? chance(g, 60) : !rare(g, 150))
		kinds &= ~KINDS(KIND_EPOLL);
	else if (nested)
		kinds = KINDS(KIND_EPOLL);
	if (rare(g, 60))
		kinds = ANY_KIND;
	s->b = pick_slot_or_hidden(g, kinds);
	if (s->b == NO_SLOT)
		return false;
	ep = model_obj_kind(&g->m, s->a, KIND_EPOLL);
	o = model_obj(&g->m, s->b);
	if (ep && o)
		it = model_item(&g->m, ep, o, model_number(&g->m, s->b));
	/* A second epoll that watches it puts it out of Pollux's hands. */
	if (g->m.profile == PROFILE_INPROC && o && o->kind == KIND_EVENTFD &&
	    model_watched(&g->m, o, ep) && !rare(g, 40))
		return false;
	if (it)
		s->n = chance(g, 55)   ? EPOLL_CTL_MOD
		       : chance(g, 80) ? EPOLL_CTL_DEL
				       : EPOLL_CTL_ADD;
	else
		s->n = chance(g, 92)   ? EPOLL_CTL_ADD
		       : chance(g, 50) ? EPOLL_CTL_MOD
				       : EPOLL_CTL_DEL;
	if (rare(g, 100))
		s->n = pick(g, bad_op);
	s->flags = make_events(g);
	if (it && s->n == EPOLL_CTL_MOD && chance(g, 30))
		s->flags = it->events;
	if ((s->n == EPOLL_CTL_ADD ? chance(g, 4) : rare(g, 100)) &&
	    (g->m.profile != PROFILE_INPROC || rare(g, 40)))
		s->flags = (chance(g, 85) ? s->flags & (EPOLLIN | EPOLLOUT | EPOLLET) : s->flags) |
			   EPOLLEXCLUSIVE;
	s->u = make_data(g, s->b);
	s->how = below(g, 4);
	if (rare(g, 50)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, sizeof(struct epoll_event) + 1);
	}
	return true;
}

static bool ctl_readable(const struct step *s)
{
	return s->ptr == PTR_GOOD || s->ptr == PTR_READONLY ||
	       (s->ptr == PTR_EDGE && s->room >= sizeof(struct epoll_event));
}

static void ctl_apply(struct model *m, struct step *s)
{
	const uint32_t exclusive_ok =
		EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
	struct obj *ep = model_obj(m, s->a), *o = model_obj(m, s->b);
	int number = model_number(m, s->b);
	struct item *it;
	/* Other memory that can be read is zeros. */
	uint32_t flags = s->ptr == PTR_GOOD ? s->flags : 0;
	bool unsure;

	if (!ep || !o || (s->n != EPOLL_CTL_DEL && !ctl_readable(s)))
		return;
	unsure = ep->unsure || o->unsure;
	if (o->kind == KIND_EPOLL && ep != o && ep->kind == KIND_EPOLL) {
		/*
		 * By a number that is not known it is a file of the kernel's, like any other. One
		 * that is inherited is not known where the process had not adopted anything yet.
		 */
		if (unsure || o->unknown || (model_moves && o->where <= AT_EITHER)) {
			model_escape_maybe(m, o);
			model_escape_maybe(m, ep);
		} else if (s->n == EPOLL_CTL_ADD) {
			model_escape_pair(m, o, ep);
		}
	} else if (kind_adopted(o->kind) && ep->where <= AT_EITHER) {
		model_escape_maybe(m, o);
		if (ep->kind == KIND_EPOLL && ep->where == AT_KERNEL && !unsure &&
		    s->n == EPOLL_CTL_ADD)
			model_escape(m, o);
	} else if (o->kind == KIND_EVENTFD && s->n != EPOLL_CTL_DEL &&
		   ((flags & ~(uint32_t)CACHED_EVENTS) || model_watched(m, o, ep))) {
		model_escape_maybe(m, o);
	}
	if (ep->kind != KIND_EPOLL || o->kind == KIND_PLAIN)
		return;
	/* No circles, so that what is watched can be settled before what watches it. */
	if (s->n == EPOLL_CTL_ADD && model_reaches(m, o, ep))
		return;
	if (s->n != EPOLL_CTL_DEL && (flags & EPOLLEXCLUSIVE) &&
	    (s->n == EPOLL_CTL_MOD || o->kind == KIND_EPOLL || (flags & ~exclusive_ok)))
		return;
	it = model_item(m, ep, o, number);
	if (s->n == EPOLL_CTL_DEL) {
		if (it)
			model_del_item(ep, it);
		return;
	}
	if (s->n == EPOLL_CTL_ADD)
		it = it ? NULL : model_add_item(m, ep, o, number);
	else if (s->n != EPOLL_CTL_MOD || (it && (it->events & EPOLLEXCLUSIVE)))
		it = NULL;
	if (!it)
		return;
	if (s->n == EPOLL_CTL_MOD)
		model_modified(m, ep);
	it->events = flags;
	it->data = s->ptr == PTR_GOOD ? s->u : 0;
}

static void ctl_run(const struct step *s)
{
	struct epoll_event ev = {.events = s->flags, .data.u64 = s->u};
	struct epoll_event *p = pointer(s, &ev);
	long r;

	if (s->n == EPOLL_CTL_DEL && s->ptr == PTR_GOOD && s->how & 2)
		p = NULL;
	if (s->how == 1)
		r = syscall(SYS_epoll_ctl, number_of(s->a), s->n, number_of(s->b), p);
	else
		r = epoll_ctl(number_of(s->a), s->n, number_of(s->b), p);
	log_ret(r);
}

static void events_text(uint32_t e)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{EPOLLIN, "EPOLLIN"},	      {EPOLLOUT, "EPOLLOUT"},
		{EPOLLPRI, "EPOLLPRI"},	      {EPOLLRDHUP, "EPOLLRDHUP"},
		{EPOLLERR, "EPOLLERR"},	      {EPOLLHUP, "EPOLLHUP"},
		{EPOLLET, "EPOLLET"},	      {EPOLLONESHOT, "EPOLLONESHOT"},
		{EPOLLWAKEUP, "EPOLLWAKEUP"}, {EPOLLEXCLUSIVE, "EPOLLEXCLUSIVE"},
	};
	const char *bar = "";

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		if (!(e & names[k].bit))
			continue;
		call("%s%s", bar, names[k].name);
		bar = " | ";
		e &= ~names[k].bit;
	}
	if (e || !*bar)
		call("%s%#x", bar, e);
}

static void ctl_text(const struct step *s)
{
	static const char *const names[] = {[EPOLL_CTL_ADD] = "EPOLL_CTL_ADD",
					    [EPOLL_CTL_DEL] = "EPOLL_CTL_DEL",
					    [EPOLL_CTL_MOD] = "EPOLL_CTL_MOD"};

	call(s->how == 1 ? "syscall(SYS_epoll_ctl, %s, " : "epoll_ctl(%s, ", slot_name(s->a));
	if (s->n >= 1 && s->n <= 3)
		call("%s, ", names[s->n]);
	else
		call("%d, ", s->n);
	call("%s, ", slot_name(s->b));
	if (s->ptr != PTR_GOOD || s->n == EPOLL_CTL_DEL) {
		call("%s)", ptr_name(s, "NULL"));
		return;
	}
	call("&(struct epoll_event){.events = ");
	events_text(s->flags);
	call(", .data.u64 = %s})", number_text(s->u));
}

/* --- epoll_wait ------------------------------------------------------------------------ */

enum wait_time {
	/* A poll. */
	TIME_ZERO,
	/* 1 ms: longer than nothing, and nothing comes meanwhile. */
	TIME_SHORT,
	/* For ever, ended by a signal if there is nothing. */
	TIME_EVER,
};

static bool wait_make(struct gen *g, struct step *s)
{
	static const int bad[] = {0, -1, INT_MIN, INT_MAX, 178956971, 178956970};

	s->a = pick_slot_or_hidden(g, KINDS(KIND_EPOLL));
	s->how = below(g, 6);
	s->n = chance(g, 35) ? 1 : chance(g, 50) ? 2 + below(g, 3) : EVENTS;
	if (rare(g, 60))
		s->n = pick(g, bad);
	if (rare(g, 50)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, 3 * sizeof(struct epoll_event) + 2);
	}
	if (rare(g, 1500))
		s->flags = TIME_SHORT + below(g, 2);
	return s->a != NO_SLOT;
}

static bool watches_timer(struct model *m, const struct obj *ep)
{
	for (int i = 0; i < ep->nitems; i++)
		if (m->objs[ep->items[i].obj].kind == KIND_TIMER)
			return true;
	return false;
}

static void wait_apply(struct model *m, struct step *s)
{
	struct obj *ep = model_obj_kind(m, s->a, KIND_EPOLL);

	if (!ep)
		return;
	/* Where no doorbell is to be had, who is about to sleep leaves all to the kernel. */
	if (m->me->limit < LOW_NUMBERS && (s->flags != TIME_ZERO || storming))
		model_leaves_first(m, s, s->a);
	if (!ep->any_order) {
		/* Timers lose their places by a wait that cannot store what it has asked for. */
		if (s->ptr == PTR_EDGE && watches_timer(m, ep))
			model_order_lost(m, ep);
		return;
	}
	/* All or nothing: which events come first is not determined. */
	s->any_order = true;
	if (s->n > 0 && s->n < EVENTS)
		s->n = EVENTS;
	if (s->ptr == PTR_EDGE)
		s->ptr = PTR_GOOD;
}

static int wait_call(const struct step *s, struct epoll_event *ev)
{
	int time = s->flags == TIME_ZERO && storm_sleeps() ? TIME_EVER : (int)s->flags;
	struct timespec ts = {.tv_nsec = time == TIME_SHORT ? 1000000 : 0};
	int ms = time == TIME_EVER ? -1 : time == TIME_SHORT;
	struct timespec *tp = time == TIME_EVER ? NULL : &ts;
	int fd = number_of(s->a);
	sigset_t mask;

	sigemptyset(&mask);
	switch (s->how) {
	case 1:
		return epoll_pwait(fd, ev, s->n, ms, NULL);
	case 2:
		return epoll_pwait(fd, ev, s->n, ms, &mask);
	case 3:
		return epoll_pwait2(fd, ev, s->n, tp, NULL);
	case 4:
		return RAW_EPOLL_WAIT(fd, ev, s->n, ms);
	default:
		return epoll_wait(fd, ev, s->n, ms);
	}
}

static int64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void wait_run(const struct step *s)
{
	static struct epoll_event ev[EVENTS + 2];
	struct epoll_event *p = pointer(s, ev);
	int64_t start = 0;
	bool before = false;
	int n;

	memset(ev, 0xa5, sizeof(ev));
	if (s->flags == TIME_EVER)
		ticks_start();
	else if (s->flags == TIME_SHORT)
		start = clock_ns();
	do
		n = wait_call(s, p);
	while (s->flags == TIME_SHORT && storm_again(n, &before));
	if (s->flags == TIME_EVER)
		ticks_stop();
	log_ret(n);
	if (s->flags == TIME_SHORT && n == 0)
		log_value("early", clock_ns() - start < 1000000);
	if (n > 0 && p != ev)
		memcpy(ev, p, n * sizeof(*ev));
	if (n > 0)
		log_events(s, ev, n);
	/* Nothing beyond the result is written (EP-ARG-05). */
	for (int i = n > 0 ? n : 0; p == ev && i < EVENTS + 2; i++)
		if (ev[i].events != 0xa5a5a5a5u || ev[i].data.u64 != 0xa5a5a5a5a5a5a5a5ull)
			log_note("event %d was written", i);
}

static void wait_text(const struct step *s)
{
	const char *ms = s->flags == TIME_EVER ? "-1" : s->flags == TIME_SHORT ? "1" : "0";
	const char *fd = slot_name(s->a), *p = ptr_name(s, "ev");

	switch (s->how) {
	case 1:
		call("epoll_pwait(%s, %s, %d, %s, NULL)", fd, p, s->n, ms);
		break;
	case 2:
		call("epoll_pwait(%s, %s, %d, %s, &empty_mask)", fd, p, s->n, ms);
		break;
	case 3:
		call("epoll_pwait2(%s, %s, %d, %s, NULL)", fd, p, s->n,
		     s->flags == TIME_EVER ? "NULL"
		     : s->flags		   ? "&(struct timespec){0, 1000000}"
					   : "&(struct timespec){0}");
		break;
	case 4:
		call(RAW_EPOLL_WAIT_TEXT, fd, p, s->n, ms);
		break;
	default:
		call("epoll_wait(%s, %s, %d, %s)", fd, p, s->n, ms);
	}
}

const struct op ops_epoll[] = {
	{"new_epoll", {16, 14, 30, 12}, create_make, create_apply, create_run, create_text, false},
	{"ctl", {60, 60, 80, 60}, ctl_make, ctl_apply, ctl_run, ctl_text, true},
	{"wait", {60, 60, 60, 60}, wait_make, wait_apply, wait_run, wait_text, true},
	{0},
};
