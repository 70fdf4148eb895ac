/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of the calls of Linux AIO, on files of many kinds, with iocbs, context
 * pointers and buffers that are partly garbage. Used like the program of main.c, and run
 * on both sides by the same lockstep.py:
 *
 *   differential-aio run PROFILE FIRST COUNT
 *   differential-aio show PROFILE NUMBER [KEEP] [BEFORE]
 *
 * There is no model: what a step may do is decided when it is its turn, from what the
 * calls before it returned, which is the same on both sides until they differ. Left out is
 * what is not determined: how many requests more than were asked for a context takes
 * (AIO-SUBMIT-07), and when requests complete that run in the background. The latter are
 * waited for, and their events compared as a set, before anything looks at what they do.
 */
#include "differential.h"

#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#define CONTEXTS 4
#define IOCBS 16
#define BATCH 6
#define MAX_STEPS 220
#define IDS 2048
#define MAX_EVENTS 1024
#define BUFS (256 << 10)
#define DIRECT_BUF (16 << 10)
#define FILE_SHOWN (512 << 10)
#define PAGE 4096
#define WAIT_SECONDS 20

enum aio_profile { FILES, MIXED, GARBAGE, AIO_PROFILES };

static const char *const profile_names[] = {"files", "mixed", "garbage"};

/* --- the files ------------------------------------------------------------------------- */

enum file {
	MEM,
	MEM_RO,
	MEM_WO,
	MEM_APPEND,
	DISK,
	DISK_DIRECT,
	EVENTFD,
	SEMAPHORE,
	PIPE_R,
	PIPE_W,
	PIPE_BROKEN,
	FIFO,
	SOCKET,
	TIMER,
	EPOLL,
	NULL_DEV,
	ZERO_DEV,
	DIRECTORY,
	PATH_ONLY,
	PROC,
	/* A number that is no descriptor. */
	NONE,
	FILES_COUNT,
};

static const char *const file_names[] = {
	"mem",	 "mem_ro", "mem_wo", "mem_append",  "disk",	 "disk_direct", "event",
	"sem",	 "pipe_r", "pipe_w", "pipe_broken", "fifo",	 "socket",	"timer",
	"epoll", "null",   "zero",   "dir",	    "path_only", "proc",	"none",
};

/* The number that calls name, and a descriptor that keeps the file open whatever they do. */
static int number[FILES_COUNT], keeper[FILES_COUNT];
static int peer;
/* What is open at the number. */
static enum file open_at[FILES_COUNT];

/* --- steps --------------------------------------------------------------------------------- */

enum aio_op {
	OP_SETUP,
	OP_DESTROY,
	OP_SUBMIT,
	OP_GETEVENTS,
	OP_PGETEVENTS,
	OP_CANCEL,
	OP_WRITE,
	OP_READ,
	OP_SWAP,
	OP_SETFL,
	OP_TRUNCATE,
	OP_LOOK,
	OP_RING,
	OP_TAKE,
	OP_BAD_ID,
	OP_BAD_NR,
	OP_MOVE,
	OP_FORK,
	OP_LIMIT,
	OPS,
};

static const struct {
	const char *name;
	uint16_t weight[AIO_PROFILES];
} op_table[OPS] = {
	[OP_SETUP] = {"setup", {10, 10, 20}},
	[OP_DESTROY] = {"destroy", {2, 2, 6}},
	[OP_SUBMIT] = {"submit", {160, 160, 160}},
	[OP_GETEVENTS] = {"getevents", {60, 60, 60}},
	[OP_PGETEVENTS] = {"pgetevents", {10, 15, 20}},
	[OP_CANCEL] = {"cancel", {4, 25, 20}},
	[OP_WRITE] = {"write", {4, 60, 15}},
	[OP_READ] = {"read", {4, 20, 10}},
	[OP_SWAP] = {"swap", {10, 10, 10}},
	[OP_SETFL] = {"setfl", {4, 4, 4}},
	[OP_TRUNCATE] = {"truncate", {4, 2, 2}},
	[OP_LOOK] = {"look", {10, 10, 10}},
	[OP_RING] = {"ring", {15, 10, 10}},
	[OP_TAKE] = {"take", {15, 10, 5}},
	[OP_BAD_ID] = {"bad_id", {1, 1, 6}},
	[OP_BAD_NR] = {"bad_nr", {1, 1, 4}},
	[OP_MOVE] = {"move", {1, 1, 1}},
	[OP_FORK] = {"fork", {1, 1, 1}},
	[OP_LIMIT] = {"limit", {2, 1, 1}},
};

/* Pointers that are none; GOOD for those that are. */
enum bad { GOOD, BAD_NULL, BAD_LOW, BAD_HOLE, BAD_KERNEL, BAD_READONLY, BAD_EDGE, BADS };

static const char *const bad_names[] = {"good",	  "NULL",     "(void *)8", "hole",
					"kernel", "readonly", "edge"};

enum context {
	/* 0 to 3: a slot */
	CTX_ZERO = CONTEXTS,
	CTX_SMALL,
	CTX_HOLE,
	CTX_KERNEL,
	CTX_FAKE,
	CTX_MIDDLE,
	CTX_BUFFER,
	CTX_KINDS,
};

struct request {
	uint8_t iocb;
	/* Of the slot in the list; of the buffer. */
	uint8_t slot, bad;
	uint8_t file, resfd_file;
	uint8_t vectors;
	uint16_t opcode;
	uint16_t buf;
	int16_t reqprio;
	uint32_t key, rw_flags, flags;
	uint64_t nbytes, reserved;
	int64_t offset;
	uint32_t poll;
};

struct aio_step {
	uint8_t op, ctx, bad, bad2, n;
	uint8_t file, file2;
	/* The number that is passed, which may not be how many there are. */
	int64_t nr, min;
	uint64_t u;
	struct request r[BATCH];
};

static struct gen gen;
static struct aio_step steps[MAX_STEPS];

/* --- the choice ------------------------------------------------------------------------------ */

static enum aio_profile profile;

static int choose_bad(uint32_t one_in)
{
	return rare(&gen, one_in) ? (int)below(&gen, BADS) : GOOD;
}

static int choose_ctx(void)
{
	if (rare(&gen, profile == GARBAGE ? 6 : 40))
		return CTX_ZERO + (int)below(&gen, CTX_KINDS - CTX_ZERO);
	/* Most of the time the first, so that something gathers there. */
	return chance(&gen, 60) ? 0 : (int)below(&gen, CONTEXTS);
}

