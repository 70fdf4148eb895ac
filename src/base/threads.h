/* SPDX-License-Identifier: MIT */
/* Whether the process has had one thread only up to now; with musl, which does not tell, never. */
#pragma once

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define plx_single_threaded() (__libc_single_threaded != 0)
#else
#define plx_single_threaded() 0
#endif
