/* SPDX-License-Identifier: MIT */
/* Names without definition: the parent was collected. Call sites, keys, tail calls. */
#include "names_help.h"

#define WORKLOAD WORKLOADS "/names_gone.lua"

/* Of functions in it. */
#define CALLER_LINE 9
#define BY_SIZE_LINE 19
#define THROUGH_LINE 20

static struct lua lua;

static int setup(void **state)
{
	(void)state;
	lua_start(&lua, (const char *[]){WORKLOAD, NULL});
	lua_look(&lua);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lua_stop(&lua);
	return 0;
}

static const struct msp_proto *at_line(uint32_t line)
{
	return lua_find(&lua, "@gone.lua", line);
}

/* Is the main chunk, dead or alive, still in memory? Then definitions will be found after all. */
static bool main_found(void)
{
	return at_line(0) != NULL;
}

static const char *name_at(struct msp_lj_names *names, uint32_t line, uint64_t caller, uint32_t pos)
{
	const struct msp_proto *pt = at_line(line);
	const struct msp_lj_function *fn;

	assert_non_null(pt);
	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident, caller, pos, &fn), 0);
	assert_string_equal(fn->file, "gone.lua");
	assert_int_equal(fn->defined, line);
	return fn->name;
}

/* The names of the calls in the function at a line, in order; NULL: none. */
static void check_sites(uint32_t line, const char *const *expected, size_t count)
{
	const struct msp_proto *found = at_line(line);
	struct msp_bc_view view = {
		.layout = &lua_layout, .mem = &lua.mem, .set = msp_bc_set_find(&lua_layout)};
	struct msp_proto pt;
	size_t calls = 0;

	assert_non_null(found);
	assert_int_equal(msp_proto_read(&lua_layout, &lua.mem, found->addr, &pt), 0);
	view.pt = &pt;
	for (uint32_t pos = 1; pos < pt.sizebc; pos++) {
		struct msp_bc_ins ins = msp_view_ins(&view, pos);
		struct msp_site site;
		bool named;

		if (!msp_bc_is_call(ins.op))
			continue;
		view.work = MSP_VIEW_WORK;
		named = msp_site_find(&view, pos, &site);
		assert_true(calls < count);
		if (expected[calls])
			assert_string_equal(named ? site.name : "(none)", expected[calls]);
		else
			assert_false(named);
		calls++;
	}
	assert_int_equal(calls, count);
	msp_proto_free(&pt);
}

static void test_sites(void **state)
{
	static const char *const caller[] = {
		"visible", "jump",  "helper",	       NULL, NULL, "method",
		"visible", "floor", "global_function", NULL};
	/* unpack, the two locals it gave, two that share a slot, ipairs, each, the iterator, sort */
	static const char *const through[] = {"unpack", "first", NULL, "slot", "reused",
					      "ipairs", "each",	 NULL, "sort"};

	(void)state;
	check_sites(CALLER_LINE, caller, sizeof(caller) / sizeof(*caller));
	check_sites(THROUGH_LINE, through, sizeof(through) / sizeof(*through));
}

/* Position of the n-th call in the function at a line. */
static uint32_t call_in(uint32_t line, int n)
{
	const struct msp_proto *found = at_line(line);
	const struct msp_bc_set *set = msp_bc_set_find(&lua_layout);
	struct msp_proto pt;
	uint32_t result = 0;

	assert_int_equal(msp_proto_read(&lua_layout, &lua.mem, found->addr, &pt), 0);
	for (uint32_t pos = 1; pos < pt.sizebc && !result; pos++)
		if (msp_bc_is_call(msp_bc_decode(set, msp_proto_ins(&pt, pos)).op) && n-- == 0)
			result = pos;
	msp_proto_free(&pt);
	assert_true(result > 0);
	return result;
}

static uint32_t call_pos(int n)
{
	return call_in(CALLER_LINE, n);
}

