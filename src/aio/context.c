/* SPDX-License-Identifier: MIT */
/*
 * Making a context and taking it away.
 *
 * io_destroy, in the order of AIO-DESTROY-02: the context leaves the table, so that no new call
 * finds it; the calls that are still inside finish (an inline read may take as long as the disk
 * does); then the ring goes. Nothing of it is anywhere else. One that was handed over is not found
 * here at all, and is the kernel's to destroy.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aio/ring.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/mem.h"
#include "base/spin.h"
#include "base/sys.h"
#include "base/wiped.h"
#include "cache/posix.h"
#include "cache/uaccess.h"
#include "rcu/rcu.h"

/* Half the kernel's bound on the bytes of a ring, in events (AIO-SETUP-02). */
#define MAX_EVENTS 0x800000u

PLX_START_PAGE enum plx_aio_limit plx_aio_limit = PLX_AIO_UNLIMITED;

#if PLX_TSAN
char plx_aio_address_token;
#endif

/* How often the limit is looked at while contexts are handed over. */
#define TRIES 100
/* How long somebody who hands a context over waits for others to leave it. */
#define MOMENT_NS 100000

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
	if (plx_unlikely(plx_xadd(&k->state, -(PLX_AIO_CALL + slots)) & PLX_AIO_CLOSED))
		plx_sys3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1 << 30);
}

/* Not interruptible (AIO-DESTROY-05). */
bool plx_aio_alone(struct plx_kioctx *k, bool patient)
{
	uint32_t *word = calls_word(k);
	struct timespec left = {0};
	int64_t end = 0, now;
	uint64_t state;

	while (PLX_AIO_CALLS(state = plx_load_acq(&k->state)) > 1) {
		if (!patient) {
			now = plx_now_ns();
			end = end ? end : now + MOMENT_NS;
			if (now >= end)
				return false;
			left.tv_nsec = end - now;
		}
		plx_sys4(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, (uint32_t)(state >> 32),
			 patient ? NULL : &left);
	}
	return true;
}

/* The beginning of a file: its length, or an error. */
static long read_file(const char *path, char *buf, size_t size)
{
	long fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), r = fd;

	if (fd >= 0) {
		r = plx_sys3(SYS_read, fd, buf, size);
		plx_sys1(SYS_close, fd);
	}
	return r;
}

/* 0: the kernel does not say. */
static uint32_t possible_cpus(void)
{
	static uint32_t cpus;
	uint32_t n = plx_load(&cpus);
	char buf[256];
	long r;

	if (n)
		return n;
	r = read_file("/sys/devices/system/cpu/possible", buf, sizeof(buf));
	if (r <= 0)
		return 0;
	/* "0-3": x86-64 and aarch64 number them without gaps. */
	for (long i = 0; i < r && buf[i] != '\n'; i++)
		n = buf[i] >= '0' ? n * 10 + (buf[i] - '0') : 0;
	plx_store(&cpus, n + 1);
	return n + 1;
}

static bool read_number(const char *path, uint64_t *v)
{
	char buf[32];
	long r = read_file(path, buf, sizeof(buf));

	*v = 0;
	for (long i = 0; i < r && buf[i] >= '0' && buf[i] <= '9'; i++)
		*v = *v * 10 + (buf[i] - '0');
	return r > 0;
}

/*
 * How many events contexts of ours may have, as aio-max-nr is now: the kernel counts its own, those
 * that were handed over among them, which is looked at if there are any. *most: a single one. Or no
 * limit. False: the kernel does not say.
 */
static bool limit_of_events(uint64_t *most, uint64_t *limit)
{
	uint64_t taken = 0;

	*most = *limit = UINT64_MAX;
	if (plx_aio_limit != PLX_AIO_MAX_NR)
		return true;
	if (!read_number("/proc/sys/fs/aio-max-nr", most) ||
	    (plx_load(&plx_aio_given) && !read_number("/proc/sys/fs/aio-nr", &taken)))
		return false;
	*limit = *most > taken ? *most - taken : 0;
	return true;
}

void plx_aio_release(struct plx_kioctx *k, bool user)
{
	plx_aio_address_put();
	plx_aio_ring_unmap(k, user);
	plx_retire(k, plx_free);
	plx_retire_flush_if_full();
}

