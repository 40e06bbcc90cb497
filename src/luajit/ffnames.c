/* SPDX-License-Identifier: MIT */
/*
 * Names of fast functions, by ffid, from the tables that the VM itself fills
 * its libraries from (lj_lib_init_*; written by buildvm, read by
 * lj_lib_register): number of the first function, then a tagged list of what
 * to register. The tables follow each other by their numbers.
 */
#include "luajit/build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elf/bytes.h"
#include "luajit/libinit.h"

/* ffid 0 is any Lua function, 1 any C function. */
#define FIRST_FFID 2
#define NEAR 32

#define MAX_SITES 65536

/* Where code takes the address of constant data in the register of a call's third argument. */
struct site {
	uint64_t target, addr;
};

struct sites {
	struct site *site;
	unsigned int count;
};

/* The library's name, as the code that registers the table passes it. */
struct library {
	char prefix[48]; /* "string.", "io:", "" */
};

static const char *identifier(const struct msp_lj_build *build, uint64_t addr)
{
	const char *s = msp_lj_image_string(build, addr);
	size_t n = 0;

	while (s && n < 32 && (isalnum((unsigned char)s[n]) || s[n] == '_' || s[n] == '.'))
		n++;
	return n && !s[n] ? s : NULL;
}

/*
 * x86-64: lea reg, [rip + rel32] at p, or mov reg, imm32 in a program with fixed addresses; what it
 * points at, 0: it is something else.
 */
static uint64_t x64_lea(const struct msp_lj_build *build, const uint8_t *p, uint64_t addr,
			uint8_t modrm)
{
	int32_t rel;

	if (build->position_dependent && p[0] == 0xb8 + (modrm >> 3)) {
		memcpy(&rel, p + 1, sizeof(rel));
		return (uint32_t)rel - msp_image_min_vaddr(build->image);
	}
	if (p[0] != 0x48 || p[1] != 0x8d || p[2] != modrm)
		return 0;
	memcpy(&rel, p + 3, sizeof(rel));
	return addr + 7 + (uint64_t)(int64_t)rel;
}

/* Arguments of calls, counted from 0; how x86-64 takes an address into each. */
#define NAME_ARG 1
#define TABLE_ARG 2
#define FUNCTIONS_ARG 3
static const uint8_t x64_modrm[] = {[NAME_ARG] = 0x35, [TABLE_ARG] = 0x15, [FUNCTIONS_ARG] = 0x0d};

/* arm64: what the instruction there makes, if it is for that argument; 0: nothing, or not for it. */
static uint64_t arm64_taken(const struct msp_lj_build *build, const uint8_t *p, uint64_t addr,
			    unsigned int arg)
{
	uint32_t word = msp_get32(p);
	uint64_t target;

	return addr % 4 == 0 && (word & 31) == arg && msp_lj_arm64_taken(build, addr, word, &target)
		       ? target
		       : 0;
}

static bool is_arm64(const struct msp_lj_build *build)
{
	return msp_image_arch(build->image) == MSP_ARCH_ARM64;
}

/* The address that the instruction at p, 8 bytes at least, takes into an argument; 0: it takes none. */
static uint64_t taken_address(const struct msp_lj_build *build, const uint8_t *p, uint64_t addr,
			      unsigned int arg)
{
	return is_arm64(build) ? arm64_taken(build, p, addr, arg)
			       : x64_lea(build, p, addr, x64_modrm[arg]);
}

/* What the code loads into a register nearest to a place, of what is wanted; 0: nothing. */
static uint64_t address_near(const struct msp_lj_build *build, const uint8_t *bytes, size_t size,
			     uint64_t base, size_t at, unsigned int arg,
			     bool (*wanted)(const struct msp_lj_build *build, uint64_t addr))
{
	for (size_t d = 1; d <= NEAR; d++) {
		for (int sign = -1; sign <= 1; sign += 2) {
			size_t i = at + (size_t)((long)d * sign);
			uint64_t to;

			if ((sign < 0 && d > at) || i + 8 > size)
				continue;
			to = taken_address(build, bytes + i, base + i, arg);
			if (to && wanted(build, to))
				return to;
		}
	}
	return 0;
}

