/* SPDX-License-Identifier: MIT */
/*
 * The kernel's symbol table, from /proc/kallsyms, where it is sorted but for
 * modules. A thread of its own reads it: it takes longer than all else of a
 * start, and most samples need none of it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols/symbols.h"

#define READ_SIZE 65536

struct kernel_symbol {
	uint64_t addr;
	uint32_t name;	 /* offsets into text */
	uint32_t module; /* 0: the kernel itself */
};

struct table {
	pthread_t thread;
	bool loading; /* the thread has the rest to itself */
	struct kernel_symbol *symbol;
	size_t count, room;
	char *text;
	size_t used, size;
};

struct msp_kernel_symbols {
	struct table *table;
};

static uint32_t keep_text(struct table *k, const char *text)
{
	size_t length = strlen(text) + 1;
	char *bigger;

	if (k->used + length > k->size) {
		k->size = k->size * 2 + length + 4096;
		bigger = realloc(k->text, k->size);
		if (!bigger)
			return 0;
		k->text = bigger;
	}
	memcpy(k->text + k->used, text, length);
	k->used += length;
	return k->used - length;
}

static bool add_symbol(struct table *k, uint64_t addr, const char *name, const char *module)
{
	struct kernel_symbol *bigger;

	if (k->count == k->room) {
		size_t room = k->room ? 2 * k->room : 65536;

		bigger = realloc(k->symbol, room * sizeof(*bigger));
		if (!bigger)
			return false;
		k->symbol = bigger;
		k->room = room;
	}
	k->symbol[k->count].addr = addr;
	k->symbol[k->count].name = keep_text(k, name);
	k->symbol[k->count].module = module[0] ? keep_text(k, module) : 0;
	k->count++;
	return true;
}

static int by_address(const void *a, const void *b)
{
	const struct kernel_symbol *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* "ffffffff81000000 T _stext" or "ffffffffc0000000 t f	[module]"; 200,000 of them, so not by sscanf(). */
static bool parse_line(struct table *k, char *line)
{
	char *name, *module, *end;
	uint64_t addr = strtoull(line, &end, 16);

	if (!addr || *end != ' ' || !end[1] || !strchr("tTwW", end[1]) || end[2] != ' ')
		return true;
	name = end + 3;
	end = name + strcspn(name, "\t\n");
	module = *end == '\t' && end[1] == '[' ? end + 2 : "";
	*end = 0;
	if (*module)
		module[strcspn(module, "]\n")] = 0;
	return add_symbol(k, addr, name, module);
}

static void read_symbols(struct table *k, FILE *in)
{
	char *line = NULL;
	size_t size = 0;

	setvbuf(in, NULL, _IOFBF, 1 << 20); /* the kernel fills what it is given */
	while (getline(&line, &size, in) > 0 && parse_line(k, line))
		;
	free(line);
}

static void *load(void *arg)
{
	struct table *k = arg;
	FILE *in = fopen("/proc/kallsyms", "re");
	char *buffer = malloc(READ_SIZE);

	if (in) {
		if (buffer) /* without one of ours it is read by the kilobyte: it has five thousand of them */
			setvbuf(in, buffer, _IOFBF, READ_SIZE);
		keep_text(k, "kernel");
		read_symbols(k, in);
		fclose(in);
	}
	free(buffer);
	if (k->count)
		qsort(k->symbol, k->count, sizeof(*k->symbol), by_address);
	return NULL;
}

struct msp_kernel_symbols *msp_kernel_symbols_load(void)
{
	struct msp_kernel_symbols *k = calloc(1, sizeof(*k));

	if (!k || !(k->table = calloc(1, sizeof(*k->table)))) {
		free(k);
		return NULL;
	}
	k->table->loading = !pthread_create(&k->table->thread, NULL, load, k->table);
	if (!k->table->loading)
		load(k->table);
	return k;
}

bool msp_kernel_symbols_ready(const struct msp_kernel_symbols *k)
{
	if (k->table->loading && !pthread_tryjoin_np(k->table->thread, NULL))
		k->table->loading = false;
	return !k->table->loading;
}

static struct table *loaded(const struct msp_kernel_symbols *k)
{
	if (k->table->loading)
		pthread_join(k->table->thread, NULL);
	k->table->loading = false;
	return k->table;
}

void msp_kernel_symbols_free(struct msp_kernel_symbols *k)
{
	if (!k)
		return;
	free(loaded(k)->symbol);
	free(k->table->text);
	free(k->table);
	free(k);
}

bool msp_kernel_symbol(const struct msp_kernel_symbols *symbols, uint64_t addr, const char **name,
		       const char **module)
{
	const struct table *k;
	size_t lo = 0, hi, mid;

	if (!symbols)
		return false;
	k = loaded(symbols);
	hi = k->count;
	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (k->symbol[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return false;
	*name = k->text + k->symbol[lo - 1].name;
	*module = k->text + k->symbol[lo - 1].module;
	return true;
}