static int choose_file(void)
{
	static const uint8_t regular[] = {MEM,	       MEM,    MEM,    DISK,
					  DISK_DIRECT, MEM_RO, MEM_WO, MEM_APPEND};
	static const uint8_t busy[] = {EVENTFD, SEMAPHORE, PIPE_R, PIPE_W, SOCKET};

	if (rare(&gen, profile == FILES ? 20 : 5))
		return (int)below(&gen, FILES_COUNT);
	if (profile == FILES || chance(&gen, 40))
		return pick(&gen, regular);
	return pick(&gen, busy);
}

static uint32_t choose_poll(void)
{
	static const uint16_t masks[] = {POLLIN, POLLIN,  POLLIN,  POLLOUT,   POLLIN | POLLOUT,
					 0,	 POLLHUP, POLLPRI, POLLRDHUP, 0xffff};

	return rare(&gen, 30) ? (uint32_t)rnd(&gen) : pick(&gen, masks);
}

static uint64_t choose_size(void)
{
	static const uint32_t sizes[] = {1, 8, 100, 512, 512, 1024, 4096, 5000};

	switch (below(&gen, profile == GARBAGE ? 12 : 60)) {
	case 0:
		return 0;
	case 1:
		return 0x7ffff000u + below(&gen, 3);
	case 2:
		return rnd(&gen);
	case 3:
		return (uint64_t)-1 - below(&gen, 3);
	default:
		return pick(&gen, sizes);
	}
}

static int64_t choose_offset(void)
{
	switch (below(&gen, profile == GARBAGE ? 12 : 60)) {
	case 0:
		return -1 - (int64_t)below(&gen, 5);
	case 1:
		return (int64_t)rnd(&gen);
	case 2:
		return INT64_MAX - (int64_t)below(&gen, 5000);
	default:
		return (int64_t)below(&gen, 24) * (chance(&gen, 70) ? 512 : 777);
	}
}

static void choose_request(struct request *r)
{
	static const uint16_t usual[] = {IOCB_CMD_PREAD,  IOCB_CMD_PREAD,  IOCB_CMD_PWRITE,
					 IOCB_CMD_PWRITE, IOCB_CMD_PREADV, IOCB_CMD_PWRITEV};
	static const uint32_t rw_flags[] = {1, 2, 4, 8, 16, 32, 64, 128, 1 << 20};
	uint32_t garbage = profile == GARBAGE ? 10 : 100;

	memset(r, 0, sizeof(*r));
	r->iocb = below(&gen, IOCBS);
	r->slot = choose_bad(garbage);
	r->file = choose_file();
	r->resfd_file = chance(&gen, 90) ? (chance(&gen, 50) ? EVENTFD : SEMAPHORE)
					 : below(&gen, FILES_COUNT);
	r->opcode = pick(&gen, usual);
	if (profile == FILES ? rare(&gen, 15) : chance(&gen, 30))
		r->opcode =
			rare(&gen, 6) ? IOCB_CMD_FSYNC + (uint16_t)below(&gen, 2) : IOCB_CMD_POLL;
	if (rare(&gen, garbage))
		r->opcode = rare(&gen, 2) ? (uint16_t)below(&gen, 12) : (uint16_t)rnd(&gen);
	r->buf = (uint16_t)(below(&gen, 40) * (chance(&gen, 80) ? 512 : 313));
	r->bad = choose_bad(garbage / 2);
	r->nbytes = choose_size();
	r->offset = choose_offset();
	r->vectors = (uint8_t)below(&gen, 5);
	r->poll = choose_poll();
	r->key = rare(&gen, 3) ? (uint32_t)rnd(&gen) : 0;
	if (chance(&gen, 20))
		r->flags |= IOCB_FLAG_RESFD;
	if (rare(&gen, 30))
		r->flags |= IOCB_FLAG_IOPRIO;
	if (rare(&gen, 30))
		r->flags |= (uint32_t)rnd(&gen) & ~3u;
	if (rare(&gen, 10))
		r->reqprio = rare(&gen, 2) ? (int16_t)rnd(&gen) : 2 << 13 | 4;
	if (rare(&gen, garbage / 2))
		r->rw_flags = rare(&gen, 5) ? (uint32_t)rnd(&gen) : pick(&gen, rw_flags);
	/* It depends on what the disk is doing whether something would wait. */
	if (r->file == DISK || r->file == DISK_DIRECT)
		r->rw_flags &= ~(uint32_t)RWF_NOWAIT;
	if (rare(&gen, garbage))
		r->reserved = rnd(&gen);
}

static void choose_submit(struct aio_step *s)
{
	s->n = chance(&gen, 50) ? 1 : 1 + below(&gen, BATCH);
	for (int i = 0; i < s->n; i++)
		choose_request(&s->r[i]);
	s->nr = s->n;
	s->bad = choose_bad(profile == GARBAGE ? 15 : 80);
	switch (below(&gen, profile == GARBAGE ? 15 : 80)) {
	case 0:
		s->nr = -1 - (int64_t)below(&gen, 3);
		break;
	case 1:
		s->nr = 0;
		break;
	case 2:
		/* What is behind the list is NULL. */
		s->nr = s->n + 1 + below(&gen, 3);
		break;
	case 3:
		s->nr = INT64_MAX;
		break;
	case 4:
		s->nr = INT64_MIN + 1;
		break;
	}
}

static void choose_getevents(struct aio_step *s)
{
	static const int64_t seconds[] = {0, 0, 0, 1, -1, 1000, INT64_MAX, INT64_MIN};
	static const int64_t nanoseconds[] = {0,  0,	    1000, 1000000, 1000000000, 2500000000ll,
					      -1, INT64_MAX};
	uint32_t garbage = profile == GARBAGE ? 12 : 60;

	s->nr = 1 + below(&gen, chance(&gen, 50) ? 3 : 40);
	s->min = below(&gen, (uint32_t)s->nr + 1);
	if (rare(&gen, garbage))
		s->min = s->nr + 1;
	if (rare(&gen, garbage))
		s->min = -1;
	if (rare(&gen, garbage))
		s->nr = rare(&gen, 2) ? -1 : 0;
	s->bad = choose_bad(garbage);
	s->n = below(&gen, 4);
	/* Of the time; NULL is common. */
	s->bad2 = chance(&gen, 40) ? BAD_NULL : choose_bad(garbage);
	s->u = below(&gen, sizeof(seconds) / sizeof(seconds[0])) << 8 |
	       below(&gen, sizeof(nanoseconds) / sizeof(nanoseconds[0]));
	if (chance(&gen, 70))
		s->u = 0;
	s->file = below(&gen, 8);
	s->file2 = choose_bad(garbage);
}

