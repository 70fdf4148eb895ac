/* SPDX-License-Identifier: MIT */
/*
 * A process refuses itself all system calls but some.
 */
#ifndef TESTS_CONFINE_H
#define TESTS_CONFINE_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"

#define CONFINE_MAX 64

enum confine {
	/* This thread and those that it makes. */
	CONFINE_BY_PRCTL,
	CONFINE_BY_SECCOMP,
	/* All threads that there are, too. */
	CONFINE_ALL,
	/* By an instruction of the program's own: nobody is told of it. */
	CONFINE_UNSEEN,
};

/* otherwise: what the filter answers to all calls but the n allowed ones. */
static inline bool confine(const int *allowed, size_t n, uint32_t otherwise, enum confine how)
{
	struct sock_filter f[2 * CONFINE_MAX + 2];
	struct sock_fprog program = {.len = (unsigned short)(2 * n + 2), .filter = f};

	if (n > CONFINE_MAX)
		return false;
	f[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < n; i++) {
		f[2 * i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							    (unsigned int)allowed[i], 0, 1);
		f[2 * i + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[2 * n + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return false;
	if (how == CONFINE_BY_PRCTL)
		return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	if (how == CONFINE_UNSEEN)
		return !own_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program);
	return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			how == CONFINE_ALL ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program);
}

#endif
