/* SPDX-License-Identifier: MIT */
/* Proof and scan on memory that lies: random bytes, pointers in circles, failing reads, endless lists. */
#include "luajit_help.h"
#include "luajit_mutator.h"

#define ROUNDS 3000
#define MEM_SIZE 65536

/* Fails every n-th read; else gives what its kind gives for any address. */
struct liar {
	uint64_t seed;
	unsigned int fail_every, reads;
	enum { RANDOM, POINTERS, SAME, PATTERN } kind;
	uint64_t target; /* POINTERS: every word points around there */
	uint8_t byte;
};

static int lie(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct liar *liar = ctx;
	uint8_t *out = buf;

	if (liar->fail_every && ++liar->reads % liar->fail_every == 0)
		return MSP_E_FAULT;
	for (size_t i = 0; i < size; i++) {
		/* The same address always reads the same, as memory does. */
		uint64_t at = (addr + i) & ~7ULL,
			 mix = (at ^ liar->seed) * 0x9e3779b97f4a7c15ULL + 1;
		uint64_t value = next_random(&mix);

		if (liar->kind == POINTERS)
			value = liar->target + value % MEM_SIZE / 8 * 8;
		else if (liar->kind == SAME)
			value = liar->target;
		else if (liar->kind == PATTERN)
			value = liar->byte * 0x0101010101010101ULL;
		out[i] = (uint8_t)(value >> (addr + i) % 8 * 8);
	}
	return 0;
}

struct fixture {
	struct msp_image *image;
	struct msp_lj_build *build;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!f || !have_file(LUAJIT))
		return 0;
	if (open_image(LUAJIT, &f->image) != 0)
		return -1;
	return msp_lj_build_find(f->image, &f->build);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	msp_lj_build_free(f->build);
	msp_image_close(f->image);
	free(f);
	return 0;
}

static void make_liar(struct liar *liar, uint64_t *seed)
{
	liar->seed = next_random(seed);
	liar->fail_every = next_random(seed) % 3 ? 0 : 1 + (unsigned int)(next_random(seed) % 50);
	liar->reads = 0;
	liar->kind = next_random(seed) % 4;
	liar->target = (next_random(seed) & 0x7fffffffffffULL) & ~7ULL;
	liar->byte = (uint8_t)next_random(seed);
}

static void test_prove(void **state)
{
	struct fixture *f = *state;
	uint64_t seed = 0x123456789abcdefULL;
	double start = cpu_ms(), worst = 0;

	if (!f->build)
		skip();
	for (int i = 0; i < ROUNDS; i++) {
		struct msp_lj_proof proof;
		struct liar liar;
		struct msp_memory mem = {.read = lie, .ctx = &liar};
		double begin = cpu_ms();
		uint64_t g;

		make_liar(&liar, &seed);
		g = i % 4 ? liar.target : next_random(&seed);
		assert_int_not_equal(msp_lj_prove(f->build, &mem,
						  next_random(&seed) & 0x7ffffffff000ULL, g,
						  &proof),
				     0);
		assert_false(proof.proved);
		for (int c = 0; c < MSP_LJ_CHECK_COUNT; c++)
			assert_non_null(
				memchr(proof.check[c].detail, 0, sizeof(proof.check[c].detail)));
		worst = cpu_ms() - begin > worst ? cpu_ms() - begin : worst;
	}
	print_message("%d lying memories: %.0f ms, at most %.2f ms each\n", ROUNDS,
		      cpu_ms() - start, worst);
	assert_true(worst < 250);
}

/* Whole pointers: a proof may hold, but nothing may go wrong. */
static int mutate_pointers(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct mutator *m = ctx;
	int rc = msp_read(m->mem, addr, buf, size);

	for (size_t i = 0; rc == 0 && i + 8 <= size; i += 8) {
		uint64_t r = next_random(&m->seed);

		if (r % m->one_in)
			continue;
		r = next_random(&m->seed);
		/* Garbage, or a pointer into the neighbourhood. */
		if (r & 1)
			r = (addr & ~0xffffULL) + (r & 0xfff8);
		memcpy((uint8_t *)buf + i, &r, 8);
	}
	return rc;
}

