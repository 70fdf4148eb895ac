/* SPDX-License-Identifier: MIT */
/*
 * From one stack to another, in the same thread.
 *
 * On x86-64 and aarch64 it is a few instructions that save what a call must keep; elsewhere, or
 * with SWITCH_UCONTEXT, it is swapcontext, which makes a system call each time. AddressSanitizer
 * and ThreadSanitizer are told.
 */
#ifndef FIBRES_SWITCH_H
#define FIBRES_SWITCH_H

#include <stddef.h>

#if !defined(SWITCH_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define SWITCH_UCONTEXT 1
#endif

#ifdef SWITCH_UCONTEXT
#include <ucontext.h>
#endif

struct stack {
#ifdef SWITCH_UCONTEXT
	ucontext_t context;
#else
	void *pointer;
#endif
	/* What belongs to it; NULL and 0 for the one that a thread was started with. */
	void *memory;
	size_t size;
	/* Of the sanitizers. */
	const void *bottom;
	size_t length;
	void *fake, *fibre;
};

/* The stack that the calling thread runs on. */
void stack_adopt(struct stack *s);

/* A new one, on which `entry` runs at the first switch. It must not return. -ENOMEM or 0. */
int stack_new(struct stack *s, size_t size, void (*entry)(void));
/* Nobody comes back to it. */
void stack_free(struct stack *s);

/* Goes on where `to` was left. */
void stack_switch(struct stack *from, struct stack *to);
/* The first thing that an entry does. `from` is where it has been come from. */
void stack_entered(struct stack *from);

#endif
