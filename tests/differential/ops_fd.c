/* SPDX-License-Identifier: MIT */
/* Descriptors: close, dup, fcntl, ioctl, fstat, fdinfo, limits. */
#include "differential.h"

#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* --- a file without a poll operation ---------------------------------------------------- */

static bool plain_make(struct gen *g, struct step *s)
{
	s->a = pick_free(g);
	return s->a != NO_SLOT;
}

static void plain_apply(struct model *m, struct step *s)
{
	struct obj *o = model_new(m, KIND_PLAIN, false);

	if (!o || !model_install(m, s->a, o)) {
		m->me->slot[s->a] = -1;
		if (o)
			o->kind = KIND_NONE;
	}
}

static void plain_run(const struct step *s)
{
	log_fd(s->a, open("/dev/null", O_RDWR));
}

static void plain_text(const struct step *s)
{
	(void)s;
	call("open(\"/dev/null\", O_RDWR)");
}

/* --- close, close_range ----------------------------------------------------------------- */

static bool close_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_hidden(g, ANY_KIND);
	s->how = rare(g, 4);
	return s->a != NO_SLOT;
}

static void close_apply(struct model *m, struct step *s)
{
	model_close(m, model_number(m, s->a));
}

static void close_run(const struct step *s)
{
	int fd = number_of(s->a);

	log_ret(s->how ? syscall(SYS_close, fd) : close(fd));
}

static void close_text(const struct step *s)
{
	call(s->how ? "syscall(SYS_close, %s)" : "close(%s)", slot_name(s->a));
}

static bool range_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_hidden(g, ANY_KIND);
	s->n = below(g, 3);
	s->flags = chance(g, 30) ? CLOSE_RANGE_CLOEXEC : rare(g, 20) ? 8 : 0;
	s->how = below(g, 3);
	return s->a != NO_SLOT;
}

static void range_apply(struct model *m, struct step *s)
{
	int first = model_number(m, s->a);

	/* A bad number is a huge one here. */
	s->skip = s->a < 0 || first < 0;
	for (int i = 0; !s->skip && !s->flags && i <= s->n; i++) {
		struct obj *o = model_obj_at(m, first + i);

		/* One with items that has another number, too, is written back. */
		if (o && o->kind == KIND_EPOLL)
			model_escape_maybe(m, o);
		model_close(m, first + i);
	}
}

static void range_run(const struct step *s)
{
	unsigned int first = number_of(s->a);

	if (number_of(s->a) < 0) {
		log_left_out("no number");
		return;
	}
	log_ret(s->how ? close_range(first, first + s->n, s->flags)
		       : (int)syscall(SYS_close_range, first, first + s->n, s->flags));
}

static void range_text(const struct step *s)
{
	const char *name = slot_name(s->a);

	call("close_range(%s, %s + %d, %s)", name, name, s->n,
	     s->flags == CLOSE_RANGE_CLOEXEC ? "CLOSE_RANGE_CLOEXEC" : number_text(s->flags));
}

/* --- dup, dup2, dup3, F_DUPFD ------------------------------------------------------------ */

enum dup_how {
	DUP_DUP,
	DUP_SYSCALL,
	DUP_FCNTL,
	DUP_FCNTL_CLOEXEC,
	DUP_FCNTL_FROM,
};

/* An eventfd that gets a second number is the kernel's. */
static uint32_t dup_kinds(struct gen *g)
{
	return g->m.profile == PROFILE_INPROC && !rare(g, 40) ? ANY_KIND & ~KINDS(KIND_EVENTFD)
							      : ANY_KIND;
}

static void dup_escapes(struct model *m, struct obj *o)
{
	if (o && o->kind == KIND_EVENTFD)
		model_escape_maybe(m, o);
}

static bool dup_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_hidden(g, dup_kinds(g));
	s->b = pick_free(g);
	s->how = below(g, 5);
	s->n = rare(g, 20) ? (rare(g, 2) ? -1 : 1 << 30) : (int)below(g, 20);
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

