/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "output/sysprof.h"

void sysprof_symbols_init(struct sysprof_symbols *symbols)
{
	/* The seed differs from run to run: nobody can prepare addresses that collide. */
	*symbols = (struct sysprof_symbols){.generation = 1, .seed = (uintptr_t)symbols};
}

void sysprof_symbols_free(struct sysprof_symbols *symbols)
{
	for (int i = 0; i < SYSPROF_LEVELS; i++)
		free(symbols->level[i].cfunc);
	free(symbols->proto);
	free(symbols->trace);
	msp_table_free(&symbols->proto_table);
	msp_table_free(&symbols->trace_table);
	msp_intern_free(&symbols->strings);
}

static int grow(void *array, uint32_t n, uint32_t *room, size_t size)
{
	void **at = array, *more;

	if (n < *room)
		return 0;
	if (n > UINT32_MAX / 4)
		return MSP_E_LIMIT;
	more = realloc(*at, (n ? n * 2 : 64) * size);
	if (!more)
		return MSP_E_NOMEM;
	*at = more;
	*room = n ? n * 2 : 64;
	return 0;
}

static uint32_t find_proto(const struct sysprof_symbols *s, uint64_t addr)
{
	struct msp_table_walk walk = msp_table_walk(&s->proto_table, msp_hash(addr, s->seed));
	uint32_t i;

	while ((i = msp_table_next(&s->proto_table, &walk)) != MSP_TABLE_NONE)
		if (s->proto[i].addr == addr)
			break;
	return i;
}

static uint32_t find_trace(const struct sysprof_symbols *s, uint64_t number)
{
	struct msp_table_walk walk = msp_table_walk(&s->trace_table, msp_hash(number, s->seed));
	uint32_t i;

	while ((i = msp_table_next(&s->trace_table, &walk)) != MSP_TABLE_NONE)
		if (s->trace[i].number == number)
			break;
	return i;
}

int sysprof_add_proto(struct sysprof_symbols *s, uint64_t addr, struct sysprof_string chunk,
		      uint64_t line)
{
	char text[MSP_LABEL_MAX];
	uint32_t i = find_proto(s, addr);
	int err;

	msp_chunk_label((const char *)chunk.data, chunk.size, false, text);
	if (i == MSP_TABLE_NONE) {
		if ((err = grow(&s->proto, s->protos, &s->proto_room, sizeof(*s->proto))) ||
		    (err = msp_table_reserve(&s->proto_table)))
			return err;
		i = s->protos++;
		msp_table_insert(&s->proto_table, msp_hash(addr, s->seed), i);
	}
	s->proto[i] = (struct sysprof_proto){addr, line, msp_intern_add(&s->strings, text)};
	s->generation++;
	return s->proto[i].label ? 0 : MSP_E_NOMEM;
}

int sysprof_add_trace(struct sysprof_symbols *s, uint64_t number, uint64_t proto, uint64_t line)
{
	uint32_t i = find_trace(s, number);
	int err;

	if (i == MSP_TABLE_NONE) {
		if ((err = grow(&s->trace, s->traces, &s->trace_room, sizeof(*s->trace))) ||
		    (err = msp_table_reserve(&s->trace_table)))
			return err;
		i = s->traces++;
		msp_table_insert(&s->trace_table, msp_hash(number, s->seed), i);
	}
	s->trace[i] = (struct sysprof_trace){number, proto, line};
	s->generation++;
	return 0;
}

/* Both sorted, into one; of equal addresses that of b stays. */
static size_t merge(struct sysprof_cfunc *to, const struct sysprof_level *a,
		    const struct sysprof_level *b)
{
	size_t i = 0, j = 0, n = 0;

	while (i < a->count || j < b->count) {
		if (j == b->count || (i < a->count && a->cfunc[i].addr < b->cfunc[j].addr)) {
			to[n++] = a->cfunc[i++];
			continue;
		}
		if (i < a->count && a->cfunc[i].addr == b->cfunc[j].addr)
			i++;
		to[n++] = b->cfunc[j++];
	}
	return n;
}

/* A level holds 2^i at most; a full one is merged into the next, as a carry is added. */
static int add_level(struct sysprof_symbols *s, struct sysprof_level added)
{
	for (int i = 0; i < SYSPROF_LEVELS; i++) {
		struct sysprof_level *level = &s->level[i], both;

		if (!level->count) {
			free(level->cfunc);
			*level = added;
			return 0;
		}
		both.cfunc = malloc((level->count + added.count) * sizeof(*both.cfunc));
		if (!both.cfunc)
			break;
		both.count = merge(both.cfunc, level, &added);
		free(level->cfunc);
		free(added.cfunc);
		*level = (struct sysprof_level){0};
		added = both;
	}
	free(added.cfunc);
	return MSP_E_NOMEM;
}

int sysprof_add_cfunc(struct sysprof_symbols *s, uint64_t addr, struct sysprof_string name)
{
	struct sysprof_level added = {malloc(sizeof(*added.cfunc)), 1};
	char text[MSP_LABEL_MAX];
	size_t size = name.size < sizeof(text) - 1 ? name.size : sizeof(text) - 1;
	const char *kept;

	if (size)
		memcpy(text, name.data, size);
	text[size] = 0;
	kept = msp_intern_add(&s->strings, text);
	if (!added.cfunc || !kept) {
		free(added.cfunc);
		return MSP_E_NOMEM;
	}
	*added.cfunc = (struct sysprof_cfunc){addr, kept};
	s->generation++;
	return add_level(s, added);
}

const struct sysprof_proto *sysprof_proto(const struct sysprof_symbols *s, uint64_t addr)
{
	uint32_t i = find_proto(s, addr);

	return i == MSP_TABLE_NONE ? NULL : &s->proto[i];
}

const struct sysprof_trace *sysprof_trace(const struct sysprof_symbols *s, uint64_t number)
{
	uint32_t i = find_trace(s, number);

	return i == MSP_TABLE_NONE ? NULL : &s->trace[i];
}

/* In one level: the last at or below addr. */
static const struct sysprof_cfunc *floor_of(const struct sysprof_level *level, uint64_t addr)
{
	size_t low = 0, high = level->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (level->cfunc[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &level->cfunc[low - 1] : NULL;
}

const struct sysprof_cfunc *sysprof_cfunc(const struct sysprof_symbols *s, uint64_t addr)
{
	const struct sysprof_cfunc *best = NULL;

	/* Lower levels are younger: of equal addresses the last one that was said counts. */
	for (int i = 0; i < SYSPROF_LEVELS; i++) {
		const struct sysprof_cfunc *found = floor_of(&s->level[i], addr);

		if (found && (!best || found->addr > best->addr))
			best = found;
	}
	return best;
}
