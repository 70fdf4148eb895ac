/* SPDX-License-Identifier: MIT */
/*
 * io_uring_setup, io_uring_enter, io_uring_register (through syscall()), mmap, mmap64
 *
 * A ring takes requests that name descriptors, and nobody but the kernel sees them; one for a
 * cached eventfd would wait for the kernel's count for ever. So a ring ends adoption of descriptors
 * (liburing.c). One kind is followed, since each loop of libuv has one: a ring without flags whose
 * requests are all EPOLL_CTL or NOP. Without a thread of the kernel's that polls it the kernel
 * takes requests within io_uring_enter alone. Before that they are looked at here:
 *
 *   EPOLL_CTL  is made by us, as epoll_ctl is, if it concerns what may be cached. A NOP takes its
 *              place, which has the same result. If it fails, what it names leaves the cache, and
 *              the request stays: the kernel finds the error, too.
 *              What is the kernel's to make stays as well. The epoll that it is for asks the
 *              kernel from then on, so it does not matter when the kernel comes to it.
 *   others     end adoption, and so does whatever is done with the ring but to enter it.
 *
 * Memory. The requests are where the program has mapped them: a mapping of ours would keep the ring
 * after its close. Each of the two parts has to be mapped once. The program has written its
 * requests by that mapping just now, so it is there. No fault is answered while the process is not
 * prepared; one that has forked has no rings here in the child, which may lack the mapping.
 *
 *   ring.process  of whom the ring is; 0: it is not followed. Written before setup returns, by
 *                 which the program orders it with enters
 *   ring.next     the requests that the kernel has taken, all of them after a look. If it has
 *                 taken others the ring is used past us
 *   ring.looking  one thread looks at a ring at a time. A second, or a handler that has
 *                 interrupted the first, ends adoption
 *
 * Argument. (1) A request for an object that may be cached is never the kernel's before it is made
 * by epoll_ctl, in the same thread and in order. Those that stay are for files of the kernel's,
 * which the order does not concern. (2) A process that is not prepared: a request for a file of the
 * kernel's stays, and plx_cold_rings is set before the state is looked at. Who prepares says so,
 * makes a barrier in all threads, and then looks at plx_cold_rings: so one of them sees the other,
 * and each epoll asks the kernel (note.c). What is seen to be prepared is told as above.
 */
#include "preload/preload.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/sys.h"
#include "cache/cold.h"

/* Newer than some headers. */
#define SETUP_NO_SQARRAY (1u << 16)

struct ring {
	uint32_t process;
	uint32_t looking;
	uint32_t entries, next;
	bool array;
	struct io_sqring_offsets off;
	/* The program's mappings. */
	char *sq;
	struct io_uring_sqe *requests;
};

static PLX_LARGE struct ring rings[PLX_URINGS];

void plx_uring_end(int fd)
{
	if (fd >= 0 && fd < PLX_URINGS)
		plx_store(&rings[fd].process, 0);
}

static struct ring *followed(int fd)
{
	struct ring *r = &rings[fd];

	if (fd < 0 || fd >= PLX_URINGS || !plx_load(&plx_uring_followed) ||
	    !plx_load_acq(&r->process))
		return NULL;
	return r->process == plx_cold_process ? r : NULL;
}

static uint32_t word(const struct ring *r, uint32_t off)
{
	return plx_load_acq((uint32_t *)(void *)(r->sq + off));
}

static void mapped(void *at, int fd, uint64_t offset)
{
	struct ring *r = followed(fd);
	bool twice = false;

	if (r && offset == IORING_OFF_SQ_RING) {
		twice = r->sq;
		plx_store(&r->sq, at);
	} else if (r && offset == IORING_OFF_SQES) {
		twice = r->requests;
		plx_store(&r->requests, at);
	}
	if (twice)
		plx_uring_end(fd);
}

void plx_urings_moved(const void *from)
{
	for (int fd = 0; fd < PLX_URINGS; fd++)
		if (rings[fd].sq == from || (void *)rings[fd].requests == from)
			plx_uring_end(fd);
}

static bool is_followed(uintptr_t at)
{
	for (int fd = 0; fd < PLX_URINGS; fd++) {
		const struct ring *r = followed(fd);

		/* Who looks just now sees for himself. */
		if (r && at == (uintptr_t)r->sq)
			return plx_load_acq(&r->looking) || word(r, r->off.head) == r->next;
		if (r && at == (uintptr_t)r->requests)
			return true;
	}
	return false;
}

