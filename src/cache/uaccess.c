/* SPDX-License-Identifier: MIT */
#include "cache/uaccess.h"

#include <errno.h>
#include <stdint.h>
#include <ucontext.h>

/*
 * Leaf functions without a frame, so that a fault anywhere between the labels can be
 * answered by jumping to the end: the return address is where it was at entry. The sizes
 * that matter are eight and twelve bytes, a count and an event, and whole words, small structures:
 * the instruction that copies any number of bytes takes longer to begin than all of that.
 */
extern const char plx_ua_begin[], plx_ua_end[], plx_ua_fault[];

/* Offsets from their own places, so that the table needs no relocation. */
struct extable_entry {
	int32_t at, fixup;
};
extern const struct extable_entry __start_plx_extable[] __attribute__((weak, visibility("hidden")));
extern const struct extable_entry __stop_plx_extable[] __attribute__((weak, visibility("hidden")));

/* Where a fault at pc continues, 0 if it is not ours. */
static uintptr_t fixup_of(uintptr_t pc)
{
	const struct extable_entry *e;

	if (pc >= (uintptr_t)plx_ua_begin && pc < (uintptr_t)plx_ua_end)
		return (uintptr_t)plx_ua_fault;
	for (e = __start_plx_extable; e < __stop_plx_extable; e++)
		if ((uintptr_t)&e->at + e->at == pc)
			return (uintptr_t)&e->fixup + e->fixup;
	return 0;
}

#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".hidden plx_ua_begin, plx_ua_end, plx_ua_fault, plx_ua_copy\n"
	".globl plx_ua_begin, plx_ua_end, plx_ua_fault, plx_ua_copy\n"
	".type plx_ua_copy, @function\n"
	"plx_ua_begin:\n"
	"plx_ua_copy:\n"
	"	.cfi_startproc\n"
	"	cmp	$8, %rdx\n"
	"	jne	1f\n"
	"	mov	(%rsi), %rax\n"
	"	mov	%rax, (%rdi)\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"1:	cmp	$12, %rdx\n"
	"	jne	2f\n"
	"	mov	(%rsi), %rax\n"
	"	mov	8(%rsi), %ecx\n"
	"	mov	%rax, (%rdi)\n"
	"	mov	%ecx, 8(%rdi)\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"2:	cmp	$256, %rdx\n"
	"	ja	8f\n"
	"	test	$7, %dl\n"
	"	jnz	8f\n"
	"	test	%rdx, %rdx\n"
	"	jz	4f\n"
	"3:	mov	-8(%rsi,%rdx), %rax\n"
	"	mov	%rax, -8(%rdi,%rdx)\n"
	"	sub	$8, %rdx\n"
	"	jnz	3b\n"
	"4:	xor	%eax, %eax\n"
	"	ret\n"
	"8:	mov	%rdx, %rcx\n"
	"	rep movsb\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"plx_ua_end:\n"
	"plx_ua_fault:\n"
	"	mov	$-14, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size plx_ua_copy, . - plx_ua_copy\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".hidden plx_ua_begin\n.hidden plx_ua_end\n.hidden plx_ua_fault\n"
	".hidden plx_ua_copy\n.hidden plx_touch_user\n"
	".hidden plx_load_user32\n.hidden plx_store_user32\n"
	".globl plx_ua_begin\n.globl plx_ua_end\n.globl plx_ua_fault\n"
	".globl plx_ua_copy\n.globl plx_touch_user\n"
	".globl plx_load_user32\n.globl plx_store_user32\n"
	".type plx_ua_copy, %function\n"
	".type plx_touch_user, %function\n"
	".type plx_load_user32, %function\n"
	".type plx_store_user32, %function\n"
	"plx_ua_begin:\n"
	"plx_ua_copy:\n"
	"	.cfi_startproc\n"
	"	cmp	x2, #8\n"
	"	b.ne	1f\n"
	"	ldr	x3, [x1]\n"
	"	str	x3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"1:	cbz	x2, 3f\n"
	"	tst	x2, #15\n"
	"	b.ne	2f\n"
	"4:	ldp	x3, x4, [x1], #16\n"
	"	stp	x3, x4, [x0], #16\n"
	"	subs	x2, x2, #16\n"
	"	b.ne	4b\n"
	"	b	3f\n"
	"2:	ldrb	w3, [x1], #1\n"
	"	strb	w3, [x0], #1\n"
	"	subs	x2, x2, #1\n"
	"	b.ne	2b\n"
	"3:	mov	w0, #0\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size plx_ua_copy, . - plx_ua_copy\n"
	"plx_load_user32:\n"
	"	.cfi_startproc\n"
	"	ldr	w3, [x1]\n"
	"	dmb	ishld\n"
	"	str	w3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size plx_load_user32, . - plx_load_user32\n"
	"plx_store_user32:\n"
	"	.cfi_startproc\n"
	"	dmb	ish\n"
	"	str	w1, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size plx_store_user32, . - plx_store_user32\n"
	"plx_touch_user:\n"
	"	.cfi_startproc\n"
	"1:	ldxrb	w1, [x0]\n"
	"	stxrb	w2, w1, [x0]\n"
	"	cbnz	w2, 1b\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"plx_ua_end:\n"
	"plx_ua_fault:\n"
	"	mov	w0, #-14\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size plx_touch_user, . - plx_touch_user\n"
	".popsection\n");
#endif

/* A store of several bytes that faults has stored none of them. */
void plx_copy_out_head(void *user, const void *src, size_t n)
{
	for (size_t i = 0; i < n && !plx_copy_out((char *)user + i, (const char *)src + i, 1); i++)
		;
}

bool plx_uaccess_fixup(void *ucontext)
{
	ucontext_t *uc = ucontext;
#if defined(__x86_64__)
	uintptr_t pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	uintptr_t pc = (uintptr_t)uc->uc_mcontext.pc;
#endif

	uintptr_t fixup = fixup_of(pc);

	if (!fixup)
		return false;
#if defined(__x86_64__)
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)fixup;
#elif defined(__aarch64__)
	uc->uc_mcontext.pc = fixup;
#endif
	return true;
}
