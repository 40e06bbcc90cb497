#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: builds.sh DIR [NAME...]. A LuaJIT source tree with the VM descriptor, built in many ways: what each build has is what
# it should have, its constants are those of its debug information, helpers called in signal handlers are right.
# NAME: only these builds. Exit 77: cannot be had.
#
# Environment: KIT (folder of the built test programs), COUNT (2000) signals that interrupt a VM. CROSS=aarch64-linux-gnu-: built
# for arm64, where that has such a build, run by qemu's user mode.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${KIT:=$root/build/tests/kit}" "${COUNT:=2000}"
[ $# -gt 0 ] || { sed -n '3,5s/^# //p' "$0" >&2 && exit 2; }
skip() {
	echo "SKIP: $*" >&2
	exit 77
}
for tool in make cc clang gdb readelf; do
	command -v $tool >/dev/null || skip "needs $tool"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-kit-builds.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
. "$here/tree.sh"
# Each has its own folder: the kept ones are not touched.
exec 9>&-
cross_programs constants parts signals
source=$1
shift
wanted=" $* " tried=0 failed=0

# Name, the parts it has, options of make.
branches=-fcf-protection=full
[ -z "$CROSS" ] || branches=-mbranch-protection=standard
rows() {
	cat <<-END
		plain         | jit ffi live helpers tables probes note |
		amalgamated   | jit ffi live helpers tables probes note | amalg
		clang         | jit ffi live helpers tables probes note | CC=clang
		O0            | jit ffi live helpers tables probes note | CCOPT=-O0
		O3            | jit ffi live helpers tables probes note | CCOPT=-O3
		Os            | jit ffi live helpers tables probes note | CCOPT=-Os
		LTO           | jit ffi live helpers tables probes note | TARGET_CFLAGS=-flto TARGET_LDFLAGS=-flto
		assertions    | jit ffi live helpers tables probes note | XCFLAGS=-DLUA_USE_ASSERT\ -DLUA_USE_APICHECK
		no-gc64       | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_DISABLE_GC64
		gc64          | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_ENABLE_GC64
		dualnum       | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_NUMMODE=2
		lua52         | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_ENABLE_LUA52COMPAT
		checkhook     | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_ENABLE_CHECKHOOK
		own-unwinding | jit ffi live helpers tables probes note | XCFLAGS=-DLUAJIT_NO_UNWIND
		branches      | jit ffi live helpers tables probes note | CCOPT=-O2\ $branches
		frames        | jit ffi live helpers tables probes note | CCOPT=-O2\ -fno-omit-frame-pointer
		no-jit        | ffi live helpers probes note            | XCFLAGS=-DLUAJIT_DISABLE_JIT
		no-ffi        | jit live helpers tables probes note     | XCFLAGS=-DLUAJIT_DISABLE_FFI
		clang-least   | live helpers probes note                | CC=clang XCFLAGS=-DLUAJIT_DISABLE_JIT\ -DLUAJIT_DISABLE_FFI\ -DLUAJIT_DISABLE_GC64
		no-probes     | jit ffi live helpers tables note        | XCFLAGS=-DLJVM_NO_PROBES
		no-live       | jit ffi helpers probes note             | XCFLAGS=-DLJVM_NO_LIVE
		no-tables     | jit ffi live helpers probes note        | XCFLAGS=-DLJVM_NO_TABLES
		no-helpers    | jit ffi live probes note                | XCFLAGS=-DLJVM_NO_HELPERS
		no-note       | jit ffi live helpers tables probes      | XCFLAGS=-DLJVM_NO_NOTE
		constants     | jit ffi                                 | XCFLAGS=-DLJVM_NO_PROBES\ -DLJVM_NO_LIVE\ -DLJVM_NO_HELPERS\ -DLJVM_NO_NOTE
	END
}

# Debug information with macros. That of link-time optimisation has none, of the amalgamated build gdb finds not all: a plain one has them.
make_library() {
	macros=-g3
	case $* in *CC=clang*) macros="-g -fdebug-macro" ;; esac
	case $* in *flto* | *amalg*) make_with && mv "$library" "$work/macros" && make -C "$work/tree/src" clean || return ;; esac
	make_with "$@"
}

make_with() {
	[ -z "$CROSS" ] || set -- CROSS="$CROSS" HOST_CC=gcc "$@"
	make -C "$work/tree/src" -j2 BUILDMODE=dynamic CCDEBUG="$macros" TARGET_STRIP=: "$@"
}

# Exit status 1, with the reason, if something is not as it should be.
look() {
	library=$work/tree/src/libluajit.so
	cp -a "$source" "$work/tree" && "$root/instrument/apply" "$work/tree" >/dev/null || return 1
	eval "set -- $2"
	make_library "$@" >"$work/log" 2>&1 || {
		grep -m 5 'rror' "$work/log"
		return 1
	}
	! grep -A 3 'ljvm.*warning' "$work/log" || return 1
	"$here/notes.py" "$root/include/moonspy/vm_descriptor.h" "$parts" "$library" || return 1
	has=$($emulator "$KIT/kit-parts" "$library" | sed 's/ *$//')
	should=$(echo "$parts" | sed 's/probes//; s/note//; s/ *$//')
	[ "$has" = "$should" ] || { echo "it has '$has', not '$should'" && return 1; }
	MACROS=$work/macros "$here/constants.py" "$library" $emulator "$KIT/kit-constants" || return 1
	case $parts in
	*helpers*) $emulator "$KIT/kit-signals" "$library" "$here/work.lua" "$COUNT" || return 1 ;;
	esac
}

rows >"$work/rows"
while IFS='|' read -r name parts options; do
	name=$(echo $name) parts=$(echo $parts)
	case $wanted in *" $name "* | "  ") ;; *) continue ;; esac
	case ${CROSS:+cross }$name in "cross clang"* | "cross gc64" | "cross no-gc64") continue ;; esac
	tried=$((tried + 1))
	rm -rf "$work/tree" "$work/macros"
	if look "$name" "$options" >"$work/out" 2>&1 </dev/null; then
		echo "$name: $(sed -n 's/^constants: /constants /p; s/^signals: //p' "$work/out" | paste -sd ';')"
	else
		failed=$((failed + 1))
		echo "$name: FAIL" && sed 's/^/    /' "$work/out"
	fi
done <"$work/rows"
echo "$tried builds, $failed not as they should be"
[ $tried -gt 0 ] && [ $failed = 0 ]
