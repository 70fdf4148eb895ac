/* SPDX-License-Identifier: MIT */
/*
 * Results. Everything goes into the digest; the text is made only when somebody asks for
 * it, and is C that can be pasted into a test: each call with what came of it.
 */
#include "differential.h"

#include <stdarg.h>

struct run *run;
int slot_number[SLOTS];

void say(const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	int n;

	if (!run->verbose)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* At once: what comes next may crash. */
	if (write(STDOUT_FILENO, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1) < 0)
		_exit(1);
}

void call(const char *fmt, ...)
{
	size_t room = sizeof(run->call) - run->call_len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(run->call + run->call_len, room, fmt, ap);
	va_end(ap);
	run->call_len += (size_t)n < room ? (size_t)n : room - 1;
}

const char *slot_name(int slot)
{
	static char names[4][16];
	static int at;

	at = (at + 1) % 4;
	if (slot >= 0)
		snprintf(names[at], sizeof(names[at]), "s%d", slot);
	else
		snprintf(names[at], sizeof(names[at]), "%d", number_of(slot));
	return names[at];
}

const char *number_text(uint64_t v)
{
	static char text[2][32];
	static int at;

	at = !at;
	snprintf(text[at], sizeof(text[at]), v < 1000 ? "%llu" : "%#llx", (unsigned long long)v);
	return text[at];
}

const char *ptr_name(const struct step *s, const char *good)
{
	static char text[32];

	switch (s->ptr) {
	case PTR_NULL:
		return "NULL";
	case PTR_LOW:
		return "(void *)8";
	case PTR_UNMAPPED:
		return "unmapped";
	case PTR_KERNEL:
		return "(void *)0xffff800000000000";
	case PTR_READONLY:
		return "readonly";
	case PTR_EDGE:
		snprintf(text, sizeof(text), "edge - %d", s->room);
		return text;
	default:
		return good;
	}
}

void log_hash(uint64_t v)
{
	uint64_t h = (run->hash ^ v) * 0x9fb21c651e98df25ull;

	run->hash = h ^ (h >> 29);
}

static const char *errno_name(int e)
{
	static char text[16];
	const char *name = strerrorname_np(e);

	if (name)
		return name;
	snprintf(text, sizeof(text), "%d", e);
	return text;
}

void log_ret(long r)
{
	int e = errno;

	log_hash(r == -1 ? 0x100000000ull + e : (uint64_t)r);
	if (r == -1)
		say("\tassert_errno(%s, %s);\n", run->call, errno_name(e));
	else
		say("\tassert_int_equal(%s, %ld);\n", run->call, r);
	if (sigpipes) {
		log_hash(sigpipes);
		say("\t/* SIGPIPE %d */\n", (int)sigpipes);
		sigpipes = 0;
	}
}

void log_fd(int slot, int fd)
{
	int e = errno, flags;

	log_hash(fd < 0 ? 0x100000000ull + e : (uint64_t)fd);
	set_slot(slot, fd);
	if (fd < 0)
		say("\tassert_errno(%s, %s);\n", run->call, errno_name(e));
	else
		say("\ts%d = assert_ok(%s); /* %d */\n", slot, run->call, fd);
	if (fd >= 0 && (flags = fcntl(fd, F_GETFD)) != 0) {
		log_hash(flags);
		say("\tassert_int_equal(fcntl(s%d, F_GETFD), %d);\n", slot, flags);
	}
}

void log_value(const char *expr, uint64_t v)
{
	log_hash(v);
	say("\tassert_int_equal(%s, %s);\n", expr, number_text(v));
}

void log_bytes(const char *expr, const void *p, size_t n)
{
	const unsigned char *c = p;
	uint64_t h = n;

	for (; n >= 8; n -= 8, c += 8) {
		uint64_t w;

		memcpy(&w, c, 8);
		h = (h ^ w) * 0x9fb21c651e98df25ull;
		h ^= h >> 32;
	}
	while (n--)
		h = (h ^ *c++) * 0x9fb21c651e98df25ull;
	log_hash(h);
	say("\tassert_int_equal(%s, %#llx);\n", expr, (unsigned long long)h);
}

static int compare_events(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct epoll_event));
}

void log_events(const struct step *s, struct epoll_event *ev, int n)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{EPOLLIN, "EPOLLIN"},	      {EPOLLOUT, "EPOLLOUT"},
		{EPOLLPRI, "EPOLLPRI"},	      {EPOLLERR, "EPOLLERR"},
		{EPOLLHUP, "EPOLLHUP"},	      {EPOLLRDHUP, "EPOLLRDHUP"},
		{EPOLLRDNORM, "EPOLLRDNORM"}, {EPOLLWRNORM, "EPOLLWRNORM"},
		{EPOLLRDBAND, "EPOLLRDBAND"}, {EPOLLWRBAND, "EPOLLWRBAND"},
	};

	if (s->any_order && n > 1) {
		qsort(ev, n, sizeof(*ev), compare_events);
		say("\t/* In any order: */\n");
	}
	for (int i = 0; i < n; i++) {
		uint32_t left = ev[i].events;
		const char *bar = "";

		log_hash(ev[i].events);
		log_hash(ev[i].data.u64);
		if (!run->verbose)
			continue;
		say("\tassert_int_equal(ev[%d].events, ", i);
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			if (!(left & names[k].bit))
				continue;
			say("%s%s", bar, names[k].name);
			bar = " | ";
			left &= ~names[k].bit;
		}
		if (left || !*bar)
			say("%s%#x", bar, left);
		say(");\n\tassert_int_equal(ev[%d].data.u64, %s);\n", i,
		    number_text(ev[i].data.u64));
	}
}

void log_note(const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	uint64_t h = 0;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (int i = 0; i < n && text[i]; i++)
		h = (h ^ text[i]) * 0x9fb21c651e98df25ull;
	log_hash(h);
	say("\t/* %s */\n", text);
}

void log_may(uint64_t data, int found, int more, uint32_t bits)
{
	char text[64];
	int n = snprintf(text, sizeof(text), " %d+%d/%x", found, more, bits);

	if (run->may_len + n >= sizeof(run->may))
		_exit(2);
	memcpy(run->may + run->may_len, text, n + 1);
	run->may_len += n;
	say("\t/* Data %s: %s */\n", number_text(data), text);
}

void log_left_out(const char *why)
{
	log_hash(1);
	say("\t/* %s: %s */\n", why, run->call);
}
