/* SPDX-License-Identifier: MIT */
/* Names when memory runs out: the n-th allocation fails, for every n. (Linked with --wrap=malloc,...) */
#include "names_help.h"

static long countdown = -1; /* allocations until one fails; negative: none does */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool fails(void)
{
	return countdown >= 0 && countdown-- == 0;
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

static struct lua lua;

static int setup(void **state)
{
	(void)state;
	lua_start(&lua, (const char *[]){WORKLOADS "/names.lua", NULL});
	lua_look(&lua);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lua_stop(&lua);
	return 0;
}

/* Index, names and lines of everything. Returns how many questions were answered. */
static int use(void)
{
	struct msp_lj_names *names = msp_lj_names_new_layout(&lua_layout, &lua.mem, 0);
	const struct msp_lj_function *fn;
	int answered = 0;

	if (!names)
		return 0;
	for (int i = 0; i < lua.ranges; i++)
		msp_lj_names_add_range(names, lua.range[i][0], lua.range[i][1]);
	msp_lj_names_index(names, 10000000);
	for (int i = 0; i < lua.protos; i++) {
		const struct msp_proto *pt = &lua.proto[i];
		int error = msp_lj_names_function(names, pt->addr, pt->ident, lua.proto[0].addr, 1,
						  &fn);

		assert_true(!error || error == MSP_E_NOMEM || error == MSP_E_GONE);
		answered += !error;
		msp_lj_names_line(names, pt->addr, pt->ident, 1);
	}
	msp_lj_names_free(names);
	return answered;
}

static void test_each_allocation(void **state)
{
	int all = use(), n;

	(void)state;
	assert_true(all > 0);
	for (n = 0; n < 5000; n++) {
		countdown = n;
		use();
		if (countdown >= 0)
			break; /* fewer allocations than that */
		assert_int_equal(use(), all);
		n += n / 16; /* the first ones each, the many alike ones now and then */
	}
	countdown = -1;
	assert_true(n > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
