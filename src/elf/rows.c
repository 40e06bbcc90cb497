/* SPDX-License-Identifier: MIT */
/* Tables of rows: interning of rules, merging, checks. */
#include <stdlib.h>
#include <string.h>

#include "elf/rows.h"
#include "moonspy/moonspy.h"

struct msp_rows *msp_rows_new(void)
{
	static const struct msp_rule none;
	struct msp_rows *rows = calloc(1, sizeof(*rows));

	if (rows && msp_rows_intern(rows, &none) != 0) {
		msp_rows_free(rows);
		return NULL;
	}
	return rows;
}

void msp_rows_free(struct msp_rows *rows)
{
	if (!rows)
		return;
	free(rows->rows);
	free(rows->rules);
	free(rows->slots);
	free(rows->functions);
	free(rows);
}

void *msp_elf_grow(void *array, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t want = *room ? *room * 2 : 64;

	if (count < *room)
		return array;
	array = reallocarray(array, want, size);
	if (array)
		*room = want;
	return array;
}

static uint32_t hash_rule(const struct msp_rule *rule)
{
	uint64_t words[sizeof(*rule) / 8], hash = 0;

	memcpy(words, rule, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull + (hash >> 29);
	return (uint32_t)(hash >> 32);
}

static int rehash(struct msp_rows *rows)
{
	uint32_t size = 256, *slots;

	/* A table from the cache comes without its hash. */
	while (size < rows->rule_count * 4)
		size *= 2;
	slots = calloc(size, sizeof(*slots));
	if (!slots)
		return MSP_E_NOMEM;
	for (uint32_t i = 0; i < rows->rule_count; i++) {
		uint32_t at = hash_rule(&rows->rules[i]) & (size - 1);

		while (slots[at])
			at = (at + 1) & (size - 1);
		slots[at] = i + 1;
	}
	free(rows->slots);
	rows->slots = slots;
	rows->slot_mask = size - 1;
	return 0;
}

int msp_rows_intern(struct msp_rows *rows, const struct msp_rule *rule)
{
	struct msp_rule *rules;
	uint32_t at;

	if (rows->rule_count * 2 >= rows->slot_mask) {
		int err = rehash(rows);

		if (err)
			return err;
	}
	at = hash_rule(rule) & rows->slot_mask;
	while (rows->slots[at]) {
		if (!memcmp(&rows->rules[rows->slots[at] - 1], rule, sizeof(*rule)))
			return (int)rows->slots[at] - 1;
		at = (at + 1) & rows->slot_mask;
	}
	if (rows->rule_count == MSP_RULES_MAX)
		return MSP_E_LIMIT;
	rules = msp_elf_grow(rows->rules, rows->rule_count, &rows->rule_room, sizeof(*rule));
	if (!rules)
		return MSP_E_NOMEM;
	rows->rules = rules;
	rows->rules[rows->rule_count] = *rule;
	rows->slots[at] = ++rows->rule_count;
	return (int)rows->rule_count - 1;
}

int msp_rows_add(struct msp_rows *rows, uint32_t addr, uint32_t rule)
{
	struct msp_row *last = rows->count ? &rows->rows[rows->count - 1] : NULL, *grown;

	if (last && last->addr == addr) {
		/* The row before had no length. It may now equal the one before that. */
		last->rule = rule;
		if (rows->count > 1 ? last[-1].rule == rule : rule == 0)
			rows->count--;
		return 0;
	}
	if (last ? last->rule == rule : rule == 0)
		return 0;
	if (rows->count == MSP_ROWS_MAX)
		return MSP_E_LIMIT;
	grown = msp_elf_grow(rows->rows, rows->count, &rows->room, sizeof(*grown));
	if (!grown)
		return MSP_E_NOMEM;
	rows->rows = grown;
	rows->rows[rows->count].addr = addr;
	rows->rows[rows->count++].rule = rule;
	return 0;
}

int msp_rows_add_function(struct msp_rows *rows, uint32_t addr)
{
	uint32_t *functions;

	if (rows->function_count && rows->functions[rows->function_count - 1] >= addr)
		return 0;
	functions = msp_elf_grow(rows->functions, rows->function_count, &rows->function_room,
				 sizeof(addr));
	if (!functions)
		return MSP_E_NOMEM;
	rows->functions = functions;
	rows->functions[rows->function_count++] = addr;
	return 0;
}

uint32_t msp_rows_find(const struct msp_rows *rows, uint32_t addr)
{
	uint32_t low = 0, high = rows->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (rows->rows[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? rows->rows[low - 1].rule : 0;
}

/* A merge of two tables: which of the two holds at an address. */
struct merge {
	bool fill; /* else replace in [start, end) */
	uint64_t start, end;
	uint32_t *map; /* rule of more -> rule of base, filled as needed; UINT32_MAX = not yet */
};

static int merged_rule(struct msp_rows *base, const struct msp_rows *more, struct merge *merge,
		       uint64_t addr, uint32_t base_rule, uint32_t more_rule)
{
	bool take_more = merge->fill ? base_rule == 0 : addr >= merge->start && addr < merge->end;

	if (!take_more)
		return (int)base_rule;
	if (merge->map[more_rule] == UINT32_MAX) {
		int rule = msp_rows_intern(base, &more->rules[more_rule]);

		if (rule < 0)
			return rule;
		merge->map[more_rule] = (uint32_t)rule;
	}
	return (int)merge->map[more_rule];
}

/* The next address above or at `addr` where anything may change. */
static uint64_t next_change(const struct msp_rows *base, uint32_t i, const struct msp_rows *more,
			    uint32_t j, const struct merge *merge, uint64_t last)
{
	uint64_t next = UINT64_MAX;

	if (i < base->count)
		next = base->rows[i].addr;
	if (j < more->count && more->rows[j].addr < next)
		next = more->rows[j].addr;
	if (!merge->fill && merge->start > last && merge->start < next)
		next = merge->start;
	if (!merge->fill && merge->end > last && merge->end < next)
		next = merge->end;
	return next;
}

static int merge_rows(struct msp_rows *base, const struct msp_rows *more, struct merge *merge)
{
	struct msp_rows result = {0};
	uint32_t i = 0, j = 0, base_rule = 0, more_rule = 0;
	uint64_t at, last = 0;
	int err = 0;

	/* Address 0 itself is a change that `last` would hide. */
	if (!merge->fill && merge->start == 0 && merge->end)
		err = merged_rule(base, more, merge, 0, 0, 0);
	while (err >= 0 && (at = next_change(base, i, more, j, merge, last)) <= UINT32_MAX) {
		while (i < base->count && base->rows[i].addr == at)
			base_rule = base->rows[i++].rule;
		while (j < more->count && more->rows[j].addr == at)
			more_rule = more->rows[j++].rule;
		last = at;
		err = merged_rule(base, more, merge, at, base_rule, more_rule);
		if (err >= 0)
			err = msp_rows_add(&result, (uint32_t)at, (uint32_t)err);
	}
	if (err < 0) {
		free(result.rows);
		return err;
	}
	free(base->rows);
	base->rows = result.rows;
	base->count = result.count;
	base->room = result.room;
	return 0;
}

static int merge_with_map(struct msp_rows *base, const struct msp_rows *more, struct merge *merge)
{
	int err;

	merge->map = malloc((size_t)more->rule_count * sizeof(*merge->map) + 1);
	if (!merge->map)
		return MSP_E_NOMEM;
	memset(merge->map, 0xff, (size_t)more->rule_count * sizeof(*merge->map));
	err = merge_rows(base, more, merge);
	free(merge->map);
	return err;
}

/* Both lists of functions in one. */
static int merge_functions(struct msp_rows *base, const struct msp_rows *more)
{
	struct msp_rows result = {0};
	uint32_t i = 0, j = 0;
	int err = 0;

	while (!err && (i < base->function_count || j < more->function_count)) {
		bool from_more =
			i == base->function_count ||
			(j < more->function_count && more->functions[j] < base->functions[i]);

		err = msp_rows_add_function(&result, from_more ? more->functions[j++]
							       : base->functions[i++]);
	}
	if (err) {
		free(result.functions);
		return err;
	}
	free(base->functions);
	base->functions = result.functions;
	base->function_count = result.function_count;
	base->function_room = result.function_room;
	return 0;
}

int msp_rows_fill(struct msp_rows *base, const struct msp_rows *more)
{
	struct merge merge = {.fill = true};
	int err = 0;

	if (more->function_count)
		err = merge_functions(base, more);
	if (!err && more->count)
		err = merge_with_map(base, more, &merge);
	return err;
}

int msp_rows_override(struct msp_rows *base, struct msp_rows *more)
{
	struct msp_rows old = *base;
	int err = msp_rows_fill(more, base);

	if (!err) {
		*base = *more;
		*more = old;
	}
	return err;
}

int msp_rows_replace(struct msp_rows *base, const struct msp_rows *more, uint32_t start,
		     uint32_t end)
{
	struct merge merge = {.start = start, .end = end};

	return start < end ? merge_with_map(base, more, &merge) : 0;
}

static bool rule_valid(const struct msp_rule *rule)
{
	/* Every register number is masked where it is used, but must mean what it says. */
	return rule->cfa_kind <= MSP_CFA_LANDING && rule->cfa_reg < MSP_REG_COUNT &&
	       (!rule->leaf || rule->flags & MSP_RULE_VM) &&
	       (rule->cfa_kind < MSP_CFA_RA_REG ||
		(rule->saved[MSP_SLOT_RA] >= 0 && rule->saved[MSP_SLOT_RA] < MSP_REG_COUNT)) &&
	       (rule->cfa_kind != MSP_CFA_LANDING ||
		(rule->cfa_off >= 0 && rule->cfa_off < MSP_REG_COUNT));
}

bool msp_rows_valid(const struct msp_row *rows, uint32_t count, const struct msp_rule *rules,
		    uint32_t rule_count)
{
	static const struct msp_rule none;

	if (!rule_count || memcmp(&rules[0], &none, sizeof(none)))
		return false;
	for (uint32_t i = 0; i < rule_count; i++)
		if (!rule_valid(&rules[i]))
			return false;
	for (uint32_t i = 0; i < count; i++)
		if (rows[i].rule >= rule_count || (i && rows[i].addr <= rows[i - 1].addr))
			return false;
	return true;
}
