#!/bin/sh
# SPDX-License-Identifier: MIT
# pprof_reader.sh OUTPUT_FILES MOONSPY: pprof files, read by npm's pprof-format.
set -eu
. "$(dirname "$0")/lib.sh"

need_packages pprof-format
set --
for profile in server hostile large; do
	make $profile pprof $profile.pb.gz
	make $profile json $profile.json
	make $profile folded $profile.folded
	set -- "$@" "$work/$profile.pb.gz" "$work/$profile.json" "$work/$profile.folded"
done
if record; then
	for ending in pb.gz json folded; do
		convert recording.$ending
		set -- "$@" "$work/recording.$ending"
	done
fi
node "$here/pprof_read.mjs" "$@"
