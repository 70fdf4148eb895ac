/* SPDX-License-Identifier: MIT */
/*
 * Completions of io_uring as readiness of your own objects, in one wait with a socket.
 *
 * Files are copied by reads and writes of one ring. Each copy is an object that is readable while
 * completions of it have not been taken: so it can be waited for alone, by whom it belongs to, and
 * needs no descriptor of its own. The ring's descriptor is in the same wait; when it says that
 * there is something, completions are handed out to the copies. A thread asks over a socket how
 * many bytes are copied, and gets its answers from the same wait as well.
 *
 *   uring [MEGABYTES]   of each of four files, 4 if it is not said
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

#define FILES 4
/* On their way at a time, for each copy. */
#define BLOCKS 8
#define BLOCK_BYTES 65536u

/* One block: it is read, then written, then takes the next place of the file. */
struct block {
	struct copy *copy;
	struct block *next;
	uint64_t at;
	int writes, result;
	unsigned char bytes[BLOCK_BYTES];
};

struct copy {
	struct pollux_file file;
	int from, to;
	uint64_t size, next, copied;
	/* Whose completion has come. Only the thread of the ring puts any there, and takes them. */
	struct block *done;
	struct block block[BLOCKS];
};

static struct io_uring ring;
static long completions;

static uint32_t copy_poll(struct pollux_file *f, uint32_t wanted)
{
	struct copy *c = pollux_container_of(f, struct copy, file);

	(void)wanted;
	return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE) ? EPOLLIN : 0u;
}

static void copy_free(struct pollux_file *f)
{
	free(pollux_container_of(f, struct copy, file));
}

static const struct pollux_file_ops copy_ops = {
	.size = sizeof(copy_ops),
	.poll = copy_poll,
	.free = copy_free,
};

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	exit(1);
}

static uint32_t block_size(const struct block *b)
{
	uint64_t left = b->copy->size - b->at;

	return left < BLOCK_BYTES ? (uint32_t)left : BLOCK_BYTES;
}

/* There is room in the ring for all blocks of all copies. */
static void block_start(struct block *b, int writes)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct copy *c = b->copy;

	b->writes = writes;
	if (writes)
		io_uring_prep_write(sqe, c->to, b->bytes, block_size(b), b->at);
	else
		io_uring_prep_read(sqe, c->from, b->bytes, block_size(b), b->at);
	io_uring_sqe_set_data(sqe, b);
}

static void block_next(struct block *b)
{
	struct copy *c = b->copy;

	b->at = c->next;
	if (b->at < c->size) {
		c->next += block_size(b);
		block_start(b, 0);
	}
}

/* The ring has completions: each goes to its copy, which becomes readable. */
static void ring_reap(void)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&ring, &cqe)) {
		struct block *b = io_uring_cqe_get_data(cqe);
		struct copy *c = b->copy;

		b->result = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
		completions++;
		b->next = c->done;
		__atomic_store_n(&c->done, b, __ATOMIC_RELEASE);
		/* For each completion: a wake too many does no harm. */
		pollux_file_wake(&c->file, EPOLLIN);
	}
}

/* The copy is readable: goes on with the blocks that are there. */
static void copy_run(struct copy *c)
{
	struct block *b = c->done, *next;

	for (__atomic_store_n(&c->done, NULL, __ATOMIC_RELEASE); b; b = next) {
		next = b->next;
		if (b->result != (int)block_size(b))
			die(b->writes ? "write" : "read", b->result < 0 ? -b->result : EIO);
		if (!b->writes) {
			block_start(b, 1);
			continue;
		}
		c->copied += (uint64_t)b->result;
		block_next(b);
	}
}

static int temporary(void)
{
	char name[] = "/tmp/pollux-uring-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	if (fd < 0)
		die("mkostemp", errno);
	unlink(name);
	return fd;
}

static struct copy *copy_new(uint64_t size)
{
	struct copy *c = calloc(1, sizeof(*c));
	uint64_t x = size + 1;

	if (!c)
		die("calloc", ENOMEM);
	pollux_file_init(&c->file, &copy_ops);
	c->from = temporary();
	c->to = temporary();
	c->size = size;
	for (uint64_t at = 0; at < size; at += sizeof(x)) {
		size_t n = size - at < sizeof(x) ? size - at : sizeof(x);

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(c->block[0].bytes + at % BLOCK_BYTES, &x, n);
		if (((at + n) % BLOCK_BYTES == 0 || at + n == size) &&
		    pwrite(c->from, c->block[0].bytes, (at + n - 1) % BLOCK_BYTES + 1,
			   (off_t)(at / BLOCK_BYTES * BLOCK_BYTES)) < 0)
			die("pwrite", errno);
	}
	for (int i = 0; i < BLOCKS; i++)
		c->block[i].copy = c;
	return c;
}

