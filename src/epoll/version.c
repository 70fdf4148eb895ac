/* SPDX-License-Identifier: MIT */
#include <pollux/version.h>

#ifdef PLX_PROJECT_VERSION
_Static_assert(POLLUX_VERSION == PLX_PROJECT_VERSION,
	       "pollux/version.h says what meson.build says");
#endif

unsigned int pollux_version(void)
{
	return POLLUX_VERSION;
}
