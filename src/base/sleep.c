/* SPDX-License-Identifier: MIT */
#include "base/sleep.h"

#include <errno.h>
#include <stddef.h>
#include <ucontext.h>

#include "base/delay.h"
#include "base/sys.h"
#include "base/threads.h"

uint32_t plx_sleeps_seen;
uint32_t plx_pwait2_refused;
static __thread struct plx_sleep *asleep;
int (*plx_set_cancel_type)(int, int *) = pthread_setcanceltype;
void (*plx_cancel_waits)(void);

enum { BEFORE, CALL, DONE };
/* Of over: where the handler has met the sleep. */
enum { NOT, ENDED_BEFORE, ENDED_WITHIN };

#define LABEL(name) "	.hidden plx_sleep_" name "\n	.globl plx_sleep_" name "\n"
#define LABELS LABEL("window") LABEL("look") LABEL("back") LABEL("done") LABEL("no")

/*
 * long sleep_window(struct plx_sleep *s, long nr, const long *args): the system call, unless the
 * sleep is over. The words at s are phase and over.
 */
#if defined(__x86_64__)

__asm__("	.pushsection .text\n"
	"	.p2align 4\n"
	"	.type plx_sleep_window, @function\n" LABELS "plx_sleep_window:\n"
	"	.cfi_startproc\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movq %rsi, %rax\n"
	"	movq %rdx, %r11\n"
	"	movq (%r11), %rdi\n"
	"	movq 8(%r11), %rsi\n"
	"	movq 16(%r11), %rdx\n"
	"	movq 24(%r11), %r10\n"
	"	movq 32(%r11), %r8\n"
	"	movq 40(%r11), %r9\n"
	"	movq (%rsp), %rcx\n"
	"plx_sleep_look:\n"
	"	movl $1, (%rcx)\n"
	"	cmpl $0, 4(%rcx)\n"
	"	jne plx_sleep_no\n"
	"	syscall\n"
	"plx_sleep_back:\n"
	"	movq (%rsp), %rcx\n"
	"	movl $2, (%rcx)\n"
	"plx_sleep_done:\n"
	"	popq %rcx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"plx_sleep_no:\n"
	"	movq $-4, %rax\n"
	"	jmp plx_sleep_done\n"
	"	.cfi_endproc\n"
	"	.size plx_sleep_window, .-plx_sleep_window\n"
	"	.popsection\n");

#define CONTEXT_PC(c) ((c)->uc_mcontext.gregs[REG_RIP])
#define CONTEXT_RESULT(c) ((c)->uc_mcontext.gregs[REG_RAX])
#define CONTEXT_THIRD(c) ((void *)(c)->uc_mcontext.gregs[REG_RDX])
/* Between plx_sleep_look and plx_sleep_done. */
#define CONTEXT_SLEEP(c) (*(struct plx_sleep **)(c)->uc_mcontext.gregs[REG_RSP])

#elif defined(__aarch64__)

/* The kernel preserves all registers but x0. */
__asm__("	.pushsection .text\n"
	"	.p2align 4\n"
	"	.type plx_sleep_window, %function\n" LABELS "plx_sleep_window:\n"
	"	.cfi_startproc\n"
	"	mov x6, x0\n"
	"	mov x8, x1\n"
	"	mov x7, x2\n"
	"	ldp x0, x1, [x7]\n"
	"	ldp x2, x3, [x7, #16]\n"
	"	ldp x4, x5, [x7, #32]\n"
	"	mov w9, #1\n"
	"	mov w11, #2\n"
	"plx_sleep_look:\n"
	"	str w9, [x6]\n"
	"	ldr w10, [x6, #4]\n"
	"	cbnz w10, plx_sleep_no\n"
	"	svc #0\n"
	"plx_sleep_back:\n"
	"	str w11, [x6]\n"
	"plx_sleep_done:\n"
	"	ret\n"
	"plx_sleep_no:\n"
	"	mov x0, #-4\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size plx_sleep_window, .-plx_sleep_window\n"
	"	.popsection\n");

#define CONTEXT_PC(c) ((c)->uc_mcontext.pc)
#define CONTEXT_RESULT(c) ((long)(c)->uc_mcontext.regs[0])
#define CONTEXT_THIRD(c) ((void *)(c)->uc_mcontext.regs[2])
#define CONTEXT_SLEEP(c) ((struct plx_sleep *)(c)->uc_mcontext.regs[6])

#endif

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN long plx_sleep_window(struct plx_sleep *s, long nr, const long *args);
HIDDEN extern const char plx_sleep_look[], plx_sleep_back[], plx_sleep_done[], plx_sleep_no[];

_Static_assert(EINTR == 4, "the window says EINTR by its number");
_Static_assert(offsetof(struct plx_sleep, phase) == 0 && offsetof(struct plx_sleep, over) == 4,
	       "the window knows the two");

static bool in_window(const ucontext_t *c)
{
	uintptr_t pc = CONTEXT_PC(c);

	return pc >= (uintptr_t)plx_sleep_look && pc < (uintptr_t)plx_sleep_back;
}

