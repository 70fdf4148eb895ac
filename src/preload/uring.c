/* SPDX-License-Identifier: MIT */
/*
 * io_uring_setup, io_uring_enter, io_uring_register (through syscall()), mmap, mmap64, munmap
 *
 * A ring takes requests that name descriptors, and nobody but the kernel sees them; one for a
 * cached eventfd would wait for the kernel's count for ever. So a ring ends adoption of descriptors
 * (liburing.c). One kind is followed, since each loop of libuv has one: a ring with no flag but
 * IORING_SETUP_NO_SQARRAY, whose requests are all EPOLL_CTL. Without a thread of the kernel's that
 * polls it the kernel takes requests within io_uring_enter alone. Before that they are looked at
 * here, all of them, and if one is of another kind, or unusual in any way, adoption ends and
 * nothing has been done. Then
 *
 *   what may be cached  is registered by us, as by epoll_ctl. The request becomes a NOP for the
 *                       call, which has the same result. If it fails, what it names leaves the
 *                       cache, and the request stays: the kernel finds the error, too
 *   what is the kernel's stays. The epoll that it is for asks the kernel from then on, so it does
 *                       not matter when the kernel comes to it
 *
 * and the kernel is told of no more requests than have been looked at.
 *
 * Memory. The requests are where the program has mapped them: a mapping of ours would keep the ring
 * after its close. Each of the two parts has to be mapped once, and munmap and mremap end it. Few
 * requests are changed, and the kernel is asked to do it, as no fault is answered while the process
 * is not prepared. The child of a fork has no rings here.
 *
 *   ring.process  of whom the ring is; 0: it is not followed. Written before setup returns, by
 *                 which the program orders it with enters
 *   ring.next     the requests that the kernel has taken, all of them after a look. If it has
 *                 taken others the ring is used past us
 *   ring.by       who looks at the ring, or is in an enter of it: one thread at a time. A second
 *                 ends adoption, when the look is over
 *   ring.made     bits of the requests that are NOPs for now, by their index; of `by`
 *
 * Argument. (1) A request for an object that may be cached is never the kernel's before it is made
 * by epoll_ctl, in the same thread and in order. Those that stay are for files of the kernel's,
 * which the order does not concern. (2) A process that is not prepared: a request for a file of the
 * kernel's stays, and plx_cold_rings is set before the state is looked at. Who prepares says so,
 * makes a barrier in all threads, and then looks at plx_cold_rings: so one of them sees the other,
 * and each epoll asks the kernel (note.c). What is seen to be prepared is told as above. (3)
 * Another thread may unmap a ring while one prepares: the kernel is asked to read from it there.
 */
#include "preload/preload.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/sys.h"
#include "cache/cold.h"

/* Newer than some headers. */
#define SETUP_NO_SQARRAY (1u << 16)
/* Rings of more are not followed. */
#define ENTRIES 1024

struct ring {
	uint32_t process;
	uint32_t entries, next;
	bool array;
	/* It is looked at, and not in the kernel yet. */
	uint32_t looks;
	const void *by;
	struct io_sqring_offsets off;
	/* The program's mappings. */
	char *sq;
	struct io_uring_sqe *requests;
	size_t sq_size, requests_size;
	uint64_t made[ENTRIES / 64];
};

static PLX_LARGE struct ring rings[PLX_URINGS];
/* All that have been followed are below. */
static uint32_t end;

void plx_uring_end(int fd)
{
	if (fd >= 0 && (uint32_t)fd < plx_load(&end) && plx_load(&rings[fd].process))
		plx_store(&rings[fd].process, 0);
}

void plx_urings_end(unsigned int first, unsigned int last)
{
	for (; first <= last && first < plx_load(&end); first++)
		plx_uring_end((int)first);
}

static struct ring *followed(int fd)
{
	struct ring *r = &rings[fd];

	if (fd < 0 || (uint32_t)fd >= plx_load(&end) || !plx_load_acq(&r->process))
		return NULL;
	return r->process == plx_cold_process ? r : NULL;
}

static uint32_t word(const struct ring *r, uint32_t off)
{
	return plx_load_acq((uint32_t *)(void *)(r->sq + off));
}

static void mapped(void *at, size_t size, int fd, uint64_t offset)
{
	struct ring *r = followed(fd);
	bool twice = false;

	if (r && offset == IORING_OFF_SQ_RING) {
		twice = r->sq;
		r->sq_size = size;
		plx_store(&r->sq, at);
	} else if (r && offset == IORING_OFF_SQES) {
		twice = r->requests;
		r->requests_size = size;
		plx_store(&r->requests, at);
	}
	if (twice)
		plx_uring_end(fd);
}

static bool overlap(const void *a, size_t n, const void *b, size_t m)
{
	return (uintptr_t)a < (uintptr_t)b + m && (uintptr_t)b < (uintptr_t)a + n;
}

/* What is mapped there is so no longer. */
void plx_urings_unmapped(const void *at, size_t size)
{
	for (uint32_t fd = 0; fd < plx_load(&end); fd++)
		if (overlap(at, size, rings[fd].sq, rings[fd].sq_size) ||
		    overlap(at, size, rings[fd].requests, rings[fd].requests_size))
			plx_uring_end((int)fd);
}

