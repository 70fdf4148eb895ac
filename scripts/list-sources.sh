#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Prints the C files of a folder, one per line, sorted by name, for meson.build.
#
#   list-sources.sh all DIR        every *.c
#   list-sources.sh programs DIR   those that define main
#   list-sources.sh helpers DIR    those that do not (shared by the programs)
#   list-sources.sh headers DIR    every *.h
#   list-sources.sh models DIR     every *.pml
#   list-sources.sh scripts DIR    *.sh and *.py that may be executed
#   list-sources.sh tree ROOT      all of it for the whole project; configure.sh compares this
#                                  list with that of the last run to know when meson must run again
#
# A folder that is empty or absent gives an empty list.
set -eu
LC_ALL=C
export LC_ALL

has_main()
{
	grep -Eq '^[[:space:]]*(static[[:space:]]+)?(int[[:space:]]+)?main[[:space:]]*\(' "$1"
}

list()
{
	for f in "$2"/*; do
		[ -f "$f" ] || continue
		case $1 in
		headers) case $f in *.h) ;; *) continue ;; esac ;;
		models) case $f in *.pml) ;; *) continue ;; esac ;;
		scripts) case $f in *.sh | *.py) [ -x "$f" ] || continue ;; *) continue ;; esac ;;
		*) case $f in *.c) ;; *) continue ;; esac ;;
		esac
		case $1 in
		programs) has_main "$f" || continue ;;
		helpers) if has_main "$f"; then continue; fi ;;
		esac
		printf '%s\n' "${f##*/}"
	done
}

case ${1-} in
all | programs | helpers | headers | models | scripts)
	list "$1" "$2"
	;;
tree)
	cd "$2"
	find include src bench examples tests packaging docs -type d 2>/dev/null | sort |
	while IFS= read -r d; do
		for kind in programs helpers headers models; do
			list "$kind" "$d" | sed "s|^|$kind $d/|"
		done
		for f in "$d"/*.map "$d"/*.[1-9] "$d"/*.sh "$d"/*.py "$d"/*.in; do
			if [ -f "$f" ]; then printf 'file %s\n' "$f"; fi
		done
	done
	;;
*)
	echo "usage: list-sources.sh all|programs|helpers|headers|models|scripts|tree DIR" >&2
	exit 2
	;;
esac
