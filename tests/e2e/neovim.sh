#!/bin/sh
# SPDX-License-Identifier: MIT
# neovim, without a screen, running a plugin's loop.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need nvim
seconds=${SECONDS_EACH:-10}
export PLUGIN_SECONDS="$seconds" HOME="$work" XDG_CONFIG_HOME="$work" XDG_DATA_HOME="$work" XDG_STATE_HOME="$work"
cd "$workloads"
record "$work/p" -- nvim --headless -u NONE -i NONE -c 'luafile plugin.lua' -c 'qa!'
check neovim "$work/p" --graph "$workloads/plugin.graph" --min-whole 99.5 --inlined-hidden --min-samples $((seconds * 300)) \
	--contains '{start};{any}.*main chunk \([^;]*plugin.lua:0\);plugin \([^;]*\)=60'
finish
