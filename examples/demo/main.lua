-- SPDX-License-Identifier: MIT
-- A program with something of everything to profile. Run it alone, or under moonspy:
--
--	luajit examples/demo/main.lua [SECONDS]
--	moonspy record -- luajit examples/demo/main.lua
--
-- Each module is a kind of work with a shape of its own in a flame graph.

local folder = arg[0]:match("^(.*/)") or "./"
package.path = folder .. "?.lua;" .. package.path

local puzzles = require("puzzles")
local picture = require("picture")
local planets = require("planets")
local words = require("words")
local pipeline = require("pipeline")

local seconds = tonumber(arg[1]) or 8

local function round(n)
	puzzles.run()
	picture.run(n)
	planets.run()
	words.run(n)
	pipeline.run(n)
end

local function work(deadline)
	local rounds = 0
	while os.clock() < deadline do
		rounds = rounds + 1
		round(rounds)
	end
	return rounds
end

io.stderr:write(("demo: %g seconds of work\n"):format(seconds))
local rounds = work(os.clock() + seconds)
io.stderr:write(("demo: %d rounds done\n"):format(rounds))
