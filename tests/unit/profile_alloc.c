/* SPDX-License-Identifier: MIT */
/*
 * Every allocation fails once: gathering, viewing, writing and reading a profile each say so, and
 * leave nothing behind (as far as a build with ASAN sees). Linked with --wrap for the allocator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output/output.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static long until_failure = -1; /* allocations that still succeed; negative: all */

static bool fails(void)
{
	return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

static int gather(struct msp_profile *p)
{
	int err = msp_profile_set_name(p, 1, 0, "process");

	for (uint32_t i = 0; !err && i < 40; i++) {
		char name[40];
		struct msp_frame f = {MSP_FRAME_LUA, true, .name = name, .file = "a.lua"};
		uint32_t ids[2];
		int64_t id;

		snprintf(name, sizeof(name), "function %u", i);
		if ((id = msp_profile_frame(p, &f)) < 0)
			return (int)id;
		ids[0] = ids[1] = (uint32_t)id;
		err = msp_profile_add(p, 1 + (int32_t)i % 2, (int32_t)i, ids, 2, 1);
	}
	if (!err)
		err = msp_profile_set_object(p, "a.so", "0123", "/lib/a.so");
	return err ? err : msp_profile_set_meta(p, "command", "x");
}

static int write_and_read(const struct msp_profile *p, FILE *null, FILE *file)
{
	const struct msp_format *format;
	struct msp_view view = {.threads = true};
	struct msp_profile *back = NULL;
	char error[100];
	int err = 0;

	for (size_t i = 0; !err && (format = msp_format_at(i)); i++)
		err = msp_format_write(format, p, &view, null);
	rewind(file);
	if (!err)
		err = msp_format_by_name("msp")->write(p, file);
	rewind(file);
	if (!err)
		err = msp_read_msp(file, &back, error, sizeof(error));
	msp_profile_free(back);
	return err;
}

static void test_each_allocation_fails(void **state)
{
	/* Streams get their buffers now. */
	FILE *null = fopen("/dev/null", "w"), *file = tmpfile();
	long n = 0;
	int err;

	assert_non_null(null);
	assert_non_null(file);
	do {
		struct msp_profile *p;

		until_failure = n++;
		p = msp_profile_new();
		err = p ? gather(p) : MSP_E_NOMEM;
		if (!err)
			err = write_and_read(p, null, file);
		msp_profile_free(p);
		assert_true(err == 0 || err == MSP_E_NOMEM);
	} while (until_failure < 0);
	until_failure = -1;
	assert_int_equal(err, 0);
	assert_true(n > 100);
	fclose(null);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
