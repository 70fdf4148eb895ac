/* SPDX-License-Identifier: MIT */
/*
 * What the environment says about us. Most say nothing: to find that out by libc's getenv, which
 * wants the length of each name, takes four pages more of code and constants to be mapped at each
 * start of a program.
 */
#pragma once

/*
 * The value of POLLUX_NAME, or NULL. A program with privileges that its user does not have
 * (set-uid, set-gid, file capabilities) has no settings: the environment is the user's.
 */
const char *plx_setting(const char *name);
