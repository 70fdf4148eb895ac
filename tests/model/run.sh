#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks the models of this folder with spin. A sound model has to be searched wholly without an
# error; a broken one (BROKEN in its flags, or marked so in the table) has to give an error.
#
# run.sh               all of them
# run.sh --list        their names
# run.sh --model FILE  those of one file, named without its suffix
# run.sh NAME...       some of them

# name, expectation (long: ok, in the long form only), file, flags
table='
born ok born
born_load broken born -DBROKEN_LOAD
born_late broken born -DBROKEN_LATE
born_own broken born -DBROKEN_OWN
wiped ok wiped
wiped_begin_first broken wiped -DBROKEN_BEGIN_FIRST
wiped_left_first broken wiped -DBROKEN_LEFT_FIRST
wiped_near_late broken wiped -DBROKEN_NEAR_LATE
readers ok readers
readers_no_take_barrier broken readers -DBROKEN_NO_TAKE_BARRIER
readers_no_look_barrier broken readers -DBROKEN_NO_LOOK_BARRIER
readers_back_first broken readers -DBROKEN_BACK_FIRST
actions ok actions
actions_entry_first broken actions -DBROKEN_ENTRY_FIRST
actions_no_claim broken actions -DBROKEN_NO_CLAIM
actions_reuse broken actions -DBROKEN_REUSE
actions_no_back broken actions -DBROKEN_NO_BACK
actions_back_once broken actions -DBROKEN_BACK_ONCE
files_poll ok files_poll
files_poll_futex ok files_poll -DFUTEX
files_poll_begun_counts broken files_poll -DBROKEN_BEGUN_COUNTS
files_poll_futex_begun_counts broken files_poll -DFUTEX -DBROKEN_BEGUN_COUNTS
files_poll_late_end broken files_poll -DBROKEN_LATE_END
files_poll_futex_late_end broken files_poll -DFUTEX -DBROKEN_LATE_END
files_poll_futex_ask_first broken files_poll -DFUTEX -DBROKEN_ASK_FIRST
files_poll_no_await broken files_poll -DBROKEN_NO_AWAIT
files_poll_count_late broken files_poll -DBROKEN_COUNT_LATE
files_poll_ask_first broken files_poll -DBROKEN_ASK_FIRST
files_poll_read_late broken files_poll -DBROKEN_READ_LATE
files_poll_no_gone broken files_poll -DBROKEN_NO_GONE
watch ok watch
watch_count_late broken watch -DBROKEN_COUNT_LATE
watch_no_gone broken watch -DBROKEN_NO_GONE
watch_look_first broken watch -DBROKEN_LOOK_FIRST
watch_no_grace broken watch -DBROKEN_NO_GRACE
watch_grace_first broken watch -DBROKEN_GRACE_FIRST
starts ok starts
starts_no_change broken starts -DBROKEN_NO_CHANGE
starts_look_first broken starts -DBROKEN_LOOK_FIRST
starts_over_early broken starts -DBROKEN_OVER_EARLY
starts_no_check broken starts -DBROKEN_NO_CHECK
starts_since_late broken starts -DBROKEN_SINCE_LATE
starts_counted broken starts -DBROKEN_COUNTED
starts_set_only broken starts -DBROKEN_SET_ONLY
starts_cold broken starts -DBROKEN_COLD
ending ok ending
ending_no_change broken ending -DBROKEN_NO_CHANGE
ending_no_look broken ending -DBROKEN_NO_LOOK
ending_since_late broken ending -DBROKEN_SINCE_LATE
ending_mark_late broken ending -DBROKEN_MARK_LATE
ending_early broken ending -DBROKEN_EARLY
ending_count_first broken ending -DBROKEN_COUNT_FIRST
ending_counted broken ending -DBROKEN_COUNTED
due ok due
due_no_pass broken due -DBROKEN_NO_PASS
due_no_tell broken due -DBROKEN_NO_TELL
due_due_first broken due -DBROKEN_DUE_FIRST
due_pass_first broken due -DBROKEN_PASS_FIRST
due_store_late broken due -DBROKEN_STORE_LATE
batch ok batch
batch_early ok batch -DEARLY
batch_open_late broken batch -DBROKEN_OPEN_LATE
batch_note_first broken batch -DBROKEN_NOTE_FIRST
batch_end_first broken batch -DBROKEN_END_FIRST
batch_not_moved broken batch -DBROKEN_NOT_MOVED
batch_younger broken batch -DBROKEN_YOUNGER
barrier ok barrier
barrier_this_taking broken barrier -DBROKEN_THIS_TAKING
barrier_any_taking broken barrier -DBROKEN_ANY_TAKING
barrier_no_await broken barrier -DBROKEN_NO_AWAIT
barrier_list_late broken barrier -DBROKEN_LIST_LATE
barrier_list_short broken barrier -DBROKEN_LIST_SHORT
shutdown ok shutdown
shutdown_no_pass broken shutdown -DBROKEN_NO_PASS
shutdown_no_look broken shutdown -DBROKEN_NO_LOOK
shutdown_wake_first broken shutdown -DBROKEN_WAKE_FIRST
shutdown_look_first broken shutdown -DBROKEN_LOOK_FIRST
shutdown_no_spin_look broken shutdown -DBROKEN_NO_SPIN_LOOK
event_et ok no_lost_event -DEDGES
event_lt ok no_lost_event -DLT
event_lt_own_mark ok no_lost_event -DLT -DNONPRIMARY
event_poll_first broken no_lost_event -DBROKEN_POLL_FIRST
event_read_early broken no_lost_event -DBROKEN_READ_EARLY
event_no_help broken no_lost_event -DBROKEN_NO_HELP
event_pushed_first broken no_lost_event -DBROKEN_PUSHED_FIRST
event_lt_no_second_poll broken no_lost_event -DLT -DBROKEN_NO_SECOND_POLL
event_lt_help_not_rearmed broken no_lost_event -DLT -DBROKEN_HELP_NOT_REARMED
event_lt_no_help_after_race broken no_lost_event -DLT -DBROKEN_NO_HELP_AFTER_RACE
help_edges ok help_all -DEDGES
help_one ok help_all -DONE
help_again ok help_all -DAGAIN -DEDGES
help_slots ok help_all -DEDGES -DSLOTS=2
help_all_queued broken help_all -DBROKEN_ALL_QUEUED -DEDGES
help_overwrite broken help_all -DBROKEN_OVERWRITE
help_flag_late broken help_all -DBROKEN_FLAG_LATE
help_say_first broken help_all -DBROKEN_SAY_FIRST
help_kept_silent broken help_all -DAGAIN -DBROKEN_KEPT_SILENT
help_take_late broken help_all -DBROKEN_TAKE_LATE
help_forget broken help_all -DAGAIN -DBROKEN_FORGET
help_drop broken help_all -DBROKEN_DROP -DONE
wake_futex ok no_lost_wake
wake_weak ok no_lost_wake -DWEAK -DTIMEOUTS=0
wake_kernel ok no_lost_wake -DKERNEL -DTIMEOUTS=0 -DLEVEL=0 -DWAITS=1
wake_kernel_timeout ok no_lost_wake -DKERNEL -DALONE -DLEVEL=0 -DWAITS=1
wake_spin ok no_lost_wake -DSPINS=2 -DTIMEOUTS=0
wake_kernel_spin ok no_lost_wake -DKERNEL -DALONE -DSPINS=1 -DTIMEOUTS=0 -DLEVEL=0 -DWAITS=1
wake_each ok no_lost_wake -DFROZEN
wake_one_ring broken no_lost_wake -DFROZEN -DBROKEN_ONE_RING
wake_no_push_barrier broken no_lost_wake -DWEAK -DBROKEN_NO_PUSH_BARRIER
wake_no_sleep_barrier broken no_lost_wake -DWEAK -DBROKEN_NO_SLEEP_BARRIER
wake_no_recheck broken no_lost_wake -DBROKEN_NO_RECHECK
wake_no_chain broken no_lost_wake -DBROKEN_NO_CHAIN
wake_begun_counts broken no_lost_wake -DBROKEN_BEGUN_COUNTS
wake_late_done broken no_lost_wake -DBROKEN_LATE_DONE
wake_no_last_harvest broken no_lost_wake -DBROKEN_NO_LAST_HARVEST
wake_no_leave broken no_lost_wake -DBROKEN_NO_LEAVE
wake_spin_stays broken no_lost_wake -DSPINS=1 -DTIMEOUTS=0 -DBROKEN_SPIN_STAYS
wake_kernel_only broken no_lost_wake -DKERNEL -DTIMEOUTS=0 -DLEVEL=0 -DWAITS=1 -DBROKEN_KERNEL_ONLY
wake_collect_one broken no_lost_wake -DKERNEL -DBROKEN_COLLECT_ONE
node ok node
node_no_wait broken node -DBROKEN_NO_WAIT
node_no_epoch broken node -DBROKEN_NO_EPOCH
node_reset broken node -DBROKEN_RESET
freer ok one_freer
freer_own_mark ok one_freer -DNONPRIMARY
freer_no_grace broken one_freer -DBROKEN_NO_GRACE
freer_no_epoch broken one_freer -DBROKEN_NO_EPOCH
freer_no_mark broken one_freer -DNONPRIMARY -DBROKEN_NO_MARK -DBROKEN_NO_DEAD
freer_no_read_lock broken one_freer -DBROKEN_NO_READ_LOCK
freer_one_grace broken one_freer -DBROKEN_ONE_GRACE
freer_no_clear broken one_freer -DBROKEN_NO_CLEAR
freer_no_tryget broken one_freer -DBROKEN_NO_TRYGET
freer_no_in_flight broken one_freer -DBROKEN_NO_IN_FLIGHT
freer_no_dead broken one_freer -DBROKEN_NO_DEAD
freer_put_at_close broken one_freer -DBROKEN_PUT_AT_CLOSE
freer_no_help_ref broken one_freer -DBROKEN_NO_HELP_REF
freer_help_get broken one_freer -DBROKEN_HELP_GET
grace ok grace
grace_no_note_barrier broken grace -DBROKEN_NO_NOTE_BARRIER
grace_no_begin_barrier broken grace -DBROKEN_NO_BEGIN_BARRIER
grace_number_late broken grace -DBROKEN_NUMBER_LATE
grace_not_greater broken grace -DBROKEN_NOT_GREATER
prepare ok prepare
prepare_no_barrier broken prepare -DBROKEN_NO_BARRIER
prepare_no_second_barrier broken prepare -DBROKEN_NO_SECOND_BARRIER
prepare_no_await broken prepare -DBROKEN_NO_AWAIT
prepare_look_first broken prepare -DBROKEN_LOOK_FIRST
prepare_no_way_back broken prepare -DBROKEN_NO_WAY_BACK
prepare_late broken prepare -DBROKEN_LATE
prepare_not_busy broken prepare -DBROKEN_NOT_BUSY
phases ok phases
phases_no_barrier broken phases -DBROKEN_NO_BARRIER
phases_no_first broken phases -DBROKEN_NO_FIRST
phases_no_second broken phases -DBROKEN_NO_SECOND
phases_none_is_current broken phases -DBROKEN_NONE_IS_CURRENT
numbers ok numbers
numbers_evict ok numbers -DEVICT
numbers_objects ok numbers -DOBJECTS
numbers_no_wait broken numbers -DBROKEN_NO_WAIT
numbers_no_change broken numbers -DBROKEN_NO_CHANGE
numbers_change_first broken numbers -DBROKEN_CHANGE_FIRST
numbers_no_await broken numbers -DBROKEN_NO_AWAIT
numbers_blind broken numbers -DBROKEN_BLIND
numbers_no_owner broken numbers -DBROKEN_NO_OWNER
numbers_owner_early broken numbers -DBROKEN_OWNER_EARLY
numbers_entry_first broken numbers -DBROKEN_ENTRY_FIRST
numbers_no_look broken numbers -DOBJECTS -DBROKEN_NO_LOOK
numbers_look_first broken numbers -DOBJECTS -DBROKEN_LOOK_FIRST
numbers_no_evicted broken numbers -DEVICT -DBROKEN_NO_EVICTED
number_lost ok number_lost
number_lost_no_look broken number_lost -DBROKEN_NO_LOOK
number_lost_look_first broken number_lost -DBROKEN_LOOK_FIRST
number_lost_no_bar broken number_lost -DBROKEN_NO_BAR
number_lost_bar_first broken number_lost -DBROKEN_BAR_FIRST
doorbell ok doorbell
doorbell_leaver long doorbell -DLEAVER
doorbell_fails ok doorbell -DFAILS=1
doorbell_no_look broken doorbell -DBROKEN_NO_LOOK
doorbell_look_first broken doorbell -DBROKEN_LOOK_FIRST
doorbell_no_ready broken doorbell -DBROKEN_NO_READY
doorbell_make_late broken doorbell -DBROKEN_MAKE_LATE
doorbell_no_end broken doorbell -DLEAVER -DBROKEN_NO_END
doorbell_end_first broken doorbell -DLEAVER -DBROKEN_END_FIRST
hush_signal long hush -DSIGNALS=1
hush_fault long hush -DFAULTS=1
hush_full long hush -DOTHER -DNO_STOP
hush_jump long hush -DJUMPS=1
hush_one ok hush -DONE -DOTHER -DSIGNALS=1 -DFAULTS=1 -DJUMPS=1 -DWAITS=2
hush_one_again ok hush -DONE -DOTHER -DSIGNALS=1 -DWAITS=3
hush_no_collect broken hush -DFAULTS=1 -DBROKEN_NO_COLLECT
hush_collect_first broken hush -DFAULTS=1 -DBROKEN_COLLECT_FIRST
hush_late broken hush -DNO_STOP -DBROKEN_HUSH_LATE
hush_no_leave broken hush -DJUMPS=1 -DBROKEN_NO_LEAVE
hush_no_again broken hush -DFAULTS=1 -DBROKEN_NO_AGAIN
hush_no_owed broken hush -DONE -DOTHER -DWAITS=2 -DBROKEN_NO_OWED
hush_no_doubt broken hush -DONE -DOTHER -DWAITS=3 -DBROKEN_NO_DOUBT
hush_heard_all broken hush -DONE -DOTHER -DWAITS=3 -DBROKEN_HEARD_ALL
hush_no_counts broken hush -DONE -DOTHER -DWAITS=2 -DBROKEN_NO_COUNTS
hush_no_look broken hush -DONE -DOTHER -DWAITS=2 -DBROKEN_NO_LOOK
timer_wait ok timer
timer_wait_mixed ok timer -DMIXED
timer_weak ok timer -DSETS=1 -DWEAK
timer_left ok timer -DSETS=1 -DLEAVES=1
timer_left_mixed ok timer -DSETS=1 -DLEAVES=1 -DMIXED
timer_left_again ok timer -DALONE -DLEAVES=1 -DWAITS=2
timer_fork ok timer -DALONE -DFORK -DWEAK
timer_escape ok timer -DALONE -DESCAPE -DREAD
timer_leave ok timer -DSETS=1 -DLEAVE
timer_close ok timer -DNO_WAITS -DCLOSE -DWEAK
timer_no_lazy_barrier broken timer -DSETS=1 -DWEAK -DBROKEN_NO_LAZY_BARRIER
timer_no_leave_barrier broken timer -DSETS=1 -DWEAK -DBROKEN_NO_LEAVE_BARRIER
timer_no_sleep_barrier broken timer -DSETS=1 -DWEAK -DBROKEN_NO_SLEEP_BARRIER
timer_no_fork_barrier broken timer -DALONE -DFORK -DWEAK -DBROKEN_NO_FORK_BARRIER
timer_no_notimers broken timer -DSETS=1 -DBROKEN_NO_NOTIMERS
timer_no_sleepers broken timer -DSETS=1 -DBROKEN_NO_SLEEPERS
timer_no_change broken timer -DALONE -DFORK -DBROKEN_NO_CHANGE
timer_no_clock broken timer -DBROKEN_NO_CLOCK
timer_no_mark broken timer -DBROKEN_NO_MARK
timer_unmark_first broken timer -DBROKEN_UNMARK_FIRST
timer_no_fired broken timer -DBROKEN_NO_FIRED
timer_when_lazy broken timer -DSETS=1 -DBROKEN_WHEN_LAZY
timer_when_lazy_mixed broken timer -DSETS=1 -DMIXED -DBROKEN_WHEN_LAZY
timer_retract_first broken timer -DSETS=1 -DBROKEN_RETRACT_FIRST
timer_no_grace broken timer -DSETS=1 -DBROKEN_NO_GRACE
timer_no_help broken timer -DSETS=1 -DLEAVE -DBROKEN_NO_HELP
timer_no_sleepers_look broken timer -DSETS=1 -DBROKEN_NO_SLEEPERS_LOOK
timer_drop_late broken timer -DSETS=1 -DLEAVES=1 -DBROKEN_DROP_LATE
timer_cancel_late broken timer -DSETS=1 -DLEAVES=1 -DBROKEN_CANCEL_LATE
timer_no_drop broken timer -DALONE -DLEAVES=1 -DWAITS=2 -DBROKEN_NO_DROP
timer_mark_in_set broken timer -DNO_WAITS -DCLOSE -DBROKEN_MARK_IN_SET
timer_no_release broken timer -DNO_WAITS -DCLOSE -DBROKEN_NO_RELEASE
timer_read_lazy broken timer -DALONE -DREAD -DBROKEN_READ_LAZY
timer_escape_lazy broken timer -DALONE -DESCAPE -DBROKEN_ESCAPE_LAZY
timer_soon ok timer_soon
timer_soon_no_barrier broken timer_soon -DBROKEN_NO_SOON_BARRIER
timer_soon_no_locked broken timer_soon -DBROKEN_NO_LOCKED
timer_soon_no_put_back broken timer_soon -DBROKEN_NO_PUT_BACK
timer_soon_back_late broken timer_soon -DBROKEN_BACK_LATE
timer_soon_begin ok timer_soon -DBEGIN
timer_soon_no_begin broken timer_soon -DBEGIN -DBROKEN_NO_BEGIN
timer_soon_count_ends broken timer_soon -DBEGIN -DROUNDS=1 -DBROKEN_COUNT_ENDS
timer_soon_begin_no_put_back broken timer_soon -DBEGIN -DBROKEN_NO_PUT_BACK
timer_soon_late ok timer_soon -DBEGIN -DLATE
timer_soon_uncounted broken timer_soon -DBEGIN -DLATE -DROUNDS=1 -DBROKEN_UNCOUNTED
timer_place ok timer_place
timer_place_ask_first broken timer_place -DBROKEN_ASK_FIRST
timer_place_read_late broken timer_place -DBROKEN_READ_LATE
timer_place_few broken timer_place -DBROKEN_FEW
timer_place_not_looked broken timer_place -DBROKEN_NOT_LOOKED
timer_place_no_renew broken timer_place -DBROKEN_NO_RENEW
timer_place_not_asked broken timer_place -DBROKEN_NOT_ASKED
exclusive ok exclusive
exclusive_no_look broken exclusive -DBROKEN_NO_LOOK
exclusive_no_look_barrier broken exclusive -DBROKEN_NO_LOOK_BARRIER
exclusive_relaxed broken exclusive -DBROKEN_RELAXED
exclusive_dead_late broken exclusive -DBROKEN_DEAD_LATE
exclusive_no_wait broken exclusive -DBROKEN_NO_WAIT
handed ok handed
handed_two ok handed -DPRODUCERS=2
handed_no_look broken handed -DBROKEN_NO_LOOK
handed_late broken handed -DBROKEN_LATE
handed_both broken handed -DBROKEN_BOTH
handed_clear_all broken handed -DBROKEN_CLEAR_ALL
topology ok topology
topology_no_mutex broken topology -DBROKEN_NO_MUTEX
topology_down_only broken topology -DBROKEN_DOWN_ONLY
topology_count_first broken topology -DBROKEN_COUNT_FIRST
rearm ok rearm -DWRITERS=1
rearm_one_shot ok rearm -DONE_SHOT
rearm_del ok rearm -DONE_SHOT -DDEL -DWRITERS=1
rearm_whole long rearm
rearm_no_reload broken rearm -DONE_SHOT -DBROKEN_NO_RELOAD
rearm_no_file_lock broken rearm -DWRITERS=1 -DBROKEN_NO_FILE_LOCK
rearm_not_given broken rearm -DWRITERS=1 -DBROKEN_NOT_GIVEN
rearm_poll_first broken rearm -DWRITERS=1 -DBROKEN_POLL_FIRST
rearm_disarm_first broken rearm -DWRITERS=1 -DBROKEN_DISARM_FIRST
rearm_given_first broken rearm -DONE_SHOT -DDEL -DWRITERS=1 -DBROKEN_GIVEN_FIRST
mod ok mod
mod_no_mod_barrier broken mod -DBROKEN_NO_MOD_BARRIER
mod_poll_first broken mod -DBROKEN_POLL_FIRST
mod_no_help broken mod -DBROKEN_NO_HELP
quiet_watch ok quiet -DCHANGE=1
quiet_nested ok quiet -DCHANGE=2
quiet_sleep ok quiet -DCHANGE=3
quiet_first ok quiet -DCHANGE=4
quiet_bump_first broken quiet -DCHANGE=1 -DBROKEN_BUMP_FIRST
quiet_no_bump broken quiet -DCHANGE=1 -DBROKEN_NO_BUMP
quiet_no_barrier broken quiet -DCHANGE=1 -DBROKEN_NO_BARRIER
quiet_clear_only broken quiet -DCHANGE=1 -DBROKEN_CLEAR_ONLY
quiet_nested_bump_first broken quiet -DCHANGE=2 -DBROKEN_BUMP_FIRST
quiet_sleep_quiet_first broken quiet -DCHANGE=3 -DBROKEN_QUIET_FIRST
quiet_sleep_reload broken quiet -DCHANGE=3 -DBROKEN_RELOAD
quiet_first_claim_keeps broken quiet -DCHANGE=4 -DBROKEN_CLAIM_KEEPS
quiet_first_empty_list broken quiet -DCHANGE=4 -DBROKEN_EMPTY_LIST
cache_count ok cache_count -DWRITES=1
cache_count_polls ok cache_count -DLOOKS=0 -DPOLLS=1
cache_count_again ok cache_count -DLOOKS=0 -DADOPTIONS=2
cache_count_full ok cache_count -DFULL -DWRITES=1
cache_count_take_first long cache_count -DPOLLS=1 -DTAKE_FIRST
cache_count_look long cache_count -DPOLLS=1
cache_count_reads long cache_count -DLOOKS=0 -DPOLLS=1 -DREADS=2
cache_count_readers long cache_count -DLOOKS=0 -DREADERS=2 -DFLUSHES=0
cache_count_readers_polls long cache_count -DLOOKS=0 -DREADERS=2 -DPOLLS=1 -DFLUSHES=0 -DWRITES=1
cache_count_no_mark broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_NO_MARK
cache_count_no_tell broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_NO_TELL
cache_count_no_through_mark broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_NO_THROUGH_MARK
cache_count_no_gen broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_NO_GEN
cache_count_no_look broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_NO_LOOK
cache_count_mark_apart broken cache_count -DLOOKS=0 -DPOLLS=1 -DREADS=2 -DFLUSHES=0 -DBROKEN_MARK_APART
cache_count_mark_late broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_MARK_LATE
cache_count_one_read broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_ONE_READ
cache_count_no_busy broken cache_count -DLOOKS=0 -DPOLLS=1 -DREADERS=2 -DFLUSHES=0 -DBROKEN_NO_BUSY
cache_count_in_hand broken cache_count -DWRITES=1 -DBROKEN_IN_HAND
cache_count_no_flushing broken cache_count -DWRITES=1 -DBROKEN_NO_FLUSHING
cache_count_add_apart broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_ADD_APART
cache_count_kernel_first broken cache_count -DWRITES=1 -DBROKEN_KERNEL_FIRST
cache_count_pull broken cache_count -DBROKEN_PULL
cache_count_through_late broken cache_count -DLOOKS=0 -DPOLLS=1 -DBROKEN_THROUGH_LATE
cache_count_full_clears broken cache_count -DFULL -DWRITES=1 -DBROKEN_FULL_CLEARS
cache_count_sum broken cache_count -DFULL -DWRITES=1 -DBROKEN_SUM
cache_wait ok cache_wait -DFLUSHES=0
cache_wait_no_sleep ok cache_wait -DWAITERS=0
cache_wait_twice ok cache_wait -DWRITERS=1 -DWRITES=3 -DADOPTIONS=2 -DLOOKS=0 -DWAITS=2
cache_wait_times ok cache_wait -DTIMES -DLOOKS=0
cache_wait_stranger ok cache_wait -DSTRANGER -DLOOKS=0
cache_wait_edges ok cache_wait -DEDGES -DLOOKS=0
cache_wait_edges_no_sleep ok cache_wait -DEDGES -DWAITERS=0 -DLOOKS=2
cache_wait_edges_twice ok cache_wait -DEDGES -DWRITERS=1 -DWRITES=3 -DADOPTIONS=2 -DLOOKS=0 -DWAITS=2
cache_wait_edges_stranger ok cache_wait -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWAITS=2
cache_wait_edges_merge ok cache_wait -DEDGES -DMERGE -DWAITERS=0 -DLOOKS=2
cache_wait_all long cache_wait
cache_wait_two long cache_wait -DWAITERS=2 -DLOOKS=0 -DFLUSHES=0
cache_wait_edges_two long cache_wait -DEDGES -DWAITERS=2 -DLOOKS=0 -DFLUSHES=0
cache_wait_edges_all long cache_wait -DEDGES
cache_wait_edges_merge_all long cache_wait -DEDGES -DMERGE
cache_wait_edges_read long cache_wait -DEDGES -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWAITS=3 -DFIRST=1 -DWRITES=2
cache_wait_kernel_first broken cache_wait -DWAITERS=0 -DBROKEN_KERNEL_FIRST
cache_wait_in_hand broken cache_wait -DWAITERS=0 -DBROKEN_IN_HAND
cache_wait_no_recheck broken cache_wait -DLOOKS=0 -DFLUSHES=0 -DBROKEN_NO_RECHECK
cache_wait_no_second broken cache_wait -DLOOKS=0 -DFLUSHES=0 -DWAITS=2 -DBROKEN_NO_SECOND
cache_wait_twice_told broken cache_wait -DWAITERS=0 -DFLUSHES=0 -DBROKEN_TWICE
cache_wait_swallow broken cache_wait -DFLUSHES=0 -DBROKEN_SWALLOW
cache_wait_no_last_look broken cache_wait -DTIMES -DLOOKS=0 -DFLUSHES=0 -DBROKEN_NO_LAST_LOOK
cache_wait_list_alone broken cache_wait -DTIMES -DLOOKS=0 -DBROKEN_LIST_ALONE
cache_wait_taken_late broken cache_wait -DEDGES -DLOOKS=0 -DFLUSHES=0 -DWAITS=2 -DBROKEN_TAKEN_LATE
cache_wait_read_u broken cache_wait -DEDGES -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWAITS=3 -DFIRST=1 -DWRITES=2 -DBROKEN_READ_U
cache_poll ok cache_poll -DSLEEPERS=1
cache_poll_times ok cache_poll -DTIMES -DSLEEPERS=1
cache_poll_stop ok cache_poll -DSTOP_COLD_READER -DSTOP_READER -DSTOP_WRITER -DSLEEPERS=1
cache_poll_two long cache_poll
cache_poll_blocking long cache_poll -DBLOCKING
cache_poll_once ok cache_poll -DONCE -DSLEEPERS=1 -DSECOND=3 -DFLUSHES=0 -DREADS=2
cache_poll_once_times ok cache_poll -DONCE -DTIMES -DSLEEPERS=1
cache_poll_once_stop ok cache_poll -DONCE -DSTOP_READER -DSTOP_WRITER -DSLEEPERS=1
cache_poll_once_two long cache_poll -DONCE
cache_poll_once_blocking long cache_poll -DONCE -DBLOCKING
cache_poll_once_ticket long cache_poll -DONCE -DSTOP_WRITER -DSLEEPERS=1 -DREADS=2 -DSECOND=2
cache_poll_once_readers long cache_poll -DONCE -DSTOP_READER -DSECOND=2 -DFLUSHES=0
cache_poll_cold broken cache_poll -DSLEEPERS=1 -DBROKEN_COLD
cache_poll_apart broken cache_poll -DSLEEPERS=1 -DBROKEN_APART
cache_poll_unseen broken cache_poll -DSLEEPERS=1 -DBROKEN_UNSEEN
cache_poll_plain_add broken cache_poll -DSLEEPERS=1 -DBROKEN_PLAIN_ADD
cache_poll_once_early broken cache_poll -DONCE -DSTOP_WRITER -DSLEEPERS=1 -DBROKEN_EARLY
cache_poll_once_late broken cache_poll -DONCE -DSLEEPERS=1 -DBROKEN_LATE
cache_poll_once_no_clear broken cache_poll -DONCE -DSLEEPERS=1 -DBROKEN_NO_CLEAR
cache_poll_once_clear_late broken cache_poll -DONCE -DSTOP_READER -DSLEEPERS=1 -DBROKEN_CLEAR_LATE
cache_poll_once_beside_read broken cache_poll -DONCE -DSLEEPERS=1 -DBROKEN_BESIDE_READ
cache_poll_once_take_late broken cache_poll -DONCE -DSTOP_READER -DSLEEPERS=1 -DBROKEN_TAKE_LATE
cache_poll_once_no_ticket broken cache_poll -DONCE -DSTOP_WRITER -DSLEEPERS=1 -DREADS=2 -DSECOND=2 -DBROKEN_NO_TICKET
cache_poll_once_cold_reader broken cache_poll -DONCE -DSTOP_COLD_READER -DSLEEPERS=1
side_waits ok side -DWAITERS=1 -DWAITS=2
side_fd ok side -DFD -DWAITERS=0
side_fd_waiter ok side -DFD -DMADE -DWAITERS=1 -DLOOKS=1
side_two ok side -DWAITERS=2 -DPRODUCERS=1
side_two_waits ok side -DWAITERS=2 -DPRODUCERS=1 -DWAITS=2
side_fd_looks long side -DFD -DMADE -DWAITERS=1 -DLOOKS=2
side_first broken side -DWAITERS=1 -DBROKEN_SIDE_FIRST
side_no_turn broken side -DWAITERS=1 -DBROKEN_NO_TURN
side_no_wake broken side -DWAITERS=1 -DBROKEN_NO_WAKE
side_no_help broken side -DWAITERS=1 -DWAITS=2 -DBROKEN_NO_HELP
side_early broken side -DWAITERS=1 -DBROKEN_EARLY
side_fd_no_look broken side -DFD -DWAITERS=0 -DBROKEN_NO_LOOK
side_fd_look_first broken side -DFD -DWAITERS=0 -DBROKEN_LOOK_FIRST
side_fd_no_hand_on broken side -DFD -DWAITERS=0 -DBROKEN_NO_HAND_ON
side_fd_collect_late broken side -DFD -DWAITERS=0 -DBROKEN_COLLECT_LATE
cache_ring_edges ok cache_ring -DEDGES -DLOOKS=0
cache_ring_look ok cache_ring -DEDGES -DWAITERS=1 -DWAITS=2
cache_ring_stop_ringer ok cache_ring -DLOOKS=0 -DWAITERS=1 -DSTOP_RINGER
cache_ring_stop_waiter ok cache_ring -DEDGES -DLOOKS=0 -DSTOP_WAITER
cache_ring_weak ok cache_ring -DWEAK -DLOOKS=0 -DWAITERS=1 -DWAITS=2
cache_ring_weak_same ok cache_ring -DWEAK -DSAME -DLOOKS=0 -DWAITERS=1 -DWAITS=2
cache_ring_weak_same_edges ok cache_ring -DWEAK -DSAME -DEDGES -DLOOKS=0 -DWAITERS=1 -DWAITS=2
cache_ring_flag ok cache_ring -DFLAG -DEDGES -DLOOKS=0
cache_ring_flag_weak ok cache_ring -DFLAG -DWEAK -DLOOKS=0 -DWAITERS=1 -DWAITS=2
cache_ring_level long cache_ring -DLOOKS=0
cache_ring_other long cache_ring -DOTHER -DLOOKS=0
cache_ring_level_look long cache_ring -DWAITERS=1 -DWAITS=2
cache_ring_level_stop long cache_ring -DLOOKS=0 -DSTOP_WAITER
cache_ring_weak_two long cache_ring -DWEAK -DEDGES -DLOOKS=0
cache_ring_flag_stop_ringer broken cache_ring -DFLAG -DLOOKS=0 -DSTOP_RINGER
cache_ring_flag_stop_waiter broken cache_ring -DFLAG -DLOOKS=0 -DSTOP_WAITER
cache_ring_no_push_barrier broken cache_ring -DWEAK -DLOOKS=0 -DWAITERS=1 -DBROKEN_NO_PUSH_BARRIER
cache_ring_no_sleep_barrier broken cache_ring -DWEAK -DLOOKS=0 -DWAITERS=1 -DBROKEN_NO_SLEEP_BARRIER
cache_ring_no_mark_barrier broken cache_ring -DWEAK -DSAME -DLOOKS=0 -DWAITERS=1 -DWAITS=2 -DBROKEN_NO_MARK_BARRIER
cache_ring_no_off_barrier broken cache_ring -DWEAK -DSAME -DLOOKS=0 -DWAITERS=1 -DWAITS=2 -DBROKEN_NO_OFF_BARRIER
cache_ring_no_off_barrier_edges broken cache_ring -DWEAK -DSAME -DEDGES -DLOOKS=0 -DWAITERS=1 -DWAITS=2 -DBROKEN_NO_OFF_BARRIER
cache_ring_no_clear_barrier broken cache_ring -DFLAG -DWEAK -DLOOKS=0 -DWAITERS=1 -DWAITS=2 -DBROKEN_NO_CLEAR_BARRIER
cache_ring_no_recheck broken cache_ring -DLOOKS=0 -DWAITERS=1 -DBROKEN_NO_RECHECK
cache_ring_no_hand_on broken cache_ring -DEDGES -DLOOKS=0 -DBROKEN_NO_HAND_ON
cache_ring_swallow broken cache_ring -DWAITERS=1 -DBROKEN_SWALLOW
cache_ring_count_late broken cache_ring -DLOOKS=0 -DWAITERS=1 -DWAITS=2 -DBROKEN_COUNT_LATE
cache_ring_collect_late broken cache_ring -DEDGES -DLOOKS=0 -DBROKEN_COLLECT_LATE
cache_close ok cache_close
cache_close_dup ok cache_close -DDUP
cache_close_no_wait broken cache_close -DBROKEN_NO_WAIT
cache_close_no_closing broken cache_close -DBROKEN_NO_CLOSING
cache_close_mark_alone broken cache_close -DBROKEN_MARK_ALONE
cache_close_mark_alone_dup broken cache_close -DDUP -DBROKEN_MARK_ALONE
cache_close_mark_late broken cache_close -DBROKEN_MARK_LATE
cache_close_slot_late broken cache_close -DBROKEN_SLOT_LATE
cache_close_open_first broken cache_close -DDUP -DBROKEN_OPEN_FIRST
cache_fork ok cache_fork
cache_fork_weak ok cache_fork -DWEAK
cache_fork_no_slot_barrier broken cache_fork -DWEAK -DBROKEN_NO_SLOT_BARRIER
cache_fork_no_fork_barrier broken cache_fork -DWEAK -DBROKEN_NO_FORK_BARRIER
cache_fork_no_count broken cache_fork -DBROKEN_NO_COUNT
cache_fork_one_look broken cache_fork -DBROKEN_ONE_LOOK
cache_fork_not_for_good broken cache_fork -DBROKEN_NOT_FOR_GOOD
cache_fork_no_wait broken cache_fork -DBROKEN_NO_WAIT
cache_fork_cold_left broken cache_fork -DBROKEN_COLD_LEFT
cache_through ok cache_through
asks ok asks
asks_registered ok asks -DREGISTERED
asks_no_second_look broken asks -DBROKEN_NO_SECOND_LOOK
asks_no_look_at_add broken asks -DBROKEN_NO_LOOK_AT_ADD
asks_at_once broken asks -DREGISTERED -DBROKEN_AT_ONCE
asks_trusts_leaving broken asks -DREGISTERED -DBROKEN_TRUSTS_LEAVING
asks_ask_first broken asks -DREGISTERED -DBROKEN_ASK_FIRST
cache_through_edges ok cache_through -DEDGES
cache_through_polls ok cache_through -DSLEEPERS=1 -DWRITES=1
cache_through_full ok cache_through -DFULL -DREADERS=2 -DWRITES=1 -DFLUSHES=0
cache_through_adopt ok cache_through -DADOPT -DFLUSHES=0
cache_through_adopt_flush ok cache_through -DADOPT -DWRITES=1
cache_through_adopt_all long cache_through -DADOPT
cache_through_adopt_edges ok cache_through -DADOPT -DEDGES -DWRITES=1
cache_through_adopt_polls ok cache_through -DADOPT -DSLEEPERS=1 -DWRITES=1 -DFLUSHES=0
cache_through_adopt_third long cache_through -DADOPT -DTHIRD -DWRITES=1 -DFLUSHES=0
cache_through_adopt_polls_all long cache_through -DADOPT -DSLEEPERS=1 -DWRITES=1
cache_through_adopt_full ok cache_through -DADOPT -DFULL -DWRITES=1
cache_through_adopt_readers long cache_through -DADOPT -DREADERS=2 -DWRITES=1
cache_through_adopt_reads long cache_through -DADOPT -DREADS=2 -DFLUSHES=2
cache_through_readers long cache_through -DREADERS=2 -DWRITES=1
cache_through_readers_edges long cache_through -DEDGES -DREADERS=2 -DWRITES=1
cache_through_all long cache_through -DSLEEPERS=1
cache_through_no_through broken cache_through -DBROKEN_NO_THROUGH
cache_through_no_flush_epoch broken cache_through -DEDGES -DBROKEN_NO_FLUSH_EPOCH
cache_through_clear_first broken cache_through -DBROKEN_CLEAR_FIRST
cache_through_clear_beside broken cache_through -DBROKEN_CLEAR_BESIDE
cache_through_mark_shared broken cache_through -DREADERS=2 -DWRITES=1 -DBROKEN_MARK_SHARED
cache_through_over_after broken cache_through -DBROKEN_OVER_AFTER
cache_through_mark_late broken cache_through -DBROKEN_MARK_LATE
cache_through_add_marked broken cache_through -DBROKEN_ADD_MARKED
cache_through_flush_clear broken cache_through -DBROKEN_FLUSH_CLEAR
cache_through_take_busy broken cache_through -DBROKEN_TAKE_BUSY
cache_through_write_busy broken cache_through -DBROKEN_WRITE_BUSY
cache_through_add_apart broken cache_through -DBROKEN_ADD_APART
cache_through_poll_any broken cache_through -DSLEEPERS=1 -DWRITES=1 -DBROKEN_POLL_ANY
cache_through_poll_apart broken cache_through -DSLEEPERS=1 -DWRITES=1 -DBROKEN_POLL_APART
cache_through_poll_unseen broken cache_through -DSLEEPERS=1 -DWRITES=1 -DBROKEN_POLL_UNSEEN
cache_through_no_count broken cache_through -DADOPT -DBROKEN_NO_COUNT
cache_through_count_late broken cache_through -DADOPT -DBROKEN_COUNT_LATE
cache_through_no_drain broken cache_through -DADOPT -DBROKEN_NO_DRAIN
cache_through_over_late broken cache_through -DADOPT -DTHIRD -DWRITES=1 -DFLUSHES=0 -DBROKEN_OVER_LATE
cache_through_cold_poll broken cache_through -DADOPT -DSLEEPERS=1 -DWRITES=1 -DBROKEN_COLD_POLL
cache_through_adopt_polls_unseen broken cache_through -DADOPT -DSLEEPERS=1 -DWRITES=1 -DBROKEN_ADOPT_POLLS
cache_through_poll_busy broken cache_through -DADOPT -DSLEEPERS=1 -DWRITES=1 -DBROKEN_POLL_BUSY
cache_through_cold_once broken cache_through -DADOPT -DBROKEN_COLD_ONCE
cache_through_cold_state broken cache_through -DADOPT -DBROKEN_COLD_STATE
cache_through_kernel_empty broken cache_through -DEDGES -DBROKEN_KERNEL_EMPTY
cache_through_no_again broken cache_through -DEDGES -DBROKEN_NO_AGAIN
cache_through_k_alone broken cache_through -DEDGES -DBROKEN_K_ALONE
cache_through_sum broken cache_through -DFULL -DREADERS=2 -DWRITES=1 -DBROKEN_SUM
cache_look ok cache_look -DWAITERS=0
cache_look_edges ok cache_look -DEDGES -DWAITERS=0
cache_look_back ok cache_look -DEDGES -DBACK -DWAITERS=0
cache_look_mod ok cache_look -DWAITERS=0 -DWRITERS=1 -DCTLS=1
cache_look_mod_edges ok cache_look -DEDGES -DWAITERS=0 -DWRITERS=1 -DCTLS=1
cache_look_del ok cache_look -DDEL -DWAITERS=0 -DWRITERS=1 -DCTLS=1
cache_look_del_edges ok cache_look -DDEL -DEDGES -DWAITERS=0 -DWRITERS=1 -DCTLS=1
cache_look_read ok cache_look -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DFLUSHES=0
cache_look_read_edges ok cache_look -DEDGES -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DFLUSHES=0
cache_look_sleep ok cache_look -DLOOKS=0 -DWRITERS=1 -DFIRST=2
cache_look_sleep_edges ok cache_look -DEDGES -DLOOKS=0 -DFLUSHES=0
cache_look_stranger ok cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWRITERS=1 -DFIRST=2 -DWAITS=2
cache_look_asked ok cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWRITERS=1 -DFIRST=3 -DWAITS=3
cache_look_asked_read long cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DREADS=1 -DFLUSHES=0 -DWRITERS=1 -DFIRST=2 -DWAITS=2
cache_look_adopt ok cache_look -DADOPT -DWAITERS=0 -DWRITERS=1 -DFIRST=2
cache_look_adopt_edges ok cache_look -DADOPT -DEDGES -DWAITERS=0 -DWRITERS=1 -DFIRST=2
cache_look_adopt_read ok cache_look -DADOPT -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DFLUSHES=0
cache_look_adopt_sleep ok cache_look -DADOPT -DLOOKS=0 -DWRITERS=1 -DFIRST=2
cache_look_adopt_sleep_edges ok cache_look -DADOPT -DEDGES -DLOOKS=0 -DWRITERS=1 -DFIRST=2
cache_look_adopt_read_edges long cache_look -DADOPT -DEDGES -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DFLUSHES=0
cache_look_adopt_writers long cache_look -DADOPT -DWAITERS=0
cache_look_flush_read long cache_look -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2
cache_look_flush_read_edges long cache_look -DEDGES -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2
cache_look_after_read ok cache_look -DAFTER_READ -DWAITERS=0 -DLOOKS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2
cache_look_after_read_adopt long cache_look -DAFTER_READ -DADOPT -DWAITERS=0 -DLOOKS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2
cache_look_not_awaited broken cache_look -DAFTER_READ -DWAITERS=0 -DLOOKS=0 -DREADS=1 -DWRITERS=1 -DBROKEN_NOT_AWAITED
cache_look_not_awaited_adopt broken cache_look -DAFTER_READ -DADOPT -DWAITERS=0 -DLOOKS=0 -DREADS=1 -DWRITERS=1 -DBROKEN_NOT_AWAITED
cache_look_ours_taken broken cache_look -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_OURS_TAKEN
cache_look_ours_taken_del broken cache_look -DDEL -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_OURS_TAKEN
cache_look_ours_told broken cache_look -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_OURS_TOLD
cache_look_ours_told_del broken cache_look -DDEL -DEDGES -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_OURS_TOLD
cache_look_ctl_begun_late broken cache_look -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_CTL_BEGUN_LATE
cache_look_ctl_over_early broken cache_look -DWAITERS=0 -DWRITERS=1 -DCTLS=1 -DBROKEN_CTL_OVER_EARLY
cache_look_kernel_first broken cache_look -DWAITERS=0 -DBROKEN_KERNEL_FIRST
cache_look_in_hand broken cache_look -DWAITERS=0 -DBROKEN_IN_HAND
cache_look_begun_late broken cache_look -DWAITERS=0 -DBROKEN_BEGUN_LATE
cache_look_over_early broken cache_look -DWAITERS=0 -DBROKEN_OVER_EARLY
cache_look_leave_uncounted broken cache_look -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DBROKEN_LEAVE_UNCOUNTED
cache_look_through_uncounted broken cache_look -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DBROKEN_THROUGH_UNCOUNTED
cache_look_read_uncounted broken cache_look -DWAITERS=0 -DREADS=1 -DWRITERS=1 -DFIRST=2 -DBROKEN_READ_UNCOUNTED
cache_look_adopt_uncounted broken cache_look -DADOPT -DWAITERS=0 -DWRITERS=1 -DFIRST=2 -DBROKEN_ADOPT_UNCOUNTED
cache_look_no_recheck broken cache_look -DLOOKS=0 -DFLUSHES=0 -DBROKEN_NO_RECHECK
cache_look_no_second broken cache_look -DLOOKS=0 -DFLUSHES=0 -DWAITS=2 -DBROKEN_NO_SECOND
cache_look_no_push broken cache_look -DEDGES -DWAITERS=0 -DBROKEN_NO_PUSH
cache_look_taken_late broken cache_look -DEDGES -DLOOKS=0 -DFLUSHES=0 -DWAITS=2 -DBROKEN_TAKEN_LATE
cache_look_read_u broken cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWRITERS=1 -DFIRST=2 -DWAITS=2 -DBROKEN_READ_U
cache_look_heard_late broken cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DFLUSHES=0 -DWRITERS=1 -DFIRST=3 -DWAITS=3 -DBROKEN_HEARD_LATE
cache_look_asked_late broken cache_look -DEDGES -DSTRANGER -DMUST_READ -DLOOKS=0 -DREADS=1 -DFLUSHES=0 -DWRITERS=1 -DFIRST=2 -DWAITS=2 -DBROKEN_ASKED_LATE
aio_call ok aio_table -DCALLER -DSETUPS
aio_stray ok aio_table -DSTRAY -DSETUPS
aio_destroys ok aio_table -DCALLER -DDESTROYERS
aio_destroys_stray ok aio_table -DSTRAY -DDESTROYERS
aio_destroys_setups ok aio_table -DDESTROYERS -DSETUPS
aio_take ok aio_table -DTAKER -DSETUPS
aio_no_table_grace broken aio_table -DCALLER -DBROKEN_NO_TABLE_GRACE
aio_no_context_grace broken aio_table -DCALLER -DBROKEN_NO_CONTEXT_GRACE
aio_publish_first broken aio_table -DCALLER -DBROKEN_PUBLISH_FIRST
aio_no_compare broken aio_table -DSTRAY -DBROKEN_NO_COMPARE
aio_no_unless_dead broken aio_table -DCALLER -DBROKEN_NO_UNLESS_DEAD
aio_late_take_back broken aio_table -DCALLER -DBROKEN_LATE_TAKE_BACK
aio_clear_seen broken aio_table -DCALLER -DBROKEN_CLEAR_SEEN
aio_no_wait broken aio_table -DCALLER -DBROKEN_NO_WAIT
aio_no_mark_test broken aio_table -DDESTROYERS -DBROKEN_NO_MARK_TEST
aio_no_setup_call broken aio_table -DDESTROYERS -DBROKEN_NO_SETUP_CALL
aio_no_lock_once broken aio_table -DTAKER -DBROKEN_NO_LOCK_ONCE
aio_no_dead_look broken aio_table -DTAKER -DBROKEN_NO_DEAD_LOOK
aio_slots ok aio_slots
aio_slots_no_get_barrier broken aio_slots -DBROKEN_NO_GET_BARRIER
aio_slots_no_post_barrier broken aio_slots -DBROKEN_NO_POST_BARRIER
aio_slots_look_first broken aio_slots -DBROKEN_LOOK_FIRST
aio_slots_tail_first broken aio_slots -DBROKEN_TAIL_FIRST
aio_slots_given_early broken aio_slots -DBROKEN_GIVEN_EARLY
aio_slots_full broken aio_slots -DBROKEN_FULL
aio_slots_kept broken aio_slots -DBROKEN_KEPT
handover_reader ok handover -DREADER
handover_taker ok handover -DTAKER
handover_carry ok handover -DTAKER -DCARRY
handover_destroy ok handover -DDESTROY
handover_destroy_carry ok handover -DDESTROY -DCARRY
handover_no_mark broken handover -DCARRY -DBROKEN_NO_MARK
handover_not_alone broken handover -DCARRY -DBROKEN_NOT_ALONE
handover_no_lock broken handover -DTAKER -DCARRY -DBROKEN_NO_LOCK
handover_no_places broken handover -DREADER -DBROKEN_NO_PLACES
handover_unread broken handover -DREADER -DBROKEN_UNREAD
handover_empty_first broken handover -DREADER -DBROKEN_EMPTY_FIRST
handover_dead_first broken handover -DCARRY -DBROKEN_DEAD_FIRST
handover_open broken handover -DCARRY -DBROKEN_OPEN
handover_no_again broken handover -DBROKEN_NO_AGAIN
handover_own_id broken handover -DBROKEN_OWN_ID
sleep ok sleep
sleep_no_look broken sleep -DBROKEN_NO_LOOK
sleep_no_redirect broken sleep -DBROKEN_NO_REDIRECT
sleep_restarted broken sleep -DBROKEN_RESTARTED
sleep_in_hand broken sleep -DBROKEN_IN_HAND
sleep_back_in_hand broken sleep -DBROKEN_BACK_IN_HAND
sleep_call_runs broken sleep -DBROKEN_CALL_RUNS
sleep_twice broken sleep -DBROKEN_TWICE
sleep_asleep_late broken sleep -DBROKEN_ASLEEP_LATE
sleep_asleep_early broken sleep -DBROKEN_ASLEEP_EARLY
sleep_no_waits broken sleep -DBROKEN_NO_WAITS
sleep_no_mask broken sleep -DBROKEN_NO_MASK
sleep_aside_outside broken sleep -DBROKEN_ASIDE_OUTSIDE
sleep_keep_open broken sleep -DBROKEN_KEEP_OPEN
sleep_libc_mask broken sleep -DBROKEN_LIBC_MASK
sleep_still_waits broken sleep -DBROKEN_STILL_WAITS
'

