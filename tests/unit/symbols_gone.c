/* SPDX-License-Identifier: MIT */
/* Names of C functions that only their address is known of, when the process is not there to be asked. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "symbols/symbols.h"
#include "target/space.h"

#define BASE 0x7f3210000000ull /* where the program, which is this one, has been */

int called_by_lua(int n);
int calls_lua(int n);

__attribute__((noinline)) int called_by_lua(int n)
{
	return n + 1;
}

__attribute__((noinline)) int calls_lua(int n)
{
	return n + 2;
}

extern const char __executable_start[];

static uint64_t offset_of(int (*function)(int))
{
	return (uintptr_t)function - (uintptr_t)__executable_start;
}

static void test_neighbours(void **state)
{
	struct msp_images_options options = {0};
	const struct msp_image_entry *entry;
	struct msp_images *images;
	struct msp_symbolizer *symbols;
	struct msp_frame frame;
	uint64_t callee = offset_of(called_by_lua), caller = offset_of(calls_lua);
	struct msp_raw_frame raw[] = {
		{.kind = MSP_RAW_NATIVE, .addr = BASE + callee + 1, .ident = callee + 1},
		{.kind = MSP_RAW_VM},
		{.kind = MSP_RAW_CFUNC, .addr = BASE + callee},
		{.kind = MSP_RAW_CFUNC, .addr = BASE + caller},
		/* a return address, which was looked up one byte lower */
		{.kind = MSP_RAW_NATIVE, .addr = BASE + caller + 2, .ident = caller + 1},
		{.kind = MSP_RAW_CFUNC, .addr = 0x5555},
	};
	size_t n = sizeof(raw) / sizeof(raw[0]);

	(void)state;
	assert_int_equal(msp_images_new(&options, &images), 0);
	assert_int_equal(msp_images_add_file(images, open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
					     "program", &entry),
			 0);
	raw[0].image = raw[4].image = (uint16_t)entry->index;
	assert_int_equal(msp_symbolizer_new(images, NULL, NULL, &symbols), 0);
	/* the native frame shows it */
	assert_int_equal(msp_symbolizer_frame(symbols, raw, n, 2, &frame), 1);
	assert_int_equal(msp_symbolizer_frame(symbols, raw, n, 3, &frame), 0);
	assert_int_equal(frame.kind, MSP_FRAME_CFUNCTION);
	assert_string_equal(frame.name, "calls_lua");
	assert_string_equal(frame.object, "program");
	/* in no image of the stack */
	assert_int_equal(msp_symbolizer_frame(symbols, raw, n, 5, &frame), MSP_E_GONE);
	assert_string_equal(frame.name, "[function gone]");
	assert_int_equal(frame.address, 0x5555);
	msp_symbolizer_free(symbols);
	msp_images_free(images);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_neighbours)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
