#!/bin/sh
# SPDX-License-Identifier: MIT
#
# man-links.sh DIR: for meson.build, the other names of the pages of section 3 in DIR, one a line,
# each with its page: NAME.3 PAGE.3
set -eu

for page in "$1"/*.3; do
	[ -f "$page" ] || continue
	awk -v page="${page##*/}" '
		/^\.Sh / { if (names) exit; names = $2 == "NAME"; next }
		names && $1 == ".Nm" && $2 ".3" != page { print $2 ".3", page }' "$page"
done