static int64_t time_part(uint64_t u, bool nanoseconds)
{
	static const int64_t parts[2][8] = {
		{0, 0, 0, 1, -1, 1000, INT64_MAX, INT64_MIN},
		{0, 0, 1000, 1000000, 1000000000, 2500000000ll, -1, INT64_MAX},
	};

	return parts[nanoseconds][(nanoseconds ? u : u >> 8) & 7];
}

static void choose(struct aio_step *s)
{
	static const uint32_t sizes[] = {20, 20, 20, 40, 63, 128, 200};
	static const uint8_t feeds[] = {EVENTFD, SEMAPHORE, PIPE_W, SOCKET};
	static const uint32_t odd[] = {0, 4194305, 0x7fffffff, 0x80000000, 0xffffffff};
	uint32_t total = 0, at;
	int op = 0;

	memset(s, 0, sizeof(*s));
	for (int i = 0; i < OPS; i++)
		total += op_table[i].weight[profile];
	at = below(&gen, total);
	while (at >= op_table[op].weight[profile])
		at -= op_table[op++].weight[profile];
	s->op = (uint8_t)op;
	s->ctx = (uint8_t)choose_ctx();
	s->u = rnd(&gen);
	s->file = (uint8_t)choose_file();
	switch (op) {
	case OP_SETUP:
		s->ctx %= CONTEXTS;
		s->nr = rare(&gen, profile == GARBAGE ? 3 : 12) ? pick(&gen, odd)
								: pick(&gen, sizes);
		s->bad = choose_bad(12);
		break;
	case OP_SUBMIT:
		choose_submit(s);
		break;
	case OP_GETEVENTS:
	case OP_PGETEVENTS:
		choose_getevents(s);
		break;
	case OP_CANCEL:
		s->bad = choose_bad(12);
		s->n = below(&gen, IOCBS);
		break;
	case OP_SWAP:
		s->file2 = (uint8_t)choose_file();
		/* Half of them put things back. */
		if (chance(&gen, 50))
			s->file2 = s->file;
		break;
	case OP_WRITE:
		/* Mostly something that a poll may wait for. */
		if (chance(&gen, 80))
			s->file = pick(&gen, feeds);
		break;
	case OP_SETFL:
		s->file = rare(&gen, 2) ? MEM : DISK;
		break;
	case OP_TRUNCATE:
		s->nr = below(&gen, 30000);
		break;
	case OP_TAKE:
		s->n = 1 + below(&gen, 8);
		break;
	}
}

static int choose_all(uint64_t seed)
{
	int n;

	gen.rng = seed * 0xd1342543de82ef95ull + profile + 77;
	n = 40 + (int)below(&gen, MAX_STEPS - 40);
	for (int i = 0; i < n; i++)
		choose(&steps[i]);
	/* There is something to work with from the start. */
	memset(&steps[0], 0, sizeof(steps[0]));
	steps[0].nr = 128;
	return n;
}

/* --- memory ------------------------------------------------------------------------------------
 */

static struct {
	struct iocb iocb[IOCBS];
	struct iocb *list[BATCH + 8];
	struct iovec iov[BATCH][8];
	aio_context_t id;
	struct timespec ts;
	struct {
		const void *mask;
		size_t size;
	} sig;
	uint64_t mask;
} * args;

static char *bufs, *hole, *readonly_page, *edge_page;
/* The same for data, where no addresses are ever stored. */
static char *data_edge_page;
/* What runs in the background shares no memory with anything else, also with huge transfers. */
static char *direct_bufs;
static uint32_t *fake;
static struct io_event *events;

volatile sig_atomic_t sigpipes;
static volatile sig_atomic_t signals;

int number_of(int slot)
{
	return slot;
}

void set_slot(int slot, int fd)
{
	(void)slot;
	(void)fd;
}

