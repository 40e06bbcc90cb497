#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh OUTPUT_FILES: clicks through pages in headless Chromium; 77 is "skipped" to meson.
here=$(dirname "$0")

skip() {
	echo "skip: $1"
	exit 77
}

command -v node >/dev/null || skip "node is not installed"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser)}
[ -n "$CHROMIUM" ] || skip "chromium is not installed"
[ -d "$here/node_modules/playwright-core" ] ||
	skip "playwright-core is not installed: npm install --prefix tests/page --no-package-lock"
export CHROMIUM
exec node "$here/page_test.mjs" "$1"
