#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh BUILD: installed somewhere, a program finds the module, and C its header and library.
set -eu
command -v luajit >/dev/null || { echo "SKIP: no luajit"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work meson install -C "$1" --no-rebuild --quiet
module=$(find "$work" -path '*/lua/5.1/moonspy/sysprof.so')
misc=$(find "$work" -path '*/lua/5.1/moonspy/misc.lua')
cd "$work"
LUA_CPATH="${module%/moonspy/*}/?.so" LUA_PATH="${misc%/moonspy/*}/?.lua" luajit -e '
	local sysprof = require("moonspy.misc").sysprof
	assert(sysprof.start{mode = "C", interval = 1})
	assert(sysprof.stop())
	assert(io.open("sysprof.bin"):read(3) == "ljs")'
header=$(find "$work" -name sysprof.h)
printf '#include <moonspy/sysprof.h>\nint main(void) { return luaM_sysprof_report(0) + LUAM_SYSPROF_LEAF; }\n' >c.c
cc -Wall -Werror -fsyntax-only -I "${header%/moonspy/*}" c.c
cp c.c cc.cc
! command -v c++ >/dev/null || c++ -Wall -Werror -fsyntax-only -I "${header%/moonspy/*}" cc.cc
lib=$(find "$work" -name libmoonspy-sysprof.so)
nm -D --defined-only "$lib" | awk '$2 == "T" {print $3}' | sed 's/@.*//' | sort >shown
printf 'luaM_sysprof_%s\n' report set_backtracer set_on_stop set_writer start stop >wanted
echo luaopen_moonspy_sysprof >>wanted
diff wanted shown
