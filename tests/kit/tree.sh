# SPDX-License-Identifier: MIT
# Sourced: LuaJIT source trees, and how they are built with the VM descriptor. They are kept in .cache.
#
# Set before: root (the repository), work (a folder), KIT (folder of the built test programs), skip and fail.
# Environment: CROSS (prefix of a cross compiler: aarch64-linux-gnu-). $emulator runs what it makes.
cache=${MOONSPY_CACHE:-$root/.cache}
apply=$root/instrument/apply
: "${CROSS:=}"
emulator=
[ -z "$CROSS" ] || emulator="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
for tool in ${CROSS}gcc ${emulator%% *}; do
	command -v $tool >/dev/null || skip "needs $tool"
done
[ -z "$CROSS" ] || [ -d "${emulator##* }" ] || skip "needs ${emulator##* }, the cross compiler's C library"
mkdir -p "$cache/kit"
exec 9>"$cache/kit/lock"
flock 9

# debian_tree SUITE: $tree is the source of the suite's package.
debian_tree() {
	"$root/scripts/debs" --source --orig --unpack "$cache/kit/src-$1" "$1" luajit >"$cache/kit/log" 2>&1 ||
		skip "no source package of luajit: $(tail -1 "$cache/kit/log")"
	tree=$cache/kit/src-$1/luajit
}

# build DIR: $built is a copy that is built; by what it is made of, it is found again. It also records its traces, for
# kit-tables. Notes survive strip: in src are a program that is all of it, "static", and a folder "stripped" with a library.
build() {
	sum=$({ echo "$CROSS" && cat "$1"/src/*.[ch] "$1"/src/*.dasc "$root"/instrument/apply "$root"/instrument/vm/* "$root/tests/kit/tree.sh" \
		"$root/include/moonspy/vm_descriptor.h" "$root"/tests/traces/apply.py "$root"/tests/traces/truth_record.c; } | sha256sum | cut -c1-16)
	built=$cache/kit/$sum
	[ ! -f "$built/src/stripped/luajit" ] || return 0
	rm -rf "$built" "$built.new"
	cp -a "$1" "$built.new"
	python3 "$root/tests/traces/apply.py" "$built.new/src"
	"$apply" "$built.new" >/dev/null
	make_tree "$built.new/src" >"$work/log" 2>&1 || {
		grep -m 5 'rror' "$work/log" >&2
		fail "it could not be built"
	}
	mv "$built.new" "$built"
}

# Where it is built by something else too, the makefile has another name.
make_tree() {
	makefile=Makefile
	[ -f "$1/Makefile" ] || makefile=Makefile.original
	make -C "$1" -f $makefile -j2 CROSS="$CROSS" HOST_CC=gcc BUILDMODE=dynamic CCDEBUG=-g3 TARGET_STRIP=: || return
	ln -s libluajit.so "$1/libluajit-5.1.so.2" && mkdir "$1/stripped" || return
	${CROSS}gcc -o "$1/static" "$1"/l*.o -lm -ldl && ${CROSS}strip "$1/static" || return
	${CROSS}strip -o "$1/stripped/libluajit-5.1.so.2" "$1/libluajit.so" && cp "$1/luajit" "$1/stripped"
}

# cross_programs NAME...: these test programs for the other architecture, if there is one, in $KIT.
cross_programs() {
	[ -n "$CROSS" ] || return 0
	mkdir "$work/kit"
	KIT=$work/kit
	for name; do
		${CROSS}gcc -O2 -D_GNU_SOURCE -I "$root/include" -o "$KIT/kit-$name" "$root/tests/kit/$name.c" "$root/tests/kit/kit.c" \
			"$root/tests/kit/moments.c" -lpthread -ldl
	done
}
