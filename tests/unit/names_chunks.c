/* SPDX-License-Identifier: MIT */
/* Chunk names of all kinds, lines, stripped bytecode. */
#include "names_help.h"

static struct lua lua;
static struct msp_lj_names *names;

static int setup(void **state)
{
	(void)state;
	lua_start(&lua, (const char *[]){WORKLOADS "/names_chunks.lua", NULL});
	lua_look(&lua);
	names = lua_names(&lua, true);
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	msp_lj_names_free(names);
	lua_stop(&lua);
	return 0;
}

#define BODY "local function work() return 1 end\nreturn work"
#define SOURCE "local first = 1 -- a source that is longer th"

/* Chunk name (or its beginning) and label: how LuaJIT writes it, or shorter and still distinct. */
static const struct {
	const char *chunk, *label;
} labels[] = {
	{"@plain/file.lua", "plain/file.lua"},
	{"=short", "short"},
	{BODY, "[string \"local function work() return 1 end...\"]"},
	{"@", "@"},
	{"=", "="},
	{"@with space;semi\tand tab.lua", "with space;semi\tand tab.lua"},
	{"=line one\nline two", "line one\nline two"},
	{"@/abs/path/./../x.lua", "/abs/path/./../x.lua"},
	{"no prefix", "[string \"no prefix\"]"},
	{"", "[string \"\"]"},
};

/* The functions "work" of the first part: label by chunk, no two the same. */
static void test_labels(void **state)
{
	const struct msp_lj_function *fn;
	const char *file[64], *chunk[64];
	size_t count = 0, matched = 0;

	(void)state;
	for (int i = 0; i < lua.protos; i++) {
		const struct msp_proto *pt = &lua.proto[i];
		bool known = false;

		if (pt->firstline != 1 || pt->numline != 0 ||
		    msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn) ||
		    !strncmp(fn->chunk, "local function a_local", 22))
			continue;
		/* Its main chunk may have been collected: then there is no name for it any more. */
		assert_string_equal(fn->name, fn->by_definition ? "work" : "anonymous");
		for (size_t j = 0; j < count; j++) {
			known = known || file[j] == fn->file;
			assert_true((file[j] == fn->file) == (chunk[j] == fn->chunk));
		}
		assert_true(strlen(fn->file) < MSP_LABEL_MAX);
		if (known)
			continue;
		for (size_t j = 0; j < sizeof(labels) / sizeof(*labels); j++)
			if (!strcmp(labels[j].chunk, fn->chunk)) {
				assert_string_equal(fn->file, labels[j].label);
				matched++;
			}
		file[count] = fn->file;
		chunk[count++] = fn->chunk;
	}
	assert_int_equal(matched, sizeof(labels) / sizeof(*labels));
	assert_int_equal(count, 17);
}

static int count_files(const char *begin, const char *end)
{
	const struct msp_lj_function *fn;
	const char *seen[8];
	int count = 0;

	for (int i = 0; i < lua.protos; i++) {
		size_t len, tail = strlen(end);
		bool known = false;

		if (msp_lj_names_function(names, lua.proto[i].addr, lua.proto[i].ident, 0, 0, &fn))
			continue;
		len = strlen(fn->file);
		if (strncmp(fn->file, begin, strlen(begin)) || len < tail ||
		    strcmp(fn->file + len - tail, end))
			continue;
		for (int j = 0; j < count; j++)
			known = known || seen[j] == fn->file;
		if (!known && count < 8)
			seen[count++] = fn->file;
	}
	return count;
}

/* Long names are shortened, and a number is added only where two would be the same. */
static void test_long_labels(void **state)
{
	(void)state;
	assert_int_equal(count_files("...", "d/d/one.lua"), 1);
	assert_int_equal(count_files("...", "d/d/two.lua"), 1);
	assert_int_equal(count_files("nnnnnnnn", "nnnn..."), 1);
	assert_int_equal(count_files("nnnnnnnn", ""), 2);
	assert_int_equal(count_files("[string \"" SOURCE, "...\"]"), 1);
	assert_int_equal(count_files("[string \"" SOURCE, ""), 2);
	assert_int_equal(count_files("...xxxxxx", ""), 1);
}

static const struct msp_proto *find(const char *file, uint32_t firstline)
{
	const struct msp_lj_function *fn;

	for (int i = 0; i < lua.protos; i++) {
		const struct msp_proto *pt = &lua.proto[i];

		if (pt->firstline == firstline &&
		    !msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn) &&
		    !strcmp(fn->file, file))
			return pt;
	}
	return NULL;
}

/* Every line that LuaJIT reports, with the lines in the cache and without. */
static void test_lines(void **state)
{
	struct msp_lj_names *fresh = lua_names(&lua, false);
	unsigned first, pos, line;
	int count = 0, used;
	char file[64];

	(void)state;
	for (const char *p = lua.text;
	     sscanf(p, "%63s %u %u %u\n%n", file, &first, &pos, &line, &used) == 4; p += used) {
		const struct msp_proto *pt = find(file, first);

		assert_non_null(pt);
		assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident, pos), line);
		assert_int_equal(msp_lj_names_line(fresh, pt->addr, pt->ident, pos), line);
		assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident, pt->sizebc),
				 pt->firstline + pt->numline);
		assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident, pt->sizebc + 1), 0);
		assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident, UINT32_MAX), 0);
		count++;
	}
	assert_int_equal(count, 33);
	msp_lj_names_free(fresh);
}

/* Stripped bytecode: what has a key has a name; the rest has none. */
static void test_stripped(void **state)
{
	int globals = 0, members = 0, others = 0;
	const struct msp_lj_function *fn;

	(void)state;
	for (int i = 0; i < lua.protos; i++) {
		const struct msp_proto *pt = &lua.proto[i];

		if (!lua_is_chunk(&lua, pt, "=stripped"))
			continue;
		assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn), 0);
		assert_int_equal(fn->defined, 0);
		assert_string_equal(fn->file, "stripped");
		assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident, 1), 0);
		globals += !strcmp(fn->name, "global");
		members += !strcmp(fn->name, "member");
		others += !strcmp(fn->name, "anonymous");
	}
	assert_int_equal(globals, 1);
	assert_int_equal(members, 1);
	assert_int_equal(others, 2);
}

/* Functions of the VM's own library that are bytecode: named by the library. */
static void test_builtin(void **state)
{
	const struct msp_lj_function *fn;
	int count = 0;

	(void)state;
	for (int i = 0; i < lua.protos; i++) {
		const struct msp_proto *pt = &lua.proto[i];

		if (pt->firstline != MSP_PROTO_BUILTIN_LINE)
			continue;
		assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn), 0);
		count += !strcmp(fn->name, "foreachi") && !strcmp(fn->file, "[builtin:foreachi]");
		assert_true(fn->by_definition);
		assert_int_equal(fn->defined, 0);
	}
	assert_int_equal(count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels),	cmocka_unit_test(test_long_labels),
		cmocka_unit_test(test_lines),	cmocka_unit_test(test_stripped),
		cmocka_unit_test(test_builtin),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
