#!/bin/sh
# SPDX-License-Identifier: MIT
# suite.sh SUITE: prints a program that is that Debian suite's luajit, unpacked in the cache, nothing installed. If it wants a
# newer libc than the machine's, with the suite's.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
into=${MOONSPY_CACHE:-$root/.cache}/luajit-$1
program=$into/usr/bin/luajit
if [ ! -e "$into/done" ]; then
	"$root/scripts/debs" --depends --unpack "$into" "$1" luajit >&2
	: >"$into/done"
fi
if ! "$program" -v >/dev/null 2>&1; then
	loader=$(find "$into" -name 'ld-linux*.so.*' | head -n 1)
	libraries=$(dirname "$(find "$into" -name libm.so.6 | head -n 1)")
	printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" "$program" >"$into/luajit"
	chmod +x "$into/luajit"
	program=$into/luajit
fi
"$program" -v >/dev/null
echo "$program"