static void *map(size_t size, int prot)
{
	void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

/* The pointer that is meant; `room` bytes are good before an edge. */
static void *pointer_to(int bad, void *good, size_t room)
{
	switch (bad) {
	case BAD_NULL:
		return NULL;
	case BAD_LOW:
		return (void *)8;
	case BAD_HOLE:
		return hole;
	case BAD_KERNEL:
		return (void *)0xffff800000000000;
	case BAD_READONLY:
		return readonly_page;
	case BAD_EDGE:
		return edge_page + PAGE - room;
	default:
		return good;
	}
}

static void *data_to(int bad, void *good, size_t room)
{
	return bad == BAD_EDGE ? data_edge_page + PAGE - room : pointer_to(bad, good, room);
}

/* --- contexts ------------------------------------------------------------------------------------
 */

struct ctx {
	aio_context_t id;
	bool live;
	uint32_t nr_events;
	/* Events that will come, whatever happens; and polls, of which nobody knows. */
	int sure, polls;
	/* Some of the sure ones come in the background. */
	bool background;
	size_t ring_size;
};

static struct ctx ctx[CONTEXTS];
/* Where rings were: nothing else may be mapped there, or an old pointer would name it. */
static void *holes[MAX_STEPS];
static int nholes;

/* By the number in aio_data: what the request was. */
enum class { CLASS_NONE, CLASS_SURE, CLASS_POLL };
static uint8_t class_of[IDS];
static uint32_t next_id;

static struct ctx *live(int which)
{
	return which < CONTEXTS && ctx[which].live ? &ctx[which] : NULL;
}

static aio_context_t context_id(const struct aio_step *s)
{
	switch (s->ctx) {
	case CTX_ZERO:
		return 0;
	case CTX_SMALL:
		return 1 + s->u % 4095;
	case CTX_HOLE:
		return (uintptr_t)hole;
	case CTX_KERNEL:
		return 0xffff800000000000ul;
	case CTX_FAKE:
		fake[0] = s->u % 6;
		return (uintptr_t)fake;
	case CTX_MIDDLE:
		return ctx[0].live ? ctx[0].id + 64 : 1;
	case CTX_BUFFER:
		return (uintptr_t)bufs + s->u % 64;
	default:
		return ctx[s->ctx].id;
	}
}

static const char *context_name(const struct aio_step *s)
{
	static const char *const names[] = {"c0",	 "c1",	    "c2",	  "c3",
					    "0",	 "small",   "hole",	  "kernel",
					    "fake_ring", "c0 + 64", "some buffer"};

	return names[s->ctx];
}

static void block_address(void *p)
{
	if (nholes < MAX_STEPS &&
	    mmap(p, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p)
		holes[nholes++] = p;
}

static uint32_t *header(const struct ctx *c)
{
	return (uint32_t *)(uintptr_t)c->id;
}

static int compare_event(const void *a, const void *b)
{
	const struct io_event *x = a, *y = b;

	/* An iocb that is submitted twice is changed before the first has run: both have one id. */
	if (x->data == y->data)
		return x->res < y->res ? -1 : x->res > y->res;
	return x->data < y->data ? -1 : 1;
}

static void account(struct ctx *c, const struct io_event *ev)
{
	/* A poll that gave nothing was cancelled and has been counted as sure then. */
	if (ev->data < IDS && class_of[ev->data] == CLASS_POLL && ev->res != 0)
		c->polls--;
	else
		c->sure--;
}

static void log_event_list(struct io_event *ev, long n, bool any_order)
{
	if (any_order && n > 1)
		qsort(ev, n, sizeof(*ev), compare_event);
	for (long i = 0; i < n; i++) {
		uint64_t at = ev[i].obj - (uintptr_t)args->iocb;

		log_hash(ev[i].data);
		log_hash(at);
		log_hash((uint64_t)ev[i].res);
		log_hash((uint64_t)ev[i].res2);
		say("\t/* event: id %llu, iocb %llu, res %lld, res2 %lld */\n",
		    (unsigned long long)ev[i].data, (unsigned long long)at / sizeof(struct iocb),
		    (long long)ev[i].res, (long long)ev[i].res2);
	}
}

static void begin_call(void)
{
	run->call_len = 0;
	run->call[0] = '\0';
}

/* Waits for what runs in the background, and takes all that has come. */
static void gather(struct ctx *c)
{
	struct timespec limit = {.tv_sec = WAIT_SECONDS};
	long n = 0, all = 0;

	if (!c->live || !c->background)
		return;
	begin_call();
	call("io_getevents(c%d, all)", (int)(c - ctx));
	/* Polls that are through are among them, and nobody knows how many. */
	for (int sure = c->sure; sure > 0; sure = c->sure) {
		n = syscall(SYS_io_getevents, c->id, (long)sure, (long)MAX_EVENTS - all,
			    events + all, &limit);
		if (n < sure && !storming)
			break;
		for (long i = all; i < all + n; i++)
			account(c, &events[i]);
		if (n < 0 && !storm_ended(n))
			break;
		all += n > 0 ? n : 0;
		n = 0;
	}
	log_ret(n < 0 ? n : all);
	log_event_list(events, all, true);
	c->background = false;
}

static void settle(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		gather(&ctx[i]);
}

/* --- the calls
 * -------------------------------------------------------------------------------------- */

static void run_setup(const struct aio_step *s)
{
	struct ctx *c = &ctx[s->ctx];
	aio_context_t *p = pointer_to(s->bad, &args->id, sizeof(args->id));
	uint32_t nr = (uint32_t)s->nr;
	struct timespec pause = {0, 5000000};
	long r = -1;

	args->id = c->live ? c->id : 0;
	if (s->bad == BAD_EDGE)
		*p = 0;
	call("io_setup(%u, %s)", nr, s->bad ? bad_names[s->bad] : c->live ? "&c" : "&zero");
	for (int tries = 0; tries < 1000; tries++) {
		r = syscall(SYS_io_setup, nr, p);
		/* Others on the machine may use the limit up for a while. */
		if (r == 0 || errno != EAGAIN || nr > 1000)
			break;
		nanosleep(&pause, NULL);
	}
	log_ret(r);
	if (r)
		return;
	/* It was a good pointer, or the edge of one. */
	memset(c, 0, sizeof(*c));
	c->live = true;
	c->id = *p;
	c->nr_events = nr;
	c->ring_size = (32 + 32 * (size_t)header(c)[1] + PAGE - 1) / PAGE * PAGE;
}

static void run_destroy(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	aio_context_t id = context_id(s);

	call("io_destroy(%s)", context_name(s));
	log_ret(syscall(SYS_io_destroy, id));
	if (!c)
		return;
	log_ret(syscall(SYS_io_destroy, id));
	c->live = false;
	block_address((void *)(uintptr_t)id);
}

static bool has_flag(int fd, int flag)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & flag);
}

static bool transfers(uint16_t opcode)
{
	return opcode == IOCB_CMD_PREAD || opcode == IOCB_CMD_PWRITE || opcode == IOCB_CMD_PREADV ||
	       opcode == IOCB_CMD_PWRITEV;
}

static bool writes(uint16_t opcode)
{
	return opcode == IOCB_CMD_PWRITE || opcode == IOCB_CMD_PWRITEV;
}

/* A transfer that runs in the background. */
static bool direct(const struct request *r)
{
	return transfers(r->opcode) && has_flag(number[r->file], O_DIRECT);
}

static bool vectored(uint16_t opcode)
{
	return opcode == IOCB_CMD_PREADV || opcode == IOCB_CMD_PWRITEV;
}

/*
 * How many of a batch are submitted: one, if some of them run in the background and some
 * write to what those read or write.
 */
static int at_once(const struct aio_step *s)
{
	bool background = false, written = false;

	for (int i = 0; i < s->n; i++) {
		enum file f = open_at[s->r[i].file];

		background |= direct(&s->r[i]);
		written |= writes(s->r[i].opcode) && (f == DISK || f == DISK_DIRECT);
	}
	return background && written ? 1 : s->n;
}

/* Whether it runs in the background once it is accepted. */
static bool in_background(const struct iocb *cb)
{
	return cb->aio_lio_opcode == IOCB_CMD_FSYNC || cb->aio_lio_opcode == IOCB_CMD_FDSYNC ||
	       (transfers(cb->aio_lio_opcode) && has_flag((int)cb->aio_fildes, O_DIRECT));
}