/* Another thread may be about to unmap it. */
static bool is_used_past_us(const struct ring *r)
{
	uint32_t head, next = r->next;
	struct iovec to = {&head, sizeof(head)}, from = {r->sq + r->off.head, sizeof(head)};
	long n = plx_sys6(SYS_process_vm_readv, plx_sys0(SYS_getpid), (long)&to, 1, (long)&from, 1,
			  0);

	/* Who looks just now sees for himself. */
	return n != -EFAULT && !plx_load_acq(&r->by) && (n != sizeof(head) || head != next);
}

static bool is_followed(uintptr_t at)
{
	for (uint32_t fd = 0; fd < plx_load(&end); fd++) {
		const struct ring *r = followed((int)fd);

		if (r && at == (uintptr_t)r->sq)
			return !is_used_past_us(r);
		if (r && at == (uintptr_t)r->requests)
			return true;
	}
	return false;
}

static bool follow(int fd, const struct io_uring_params *p)
{
	struct ring *r = &rings[fd];
	uint32_t below = plx_load(&end);

	if (fd >= PLX_URINGS || (p->flags & ~SETUP_NO_SQARRAY) || p->sq_entries > ENTRIES)
		return false;
	*r = (struct ring){.entries = p->sq_entries,
			   .array = !(p->flags & SETUP_NO_SQARRAY),
			   .off = p->sq_off};
	while (below <= (uint32_t)fd && !plx_cas(&end, &below, (uint32_t)fd + 1))
		;
	plx_store(&plx_uring_followed, is_followed);
	plx_store_rel(&r->process, plx_cold_process);
	return true;
}

/*
 * ThreadSanitizer's run-time maps its own memory by these names, before instrumented code can run,
 * and looking for the next of a name is such code: there the call is made here.
 */
#ifdef PLX_TSAN
#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread")))
NOT_INSTRUMENTED static long result(long r)
{
	if (r >= 0 || r < -4095)
		return r;
	errno = (int)-r;
	return -1;
}
#define NEXT_MMAP(at, size, prot, flags, fd, offset)                                               \
	(void *)result(plx_sys6(SYS_mmap, (long)(at), (long)(size), prot, flags, fd, offset))
#define NEXT_MUNMAP(at, size) (int)result(plx_sys2(SYS_munmap, at, size))
#else
#define NOT_INSTRUMENTED
#define NEXT_MMAP plx_real.mmap
#define NEXT_MUNMAP plx_real.munmap
#endif

PLX_EXPORT NOT_INSTRUMENTED void *mmap(void *at, size_t size, int prot, int flags, int fd,
				       off_t offset)
{
	void *p = NEXT_MMAP(at, size, prot, flags, fd, offset);

	if (plx_unlikely(plx_load(&plx_uring_followed)) && p != MAP_FAILED) {
		plx_urings_unmapped(p, size);
		if (!(flags & MAP_ANONYMOUS))
			mapped(p, size, fd, (uint64_t)offset);
	}
	return p;
}
PLX_ALIAS(mmap64, mmap);

PLX_EXPORT NOT_INSTRUMENTED int munmap(void *at, size_t size)
{
	if (plx_unlikely(plx_load(&plx_uring_followed)))
		plx_urings_unmapped(at, size);
	return NEXT_MUNMAP(at, size);
}

static int kernel_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return (int)plx_sys4(SYS_epoll_ctl, epfd, op, fd, ev);
}

/* As epoll_ctl: 0, a negative errno, or PLX_PASS: the kernel is to make it. */
static long ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	long r = PLX_PASS;

	if (plx_cold_any() && !plx_cold_noted(fd)) {
		plx_store(&plx_cold_rings, 1);
		/* Partner: barrier in cold.c. */
		plx_compiler_barrier();
		if (plx_load_acq(&plx_cold) == PLX_COLD_NOTED)
			return PLX_PASS;
	}
	if (plx_cold_noted(epfd) || plx_cold_noted(fd))
		r = plx_cold_ctl(epfd, op, fd, ev, kernel_ctl);
	if (r == PLX_PASS && (plx_fd_ours(epfd) || plx_fd_ours(fd)))
		r = plx_px_epoll_ctl(epfd, op, fd, ev);
	return r;
}

/* Where the i-th request from r.next on is, or ENTRIES. */
static uint32_t place(const struct ring *r, uint32_t i)
{
	uint32_t at = (r->next + i) & (r->entries - 1);

	if (r->array)
		at = word(r, r->off.array + at * (uint32_t)sizeof(at));
	return at < r->entries ? at : ENTRIES;
}

#define MADE(r, at) ((r)->made[(at) / 64])
#define BIT_OF(at) (1ull << (at) % 64)

