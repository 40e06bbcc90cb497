#!/bin/sh
# SPDX-License-Identifier: MIT
# LuaJIT in roots of its own: an overlay, a root that was removed while it runs, one whose files were replaced by
# others, one that cannot be entered from here. Each is known as if it were here: by the files that are mapped.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT" unshare chroot
unshare -m true 2>/dev/null || skip "no mount namespaces"

# make_root FOLDER: what luajit needs to run there, and the programs.
make_root() {
	mkdir -p "$1/w" "$1/tmp"
	cp "$workloads"/drive.lua "$workloads"/mixed.lua "$1/w"
	binary=$(readlink -f "$(command -v "$LUAJIT")")
	for file in "$binary" $(ldd "$binary" | grep -o '/[^ ]*'); do
		mkdir -p "$1$(dirname "$file")"
		cp -L "$file" "$1$file"
	done
}

# look NAME: records the target; its stacks are whole and legal.
look() {
	kill -0 "$target" || fail "$1: the target is gone"
	record "$work/p" -p "$target" -d "${SECONDS_EACH:-2}"
	check "$1" "$work/p" --graph "$workloads/mixed.graph" --min-whole 99.5 --inlined-hidden
	timeout 60 "$MOONSPY" inspect -p "$target" >"$work/inspect" 2>&1 || fail "$1: $(tail -n 3 "$work/inspect")"
}

# run_in COMMAND...: the program, in a root that COMMAND enters; its pid is in target.
run_in() {
	start "$work/t" "$@" "$binary" /w/mixed.lua 300 jit
	target=$!
	for _ in $(seq 100); do
		[ "$(readlink "/proc/$target/exe" | sed 's|.*/||')" != "$(basename "$binary")" ] || break
		sleep 0.1
	done
	sleep 0.5
}

make_root "$work/lower"
mkdir "$work/mount"
# The parts of an overlay live in a namespace that only the program is in.
if unshare -m sh -c 'mount -t tmpfs tmpfs "$1" && mkdir "$1/u" "$1/w" "$1/m" &&
	mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/u,workdir=$1/w" "$1/m"' sh "$work/mount" "$work/lower" 2>/dev/null; then
	run_in unshare -m sh -c 'mount -t tmpfs tmpfs "$1" && mkdir "$1/u" "$1/w" "$1/m" &&
		mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/u,workdir=$1/w" "$1/m" && shift 2 &&
		exec chroot "$0" "$@"' "$work/mount/m" "$work/mount" "$work/lower"
	look overlay
	stop "$target"
else
	echo "no overlay file system: left out"
fi

make_root "$work/gone"
run_in chroot "$work/gone"
rm -rf "$work/gone"
look "removed root"
stop "$target"

make_root "$work/other"
run_in chroot "$work/other"
find "$work/other" -type f -name '*luajit*' -o -type f -name 'lib*' >"$work/files"
while read -r file; do
	rm "$file"
	cp "$PROGRAMS/native" "$file" 2>/dev/null || cp /bin/sh "$file"
done <"$work/files"
look "replaced files"
stop "$target"

# Without the rights to open what is mapped, in a root that the user may not enter.
make_root "$work/closed"
chmod 755 "$work"
if setpriv --reuid 65534 --regid 65534 --clear-groups chroot / true 2>/dev/null; then
	echo "a plain user may chroot: left out"
else
	run_in chroot --userspec=65534:65534 "$work/closed"
	chmod 700 "$work/closed"
	status=0
	setpriv --reuid 65534 --regid 65534 --clear-groups timeout 60 "$MOONSPY" dump -p "$target" \
		>"$work/closed.out" 2>"$work/closed.err" || status=$?
	case $status in
	0 | 4 | 5 | 6) ;;
	*) fail "closed root: dump ended with $status: $(cat "$work/closed.err")" ;;
	esac
	kill -0 "$target" || fail "closed root: the target is gone"
	echo "closed root: dump ends with $status"
	look "closed root, by root"
	stop "$target"
fi
finish
