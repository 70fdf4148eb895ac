/* SPDX-License-Identifier: MIT */
/*
 * posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addopen
 * system popen wordexp
 *
 * What a new program inherits escapes first. posix_spawn also hands over what its file actions
 * duplicate, or open in a folder of descriptors, close-on-exec or not. The list of actions is
 * libc's own business, so posix_spawn_file_actions_adddup2 and ..._addopen remember the numbers
 * named.
 */
#include "preload/preload.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 65536
#define BITS 64

static PLX_LARGE uint64_t named[NAMED_MAX / BITS];
static uint32_t named_words;
static uint32_t named_beyond;

PLX_CHILD_CODE void plx_before_exec(void)
{
	if (plx_any())
		plx_px_escape_inherited(PLX_OUT_EXEC);
}

static void name_fd(int fd)
{
	uint32_t end = (uint32_t)fd / BITS + 1;
	uint32_t have = plx_load(&named_words);

	if (fd < 0)
		return;
	if (fd >= NAMED_MAX) {
		plx_store(&named_beyond, 1);
		return;
	}
	plx_or(&named[fd / BITS], 1ull << fd % BITS);
	while (have < end && !plx_cas(&named_words, &have, end))
		;
}

void plx_before_spawn(bool actions)
{
	int saved = errno;

	if (!plx_any())
		return;
	plx_px_escape_inherited(PLX_OUT_SPAWN);
	if (actions && plx_load(&named_beyond))
		plx_px_escape_all(PLX_OUT_SPAWN);
	for (uint32_t i = 0; actions && i < plx_load(&named_words); i++)
		for (uint64_t w = plx_load(&named[i]); w; w &= w - 1)
			plx_escape_if_ours(i * BITS + __builtin_ctzll(w), PLX_OUT_SPAWN);
	errno = saved;
}

PLX_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
	name_fd(fd);
	return plx_real.posix_spawn_file_actions_adddup2(actions, fd, to);
}

/* Any name that may be that of a descriptor, however the folder is written. */
static void name_path(const char *path)
{
	const char *last = strrchr(path, '/'), *number = last ? last + 1 : path;
	char *end;
	long n;

	if (number[0] < '0' || number[0] > '9')
		return;
	n = strtol(number, &end, 10);
	if (!*end && n <= INT_MAX)
		name_fd((int)n);
}

PLX_EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict actions,
						int fd, const char *restrict path, int flags,
						mode_t mode)
{
	name_path(path);
	return plx_real.posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
}

PLX_EXPORT int system(const char *cmd)
{
	if (!cmd)
		return plx_real.system(cmd);
	plx_before_spawn(false);
	return plx_real.system(cmd);
}

PLX_EXPORT FILE *popen(const char *cmd, const char *mode)
{
	FILE *f;

	plx_before_spawn(false);
	f = plx_real.popen(cmd, mode);
	return plx_stream_begins(f);
}
FILE *_IO_popen(const char *cmd, const char *mode);
PLX_ALIAS(_IO_popen, popen);

PLX_EXPORT int wordexp(const char *restrict words, wordexp_t *restrict we, int flags)
{
	plx_before_spawn(false);
	return plx_real.wordexp(words, we, flags);
}
