/* SPDX-License-Identifier: MIT */
/*
 * system popen wordexp
 * posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addopen
 *
 * What a new program inherits escapes first. posix_spawn also hands over what its file actions
 * duplicate, close-on-exec or not, and a file that shows a descriptor, which they open. A list of
 * actions is libc's own business. So each number that one has named is remembered for good, and
 * what is there when a program is started with actions escapes.
 */
#include "preload/preload.h"

PLX_CHILD_CODE void plx_before_exec(void)
{
	if (plx_any())
		plx_px_escape_inherited(plx_survives_exec, PLX_OUT_EXEC);
}

void plx_before_spawn(bool actions)
{
	bool (*survives)(int) = actions ? plx_survives_spawn : plx_survives_exec;
	int saved = errno;

	if (plx_cold_any() && !plx_vfork_child())
		plx_cold_end_all(survives);
	if (plx_any())
		plx_px_escape_inherited(survives, PLX_OUT_SPAWN);
	errno = saved;
}

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