static void dup_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);
	bool from = s->how == DUP_FCNTL_FROM;

	/* Nobody knows whether it has been received. */
	s->skip = model_number(m, s->a) >= RECEIVED && o;
	if (s->skip)
		return;
	dup_escapes(m, o);
	m->me->slot[s->b] = -1;
	if (o && (!from || (s->n >= 0 && s->n < m->me->limit)))
		model_install_from(m, s->b, o, from ? s->n : 0);
}

static void dup_run(const struct step *s)
{
	int fd = number_of(s->a), r;

	switch (s->how) {
	case DUP_SYSCALL:
		r = syscall(SYS_dup, fd);
		break;
	case DUP_FCNTL:
		r = fcntl(fd, F_DUPFD, 0);
		break;
	case DUP_FCNTL_CLOEXEC:
		r = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		break;
	case DUP_FCNTL_FROM:
		r = fcntl(fd, F_DUPFD, s->n);
		break;
	default:
		r = dup(fd);
	}
	log_fd(s->b, r);
}

static void dup_text(const struct step *s)
{
	if (s->how == DUP_FCNTL_FROM)
		call("fcntl(%s, F_DUPFD, %d)", slot_name(s->a), s->n);
	else
		call(s->how == DUP_DUP	     ? "dup(%s)"
		     : s->how == DUP_SYSCALL ? "syscall(SYS_dup, %s)"
		     : s->how == DUP_FCNTL   ? "fcntl(%s, F_DUPFD, 0)"
					     : "fcntl(%s, F_DUPFD_CLOEXEC, 0)",
		     slot_name(s->a));
}

/* Both objects of a dup2 are the kernel's. */
static uint32_t dup2_kinds(struct gen *g)
{
	return g->m.profile == PROFILE_INPROC && !rare(g, 40)
		       ? ANY_KIND & ~KINDS(KIND_EVENTFD) & ~KINDS(KIND_EPOLL)
		       : ANY_KIND;
}

static bool dup2_make(struct gen *g, struct step *s)
{
	uint32_t kinds = dup2_kinds(g);
	struct obj *o;

	s->a = pick_slot_or_hidden(g, kinds);
	/* Onto something open, onto a number given up, onto one far up. */
	s->b = rare(g, 3) ? pick_slot(g, kinds) : (int)below(g, SLOTS);
	o = s->b == NO_SLOT ? NULL : model_obj(&g->m, s->b);
	if (o && !(KINDS(o->kind) & kinds))
		return false;
	s->how = below(g, 4);
	s->flags = chance(g, 25) ? O_CLOEXEC : rare(g, 20) ? O_NONBLOCK : 0;
	s->n = rare(g, 8) ? HIGH_NUMBER + (int)below(g, HIGH_NUMBERS) : -1;
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

/* Of numbers that are given; one that is open already stays good above the limit. */
static bool beyond_limit(struct model *m, int number)
{
	return number < LOW_NUMBERS ? number >= m->me->limit : m->me->limit < LOW_NUMBERS;
}

static int dup2_target(struct model *m, const struct step *s)
{
	return s->n >= 0 ? s->n : model_number(m, s->b);
}

static void dup2_apply(struct model *m, struct step *s)
{
	int to = dup2_target(m, s), from = model_number(m, s->a);
	struct obj *o = model_obj(m, s->a), *was = model_obj_at(m, to);
	bool three = s->how >= 2, refused = to < 0;

	/* Numbers below the first are not the sequence's. */
	s->skip = (s->n < 0 && to < FIRST_NUMBER && to != -1) || (from >= RECEIVED && o);
	if (s->skip)
		return;
	if (!o)
		return;
	refused |= three && ((s->flags & O_NONBLOCK) || to == from);
	/* What is noted leaves, whatever the kernel says to the call. */
	if (refused || to == from)
		model_escape_maybe(m, o);
	if (refused)
		return;
	/* Both, an epoll with all that it watches; before the kernel refuses it. */
	if (to != from) {
		model_escape(m, o);
		if (was)
			(was->unsure ? model_escape_maybe : model_escape)(m, was);
		if (was && beyond_limit(m, to))
			was->unknown = true;
		if (beyond_limit(m, to))
			return;
		o->unknown = true;
	}
	m->me->slot[s->b] = to;
	if (to != from)
		model_replace(m, to, o);
}

static void dup2_run(const struct step *s)
{
	int from = number_of(s->a), to = s->n >= 0 ? s->n : number_of(s->b), r;

	if (to >= 0 && to < FIRST_NUMBER) {
		log_left_out("not ours");
		return;
	}
	switch (s->how) {
	case 1:
		r = RAW_DUP2(from, to);
		break;
	case 2:
		r = dup3(from, to, s->flags);
		break;
	case 3:
		r = syscall(SYS_dup3, from, to, s->flags);
		break;
	default:
		r = dup2(from, to);
	}
	log_ret(r);
	if (r >= 0)
		set_slot(s->b, r);
	if (s->n >= 0 && r >= 0)
		say("\ts%d = %d;\n", s->b, r);
}

static void dup2_text(const struct step *s)
{
	const char *to = s->n >= 0 ? number_text(s->n) : slot_name(s->b);

	if (s->how < 2)
		call(s->how ? RAW_DUP2_TEXT : "dup2(%s, %s)", slot_name(s->a), to);
	else
		call(s->how == 3 ? "syscall(SYS_dup3, %s, %s, %s)" : "dup3(%s, %s, %s)",
		     slot_name(s->a), to,
		     s->flags == O_CLOEXEC    ? "O_CLOEXEC"
		     : s->flags == O_NONBLOCK ? "O_NONBLOCK"
					      : "0");
}

/* --- flags --------------------------------------------------------------------------------- */

enum flag_call {
	GET_FD,
	SET_FD,
	GET_FL,
	SET_FL,
	FIO_NBIO,
	LSEEK,
	FSTAT,
	GET_OWNER,
	ODD_IOCTL,
	FLAG_CALLS,
};

static bool flags_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, ANY_KIND);
	s->n = below(g, rare(g, 10) ? FLAG_CALLS : GET_OWNER);
	s->how = below(g, 2);
	s->flags = chance(g, g->m.profile == PROFILE_INPROC ? 97 : 70);
	return s->a != NO_SLOT;
}

