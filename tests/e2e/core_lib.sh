# SPDX-License-Identifier: MIT
# Cores that the kernel writes of crashes, and what must be shown of them; after lib.sh.
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"
case $(cat /proc/sys/kernel/core_pattern) in
"|"*) skip "cores go to a program here (core_pattern)" ;;
esac
ulimit -c unlimited 2>/dev/null || skip "no core files here (ulimit -c)"

# crash OUT COMMAND...: runs it, and keeps its core as OUT.
crash() {
	crash_out=$1
	shift
	rm -rf "$work/cwd"
	mkdir "$work/cwd"
	(cd "$work/cwd" && "$@" >/dev/null 2>&1) || :
	set -- "$work"/cwd/core*
	[ -f "$1" ] || skip "the kernel wrote no core"
	mv "$1" "$crash_out"
}

# look NAME CORE OPTIONS...: what is printed must fit what core_crash.py has under NAME.
look() {
	look_name=$1
	shift
	look_status=0
	"$MOONSPY" core -j -lc "$@" >"$work/json" 2>"$work/err" || look_status=$?
	"$MOONSPY" traces -q -j "$@" >"$work/traces" 2>/dev/null || :
	python3 "$here/core_crash.py" "$look_name" "$look_status" "$work/json" "$work/err" "$work/traces" || failed=1
	timeout 60 "$MOONSPY" core -llc "$@" >"$work/text" 2>/dev/null || :
	grep -q "^Thread " "$work/text" || fail "$look_name: no thread in the text"
}
