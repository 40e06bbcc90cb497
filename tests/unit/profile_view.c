/* SPDX-License-Identifier: MIT */
/* What each member of a view takes away, seen as folded stacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output/output.h"

static uint32_t add_frame(struct msp_profile *p, struct msp_frame f)
{
	int64_t id = msp_profile_frame(p, &f);

	assert_true(id >= 0);
	return (uint32_t)id;
}

/* main > vm > f > ~g in two traces > memcpy at two addresses; f > kernel; native only; cut off. */
static struct msp_profile *make(void)
{
	struct msp_profile *p = msp_profile_new();
	uint32_t native = add_frame(p, (struct msp_frame){MSP_FRAME_NATIVE, .name = "main",
							  .object = "luajit", .address = 16});
	uint32_t vm = add_frame(p, (struct msp_frame){MSP_FRAME_NATIVE, .vm = true,
						      .object = "luajit", .address = 999});
	uint32_t f = add_frame(p, (struct msp_frame){MSP_FRAME_LUA, true, .name = "f",
						     .file = "a.lua", .defined = 1, .line = 2});
	uint32_t f3 = add_frame(p, (struct msp_frame){MSP_FRAME_LUA, true, .name = "f",
						      .file = "a.lua", .defined = 1, .line = 3});
	uint32_t g[2], memcpy_at[2];
	uint32_t kernel =
		add_frame(p, (struct msp_frame){MSP_FRAME_KERNEL, .name = "do_read", .address = 1});
	uint32_t gc = add_frame(p, (struct msp_frame){MSP_FRAME_STATE, .name = "[gc]"});
	uint32_t cut = add_frame(p, (struct msp_frame){MSP_FRAME_ERROR, .name = "[truncated]"});

	for (uint32_t i = 0; i < 2; i++) {
		g[i] = add_frame(p, (struct msp_frame){MSP_FRAME_INLINED, false, .name = "g",
						       .file = "a.lua", .defined = 5, .line = 6,
						       .trace = 1 + i});
		memcpy_at[i] =
			add_frame(p, (struct msp_frame){MSP_FRAME_CFUNCTION, true, .name = "c",
							.object = "c.so", .address = 32 + i});
		msp_profile_add(p, 1, 10 + (int32_t)i,
				(uint32_t[]){native, vm, f, g[i], memcpy_at[i]}, 5, 1);
	}
	msp_profile_add(p, 1, 10, (uint32_t[]){native, vm, f3, kernel}, 4, 1);
	msp_profile_add(p, 1, 10, (uint32_t[]){native, vm, f3, gc}, 4, 1);
	msp_profile_add(p, 1, 10, (uint32_t[]){native}, 1, 1);
	msp_profile_add(p, 1, 10, (uint32_t[]){cut, f}, 2, 1);
	msp_profile_set_name(p, 1, 11, "second");
	return p;
}

static void assert_view(struct msp_view view, const char *expected)
{
	struct msp_profile *p = make();
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(msp_format_write(msp_format_by_name("folded"), p, &view, out), 0);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
	msp_profile_free(p);
}

#define MAIN "main (luajit)"
#define F "f (a.lua:1)"
#define G "~g (a.lua:5)_[i]"
#define C "c (c.so)"

static void test_plain(void **state)
{
	assert_view((struct msp_view){0},
		    "[truncated];" F " 1\n" MAIN " 1\n" MAIN ";" F ";[gc] 1\n" MAIN ";" F
		    ";do_read_[k] 1\n" MAIN ";" F ";" G ";" C " 2\n");
}

static void test_lines(void **state)
{
	assert_view((struct msp_view){.lines = true},
		    "[truncated];" F ":2 1\n" MAIN " 1\n" MAIN ";" F ":2;~g (a.lua:5):6_[i];" C
		    " 2\n" MAIN ";" F ":3;[gc] 1\n" MAIN ";" F ":3;do_read_[k] 1\n");
}

static void test_lua_only(void **state)
{
	assert_view((struct msp_view){.lua_only = true},
		    "[truncated];" F " 1\n" F " 1\n" F ";[gc] 1\n" F ";" G ";" C " 2\n");
}

static void test_native_only(void **state)
{
	assert_view((struct msp_view){.native_only = true},
		    "[truncated] 1\n" MAIN " 2\n" MAIN ";" C " 2\n" MAIN ";do_read_[k] 1\n");
}

static void test_no_kernel(void **state)
{
	assert_view((struct msp_view){.no_kernel = true, .lua_only = true, .native_only = true},
		    "[truncated];" F " 1\n" MAIN " 1\n" MAIN ";" F " 1\n" MAIN ";" F
		    ";[gc] 1\n" MAIN ";" F ";" G ";" C " 2\n");
}

static void test_vm_frames(void **state)
{
	assert_view((struct msp_view){.vm_frames = true, .native_only = true},
		    "[truncated] 1\n" MAIN " 1\n" MAIN ";[luajit vm] 1\n" MAIN ";[luajit vm];" C
		    " 2\n" MAIN ";[luajit vm];do_read_[k] 1\n");
}

static void test_certain(void **state)
{
	assert_view((struct msp_view){.certain = true, .lua_only = true},
		    "[truncated];" F " 1\n" F " 1\n" F ";[gc] 1\n" F ";" C " 2\n");
}

static void test_threads(void **state)
{
	assert_view((struct msp_view){.threads = true, .native_only = true, .no_kernel = true},
		    "thread 10;[truncated] 1\nthread 10;" MAIN " 3\nthread 10;" MAIN ";" C
		    " 1\nthread 11 (second);" MAIN ";" C " 1\n");
}

static int count_one(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		     uint64_t count)
{
	++*(size_t *)ctx;
	return 0;
}

static size_t stacks_of(const struct msp_view *view)
{
	struct msp_profile *p = make(), *seen;
	size_t n = 0;

	assert_int_equal(msp_profile_view(p, view, &seen), 0);
	assert_int_equal(msp_profile_each(seen, count_one, &n), 0);
	msp_profile_free(p);
	msp_profile_free(seen);
	return n;
}

/* Traces and addresses are only told apart where they are asked for. */
static void test_exact(void **state)
{
	assert_int_equal(stacks_of(&(struct msp_view){.lines = true}), 5);
	assert_int_equal(stacks_of(&(struct msp_view){.lines = true, .exact = true}), 6);
}

static void test_quality_stays(void **state)
{
	struct msp_profile *p = make(), *seen;
	struct msp_view view = {.lua_only = true};

	msp_profile_quality(p)->samples = 6;
	msp_profile_set_meta(p, "command", "x");
	assert_int_equal(msp_profile_view(p, &view, &seen), 0);
	assert_int_equal(msp_profile_quality(seen)->samples, 6);
	assert_string_equal(msp_profile_meta(seen, "command"), "x");
	msp_profile_free(p);
	msp_profile_free(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),	  cmocka_unit_test(test_lines),
		cmocka_unit_test(test_lua_only),  cmocka_unit_test(test_native_only),
		cmocka_unit_test(test_no_kernel), cmocka_unit_test(test_vm_frames),
		cmocka_unit_test(test_certain),	  cmocka_unit_test(test_threads),
		cmocka_unit_test(test_exact),	  cmocka_unit_test(test_quality_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
