#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check-aarch64.sh [RUN-TESTS-OPTION...]
#
# Builds Pollux for aarch64, boots Debian's arm64 kernel on an emulated machine, and runs tests
# there with scripts/run-tests.py, which gets the options: --only GLOB picks others than the
# default, which is the native suite and the conformance suites on the kernel and on Pollux.
#
# The whole machine is emulated, not only the processor: an emulator of user programs brings a
# kernel interface of its own, without AIO and with other errors, and it is the kernel that our
# behaviour is compared with. docs/aarch64.md says more.
#
# Nothing of this machine is changed but for the packages that scripts/install-deps.sh aarch64
# installs: those of arm64 are unpacked into build-machine/, with lists of packages of their own.
#
#   KERNEL=NAME    the kernel's package (linux-image-cloud-arm64); linux-image-arm64-16k has pages
#                  of 16 KiB
#   SOURCES=FILE   a sources.list that apt takes the kernel from. Without it that is the newest for
#                  Debian 13, from the mirror that apt has here, for some rules are younger than the
#                  kernels of Debian 12 and 13
#   CPU=MODEL      of the emulated machine, as qemu-system-aarch64 names it: cortex-a57 has no LSE
#   JOBS=N         programs at a time (2)
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
work=$top/build-machine
tree=$work/tree
build=$top/build-aarch64
kernel_package=${KERNEL-linux-image-cloud-arm64}
limit=${LIMIT-7200}
export CCACHE_NOHASHDIR=1

mkdir -p "$work"
if [ -z "${SOURCES-}" ]; then
	SOURCES=$work/kernel.list
	# The mirror that this machine uses, of whatever release.
	# shellcheck disable=SC2016
	mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
	if [ -z "$mirror" ]; then
		echo "apt knows no mirror of Debian here: name a kernel's by SOURCES=FILE" >&2
		exit 1
	fi
	for suite in trixie trixie-backports; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
	done >"$SOURCES"
fi
kernel=$work/$kernel_package-$(cksum <"$SOURCES" | cut -d ' ' -f 1)

# What the tests are linked with and the programs that they start.
packages='libc6-dev linux-libc-dev libasan8 libtsan2 liburcu-dev libcmocka-dev liburing2
	libaio-dev libc-bin dash bash coreutils grep sed gawk findutils procps util-linux python3 busybox-static'

sh "$top/scripts/install-deps.sh" aarch64

# --- packages of arm64 -------------------------------------------------------------------------

# arm64_get PLACE SOURCES PACKAGE...: these and what they depend on, into PLACE/archives.
arm64_get()
{
	place=$1
	sources=$2
	shift 2
	mkdir -p "$place/lists/partial" "$place/archives/partial"
	: >"$place/status"
	cat >"$place/apt.conf" <<-END
	APT::Architecture "arm64";
	APT::Architectures { "arm64"; };
	APT::Install-Recommends "false";
	APT::Sandbox::User "";
	Acquire::Languages "none";
	Dir::State "$place";
	Dir::State::lists "$place/lists";
	Dir::State::status "$place/status";
	Dir::Cache "$place";
	Dir::Cache::archives "$place/archives";
	Debug::NoLocking "true";
	END
	if [ -n "$sources" ]; then
		cat >>"$place/apt.conf" <<-END
		Dir::Etc::sourcelist "$(realpath "$sources")";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "$place/preferences";
		END
	fi
	# Whoever names backports wants them.
	printf 'Package: *\nPin: release n=*\nPin-Priority: 500\n' >"$place/preferences"
	# A source that has nothing of arm64 is no reason to stop.
	APT_CONFIG=$place/apt.conf apt-get update -qq || true
	APT_CONFIG=$place/apt.conf apt-get install -y -qq --download-only "$@"
}

unpack()
{
	dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"
}

