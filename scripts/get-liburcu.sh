#!/bin/sh
# SPDX-License-Identifier: MIT
#
# get-liburcu.sh
#
# Puts the source of liburcu into third_party/liburcu/, from which Pollux is built with an instance
# of its own, and does nothing if it is there. The source is that of the distribution's package:
# apt gets it, and checks it, from the places that it is set up for here, also where these are for
# binary packages only. Nothing of the system is changed, and root is not needed.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
place=$top/third_party/liburcu

[ ! -f "$place/src/urcu-bp.c" ] || exit 0

cannot()
{
	cat >&2 <<-END
	$1
	Pollux is built with the source of liburcu, 0.13 or newer. Unpack a release of it, so that
	  $place/src/urcu-bp.c
	exists, or name its folder to Meson by -Dliburcu=FOLDER.
	END
	exit 1
}

command -v apt-get >/dev/null 2>&1 || cannot "There is no apt-get here."

mkdir -p "$top/third_party"
work=$(mktemp -d "$top/third_party/get.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial" "$work/new"

# The same places, asked for sources: entries of one line, and those of several.
n=0
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
	[ -f "$file" ] || continue
	n=$((n + 1))
	sed -n -E 's/^[[:space:]]*deb(-src)?[[:space:]]+/deb-src /p' "$file" | grep -v 'cdrom:' \
		>"$work/parts/$n.list" || true
done
for file in /etc/apt/sources.list.d/*.sources; do
	[ -f "$file" ] || continue
	n=$((n + 1))
	sed -E 's/^[Tt]ypes:.*/Types: deb-src/' "$file" >"$work/parts/$n.sources"
done

cat >"$work/apt.conf" <<END
APT::Sandbox::User "";
Acquire::Languages "none";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/parts";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
Debug::NoLocking "true";
END
export APT_CONFIG="$work/apt.conf"

echo "getting the source of liburcu"
tries=3
while ! apt-get update -qq >"$work/log" 2>&1; do
	tries=$((tries - 1))
	# A place may have no sources: what the others have will do.
	[ "$tries" -gt 0 ] || break
	sleep 5
done
(cd "$work" && apt-get source -qq --download-only --only-source liburcu >>"$work/log" 2>&1) || {
	cat "$work/log" >&2
	cannot "apt cannot get the source package liburcu."
}
set -- "$work"/liburcu_*.orig.tar.*
for archive; do
	case $archive in
	*.asc) ;;
	*) tar -x -f "$archive" --strip-components=1 -C "$work/new" ;;
	esac
done
[ -f "$work/new/src/urcu-bp.c" ] || cannot "The package's source is not as expected."
grep -q 'urcu_bp_reader' "$work/new/include/urcu/static/urcu-bp.h" ||
	cannot "The package's version is too old."
rm -rf "$place"
mv "$work/new" "$place"
