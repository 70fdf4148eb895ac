/* SPDX-License-Identifier: MIT */
/* The same where the kernel agrees to wipe, and does not. */
#define UNWIPED 0
#include "../unwiped.h"

#define main all
#include "fork.c"
#undef main

int main(void)
{
	return all();
}
