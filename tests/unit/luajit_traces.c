/* SPDX-License-Identifier: MIT */
/* Traces of a real LuaJIT: what is inlined where, what a flush does to it, and memory that lies. */
#include "luajit_mutator.h"
#include "luajit_trace_help.h"

#include "unwind/ident.h"

#define ROUNDS 2000

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
	traces = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
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

/* Functions without a condition: one snapshot for all of them. What each computes is only there. */
#define PURE \
	"local function inner(x) return x * 3.5 end\n" \
	"local function outer(x) local y = inner(x) return y / 3.5 end\n" \
	"local s = 0 for i = 1, 1e4 do s = s - outer(i) end\n" \
	"io.write('ready') io.flush() io.read()\n"

/* Each place of an instruction with these bytes, which ends with a floating point operation. */
static void check_places(const struct fixture *f, const struct msp_trace_image *image, uint8_t op,
			 const char *function)
{
	struct msp_lj_traces *traces = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
	struct msp_lj_names *names = msp_lj_names_new(f->child.build, f->mem, f->g);
	struct msp_raw_frame vm, base = base_frame(image), out[MSP_TRACE_DEPTH];
	uint8_t *code = malloc(image->szmcode);
	uint64_t mcode = 0;
	int found = 0, n;
	bool fresh;

	assert_int_equal(msp_read(f->mem, image->at + (uint64_t)f->layout->T_mcode, &mcode, 8), 0);
	assert_int_equal(msp_read(f->mem, mcode, code, image->szmcode), 0);
	for (uint32_t at = 0; at + 3 < image->szmcode; at++) {
		if (code[at] != 0xf2 || code[at + 1] != 0x0f || code[at + 2] != op)
			continue;
		vm = vm_frame(image, at);
		n = msp_lj_traces_frames(traces, &vm, &base, out, &fresh);
		assert_true(n > 0);
		assert_string_equal(name_of(names, &out[0]), function);
		found++;
	}
	assert_true(found > 0);
	free(code);
	msp_lj_traces_free(traces);
	msp_lj_names_free(names);
}

static void test_estimates(void **state)
{
	struct fixture f = {.g = 0};
	struct msp_trace_image *image = NULL;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&f.child, PURE, "-O3");
	lua_attach(&f.child);
	f.mem = msp_process_memory(f.child.process);
	f.layout = msp_lj_build_layout(f.child.build);
	f.g = f.child.g[0];
	for (uint32_t n = 1; n < 64 && !image; n++) {
		uint64_t at = trace_object(&f, n);

		if (at && !msp_trace_image_read(f.layout, f.mem, f.g, at, NULL, NULL, 0, &image) &&
		    image->linktype != MSP_LINK_LOOP) {
			msp_trace_image_free(image);
			image = NULL;
		}
	}
	assert_non_null(image);
	check_places(&f, image, 0x59, "inner");	     /* mulsd */
	check_places(&f, image, 0x5e, "outer");	     /* divsd */
	check_places(&f, image, 0x5c, "main chunk"); /* subsd */
	msp_trace_image_free(image);
	lua_stop(&f.child);
}

