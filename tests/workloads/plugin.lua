-- SPDX-License-Identifier: MIT
-- usage: nvim --headless -u NONE -i NONE -c 'luafile plugin.lua' -c 'qa!'; environment: PLUGIN_SECONDS
-- What an editor plugin does all day: buffers, lines, options, tables of the editor's Lua runtime.
local seconds = tonumber(os.getenv("PLUGIN_SECONDS")) or 3
local api = vim.api

local function score(line)
  local x = 0
  for i = 1, #line do x = (x * 33 + line:byte(i)) % 9973 end
  return x
end
local function fill(buffer)
  local lines = {}
  for i = 1, 200 do lines[i] = "line " .. i .. " of some text" end
  api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
end
local function by_score(a, b) return score(a) < score(b) end
local function reorder(buffer)
  local lines = api.nvim_buf_get_lines(buffer, 0, 60, false)
  table.sort(lines, by_score)
  api.nvim_buf_set_lines(buffer, 0, 60, false, lines)
end
local function double(line) return line .. line end
local function map_lines(buffer)
  local lines = vim.tbl_map(double, api.nvim_buf_get_lines(buffer, 0, 60, false))
  return #vim.split(table.concat(lines, "\n"), "\n", { plain = true })
end
local function on_call()
  local x = score("called from the editor")
  return x
end
local function through_editor(buffer)
  api.nvim_buf_call(buffer, on_call)
  vim.cmd("let g:x = luaeval('1 + 1')")
end
local function plugin()
  local buffer = api.nvim_create_buf(false, true)
  repeat
    fill(buffer)
    reorder(buffer)
    map_lines(buffer)
    through_editor(buffer)
  until os.clock() > seconds
end
plugin()