static bool follow(int fd, const struct io_uring_params *p)
{
	struct ring *r = &rings[fd];

	if (fd >= PLX_URINGS || (p->flags & ~SETUP_NO_SQARRAY))
		return false;
	*r = (struct ring){.entries = p->sq_entries,
			   .array = !(p->flags & SETUP_NO_SQARRAY),
			   .off = p->sq_off};
	plx_store(&plx_uring_followed, is_followed);
	plx_store_rel(&r->process, plx_cold_process);
	return true;
}

/*
 * ThreadSanitizer's run-time maps its own memory by this name, before instrumented code can run,
 * and looking for the next of the name is such code: there the call is made here.
 */
#ifdef PLX_TSAN
#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread")))
NOT_INSTRUMENTED static void *next_mmap(void *at, size_t size, int prot, int flags, int fd,
					off_t offset)
{
	long r = plx_sys6(SYS_mmap, (long)at, (long)size, prot, flags, fd, offset);

	if (r < 0 && r >= -4095) {
		errno = (int)-r;
		return MAP_FAILED;
	}
	return (void *)r;
}
#else
#define NOT_INSTRUMENTED
#define next_mmap plx_real.mmap
#endif

PLX_EXPORT NOT_INSTRUMENTED void *mmap(void *at, size_t size, int prot, int flags, int fd,
				       off_t offset)
{
	void *p = next_mmap(at, size, prot, flags, fd, offset);

	if (plx_unlikely(plx_load(&plx_uring_followed)) && p != MAP_FAILED &&
	    !(flags & MAP_ANONYMOUS))
		mapped(p, fd, (uint64_t)offset);
	return p;
}
PLX_ALIAS(mmap64, mmap);

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

/* False: the ring is not to be followed. */
static bool serve(struct io_uring_sqe *request)
{
	struct io_uring_sqe s = *(volatile struct io_uring_sqe *)request;
	int fd = (int)s.off;
	long r;

	if (s.opcode == IORING_OP_NOP)
		return true;
	if (s.opcode != IORING_OP_EPOLL_CTL || s.flags || s.personality)
		return false;
	/* The kernel refuses it. */
	if (s.buf_index || s.splice_fd_in)
		return true;
	r = ctl(s.fd, (int)s.len, fd, (void *)(uintptr_t)s.addr);
	if (r == 0) {
		*request = (struct io_uring_sqe){.opcode = IORING_OP_NOP, .user_data = s.user_data};
	} else if (r != PLX_PASS) {
		plx_note_leaves(s.fd);
		plx_note_leaves(fd);
		plx_px_escape_pair(s.fd, fd, PLX_OUT_IO_URING);
	}
	return true;
}

static bool look(struct ring *r, uint32_t submitted)
{
	uint32_t head, tail;

	if (!r->sq || !r->requests)
		return false;
	head = word(r, r->off.head);
	tail = word(r, r->off.tail);
	if (head != r->next)
		return false;
	if (submitted > tail - head)
		submitted = tail - head;
	if (submitted > r->entries)
		return false;
	for (uint32_t i = 0; i < submitted; i++) {
		uint32_t at = (head + i) & (r->entries - 1);

		if (r->array)
			at = word(r, r->off.array + at * (uint32_t)sizeof(at));
		if (at >= r->entries || !serve(&r->requests[at]))
			return false;
	}
	return true;
}

static bool look_inside(struct ring *r, uint32_t submitted)
{
	PLX_INSIDE();
	return look(r, submitted);
}

struct ring *plx_uring_enter(int fd, uint32_t submitted)
{
	struct ring *r = followed(fd);

	/* Nothing is taken. */
	if (!submitted || plx_vfork_child() || plx_load_acq(&plx_descriptors_out))
		return NULL;
	if (r && plx_xchg(&r->looking, 1))
		r = NULL;
	if (r && look_inside(r, submitted))
		return r;
	plx_uring();
	plx_uring_left(r, 0);
	return NULL;
}

void plx_uring_left(struct ring *r, long taken)
{
	if (!r)
		return;
	r->next += taken > 0 ? (uint32_t)taken : 0;
	plx_store_rel(&r->looking, 0);
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