static void test_mutated(void **state)
{
	static const unsigned int rates[] = {2000, 300, 50, 10, 3};
	struct lua_child c;
	double worst = 0;
	int proved = 0;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c,
		  "local function f(n) local t = {} for i = 1, n do t[i] = function() return i end "
		  "end "
		  "return t end io.write('ready\\n') io.flush() while true do f(50) end",
		  "-jon");
	lua_attach(&c);
	assert_int_equal(c.g_count, 1);
	for (int i = 0; i < 500; i++) {
		struct mutator m = {msp_process_memory(c.process), 77U + (unsigned int)i * 1234567U,
				    rates[i % 5]};
		struct msp_memory mem = {.read = mutate_pointers, .ctx = &m};
		struct msp_lj_proof proof;
		double begin = cpu_ms();

		proved += msp_lj_prove(c.build, &mem, c.base, c.g[0], &proof) == 0;
		worst = cpu_ms() - begin > worst ? cpu_ms() - begin : worst;
	}
	print_message("500 mutated memories: %d proved, at most %.2f ms each\n", proved, worst);
	assert_true(worst < 500);
	lua_stop(&c);
}

static void test_scan(void **state)
{
	struct fixture *f = *state;
	uint64_t seed = 42, g[8];
	double start = cpu_ms();

	if (!f->build)
		skip();
	for (int i = 0; i < 60; i++) {
		struct liar liar;
		struct msp_memory mem = {.read = lie, .ctx = &liar};
		uint64_t base = next_random(&seed) & 0x7ffffffff000ULL, from;

		make_liar(&liar, &seed);
		from = next_random(&seed);
		assert_true(msp_lj_scan(f->build, &mem, base, from, from + MEM_SIZE * 4, g, 8) <=
			    8);
		/* Memory full of pointers into the block: as many finds as asked for, no more. */
		liar.kind = SAME;
		liar.target = base + f->build->layout.vm_start + 16;
		liar.fail_every = 0;
		assert_true(msp_lj_scan(f->build, &mem, base, 0x10000, 0x10000 + MEM_SIZE * 4, g,
					2) <= 2);
	}
	/* Ranges that are none. */
	{
		struct liar liar = {.kind = PATTERN};
		struct msp_memory mem = {.read = lie, .ctx = &liar};

		assert_int_equal(msp_lj_scan(f->build, &mem, 0, 100, 50, g, 8), 0);
		assert_int_equal(msp_lj_scan(f->build, &mem, 0, 0, 0, g, 8), 0);
		assert_int_equal(msp_lj_scan(f->build, &mem, 0, UINT64_MAX - 20, UINT64_MAX, g, 8),
				 0);
		assert_int_equal(msp_lj_scan(f->build, &mem, 0, 0, MEM_SIZE, g, 0), 0);
	}
	print_message("scans: %.0f ms\n", cpu_ms() - start);
}

/* Images with bytes changed: a build may be found or not, but nothing may go wrong. */
static void test_images(void **state)
{
	static const struct msp_image_options opts = {.name = "mutated"};
	size_t size;
	uint8_t *bytes, *copy;
	FILE *file = fopen(LUAJIT, "rb");
	uint64_t seed = 99;
	int found = 0;

	(void)state;
	if (!file)
		skip();
	fseek(file, 0, SEEK_END);
	size = (size_t)ftell(file);
	rewind(file);
	bytes = malloc(size);
	copy = malloc(size);
	assert_true(bytes && copy && fread(bytes, 1, size, file) == size);
	fclose(file);
	for (int i = 0; i < 60; i++) {
		struct msp_lj_build *build = NULL;
		struct msp_image *image;

		memcpy(copy, bytes, size);
		for (int k = 0; k < 1 << i % 14; k++)
			copy[64 + next_random(&seed) % (size - 64)] = (uint8_t)next_random(&seed);
		if (msp_image_open_memory(copy, size, &opts, &image) != 0)
			continue;
		msp_lj_build_find(image, &build);
		found += build != NULL;
		msp_lj_build_free(build);
		msp_image_close(image);
	}
	print_message("60 mutated images: %d builds found\n", found);
	free(bytes);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prove),
		cmocka_unit_test(test_mutated),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_images),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