static bool is_identifier(const struct msp_lj_build *build, uint64_t addr)
{
	return identifier(build, addr) != NULL;
}

/*
 * The name handed to the call that follows a place: the second argument. It is set behind the
 * place, or right before it; what comes from another register is not looked for.
 */
#define MAX_ARGUMENTS 12
static bool name_behind(const struct msp_lj_build *build, uint64_t addr, const char **name)
{
	struct msp_insn insn;
	const uint8_t *bytes;
	size_t avail;
	uint64_t to;

	for (unsigned int i = 0; i < MAX_ARGUMENTS; i++, addr += insn.size) {
		if (msp_code_decode(build->code, addr, &insn) != 0 || insn.op == MSP_OP_CALL ||
		    insn.op == MSP_OP_JMP)
			break;
		if (!(insn.writes >> MSP_X64_RSI & 1))
			continue;
		bytes = msp_image_bytes(build->image, addr, &avail);
		to = bytes && avail >= 8 ? taken_address(build, bytes, addr, NAME_ARG) : 0;
		*name = to ? identifier(build, to) : NULL;
		return true;
	}
	return false;
}

/* The same, set before the place. */
static const char *name_before(const struct msp_lj_build *build, const uint8_t *at, uint64_t addr)
{
	uint64_t to;
	for (unsigned int d = 2; d <= NEAR && d <= addr; d++) {
		const uint8_t *p = at - d;
		bool zero = p[0] == 0x31 && p[1] == 0xf6; /* xor esi, esi */
		bool copy = (p[0] & 0xfb) == 0x48 && p[1] == 0x89 && (p[2] & 0xc7) == 0xc6;

		if (zero || (d >= 3 && copy))
			return NULL;
		to = d >= 5 ? taken_address(build, p, addr - d, NAME_ARG) : 0;
		if (to && identifier(build, to))
			return identifier(build, to);
	}
	return NULL;
}

/* A table without a name belongs to what its luaopen_ function opens: its methods, or itself. */
static void prefix_by_symbol(struct msp_lj_build *build, uint64_t addr,
			     const struct msp_libinit *init, struct library *lib)
{
	static const char open[] = "luaopen_";
	struct msp_symbol sym;
	bool methods = false;

	if (msp_image_symbol(build->image, addr, &sym) != 0 || addr - sym.addr >= sym.size ||
	    strncmp(sym.name, open, sizeof(open) - 1) != 0)
		return;
	for (unsigned int i = 0; i < init->count; i++)
		methods |= strncmp(init->func[i].name, "__", 2) == 0;
	/* Link-time optimisation puts something behind the name. */
	snprintf(lib->prefix, sizeof(lib->prefix), "%.*s%c",
		 (int)strcspn(sym.name + sizeof(open) - 1, "."), sym.name + sizeof(open) - 1,
		 methods ? ':' : '.');
	for (char *c = lib->prefix; *c; c++)
		*c = *c == '_' ? '.' : *c;
}

/* Has a segment constants? Linkers keep them apart from code (-z separate-code), or do not. */
static bool has_constants(const struct msp_lj_build *build, unsigned int s)
{
	bool apart = false;

	for (unsigned int i = 0; i < build->segment_count; i++)
		apart |= !build->segment[i].exec && !build->segment[i].write;
	return !build->segment[s].write && (!build->segment[s].exec || !apart);
}

static bool in_constants(const struct msp_lj_build *build, uint64_t addr)
{
	for (unsigned int i = 0; i < build->segment_count; i++) {
		const struct msp_lj_segment *seg = &build->segment[i];

		if (has_constants(build, i) && addr >= seg->addr &&
		    addr - seg->addr < seg->file_size)
			return true;
	}
	return false;
}

/* One pass over the code for all tables: programs can be large. */
static void find_sites(const struct msp_lj_build *build, struct sites *sites)
{
	for (unsigned int s = 0; s < build->segment_count; s++) {
		uint64_t base = build->segment[s].addr, target;
		size_t size, step = msp_code_abi(build->code)->align;
		const uint8_t *bytes = msp_lj_segment_bytes(build, s, &size);

		if (!build->segment[s].exec || !bytes)
			continue;
		for (size_t i = 0; i + 8 <= size && sites->count < MAX_SITES; i += step) {
			target = taken_address(build, bytes + i, base + i, TABLE_ARG);
			if (target && in_constants(build, target))
				sites->site[sites->count++] = (struct site){target, base + i};
		}
	}
}

