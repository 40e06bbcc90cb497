-- SPDX-License-Identifier: MIT
-- usage: luajit hookprofile.lua OUT.folded EVERY WORKLOAD.lua ARGS...
-- A profile of a workload made without moonspy: a count hook notes the Lua stack
-- every EVERY instructions, across coroutines. No native frames, no JIT, nothing
-- from inside finalizers and hooks, nor after a stack overflow. It
-- shows that a call graph is right and that the checker accepts good input.
jit.off()
local out_path, every, script = arg[1], tonumber(arg[2]), arg[3]
local own_source = debug.getinfo(1, "S").source

-- Names of C functions, by value.
local builtin_names = setmetatable({}, { __mode = "k" })
for table_name, lib in pairs(package.loaded) do
  if type(lib) == "table" then
    for name, value in pairs(lib) do
      if type(value) == "function" then
        builtin_names[value] = table_name == "_G" and name or table_name .. "." .. name
      end
    end
  end
end
builtin_names[io.stdout.flush] = "io.method.flush"
builtin_names[io.stdout.write] = "io.method.write"
builtin_names[ipairs({})] = "ipairs_aux"
local has_ffi, ffi = pcall(require, "ffi")
if has_ffi then
  for prefix, value in pairs({ ["ffi.meta."] = ffi.new("int"), ["ffi.clib."] = ffi.C }) do
    for name, method in pairs(debug.getmetatable(value)) do
      if type(method) == "function" then builtin_names[method] = prefix .. name end
    end
  end
  for name, value in pairs(ffi) do
    if type(value) == "function" then builtin_names[value] = "ffi." .. name end
  end
end

-- Names of Lua functions, by where they are defined.
local definitions = {}
local function names_in(text)
  local names, number = {}, 0
  for line in text:gmatch("([^\n]*)\n?") do
    number = number + 1
    names[number] = line:match("function%s+([%w_.:]+)%s*%(") or line:match("([%w_.]+)%s*=%s*function")
  end
  return names
end
local function names_of(source)
  if not definitions[source] then
    local file = source:sub(1, 1) == "@" and io.open(source:sub(2))
    definitions[source] = file and names_in(file:read("*a")) or {}
    if file then file:close() end
  end
  return definitions[source]
end
local real_loadstring = loadstring
function loadstring(text, name)
  if text:sub(1, 1) ~= "\27" then definitions[name or text] = names_in(text) end
  return real_loadstring(text, name)
end
builtin_names[real_loadstring] = "loadstring"

-- Who resumed a coroutine.
local parents = setmetatable({}, { __mode = "k" })
local real_resume, real_wrap, running = coroutine.resume, coroutine.wrap, coroutine.running
coroutine.resume = function(co, ...)
  parents[co] = running() or "main"
  return real_resume(co, ...)
end
builtin_names[real_resume] = "coroutine.resume"
coroutine.wrap = function(body)
  local parent
  local inner = real_wrap(function(...)
    parents[running()] = parent
    return body(...)
  end)
  builtin_names[inner] = "coroutine.wrap_aux"
  return function(...)
    parent = running() or "main"
    return inner(...)
  end
end

local function frame_text(info)
  if info.what == "C" then return builtin_names[info.func] or "unknown" end
  local name = info.what == "main" and "main chunk" or names_of(info.source)[info.linedefined] or "anonymous"
  local file = info.short_src:gsub("[;%c\128-\255]", "?")
  return ("%s (%s:%d)"):format(name, file, info.linedefined)
end

local stacks, count = {}, 0
local main_thread -- the thread of the hooked program; nil = the main one
local function collect(thread, level, frames)
  while true do
    local info
    if thread then info = debug.getinfo(thread, level, "Slf") else info = debug.getinfo(level + 1, "Slf") end
    if not info then return end
    if info.source ~= own_source then frames[#frames + 1] = frame_text(info) end
    level = level + 1
  end
end

local function on_count()
  local frames, thread = {}, running()
  collect(nil, 2, frames)
  while thread and parents[thread] do
    thread = parents[thread]
    if thread == "main" then thread = main_thread end
    if not thread then break end
    collect(thread, 0, frames)
  end
  local n = #frames
  while n > 0 and frames[n] == "unknown" do n = n - 1 end
  if n > 0 and frames[n] == "pcall" then n = n - 1 end -- the one that runs the workload
  local line = {}
  for i = n, 1, -1 do line[#line + 1] = frames[i] end
  if n > 0 then
    local text = table.concat(line, ";")
    stacks[text] = (stacks[text] or 0) + 1
    count = count + 1
  end
end

-- The workload runs in a coroutine of ours, so that its frames can be read from
-- others that it resumes.
table.remove(arg, 1)
table.remove(arg, 1)
arg[0] = table.remove(arg, 1)
local chunk = assert(loadfile(script))
main_thread = coroutine.create(function() return chunk(unpack(arg)) end)
local sethook = debug.sethook
sethook(on_count, "", every)
local ok, message = real_resume(main_thread)
sethook()
if not ok then
  io.stderr:write(tostring(message), "\n")
  os.exit(1)
end
local file = assert(io.open(out_path, "w"))
for text, n in pairs(stacks) do file:write(text, " ", n, "\n") end
file:close()
io.stderr:write(("%d stacks of %d kinds\n"):format(count, (function()
  local kinds = 0
  for _ in pairs(stacks) do kinds = kinds + 1 end
  return kinds
end)()))