/* Reads both files by other means. */
static int copy_is_right(struct copy *c)
{
	unsigned char *a = c->block[0].bytes, *b = c->block[1].bytes;

	for (uint64_t at = 0; at < c->size; at += BLOCK_BYTES) {
		ssize_t n = pread(c->from, a, BLOCK_BYTES, (off_t)at);

		if (n <= 0 || pread(c->to, b, BLOCK_BYTES, (off_t)at) != n ||
		    memcmp(a, b, (size_t)n))
			return 0;
	}
	return c->copied == c->size;
}

static void copy_end(struct copy *c)
{
	close(c->from);
	close(c->to);
	pollux_file_put(&c->file);
}

struct asker {
	int fd;
	uint64_t size;
	long answers;
};

/* Asks until all is copied. */
static void *asker_run(void *arg)
{
	struct asker *a = arg;
	uint64_t copied = 0;

	for (; copied < a->size; a->answers++)
		if (send(a->fd, "?", 1, 0) != 1 ||
		    recv(a->fd, &copied, sizeof(copied), 0) != sizeof(copied))
			die("the socket", errno);
	close(a->fd);
	return NULL;
}

static void add(struct pollux_ep *ep, struct copy *c, int fd, void *data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = data};
	int err = c ? pollux_ep_ctl(ep, EPOLL_CTL_ADD, &c->file, 0, &ev)
		    : pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev);

	if (err)
		die("the epoll", -err);
}

int main(int argc, char **argv)
{
	uint64_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 4, total = 0;
	struct copy *copy[FILES];
	struct epoll_event ev[8];
	struct asker asker = {.answers = 0};
	struct pollux_ep *ep;
	int pair[2], open = 1, right = 0, err;
	pthread_t t;

	err = -io_uring_queue_init(FILES * BLOCKS, &ring, 0);
	if (err == ENOSYS || err == EPERM || err == EACCES) {
		printf("skipped: the kernel has no io_uring for this program: %s\n", strerror(err));
		return 77;
	}
	if (err)
		die("io_uring_queue_init", err);
	if (pollux_ep_new(&ep, NULL) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		die("the epoll or the socket", errno);
	for (int i = 0; i < FILES; i++) {
		/* Some end within a block. */
		copy[i] = copy_new(megabytes * 1000000 + 1000 * (uint64_t)i + 1);
		total += copy[i]->size;
		add(ep, copy[i], -1, copy[i]);
		for (int k = 0; k < BLOCKS; k++)
			block_next(&copy[i]->block[k]);
	}
	add(ep, NULL, ring.ring_fd, &ring);
	add(ep, NULL, pair[0], NULL);
	asker.fd = pair[1];
	asker.size = total;
	if (pthread_create(&t, NULL, asker_run, &asker))
		die("pthread_create", errno);
	while (open) {
		int n;

		/* All that was started since the last wait, in one call. */
		err = io_uring_submit(&ring);
		if (err < 0)
			die("io_uring_submit", -err);
		/* io_uring may interrupt a sleep, as a signal does. */
		n = pollux_ep_wait(ep, ev, 8, POLLUX_FOREVER);
		if (n < 0 && n != -EINTR)
			die("pollux_ep_wait", -n);
		for (int i = 0; i < n; i++) {
			uint64_t copied = 0;
			char ask;

			if (ev[i].data.ptr == &ring) {
				ring_reap();
			} else if (ev[i].data.ptr) {
				copy_run(ev[i].data.ptr);
			} else if (recv(pair[0], &ask, 1, 0) == 1) {
				for (int k = 0; k < FILES; k++)
					copied += copy[k]->copied;
				if (send(pair[0], &copied, sizeof(copied), 0) != sizeof(copied))
					die("send", errno);
			} else {
				open = 0;
			}
		}
	}
	pthread_join(t, NULL);
	for (int i = 0; i < FILES; i++) {
		right += copy_is_right(copy[i]);
		copy_end(copy[i]);
	}
	printf("%d of %d copies right, %llu bytes, %ld completions of io_uring; %ld answers by a "
	       "socket in the same wait\n",
	       right, FILES, (unsigned long long)total, completions, asker.answers);
	close(pair[0]);
	pollux_ep_put(ep);
	io_uring_queue_exit(&ring);
	pollux_quiesce();
	return right != FILES;
}
