#!/bin/sh
# SPDX-License-Identifier: MIT
#
# git.sh POLLUX - git as an everyday program: the same history is made plain and under Pollux, with
# a hook, a clone over a pipe, a fetch and a repack, and must be the same to the last byte.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/program.sh"
need git

# Nothing of the user's own settings, and every name and time is fixed, so that the identities of
# the commits can be compared.
export HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='1700000000 +0000'
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_COMMITTER_DATE='1700000000 +0000'
unset GIT_DIR GIT_WORK_TREE

# history DIR GIT...: GIT is the command with what stands before it.
history()
(
	dir=$1
	shift
	mkdir "$dir" && cd "$dir" || exit 1
	"$@" -c init.defaultBranch=main init -q origin && cd origin || exit 1
	cat >.git/hooks/pre-commit <<-END
	#!/bin/sh
	if grep -qF "${dropin%preload.so}" /proc/\$PPID/maps; then echo mapped; else echo plain; fi >>../hook
	END
	chmod 755 .git/hooks/pre-commit
	i=0
	while [ $i -lt 12 ]; do
		i=$((i + 1))
		seq $((i * 1000)) >"file$((i % 5))"
		"$@" add . && "$@" commit -q -m "commit $i" || exit 1
	done
	"$@" checkout -q -b side HEAD~6 && echo side >side && "$@" add side &&
		"$@" commit -q -m side && "$@" checkout -q main && "$@" merge -q -m merge side || exit 1
	cd .. || exit 1
	# file:// starts upload-pack and index-pack and talks to them through pipes.
	"$@" clone -q "file://$dir/origin" copy || exit 1
	cd origin && echo more >more && "$@" add more && "$@" commit -q -m more && cd ../copy &&
		"$@" pull -q --ff-only && "$@" gc -q && "$@" fsck --full --strict || exit 1
	"$@" rev-parse HEAD >../head && "$@" log --stat --format=fuller >../log &&
		"$@" archive HEAD | sha256sum >../archive
)

call history "$scratch/plain" timeout 60 git
expect "plain: a history, a clone, a pull, a gc and a check" 0
call history "$scratch/pollux" timeout 60 "$pollux" run -- git
expect "Pollux: a history, a clone, a pull, a gc and a check" 0
[ "$(sort -u "$scratch/plain/hook")" = plain ] && [ "$(sort -u "$scratch/pollux/hook")" = mapped ]
report $? "a library of ours is mapped in the git that commits, and in that only under Pollux"
for f in head log archive; do
	[ -s "$scratch/plain/$f" ] && cmp "$scratch/plain/$f" "$scratch/pollux/$f" >"$out" 2>&1
	report $? "the same $f"
done

finish
