#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: public.sh MANDIR: every public function is in the map, in a header, called by a test, and has a man page;
# of the library the command line includes only the public headers.
set -eu
man=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
rc=0
names=$(sed -n 's/^\t\(msp_.*\);$/\1/p' "$root/src/library/moonspy.map")
[ "$names" ] || exit 1
declared=$(sed -n 's/^MSP_API.*[ *]\(msp_[a-z_]*\)(.*/\1/p' "$root"/include/moonspy/*.h)
for name in $declared; do
	echo "$names" | grep -qx "$name" || { echo "$name is not in the map" && rc=1; }
done
for name in $names; do
	echo "$declared" | grep -qx "$name" || { echo "$name is in no header" && rc=1; }
	grep -q "[^_a-z]$name(" "$here"/*.c "$root"/examples/agent/*.c || { echo "no test calls $name" && rc=1; }
	[ -s "$man/$name.3" ] || { echo "$name has no man page" && rc=1; }
done
for name in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$root"/src/cli/*.[ch] | sort -u); do
	case $name in
	cli/* | moonspy/* | output/* | profile/* | recorder/*) ;;
	*) echo "src/cli includes $name, which is not public" && rc=1 ;;
	esac
done
echo "$(echo "$names" | wc -l) public functions"
exit "$rc"