/* The ring's size follows AIO-RING-02, so that programs see the number that they know. */
static struct plx_kioctx *context_new(uint32_t nr_events, uint32_t asked)
{
	size_t entries = (size_t)nr_events + 2;
	size_t size = sizeof(struct plx_aio_ring) + entries * sizeof(struct io_event);
	size_t page = getpagesize();
	struct plx_kioctx *k = plx_zalloc(sizeof(*k));
	uint32_t batch;

	if (!k)
		return NULL;
	k->size = (size + page - 1) / page * page;
	if (!plx_aio_ring_map(k)) {
		plx_free(k);
		return NULL;
	}
	plx_aio_address_get();
	k->nr = (k->size - sizeof(*k->ring)) / sizeof(struct io_event);
	k->nr_events = asked;
	/* The kernel gives its CPUs batches of slots, and leaves the last ones over. */
	batch = (k->nr - 1) / (4 * possible_cpus());
	k->limit = batch ? (k->nr - 1) / batch * batch : k->nr - 1;
	/* The call that makes it. */
	k->state = PLX_AIO_CALL;
	k->ring->nr = k->nr;
	k->ring->magic = PLX_AIO_MAGIC;
	k->ring->compat_features = 1;
	k->ring->header_length = sizeof(*k->ring);
	return k;
}

/*
 * A context in the table, or an error; PLX_PASS: it is to be the kernel's. One that is being handed
 * over counts in the table, and for the kernel: then it is looked at again.
 */
static long context_add(uint32_t need, uint32_t nr_events, struct plx_kioctx **made)
{
	struct plx_kioctx *k = NULL;
	uint64_t limit, most;
	uint32_t since;
	long err = 0;

	for (int tries = 0;; tries++) {
		since = plx_load_acq(&plx_wiped.aio_moves_over);
		if (!limit_of_events(&most, &limit))
			err = PLX_PASS;
		else if (nr_events > most || nr_events > MAX_EVENTS)
			err = -EAGAIN;
		else if (!k && !(k = context_new(need, nr_events)))
			err = PLX_PASS;
		else
			err = plx_aio_table_add(k, limit);
		if (err != -EAGAIN || plx_load_acq(&plx_wiped.aio_moves_begun) == since ||
		    tries == TRIES)
			break;
		plx_await_step(tries);
	}
	if (err && k)
		plx_aio_release(k, true);
	/* It will count there. */
	if (err == PLX_PASS)
		plx_store(&plx_aio_given, 1);
	*made = k;
	return err;
}

static void destroy(struct plx_kioctx *k)
{
	PLX_DELAY(aio_destroy_dead);
	(void)plx_aio_alone(k, true);
	/* For those who look into it without being counted (take_at_once). */
	plx_lock(&k->lock, PLX_RANK_AIO);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	plx_aio_release(k, true);
}

long plx_aio_setup(unsigned int nr_events, aio_context_t *user)
{
	PLX_INSIDE();
	uint32_t need = 4 * possible_cpus();
	struct plx_kioctx *k;
	aio_context_t id;
	long err;

	if (!need || !plx_px_begin())
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
	err = context_add(need, nr_events, &k);
	if (err)
		return err;
	id = k->user_id;
	if (plx_copy_out(user, &id, sizeof(id))) {
		if (plx_aio_table_del(k))
			destroy(k);
		else
			plx_aio_put(k, 0);
		return -EFAULT;
	}
	plx_px_count(PLX_COUNT_AIO);
	/* Behind the table; partner: the same of who forbids, and then looks into the table. */
	plx_mb();
	if (plx_likely(!(plx_load(&plx_px_no_adopt) & PLX_ADOPT_AIO)) ||
	    plx_aio_hand_over(k, true) != PLX_AIO_GIVEN)
		plx_aio_put(k, 0);
	return 0;
}

long plx_aio_destroy(aio_context_t ctx)
{
	PLX_INSIDE();
	struct plx_kioctx *k = plx_aio_get(ctx, 0);

	if (!k) {
		plx_aio_address_put();
		return PLX_PASS;
	}
	if (!plx_aio_table_del(k)) {
		plx_aio_put(k, 0);
		return -EINVAL;
	}
	destroy(k);
	return 0;
}

void *plx_aio_mremap_begin(const void *old, size_t old_size, int flags)
{
	struct plx_kioctx *k;

	/* Nothing moves without the flag. */
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
