/* SPDX-License-Identifier: MIT */
/* Lua functions that programs which embed it keep busy: outer() calls bottom(), which takes n steps. */
#ifndef WORK_H
#define WORK_H

#define LUA_WORK \
	"local function bottom(n)\n" \
	"  local x = 0\n" \
	"  for i = 1, n do x = x + i % 7 end\n" \
	"  return x\n" \
	"end\n" \
	"local function outer(n)\n" \
	"  local x = bottom(n)\n" \
	"  return x + 1\n" \
	"end\n"

#endif