static void build(const struct request *r, int at)
{
	struct iocb *cb = &args->iocb[r->iocb];
	bool poll = r->opcode == IOCB_CMD_POLL;
	bool sync = r->opcode == IOCB_CMD_FSYNC || r->opcode == IOCB_CMD_FDSYNC;
	char *data = bufs + r->buf;
	uint64_t nbytes = r->nbytes;
	bool plain = !direct(r);
	int bad = r->bad;

	/* In whole sectors: of others the kernel may have done a part before it refuses. */
	if (!plain) {
		data = direct_bufs + at * DIRECT_BUF;
		nbytes = (nbytes % 8 + 1) * 512;
		if (vectored(r->opcode) || (bad != BAD_NULL && bad != BAD_KERNEL))
			bad = GOOD;
	}
	/* Its reads end after a page if a signal of the same batch is pending. */
	if (open_at[r->file] == ZERO_DEV && nbytes > PAGE)
		nbytes = PAGE;
	memset(cb, 0, sizeof(*cb));
	cb->aio_data = next_id < IDS - 1 ? ++next_id : IDS - 1;
	cb->aio_key = r->key;
	cb->aio_lio_opcode = r->opcode;
	cb->aio_reqprio = r->reqprio;
	cb->aio_fildes = (uint32_t)number[r->file];
	cb->aio_reserved2 = r->reserved;
	cb->aio_rw_flags = (int32_t)r->rw_flags;
	cb->aio_flags = r->flags;
	cb->aio_resfd = (uint32_t)number[r->resfd_file];
	if (poll || sync) {
		cb->aio_buf = poll ? r->poll : 0;
		/* Now and then what must be 0 is not. */
		if (r->nbytes > 0x7fffffff)
			cb->aio_nbytes = r->nbytes;
		if (r->offset < 0)
			cb->aio_offset = r->offset;
		/* When the eventfd is told of these is not determined (AIO-CQ-05). */
		if (open_at[r->resfd_file] == EVENTFD || open_at[r->resfd_file] == SEMAPHORE)
			cb->aio_flags &= ~(uint32_t)IOCB_FLAG_RESFD;
	} else if (vectored(r->opcode)) {
		for (int i = 0; i < 8; i++) {
			size_t len = plain ? (size_t)(100 << i) : 512 * (size_t)(i + 1);

			args->iov[at][i].iov_base = data_to(i == 2 ? bad : GOOD, data, 8);
			args->iov[at][i].iov_len = len;
			data += len;
		}
		/* A bad count, a bad length and a bad array have their turns, too. */
		if (plain && nbytes > 5000 && r->vectors > 2)
			args->iov[at][1].iov_len = nbytes;
		cb->aio_nbytes = plain && nbytes > 5000 && r->vectors <= 2 ? nbytes : r->vectors;
		cb->aio_buf =
			(uintptr_t)pointer_to(bad == BAD_HOLE ? BAD_HOLE : GOOD, args->iov[at], 8);
		cb->aio_offset = r->offset;
	} else {
		cb->aio_buf = (uintptr_t)data_to(bad, data, 100);
		cb->aio_nbytes = nbytes;
		cb->aio_offset = r->offset;
	}
	if (in_background(cb))
		cb->aio_flags &= ~(uint32_t)IOCB_FLAG_RESFD;
	say("\t/* iocb %d: id %llu, opcode %u, %s, buf %s+%u, nbytes %#llx, offset %lld, key %#x, "
	    "flags %#x, resfd %s, rw_flags %#x, reqprio %d, reserved %#llx, poll %#x */\n",
	    r->iocb, (unsigned long long)cb->aio_data, r->opcode, file_names[r->file],
	    bad_names[bad], r->buf, (unsigned long long)cb->aio_nbytes, (long long)cb->aio_offset,
	    r->key, cb->aio_flags, file_names[r->resfd_file], r->rw_flags, r->reqprio,
	    (unsigned long long)r->reserved, r->poll);
}

static void accepted(struct ctx *c, const struct iocb *cb)
{
	if (cb->aio_lio_opcode == IOCB_CMD_POLL) {
		class_of[cb->aio_data] = CLASS_POLL;
		c->polls++;
		return;
	}
	class_of[cb->aio_data] = CLASS_SURE;
	c->sure++;
	c->background |= in_background(cb);
}

static void run_submit(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	struct iocb **list = args->list;
	int n = at_once(s);
	int64_t nr = n == s->n ? s->nr : 1;
	bool alone = false;
	long r;

	/* At least as many as were asked for fit; how many more is not determined. */
	if (c && c->sure + c->polls + n > (int)c->nr_events) {
		log_note("full");
		return;
	}
	for (int i = 0; i < n; i++) {
		build(&s->r[i], i);
		alone |= in_background(&args->iocb[s->r[i].iocb]);
	}
	/* What is done in the background must not meet what else is done to the same file. */
	if (alone) {
		settle();
		begin_call();
	}
	memset(args->list, 0, sizeof(args->list));
	for (int i = 0; i < n; i++)
		list[i] = pointer_to(s->r[i].slot, &args->iocb[s->r[i].iocb], 40);
	if (s->bad) {
		list = pointer_to(s->bad, list, sizeof(*list));
		if (s->bad == BAD_EDGE)
			list[0] = args->list[0];
	}
	call("io_submit(%s, %lld, %s {", context_name(s), (long long)nr, bad_names[s->bad]);
	for (int i = 0; i < n; i++)
		call("%s%s %d", i ? ", " : "", bad_names[s->r[i].slot], s->r[i].iocb);
	call("})");
	r = syscall(SYS_io_submit, context_id(s), nr, list);
	log_ret(r);
	for (int i = 0; i < n; i++)
		log_value("iocb.aio_key", args->iocb[s->r[i].iocb].aio_key);
	for (long i = 0; i < r && c; i++)
		accepted(c, args->list[i]);
	if (alone)
		settle();
}

/* The time that the step wants, or a short one if it might last for ever. */
static struct timespec *choose_time(const struct aio_step *s, const struct ctx *c)
{
	int64_t sec = time_part(s->u, false), nsec = time_part(s->u, true);
	bool waits = c && s->min > c->sure && s->nr >= s->min;

	if (waits && (s->bad2 == BAD_NULL || sec || nsec < 0 || nsec > 1000000)) {
		sec = 0;
		nsec = 200000;
	} else if (s->bad2) {
		return pointer_to(s->bad2, &args->ts, 8);
	}
	args->ts.tv_sec = sec;
	args->ts.tv_nsec = nsec;
	return &args->ts;
}

static void log_time(const struct timespec *ts)
{
	if (ts == &args->ts)
		call("{%lld, %lld}", (long long)ts->tv_sec, (long long)ts->tv_nsec);
	else
		call("%s", ts ? "bad" : "NULL");
}

static void got(struct ctx *c, const void *user, long r)
{
	if (r <= 0)
		return;
	memcpy(events, user, (size_t)r * sizeof(*events));
	for (long i = 0; i < r && c; i++)
		account(c, &events[i]);
	log_event_list(events, r, false);
}

/* A call that finds nothing may be interrupted at any time. */
static long or_nothing(long r)
{
	return storm_ended(r) ? 0 : r;
}

