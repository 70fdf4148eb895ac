/* SPDX-License-Identifier: MIT */
/* read, write and their variants, on whatever there is. */
#include "differential.h"

#include <sys/socket.h>
#include <sys/uio.h>

enum read_how {
	READ_READ,
	READ_SYSCALL,
	READ_READV,
	READ_READV2,
	READ_PREADV2,
	READ_NOWAIT,
	READ_PREAD,
	READ_RECV,
	READ_PEEK,
};

/* What one call can move, in bytes; eventfds and timers move 8. */
static uint32_t make_size(struct gen *g)
{
	static const uint32_t sizes[] = {1, 7, 8, 100, 4095, 4096, 4097, 8192, 65536, 70000};

	return chance(g, 70) ? 1 + below(g, 16) : pick(g, sizes);
}

static bool is_vector_read(int how)
{
	return how == READ_READV || how == READ_READV2 || how == READ_PREADV2 || how == READ_NOWAIT;
}

static bool read_make(struct gen *g, struct step *s)
{
	struct obj *o;

	s->a = pick_slot_or_bad(g, ANY_KIND & ~KINDS(KIND_EPOLL) & ~KINDS(KIND_PIPE_W));
	if (s->a == NO_SLOT)
		return false;
	o = model_obj(&g->m, s->a);
	s->n = 8;
	if (o && (KINDS(o->kind) & STREAMS))
		s->n = make_size(g);
	else if (rare(g, 30))
		s->n = pick(g, ((const int[]){0, 7, 9, 100}));
	s->how = chance(g, 85) ? below(g, 2) : below(g, 9);
	/* The object goes to the kernel by it. */
	if (is_vector_read(s->how) && !rare(g, 10))
		s->how = READ_READ;
	if (rare(g, 60)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, 10);
	}
	return true;
}

static void read_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	if (!o || o->kind != KIND_EVENTFD)
		return;
	/* Perhaps: the call is left out if it would block. */
	if (is_vector_read(s->how))
		model_escape_maybe(m, o);
	else if (s->n < 8 || s->how >= READ_PREAD || s->ptr != PTR_GOOD)
		model_may_return(m, o);
	if (s->n >= 8 && o->count && s->how < READ_PREAD)
		o->count -= o->semaphore ? 1 : o->count;
}

static void read_run(const struct step *s)
{
	int fd = number_of(s->a);
	char *p = pointer(s, scratch);
	struct iovec iov[2] = {{p, s->n}, {p, 0}};
	long r;

	if (s->how == READ_READV2 && s->n > 1) {
		iov[0].iov_len = s->n / 2;
		iov[1] = (struct iovec){p + s->n / 2, s->n - s->n / 2};
	}
	if (s->how < READ_PREAD && s->how != READ_NOWAIT && would_block(s, fd, POLLIN)) {
		log_left_out("would block");
		return;
	}
	switch (s->how) {
	case READ_SYSCALL:
		r = syscall(SYS_read, fd, p, s->n);
		break;
	case READ_READV:
		r = readv(fd, iov, 1);
		break;
	case READ_READV2:
		r = readv(fd, iov, 2);
		break;
	case READ_PREADV2:
		r = preadv2(fd, iov, 1, -1, 0);
		break;
	case READ_NOWAIT:
		r = preadv2(fd, iov, 1, -1, RWF_NOWAIT);
		break;
	case READ_PREAD:
		r = pread(fd, p, s->n, 0);
		break;
	case READ_RECV:
		r = recv(fd, p, s->n, MSG_DONTWAIT);
		break;
	case READ_PEEK:
		r = recv(fd, p, s->n, MSG_DONTWAIT | MSG_PEEK);
		break;
	default:
		r = read(fd, p, s->n);
	}
	log_ret(r);
	if (r > 0)
		log_bytes(r == 8 ? "hash(buf, 8)" : "hash(buf, r)", p, r);
}

