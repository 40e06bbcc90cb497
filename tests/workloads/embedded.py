# SPDX-License-Identifier: MIT
"""usage: embedded.py SECONDS. Python that runs Lua that calls Python that runs Lua, by lupa."""
import sys
import time

import lupa

lua = lupa.LuaRuntime()
outer, inner = lua.execute("""
local function inner(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function outer(n, callback)
  local x = callback(n)
  return x + inner(n)
end
return outer, inner
""")


def callback(n):
    return inner(n)


until = time.process_time() + (float(sys.argv[1]) if len(sys.argv) > 1 else 3)
while time.process_time() < until:
    outer(20000, callback)
print(lupa.LuaRuntime().lua_implementation)
