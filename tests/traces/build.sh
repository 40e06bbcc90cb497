#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: build.sh. Builds the LuaJIT that says what its traces are made of, from Debian's source package with
# truth_record.c added; prints its path. Exit 77 with a reason if the package cannot be had. SUITE (bookworm) says which;
# GC64=no or GC64=yes: built without or with it, else as it comes; DUALNUM=yes: with integers beside its numbers.
# ARCH=arm64: for that, by cross compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${MOONSPY_CACHE:-$root/.cache}
suite=${SUITE:-bookworm}
flags= name=luajit
case ${GC64:-} in
no) flags=-DLUAJIT_DISABLE_GC64 name=luajit32 ;;
yes) flags=-DLUAJIT_ENABLE_GC64 name=luajit64 ;;
esac
[ "${DUALNUM:-}" != yes ] || flags="$flags -DLUAJIT_NUMMODE=2" name=${name}dual
folder=$cache/traces/$suite${ARCH:+-$ARCH}
cross=
[ "${ARCH:-}" != arm64 ] || cross=aarch64-linux-gnu-

skip() {
	echo "SKIP: $*" >&2
	exit 77
}

mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
sum=$(cat "$here/apply.py" "$here/truth_record.c" | sha256sum | cut -c1-16)
luajit=$folder/$name-$sum
if [ ! -x "$luajit" ]; then
	command -v make >/dev/null && command -v "${cross:+${cross}g}cc" >/dev/null && command -v dpkg-source >/dev/null ||
		skip "needs make, ${cross:+${cross}g}cc and dpkg-source to build LuaJIT"
	rm -rf "$folder/src" "$folder/$name"-*
	MOONSPY_CACHE=$cache "$root/scripts/debs" --source --orig --unpack "$folder/src" "$suite" luajit >"$folder/log" 2>&1 ||
		skip "no source package of luajit: $(tail -1 "$folder/log")"
	python3 "$here/apply.py" "$folder/src/luajit/src" >&2
	make -C "$folder/src/luajit" -j2 BUILDMODE=static XCFLAGS="$flags" CROSS=$cross >"$folder/log" 2>&1 || {
		tail -20 "$folder/log" >&2
		exit 1
	}
	cp "$folder/src/luajit/src/luajit" "$luajit.new"
	mv "$luajit.new" "$luajit"
	rm -rf "$folder/src"
fi
echo "$luajit"
