/* SPDX-License-Identifier: MIT */
/*
 * The child of a fork, its own child, and the parent that looks for the end of both.
 *
 * Mirrors: src/posix/lent.c plx_lent_never in a child, plx_lent_before_fork, alone. Parent and
 * children share one object. A child may use it, says so in shared memory before, and ends its
 * descriptors at last: that of the object, and the write end of the pipe.
 *
 * Checked: the parent takes the object back only when nobody else has it, and nobody has used it.
 *
 * Weak memory: the child's store waits in a store buffer; a system call waits for it.
 *
 * Broken variants: NOTED_FIRST (the parent looks at the note, and at the pipe then), NOTE_LATE (it is
 * stored after the use), NOT_INHERITED (the grandchild has no write end), PIPE_FIRST (the write end
 * goes before the object), NO_WRITE_END (the parent keeps a write end only while it forks, and the
 * child gets none).
 */

byte writers = 1, copies = 1;
bit noted, noted_buf, noted_full;
bit changed;
bit children;

inline drain()
{
	d_step {
		if
		:: noted_full -> noted = noted_buf; noted_full = 0
		:: else
		fi
	}
}

inline note()
{
	d_step { noted_buf = 1; noted_full = 1 }
}

active proctype memory()
{
endm:	do
	:: noted_full -> drain()
	od
}

proctype child(bit writes, forks)
{
	if
	:: skip
	:: forks ->
		/* A system call. */
		drain();
		atomic {
			copies++;
#ifdef BROKEN_NOT_INHERITED
			run child(0, 0)
#else
			writers++;
			run child(1, 0)
#endif
		}
	fi;
	if
	:: skip
	:: 
#ifdef BROKEN_NOTE_LATE
		changed = 1;
		copies--;
		writers = writers - writes;
		note();
		goto end
#else
		note();
		/* A system call. */
		drain();
		changed = 1
#endif
	fi;
	drain();
#ifdef BROKEN_PIPE_FIRST
	writers = writers - writes;
	copies--;
#else
	copies--;
	writers = writers - writes;
#endif
end:	skip
}

active proctype parent()
{
	bit used;

#ifdef BROKEN_NOTED_FIRST
	used = noted;
	writers == 0;
#else
	writers == 0;
	used = noted;
#endif
	if
	:: !used -> assert(copies == 0 && !changed)
	:: else
	fi
}

init {
	atomic {
#ifdef BROKEN_NO_WRITE_END
		writers = 0;
		run child(0, 1)
#else
		run child(1, 1)
#endif
	}
}