static void run_getevents(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	struct timespec *ts;
	void *user = pointer_to(s->bad, events + MAX_EVENTS, s->n * sizeof(*events));
	long r;

	if (c)
		gather(c);
	begin_call();
	ts = choose_time(s, c);
	call("io_getevents(%s, %lld, %lld, %s", context_name(s), (long long)s->min,
	     (long long)s->nr, bad_names[s->bad]);
	if (s->bad == BAD_EDGE)
		call(" %d", s->n);
	call(", ");
	log_time(ts);
	call(")");
	r = syscall(SYS_io_getevents, context_id(s), s->min, s->nr, user, ts);
	log_ret(or_nothing(r));
	got(c, user, r);
}

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void run_pgetevents(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	struct timespec *ts, none = {0};
	void *user = pointer_to(s->bad, events + MAX_EVENTS, s->n * sizeof(*events));
	void *sig = pointer_to(s->file2, &args->sig, 8);
	/* Of the eight: no mask, another size, a bad mask, a signal or not, let in or not. */
	bool pending = s->file & 1, let_in = s->file & 2;
	sigset_t usr1;
	long r;

	if (c)
		gather(c);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	begin_call();
	ts = choose_time(s, c);
	args->mask = let_in ? 0 : 1ull << (SIGUSR1 - 1);
	args->sig.mask = s->file == 4 ? NULL : s->file == 5 ? hole : (char *)&args->mask;
	args->sig.size = s->file == 6 ? 4 : 8;
	if (s->file == 4 && s->u % 2)
		args->sig.size = 77;
	call("io_pgetevents(%s, %lld, %lld, %s, ", context_name(s), (long long)s->min,
	     (long long)s->nr, bad_names[s->bad]);
	log_time(ts);
	call(", %s {%s, %zu})%s", bad_names[s->file2],
	     s->file == 4   ? "NULL"
	     : s->file == 5 ? "hole"
	     : let_in	    ? "none"
			    : "SIGUSR1",
	     args->sig.size, pending ? " with SIGUSR1 pending" : "");
	signals = 0;
	if (pending)
		raise(SIGUSR1);
	r = syscall(SYS_io_pgetevents, context_id(s), s->min, s->nr, user, ts, sig);
	log_ret(or_nothing(r));
	log_value("handlers", (uint64_t)signals);
	if (pending)
		while (storm_ended(sigtimedwait(&usr1, NULL, &none)))
			;
	got(c, user, r);
}

static void run_cancel(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	struct iocb *cb = pointer_to(s->bad, &args->iocb[s->n], 4);
	long r;

	if (c)
		gather(c);
	/* Bad keys are seldom wanted. */
	if (s->u % 8)
		args->iocb[s->n].aio_key = 0;
	begin_call();
	call("io_cancel(%s, %s %d, hole)", context_name(s), bad_names[s->bad], s->n);
	r = syscall(SYS_io_cancel, context_id(s), cb, hole);
	log_ret(r);
	if (r < 0 && errno == EINPROGRESS && c) {
		c->polls--;
		c->sure++;
		c->background = true;
	}
}

static bool blocks(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & (O_NONBLOCK | O_PATH));
}

static void run_rw(const struct aio_step *s)
{
	int fd = number[s->file];
	uint64_t one = 1 + s->u % 3, word = 0;
	enum file f = open_at[s->file];

	settle();
	begin_call();
	if (s->op == OP_WRITE) {
		/* Into the socket from its other end. */
		if (f == SOCKET)
			fd = peer;
		call("write(%s%s, %d, 8)", f == SOCKET ? "the peer of " : "", file_names[s->file],
		     (int)one);
		log_ret(write(fd, &one, 8));
		return;
	}
	if (f >= EVENTFD && f <= EPOLL && blocks(fd)) {
		log_note("would block");
		return;
	}
	call("read(%s, &word, 8)", file_names[s->file]);
	log_ret(read(fd, &word, 8));
	log_value("word", word);
}

/* Another file at the number of this one: the one that is kept, its own or another's. */
static void run_swap(const struct aio_step *s)
{
	settle();
	begin_call();
	call("dup2(%s, %s)", file_names[s->file2], file_names[s->file]);
	if (s->file == NONE || s->file2 == NONE) {
		if (s->file == NONE)
			return;
		log_ret(close(number[s->file]));
	} else {
		log_ret(dup2(keeper[s->file2], number[s->file]) == number[s->file] ? 0 : -1);
	}
	open_at[s->file] = s->file2;
}

static void run_setfl(const struct aio_step *s)
{
	int flag = s->u % 2 ? O_APPEND : O_DIRECT, fd = number[s->file];
	int flags = fcntl(fd, F_GETFL);

	settle();
	begin_call();
	call("F_SETFL(%s, ^%s)", file_names[s->file], flag == O_APPEND ? "O_APPEND" : "O_DIRECT");
	/* Only the flags of regular files. */
	if (flags < 0 || open_at[s->file] > DISK_DIRECT) {
		log_note("not now");
		return;
	}
	log_ret(fcntl(fd, F_SETFL, flags ^ flag));
}

static void look_at(enum file f)
{
	struct stat st;
	ssize_t n;

	if (fstat(keeper[f], &st) < 0 || keeper[f] < 0) {
		log_note("%s: not there", file_names[f]);
		return;
	}
	log_value(file_names[f], (uint64_t)st.st_size);
	for (off_t at = 0; at < FILE_SHOWN && at < st.st_size; at += n) {
		n = pread(keeper[f], events, MAX_EVENTS * sizeof(*events), at);
		if (n <= 0)
			break;
		log_bytes(file_names[f], events, (size_t)n);
	}
}

static void run_look(void)
{
	settle();
	look_at(MEM);
	look_at(DISK);
	log_bytes("bufs", bufs, BUFS);
	log_bytes("direct_bufs", direct_bufs, BATCH * DIRECT_BUF);
}

static bool ring_true(struct ctx *c)
{
	if (c)
		gather(c);
	/* With polls on their way it may wait for a call. */
	return c && !c->polls;
}

static uint32_t ring_used(const struct ctx *c)
{
	uint32_t *h = header(c);

	return (h[3] + h[1] - h[2]) % h[1];
}

static void run_ring(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);

	if (!ring_true(c)) {
		log_note("not now");
		return;
	}
	/* Not its id, which changes when a context becomes the kernel's (AIO-RING-07). */
	log_value("ring->nr", header(c)[1]);
	log_value("events in the ring", ring_used(c));
	log_value("ring->magic", header(c)[4]);
	log_value("ring->compat_features", header(c)[5]);
	log_value("ring->incompat_features", header(c)[6]);
	log_value("ring->header_length", header(c)[7]);
}

/* Takes events without a call. */
static void run_take(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	const struct io_event *ring;
	uint32_t head;
	long n = 0;

	if (!ring_true(c)) {
		log_note("not now");
		return;
	}
	ring = (const struct io_event *)(header(c) + 8);
	for (head = header(c)[2]; head != header(c)[3] && n < s->n; n++) {
		events[n] = ring[head];
		head = (head + 1) % header(c)[1];
	}
	__atomic_store_n(&header(c)[2], head, __ATOMIC_RELEASE);
	log_value("taken by hand", (uint64_t)n);
	for (long i = 0; i < n; i++)
		account(c, &events[i]);
	log_event_list(events, n, false);
}

