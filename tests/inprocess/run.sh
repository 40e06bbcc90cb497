#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh MODULES COMMAND ARGS...: where require "moonspy.sysprof" finds what was built; the last argument is a folder of its own.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$1" "$work/moonspy"
mkdir "$work/out"
shift
LUA_CPATH="$work/?.so;;" LUA_PATH="$work/?.lua;;" "$@" "$work/out"