static void read_text(const struct step *s)
{
	static const char *const forms[] = {
		[READ_READ] = "read(%s, %s, %d)",
		[READ_SYSCALL] = "syscall(SYS_read, %s, %s, %d)",
		[READ_READV] = "readv(%s, &(struct iovec){%s, %d}, 1)",
		[READ_READV2] = "readv(%s, halves(%s, %d), 2)",
		[READ_PREADV2] = "preadv2(%s, &(struct iovec){%s, %d}, 1, -1, 0)",
		[READ_NOWAIT] = "preadv2(%s, &(struct iovec){%s, %d}, 1, -1, RWF_NOWAIT)",
		[READ_PREAD] = "pread(%s, %s, %d, 0)",
		[READ_RECV] = "recv(%s, %s, %d, MSG_DONTWAIT)",
		[READ_PEEK] = "recv(%s, %s, %d, MSG_DONTWAIT | MSG_PEEK)",
	};
	char form[64];

	snprintf(form, sizeof(form), "%s", forms[s->how]);
	call(form, slot_name(s->a), ptr_name(s, "buf"), s->n);
}

/* --- write --------------------------------------------------------------------------- */

enum write_how {
	WRITE_WRITE,
	WRITE_SYSCALL,
	WRITE_WRITEV,
	WRITE_WRITEV2,
	WRITE_PWRITEV2,
	WRITE_PWRITE,
	WRITE_SEND,
};

#define EVENTFD_MAX (UINT64_MAX - 1)
/* What is more goes to the kernel's object, though that stays cached. */
#define CACHED_COUNT 0xffff

static uint64_t make_value(struct gen *g, struct obj *o)
{
	static const uint64_t odd[] = {
		0,	    0x3f,	0x40,	    1ull << 27,	 (1ull << 28) - 1,
		1ull << 28, 1ull << 29, 1ull << 63, EVENTFD_MAX, UINT64_MAX,
	};

	/* A large one loses the order. */
	if (g->m.profile == PROFILE_INPROC ? !rare(g, 150) : chance(g, 85))
		return 1 + (chance(g, 30) ? below(g, 5) : 0);
	if (o && o->kind == KIND_EVENTFD && chance(g, 40))
		return EVENTFD_MAX - o->count + below(g, 3) - 1;
	return pick(g, odd);
}

static bool is_vector_write(int how)
{
	return how == WRITE_WRITEV || how == WRITE_WRITEV2 || how == WRITE_PWRITEV2;
}

static bool write_make(struct gen *g, struct step *s)
{
	uint32_t kinds = KINDS(KIND_EVENTFD) | KINDS(KIND_PIPE_W) | KINDS(KIND_SOCKET);
	struct obj *o;

	s->a = pick_slot_or_bad(g, rare(g, 50) ? ANY_KIND : kinds);
	if (s->a == NO_SLOT)
		return false;
	o = model_obj(&g->m, s->a);
	s->n = 8;
	s->u = make_value(g, o);
	if (o && (KINDS(o->kind) & STREAMS))
		s->n = make_size(g);
	else if (rare(g, 30))
		s->n = pick(g, ((const int[]){0, 7, 9, 100}));
	s->how = chance(g, 85) ? below(g, 2) : below(g, 7);
	if (is_vector_write(s->how) && !rare(g, 10))
		s->how = WRITE_WRITE;
	if (rare(g, 60)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, 10);
	}
	return true;
}

static bool write_readable(const struct step *s)
{
	return s->ptr == PTR_GOOD || s->ptr == PTR_READONLY || (s->ptr == PTR_EDGE && s->room >= 8);
}

static void write_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	/* Before anything is cached such a call ends what is known of the number. */
	if (o && o->kind == KIND_EPOLL && (s->how == WRITE_SYSCALL || is_vector_write(s->how)))
		model_escape_maybe(m, o);
	if (!o || o->kind != KIND_EVENTFD)
		return;
	if (is_vector_write(s->how))
		model_escape_maybe(m, o);
	else if (s->n != 8 || s->how >= WRITE_PWRITE || s->u > EVENTFD_MAX - o->count ||
		 !write_readable(s))
		model_may_return(m, o);
	if (s->n != 8 || s->how >= WRITE_PWRITE || s->u == UINT64_MAX || !write_readable(s))
		return;
	if (s->how == WRITE_WRITEV2)
		return;
	if (s->u > CACHED_COUNT)
		model_both_sides(m, o);
	if (o->count <= EVENTFD_MAX - s->u)
		o->count += s->u;
}