/* arm64: the name that is an argument of the call behind a place. */
static const char *arm64_name(const struct msp_lj_build *build, uint64_t addr, unsigned int arg)
{
	uint64_t to;

	return msp_lj_arm64_argument(build, addr, (uint8_t)arg, &to) ? identifier(build, to) : NULL;
}

static void find_library(struct msp_lj_build *build, const struct sites *sites,
			 const struct msp_libinit *init, struct library *lib)
{
	lib->prefix[0] = 0;
	for (unsigned int i = 0; i < sites->count; i++) {
		uint64_t addr = sites->site[i].addr, start = addr < NEAR ? 0 : addr - NEAR;
		size_t avail;
		const uint8_t *bytes = msp_image_bytes(build->image, start, &avail);
		const char *name;

		if (sites->site[i].target != init->addr || !bytes)
			continue;
		name = NULL;
		if (is_arm64(build))
			name = arm64_name(build, addr, NAME_ARG);
		else if (!name_behind(build, addr, &name) && avail >= addr - start + 8)
			name = name_before(build, bytes + (addr - start), addr);
		/* Global functions, which come first, have no prefix. */
		if (!name && init->ffid != FIRST_FFID)
			prefix_by_symbol(build, addr, init, lib);
		else if (name && strcmp(name, "_G") != 0)
			snprintf(lib->prefix, sizeof(lib->prefix), "%s.", name);
		return;
	}
}

/* mov edx, number; movz w2, number */
static bool loads_number(const struct msp_lj_build *build, const uint8_t *p, uint64_t addr,
			 uint32_t number)
{
	uint32_t imm;

	if (is_arm64(build))
		return addr % 4 == 0 && msp_get32(p) == (0x52800002 | number << 5);
	memcpy(&imm, p + 1, sizeof(imm));
	return p[0] == 0xba && imm == number;
}

/* Functions that are registered later: number, function and name next to each other. */
static const char *name_by_number(const struct msp_lj_build *build, unsigned int ffid)
{
	/* There numbers look like addresses, and any string is near. */
	if (build->position_dependent && !is_arm64(build))
		return NULL;
	for (unsigned int s = 0; s < build->segment_count; s++) {
		size_t size;
		const uint8_t *bytes = msp_lj_segment_bytes(build, s, &size);

		for (size_t i = 0; build->segment[s].exec && bytes && i + 5 <= size; i++) {
			uint64_t base = build->segment[s].addr, name;

			if (!loads_number(build, bytes + i, base + i, ffid))
				continue;
			if (is_arm64(build)) {
				if (msp_lj_arm64_argument(build, base + i, NAME_ARG, &name) &&
				    msp_lj_in_exec(build, name) &&
				    arm64_name(build, base + i, FUNCTIONS_ARG))
					return arm64_name(build, base + i, FUNCTIONS_ARG);
				continue;
			}
			name = address_near(build, bytes, size, base, i, FUNCTIONS_ARG,
					    is_identifier);
			if (name &&
			    address_near(build, bytes, size, base, i, NAME_ARG, msp_lj_in_exec))
				return identifier(build, name);
		}
	}
	return NULL;
}

static void set_name(struct msp_lj_build *build, unsigned int ffid, const char *prefix,
		     const char *name, const char *suffix)
{
	char text[128];

	if (ffid >= MSP_LJ_MAX_FF)
		return;
	snprintf(text, sizeof(text), "%s%s%s", prefix, name, suffix);
	free(build->ff_name[ffid]);
	build->ff_name[ffid] = strdup(text);
}

