/* SPDX-License-Identifier: MIT */
/*
 * system popen wordexp
 * posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addopen
 *
 * What a new program inherits escapes first. posix_spawn also hands over what its file actions
 * duplicate, close-on-exec or not, and a file that shows a descriptor, which they open. A list of
 * actions is libc's own business. So each number that one has named is remembered for good, and
 * what is there when a program is started with actions escapes.
 *
 * Argument. Other threads go on until the kernel has copied the descriptors. What they make is not
 * cached, as it has met the change; what was made before it is in the table, or noted, and found.
 * What a new program does not inherit becomes inherited by fcntl or ioctl, before which it escapes
 * (cache/fd.c). What has escaped is the kernel's for good.
 */
#include "preload/preload.h"

#include "base/delay.h"
#include "cache/table.h"

/* Beside other threads that is a change (table.h), until the kernel has copied the descriptors. */
static PLX_CHILD_CODE bool begin(bool spawns, bool (*survives)(int), enum plx_way_out why)
{
	int saved = errno;
	bool beside;

	plx_vfork_over();
	if (plx_vfork_child())
		return false;
	beside = !plx_px_alone();
	if (beside)
		plx_change_begin();
	PLX_DELAY(start_begun);
	/* A program that fails to take the place of this one has got nothing. */
	if (plx_cold_any() && (beside || spawns))
		plx_cold_end_all(survives);
	if (plx_load(&plx_active))
		plx_px_escape_inherited(survives, why);
	PLX_DELAY(start_looked);
	errno = saved;
	return beside;
}

PLX_CHILD_CODE bool plx_before_exec(void)
{
	return begin(false, plx_survives_exec, PLX_OUT_EXEC);
}

bool plx_before_spawn(bool actions)
{
	return begin(true, actions ? plx_survives_spawn : plx_survives_exec, PLX_OUT_SPAWN);
}

PLX_CHILD_CODE void plx_after_start(const bool *beside)
{
	if (*beside)
		plx_change_end();
}

/* To the end of the function. */
#define STARTS()                                                                                   \
	__attribute__((cleanup(plx_after_start), unused)) const bool starts_ =                     \
		plx_before_spawn(false)

PLX_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
	plx_px_named_in_actions(fd);
	return plx_real.posix_spawn_file_actions_adddup2(actions, fd, to);
}

PLX_EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict actions,
						int fd, const char *restrict path, int flags,
						mode_t mode)
{
	plx_px_named_in_actions(plx_path_number(path));
	return plx_real.posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
}

PLX_EXPORT int system(const char *cmd)
{
	if (!cmd)
		return plx_real.system(cmd);
	STARTS();
	return plx_real.system(cmd);
}

PLX_EXPORT FILE *popen(const char *cmd, const char *mode)
{
	STARTS();
	FILE *f;

	f = plx_real.popen(cmd, mode);
	return plx_stream_begins(f);
}
FILE *_IO_popen(const char *cmd, const char *mode);
PLX_ALIAS(_IO_popen, popen);

PLX_EXPORT int wordexp(const char *restrict words, wordexp_t *restrict we, int flags)
{
	STARTS();
	return plx_real.wordexp(words, we, flags);
}
