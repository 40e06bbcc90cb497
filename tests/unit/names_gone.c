/* SPDX-License-Identifier: MIT */
/* Names without definition: the parent was collected. Call sites, keys, tail calls. */
#include "names_help.h"

#define WORKLOAD WORKLOADS "/names_gone.lua"

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
	for (int i = 0; i < lua.protos; i++)
		if (lua.proto[i].firstline == line &&
		    lua_is_chunk(&lua, &lua.proto[i], "@gone.lua"))
			return &lua.proto[i];
	return NULL;
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

/* The names of the calls in "caller", in order. */
static void test_sites(void **state)
{
	static const char *const expected[] = {
		"visible", "jump",  "helper",	       NULL, NULL, "method",
		"visible", "floor", "global_function", NULL};
	const struct msp_proto *found = at_line(9);
	struct msp_bc_view view = {
		.layout = &lua_layout, .mem = &lua.mem, .set = msp_bc_set_find(&lua_layout)};
	struct msp_proto pt;
	size_t calls = 0;

	(void)state;
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
		assert_true(calls < sizeof(expected) / sizeof(*expected));
		if (expected[calls])
			assert_string_equal(named ? site.name : "(none)", expected[calls]);
		else
			assert_false(named);
		calls++;
	}
	assert_int_equal(calls, sizeof(expected) / sizeof(*expected));
	msp_proto_free(&pt);
}

/* Position of the n-th call in "caller". */
static uint32_t call_pos(int n)
{
	const struct msp_proto *found = at_line(9);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sites),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_called),
		cmocka_unit_test(test_one_site_one_name),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
