/* SPDX-License-Identifier: MIT */
/*
 * system popen wordexp
 *
 * What a new program inherits escapes first. posix_spawn also hands over what its file actions
 * duplicate, or open in a folder of descriptors, close-on-exec or not. The list of actions is
 * libc's own business, so with actions everything escapes, as before a fork.
 */
#include "preload/preload.h"

PLX_CHILD_CODE void plx_before_exec(void)
{
	if (plx_any())
		plx_px_escape_inherited(PLX_OUT_EXEC);
}

void plx_before_spawn(bool actions)
{
	int saved = errno;

	if (plx_cold_any() && !plx_vfork_child())
		plx_cold_end_all(!actions);
	if (!plx_any())
		return;
	if (actions)
		plx_px_escape_all(PLX_OUT_SPAWN);
	else
		plx_px_escape_inherited(PLX_OUT_SPAWN);
	errno = saved;
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
