#!/bin/sh
# SPDX-License-Identifier: MIT
#
# install-deps.sh [build|check|aarch64]
# install-deps.sh programs [PROGRAM...]
#
# Installs what is missing to build Pollux (build), or to build and test it (check, the default),
# or to do so for aarch64 on an emulated machine (aarch64), or the programs that tests/programs/
# runs and the libraries that examples use (all of them, or those named). Each need is looked for
# first, wherever it may come from; apt is asked only for what is not there. All but programs get
# the source of liburcu as well (get-liburcu.sh).
#
# A program that cannot be had is no error of the first call, which prepares for a whole run: its
# test says that it is skipped. It is an error when it is named.
set -eu

need_command='
bzip2 bzip2
gcc gcc
make make
meson meson
ninja ninja-build
pkg-config pkg-config
python3 python3
tar tar
xz xz-utils
'
need_module=
# Libraries that bring no description for pkg-config: their header is looked for.
need_header=
# For aarch64-linux-gnu-gcc.
need_cross_header=

# The command that is looked for, and the packages that bring it. tcc makes the models' searches
# quicker to compile (tests/model/run.sh).
programs='
curl curl
fio fio
git git
haproxy haproxy
javac default-jdk-headless
memcached memcached
nginx nginx-light
node nodejs
qemu-img qemu-utils
redis-server redis-server
stress-ng stress-ng
tcc tcc
valgrind valgrind
wrk wrk
'
# Only when they are named: what the long form needs besides. Debian installs some programs' own
# tests, in a folder of theirs.
programs_named='
cmake cmake
dbus-run-session dbus-daemon
dpkg-source dpkg-dev
glib/mainloop libglib2.0-tests
'
# Libraries have no command: the file that ends in this name is looked for among the loader's.
program_libraries='
libeatmydata.so libeatmydata1
libglib-2.0.so libglib2.0-dev
libjemalloc.so.2 libjemalloc2
liblwip.so liblwip-dev
liburing.so.2 liburing2
'

group=${1-check}
[ "$#" -eq 0 ] || shift
named=$*
case $group in
check)
	need_command="$need_command
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
abidiff abigail-tools
clang clang
clang-format clang-format
cmake cmake
g++ g++
mandoc mandoc
spin spin
musl-gcc musl-tools"
	need_module="$need_module
cmocka libcmocka-dev
liburcu-bp liburcu-dev"
	need_cross_header='stdio.h libc6-dev-arm64-cross'
	need_header='libaio.h libaio-dev
liburing.h liburing-dev'
	;;
aarch64)
	need_command="$need_command
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
cpio cpio
dpkg-deb dpkg
mke2fs e2fsprogs
modprobe kmod
qemu-system-aarch64 qemu-system-arm"
	;;
programs)
	need_command=$programs
	[ -z "$named" ] || need_command="$need_command
$programs_named"
	need_module=
	;;
esac

has_command()
{
	# Daemons are outside the PATH of ordinary users.
	PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 ||
		[ -x "/usr/libexec/installed-tests/$1" ]
}

has_library()
{
	for f in /lib/*/"$1" /usr/lib/*/"$1" /usr/lib/"$1" /usr/lib64/"$1" /usr/lib/*/libeatmydata/"$1"
	do
		[ ! -e "$f" ] || return 0
	done
	return 1
}

wanted()
{
	[ -n "$named" ] || return 0
	for n in $named; do
		[ "$n" != "$1" ] || return 0
	done
	return 1
}

find_missing()
{
	missing=
	if [ "$group" = programs ]; then
		while read -r probe package; do
			[ -n "$probe" ] && wanted "$probe" || continue
			has_library "$probe" || missing="$missing $package"
		done <<-END
		$program_libraries
		END
	elif ! echo '#include <stdio.h>' | gcc -E -x c - >/dev/null 2>&1; then
		missing="libc6-dev"
	fi
	while read -r probe package; do
		[ -n "$probe" ] && wanted "$probe" || continue
		has_command "$probe" || missing="$missing $package"
	done <<-END
	$need_command
	END
	while read -r probe package; do
		[ -n "$probe" ] || continue
		pkg-config --exists "$probe" 2>/dev/null || missing="$missing $package"
	done <<-END
	$need_module
	END
	while read -r probe package; do
		[ -n "$probe" ] || continue
		echo "#include <$probe>" | gcc -E -x c - >/dev/null 2>&1 || missing="$missing $package"
	done <<-END
	$need_header
	END
	while read -r probe package; do
		[ -n "$probe" ] || continue
		echo "#include <$probe>" | aarch64-linux-gnu-gcc -E -x c - >/dev/null 2>&1 ||
			missing="$missing $package"
	done <<-END
	$need_cross_header
	END
}

# The end, when all packages are there.
finish()
{
	[ "$group" = programs ] || exec sh "$(dirname "$0")/get-liburcu.sh"
	exit 0
}

find_missing
[ -n "$missing" ] || finish

if ! command -v apt-get >/dev/null 2>&1; then
	cat >&2 <<-END
	Pollux needs some packages that are not installed here. Their names in Debian are:
	  $missing
	Install them with the package manager of this system and run the command again.
	END
	[ "$group" != programs ] || [ -n "$named" ] || exit 0
	exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1 || { [ "$group" = programs ] && ! sudo -n true 2>/dev/null; }
	then
		cat >&2 <<-END
		Run this as root:
		  apt-get install $missing
		END
		[ "$group" != programs ] || [ -n "$named" ] || exit 0
		exit 1
	fi
	as_root=sudo
fi

echo "installing:$(printf ' %s' $missing)"

# A service that a package brings must not be started by its installation: nobody asked for one.
policy=/usr/sbin/policy-rc.d
if [ "$group" = programs ] && [ ! -e "$policy" ]; then
	trap '$as_root rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
	$as_root chmod 755 "$policy"
fi

tries=3
while ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq; do
	tries=$((tries - 1))
	if [ "$tries" -eq 0 ]; then
		echo "apt-get update fails; trying with the package lists at hand" >&2
		break
	fi
	sleep 5
done

install()
{
	$as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}

# shellcheck disable=SC2086
if [ "$group" != programs ]; then
	install $missing
elif ! install $missing; then
	# One package that is not to be had must not keep back the others.
	for package in $missing; do
		install "$package" || echo "$package cannot be installed" >&2
	done
fi

find_missing
if [ -n "$missing" ]; then
	echo "still missing after the installation: $missing" >&2
	[ "$group" != programs ] || [ -n "$named" ] || exit 0
	exit 1
fi
finish
