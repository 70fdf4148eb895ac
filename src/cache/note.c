/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that are noted while the process is not prepared.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/sys.h"
#include "cache/cold.h"
#include "cache/epoll.h"

PLX_CHILD_PAGE_TABLE struct plx_cold_note plx_cold_notes[PLX_COLD_NOTES];
PLX_CHILD_PAGE uint32_t plx_cold_end;
uint32_t plx_cold_wanted, plx_cold_rings;
static PLX_CHILD_PAGE uint32_t serials;
/* Up to here all notes have been ended together. */
static uint32_t ended;

/* A note: its kind, whether it blocks, a number that duplicates share, and plx_px_forks. */
#define KIND(word) ((word)&3)
#define SERIAL_ONE 8u
#define SERIAL(word) ((uint32_t)(word) / SERIAL_ONE)
#define FORKS(word) ((uint32_t)((word) >> 32))
_Static_assert((PLX_COLD_BLOCKS & 3) == 0 && PLX_COLD_BLOCKS < SERIAL_ONE, "a bit of its own");

#define NOTES_END ((int)plx_load(&plx_cold_end))

/* So many uses within plx_hot_ns, and the next wait prepares. */
#define HOT_USES 64u

/* The note of fd, if there has been no fork since. */
static uint64_t word_of(int fd)
{
	uint64_t word = plx_cold_word(fd);

	return FORKS(word) == plx_load(&plx_px_forks) ? word : 0;
}

static PLX_CHILD_CODE void note(int fd, uint64_t word)
{
	uint32_t end = plx_load(&plx_cold_end);

	/* First: who looks for notes up to there finds this one. */
	while (end <= (uint32_t)fd && !plx_cas(&plx_cold_end, &end, (uint32_t)fd + 1))
		;
	plx_store_rel(&plx_cold_notes[fd].word, word);
}

static PLX_CHILD_CODE int end(int fd)
{
	plx_store(&plx_cold_notes[fd].word, 0);
	return 0;
}

PLX_CHILD_CODE int plx_cold_made(int fd, uint32_t kind, struct plx_cold_since since)
{
	static const PLX_CHILD_CONST uint32_t adopts[] = {
		[PLX_COLD_EPOLL] = PLX_ADOPT_EPOLL,
		[PLX_COLD_EVENTFD] = PLX_ADOPT_EVENTFD,
		[PLX_COLD_TIMER] = PLX_ADOPT_TIMERFD | PLX_ADOPT_EPOLL,
	};
	uint32_t nothing = PLX_COLD_NOTHING, serial;

	if ((plx_px_no_adopt & adopts[KIND(kind)]) || (unsigned int)fd >= PLX_COLD_NOTES ||
	    plx_fd_of_stream(fd))
		return fd;
	serial = plx_xadd(&serials, 1) + 1;
	if (serial > SERIAL(~0u)) {
		plx_store(&serials, SERIAL(~0u));
		return fd;
	}
	plx_store(&plx_cold_notes[fd].uses, 0);
	note(fd, (uint64_t)since.forks << 32 | serial * SERIAL_ONE | kind);
	/* Partner of this, and of the look at changes: plx_cold_end_all. */
	(void)plx_cas(&plx_cold, &nothing, PLX_COLD_NOTED);
	/* A program that is being started may inherit it. */
	if (plx_unlikely(plx_changed(since.changes)))
		end(fd);
	return fd;
}

static int dup_noted(int n, uint64_t word)
{
	/* With a number that is not noted waits would not be seen. */
	for (int fd = 0; n >= PLX_COLD_NOTES && fd < NOTES_END; fd++)
		end(fd);
	if (n >= 0 && n < PLX_COLD_NOTES)
		note(n, word);
	return n;
}

int plx_cold_dup(int fd, int cmd, long from, int (*real)(int, int, long))
{
	uint64_t word = word_of(fd);

	if (KIND(word) == PLX_COLD_EPOLL)
		PLX_COLD_CHANGES(dup_noted(real(fd, cmd, from), word));
	plx_cold_leaves(fd);
	return (int)PLX_PASS;
}

static int ends(int fd)
{
	PLX_COLD_CHANGES(end(fd));
	return 0;
}

/*
 * An epoll has been added to another one, which has it by its number (found_line). An epoll that
 * loses a number and keeps another one ends all notes from now on: it would not be found.
 */
static uint32_t nested;

void plx_cold_closes(int fd)
{
	uint64_t word = word_of(fd);

	if (!plx_cold_noted(fd))
		return;
	if (KIND(word) != PLX_COLD_EPOLL) {
		ends(fd);
		return;
	}
	plx_store(&plx_cold_notes[fd].closed, 1);
	ends(fd);
	/* Partner: plx_cold_ctl. */
	plx_mb();
	for (int i = 0; plx_load(&nested) && i < NOTES_END; i++)
		if (SERIAL(word_of(i)) == SERIAL(word))
			plx_cold_end_all(NULL);
}