/* What stands in a table under one key has that name, whoever asks. */
static void test_keys(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);

	(void)state;
	if (main_found())
		skip();
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	assert_string_equal(name_at(names, 5, 0, 0), "visible");
	assert_string_equal(name_at(names, 6, 0, 0), "jump");
	assert_string_equal(name_at(names, 7, 0, 0), "method");
	assert_string_equal(name_at(names, 9, 0, 0), "caller");
	assert_string_equal(name_at(names, 18, 0, 0), "global_function");
	/* Two keys: neither is better. */
	assert_string_equal(name_at(names, 4, 0, 0), "anonymous");
	msp_lj_names_free(names);
}

/* A local function has the name its call site gives it; one reached by a tail call has none. */
static void test_called(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	uint64_t caller = at_line(9)->addr;

	(void)state;
	if (main_found())
		skip();
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	/* M.jump() tail-calls it: it must not be named "jump". */
	assert_string_equal(name_at(names, 3, caller, call_pos(1)), "anonymous");
	assert_string_equal(name_at(names, 2, caller, call_pos(2)), "helper");
	/* One function, one name: it keeps it when it is seen from elsewhere. */
	assert_string_equal(name_at(names, 2, caller, call_pos(0)), "helper");
	assert_string_equal(name_at(names, 2, 0, 0), "helper");
	msp_lj_names_free(names);

	/* The upvalue "helper" holds another function than that: known from the closure. */
	names = lua_names(&lua, true);
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	assert_string_equal(name_at(names, 3, caller, call_pos(2)), "anonymous");
	msp_lj_names_free(names);
}

/* The last resort is a local variable; what an upvalue is known to hold has that name, also if handed on. */
static void test_variables(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	uint64_t through = at_line(THROUGH_LINE)->addr;

	(void)state;
	if (main_found())
		skip();
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	assert_string_equal(name_at(names, BY_SIZE_LINE, through, 0), "by_size");
	/* Keys come first; the second of two candidates is none. */
	assert_string_equal(name_at(names, 5, through, call_in(THROUGH_LINE, 1)), "visible");
	assert_string_equal(name_at(names, 3, through, call_in(THROUGH_LINE, 2)), "anonymous");
	assert_string_equal(name_at(names, 2, through, call_in(THROUGH_LINE, 4)), "reused");
	assert_string_equal(name_at(names, 4, through, call_in(THROUGH_LINE, 3)), "slot");
	msp_lj_names_free(names);
}

/* Without the index the call site is all there is; a second function there gets nothing. */
static void test_one_site_one_name(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, false);
	uint64_t caller = at_line(9)->addr;

	(void)state;
	if (main_found())
		skip();
	names->index.credit = 0;
	names->index.credit_time = UINT64_MAX;
	assert_string_equal(name_at(names, 2, caller, call_pos(2)), "helper");
	assert_string_equal(name_at(names, 3, caller, call_pos(2)), "anonymous");
	msp_lj_names_free(names);
}

/* Seen before the index knew what its caller's upvalues hold: it gets that name when it is seen again. */
static void test_seen_too_early(void **state)
{
	struct msp_lj_names *names = lua_names(&lua, true);
	uint64_t through = at_line(THROUGH_LINE)->addr;

	(void)state;
	if (main_found())
		skip();
	names->index.credit = 0;
	names->index.credit_time = UINT64_MAX;
	assert_string_equal(name_at(names, BY_SIZE_LINE, through, 0), "anonymous");
	assert_string_equal(name_at(names, BY_SIZE_LINE, through, 0), "anonymous");
	assert_int_equal(msp_lj_names_index(names, 10000000), 1);
	assert_string_equal(name_at(names, BY_SIZE_LINE, 0, 0), "anonymous");
	assert_string_equal(name_at(names, BY_SIZE_LINE, through, 0), "by_size");
	assert_string_equal(name_at(names, BY_SIZE_LINE, 0, 0), "by_size");
	msp_lj_names_free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sites),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_called),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_one_site_one_name),
		cmocka_unit_test(test_seen_too_early),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
