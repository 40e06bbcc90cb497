#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: archive.sh PARTS.a OUT.a AR OBJCOPY CC...: the static library as one object, in which only public names are seen.
set -eu
parts=$1 out=$2 ar=$3 objcopy=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$@" -r -nostdlib -o "$work/moonspy.o" -Wl,--whole-archive "$parts" -Wl,--no-whole-archive
"$objcopy" --localize-hidden "$work/moonspy.o"
rm -f "$out"
"$ar" rcsD "$out" "$work/moonspy.o"
