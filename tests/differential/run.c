/* SPDX-License-Identifier: MIT */
/* What the run functions of all kinds of steps share. */
#include "differential.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/time.h>

const struct op *ops[64];
int nops;
volatile sig_atomic_t sigpipes;
char *scratch;

static char *unmapped, *readonly, *edge;

static void on_sigpipe(int sig)
{
	(void)sig;
	sigpipes++;
}

static void on_tick(int sig)
{
	(void)sig;
}

static char *map(size_t size, int prot)
{
	char *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

void ops_init(void)
{
	static const struct op *const tables[] = {ops_epoll, ops_rw,	ops_eventfd,
						  ops_pipe,  ops_timer, ops_socket,
						  ops_fd,    ops_poll,	ops_proc};
	struct sigaction sa = {.sa_handler = on_sigpipe};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct op *op = tables[i]; op->name; op++)
			ops[nops++] = op;
	sigaction(SIGPIPE, &sa, NULL);
	sa.sa_handler = on_tick;
	sigaction(SIGALRM, &sa, NULL);
	scratch = map(SCRATCH, PROT_READ | PROT_WRITE);
	readonly = map(SCRATCH, PROT_READ);
	edge = map(2 * SCRATCH, PROT_READ | PROT_WRITE) + SCRATCH;
	unmapped = edge;
	mprotect(edge, SCRATCH, PROT_NONE);
}

int none_number(int slot)
{
	static const int none[NONE_PLAIN + NONE_HIDDEN] = {
		-1, 1000, INT_MAX, -100, 1 << 20, HIGH_NUMBER, HIGH_NUMBER + 1, HIGH_NUMBER + 2,
	};

	return none[(-1 - slot) % (NONE_PLAIN + NONE_HIDDEN)];
}

int number_of(int slot)
{
	return slot >= 0 ? slot_number[slot] : none_number(slot);
}

void set_slot(int slot, int fd)
{
	if (slot >= 0)
		slot_number[slot] = fd;
}

void *pointer(const struct step *s, void *good)
{
	switch (s->ptr) {
	case PTR_NULL:
		return NULL;
	case PTR_LOW:
		return (void *)8;
	case PTR_UNMAPPED:
		return unmapped;
	case PTR_KERNEL:
		return (void *)0xffff800000000000;
	case PTR_READONLY:
		return readonly;
	case PTR_EDGE:
		/* A call that failed may have left anything there. */
		memset(edge - s->room, 0, s->room);
		return edge - s->room;
	default:
		return good;
	}
}

bool blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_NONBLOCK);
}

bool would_block(const struct step *s, int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	int r;

	if (s->direct || !blocking(fd))
		return false;
	do
		r = poll(&p, 1, 0);
	while (storm_ended(r));
	return r == 0;
}

const struct model *settled_model;

/* Takes what has the data of the i-th of n entries out of the events; how many are left. */
static int settle_data(const struct settled *e, int i, int n, struct epoll_event *ev, int got)
{
	uint32_t bits = 0;
	int more = 0, left = 0;

	for (int k = 0; k < n; k++) {
		if (e[k].looks || e[k].data != e[i].data)
			continue;
		/* Done with the first of them. */
		if (k < i)
			return got;
		more++;
	}
	for (int k = 0; k < got; k++) {
		if (ev[k].data.u64 == e[i].data)
			bits |= ev[k].events;
		else
			ev[left++] = ev[k];
	}
	log_may(e[i].data, got - left, more, bits);
	return left;
}

/* Everything that is in the epoll; n of the entries are of it. */
static void settle_epoll(const struct settled *e, int n)
{
	static const struct step any = {.any_order = true};
	struct epoll_event ev[EVENTS];
	int got = epoll_wait(e->number, ev, EVENTS, 0);

	if (got < 0) {
		log_note("epoll_wait(%d): %d", e->number, errno);
		return;
	}
	for (int i = 0; i < n; i++)
		got = e[i].looks ? got : settle_data(e, i, n, ev, got);
	log_value("left", got);
	log_events(&any, ev, got);
	/* Not twice. */
	got = epoll_wait(e->number, ev, EVENTS, 0);
	log_value("again", got);
	log_events(&any, ev, got);
}

void settle_first(const struct step *s)
{
	const struct settled *e = settled_model->settled + s->settled;

	for (int i = 0, next; i < s->nsettled; i = next) {
		next = i + 1;
		if (e[i].leaves) {
			struct pollfd p = {.fd = e[i].number, .events = POLLIN};

			poll(&p, 1, 0);
			continue;
		}
		say("\t/* Of %d, whose objects may have left: */\n", e[i].number);
		while (next < s->nsettled && !e[next].leaves && e[next].number == e[i].number)
			next++;
		settle_epoll(e + i, next - i);
	}
}

void ticks_start(void)
{
	struct itimerval every = {{0, 1000}, {0, 1000}};

	setitimer(ITIMER_REAL, &every, NULL);
}

/* errno is that of the call before. */
void ticks_stop(void)
{
	struct itimerval none = {0};
	int saved = errno;

	setitimer(ITIMER_REAL, &none, NULL);
	errno = saved;
}
