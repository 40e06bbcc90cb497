#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh OUTPUT_FILES: clicks through pages in headless Chromium; 77 is "skipped" to meson.
here=$(cd "$(dirname "$0")" && pwd)

skip() {
	echo "skip: $1"
	exit 77
}

command -v node >/dev/null || skip "node is not installed: scripts/packages page"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser)}
[ -n "$CHROMIUM" ] || skip "chromium is not installed: scripts/packages page"
# What drives it, installed once, beside this file.
if ! [ -d "$here/node_modules/playwright-core" ]; then
	command -v npm >/dev/null || skip "npm is not installed: scripts/packages page"
	log=$(mktemp)
	npm install --prefix "$here" --no-package-lock --no-audit --no-fund --ignore-scripts >"$log" 2>&1 ||
		why=$(grep -m 1 -v '^ *$' "$log")
	rm -f "$log"
	[ -z "${why-}" ] || skip "npm cannot install playwright-core: $why"
fi
export CHROMIUM
exec node "$here/page_test.mjs" "$1"
