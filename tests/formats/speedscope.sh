#!/bin/sh
# SPDX-License-Identifier: MIT
# speedscope.sh OUTPUT_FILES MOONSPY: speedscope files, imported by speedscope itself. With LARGE=1 a
# million samples, too, which takes its time.
set -eu
. "$(dirname "$0")/lib.sh"

need_packages ajv playwright-core speedscope
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || :)}
[ -n "$CHROMIUM" ] || skip "chromium is not installed: scripts/packages page"
export CHROMIUM
set --
for how in server hostile hostile:threads hostile:lines ${LARGE:+large:threads}; do
	profile=${how%%:*}
	name=$(echo "$how" | tr : -)
	make "$profile" "speedscope${how#"$profile"}" "$name.speedscope.json"
	make "$profile" json "$name.json"
	set -- "$@" "$work/$name.speedscope.json" "$work/$name.json"
done
if record; then
	convert recording.speedscope.json
	convert recording.json
	set -- "$@" "$work/recording.speedscope.json" "$work/recording.json"
fi
node "$here/speedscope_read.mjs" "$@"