static void flags_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	if (!o)
		return;
	if (s->n == SET_FL || s->n == FIO_NBIO) {
		o->nonblock = s->flags;
		if (s->flags)
			model_may_adopt(m, o);
		if (!s->flags && o->kind == KIND_EVENTFD)
			model_escape_maybe(m, o);
	}
	if (s->n >= GET_OWNER && o->kind != KIND_EPOLL)
		model_escape_maybe(m, o);
}

static void flags_run(const struct step *s)
{
	int fd = number_of(s->a), on = s->flags;
	struct stat st;
	long r;

	switch (s->n) {
	case GET_FD:
		r = s->how ? syscall(SYS_fcntl, fd, F_GETFD) : fcntl(fd, F_GETFD);
		break;
	case SET_FD:
		r = fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0);
		break;
	case GET_FL:
		r = s->how ? syscall(SYS_fcntl, fd, F_GETFL) : fcntl(fd, F_GETFL);
		break;
	case SET_FL:
		r = fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0);
		break;
	case FIO_NBIO:
		r = s->how ? syscall(SYS_ioctl, fd, FIONBIO, &on) : ioctl(fd, FIONBIO, &on);
		break;
	case LSEEK:
		r = lseek(fd, 100, on ? SEEK_SET : SEEK_END);
		break;
	case FSTAT:
		memset(&st, 0, sizeof(st));
		r = fstat(fd, &st);
		log_ret(r);
		log_value("st.st_mode", st.st_mode);
		log_value("st.st_nlink", st.st_nlink);
		return;
	case GET_OWNER:
		r = fcntl(fd, F_GETOWN);
		break;
	default:
		r = ioctl(fd, TIOCGPGRP, &on);
	}
	log_ret(r);
}

