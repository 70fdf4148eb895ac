#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that every C file is laid out as .clang-format says; with --fix it lays them out.
#
# Versions of clang-format disagree in small matters, so the verdict of any other than the one the
# tree is kept with would be about that version and not about the tree: the check is skipped then
# (exit status 77).
set -eu
cd "$(dirname "$0")/.."
version=14

tool=
for t in "${CLANG_FORMAT-}" "clang-format-$version" clang-format; do
	if [ -n "$t" ] && command -v "$t" >/dev/null 2>&1; then
		if "$t" --version | grep -Eq "version $version\."; then
			tool=$t
			break
		fi
	fi
done
if [ -z "$tool" ]; then
	echo "skip: clang-format $version is not installed"
	exit 77
fi

files=$(find include src bench examples tests -name '*.[ch]' -type f 2>/dev/null | LC_ALL=C sort)
if [ -z "$files" ]; then
	echo "no C files"
	exit 0
fi

if [ "${1-}" = --fix ]; then
	# shellcheck disable=SC2086
	"$tool" -i --style=file $files
	exit 0
fi

# shellcheck disable=SC2086
if "$tool" --style=file --dry-run -Werror $files >/dev/null 2>&1; then
	exit 0
fi
bad=
for f in $files; do
	"$tool" --style=file --dry-run -Werror "$f" >/dev/null 2>&1 || bad="$bad $f"
done
echo "not laid out as .clang-format says (make format does it):"
for f in $bad; do
	echo "  $f"
	"$tool" --style=file "$f" | diff -u "$f" - | sed -n '3,14s/^/    /p'
done
exit 1