if [ ! -f "$tree/.done" ]; then
	echo "getting packages of arm64 ..."
	# shellcheck disable=SC2086
	arm64_get "$work/apt" "" $packages
	rm -rf "$tree"
	mkdir -p "$tree/usr/bin" "$tree/usr/sbin" "$tree/usr/lib" "$tree/etc" "$tree/root"
	mkdir -p "$tree/proc" "$tree/sys" "$tree/dev" "$tree/run"
	for d in bin sbin lib; do
		ln -s "usr/$d" "$tree/$d"
	done
	for package in "$work"/apt/archives/*.deb; do
		unpack "$package" "$tree"
	done
	# What the installation would have done.
	mkdir -p "$tree/tmp" "$tree/var/tmp"
	chmod 1777 "$tree/tmp" "$tree/var/tmp"
	[ -e "$tree/usr/bin/sh" ] || ln -s dash "$tree/usr/bin/sh"
	[ -e "$tree/usr/bin/awk" ] || ln -s gawk "$tree/usr/bin/awk"
	[ -e "$tree/usr/bin/python3" ] || { echo "no python3 for arm64" >&2; exit 1; }
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$tree/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
	echo '127.0.0.1 localhost' >"$tree/etc/hosts"
	: >"$tree/.done"
fi
if [ ! -f "$kernel/.done" ]; then
	echo "getting a kernel of arm64 ..."
	rm -rf "$kernel"
	mkdir -p "$kernel/root/lib" "$kernel/root/usr"
	ln -s ../lib "$kernel/root/usr/lib"
	arm64_get "$kernel/apt" "$SOURCES" "$kernel_package"
	for package in "$kernel"/apt/archives/linux-*.deb; do
		unpack "$package" "$kernel/root"
	done
	: >"$kernel/.done"
fi

# --- what is to be tested ------------------------------------------------------------------------

# Meson uses ccache by itself, but not with a compiler that a file names.
ccache=
! command -v ccache >/dev/null || ccache="'ccache', "
cat >"$work/cross.ini" <<END
[binaries]
c = [$ccache'aarch64-linux-gnu-gcc', '--sysroot=$tree']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'

[properties]
sys_root = '$tree'
pkg_config_libdir = ['$tree/usr/lib/aarch64-linux-gnu/pkgconfig', '$tree/usr/share/pkgconfig']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
echo "building $(basename "$build") ..."
sh "$top/scripts/configure.sh" "$build" --cross-file="$work/cross.ini" --werror
ninja -C "$build" --quiet

# The programs find their libraries and each other by the paths of this machine.
echo "making the machine ..."
machine=$work/machine
rm -rf "$machine"
mkdir -p "$machine"
cp -a "$tree/." "$machine"
mkdir -p "$machine$top"
tar -c -C "$top" --exclude='*.o' --exclude='*.a' --exclude=.git --exclude=./build \
	--exclude='./build-[^a]*' --exclude=./build-asan --exclude=meson-private . | tar -x -C "$machine$top"
find "$machine$build" -type f -perm -100 -exec sh -c '
	for f; do
		[ "$(head -c 4 "$f" | tail -c 3)" != ELF ] || aarch64-linux-gnu-strip -g "$f"
	done' sh {} +

cat >"$machine/first" <<'END'
#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root
for m in "proc /proc" "sysfs /sys" "devtmpfs /dev"; do
	busybox mount -t ${m% *} none ${m#* }
done
mkdir -p /dev/shm /dev/pts
busybox mount -t tmpfs none /dev/shm
busybox mount -t devpts none /dev/pts
ln -sf /proc/self/fd /dev/fd
busybox stty -onlcr </dev/console
busybox ifconfig lo 127.0.0.1 up
ulimit -Hn 65536
# Without its cache the loader looks for libraries by other calls than usual.
ldconfig
sh /tests 2>&1 | cat
sync
busybox poweroff -f
END
chmod 755 "$machine/first"

if [ $# -eq 0 ]; then
	set -- --only '*/native/*' --only '*/conformance-*'
fi
{
	echo "cd '$top'"
	echo "uname -srvm; echo \"pages of \$(getconf PAGESIZE) bytes\""
	printf "python3 scripts/run-tests.py --built '%s' --cannot tests/aarch64.tsv --jobs %s" \
		"$build" "${JOBS-2}"
	for option; do
		printf " '%s'" "$option"
	done
	echo
	echo 'echo "exit status $?"'
} >"$machine/tests"
rm -f "$work/disk"
truncate -s 2G "$work/disk"
mke2fs -q -F -t ext4 -O ^has_journal -d "$machine" "$work/disk"
rm -rf "$machine"

# The kernel has to be given what it needs to see the disk.
start=$kernel/start
rm -rf "$start"
mkdir -p "$start/bin" "$start/proc" "$start/sys" "$start/dev" "$start/new" "$start/modules"
cp "$tree/bin/busybox" "$start/bin/"
ln -s busybox "$start/bin/sh"
version=$(basename "$kernel"/root/lib/modules/*)
PATH=$PATH:/usr/sbin:/sbin
depmod -b "$kernel/root" "$version"
for module in virtio_pci virtio_blk ext4 crc32c_generic; do
	modprobe -d "$kernel/root" -S "$version" --show-depends "$module" 2>/dev/null || true
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | {
	n=100
	while read -r file; do
		n=$((n + 1))
		case $file in
		*.xz) xz -dc "$file" >"$start/modules/$n.ko" ;;
		*) cp "$file" "$start/modules/$n.ko" ;;
		esac
	done
}
cat >"$start/init" <<'END'
#!/bin/sh
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t devtmpfs none /dev
for m in /modules/*.ko; do
	$b insmod $m
done
n=0
until $b mount -t ext4 /dev/vda /new 2>/dev/null; do
	n=$((n + 1))
	[ $n -lt 30 ] || { echo "there is no disk"; $b poweroff -f; }
	$b sleep 1
done
exec $b switch_root /new /first
END
chmod 755 "$start/init"
(cd "$start" && find . | cpio --quiet -o -H newc | gzip -1) >"$start.gz"

# --- running it ------------------------------------------------------------------------------

log=$work/log
timeout "$limit" qemu-system-aarch64 -M virt,gic-version=3 -cpu "${CPU-max,pauth-impdef=on}" \
	-accel tcg,thread=multi -smp 2 -m 2048 -nodefaults -display none -no-reboot -serial stdio \
	-kernel "$(find "$kernel/root" -name "vmlinu*" -type f | head -n 1)" -initrd "$start.gz" \
	-append 'console=ttyAMA0 quiet loglevel=3 panic=-1' \
	-drive "file=$work/disk,if=virtio,format=raw" </dev/null | tee "$log"

if grep -q '^exit status 0$' "$log"; then
	exit 0
fi
grep -q '^exit status' "$log" || echo "the machine did not come to its end in $limit seconds" >&2
exit 1