/* What was read stays known after a flush, and never answers for what has its number then. */
static void test_flush(void **state)
{
	struct fixture *f = *state;
	struct msp_raw_frame before[MSP_TRACE_DEPTH], after[MSP_TRACE_DEPTH], vm, base;
	struct msp_trace_image *image, *later = NULL;
	struct msp_lj_traces *seen, *late, *told;
	struct msp_raw_frame any;
	uint64_t mcode = 0;
	int n, tries = 0;
	bool fresh;

	if (!f->layout)
		skip();
	image = find_loop(f);
	assert_non_null(image);
	seen = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
	late = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
	vm = vm_frame(image, image->szmcode / 2);
	base = base_frame(image);
	n = msp_lj_traces_frames(seen, &vm, &base, before, &fresh);
	assert_true(n > 0 && fresh);
	/* a sample whose identity could not be read is of no trace that there is now */
	any = vm;
	any.ident = 0;
	assert_int_equal(msp_lj_traces_frames(seen, &any, &base, after, &fresh), MSP_E_GONE);
	assert_false(fresh);
	/* one that has seen no sample of it, but was told that it was made; and was told lies */
	told = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
	assert_int_equal(msp_read(f->mem, image->at + f->layout->T_mcode, &mcode, 8), 0);
	assert_int_equal(msp_lj_traces_keep(told, image->number, mcode + 1, image->szmcode, &any),
			 MSP_E_GONE);
	assert_int_equal(msp_lj_traces_keep(told, ~0ull, mcode, image->szmcode, &any), MSP_E_GONE);
	assert_int_equal(msp_lj_traces_keep(told, image->number, mcode, image->szmcode, &any), 0);
	assert_int_equal(msp_lj_traces_keep(told, image->number, mcode, image->szmcode, &any), 0);
	assert_int_equal(any.trace, image->number);
	assert_int_equal(msp_lj_traces_memory(told), msp_lj_traces_memory(seen));
	assert_int_equal(write(f->child.in, "\n", 1), 1);
	/* until another trace has the number */
	while (tries++ < 1000 && !later) {
		uint64_t at = trace_object(f, image->number);

		if (!at ||
		    msp_trace_image_read(f->layout, f->mem, f->g, at, NULL, NULL, 0, &later) ||
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
	assert_int_equal(msp_lj_traces_frames(told, &vm, &base, after, &fresh), n);
	assert_false(fresh);
	assert_memory_equal(before, after, n * sizeof(*before));
	assert_int_equal(msp_lj_traces_keep(told, image->number, mcode, image->szmcode + 1, &any),
			 MSP_E_GONE);
	vm = vm_frame(later, 0);
	base = base_frame(later);
	assert_true(msp_lj_traces_frames(seen, &vm, &base, after, &fresh) > 0 && fresh);
	assert_true(msp_lj_traces_memory(seen) >= image->size + later->size);
	msp_trace_image_free(image);
	msp_trace_image_free(later);
	msp_lj_traces_free(seen);
	msp_lj_traces_free(late);
	msp_lj_traces_free(told);
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
	traces = msp_lj_traces_new(f->layout, NULL, f->mem, f->g);
	for (uint32_t i = 0; i < 300; i++) {
		vm.trace = i * i * i * i;
		assert_int_equal(msp_lj_traces_frames(traces, &vm, &base, out, &fresh), MSP_E_GONE);
		assert_false(fresh);
	}
	assert_int_equal(msp_trace_image_read(f->layout, f->mem, f->g, f->g, NULL, NULL, 0, &image),
			 MSP_E_GONE);
	assert_null(image);
	assert_int_equal(msp_trace_image_read(f->layout, f->mem, f->g, 8, NULL, NULL, 0, &image),
			 MSP_E_GONE);
	assert_int_equal(
		msp_trace_image_read(f->layout, f->mem, f->g, f->g + 1, NULL, NULL, 0, &image),
		MSP_E_GONE);
	msp_lj_traces_free(traces);
}

struct around {
	struct mutator mutator;
	uint64_t start, end; /* what does not lie */
};

/* An image of it may be wrong, but each of its numbers leads somewhere, and it does not take long. */
/* The trace is there as it was, but all that it names lies: its functions, their code and constants, its own code. */
static int lie_around(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct around *a = ctx;

	return addr >= a->start && addr + size <= a->end ? msp_read(a->mutator.mem, addr, buf, size)
							 : mutate(&a->mutator, addr, buf, size);
}

static void test_lying_functions(void **state)
{
	struct fixture *f = *state;
	struct msp_trace_image *image, *lied;
	struct msp_raw_frame vm;
	int read = 0, guesses = 0;

	if (!f->layout)
		skip();
	image = find_loop(f);
	assert_non_null(image);
	vm = vm_frame(image, image->szmcode / 2);
	for (int i = 0; i < ROUNDS; i++) {
		struct around a = {{f->mem, 99 + i, 2 + i % 300}, image->at, image->at + 4096};
		struct msp_memory mem = {.read = lie_around, .ctx = &a};

		if (msp_trace_image_read(f->layout, &mem, f->g, image->at, &vm, NULL, 0, &lied))
			continue;
		read++;
		guesses += lied->guesses > 0;
		for (uint32_t k = 0; k < lied->guesses; k++) {
			assert_true(lied->guess[k].node < lied->node_count);
			assert_true(!k || lied->guess[k].code > lied->guess[k - 1].code);
		}
		msp_trace_image_free(lied);
	}
	print_message("%d of %d were read, %d with estimates\n", read, ROUNDS, guesses);
	assert_true(read > ROUNDS / 2 && guesses > 10);
	msp_trace_image_free(image);
}

#define MANY \
	"jit.opt.start('maxtrace=4000', 'maxmcode=16384', 'hotloop=2')\n" \
	"keep = {} for i = 1, 2100 do keep[i] = loadstring('local function sq(x) return x * x " \
	"end local s = 0 ' .. " \
	"'for i = 1, 50 do s = s + sq(i) if s < 0 then s = sq(s) end end') keep[i]() end\n" \
	"io.write('ready') io.flush() io.read()\n"

/* All traces of a VM with 2,000 of them are known in less than 8 MiB, and none is read twice. */
static void test_memory(void **state)
{
	struct fixture f = {.g = 0};
	struct msp_raw_frame *vm = calloc(4096, sizeof(*vm)), base, out[MSP_TRACE_DEPTH];
	struct msp_trace_image *image;
	struct msp_lj_traces *traces;
	uint32_t count = 0;
	double start;
	bool fresh;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	assert_non_null(vm);
	lua_start(&f.child, MANY, "-O3");
	lua_attach(&f.child);
	f.mem = msp_process_memory(f.child.process);
	f.layout = msp_lj_build_layout(f.child.build);
	f.g = f.child.g[0];
	for (uint32_t n = 1; n < 4096; n++) {
		uint64_t at = trace_object(&f, n);

		if (!at || msp_trace_image_read(f.layout, f.mem, f.g, at, NULL, NULL, 0, &image))
			continue;
		vm[count++] = vm_frame(image, image->szmcode / 2);
		base = base_frame(image);
		msp_trace_image_free(image);
	}
	assert_true(count >= 2000);
	traces = msp_lj_traces_new(f.layout, NULL, f.mem, f.g);
	start = cpu_ms();
	for (uint32_t i = 0; i < count; i++)
		msp_lj_traces_frames(traces, &vm[i], &base, out, &fresh);
	print_message("%u traces: %.1f KiB, %.2f ms for each\n", count,
		      msp_lj_traces_memory(traces) / 1024.0, (cpu_ms() - start) / count);
	for (uint32_t i = 0; i < count; i++) {
		msp_lj_traces_frames(traces, &vm[i], &base, out, &fresh);
		assert_false(fresh);
	}
	assert_true(msp_lj_traces_memory(traces) < 8 << 20);
	msp_lj_traces_free(traces);
	free(vm);
	lua_stop(&f.child);
}

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
		struct msp_lj_traces *traces = msp_lj_traces_new(f->layout, NULL, &mem, f->g);
		struct msp_trace_image *image;
		double begin = cpu_ms();
		bool fresh;

		for (uint32_t n = 1; n < 4; n++) {
			if (msp_trace_image_read(f->layout, &mem, f->g, trace_object(f, n), NULL,
						 NULL, 0, &image))
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
		cmocka_unit_test(test_estimates),
		cmocka_unit_test_setup_teardown(test_flush, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lying_functions, set_up, tear_down),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
