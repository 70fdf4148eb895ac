/* SPDX-License-Identifier: MIT */
/*
 * A sleep and the signals that come before, in and after it: a handler of the program ends the sleep
 * before it begins, and what the sleep has brought is not lost.
 *
 * Mirrors: src/base/sleep.c plx_sleep, plx_sleep_window, plx_sleep_interrupted, plx_sleep_aside;
 * src/preload/signal.c caught, waits, keep, come_later, take_turn, leave_sleep, deliver. One thread
 * makes one call that may sleep (object/eventfd.c efd_sleep), one producer makes one event. A and B are
 * signals of the program, F is one of libc's, whose handler is nobody's business. Each comes once,
 * wherever it is not blocked, or never. `place` is the next instruction of the call; who is
 * interrupted has its place and its mask in the frame of the signal. A blocked system call that a
 * signal interrupts stays where it is (SA_RESTART), or returns -EINTR.
 *
 * Checked: everybody comes to an end, so nobody sleeps beside the event, or with nothing to ring for;
 * the handlers of A and B have run once each, with the mask that they asked for, outside, and with
 * nothing announced, held or in hand; what is held is let go of once and not touched then; at the end
 * nothing is kept or blocked.
 *
 * One thread needs no barriers. The producer's push and the thread's announcement are a model of
 * their own (no_lost_wake).
 *
 * Broken variants: NO_LOOK (the window does not look at over), NO_REDIRECT (return into the window),
 * RESTARTED (only a return to the system call itself is left as it is), IN_HAND (a sleep that is done
 * is taken for one that has not begun), BACK_IN_HAND (so is a result at the instruction behind the
 * system call), CALL_RUNS (so is a sleep in whose window another handler lies), TWICE (who lets go does
 * not say so), ASLEEP_LATE (outside before the sleep is named), ASLEEP_EARLY (unnamed before inside
 * again), NO_WAITS (what is kept is not delivered before the sleep), NO_MASK (what comes later is
 * blocked in the program's handler, too), ASIDE_OUTSIDE (another handler may come before all is let go
 * of), KEEP_OPEN (another handler may come while a signal is put by), LIBC_MASK (the mask of libc's
 * handler becomes the thread's), STILL_WAITS (a handler begins outside with a signal kept, which libc's
 * handler has let come by restoring its mask).
 */
#define A 1
#define B 2
#define F 4
#define BOTH 3

/* Places of the call. WINDOW: from LOOK to before BACK. */
#define LINK 1
#define TRY 2
#define ASLEEP 3
#define OUT 4
#define WAITS 5
#define DELIVER 6
#define LOOK 7
#define OVER 8
#define SYSCALL 9
#define BACK 10
#define DONE_AT 11
#define NO 12
#define INSIDE 13
#define END_SLEEP 14
#define USE 15
#define UNHOLD 16
#define LEAVE 17
#define LEFT 18
#define DELIVER_WAITS 19
#define DELIVER_SEND 20
#define DELIVER_MASK 21
#define END 22
#define IN_WINDOW(p) ((p) >= LOOK && (p) < BACK)

/* Phases, and what the system call has returned. */
#define BEFORE 0
#define CALL 1
#define DONE 2
#define RESULT 1
#define INTR 2

/* Who runs: 0, the call; or the handler of a signal. */
byte cpu;
byte place = LINK, result;
byte mask, pending, carriers, to_come, on;
/* Those whose handlers are to have run at the end. */
byte all;
/* The frame of a signal. */
byte from[5], frame_place[5], frame_result[5], frame_mask[5];

bit depth = 1, waits, asleep, over, comes_later;
byte phase;
byte kept, kept_mask;
/* Of the call's own deliver. */
byte deliver_mask, deliver_sig, after;
/* What is held: by name, whether a handler has let go of it, and in truth. */
bit named, gone, linked;
bit event, rung, hand, interrupted;
byte ran;

#define DELIVERABLE (pending & ~mask)

inline send_carrier(s)
{
	pending = pending | s;
	carriers = carriers | s
}

inline let_go()
{
	assert(linked && !hand);
	linked = 0
}

#define AT(p) (cpu == 0 && !DELIVERABLE && place == p)