/* A word of the header is wrong for the time of a few calls. */
static void run_bad_header(const struct aio_step *s, int word)
{
	struct ctx *c = live(s->ctx);
	struct timespec none = {0};
	uint32_t was;

	if (!c) {
		log_note("not now");
		return;
	}
	gather(c);
	was = header(c)[word];
	header(c)[word] = s->u % 2 ? was + 1 + s->u % 5 : (uint32_t)s->u;
	begin_call();
	call("io_submit(%s, 0, NULL) with a header that is wrong at %d", context_name(s), word);
	log_ret(syscall(SYS_io_submit, c->id, 0, NULL));
	begin_call();
	call("io_getevents(%s, 0, 0, NULL, {0, 0})", context_name(s));
	log_ret(or_nothing(syscall(SYS_io_getevents, c->id, 0, 0, NULL, &none)));
	header(c)[word] = was;
}

static void run_move(const struct aio_step *s)
{
	struct ctx *c = live(s->ctx);
	void *to, *from;

	if (!c) {
		log_note("not now");
		return;
	}
	settle();
	from = (void *)(uintptr_t)c->id;
	to = map(c->ring_size, PROT_NONE);
	begin_call();
	call("mremap(%s)", context_name(s));
	log_ret(mremap(from, c->ring_size, c->ring_size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to
			? 0
			: -1);
	if (*(volatile uint32_t *)to == 0xffffffffu)
		return;
	c->id = (uintptr_t)to;
	block_address(from);
	begin_call();
	call("io_submit(where %s was, 0, NULL)", context_name(s));
	log_ret(syscall(SYS_io_submit, (uintptr_t)from, 0, NULL));
}

/* The child has none of the contexts, and can have its own (AIO-CTX-02). */
static void run_fork(void)
{
	static const char *const names[] = {"c0", "c1", "c2", "c3"};
	struct timespec none = {0};
	int status = 0;
	pid_t pid;

	settle();
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	if (pid > 0) {
		waitpid(pid, &status, 0);
		log_value("end of the child", (uint64_t)status);
		return;
	}
	for (int i = 0; i < CONTEXTS; i++) {
		if (!ctx[i].live)
			continue;
		begin_call();
		call("child: io_submit(%s, 0, NULL)", names[i]);
		log_ret(syscall(SYS_io_submit, ctx[i].id, 0, NULL));
		begin_call();
		call("child: io_getevents(%s, 0, 1, ev, {0, 0})", names[i]);
		log_ret(syscall(SYS_io_getevents, ctx[i].id, 0, 1, events, &none));
		begin_call();
		call("child: io_destroy(%s)", names[i]);
		log_ret(syscall(SYS_io_destroy, ctx[i].id));
		log_value("child: ring->nr", header(&ctx[i])[1]);
	}
	_exit(0);
}

static void run_limit(const struct aio_step *s)
{
	struct rlimit lim;

	settle();
	getrlimit(RLIMIT_FSIZE, &lim);
	lim.rlim_cur = s->u % 3 ? lim.rlim_max : 6144;
	setrlimit(RLIMIT_FSIZE, &lim);
	say("\t/* RLIMIT_FSIZE %lld */\n", (long long)lim.rlim_cur);
}

static void run_truncate(const struct aio_step *s)
{
	settle();
	begin_call();
	call("ftruncate(%s, %lld)", file_names[s->file], (long long)s->nr);
	log_ret(ftruncate(number[s->file], s->nr));
}

/* All but one time in n, as the step has it. */
static bool mostly(const struct aio_step *s, uint32_t n)
{
	return (s->u >> 40) % n != 0;
}

static void run_step(const struct aio_step *step)
{
	struct aio_step again = *step, *s = &again;
	int first = 0;

	while (first < CONTEXTS && !ctx[first].live)
		first++;
	if (first == CONTEXTS && mostly(s, 8)) {
		s->op = OP_SETUP;
		s->ctx %= CONTEXTS;
		s->bad = GOOD;
		s->nr = 128;
	} else if (s->op != OP_SETUP && s->ctx < CONTEXTS && !ctx[s->ctx].live &&
		   first < CONTEXTS && mostly(s, 8)) {
		s->ctx = (uint8_t)first;
	}
	begin_call();
	switch (s->op) {
	case OP_SETUP:
		run_setup(s);
		break;
	case OP_DESTROY:
		run_destroy(s);
		break;
	case OP_SUBMIT:
		run_submit(s);
		break;
	case OP_GETEVENTS:
		run_getevents(s);
		break;
	case OP_PGETEVENTS:
		run_pgetevents(s);
		break;
	case OP_CANCEL:
		run_cancel(s);
		break;
	case OP_WRITE:
	case OP_READ:
		run_rw(s);
		break;
	case OP_SWAP:
		run_swap(s);
		break;
	case OP_SETFL:
		run_setfl(s);
		break;
	case OP_TRUNCATE:
		run_truncate(s);
		break;
	case OP_LOOK:
		run_look();
		break;
	case OP_RING:
		run_ring(s);
		break;
	case OP_TAKE:
		run_take(s);
		break;
	case OP_BAD_ID:
		run_bad_header(s, 0);
		break;
	case OP_BAD_NR:
		run_bad_header(s, 1);
		break;
	case OP_MOVE:
		run_move(s);
		break;
	case OP_FORK:
		run_fork();
		break;
	case OP_LIMIT:
		run_limit(s);
		break;
	}
}

/* --- a sequence
 * ----------------------------------------------------------------------------------------- */

#define NUMBER_BASE 40
#define KEEPER_BASE 80

/* The file gets its number, and one out of the way at which it is kept. */
static void place(enum file f, int fd)
{
	number[f] = NUMBER_BASE + (int)f;
	keeper[f] = -1;
	open_at[f] = f;
	if (fd < 0)
		return;
	keeper[f] = dup2(fd, KEEPER_BASE + (int)f);
	dup2(fd, number[f]);
	close(fd);
}

static void open_files(void)
{
	const char *dir = getenv("TMPDIR");
	char path[64], *disk = NULL;
	int fd, ends[2];

	fd = memfd_create("aio", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	place(MEM_RO, open(path, O_RDONLY | O_CLOEXEC));
	place(MEM_WO, open(path, O_WRONLY | O_CLOEXEC));
	place(MEM_APPEND, open(path, O_RDWR | O_APPEND | O_CLOEXEC));
	place(MEM, fd);
	if (asprintf(&disk, "%s/pollux-differential.XXXXXX", dir && *dir ? dir : "/var/tmp") < 0)
		exit(1);
	fd = mkostemp(disk, O_CLOEXEC);
	if (fd < 0) {
		perror(disk);
		exit(1);
	}
	place(DISK_DIRECT, open(disk, O_RDWR | O_DIRECT | O_CLOEXEC));
	unlink(disk);
	free(disk);
	place(DISK, fd);
	place(EVENTFD, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	place(SEMAPHORE, eventfd(3, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC));
	if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0)
		exit(1);
	place(PIPE_R, ends[0]);
	place(PIPE_W, ends[1]);
	if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0)
		exit(1);
	close(ends[0]);
	place(PIPE_BROKEN, ends[1]);
	if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0)
		exit(1);
	/* Both ends at once, as a FIFO that is opened for both has. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
	place(FIFO, open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	close(ends[0]);
	close(ends[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
		exit(1);
	peer = ends[1];
	place(SOCKET, ends[0]);
	place(TIMER, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	place(EPOLL, epoll_create1(EPOLL_CLOEXEC));
	place(NULL_DEV, open("/dev/null", O_RDWR | O_CLOEXEC));
	place(ZERO_DEV, open("/dev/zero", O_RDWR | O_CLOEXEC));
	place(DIRECTORY, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	place(PATH_ONLY, open("/dev/null", O_PATH | O_CLOEXEC));
	place(PROC, open("/proc/version", O_RDONLY | O_CLOEXEC));
	place(NONE, -1);
}

static void begin_sequence(void)
{
	memset(ctx, 0, sizeof(ctx));
	memset(class_of, 0, sizeof(class_of));
	memset(args, 0, sizeof(*args));
	memset(fake, 0, PAGE);
	memset(data_edge_page, 'e', PAGE);
	memset(direct_bufs, 'd', BATCH * DIRECT_BUF);
	fake[4] = 0xa10a10a1u;
	next_id = 0;
	nholes = 0;
	for (size_t i = 0; i < BUFS / 4; i++)
		((uint32_t *)bufs)[i] = (uint32_t)i * 2654435761u;
	open_files();
	for (int i = 0; i < 16; i++)
		if (pwrite(keeper[i % 2 ? MEM : DISK], bufs, 1500, i * 1500) != 1500)
			exit(1);
}

static void end_sequence(void)
{
	struct rlimit lim;

	run_look();
	for (int i = 0; i < CONTEXTS; i++) {
		struct aio_step s = {.ctx = (uint8_t)i};

		if (!ctx[i].live)
			continue;
		begin_call();
		run_destroy(&s);
	}
	/* Nothing is touched any more, and what was polled is what it was. */
	for (int f = EVENTFD; f <= SEMAPHORE; f++) {
		uint64_t word = 0;

		begin_call();
		call("read(%s, &word, 8)", file_names[f]);
		log_ret(read(keeper[f], &word, 8));
		log_value("word", word);
	}
	getrlimit(RLIMIT_FSIZE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_FSIZE, &lim);
	for (int i = 0; i < nholes; i++)
		munmap(holes[i], PAGE);
	close_range(FIRST_NUMBER, ~0u, 0);
}

