/* SPDX-License-Identifier: MIT */
#include "switch.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TSAN 1
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned int flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned int flags);
#else
#define TSAN 0
#endif

#define GUARD 4096

#ifndef SWITCH_UCONTEXT
/* Pushes what a call keeps, leaves the stack pointer in *from, and does the reverse at `to`. */
void switch_stack_pointer(void **from, void *to);

#ifdef __x86_64__
/* With the control words of floating point, which a call keeps, too. */
__asm__(".text\n"
	".p2align 4\n"
	".globl switch_stack_pointer\n"
	".hidden switch_stack_pointer\n"
	".type switch_stack_pointer, @function\n"
	"switch_stack_pointer:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size switch_stack_pointer, . - switch_stack_pointer\n");

/* Control words, six registers, where to return to, and a return address that is none. */
#define FRAME 9
#define FRAME_ENTRY 7

static void frame_fill(uint64_t *frame)
{
	uint32_t words[2] = {0, 0};

	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(words[0]), "=m"(words[1]));
	memcpy(frame, words, sizeof(words));
}
#else
__asm__(".text\n"
	".p2align 4\n"
	".globl switch_stack_pointer\n"
	".hidden switch_stack_pointer\n"
	".type switch_stack_pointer, %function\n"
	"switch_stack_pointer:\n"
	"	stp x19, x20, [sp, #-160]!\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	ldp x19, x20, [sp], #160\n"
	"	ret\n"
	".size switch_stack_pointer, . - switch_stack_pointer\n");

#define FRAME 20
/* x30 */
#define FRAME_ENTRY 11

static void frame_fill(uint64_t *frame)
{
	(void)frame;
}
#endif

static void stack_prepare(struct stack *s, void (*entry)(void))
{
	uint64_t *frame = (uint64_t *)((char *)s->memory + s->size) - FRAME;

	memset(frame, 0, FRAME * sizeof(*frame));
	frame_fill(frame);
	frame[FRAME_ENTRY] = (uint64_t)(uintptr_t)entry;
	s->pointer = frame;
}
#else
static void stack_prepare(struct stack *s, void (*entry)(void))
{
	getcontext(&s->context);
	s->context.uc_stack.ss_sp = s->memory;
	s->context.uc_stack.ss_size = s->size;
	s->context.uc_link = NULL;
	makecontext(&s->context, entry, 0);
}
#endif

void stack_adopt(struct stack *s)
{
	memset(s, 0, sizeof(*s));
#if TSAN
	s->fibre = __tsan_get_current_fiber();
#endif
}

int stack_new(struct stack *s, size_t size, void (*entry)(void))
{
	char *memory = mmap(NULL, size + GUARD, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return -ENOMEM;
	/* A stack that is too small ends here, and not in somebody else's memory. */
	mprotect(memory, GUARD, PROT_NONE);
	memset(s, 0, sizeof(*s));
	s->memory = memory + GUARD;
	s->size = size;
	s->bottom = s->memory;
	s->length = size;
#if TSAN
	s->fibre = __tsan_create_fiber(0);
#endif
	stack_prepare(s, entry);
	return 0;
}

void stack_free(struct stack *s)
{
#if TSAN
	__tsan_destroy_fiber(s->fibre);
#endif
#if ASAN
	__asan_unpoison_memory_region(s->memory, s->size);
#endif
	munmap((char *)s->memory - GUARD, s->size + GUARD);
}

void stack_entered(struct stack *from)
{
#if ASAN
	__sanitizer_finish_switch_fiber(NULL, &from->bottom, &from->length);
#endif
	(void)from;
}

void stack_switch(struct stack *from, struct stack *to)
{
#if ASAN
	__sanitizer_start_switch_fiber(&from->fake, to->bottom, to->length);
#endif
#if TSAN
	__tsan_switch_to_fiber(to->fibre, 0);
#endif
#ifdef SWITCH_UCONTEXT
	swapcontext(&from->context, &to->context);
#else
	switch_stack_pointer(&from->pointer, to->pointer);
#endif
#if ASAN
	__sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}