active proctype call()
{
endc:	do
	:: atomic { AT(LINK) ->
		rung = 0;
		linked = 1;
		named = 1;
		interrupted = 0;
		place = TRY
	   }
	:: atomic { AT(TRY) ->
		assert(linked);
		if
		:: event -> event = 0; place = UNHOLD
		:: !event && interrupted -> place = UNHOLD
		:: else -> place = ASLEEP
		fi
	   }
	:: atomic { AT(ASLEEP) ->
		phase = BEFORE;
		over = 0;
#ifdef BROKEN_ASLEEP_LATE
		depth = 0;
#else
		asleep = 1;
#endif
		place = OUT
	   }
	:: atomic { AT(OUT) ->
#ifdef BROKEN_ASLEEP_LATE
		asleep = 1;
#else
		depth = 0;
#endif
		place = WAITS
	   }
	:: atomic { AT(WAITS) ->
		if
#ifndef BROKEN_NO_WAITS
		:: waits -> place = DELIVER; after = LOOK
#endif
		:: else -> place = LOOK
		fi
	   }
	:: atomic { AT(DELIVER) ->
		deliver_mask = kept_mask;
		deliver_sig = kept;
		place = DELIVER_WAITS
	   }
	:: atomic { AT(DELIVER_WAITS) -> waits = 0; place = DELIVER_SEND }
	:: atomic { AT(DELIVER_SEND) -> send_carrier(deliver_sig); place = DELIVER_MASK }
	:: atomic { AT(DELIVER_MASK) ->
		mask = deliver_mask;
		deliver_mask = 0;
		deliver_sig = 0;
		place = after;
		after = 0
	   }
	:: atomic { AT(LOOK) -> phase = CALL; place = OVER }
	:: atomic { AT(OVER) ->
		if
#ifndef BROKEN_NO_LOOK
		:: over -> place = NO
#endif
		/* Nothing is kept for as long as that lasts. */
		:: else -> assert(!waits); place = SYSCALL
		fi
	   }
	/* Else it sleeps. */
	:: atomic { AT(SYSCALL) && rung ->
		assert(linked);
		rung = 0;
		hand = 1;
		result = RESULT;
		place = BACK
	   }
	:: atomic { AT(BACK) -> phase = DONE; place = DONE_AT }
	:: atomic { AT(DONE_AT) -> place = INSIDE }
	:: atomic { AT(NO) -> result = INTR; place = INSIDE }
	:: atomic { AT(INSIDE) ->
#ifdef BROKEN_ASLEEP_EARLY
		asleep = 0;
#else
		depth = 1;
#endif
		place = END_SLEEP
	   }
	:: atomic { AT(END_SLEEP) ->
#ifdef BROKEN_ASLEEP_EARLY
		depth = 1;
#else
		asleep = 0;
#endif
		place = USE
	   }
	:: atomic { AT(USE) ->
		if
		:: over -> place = UNHOLD
		:: else ->
			assert(linked);
			hand = 0;
			interrupted = (result == INTR);
			place = TRY
		fi;
		phase = BEFORE;
		result = 0
	   }
	:: atomic { AT(UNHOLD) ->
		if
		:: !gone -> named = 0; let_go()
		:: else -> gone = 0
		fi;
		if
		:: over -> place = LINK
		:: place = LEAVE
		fi;
		over = 0
	   }
	:: atomic { AT(LEAVE) -> depth = 0; place = LEFT }
	:: atomic { AT(LEFT) ->
		if
		:: waits -> place = DELIVER; after = END
		:: else -> place = END
		fi
	   }
	od
}

active proctype producer()
{
	event = 1;
	d_step {
		if
		:: linked -> rung = 1
		:: else
		fi
	}
}

inline interrupt(s)
{
	assert(!(on & s));
	on = on | s;
	pending = pending & ~s;
	from[s] = cpu;
	frame_mask[s] = mask;
	if
	:: cpu == 0 && place == SYSCALL && !rung -> result = INTR; place = BACK
	:: 1
	fi;
	if
	:: cpu == 0 -> frame_place[s] = place; frame_result[s] = result; place = 0; result = 0
	:: else
	fi;
	mask = mask | s;
	cpu = s
}

active proctype kernel()
{
	atomic {
		if
		:: to_come = to_come | A
		:: 1
		fi;
		if
		:: to_come = to_come | B
		:: 1
		fi;
		if
		:: to_come = to_come | F
		:: 1
		fi;
		all = to_come
	};
endk:	do
	/* What has come and is not blocked is delivered before the next instruction. */
	:: atomic { to_come & A -> to_come = to_come & ~A; pending = pending | A }
	:: atomic { to_come & B -> to_come = to_come & ~B; pending = pending | B }
	:: atomic { to_come & F -> to_come = to_come & ~F; pending = pending | F }
	:: atomic { DELIVERABLE & A -> interrupt(A) }
	:: atomic { DELIVERABLE & B -> interrupt(B) }
	:: atomic { DELIVERABLE & F -> interrupt(F) }
	od
}

inline back(s)
{
	on = on & ~s;
	mask = frame_mask[s];
	cpu = from[s];
	if
	:: cpu == 0 -> place = frame_place[s]; result = frame_result[s]
	:: else
	fi;
	from[s] = 0;
	frame_mask[s] = 0;
	frame_place[s] = 0;
	frame_result[s] = 0
}

#define RUNS (cpu == me && !DELIVERABLE)
/* What the context says. */
#define INTERRUPTED_WINDOW (from[me] == 0 && IN_WINDOW(frame_place[me]))
#define INTERRUPTED_BACK (from[me] == 0 && frame_place[me] == BACK)

