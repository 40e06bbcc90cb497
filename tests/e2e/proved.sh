#!/bin/sh
# SPDX-License-Identifier: MIT
# The proof accepts every VM of a stock LuaJIT, however little it has done: what is rejected has no names.
set -eu
. "$(dirname "$0")/lib.sh"
need "$LUAJIT"
need "$MOONSPY"

cat >"$work/loop.lua" <<'END'
local t0 = os.clock()
while os.clock() - t0 < 10 do end
END
cat >"$work/one.lua" <<'END'
local t0 = os.clock()
local function less(a, b) return a < b end
while os.clock() - t0 < 10 do local t = { 3, 1, 2 } table.sort(t, less) end
END
cat >"$work/trace.lua" <<'END'
local t0, x = os.clock(), 0
local function add(a) return a + 1 end
while os.clock() - t0 < 10 do for i = 1, 100 do x = add(x) end end
END

asked=0
rejected=0
prove() { # FILE OPTION
	rm -f "$work/begun"
	"$LUAJIT" "$2" -e "io.open('$work/begun', 'w'):close()" "$1" 10 >"$work/out" 2>&1 &
	target=$!
	until [ -e "$work/begun" ] || ! kill -0 $target 2>/dev/null; do sleep 0.01; done
	for wait in 0 0.05 0.3; do
		sleep $wait
		kill -0 $target 2>/dev/null || break
		asked=$((asked + 1))
		if ! timeout 60 "$MOONSPY" inspect -p $target >"$work/inspect" 2>&1 &&
			kill -0 $target 2>/dev/null; then
			rejected=$((rejected + 1))
			echo "FAULT $(basename "$1") $2 after $wait s: $(grep -E 'FAILED|not proved' "$work/inspect" || tail -n 3 "$work/inspect")"
		fi
	done
	kill -9 $target 2>/dev/null || :
	wait $target 2>/dev/null || :
}
for file in "$work"/*.lua "$workloads"/*.lua; do
	case $(basename "$file") in
	drive.lua | plugin.lua | sysbench.lua | wrk.lua | names*) continue ;;
	esac
	prove "$file" -jon
	prove "$file" -joff
done
echo "proof: $asked asked, $rejected rejected"
[ $rejected = 0 ] && [ $asked -gt 50 ]
