/* SPDX-License-Identifier: MIT */
/*
 * Moves of the count of an eventfd to the kernel. The protocol is told in eventfd.h.
 */
#include "cache/eventfd.h"

#include <fcntl.h>

#include "base/inside.h"
#include "base/sys.h"
#include "cache/epoll.h"

uint32_t plx_moves_begun, plx_moves_over;

/* Who adds it to another looks at its word (plx_eventfd_may_be_kernels). */
void plx_eventfd_ask(struct plx_eventfd *e)
{
	/* Partner: kernel_leaves in wait.c. */
	plx_mb_after_rmw();
	plx_rcu_read_lock();
	PLX_EACH_WATCH (w, &e->file)
		plx_epoll_counts(plx_watch_epoll(w));
	plx_rcu_read_unlock();
}

/*
 * The object has become the kernel's for good. It may leave the table, and with it the items of the
 * epolls that watch it, while what the kernel has registered stays, by another number or in another
 * process. So these epolls ask the kernel from now on, whatever their items say.
 */
void plx_eventfd_for_good(struct plx_eventfd *e)
{
	/* Partner: ctl_both, which adds an item and then looks at the word. */
	plx_mb();
	plx_rcu_read_lock();
	PLX_EACH_WATCH (w, &e->file)
		plx_epoll_files(plx_watch_epoll(w));
	plx_rcu_read_unlock();
}

bool plx_eventfd_busy_begin(struct plx_eventfd *e, uint64_t *w)
{
	if (!plx_cas(&e->file.word, w, *w | PLX_SLOW | PLX_EVENTFD_BUSY))
		return false;
	plx_xadd(&plx_moves_begun, 1);
	return true;
}

void plx_eventfd_busy_end(struct plx_eventfd *e, uint64_t clear, uint64_t add)
{
	uint64_t w = plx_load(&e->file.word), to;

	do
		to = (w & ~(PLX_EVENTFD_BUSY | clear)) + add + PLX_EPOCH_ONE;
	while (!plx_cas(&e->file.word, &w, to));
	PLX_DELAY(busy_over);
	plx_xadd(&plx_moves_over, 1);
}

void plx_eventfd_show(struct plx_eventfd *e, uint64_t count)
{
	uint64_t w = plx_load_acq(&e->file.word);

	plx_rcu_read_lock();
	while (!plx_file_change(&e->file, &w, w + count))
		;
	plx_rcu_read_unlock();
}

/*
 * The object is BUSY, by this call, and U is count. The kernel takes it, unless somebody past
 * us has filled K, which is all that it can say then; or the number was closed past us, and there
 * is nobody to tell.
 */
static void flush_run(struct plx_eventfd *e, uint64_t count, enum plx_eventfd_end end)
{
	plx_eventfd_ask(e);
	plx_stat(PLX_STAT_FLUSHED);
	PLX_DELAY(flush_begun);
	if (!PLX_INJECTED(forgotten_count))
		plx_sys3(SYS_write, e->number, &count, sizeof(count));
	PLX_DELAY(flush_written);
	plx_eventfd_busy_end(e, PLX_EVENTFD_U | (end == PLX_EVENTFD_MARKED ? PLX_SLOW : 0),
			     end != PLX_EVENTFD_LEAVES ? PLX_EVENTFD_MARK : 0);
}

uint64_t plx_eventfd_heard(struct plx_eventfd *e)
{
	struct plx_watch *w = plx_load_acq(&e->file.watches);

	return w ? plx_load_acq(&plx_watch_epoll(w)->heard) : 0;
}

long plx_eventfd_empty(struct plx_eventfd *e, int fd, uint64_t *k)
{
	uint64_t seen;
	long r;

	plx_rcu_read_lock();
	seen = plx_eventfd_heard(e);
	plx_rcu_read_unlock();
	plx_stat(PLX_STAT_MADE);
	r = plx_sys3(SYS_read, fd, k, sizeof(*k));
	if (r != sizeof(*k) && r != -EAGAIN)
		return r < 0 ? r : PLX_PASS;
	plx_store(&e->asked, seen);
	return 0;
}

bool plx_eventfd_to_kernel(struct plx_eventfd *e, uint64_t *w, uint64_t to)
{
	bool done;

	/* Or a wait might find that no count can be there, between the two steps that follow. */
	if (!(*w & PLX_EVENTFD_MARK) && !plx_cas(&e->file.word, w, *w | PLX_EVENTFD_MARK))
		return false;
	*w |= PLX_EVENTFD_MARK;
	plx_xadd(&plx_moves_begun, 1);
	plx_eventfd_ask(e);
	done = plx_cas(&e->file.word, w, to);
	plx_xadd(&plx_moves_over, 1);
	return done;
}