static void flags_text(const struct step *s)
{
	static const char *const forms[] = {
		[GET_FD] = "fcntl(%s, F_GETFD)",
		[SET_FD] = "fcntl(%s, F_SETFD, %d)",
		[GET_FL] = "fcntl(%s, F_GETFL)",
		[SET_FL] = "fcntl(%s, F_SETFL, %d ? O_NONBLOCK : 0)",
		[FIO_NBIO] = "ioctl(%s, FIONBIO, &(int){%d})",
		[LSEEK] = "lseek(%s, 100, %d ? SEEK_SET : SEEK_END)",
		[FSTAT] = "fstat(%s, &st)",
		[GET_OWNER] = "fcntl(%s, F_GETOWN)",
		[ODD_IOCTL] = "ioctl(%s, TIOCGPGRP, &(int){%d})",
	};
	char form[64];

	snprintf(form, sizeof(form), "%s", forms[s->n]);
	call(form, slot_name(s->a), (int)s->flags);
}

/* --- fdinfo ------------------------------------------------------------------------------------
 */

static bool info_make(struct gen *g, struct step *s)
{
	s->a = pick_slot(g, KINDS(KIND_EPOLL) | KINDS(KIND_EVENTFD));
	return s->a != NO_SLOT;
}

static void info_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	if (o)
		model_escape_maybe(m, o);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What does not depend on the machine, sorted. */
static void info_run(const struct step *s)
{
	char path[64], *text = scratch, *lines[64], *save = NULL;
	int fd, n = 0;
	ssize_t r;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", number_of(s->a));
	fd = open(path, O_RDONLY);
	if (fd < 0) {
		log_ret(fd);
		return;
	}
	r = read(fd, text, SCRATCH - 1);
	close(fd);
	text[r > 0 ? r : 0] = 0;
	for (char *l = strtok_r(text, "\n", &save); l && n < 64; l = strtok_r(NULL, "\n", &save)) {
		char *end;

		if (strncmp(l, "tfd:", 4) && strncmp(l, "eventfd-count", 13) &&
		    strncmp(l, "eventfd-sem", 11) && strncmp(l, "flags:", 6))
			continue;
		end = strstr(l, "pos:");
		if (end)
			*end = 0;
		lines[n++] = l;
	}
	qsort(lines, n, sizeof(*lines), compare_lines);
	for (int i = 0; i < n; i++)
		log_note("%s", lines[i]);
}

static void info_text(const struct step *s)
{
	call("open(fdinfo_path(%s), O_RDONLY)", slot_name(s->a));
	say("\t/* fdinfo of s%d */\n", s->a);
}

/* --- the limit of descriptors --------------------------------------------------------------------
 */

static bool limit_make(struct gen *g, struct step *s)
{
	if (g->m.me->limit == LOW_NUMBERS && !rare(g, 3))
		return false;
	s->n = g->m.me->limit < LOW_NUMBERS ? LOW_NUMBERS : FIRST_NUMBER + (int)below(g, 12);
	return true;
}

static void limit_apply(struct model *m, struct step *s)
{
	m->me->limit = s->n;
}

static rlim_t limit_all;

static void limit_run(const struct step *s)
{
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	if (!limit_all)
		limit_all = lim.rlim_cur;
	lim.rlim_cur = s->n == LOW_NUMBERS ? limit_all : (rlim_t)s->n;
	log_ret(setrlimit(RLIMIT_NOFILE, &lim));
}

static void limit_text(const struct step *s)
{
	if (s->n == LOW_NUMBERS)
		call("limit_restore()");
	else
		call("limit_set(%d)", s->n);
}

const struct op ops_fd[] = {
	{"new_plain", {2, 2, 1, 1}, plain_make, plain_apply, plain_run, plain_text, false},
	{"close", {14, 16, 14, 16}, close_make, close_apply, close_run, close_text, true},
	{"close_range", {2, 2, 2, 2}, range_make, range_apply, range_run, range_text, true},
	{"new_dup", {8, 8, 8, 8}, dup_make, dup_apply, dup_run, dup_text, true},
	{"dup2", {7, 8, 8, 8}, dup2_make, dup2_apply, dup2_run, dup2_text, true},
	{"flags", {8, 8, 5, 6}, flags_make, flags_apply, flags_run, flags_text, false},
	{"fdinfo", {0, 1, 1, 1}, info_make, info_apply, info_run, info_text, false},
	{"limit", {1, 1, 1, 1}, limit_make, limit_apply, limit_run, limit_text, false},
	{0},
};