/* Its function with that number, by the table of C functions whose address is taken next to addr. */
static uint64_t function_near(const struct msp_lj_build *build, uint64_t addr, unsigned int number)
{
	uint64_t start = addr < NEAR ? 0 : addr - NEAR, table;
	size_t avail, at;
	const uint8_t *bytes = msp_image_bytes(build->image, start, &avail);

	if (is_arm64(build)) {
		if (!msp_lj_arm64_argument(build, addr, FUNCTIONS_ARG, &table))
			return 0;
		table = msp_lj_pointer_at(build, table + number * 8ULL);
		return table && msp_lj_in_exec(build, table) ? table : 0;
	}
	for (size_t d = 0; bytes && d < 2 * NEAR; d++) {
		/* 0, 1, -1, 2, -2, ... */
		at = (size_t)(addr - start) + (d & 1 ? d / 2 + 1 : -(d / 2));
		if (at > 2 * NEAR || at + 8 > avail)
			continue;
		table = taken_address(build, bytes + at, start + at, FUNCTIONS_ARG);
		table = table ? msp_lj_pointer_at(build, table + number * 8ULL) : 0;
		if (table && msp_lj_in_exec(build, table))
			return table;
	}
	return 0;
}

static uint64_t find_function(const struct msp_lj_build *build, const struct sites *sites,
			      const struct msp_libinit *init, unsigned int number)
{
	uint64_t found = 0;

	for (unsigned int i = 0; i < sites->count && !found; i++) {
		if (sites->site[i].target == init->addr)
			found = function_near(build, sites->site[i].addr, number);
	}
	return found;
}

static void add_table(struct msp_lj_build *build, const struct sites *sites,
		      const struct msp_libinit *init)
{
	struct library lib;

	find_library(build, sites, init, &lib);
	for (unsigned int i = 0; i < init->count; i++) {
		const char *name = init->func[i].name;
		unsigned int ffid = init->ffid + i;

		if (!strcmp(name, "tracesnap"))
			build->tracesnap = find_function(build, sites, init, i);
		if (!strcmp(name, "running"))
			build->coroutine_running = find_function(build, sites, init, i);
		if (name[0]) {
			set_name(build, ffid, lib.prefix, name, "");
			continue;
		}
		/* Helpers have no name; they come right before the function that they help. */
		if (i + 1 < init->count && init->func[i + 1].name[0]) {
			set_name(build, ffid, lib.prefix, init->func[i + 1].name, "_aux");
			continue;
		}
		name = name_by_number(build, ffid);
		if (name)
			set_name(build, ffid, lib.prefix, name, "");
	}
}

static bool is_referenced(const struct sites *sites, uint64_t target)
{
	for (unsigned int i = 0; i < sites->count; i++) {
		if (sites->site[i].target == target)
			return true;
	}
	return false;
}

/*
 * The table whose numbers continue there; ffasm can be higher by some, which had no name. The code
 * that registers it takes its address; in a program with much else that tells it from chance hits.
 */
static bool find_table(struct msp_lj_build *build, const struct sites *sites, unsigned int ffid,
		       unsigned int ffasm, unsigned int slack, struct msp_libinit *init)
{
	for (unsigned int s = 0; s < build->segment_count; s++) {
		size_t size;
		const uint8_t *bytes = msp_lj_segment_bytes(build, s, &size);

		if (!has_constants(build, s) || !bytes)
			continue;
		for (size_t i = 0; i + 4 <= size; i++) {
			if (bytes[i] != ffid || bytes[i + 1] < ffasm ||
			    bytes[i + 1] > ffasm + slack ||
			    !msp_libinit_parse(bytes + i, size - i, init) ||
			    !is_referenced(sites, build->segment[s].addr + i))
				continue;
			init->addr = build->segment[s].addr + i;
			return true;
		}
	}
	return false;
}

void msp_lj_find_ff_names(struct msp_lj_build *build)
{
	struct msp_libinit *init = calloc(1, sizeof(*init));
	struct sites sites = {.site = calloc(MAX_SITES, sizeof(*sites.site))};
	unsigned int ffid = FIRST_FFID, ffasm = 0, slack = 0;

	if (!init || !sites.site)
		goto out;
	find_sites(build, &sites);
	while (ffid < MSP_LJ_MAX_FF && find_table(build, &sites, ffid, ffasm, slack, init) &&
	       init->count) {
		add_table(build, &sites, init);
		ffid += init->count;
		ffasm = init->ffasm + init->asm_count;
		slack = init->nameless;
	}
	build->ff_count = ffid;
	build->ff_asm_count = ffasm;
out:
	free(sites.site);
	free(init);
}