enum { FLUSH_NOTHING, FLUSH_DONE, FLUSH_WAITS };

static int flush_try(struct plx_eventfd *e, enum plx_eventfd_end end)
{
	uint64_t w = plx_load_acq(&e->file.word), to;

	for (;;) {
		if (w & PLX_EVENTFD_BUSY)
			return FLUSH_WAITS;
		if (plx_eventfd_cold_word(w) && end == PLX_EVENTFD_LEAVES) {
			if (plx_cas(&e->file.word, &w, w & ~PLX_EVENTFD_MARK))
				return FLUSH_DONE;
			continue;
		}
		if (w & PLX_SLOW)
			return FLUSH_NOTHING;
		if (w & PLX_EVENTFD_U) {
			if (!plx_eventfd_busy_begin(e, &w))
				continue;
			flush_run(e, w & PLX_EVENTFD_U, end);
			return FLUSH_DONE;
		}
		to = w | PLX_EVENTFD_MARK;
		if (end != PLX_EVENTFD_MARKED)
			to |= PLX_SLOW;
		if (end == PLX_EVENTFD_LEAVES)
			to &= ~PLX_EVENTFD_MARK;
		if (plx_eventfd_to_kernel(e, &w, to))
			return FLUSH_DONE;
	}
}

/* No handler may close the number under its own thread, or wait for this flush. */
bool plx_eventfd_flush(struct plx_eventfd *e, enum plx_eventfd_end end)
{
	struct plx_masked masked;
	int r;

	for (int tries = 0;; tries++) {
		plx_signals_block(&masked);
		r = flush_try(e, end);
		plx_signals_unblock(&masked);
		if (r != FLUSH_WAITS)
			return r == FLUSH_DONE;
		plx_await_step(tries);
	}
}

bool plx_eventfd_leave(struct pollux_file *f)
{
	uint64_t w = plx_load_acq(&f->word), to;

	do {
		if (w & (PLX_EVENTFD_U | PLX_EVENTFD_BUSY))
			return false;
		to = (w & ~PLX_EVENTFD_MARK) | PLX_SLOW;
	} while (w != to && !plx_cas(&f->word, &w, to));
	return true;
}

void plx_eventfd_touch(struct pollux_file *f)
{
	struct plx_eventfd *e = plx_file_eventfd(f);
	uint64_t w;

	PLX_DELAY(eventfd_touch);
	w = plx_load_acq(&f->word);
	while (plx_eventfd_cold_word(w) && plx_load(&e->blocks)) {
		if (plx_cas(&f->word, &w, w & ~PLX_EVENTFD_MARK)) {
			plx_eventfd_for_good(e);
			return;
		}
	}
}

bool plx_eventfd_poll_begin(struct plx_eventfd *e, bool *counted)
{
	uint64_t w = plx_load_acq(&e->file.word);

	*counted = false;
	for (int tries = 0;;) {
		if (w & PLX_EVENTFD_U)
			return false;
		if (w & PLX_EVENTFD_BUSY) {
			plx_await_step(tries++);
			w = plx_load_acq(&e->file.word);
			continue;
		}
		if ((w & PLX_SLOW) && !plx_eventfd_cold_word(w))
			return true;
		if ((w & PLX_EVENTFD_POLLS) == PLX_EVENTFD_POLLS) {
			if (plx_eventfd_to_kernel(e, &w, (w | PLX_SLOW) & ~PLX_EVENTFD_MARK)) {
				plx_eventfd_for_good(e);
				return true;
			}
		} else if (plx_cas(&e->file.word, &w, w + PLX_EVENTFD_POLL)) {
			*counted = true;
			return true;
		}
	}
}

bool plx_fd_is(int fd, const char *kind)
{
	static const char folder[] = "/proc/self/fd/", inode[] = "anon_inode:[";
	char path[sizeof(folder) + 10], link[sizeof(inode) + 12] = "";
	char *at = path + sizeof(path);
	size_t n = strlen(kind);

	if (fd < 0)
		return false;
	*--at = '\0';
	do
		*--at = (char)('0' + fd % 10);
	while (fd /= 10);
	at -= sizeof(folder) - 1;
	memcpy(at, folder, sizeof(folder) - 1);
	return plx_sys4(SYS_readlinkat, AT_FDCWD, at, link, sizeof(link) - 1) ==
		       (long)(sizeof(inode) + n) &&
	       memcmp(link, inode, sizeof(inode) - 1) == 0 &&
	       memcmp(link + sizeof(inode) - 1, kind, n) == 0;
}