static bool behind_window(const ucontext_t *c)
{
	uintptr_t pc = CONTEXT_PC(c);

	return pc >= (uintptr_t)plx_sleep_back && pc < (uintptr_t)plx_sleep_done;
}

void *plx_sleep_context(void *context, bool (*handler)(uintptr_t pc))
{
	const ucontext_t *c = context;

	while (plx_unlikely(handler(CONTEXT_PC(c))))
		c = CONTEXT_THIRD(c);
	return (void *)(uintptr_t)c;
}

enum plx_sleep_signal plx_sleep_interrupted(const void *context)
{
	const ucontext_t *c = context;
	struct plx_sleep *s = asleep;

	if (plx_likely(!s))
		return PLX_SIGNAL_RUNS;
	if (in_window(c) && CONTEXT_SLEEP(c) == s)
		return PLX_SIGNAL_RUNS;
	if (behind_window(c) && CONTEXT_SLEEP(c) == s)
		return CONTEXT_RESULT(c) == -EINTR ? PLX_SIGNAL_RUNS : PLX_SIGNAL_IS_KEPT;
	if (s->phase == BEFORE)
		return PLX_SIGNAL_RUNS;
	return s->phase == CALL ? PLX_SIGNAL_COMES_LATER : PLX_SIGNAL_IS_KEPT;
}

/* Inside. */
static __attribute__((noinline)) void let_go(void)
{
	while (plx_holds) {
		struct plx_hold *h = plx_holds;
		void (*fn)(void *) = h->let_go;

		plx_holds = h->outer;
		h->let_go = NULL;
		fn(h->arg);
	}
}

void plx_sleep_aside(void *context)
{
	/* Another handler begins when all has been let go of. */
	PLX_INSIDE();
	ucontext_t *c = context;
	struct plx_sleep *s = asleep;
	int saved = errno;

	if (plx_unlikely(s)) {
		if (s->cancellable)
			plx_set_cancel_type(PTHREAD_CANCEL_DEFERRED, NULL);
		asleep = NULL;
		s->over = behind_window(c) && CONTEXT_SLEEP(c) == s ? ENDED_WITHIN : ENDED_BEFORE;
		PLX_DELAY(sleep_let_go);
		let_go();
		if (s->cancellable)
			plx_set_cancel_type(s->cancel_type, NULL);
	}
	/* Also if a handler that had interrupted this one before it came here has been quicker. */
	if (in_window(c) && CONTEXT_SLEEP(c)->over)
		CONTEXT_PC(c) = (long)(uintptr_t)plx_sleep_no;
	errno = saved;
}

void plx_sleep_forget(void)
{
	asleep = NULL;
	plx_holds = NULL;
}

void plx_hold_cancelled(void *hold)
{
	plx_hold_end(hold, true);
}

/*
 * In place of libc's function, which would be cancelled just so, and with nothing to undo. Who
 * cancels a thread of this type says so, and sends a signal then, which may come later than this
 * ends. libc's own calls wait for it, so one is made; otherwise the next one of the program would
 * be cancelled by it, even where cancellation is disabled by then.
 */
static __attribute__((noinline)) long cancellable(struct plx_sleep *s, long nr)
{
	void (*waits)(void);
	long r;

	plx_set_cancel_type(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	r = plx_sleep_window(s, nr, s->args);
	plx_set_cancel_type(s->cancel_type, NULL);
	/* Partner: pthread_cancel in preload/init.c. */
	waits = plx_load_acq(&plx_cancel_waits);
	if (plx_unlikely(waits))
		waits();
	return r;
}

static void sleep_end(struct plx_sleep **at)
{
	struct plx_sleep *s = *at;

	plx_inside.depth = s->depth;
	plx_compiler_barrier();
	if (asleep == s)
		asleep = NULL;
}

static long sleep_once(struct plx_sleep *s, long nr)
{
	__attribute__((cleanup(sleep_end))) struct plx_sleep *me = s;

	s->phase = BEFORE;
	s->over = NOT;
	s->depth = plx_inside.depth;
	/* As libc has it: where there is one thread there is nobody who could cancel it. */
	s->cancellable = !plx_single_threaded();
	if (s->cancellable)
		plx_set_cancel_type(PTHREAD_CANCEL_DEFERRED, &s->cancel_type);
	asleep = s;
	plx_compiler_barrier();
	plx_inside.depth = 0;
	plx_compiler_barrier();
	if (plx_unlikely(plx_inside.waits))
		(void)plx_inside_left();
	PLX_DELAY(sleep_before_window);
	return s->cancellable ? cancellable(me, nr) : plx_sleep_window(me, nr, s->args);
}

long plx_sleep(struct plx_sleep *s, bool masked, long nr)
{
	long r = sleep_once(s, nr);

	if (plx_likely(s->over == NOT))
		return r;
	if (s->over == ENDED_WITHIN)
		return PLX_SLEEP_BROKEN;
	return masked ? PLX_SLEEP_ANEW : PLX_SLEEP_LOOK;
}
