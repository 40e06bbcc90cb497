/* SPDX-License-Identifier: MIT */
/* Traces of a real LuaJIT: what is inlined where, what a flush does to it, and memory that lies. */
#include "luajit_help.h"

#include "luajit/trace_image.h"
#include "unwind/ident.h"

#define ROUNDS 2000

/* leaf has guards of its own, so that places inside of it are certain. The second part reuses numbers. */
#define SCRIPT \
	"local function leaf(x) if x > 1e9 then return 0 end x = x * 2 " \
	"if x > 1e8 then return 1 end return x + 1 end\n" \
	"local function middle(x) if x > 2e9 then return 2 end local y = leaf(x) return y + 3 " \
	"end\n" \
	"local s = 0 for i = 1, 1e4 do s = s + middle(i) end\n" \
	"io.write('ready') io.flush() io.read()\n" \
	"jit.flush()\n" \
	"local function other(x) if x > 3e9 then return 5 end return x - 1 end\n" \
	"for i = 1, 1e4 do s = s + other(i) end\n" \
	"io.read()\n"

struct fixture {
	struct lua_child child;
	const struct msp_memory *mem;
	const struct msp_lj_layout *layout;
	uint64_t g;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!f || !have_file(LUAJIT))
		return 0;
	lua_start(&f->child, SCRIPT, "-O3");
	lua_attach(&f->child);
	f->mem = msp_process_memory(f->child.process);
	f->layout = msp_lj_build_layout(f->child.build);
	f->g = f->child.g[0];
	return f->child.g_count == 1 && f->layout ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->layout)
		lua_stop(&f->child);
	free(f);
	return 0;
}

static uint64_t trace_object(const struct fixture *f, uint32_t number)
{
	const struct msp_lj_layout *y = f->layout;
	uint64_t J = f->g + y->g_to_J, table = 0, at = 0;
	uint32_t size = 0;

	if (msp_read(f->mem, J + y->J_sizetrace, &size, 4) || number >= size ||
	    msp_read(f->mem, J + y->J_trace, &table, 8) ||
	    msp_read(f->mem, table + number * 8, &at, 8))
		return 0;
	return at;
}

/* The loop's trace: the first one whose snapshots show three functions inside of each other. */
static struct msp_trace_image *find_loop(const struct fixture *f)
{
	struct msp_trace_image *image;

	for (uint32_t n = 1; n < 64; n++) {
		uint64_t at = trace_object(f, n);

		if (!at || msp_trace_image_read(f->layout, f->mem, at, &image))
			continue;
		assert_int_equal(image->number, n);
		for (uint32_t i = 1; i < image->node_count; i++) {
			uint16_t up = image->node[i].parent;

			if (up && image->node[up].parent)
				return image;
		}
		msp_trace_image_free(image);
	}
	return NULL;
}

static struct msp_raw_frame vm_frame(const struct msp_trace_image *image, uint32_t offset)
{
	return (struct msp_raw_frame){.kind = MSP_RAW_VM,
				      .flags = MSP_RAWF_JIT,
				      .trace = image->number,
				      .tofs = offset,
				      .ident = msp_trace_image_ident(image, offset)};
}

static struct msp_raw_frame base_frame(const struct msp_trace_image *image)
{
	return (struct msp_raw_frame){.kind = MSP_RAW_LUA,
				      .flags = MSP_RAWF_JIT,
				      .addr = image->node[1].addr,
				      .ident = image->node[1].ident};
}

static const char *name_of(struct msp_lj_names *names, const struct msp_raw_frame *f)
{
	const struct msp_lj_function *fn;

	assert_int_equal(msp_lj_names_function(names, f->addr, f->ident, 0, 0, &fn), 0);
	return fn->name;
}

/* At each byte of the code: the functions are those of the script, from the outside in. */
static void test_frames(void **state)
{
	static const char *const expected[] = {"main chunk", "middle", "leaf"};
	struct fixture *f = *state;
	struct msp_raw_frame out[MSP_TRACE_DEPTH], vm, base;
	struct msp_trace_image *image;
	struct msp_lj_traces *traces;
	struct msp_lj_names *names;
	int certain[4] = {0}, guesses = 0, n, sure;
	bool fresh;

	if (!f->layout)
		skip();
	image = find_loop(f);
	assert_non_null(image);
	traces = msp_lj_traces_new(f->layout, f->mem, f->g);
	names = msp_lj_names_new(f->child.build, f->mem, f->g);
	base = base_frame(image);
	for (uint32_t at = 0; at < image->szmcode; at++) {
		vm = vm_frame(image, at);
		n = msp_lj_traces_frames(traces, &vm, &base, out, &fresh);
		assert_in_range(n, 1, 3);
		assert_int_equal(fresh, at == 0);
		sure = 0;
		for (int i = 0; i < n; i++) {
			assert_string_equal(name_of(names, &out[n - 1 - i]), expected[i]);
			if (i < n - 1) /* where it calls; the innermost line is an estimate */
				assert_int_equal(msp_lj_names_line(names, out[n - 1 - i].addr,
								   out[n - 1 - i].ident,
								   out[n - 1 - i].pos),
						 3 - i);
			sure += !(out[n - 1 - i].flags & MSP_RAWF_GUESS);
		}
		certain[sure]++;
		guesses += sure < n;
	}
	print_message("%u bytes of code: %d %d %d certain frames, %d with estimates\n",
		      image->szmcode, certain[1], certain[2], certain[3], guesses);
	assert_int_equal(certain[0], 0);
	assert_true(certain[1] && certain[3]);
	msp_trace_image_free(image);
	msp_lj_traces_free(traces);
	msp_lj_names_free(names);
}