void plx_cold_leaves(int fd)
{
	if (KIND(word_of(fd)) == PLX_COLD_EPOLL)
		plx_cold_end_all(NULL);
	else
		plx_cold_closes(fd);
}

void plx_cold_end_all(bool (*survives)(int fd))
{
	for (int fd = 0; fd < NOTES_END && survives; fd++)
		if (KIND(word_of(fd)) == PLX_COLD_EPOLL && survives(fd))
			survives = NULL;
	if (!survives)
		plx_store(&ended, plx_load(&serials));
	/*
	 * The epolls first: what is made meanwhile and finds the note of its epoll was noted before
	 * that, and is found by the second turn.
	 */
	for (int turn = 0; turn < 2; turn++) {
		for (int fd = 0; fd < NOTES_END && plx_cold_any(); fd++) {
			uint64_t word = word_of(fd);

			if (word && (turn || KIND(word) == PLX_COLD_EPOLL) &&
			    (!survives || survives(fd)))
				ends(fd);
		}
		/* Partner: plx_cold_made, which has noted the one before it looks for the other. */
		plx_mb();
	}
}

static PLX_CHILD_CODE int ctl(int epfd, int op, int fd, struct epoll_event *ev,
			      int (*real)(int, int, int, struct epoll_event *))
{
	PLX_COLD_CHANGES(real(epfd, op, fd, ev));
	return (int)PLX_PASS;
}

PLX_CHILD_CODE int plx_cold_ctl(int epfd, int op, int fd, struct epoll_event *ev,
				int (*real)(int, int, int, struct epoll_event *))
{
	bool nests = op == EPOLL_CTL_ADD && KIND(word_of(fd)) == PLX_COLD_EPOLL;
	int r;

	if (KIND(word_of(epfd)) != PLX_COLD_EPOLL)
		plx_cold_leaves(fd);
	(void)plx_cold_uses(fd, PLX_COLD_EVENTFD);
	if (plx_unlikely(nests))
		plx_store(&nested, 1);
	r = ctl(epfd, op, fd, ev, real);
	/* Partner: plx_cold_closes. The number may have been closed meanwhile. */
	if (plx_unlikely(nests)) {
		plx_mb();
		if (!word_of(fd))
			plx_cold_end_all(NULL);
	}
	return r;
}

bool plx_cold_uses(int fd, uint32_t kind)
{
	uint64_t word = word_of(fd);

	if (KIND(word) != kind)
		return false;
	if (word & PLX_COLD_BLOCKS)
		plx_cold_closes(fd);
	return !(word & PLX_COLD_BLOCKS);
}

int plx_cold_blocking(int fd, int r, bool nonblock)
{
	uint64_t word = word_of(fd);

	if (r == 0 && (KIND(word) == PLX_COLD_EVENTFD || KIND(word) == PLX_COLD_TIMER))
		(void)plx_cas(&plx_cold_notes[fd].word, &word,
			      nonblock ? word & ~(uint64_t)PLX_COLD_BLOCKS : 0);
	return r;
}

void plx_cold_used(int fd)
{
	static struct plx_heat heat;

	plx_store(&plx_cold_notes[fd].uses, plx_load(&plx_cold_notes[fd].uses) + 1);
	if (!plx_load(&plx_cold_wanted) && plx_heat_grows(&heat, HOT_USES, plx_hot_ns))
		plx_store(&plx_cold_wanted, 1);
}

bool plx_cold_serves(int fd)
{
	return plx_cold_any() && word_of(fd);
}

/* --- preparing ----------------------------------------------------------------------------- */

/* The first number of the same epoll that has an entry; else fd. */
static int first(int fd, uint64_t word)
{
	for (int i = 0; i < fd; i++)
		if (SERIAL(word_of(i)) == SERIAL(word) && plx_fd_ours(i))
			return i;
	return fd;
}

static struct pollux_file *file_for(int fd, uint64_t word)
{
	uint32_t kind = KIND(word);
	int flags = (int)plx_sys2(SYS_fcntl, fd, F_GETFL);

	if (kind == PLX_COLD_EPOLL && plx_fd_is(fd, "eventpoll"))
		return first(fd, word) < fd ? plx_table_get(first(fd, word)) : plx_epoll_file();
	if (kind == PLX_COLD_EVENTFD && plx_fd_is_eventfd(fd) &&
	    (flags & (O_NONBLOCK | O_ASYNC)) == O_NONBLOCK && !(word & PLX_COLD_BLOCKS))
		return plx_eventfd_file(fd, plx_load(&plx_cold_notes[fd].uses) > 1);
	if (kind == PLX_COLD_TIMER && plx_fd_is(fd, "timerfd"))
		return plx_timer_file(fd, flags);
	return NULL;
}

/* Whether epfd watches what is at fd now, and no file that had the number before. */
static bool is_watched(int epfd, int fd)
{
	struct epoll_event none = {0};

	if (plx_sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fd, &none))
		return true;
	plx_sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, fd, 0);
	return false;
}