# The error of these is found soon when the processes are tried in reverse order, and after millions of
# states otherwise.
reversed='
cache_through_cold_state doorbell_end_first doorbell_no_end freer_no_tryget freer_put_at_close
mod_no_help quiet_sleep_reload timer_drop_late wake_no_leave wake_spin_stays
'

# Sound ones that take long are searched in the long form only.
if [ -z "$POLLUX_TEST_LONG" ]; then
	table=$(echo "$table" | awk '$2 != "long"')
fi

here=$(cd "$(dirname "$0")" && pwd) || exit 1

if [ "$1" = --list ]; then
	echo "$table" | awk 'NF { print $1 }'
	exit 0
fi
for file in $(echo "$table" | awk 'NF { print $3 }' | sort -u); do
	if [ ! -f "$here/$file.pml" ]; then
		echo "run.sh: there is no $file.pml" >&2
		exit 1
	fi
done
if [ "$1" = --model ]; then
	# shellcheck disable=SC2046
	set -- $(echo "$table" | awk -v f="$2" '$3 == f { print $1 }')
	if [ $# = 0 ]; then
		echo "run.sh: the table has no model of that file" >&2
		exit 1
	fi
fi
for tool in spin gcc; do
	if ! command -v $tool >/dev/null; then
		echo "run.sh: $tool is not installed" >&2
		exit 77
	fi
done
# Compiling well takes seconds, which only a search of more than ten million states is worth. tcc takes
# 0.02 s, clang 0.3 s, gcc 0.5 s, without optimisation; the search takes less than twice as long then.
quick='gcc -O0'
if command -v tcc >/dev/null; then
	quick=tcc
elif command -v clang >/dev/null; then
	quick='clang -O0'
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Leaves the verdict in $verdict: ok, broken, or what went wrong.
check() {
	rm -rf "$work/m"
	mkdir "$work/m" && cd "$work/m" && cp "$here/$1.pml" model.pml || exit 1
	shift
	if ! spin -a "$@" model.pml >spin.out 2>&1 || [ -s spin.out ]; then
		verdict="spin: $(head -n 1 spin.out)"
		return
	fi
	order=
	# shellcheck disable=SC2086
	case " $(echo $reversed) " in
	*" $name "*) order=-DREVERSE ;;
	esac
	# Seconds of a CPU, so that a busy machine makes no difference.
	for limit in $limits; do
		compiler=$quick
		# A large table takes longer to clear than a small model takes to search.
		slots=-w22
		if [ $limit = unlimited ]; then
			compiler='gcc -O2'
			slots=-w24
		fi
		if ! $compiler -w -DSAFETY -DMEMLIM=3500 $order -o pan pan.c >gcc.out 2>&1; then
			verdict="$compiler: $(head -n 1 gcc.out)"
			return
		fi
		# Its table is read at random: huge pages where the C library knows how to ask for them.
		(ulimit -t $limit && GLIBC_TUNABLES=glibc.malloc.hugetlb=1 exec ./pan -m100000 $slots) \
			>pan.out 2>&1
		# SIGXCPU, or SIGKILL.
		case $? in
		152 | 137) ;;
		*) break ;;
		esac
	done
	states=$(awk '/states, stored/ { print $1 }' pan.out)
	if grep -Eq '^pan:[0-9]*: (assertion violated|invalid end state)' pan.out; then
		verdict=broken
	elif grep -Eq 'not completed|max search depth too small|MEMLIM|out of memory' pan.out; then
		verdict='search truncated'
	elif grep -q 'errors: 0$' pan.out; then
		verdict=ok
	else
		verdict="pan: $(grep -m 1 -E '^(pan|error)' pan.out)"
	fi
}

names=${*:-$(echo "$table" | awk 'NF { print $1 }')}
failed=0
for name in $names; do
	row=$(echo "$table" | awk -v n="$name" '$1 == n')
	if [ -z "$row" ]; then
		echo "not ok $name (no such model)"
		failed=1
		continue
	fi
	# shellcheck disable=SC2086
	set -- $row
	expected=$2
	limits='30 unlimited'
	if [ "$expected" = long ]; then
		expected=ok
		limits=unlimited
	fi
	shift 2
	states=
	begin=$(date +%s)
	# The shell says what has been killed.
	check "$@" 2>/dev/null
	seconds=$(($(date +%s) - begin))
	if [ "$verdict" = "$expected" ]; then
		echo "ok $name ($verdict, ${states:-0} states, $seconds s)"
	else
		echo "not ok $name (expected $expected, got $verdict, ${states:-0} states, $seconds s)"
		failed=1
	fi
done
exit $failed
