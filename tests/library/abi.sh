#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: abi.sh LIBRARY.so [record]: its binary interface is the one that is recorded.
# A wanted change: make abi, and look at what git diff says; what was removed or moved breaks programs of others.
set -eu
library=$1
here=$(cd "$(dirname "$0")" && pwd)
recorded=$here/libmoonspy.abi headers=$here/../../include/moonspy
command -v abidw >/dev/null || { echo "SKIP: abigail-tools is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
abidw --headers-dir "$headers" --drop-private-types --no-corpus-path --no-comp-dir-path --no-show-locs \
	--no-elf-needed --exported-interfaces-only --out-file "$work/now.abi" "$library"
if [ "${2-}" = record ]; then
	cp "$work/now.abi" "$recorded"
	exit
fi
abidiff --no-architecture "$recorded" "$work/now.abi"
echo "$(grep -c '<elf-symbol' "$recorded") symbols, none changed"
