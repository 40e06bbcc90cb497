/* SPDX-License-Identifier: MIT */
/*
 * Many more images than the kernel host's tables hold, one after the other: what was forgotten
 * makes room for what comes, and what is there stays right.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <bpf/bpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"

#define ALIVE 40
#define ROWS 600
#define RULES 100

static struct msp_sampler *sampler;
static struct msp_tables *tables;
static struct msp_row row[2 * MSP_SEGMENT_ROWS];
static struct msp_rule rule[RULES];

/* Rows and rules that no other image has, and some that all have. */
static struct msp_unwind_table make_table(uint32_t number, uint32_t rows)
{
	memset(rule, 0, sizeof(rule));
	for (uint32_t i = 1; i < RULES; i++) {
		rule[i].cfa_kind = MSP_CFA_REG;
		rule[i].cfa_reg = 7;
		rule[i].cfa_off = (int32_t)(i < 20 ? i : i + RULES * (number + 1));
	}
	for (uint32_t i = 0; i < rows; i++)
		row[i] = (struct msp_row){16 * i + number % 16, 1 + (i + number) % (RULES - 1)};
	return (struct msp_unwind_table){
		.rows = row, .row_count = rows, .rules = rule, .rule_count = RULES};
}

/* What the kernel has of an image is what was given. */
static void check_image(uint32_t index, uint32_t number, uint32_t rows)
{
	struct msp_unwind_table table = make_table(number, rows);
	struct msp_bpf_image image;
	const struct msp_row *sent;

	assert_true(msp_tables_has_image(tables, index));
	assert_int_equal(bpf_map_lookup_elem(tables->fd.images, &index, &image), 0);
	assert_int_equal(image.row_count, rows);
	sent = tables->segment[image.segment].rows + image.first_row;
	for (uint32_t i = 0; i < rows; i++) {
		assert_int_equal(sent[i].addr, table.rows[i].addr);
		assert_memory_equal(&tables->rules[sent[i].rule], &rule[table.rows[i].rule],
				    sizeof(*rule));
	}
}

static int add(uint32_t index, uint32_t number, uint32_t rows)
{
	struct msp_unwind_table table = make_table(number, rows);

	return msp_tables_add_image(tables, index, &table, 0);
}

static void many(void **state)
{
	uint32_t number[ALIVE + 1] = {0};

	for (uint32_t n = 0; n < 3 * MSP_RULE_ROOM / (RULES - 20); n++) {
		uint32_t index = 1 + n * 7 % ALIVE; /* all in turn, and not in order */

		msp_tables_remove_image(tables, index);
		assert_false(msp_tables_has_image(tables, index));
		number[index] = n;
		assert_int_equal(add(index, n, ROWS + n % 50), 0);
		if (n > ALIVE && n % 16 == 0)
			for (uint32_t i = 1; i <= ALIVE; i++)
				check_image(i, number[i], ROWS + number[i] % 50);
	}
	assert_true(tables->rule_count <= 1 + (ALIVE + 1) * RULES);
	assert_int_equal(tables->segment_count, 1);
	for (uint32_t i = 1; i <= ALIVE; i++)
		msp_tables_remove_image(tables, i);
	for (uint32_t i = 0; i < 2 * tables->rule_room; i++)
		assert_int_equal(tables->rule_hash[i], 0);
}

/* More rows than a segment has: a segment of its own, again and again. */
static void big(void **state)
{
	for (uint32_t n = 0; n < 60; n++) {
		uint32_t rows = MSP_SEGMENT_ROWS + n % 7 * 20000;

		assert_int_equal(add(1 + n % 2, n, rows), 0);
		check_image(1 + n % 2, n, rows);
		if (n)
			check_image(1 + (n + 1) % 2, n - 1, MSP_SEGMENT_ROWS + (n - 1) % 7 * 20000);
		msp_tables_remove_image(tables, 1 + (n + 1) % 2);
	}
	assert_true(tables->segment_count <= 3);
	msp_tables_remove_image(tables, 2);
}

/* When all is full, one that does not fit is refused, and fits once there is room. */
static void full(void **state)
{
	uint32_t index = 1, rows = MSP_SEGMENT_ROWS - 20000;
	int err = 0;

	tables->segment_count = MSP_MAX_SEGMENTS - 2; /* as if the others were in use */
	for (uint32_t i = 1; i < tables->segment_count; i++)
		tables->segment[i].big = MSP_IMAGE_SLOTS;
	for (; !err && index < 10; index++)
		err = add(index, index, rows);
	assert_int_equal(err, MSP_E_LIMIT);
	assert_false(msp_tables_has_image(tables, index - 1));
	msp_tables_remove_image(tables, 1);
	assert_int_equal(add(index, 77, rows), 0);
	check_image(index, 77, rows);
	assert_int_equal(add(MSP_IMAGE_SLOTS, 1, ROWS), MSP_E_LIMIT);
}

static int start(void **state)
{
	struct msp_sampler_options options = {.rate = 1};
	char error[200];
	int err = msp_sampler_open(&options, &sampler, error, sizeof(error));

	/* A program that the verifier finds too large, or its calls too deep, is no reason to go without. */
	if (err && strstr(error, strerror(E2BIG)))
		fail_msg("%s", error);
	if (err) {
		printf("SKIP: %s\n", error);
		exit(77);
	}
	tables = msp_sampler_tables(sampler);
	return 0;
}

static int end(void **state)
{
	msp_sampler_close(sampler);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many),
		cmocka_unit_test(big),
		cmocka_unit_test(full),
	};

	return cmocka_run_group_tests(tests, start, end);
}