struct watcher {
	struct plx_epoll *pe;
	int epfd;
};

/* A line of fdinfo. */
static void found_line(void *arg, const char *line)
{
	struct plx_epoll *pe = ((struct watcher *)arg)->pe;
	int epfd = ((struct watcher *)arg)->epfd;
	struct epoll_event ev;
	const char *at = strstr(line, "events:"), *data = strstr(line, "data:");
	int fd;

	if (strncmp(line, "tfd:", 4) || !at || !data)
		return;
	fd = (int)strtol(line + 4, NULL, 10);
	ev.events = (uint32_t)strtoul(at + 7, NULL, 16) & ~(uint32_t)(EPOLLERR | EPOLLHUP);
	ev.data.u64 = strtoull(data + 5, NULL, 16);
	if (KIND(word_of(fd)) && !is_watched(epfd, fd))
		plx_epoll_files(pe);
	else
		plx_epoll_watches(pe, epfd, fd, &ev);
}

bool plx_cold_lines(const char *path, void (*each)(void *arg, const char *line), void *arg)
{
	char text[4096], *next;
	size_t n = 0;
	long r, fd;

	fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	while ((r = plx_sys3(SYS_read, fd, text + n, sizeof(text) - 1 - n)) > 0) {
		char *line = text;

		n += (size_t)r;
		text[n] = '\0';
		for (; (next = strchr(line, '\n')); line = next + 1) {
			*next = '\0';
			each(arg, line);
		}
		n -= (size_t)(line - text);
		/* A longer one is told in pieces. */
		if (n == sizeof(text) - 1) {
			each(arg, text);
			n = 0;
		}
		memmove(text, line, n);
	}
	plx_sys1(SYS_close, fd);
	return r == 0;
}

/* What an epoll watches. */
static bool found_watches(struct plx_epoll *pe, int epfd)
{
	char path[64];

	/* The kernel may still be about to make one. Partner: ctl in preload/uring.c. */
	if (plx_load(&plx_cold_rings))
		plx_epoll_files(pe);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	return plx_cold_lines(path, found_line, &(struct watcher){pe, epfd});
}

/* Not before it stands in the table: who counts and looks there (plx_nothing_in) is to find it. */
static void count_found(int fd, uint64_t word)
{
	static const enum plx_stat counts[] = {
		[PLX_COLD_EPOLL] = PLX_COUNT_EPOLLS,
		[PLX_COLD_EVENTFD] = PLX_COUNT_EVENTFDS,
		[PLX_COLD_TIMER] = PLX_COUNT_TIMERS,
	};

	if (first(fd, word) == fd)
		plx_px_count(counts[KIND(word)]);
}

void plx_cold_found(void)
{
	const uint32_t descriptors = PLX_ADOPT_EPOLL | PLX_ADOPT_EVENTFD;
	uint32_t since = plx_changes();
	bool all = true;

	/* Adoption may have ended; if not, that is a change which comes after this. */
	if ((plx_load(&plx_px_no_adopt) & descriptors) == descriptors)
		return;
	for (int fd = 0; fd < NOTES_END; fd++) {
		uint64_t word = word_of(fd);
		struct pollux_file *f = word ? file_for(fd, word) : NULL;

		/* Without its epoll nobody tells of an eventfd that is cached. */
		if (!f && KIND(word) == PLX_COLD_EPOLL)
			all = false;
		if (f && plx_table_made(fd, f, since)) {
			count_found(fd, word);
		} else if (f) {
			all = false;
			pollux_file_put(f);
		}
	}
	for (int fd = 0; fd < NOTES_END && all; fd++) {
		struct pollux_file *f =
			KIND(word_of(fd)) == PLX_COLD_EPOLL ? plx_table_get(fd) : NULL;

		if (f && f->kind == PLX_KIND_EPOLL && first(fd, word_of(fd)) == fd)
			all = found_watches(plx_file_epoll(f), fd);
		if (f)
			pollux_file_put(f);
	}
	if (!all)
		plx_px_escape_all(PLX_OUT_NUMBER);
}

/* By any of its numbers. If these are closed nobody knows what it watches. */
static struct pollux_file *file_of(uint64_t word)
{
	bool noted = SERIAL(word) <= plx_load(&ended) || FORKS(word) != plx_load(&plx_px_forks);

	for (int fd = 0; SERIAL(word) && fd < NOTES_END; fd++) {
		if (SERIAL(word_of(fd)) != SERIAL(word))
			continue;
		if (plx_fd_ours(fd))
			return plx_table_peek(fd);
		noted = true;
	}
	return noted ? NULL : PLX_COLD_CLOSED;
}

void plx_cold_over(void)
{
	struct plx_cold_call *c;

	if (!plx_cold_ends())
		return;
	for (int i = 0; (c = plx_cold_next(&i));)
		if (plx_load(&c->what) == PLX_COLD_WAIT)
			plx_store(&c->file, file_of(plx_load(&c->n)));
	plx_cold_seen();
}