proctype wrapper(byte me)
{
	bit carrier, s, keeps, later, runs;
	byte m, k;

endw:	do
	:: atomic { RUNS ->
		carrier = (carriers & me) != 0;
		carriers = carriers & ~me;
		keeps = depth
	   };
		/* waits */
		if
		:: atomic { RUNS && !keeps -> s = asleep };
			atomic { RUNS ->
				if
				:: !s || INTERRUPTED_WINDOW -> runs = 1
				:: s && INTERRUPTED_BACK ->
#ifdef BROKEN_BACK_IN_HAND
					runs = 1
#else
					runs = (frame_result[me] == INTR);
					keeps = !runs
#endif
				:: else ->
					if
					:: phase == BEFORE -> runs = 1
					:: phase == CALL ->
#ifdef BROKEN_CALL_RUNS
						runs = 1
#else
						later = 1
#endif
					:: phase == DONE ->
#ifdef BROKEN_IN_HAND
						runs = 1
#else
						keeps = 1
#endif
					fi
				fi;
				s = 0
			}
		:: atomic { RUNS && keeps }
		fi;
		if
		:: keeps ->
			keeps = 0;
#ifndef BROKEN_KEEP_OPEN
			atomic { RUNS -> mask = mask | BOTH };
#endif
			if
			:: atomic { RUNS && !carrier };
				atomic { RUNS -> k = kept };
				atomic { RUNS -> kept = k | me; k = 0 }
			:: atomic { RUNS && carrier }
			fi;
#ifdef BROKEN_LIBC_MASK
			atomic { RUNS -> kept_mask = frame_mask[me] };
#else
			atomic { RUNS -> kept_mask = frame_mask[me] & ~F };
#endif
			atomic { RUNS -> frame_mask[me] = frame_mask[me] | BOTH };
			atomic { RUNS -> waits = 1 }
		:: later ->
			later = 0;
			atomic { RUNS -> mask = mask | BOTH };
			atomic { RUNS -> kept = kept | me };
			atomic { RUNS -> send_carrier(me) };
			atomic { RUNS -> frame_mask[me] = frame_mask[me] | me };
			atomic { RUNS -> comes_later = 1 }
		:: runs ->
			runs = 0;
#ifndef BROKEN_STILL_WAITS
			if
			:: atomic { RUNS && waits -> waits = 0 };
				atomic { RUNS -> send_carrier(kept) }
			:: atomic { RUNS && !waits }
			fi;
#endif
			/* take_turn */
			if
			:: atomic { RUNS && carrier && !(kept & me) } -> goto returns
			:: atomic { RUNS && carrier && (kept & me) -> kept = kept & ~me }
			:: atomic { RUNS && !carrier }
			fi;
			/* plx_sleep_aside */
#ifndef BROKEN_ASIDE_OUTSIDE
			atomic { RUNS -> depth = 1 };
#endif
			atomic { RUNS -> s = asleep };
			if
			:: atomic { RUNS && s -> asleep = 0 };
				atomic { RUNS -> over = 1 };
#ifdef BROKEN_ASIDE_OUTSIDE
				atomic { RUNS -> depth = 1 };
#endif
				atomic { RUNS ->
					if
					:: named ->
						named = 0;
#ifndef BROKEN_TWICE
						gone = 1;
#endif
						let_go()
					:: else
					fi
				}
			:: atomic { RUNS && !s }
			fi;
			s = 0;
			atomic { RUNS -> depth = 0 };
			if
			:: atomic { RUNS && waits -> m = kept_mask; k = kept };
				atomic { RUNS -> waits = 0 };
				atomic { RUNS -> send_carrier(k); k = 0 };
				atomic { RUNS -> mask = m; m = 0 }
			:: atomic { RUNS && !waits }
			fi;
			atomic { RUNS ->
				if
#ifdef BROKEN_RESTARTED
				:: INTERRUPTED_WINDOW && over && frame_place[me] != SYSCALL ->
					frame_place[me] = NO
#elif !defined(BROKEN_NO_REDIRECT)
				:: INTERRUPTED_WINDOW && over -> frame_place[me] = NO
#endif
				:: else
				fi
			};
			if
			:: atomic { RUNS && comes_later -> comes_later = 0 };
#ifndef BROKEN_NO_MASK
				atomic { RUNS -> mask = frame_mask[me] | me }
#endif
			:: atomic { RUNS && !comes_later }
			fi;
			/* The program's. */
			atomic { RUNS ->
				assert(!depth && !asleep && !named && !linked && !hand);
				assert((mask | F) == (frame_mask[me] | me | F));
				assert(!(ran & me));
				ran = ran | me
			}
		fi;
returns:	atomic { RUNS -> carrier = 0; back(me) }
	od
}

active proctype foreign()
{
endf:	do
	:: atomic { cpu == F && !DELIVERABLE -> skip };
		atomic { cpu == F && !DELIVERABLE -> back(F) }
	od
}

active proctype end()
{
	atomic {
		run wrapper(A);
		run wrapper(B)
	};
	atomic {
		timeout ->
		assert(place == END && cpu == 0 && ran == (all & BOTH));
		assert(!pending && !mask && !kept && !waits && !depth && !asleep && !linked && !hand)
	}
}
