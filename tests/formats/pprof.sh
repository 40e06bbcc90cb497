#!/bin/sh
# SPDX-License-Identifier: MIT
# pprof.sh OUTPUT_FILES MOONSPY: pprof files by the letter, read by python and nothing else. With LARGE=1 a
# million samples, too, which takes its time.
set -eu
. "$(dirname "$0")/lib.sh"

set --
for profile in server hostile ${LARGE:+large}; do
	make $profile pprof $profile.pb.gz
	make $profile json $profile.json
	set -- "$@" "$work/$profile.pb.gz" "$work/$profile.json"
done
if record; then
	convert recording.pb.gz
	convert recording.json
	set -- "$@" "$work/recording.pb.gz" "$work/recording.json"
fi
python3 "$here/pprof_check.py" "$@"
