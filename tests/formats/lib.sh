# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# Files for readers that are not ours: of made-up profiles, and of a recording where one can be made.
# Sourced after `set -eu`; $1 is the program output_files, $2 moonspy. 77 is "skipped" to meson.

here=$(cd "$(dirname "$0")" && pwd)
output_files=$1 moonspy=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-formats.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

skip() {
	echo "skip: $1"
	exit 77
}

# The packages in package.json, installed once, beside it.
need_packages() {
	command -v node >/dev/null || skip "node is not installed: scripts/packages page"
	for package in "$@"; do
		[ -d "$here/node_modules/$package" ] || missing=yes
	done
	[ -n "${missing-}" ] || return 0
	command -v npm >/dev/null || skip "npm is not installed: scripts/packages page"
	npm install --prefix "$here" --no-package-lock --no-audit --no-fund --ignore-scripts \
		>"$work/npm.log" 2>&1 ||
		skip "npm cannot install $*: $(grep -m 1 -v '^ *$' "$work/npm.log")"
}

# make PROFILE FORMAT[:HOW] FILE
make() {
	"$output_files" "$1" "$2" "$work/$3"
}

# Leaves recording.msp, of compiled and inlined Lua; says why where it cannot.
record() {
	if [ "$(id -u)" != 0 ] || ! command -v luajit >/dev/null; then
		echo "no recording: that needs root, and luajit"
		return 1
	fi
	if ! "$moonspy" record -q -d 2s -r 499 -o "$work/recording.msp" -- \
		luajit "$here/../workloads/traces.lua" 4 >"$work/record.log" 2>&1 &&
		! [ -s "$work/recording.msp" ]; then
		echo "no recording: $(grep -m 1 . "$work/record.log")"
		return 1
	fi
}

# convert FILE: what was recorded in another format
convert() {
	"$moonspy" report -q "$work/recording.msp" -o "$work/$1"
}
