# SPDX-License-Identifier: MIT
# Sourced: emulated machines with Debian's kernels, which need no root and change nothing here.
# Kernels and programs are kept in .cache.
#
# Set before: here (this folder). Environment: ARCH (amd64 or arm64), MOONSPY (a static moonspy of
# it), SLOW (factor to all limits of time: 1, arm64: 10), GUEST_LIMIT (seconds until a guest is given up, 300 by
# that factor), KEEP=1 (keep the results).
root=$(cd "$here/../.." && pwd)
skip() {
	echo "SKIP: $*"
	exit 77
}
: "${ARCH:=amd64}"
case $ARCH in
amd64) qemu=qemu-system-x86_64 build=$root/build slow=1 ;;
arm64) qemu=qemu-system-aarch64 build=$root/build-arm64 slow=10 ;;
*) skip "there are no guests of $ARCH" ;;
esac
: "${MOONSPY:=$build/src/cli/moonspy}" "${SLOW:=$slow}" "${GUEST_LIMIT:=$((300 * slow))}"
for tool in $qemu cpio python3; do
	command -v $tool >/dev/null || skip "$tool is not installed (scripts/packages kernels arm64)"
done
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"
[ "$(uname -m)" = x86_64 ] || skip "this machine is not x86-64, where the guests are known to run"

work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-kernels.XXXXXX")
cleanup() {
	if [ "${KEEP-}" = 1 ]; then
		echo "kept: $work" >&2
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

failed=0
fault() {
	echo "$version FAIL: $*"
	failed=1
}

# make_guest SUITE JOB [PACKAGE...]: all files of a guest but the kernel's, with the suite's luajit, in
# $guest. Its init runs JOB.
make_guest() {
	luajit_suite=$1 job=$2
	shift 2
	guest=$work/guest
	rm -rf "$guest"
	mkdir -p "$guest/bin" "$guest/proc" "$guest/sys" "$guest/dev" "$guest/tmp" "$guest/workloads" "$guest/var/cache"
	"$root/scripts/debs" --depends --unpack "$guest" "$luajit_suite/$ARCH" luajit busybox-static "$@" \
		>"$work/debs" || skip "luajit and busybox of $luajit_suite/$ARCH could not be fetched"
	[ -e "$guest/lib" ] || ln -s usr/lib "$guest/lib"
	rm -rf "$guest/usr/share/doc" "$guest/usr/lib/"*/gconv
	[ -e "$guest/bin/busybox" ] || cp "$guest/usr/bin/busybox" "$guest/bin/busybox"
	cp "$MOONSPY" "$guest/bin/moonspy"
	cp "$here/init" "$guest/init"
	cp "$job" "$guest/job"
	cp "$root"/tests/workloads/*.lua "$here"/*.lua "$guest/workloads"
	echo "SLOW=$SLOW" >"$guest/config"
}

pack_guest() {
	(cd "$guest" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
}

# The kernel that the suite's metapackage names: its path.
find_kernel() {
	meta=$("$root/scripts/debs" "$1/$ARCH" "linux-image-$ARCH") || return
	package=$(dpkg-deb -f "$meta" Depends | sed 's/[ ,].*//')
	deb=$("$root/scripts/debs" "$1/$ARCH" "$package") || return
	mkdir -p "$work/$1"
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/$1" --wildcards './boot/vmlinuz-*'
	echo "$work/$1"/boot/vmlinuz-*
}

# boot KERNEL FOLDER: the guest's results in FOLDER, its console in FOLDER/console. $cpu: qemu's name of
# the processor, one that has everything unless given. $memory: MiB of it, at least twice what all files have. Both
# processors take turns in one thread: with a thread each, one may run code that the other has
# patched just now (static branches), and the kernel panics.
boot() {
	into=$2
	mkdir -p "$into"
	case $ARCH in
	amd64) set -- "$1" ttyS0 -machine q35 -serial "file:$into/console" -serial "file:$into/results.tar.gz" ;;
	arm64)
		set -- "$1" ttyAMA0 -machine virt -serial "file:$into/console" \
			-chardev "file,id=results,path=$into/results.tar.gz" -device pci-serial,chardev=results
		;;
	esac
	kernel=$1 console=$2
	shift 2
	timeout --foreground -k 5 "$GUEST_LIMIT" $qemu -accel tcg,thread=single -cpu "${cpu:-max}" -smp 2 -m "${memory:-1024}" \
		-display none -monitor none -nic none -no-reboot "$@" -kernel "$kernel" -initrd "$work/initramfs" \
		-append "console=$console panic=-1 quiet" </dev/null >"$into/qemu" 2>&1 ||
		fault "qemu ended with $? (124: no end after $GUEST_LIMIT s)"
	tar -xz -C "$into" -f "$into/results.tar.gz" 2>/dev/null && return
	fault "no results; the console's last lines:"
	tail -n 15 "$into/console" "$into/qemu"
	return 1
}
