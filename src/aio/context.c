/* SPDX-License-Identifier: MIT */
/*
 * Making a context and taking it away.
 *
 * io_destroy, in the order of AIO-DESTROY-02: the context leaves the table, so that no
 * new call finds it; sleepers are woken and return; the calls that are still inside finish
 * (an inline read may take as long as the disk does); then the twin is destroyed, which
 * cancels polls and waits for every request with the kernel; then the ring goes. While a
 * call is inside it may use the twin, so that goes after the last of them: its ring is
 * read by us, and its address names another context as soon as it has been destroyed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aio/ring.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "base/sys.h"
#include "posix/posix.h"
#include "posix/uaccess.h"

/* Half the kernel's bound on the bytes of a ring, in events (AIO-SETUP-02). */
#define MAX_EVENTS 0x800000u

PLX_START_PAGE enum plx_aio_limit plx_aio_limit = PLX_AIO_UNLIMITED;

#if PLX_TSAN
char plx_aio_address_token;
#endif

/* Where the calls are, in the state's high half. */
static uint32_t *calls_word(struct plx_kioctx *k)
{
	return (uint32_t *)&k->state + 1;
}

void plx_aio_put(struct plx_kioctx *k, uint32_t slots)
{
	uint32_t *word = calls_word(k);

	/* From here on k may be released, unless the caller is in an RCU section: only its
	 * address is used, and a futex that is gone or another's wakes nobody in error. */
	if (plx_unlikely(plx_xadd(&k->state, -(PLX_AIO_CALL + slots)) & PLX_AIO_DEAD))
		plx_sys3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1 << 30);
}

/* Until no call is inside but ours. Not interruptible (AIO-DESTROY-05). */
static void wait_for_calls(struct plx_kioctx *k)
{
	uint32_t *word = calls_word(k);
	uint64_t state;

	while (PLX_AIO_CALLS(state = plx_load_acq(&k->state)) > 1)
		plx_sys4(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, (uint32_t)(state >> 32),
			 NULL);
}

/* How many CPUs a list such as "0-3,5" names. */
static uint32_t count_list(const char *list, long n)
{
	uint32_t count = 0, first = 0, v = 0;
	bool range = false;

	for (long i = 0; i <= n; i++) {
		if (i < n && list[i] >= '0' && list[i] <= '9') {
			v = v * 10 + (list[i] - '0');
		} else if (i < n && list[i] == '-') {
			first = v;
			range = true;
			v = 0;
		} else if (i == n || list[i] == ',' || list[i] == '\n') {
			count += range ? v - first + 1 : 1;
			range = false;
			v = 0;
			if (i < n && list[i] == '\n')
				break;
		}
	}
	return count;
}

static uint32_t possible_cpus(void)
{
	static uint32_t cpus;
	uint32_t n = plx_load(&cpus);
	char buf[256];
	long fd, r;

	if (n)
		return n;
	fd = plx_sys4(SYS_openat, AT_FDCWD, "/sys/devices/system/cpu/possible",
		      O_RDONLY | O_CLOEXEC, 0);
	r = fd < 0 ? fd : plx_sys3(SYS_read, fd, buf, sizeof(buf));
	if (fd >= 0)
		plx_sys1(SYS_close, fd);
	n = r > 0 ? count_list(buf, r) : 1;
	plx_store(&cpus, n);
	return n;
}

