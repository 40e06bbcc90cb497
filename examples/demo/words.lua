-- SPDX-License-Identifier: MIT
-- Strings and tables: gsub with a callback, sort with a comparison, concatenation.

local M = {}

local letters = {"ka", "lo", "mi", "ne", "ru", "sa", "to", "ve"}

-- A text that is the same for the same seed.
local function make_text(seed, count)
	local out = {}
	for i = 1, count do
		seed = (seed * 1103 + 12345) % 65536
		local word = letters[seed % 8 + 1] .. letters[math.floor(seed / 8) % 8 + 1]
		out[i] = seed % 3 == 0 and word .. letters[seed % 7 + 1] or word
	end
	return table.concat(out, " ")
end

local function capitalise(word)
	return word:sub(1, 1):upper() .. word:sub(2)
end

local function count_words(text)
	local counts = {}
	text:gsub("%a+", function(word)
		counts[word] = (counts[word] or 0) + 1
	end)
	return counts
end

local function by_count(a, b)
	if a.count ~= b.count then
		return a.count > b.count
	end
	return a.word < b.word
end

local function rank(counts)
	local list = {}
	for word, count in pairs(counts) do
		list[#list + 1] = {word = word, count = count}
	end
	table.sort(list, by_count)
	return list
end

function M.run(n)
	local text = make_text(n, 3000)
	local title = text:gsub("%a+", capitalise)
	local list = rank(count_words(title))
	return ("%s: %d"):format(list[1].word, list[1].count)
end

return M
