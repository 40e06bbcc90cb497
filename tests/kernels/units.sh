#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: units.sh [SUITE]
#
# The unit tests in an emulated machine, for ARCH=arm64: those that need no other program than LuaJIT.
#
# Environment: see guest.sh. Ends with 0 (all passed), 1 (not) or 77 (cannot run here).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${ARCH:=arm64}"
suite=${1:-bookworm} version=${1:-bookworm}
. "$here/guest.sh"
ls "$build"/tests/unit/test-* >/dev/null 2>&1 || skip "no tests in $build (make ARM64=1 tests)"

kernel=$(find_kernel "$suite") || skip "the kernel of $suite/$ARCH could not be fetched"
version=${kernel##*/vmlinuz-}
make_guest "$suite" "$here/units" libluajit-5.1-2 libcmocka0
mkdir -p "$guest/units" "$guest$root/tests"
ln -s /workloads "$guest$root/tests/workloads"
find "$build/tests/unit" -maxdepth 1 -type f -name 'test-*' -exec cp {} "$guest/units" \;
pack_guest
boot "$kernel" "$work/out" || exit 1
cd "$work/out"
for status in test-*.status; do
	name=${status%.status}
	case $(cat "$status") in
	0 | 77) echo "$version $name: $(grep -c '^\[       OK' "$name.out" "$name.err" | awk -F : '{ n += $2 } END { print n }') passed, $(grep -h -c 'SKIPPED \] [a-z]' "$name.out" "$name.err" | awk '{ n += $1 } END { print n }') skipped" ;;
	*)
		fault "$name ended with $(cat "$status")"
		grep -h -E 'FAILED|ERROR|LINE' "$name.out" "$name.err" | head -n 20
		;;
	esac
done
[ ! -s dmesg ] || fault "the kernel complains: $(cat dmesg)"
exit $failed