/* What was read stays known after a flush, and never answers for what has its number then. */
static void test_flush(void **state)
{
	struct fixture *f = *state;
	struct msp_raw_frame before[MSP_TRACE_DEPTH], after[MSP_TRACE_DEPTH], vm, base;
	struct msp_trace_image *image, *later = NULL;
	struct msp_lj_traces *seen, *late;
	int n, tries = 0;
	bool fresh;

	if (!f->layout)
		skip();
	image = find_loop(f);
	assert_non_null(image);
	seen = msp_lj_traces_new(f->layout, f->mem, f->g);
	late = msp_lj_traces_new(f->layout, f->mem, f->g);
	vm = vm_frame(image, image->szmcode / 2);
	base = base_frame(image);
	n = msp_lj_traces_frames(seen, &vm, &base, before, &fresh);
	assert_true(n > 0 && fresh);
	assert_int_equal(write(f->child.in, "\n", 1), 1);
	/* until another trace has the number */
	while (tries++ < 1000 && !later) {
		uint64_t at = trace_object(f, image->number);

		if (!at || msp_trace_image_read(f->layout, f->mem, at, &later) ||
		    later->hash == image->hash) {
			msp_trace_image_free(later);
			later = NULL;
			usleep(10000);
		}
	}
	assert_non_null(later);
	assert_int_equal(msp_lj_traces_frames(late, &vm, &base, after, &fresh), MSP_E_GONE);
	assert_false(fresh);
	assert_int_equal(msp_lj_traces_frames(seen, &vm, &base, after, &fresh), n);
	assert_memory_equal(before, after, n * sizeof(*before));
	vm = vm_frame(later, 0);
	base = base_frame(later);
	assert_true(msp_lj_traces_frames(seen, &vm, &base, after, &fresh) > 0 && fresh);
	assert_true(msp_lj_traces_memory(seen) >= image->size + later->size);
	msp_trace_image_free(image);
	msp_trace_image_free(later);
	msp_lj_traces_free(seen);
	msp_lj_traces_free(late);
}

/* No such trace, or no such place in it. */
static void test_nothing_there(void **state)
{
	struct fixture *f = *state;
	struct msp_raw_frame out[MSP_TRACE_DEPTH], vm = {.kind = MSP_RAW_VM, .ident = 1},
						   base = {0};
	struct msp_trace_image *image;
	struct msp_lj_traces *traces;
	bool fresh = true;

	if (!f->layout)
		skip();
	traces = msp_lj_traces_new(f->layout, f->mem, f->g);
	for (uint32_t i = 0; i < 300; i++) {
		vm.trace = i * i * i * i;
		assert_int_equal(msp_lj_traces_frames(traces, &vm, &base, out, &fresh), MSP_E_GONE);
		assert_false(fresh);
	}
	assert_int_equal(msp_trace_image_read(f->layout, f->mem, f->g, &image), MSP_E_GONE);
	assert_null(image);
	assert_int_equal(msp_trace_image_read(f->layout, f->mem, 8, &image), MSP_E_GONE);
	assert_int_equal(msp_trace_image_read(f->layout, f->mem, f->g + 1, &image), MSP_E_GONE);
	msp_lj_traces_free(traces);
}

/* A real process's memory with some words replaced, by garbage or by neighbours. */
struct mutator {
	const struct msp_memory *mem;
	uint64_t seed;
	unsigned int one_in;
};

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static int mutate(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct mutator *m = ctx;
	int rc = msp_read(m->mem, addr, buf, size);

	for (size_t i = 0; rc == 0 && i + 4 <= size; i += 4) {
		uint32_t r = next_random(&m->seed);

		if (r % m->one_in)
			continue;
		r = next_random(&m->seed);
		memcpy((uint8_t *)buf + i, &r, 4);
	}
	return rc;
}

/* An image of it may be wrong, but each of its numbers leads somewhere, and it does not take long. */
static void test_hostile(void **state)
{
	struct fixture *f = *state;
	struct msp_raw_frame out[MSP_TRACE_DEPTH], vm, base = {.kind = MSP_RAW_LUA};
	double worst = 0;
	int read = 0;

	if (!f->layout)
		skip();
	for (int i = 0; i < ROUNDS; i++) {
		struct mutator m = {f->mem, 77 + i, 2 + i % 400};
		struct msp_memory mem = {mutate, &m};
		struct msp_lj_traces *traces = msp_lj_traces_new(f->layout, &mem, f->g);
		struct msp_trace_image *image;
		double begin = cpu_ms();
		bool fresh;

		for (uint32_t n = 1; n < 4; n++) {
			if (msp_trace_image_read(f->layout, &mem, trace_object(f, n), &image))
				continue;
			read++;
			for (uint32_t k = 0; k < image->node_count; k++)
				assert_true(image->node[k].parent < (k ? k : 1));
			for (uint32_t k = 0; k < image->snap_count; k++)
				assert_true(image->snap[k].leaf < image->node_count);
			for (uint32_t at = 0; at < 4096; at += 61) {
				vm = vm_frame(image, at);
				base.addr = image->node[image->node_count > 1].addr;
				base.ident = image->node[image->node_count > 1].ident;
				msp_lj_traces_frames(traces, &vm, &base, out, &fresh);
			}
			msp_trace_image_free(image);
		}
		worst = cpu_ms() - begin > worst ? cpu_ms() - begin : worst;
		msp_lj_traces_free(traces);
	}
	print_message("%d images of lying memory, at most %.1f ms for three\n", read, worst);
	assert_true(read > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_frames, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_flush, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
