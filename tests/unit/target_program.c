// SPDX-License-Identifier: MIT
/* What a command will map is loaded before it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "elf/elf.h"
#include "target/space.h"

static char folder[] = "/tmp/moonspy-program.XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(folder) ? chdir(folder) : -1;
}

static int teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return chdir("/") || system(command);
}

static struct msp_images *new_images(void)
{
	struct msp_images_options opts = {.cache_dir = NULL};
	struct msp_images *images;

	assert_int_equal(msp_images_new(&opts, &images), 0);
	return images;
}

/* How many images have that in their name, after a command was added. */
static int loaded(const char *command, const char *part)
{
	struct msp_images *images = new_images();
	int n = 0;

	assert_int_equal(msp_images_add_program(images, command, NULL, NULL), 0);
	for (uint32_t i = 1; i <= msp_images_count(images); i++)
		n += strstr(msp_image_name(msp_images_get(images, i)->image), part) != NULL;
	msp_images_free(images);
	return n;
}

static void script(const char *name, const char *text)
{
	FILE *out = fopen(name, "w");

	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fchmod(fileno(out), 0755), 0);
	assert_int_equal(fclose(out), 0);
}

static void a_program_its_loader_and_libraries(void **state)
{
	(void)state;
	assert_int_equal(loaded("luajit", "/luajit"), 1);
	assert_int_equal(loaded("luajit", "/libc.so"), 1);
	assert_int_equal(loaded("luajit", "/ld-linux"), 1);
	assert_int_equal(loaded("/bin/sh", "/libc.so"), 1);
}

static void the_interpreter_of_a_script(void **state)
{
	(void)state;
	script("direct", "#!/bin/sh\n");
	script("env", "#! /usr/bin/env luajit\n");
	script("split", "#!/usr/bin/env -S luajit -joff\n");
	script("nested", "#!./direct -x\n");
	assert_int_equal(loaded("./direct", "/dash") + loaded("./direct", "/bash"), 1);
	assert_int_equal(loaded("./env", "/luajit"), 1);
	assert_int_equal(loaded("./split", "/luajit"), 1);
	assert_int_equal(loaded("./nested", "/libc.so"), 1);
}

static void what_cannot_be_loaded_is_left_out(void **state)
{
	struct msp_images *images = new_images();

	(void)state;
	script("text", "no program\n");
	script("missing", "#!/no/such/interpreter\n");
	script("itself", "#!./itself\n");
	script("empty", "#!\n");
	assert_int_equal(msp_images_add_program(images, "no-such-command", NULL, NULL),
			 MSP_E_NOT_FOUND);
	assert_int_equal(msp_images_add_program(images, "./no-such-file", NULL, NULL), 0);
	assert_int_equal(msp_images_add_program(images, "./text", NULL, NULL), 0);
	assert_int_equal(msp_images_add_program(images, "./missing", NULL, NULL), 0);
	assert_int_equal(msp_images_add_program(images, "./itself", NULL, NULL), 0);
	assert_int_equal(msp_images_add_program(images, "./empty", NULL, NULL), 0);
	assert_int_equal(msp_images_add_program(images, "/", NULL, NULL), 0);
	assert_int_equal(mkfifo("pipe", 0755), 0);
	assert_int_equal(msp_images_add_program(images, "./pipe", NULL, NULL),
			 0); /* does not wait */
	assert_int_equal(msp_images_count(images), 0);
	msp_images_free(images);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_its_loader_and_libraries),
		cmocka_unit_test(the_interpreter_of_a_script),
		cmocka_unit_test(what_cannot_be_loaded_is_left_out),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
