/* SPDX-License-Identifier: MIT */
/* Names by definition, against the comments in tests/workloads/names.lua. */
#include "names_help.h"

#define WORKLOAD WORKLOADS "/names.lua"
#define LINES_MAX 400
#define LINE_PLAIN 5 /* where "plain" is defined */

static struct lua lua;
static char *expected[LINES_MAX]; /* by line */

static void read_expected(void)
{
	char line[512];
	FILE *f = fopen(WORKLOAD, "r");

	assert_non_null(f);
	for (int n = 1; n < LINES_MAX && fgets(line, sizeof(line), f); n++) {
		char *mark = strstr(line, "--> ");

		if (!mark || n < 4)
			continue;
		mark[strcspn(mark, "\n")] = 0;
		expected[n] = strdup(mark + 4);
	}
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	read_expected();
	lua_start(&lua, (const char *[]){WORKLOAD, NULL});
	lua_look(&lua);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lua_stop(&lua);
	for (int i = 0; i < LINES_MAX; i++)
		free(expected[i]);
	return 0;
}

/* Asks for all prototypes of the workload; counts and prints what is wrong. */
static int check_all(struct msp_lj_names *names, int *seen)
{
	const struct msp_lj_function *fn;
	int wrong = 0;

	*seen = 0;
	for (int i = 0; i < lua.protos; i++) {
		struct msp_proto *pt = &lua.proto[i];
		const char *want;

		if (!lua_is_chunk(&lua, pt, "@" WORKLOAD))
			continue;
		assert_in_range(pt->firstline, 0, LINES_MAX - 1);
		want = pt->firstline ? expected[pt->firstline] : "main chunk";
		assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn), 0);
		assert_string_equal(fn->file, WORKLOAD);
		assert_string_equal(fn->chunk, "@" WORKLOAD);
		assert_int_equal(fn->defined, pt->firstline);
		++*seen;
		if (!want || strcmp(fn->name, want) ||
		    fn->by_definition != !!strcmp(fn->name, "anonymous")) {
			print_error("line %u: %s, expected %s\n", pt->firstline, fn->name, want);
			wrong++;
		}
	}
	return wrong;
}

static int expected_count(void)
{
	int count = 1;

	for (int i = 0; i < LINES_MAX; i++)
		count += expected[i] != NULL;
	return count;
}

/* With an index built ahead. */
static void test_definitions_indexed(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	int seen;

	(void)state;
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	assert_int_equal(check_all(names, &seen), 0);
	assert_int_equal(seen, expected_count());
	msp_lj_names_free(names);
}

/* With nothing given: it looks around the functions that are asked for. */
static void test_definitions_near(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, false);
	int seen;

	(void)state;
	assert_int_equal(check_all(names, &seen), 0);
	msp_lj_names_free(names);
}

static const struct msp_proto *at_line(uint32_t line)
{
	const struct msp_proto *pt = lua_find(&lua, "@" WORKLOAD, line);

	if (!pt)
		fail_msg("no function at line %u", line);
	return pt;
}

/* No scanning at all. */
static void forbid_index(struct msp_lj_names *names)
{
	names->index.credit = 0;
	names->index.credit_time = UINT64_MAX;
}

/* As the hosts do it: with the build that was found in the program. */
static void test_definitions_of_build(void **state)
{
	struct msp_image *image;
	struct msp_lj_build *build = lua_build(&lua, &image);
	struct msp_lj_names *names = msp_lj_names_new(build, &lua.mem, 0);
	int seen;

	(void)state;
	assert_non_null(names);
	assert_int_equal(check_all(names, &seen), 0);
	assert_int_equal(seen, expected_count());
	msp_lj_names_free(names);
	msp_lj_build_free(build);
	msp_image_close(image);
}

/* With the caller only: what the main chunk calls is defined in it. */
static void test_definition_in_caller(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	const struct msp_proto *main_pt = at_line(0), *pt = at_line(LINE_PLAIN);
	const struct msp_lj_function *fn;

	(void)state;
	forbid_index(names);
	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, main_pt->addr, 1, &fn),
			 0);
	assert_string_equal(fn->name, "plain");
	assert_true(fn->by_definition);
	msp_lj_names_free(names);
}

/* The second answer is the first one, from memory. */
static void test_cached(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	const struct msp_lj_function *fn, *again;
	long reads;

	(void)state;
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	for (int i = 0; i < lua.protos; i++) {
		struct msp_proto *pt = &lua.proto[i];

		if (msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn))
			continue;
		reads = lua.reads;
		assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &again),
				 0);
		assert_ptr_equal(fn, again);
		assert_int_equal(lua.reads, reads);
	}
	msp_lj_names_free(names);
}

/* Asked too early: no name, and the definition once the index is there, in steps as small as wanted. */
static void test_improves(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	const struct msp_lj_function *early = NULL, *late = NULL;
	const struct msp_proto *pt = at_line(LINE_PLAIN);
	int steps = 1;

	(void)state;
	forbid_index(names);
	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &early), 0);
	assert_string_equal(early->name, "anonymous");
	assert_false(early->by_definition);
	while (!msp_lj_names_index(names, 1))
		steps++;
	assert_true(steps > 1);
	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &late), 0);
	assert_string_equal(late->name, "plain");
	assert_true(late->by_definition);
	assert_string_equal(early->name, "anonymous"); /* still valid */
	msp_lj_names_free(names);
}

/* Another identity at the address: gone, not a wrong name. */
static void test_gone(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	const struct msp_lj_function *fn;
	struct msp_proto *pt = &lua.proto[0];

	(void)state;
	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident ^ 1, 0, 0, &fn),
			 MSP_E_GONE);
	assert_int_equal(msp_lj_names_function(names, pt->addr + 8, pt->ident, 0, 0, &fn),
			 MSP_E_GONE);
	assert_int_equal(msp_lj_names_function(names, 8, pt->ident, 0, 0, &fn), MSP_E_GONE);
	assert_int_equal(msp_lj_names_line(names, pt->addr, pt->ident ^ 1, 1), 0);
	assert_int_equal(msp_lj_names_function(names, 0, 0, 0, 0, &fn), MSP_E_INVALID);
	msp_lj_names_free(names);
}

/* Opcodes of a generation that is not known: no definition rather than a wrong one. */
static void test_unknown_opcodes(void **state)
{
	struct msp_lj_layout layout = lua_layout;
	const struct msp_lj_function *fn;
	struct msp_lj_names *names;

	(void)state;
	layout.bc_funcf = 77;
	names = msp_lj_names_new_layout(&layout, &lua.mem, 0);
	assert_non_null(names);
	assert_int_equal(msp_lj_names_index(names, 1000), MSP_E_UNSUPPORTED);
	for (int i = 0; i < lua.protos; i++) {
		struct msp_proto *pt = &lua.proto[i];

		if (!pt->firstline || !lua_is_chunk(&lua, pt, "@" WORKLOAD))
			continue;
		assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, 0, 0, &fn), 0);
		assert_string_equal(fn->name, "anonymous");
		assert_false(fn->by_definition);
	}
	msp_lj_names_free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_definitions_indexed),
		cmocka_unit_test(test_definitions_near),
		cmocka_unit_test(test_definitions_of_build),
		cmocka_unit_test(test_definition_in_caller),
		cmocka_unit_test(test_cached),
		cmocka_unit_test(test_improves),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_unknown_opcodes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