/* aio-max-nr as it is now, or no limit. */
static uint64_t max_nr(void)
{
	char buf[32];
	uint64_t v = 0;
	long fd, r;

	if (plx_aio_limit == PLX_AIO_UNLIMITED)
		return UINT64_MAX;
	fd = plx_sys4(SYS_openat, AT_FDCWD, "/proc/sys/fs/aio-max-nr", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return UINT64_MAX;
	r = plx_sys3(SYS_read, fd, buf, sizeof(buf));
	plx_sys1(SYS_close, fd);
	for (long i = 0; i < r && buf[i] >= '0' && buf[i] <= '9'; i++)
		v = v * 10 + (buf[i] - '0');
	return v;
}

static void retire_context(void *p)
{
	plx_free(p);
}

/* Not, or no longer, in the table; nobody inside. */
static void release(struct plx_kioctx *k)
{
	plx_aio_address_put();
	plx_aio_ring_unmap(k->ring, k->size, k->user_id);
	plx_retire(k, retire_context);
	plx_retire_flush_if_full();
}

void plx_aio_context_given(struct plx_kioctx *k)
{
	plx_aio_ring_unmap(k->ring, k->size, 0);
}

/* The ring's size follows AIO-RING-02, so that programs see the number that they know. */
static struct plx_kioctx *context_new(uint32_t nr_events, uint32_t asked)
{
	size_t entries = (size_t)nr_events + 2;
	size_t size = sizeof(struct plx_aio_ring) + entries * sizeof(struct io_event);
	size_t page = getpagesize();
	struct plx_kioctx *k = plx_zalloc(sizeof(*k));
	struct plx_aio_ring *ring;

	if (!k)
		return NULL;
	size = (size + page - 1) / page * page;
	ring = plx_aio_ring_map(size, &k->user_id);
	if (!ring) {
		plx_free(k);
		return NULL;
	}
	plx_aio_address_get();
	k->ring = ring;
	k->size = size;
	k->nr = (size - sizeof(*ring)) / sizeof(struct io_event);
	k->nr_events = asked;
	/* The call that makes it. */
	k->state = PLX_AIO_CALL;
	ring->nr = k->nr;
	ring->magic = PLX_AIO_MAGIC;
	ring->compat_features = 1;
	ring->header_length = sizeof(*ring);
	return k;
}

static void destroy(struct plx_kioctx *k)
{
	bool ring;

	PLX_DELAY(aio_destroy_dead);
	/*
	 * Waiters hear the bell together, or one makes sure that the next does. The lock is also
	 * for those in take_at_once, who are not counted.
	 */
	plx_lock(&k->lock, PLX_RANK_AIO);
	ring = plx_aio_due(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (ring)
		plx_aio_ring_bell(k);
	PLX_DELAY(aio_destroy_wait);
	wait_for_calls(k);
	/* Not before: the kernel may give the address of the twin to the next one. */
	if (k->twin) {
		plx_aio_address_put();
		plx_sys1(SYS_io_destroy, k->twin);
	}
	release(k);
}

long plx_aio_setup(unsigned int nr_events, aio_context_t *user)
{
	PLX_INSIDE();
	uint32_t need = 4 * possible_cpus();
	struct plx_kioctx *k;
	uint64_t limit;
	aio_context_t id;
	int err;

	if (!plx_px_begin())
		return PLX_PASS;
	if (plx_load_user64(&id, user))
		return -EFAULT;
	if (id || !nr_events)
		return -EINVAL;
	/* The kernel doubles it in 32 bits; what it says to 0x80000000 follows from that. */
	if (need < nr_events)
		need = nr_events;
	need *= 2;
	if (need > MAX_EVENTS)
		return -EINVAL;
	limit = max_nr();
	if (nr_events > limit || nr_events > MAX_EVENTS)
		return -EAGAIN;
	k = context_new(need, nr_events);
	if (!k)
		return -ENOMEM;
	id = k->user_id;
	err = plx_aio_table_add(k, limit);
	if (err) {
		release(k);
		return err;
	}
	if (plx_copy_out(user, &id, sizeof(id))) {
		if (plx_aio_table_del(k))
			destroy(k);
		else
			plx_aio_put(k, 0);
		return -EFAULT;
	}
	plx_px_count(PLX_COUNT_AIO);
	plx_aio_put(k, 0);
	return 0;
}

long plx_aio_destroy(aio_context_t ctx)
{
	PLX_INSIDE();
	struct plx_kioctx *k = plx_aio_get(ctx, 0);

	if (!k)
		return plx_aio_destroy_given(ctx);
	if (!plx_aio_table_del(k)) {
		plx_aio_put(k, 0);
		return -EINVAL;
	}
	plx_aio_wait_forsake(k);
	destroy(k);
	return 0;
}

void *plx_aio_mremap_begin(const void *old, size_t old_size, int flags)
{
	struct plx_kioctx *k;

	/*
	 * Nothing moves without the flag, and then there must be no lookup: liburcu enlarges the
	 * memory of its readers in place, under a lock that the first lookup of a thread takes.
	 */
	if (!(flags & MREMAP_MAYMOVE))
		return NULL;
	k = plx_aio_get((aio_context_t)old, 0);
	if (!k)
		return NULL;
	if (old_size < k->size) {
		plx_aio_put(k, 0);
		return NULL;
	}
	return k;
}

void plx_aio_mremap_end(void *token, void *moved)
{
	struct plx_kioctx *k = token;

	if (!k)
		return;
	if (moved != MAP_FAILED)
		plx_aio_table_moved(k, (unsigned long)moved);
	plx_aio_put(k, 0);
}