static void write_run(const struct step *s)
{
	int fd = number_of(s->a);
	char *p = pointer(s, scratch);
	struct iovec iov[2] = {{p, s->n}, {p, 0}};
	bool ticks;
	long r;

	if (s->how == WRITE_WRITEV2 && s->n > 1) {
		iov[0].iov_len = s->n / 2;
		iov[1] = (struct iovec){p + s->n / 2, s->n - s->n / 2};
	}
	/* A readonly page holds zeros; so does the page before the edge, but for its end. */
	if (s->ptr == PTR_GOOD) {
		memset(scratch, (uint8_t)run->steps, s->n);
		memcpy(scratch, &s->u, sizeof(s->u));
	} else if (s->ptr == PTR_EDGE && s->room >= 8) {
		memcpy(p, &s->u, sizeof(s->u));
	}
	if (s->how < WRITE_PWRITE &&
	    (would_block(s, fd, POLLOUT) || (s->n > 4096 && blocking(fd)))) {
		log_left_out("would block");
		return;
	}
	/* There is room for 1, but perhaps not for more. */
	ticks = s->n == 8 && s->u > 1 && blocking(fd);
	if (ticks)
		ticks_start();
	switch (s->how) {
	case WRITE_SYSCALL:
		r = syscall(SYS_write, fd, p, s->n);
		break;
	case WRITE_WRITEV:
		r = writev(fd, iov, 1);
		break;
	case WRITE_WRITEV2:
		r = writev(fd, iov, 2);
		break;
	case WRITE_PWRITEV2:
		r = pwritev2(fd, iov, 1, -1, 0);
		break;
	case WRITE_PWRITE:
		r = pwrite(fd, p, s->n, 0);
		break;
	case WRITE_SEND:
		r = send(fd, p, s->n, MSG_DONTWAIT);
		break;
	default:
		r = write(fd, p, s->n);
	}
	if (ticks)
		ticks_stop();
	log_ret(r);
}

static void write_text(const struct step *s)
{
	static const char *const forms[] = {
		[WRITE_WRITE] = "write(%s, %s, %d)",
		[WRITE_SYSCALL] = "syscall(SYS_write, %s, %s, %d)",
		[WRITE_WRITEV] = "writev(%s, &(struct iovec){%s, %d}, 1)",
		[WRITE_WRITEV2] = "writev(%s, halves(%s, %d), 2)",
		[WRITE_PWRITEV2] = "pwritev2(%s, &(struct iovec){%s, %d}, 1, -1, 0)",
		[WRITE_PWRITE] = "pwrite(%s, %s, %d, 0)",
		[WRITE_SEND] = "send(%s, %s, %d, MSG_DONTWAIT)",
	};
	char form[64], value[64];

	snprintf(form, sizeof(form), "%s", forms[s->how]);
	if (s->n <= 8)
		snprintf(value, sizeof(value), "&(uint64_t){%s}", number_text(s->u));
	call(form, slot_name(s->a), ptr_name(s, s->n <= 8 ? value : "buf"), s->n);
}

/* --- so many that an eventfd becomes hot ------------------------------------------------ */

static bool flood_make(struct gen *g, struct step *s)
{
	s->a = pick_slot(g, KINDS(KIND_EVENTFD));
	s->n = 2 + below(g, 150);
	/* Reads in between. */
	s->how = below(g, 2);
	return s->a != NO_SLOT;
}

static void flood_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj_kind(m, s->a, KIND_EVENTFD);

	if (!o || !o->nonblock)
		return;
	if (s->how && o->count)
		o->count -= o->semaphore ? 1 : o->count;
	o->count = o->count > EVENTFD_MAX - s->n ? EVENTFD_MAX : o->count + s->n;
}

static void flood_run(const struct step *s)
{
	uint64_t one = 1, value = 0;
	int fd = number_of(s->a);

	if (blocking(fd)) {
		log_left_out("may block");
		return;
	}
	for (int i = 0; i < s->n; i++) {
		if (s->how && i % 3 == 2) {
			log_hash((uint64_t)read(fd, &value, sizeof(value)));
			log_hash(value);
		}
		log_hash((uint64_t)write(fd, &one, sizeof(one)));
	}
	log_value("value", value);
}

static void flood_text(const struct step *s)
{
	call("writes(%s, 1, %d times%s)", slot_name(s->a), s->n, s->how ? ", with reads" : "");
}

const struct op ops_rw[] = {
	{"read", {36, 36, 24, 30}, read_make, read_apply, read_run, read_text, false},
	{"write", {60, 60, 50, 60}, write_make, write_apply, write_run, write_text, false},
	{"flood", {4, 3, 2, 2}, flood_make, flood_apply, flood_run, flood_text, false},
	{0},
};
