/* SPDX-License-Identifier: MIT */
/*
 * Names when the parent was collected and its memory is still there, but for the last bytes,
 * into which the allocator has put a size: the variable that names a function may be lost, and
 * what is read instead of it is no name.
 */
#include "names_help.h"

#define WORKLOAD WORKLOADS "/names_freed.lua"
#define SORTED_LINE 6
#define EVENT_LINE 7

static struct lua lua;

/* What is read at the end of the main chunk's prototype. */
static struct {
	uint64_t end, value;
	size_t size; /* bytes of the value that lie in the prototype */
} freed;

static int freed_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	uint64_t from = freed.end - freed.size;
	int error = lua_read(ctx, addr, buf, size);

	for (size_t i = 0; !error && i < freed.size; i++)
		if (from + i >= addr && from + i < addr + size)
			((uint8_t *)buf)[from + i - addr] = freed.value >> 8 * i;
	return error;
}

static const struct msp_proto *at_line(uint32_t line)
{
	const struct msp_proto *pt = lua_find(&lua, "@" WORKLOAD, line);

	if (!pt)
		fail_msg("no function at line %u", line);
	return pt;
}

/* Position of the first call in it. */
static uint32_t first_call(const struct msp_proto *found)
{
	const struct msp_bc_set *set = msp_bc_set_find(&lua_layout);
	struct msp_proto pt;
	uint32_t pos = 1;

	assert_int_equal(msp_proto_read(&lua_layout, &lua.mem, found->addr, &pt), 0);
	while (pos < pt.sizebc && !msp_bc_is_call(msp_bc_decode(set, msp_proto_ins(&pt, pos)).op))
		pos++;
	assert_true(pos < pt.sizebc);
	msp_proto_free(&pt);
	return pos;
}

static const char *name_of(struct msp_lj_names *names, const struct msp_proto *pt,
			   const struct msp_proto *caller, uint32_t pos)
{
	const struct msp_lj_function *fn;

	assert_int_equal(msp_lj_names_function(names, pt->addr, pt->ident,
					       caller ? caller->addr : 0, pos, &fn),
			 0);
	return fn->name;
}

/* Sizes of free blocks, as small and as large as they come. */
static void test_freed(void **state)
{
	static const uint64_t size[] = {0x20,	 0x80,	 0x100,	  0x140,   0x180,
					0x7ff10, 0x8080, 0x10000, 0x81810, 0x1000000};
	const struct msp_proto *sorted = at_line(SORTED_LINE), *event = at_line(EVENT_LINE);
	uint32_t pos = first_call(event);

	(void)state;
	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
		for (freed.size = 0; freed.size <= 8; freed.size++) {
			struct msp_lj_names *names = lua_names(&lua, true);

			freed.value = size[i];
			assert_int_equal(msp_lj_names_index(names, 10000000), 1);
			assert_string_equal(name_of(names, sorted, event, pos), "sorted");
			assert_string_equal(name_of(names, event, NULL, 0), "event");
			msp_lj_names_free(names);
		}
}

/* Seen without its caller it has no name yet, and gets it from there; never another. */
static void test_no_other(void **state)
{
	const struct msp_proto *sorted = at_line(SORTED_LINE), *event = at_line(EVENT_LINE);
	uint32_t pos = first_call(event);

	(void)state;
	freed.value = 0x180;
	for (freed.size = 3; freed.size <= 8; freed.size++) {
		struct msp_lj_names *names = lua_names(&lua, true);

		assert_int_equal(msp_lj_names_index(names, 10000000), 1);
		assert_string_equal(name_of(names, sorted, NULL, 0), "anonymous");
		assert_string_equal(name_of(names, sorted, event, pos), "sorted");
		msp_lj_names_free(names);
	}
	freed.size = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed),
		cmocka_unit_test(test_no_other),
	};
	const struct msp_proto *parent;
	int failed;

	lua_start(&lua, (const char *[]){WORKLOAD, NULL});
	lua_look(&lua);
	parent = at_line(0);
	freed.end = parent->addr + parent->sizept;
	lua.mem.read = freed_read;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	lua_stop(&lua);
	return failed;
}