/* An EPOLL_CTL with nothing else that the kernel looks at. */
static bool is_usual(const struct io_uring_sqe *s)
{
	const struct io_uring_sqe usual = {.opcode = IORING_OP_EPOLL_CTL,
					   .fd = s->fd,
					   .off = s->off,
					   .addr = s->addr,
					   .len = s->len,
					   .user_data = s->user_data};

	return memcmp(s, &usual, sizeof(usual)) == 0;
}

/* Whether they are all usual, and no two the same. Nothing is done. */
static bool all_usual(struct ring *r, uint32_t n)
{
	struct io_uring_sqe s;
	bool usual = true;

	memset(r->made, 0, sizeof(r->made));
	for (uint32_t i = 0; i < n && usual; i++) {
		uint32_t at = place(r, i);

		usual = at < ENTRIES && !(MADE(r, at) & BIT_OF(at));
		if (usual) {
			MADE(r, at) |= BIT_OF(at);
			memcpy(&s, &r->requests[at], sizeof(s));
			usual = is_usual(&s);
		}
	}
	memset(r->made, 0, sizeof(r->made));
	return usual;
}

/* By the kernel: the program may have made it read-only. */
static bool say(struct io_uring_sqe *request, uint8_t opcode)
{
	struct iovec from = {&opcode, 1}, to = {&request->opcode, 1};

	return plx_sys6(SYS_process_vm_writev, plx_sys0(SYS_getpid), (long)&from, 1, (long)&to, 1,
			0) == 1;
}

static bool serve(struct ring *r, uint32_t at)
{
	struct io_uring_sqe *s = &r->requests[at];
	int epfd = s->fd, fd = (int)s->off;
	long done;

	if ((plx_cold_noted(fd) || plx_fd_ours(fd)) && !say(s, IORING_OP_EPOLL_CTL))
		return false;
	done = ctl(epfd, (int)s->len, fd, (void *)(uintptr_t)s->addr);
	if (done == 0) {
		MADE(r, at) |= BIT_OF(at);
		say(s, IORING_OP_NOP);
	} else if (done != PLX_PASS) {
		plx_note_leaves(epfd);
		plx_note_leaves(fd);
		plx_px_escape_pair(epfd, fd, PLX_OUT_IO_URING);
	}
	return true;
}

/* How many there are for the kernel to take, up to n; -1: the ring is not to be followed. */
static int64_t look_whole(struct ring *r, uint32_t n)
{
	uint32_t there;

	if (!r->sq || !r->requests || word(r, r->off.head) != r->next)
		return -1;
	there = word(r, r->off.tail) - r->next;
	n = n < there ? n : there;
	if (n > r->entries || !all_usual(r, n))
		return -1;
	for (uint32_t i = 0; i < n; i++)
		if (!serve(r, place(r, i)))
			return -1;
	return n;
}

static int64_t look(struct ring *r, uint32_t n)
{
	/* A handler that has come meanwhile runs when `looks` is 0: it may jump, or wait. */
	PLX_INSIDE();
	int64_t seen;

	plx_store(&r->looks, 1);
	seen = look_whole(r, n);
	plx_store_rel(&r->looks, 0);
	return seen;
}

/* Another thread is at it, or this one, in what a handler has interrupted. */
static void used_by_two(struct ring *r)
{
	for (int tries = 0; plx_load_acq(&r->looks) && plx_load(&r->by) != &plx_cold_mine; tries++)
		plx_await_step(tries);
}

struct ring *plx_uring_enter(int fd, uint32_t *n, unsigned int flags)
{
	struct ring *r = followed(fd);
	const void *none = NULL;
	int64_t seen = -1;

	/* Nothing is taken. */
	if (!*n || plx_vfork_child() || plx_load_acq(&plx_descriptors_out))
		return NULL;
	if (r && !plx_cas(&r->by, &none, (const void *)&plx_cold_mine)) {
		used_by_two(r);
		r = NULL;
	}
	if (r && !(flags & ~IORING_ENTER_GETEVENTS))
		seen = look(r, *n);
	if (seen >= 0) {
		*n = (uint32_t)seen;
		return r;
	}
	plx_uring();
	if (r)
		plx_store_rel(&r->by, NULL);
	return NULL;
}

void plx_uring_left(struct ring *r, uint32_t n)
{
	/* The ring may have been closed, and its number be another's. */
	if (!r || plx_load(&r->by) != &plx_cold_mine)
		return;
	/* What has not been taken stays as it is. */
	if (plx_load(&r->process) && word(r, r->off.head) == r->next + n) {
		for (uint32_t i = 0; i < n; i++) {
			uint32_t at = place(r, i);

			if (at < ENTRIES && (MADE(r, at) & BIT_OF(at)))
				say(&r->requests[at], IORING_OP_EPOLL_CTL);
		}
		r->next += n;
	} else {
		/* The next look finds that it is used otherwise. */
		r->next--;
	}
	plx_store_rel(&r->by, NULL);
}

void plx_uring_made(int fd, const void *params)
{
	struct io_uring_params p;

	if (plx_vfork_child())
		return;
	/* The kernel has written to it. */
	memcpy(&p, params, sizeof(p));
	if (!follow(fd, &p))
		plx_uring();
}
