/* SPDX-License-Identifier: MIT */
/* The same where the kernel refuses to wipe. */
#include <errno.h>

#define UNWIPED EINVAL
#include "../unwiped.h"

#define main all
#include "fork.c"
#undef main

int main(void)
{
	return all();
}
