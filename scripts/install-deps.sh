#!/bin/sh
# SPDX-License-Identifier: MIT
#
# install-deps.sh [build|check]
#
# Installs what is missing to build Pollux (build), or to build and test it (check, the default).
# Each need is looked for first, wherever it may come from; apt is asked only for what is not there.
set -eu

need_command='
gcc gcc
make make
meson meson
ninja ninja-build
pkg-config pkg-config
python3 python3
'
need_module='liburcu-bp liburcu-dev'
if [ "${1-check}" = check ]; then
	need_command="$need_command
clang clang
clang-format clang-format
spin spin"
	need_module="$need_module
cmocka libcmocka-dev"
fi

find_missing()
{
	missing=
	if ! echo '#include <stdio.h>' | gcc -E -x c - >/dev/null 2>&1; then
		missing="libc6-dev"
	fi
	while read -r probe package; do
		[ -n "$probe" ] || continue
		command -v "$probe" >/dev/null 2>&1 || missing="$missing $package"
	done <<-END
	$need_command
	END
	while read -r probe package; do
		[ -n "$probe" ] || continue
		pkg-config --exists "$probe" 2>/dev/null || missing="$missing $package"
	done <<-END
	$need_module
	END
}

find_missing
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	cat >&2 <<-END
	Pollux needs some packages that are not installed here. Their names in Debian are:
	  $missing
	Install them with the package manager of this system and run the command again.
	END
	exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		cat >&2 <<-END
		Run this as root:
		  apt-get install $missing
		END
		exit 1
	fi
	as_root=sudo
fi

echo "installing:$(printf ' %s' $missing)"
tries=3
while ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq; do
	tries=$((tries - 1))
	if [ "$tries" -eq 0 ]; then
		echo "apt-get update fails; trying with the package lists at hand" >&2
		break
	fi
	sleep 5
done
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 $missing

find_missing
if [ -n "$missing" ]; then
	echo "still missing after the installation: $missing" >&2
	exit 1
fi
