/* SPDX-License-Identifier: MIT */
/*
 * pollux/version.h - which version this is
 *
 * A program is compiled with the headers of one version and runs with the library of another. It
 * may rely on what its headers declare if pollux_version() is at least POLLUX_VERSION. That the two
 * have the same binary interface is seen to by the dynamic linker, by the name of the library and
 * the versions of its symbols.
 */
#ifndef POLLUX_VERSION_H
#define POLLUX_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define POLLUX_VERSION_MAJOR 0
#define POLLUX_VERSION_MINOR 2
#define POLLUX_VERSION_PATCH 0

/* Of these headers, as a number that can be compared, also by the preprocessor. */
#define POLLUX_VERSION                                                                             \
	((POLLUX_VERSION_MAJOR << 16) | (POLLUX_VERSION_MINOR << 8) | POLLUX_VERSION_PATCH)

/*
 * POLLUX_VERSION of the library that runs. Cannot fail. Any thread, signal handlers too; no other
 * function need have been called before.
 */
unsigned int pollux_version(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