/* The steps that the text names: numbers and ranges, in order. */
static int keep_steps(int n, const char *text)
{
	int kept = 0;

	if (!strcmp(text, "-"))
		return n;
	while (*text) {
		char *end;
		int from = (int)strtol(text, &end, 10), to = from;

		if (*end == '-')
			to = (int)strtol(end + 1, &end, 10);
		for (int i = from; i <= to && i < n; i++)
			steps[kept++] = steps[i];
		text = *end ? end + 1 : end;
	}
	return kept;
}

/* Whether, not how often: those of one io_submit come one by one or all at once. */
static void on_sigpipe(int sig)
{
	(void)sig;
	sigpipes = 1;
}

static void prepare_process(void)
{
	struct sigaction sa = {.sa_handler = on_sigpipe};
	sigset_t usr1;

	sigaction(SIGPIPE, &sa, NULL);
	sigaction(SIGXFSZ, &sa, NULL);
	sa.sa_handler = on_signal;
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	args = map((sizeof(*args) + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE);
	bufs = map(BUFS + PAGE, PROT_READ | PROT_WRITE);
	mprotect(bufs + BUFS, PAGE, PROT_NONE);
	edge_page = map(2 * PAGE, PROT_READ | PROT_WRITE);
	hole = edge_page + PAGE;
	mprotect(hole, PAGE, PROT_NONE);
	direct_bufs = map(BATCH * DIRECT_BUF, PROT_READ | PROT_WRITE);
	data_edge_page = map(2 * PAGE, PROT_READ | PROT_WRITE);
	mprotect(data_edge_page + PAGE, PAGE, PROT_NONE);
	readonly_page = map(2 * PAGE, PROT_READ);
	mprotect(readonly_page + PAGE, PAGE, PROT_NONE);
	fake = map(PAGE, PROT_READ | PROT_WRITE);
	events = map(2 * MAX_EVENTS * sizeof(*events), PROT_READ | PROT_WRITE);
}

int main(int argc, char **argv)
{
	bool show = argc > 3 && !strcmp(argv[1], "show");
	uint64_t first, count;

	if (argc < 4 || (!show && (strcmp(argv[1], "run") || argc != 5))) {
		fprintf(stderr, "usage: differential-aio run PROFILE FIRST COUNT\n"
				"       differential-aio show PROFILE NUMBER [KEEP] [BEFORE]\n");
		return 2;
	}
	while (profile < AIO_PROFILES && strcmp(argv[2], profile_names[profile]))
		profile++;
	if (profile == AIO_PROFILES) {
		fprintf(stderr, "no profile %s\n", argv[2]);
		return 2;
	}
	first = strtoull(argv[3], NULL, 0);
	count = show ? (argc > 5 ? strtoull(argv[5], NULL, 0) : 0) + 1 : strtoull(argv[4], NULL, 0);
	if (show)
		first -= count - 1;
	close_range(FIRST_NUMBER, ~0u, 0);
	run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	prepare_process();
	storm_start();
	for (uint64_t i = first; i < first + count; i++) {
		bool last = show && i == first + count - 1;
		char line[64];
		int n = choose_all(i);

		run->hash = 0;
		run->verbose = last;
		say("/* %d steps */\n", n);
		if (last)
			n = keep_steps(n, argc > 4 ? argv[4] : "-");
		begin_sequence();
		for (int k = 0; k < n; k++)
			run_step(&steps[k]);
		end_sequence();
		n = snprintf(line, sizeof(line), "%llu %016llx %d\n", (unsigned long long)i,
			     (unsigned long long)run->hash, n);
		if (!show && write(1, line, (size_t)n) != n)
			return 1;
	}
	return 0;
}
