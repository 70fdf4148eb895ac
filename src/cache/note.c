/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that are noted while the process is not prepared.
 */
#include <fcntl.h>

#include "base/lock.h"
#include "base/sys.h"
#include "cache/cold.h"
#include "cache/front.h"

PLX_LARGE struct plx_cold_note plx_cold_notes[PLX_COLD_NOTES];
static uint32_t serials;

/* A note: its kind, whether it watches files, a number that duplicates share, and plx_px_forks. */
#define KIND(word) ((enum plx_cold_kind)((word)&7))
#define FILES 8u
#define SERIAL_ONE 16u
#define SERIAL(word) ((uint32_t)(word) / SERIAL_ONE)
#define FORKS(word) ((uint32_t)((word) >> 32))

void plx_cold_note(int fd, enum plx_cold_kind kind, uint32_t forks)
{
	uint32_t nothing = PLX_COLD_NOTHING, serial;

	if ((unsigned int)fd >= PLX_COLD_NOTES || plx_fd_of_stream(fd))
		return;
	serial = plx_xadd(&serials, 1) + 1;
	if (serial > SERIAL(~0u)) {
		plx_store(&serials, SERIAL(~0u));
		return;
	}
	plx_store_rel(&plx_cold_notes[fd].word, (uint64_t)forks << 32 | serial * SERIAL_ONE | kind);
	(void)plx_cas(&plx_cold, &nothing, PLX_COLD_NOTED);
}

void plx_cold_dup(int fd, int n, uint64_t word)
{
	if (KIND(word) != PLX_COLD_EPOLL || n >= PLX_COLD_NOTES)
		return;
	/* What has been added meanwhile was not noted. */
	if (n >= 0)
		plx_store_rel(&plx_cold_notes[n].word, word | FILES);
	plx_store_rel(&plx_cold_notes[fd].word, word | FILES);
}

uint64_t plx_cold_end(int fd)
{
	/* Partner: plx_cold_found. */
	return (unsigned int)fd < PLX_COLD_NOTES ? plx_xchg(&plx_cold_notes[fd].word, 0) : 0;
}

void plx_cold_end_all(bool but_cloexec)
{
	for (int fd = 0; fd < PLX_COLD_NOTES; fd++)
		if (plx_load(&plx_cold_notes[fd].word) &&
		    !(but_cloexec && plx_sys2(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC))
			plx_cold_end(fd);
}

void plx_cold_add(int epfd, int fd)
{
	uint64_t word;

	/* Nesting. */
	if (plx_cold_noted(fd))
		plx_cold_end(fd);
	if (!plx_cold_noted(epfd))
		return;
	word = plx_load(&plx_cold_notes[epfd].word);
	while (word && !(word & FILES) && !plx_cas(&plx_cold_notes[epfd].word, &word, word | FILES))
		;
}

/* A lower number of the same epoll that has an entry. */
static struct pollux_file *found_before(int fd, uint64_t word, bool *files)
{
	struct pollux_file *f = NULL;

	for (int i = 0; i < PLX_COLD_NOTES; i++) {
		uint64_t other = plx_load(&plx_cold_notes[i].word);

		if (SERIAL(other) != SERIAL(word))
			continue;
		*files |= other & FILES;
		if (i < fd && !f)
			f = plx_table_get(i);
	}
	return f;
}

static void found_epoll(int fd, uint64_t word, uint32_t since)
{
	bool files = false;
	struct pollux_file *f = found_before(fd, word, &files), *mine_ = NULL;

	if (!f)
		f = plx_front_file(files);
	if (!f)
		return;
	mine_ = f;
	if (plx_number_barred(fd) || !plx_table_made(fd, f, since)) {
		pollux_file_put(f);
		return;
	}
	/* Partner: plx_cold_end. */
	plx_mb();
	if (!plx_load(&plx_cold_notes[fd].word) && plx_cas(plx_table_slot(fd), &mine_, NULL))
		pollux_file_put(f);
}

void plx_cold_found(void)
{
	uint32_t since = plx_changes(), forks = plx_load(&plx_px_forks);

	plx_cold_begins();
	for (int fd = 0; fd < PLX_COLD_NOTES; fd++) {
		uint64_t word = plx_load_acq(&plx_cold_notes[fd].word);

		if (KIND(word) == PLX_COLD_EPOLL && FORKS(word) == forks &&
		    !(plx_px_no_adopt & PLX_ADOPT_EPOLL))
			found_epoll(fd, word, since);
	}
}
