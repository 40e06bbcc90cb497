/* SPDX-License-Identifier: MIT */
/*
 * Which code belongs to which snapshot, found from the guards, as it must be where snapshots do not
 * say it: against a LuaJIT whose snapshots do, read as if they did not.
 */
#include "luajit_help.h"
#include "luajit_mutator.h"

#include "luajit/jit.h"
#include "luajit/trace_exits.h"

#define MAX_TRACES 256
#define ROUNDS 300

/* More than 32 exits (a group of stubs), side traces for some of them, and their own side traces. */
#define SCRIPT \
	"local src = {'local t = ... local s = 0 for i = 1, 3000 do local x = i % 97 '} " \
	"for k = 1, 60 do src[#src + 1] = 'if x == ' .. k .. ' then s = s + t[' .. k .. " \
	"'] elseif s > 1e15 + ' .. k .. ' then s = s - ' .. k .. ' end ' end " \
	"src[#src + 1] = 'end return s' " \
	"local t = {} for k = 1, 60 do t[k] = k end " \
	"local f = loadstring(table.concat(src)) " \
	"local function depth(n) if n <= 0 then return 0 end return 1 + depth(n - 1) end " \
	"for i = 1, 30 do f(t) depth(20) end " \
	"io.write('ready') io.flush() io.read()\n"

struct fixture {
	struct lua_child child;
	const struct msp_memory *mem;
	struct msp_lj_layout told, untold; /* with and without what the snapshots say */
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
	f->told = f->untold = *msp_lj_build_layout(f->child.build);
	f->untold.snap_mcofs = -1;
	f->g = f->child.g[0];
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->g)
		lua_stop(&f->child);
	free(f);
	return 0;
}

/* A trace as it is read for a sample in it. NULL: there is none of that number. */
static struct msp_trace_image *read_trace(const struct fixture *f, const struct msp_memory *mem,
					  const struct msp_lj_layout *layout, uint32_t number)
{
	uint64_t at = msp_trace_find(layout, f->mem, f->g, number);
	struct msp_raw_frame vm = {.trace = number};
	struct msp_trace_image *image;

	if (!at || msp_trace_image_read(layout, f->mem, f->g, at, NULL, NULL, 0, &image))
		return NULL;
	vm.ident = msp_trace_image_ident(image, 0);
	msp_trace_image_free(image);
	return msp_trace_image_read(layout, mem, f->g, at, &vm, NULL, 0, &image) ? NULL : image;
}

struct found {
	int traces, offsets, exact;
};

/* Each offset: the snapshot that it belongs to is one of those that it can belong to. */
static void compare(const struct msp_trace_image *told, const struct msp_trace_image *untold,
		    struct found *found)
{
	uint32_t first, last, real, same;

	assert_true(untold->placed);
	assert_int_equal(told->snap_count, untold->snap_count);
	for (uint32_t at = 0; at < told->szmcode; at++) {
		real = msp_trace_interval(told, at, &same);
		assert_int_equal(real, same);
		last = msp_trace_interval(untold, at, &first);
		assert_in_range(real, first, last);
		found->exact += first == last;
		found->offsets++;
	}
	found->traces++;
}

static void test_guards(void **state)
{
	struct fixture *f = *state;
	struct found found = {0};

	if (!f->g)
		skip();
	for (uint32_t n = 1; n < MAX_TRACES; n++) {
		struct msp_trace_image *told = read_trace(f, f->mem, &f->told, n);
		struct msp_trace_image *untold = read_trace(f, f->mem, &f->untold, n);

		if (told && untold)
			compare(told, untold, &found);
		assert_int_equal(!told, !untold);
		msp_trace_image_free(told);
		msp_trace_image_free(untold);
	}
	print_message("%d traces, %d places, %d of them can be of one snapshot only\n",
		      found.traces, found.offsets, found.exact);
	assert_true(found.traces > 20);
	assert_true(found.exact > found.offsets / 4);
}

/*
 * Guards that lead to a side trace are known by that: a guard of a snapshot is, if what comes
 * before it ends before what comes behind it begins.
 */
static void test_side_traces(void **state)
{
	struct fixture *f = *state;
	struct msp_trace_image *parent;
	struct msp_lj_jit jit;
	int sides = 0;

	if (!f->g)
		skip();
	assert_int_equal(msp_lj_jit_read(f->child.build, f->mem, f->g, &jit), 0);
	for (size_t i = 0; i < jit.traces; i++) {
		uint32_t exit = jit.trace[i].exit;

		parent = jit.trace[i].root ? read_trace(f, f->mem, &f->untold, jit.trace[i].parent)
					   : NULL;
		if (parent && exit && exit + 1 < parent->snap_count) {
			assert_true(parent->snap[exit - 1].end < parent->snap[exit + 1].code);
			sides++;
		}
		msp_trace_image_free(parent);
	}
	msp_lj_jit_free(&jit);
	print_message("%d side traces\n", sides);
	assert_true(sides > 20);
}

struct stack {
	struct msp_raw_frame frame[MSP_TRACE_DEPTH]; /* leaf first */
	int count, sure;
};

static struct stack stack_at(struct msp_lj_traces *traces, const struct msp_trace_image *image,
			     uint32_t offset)
{
	struct msp_raw_frame base = {
		.kind = MSP_RAW_LUA, .addr = image->node[1].addr, .ident = image->node[1].ident};
	struct msp_raw_frame vm = {.trace = image->number,
				   .tofs = offset,
				   .ident = msp_trace_image_ident(image, offset)};
	struct stack s = {.sure = 0};
	bool fresh;

	s.count = msp_lj_traces_frames(traces, &vm, &base, s.frame, &fresh);
	assert_true(s.count >= 0);
	while (s.sure < s.count && !(s.frame[s.count - 1 - s.sure].flags & MSP_RAWF_GUESS))
		s.sure++;
	return s;
}

/* What is certain by less is certain by more: how many frames, of all places of all traces. */
static int certain_frames(const struct fixture *f, const struct msp_lj_layout *less)
{
	struct msp_lj_traces *told = msp_lj_traces_new(&f->told, NULL, f->mem, f->g);
	struct msp_lj_traces *untold = msp_lj_traces_new(less, NULL, f->mem, f->g);
	int all = 0;

	for (uint32_t n = 1; n < MAX_TRACES; n++) {
		struct msp_trace_image *a = read_trace(f, f->mem, &f->told, n);
		struct msp_trace_image *b = read_trace(f, f->mem, less, n);

		for (uint32_t at = 0; a && b && at < a->szmcode; at++) {
			struct stack more = stack_at(told, a, at), fewer = stack_at(untold, b, at);

			assert_true(fewer.sure <= more.sure);
			for (int i = 1; i <= fewer.sure; i++)
				assert_true(fewer.frame[fewer.count - i].addr ==
					    more.frame[more.count - i].addr);
			all += fewer.sure;
		}
		msp_trace_image_free(a);
		msp_trace_image_free(b);
	}
	msp_lj_traces_free(told);
	msp_lj_traces_free(untold);
	return all;
}

/* By all snapshots of a trace (where its code is not read: another architecture), by guards, by what snapshots say. */
static void test_certain(void **state)
{
	struct fixture *f = *state;
	struct msp_lj_layout unplaced;
	int by_all, by_guards, told;

	if (!f->g)
		skip();
	unplaced = f->untold;
	unplaced.arch = MSP_ARCH_ARM64;
	by_all = certain_frames(f, &unplaced);
	by_guards = certain_frames(f, &f->untold);
	told = certain_frames(f, &f->told);
	print_message("certain frames: %d by all snapshots, %d by guards, %d as they say\n", by_all,
		      by_guards, told);
	assert_true(by_all > 0 && by_all <= by_guards && by_guards <= told);
	assert_true(by_guards > told / 2);
}

/* Whatever it reads: ranges in the code, in the order of the snapshots, and no offset without one. */
static void test_hostile(void **state)
{
	struct fixture *f = *state;
	struct msp_trace_image *image;
	int read = 0, placed = 0;

	if (!f->g)
		skip();
	for (int i = 0; i < ROUNDS; i++) {
		struct mutator m = {f->mem, 55 + i, 20 + i * 7};
		struct msp_memory mem = {mutate, &m};

		image = read_trace(f, &mem, &f->untold, 1 + i % 8);
		if (!image)
			continue;
		read++;
		placed += image->placed;
		for (uint32_t k = 0; k < image->snap_count; k++) {
			assert_true(image->snap[k].code <= image->snap[k].begin);
			assert_true(image->snap[k].begin <= image->szmcode);
			assert_true(image->snap[k].end <= image->szmcode);
			assert_true(!k || image->snap[k].code >= image->snap[k - 1].code);
			assert_true(!k || image->snap[k].begin >= image->snap[k - 1].begin);
			assert_true(!k || image->snap[k].end >= image->snap[k - 1].end);
		}
		assert_int_equal(image->snap[0].code, 0);
		assert_int_equal(image->snap[image->snap_count - 1].end, image->szmcode);
		msp_trace_image_free(image);
	}
	print_message("%d images of lying memory, %d of them placed\n", read, placed);
	assert_true(read > 10);
}

#define CODE 0x40000000ull
#define CODE_SIZE 0x1000
#define JUMPS 1000

struct endless {
	uint32_t reads;
};

/* The exits of trace 1 behind its code; all else is guards, each of which leads far away. */
static int endless_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	static const uint32_t head[] = {0xf90003fe, 0x94000010, 0x52800020};
	struct endless *e = ctx;
	uint32_t word;

	e->reads++;
	for (size_t at = 0; at < size; at += 4) {
		word = 0x54000001 | (uint32_t)((addr + at) * 2654435761u >> 15 & 0x3ffff) << 5;
		if (addr + at - CODE - CODE_SIZE < sizeof(head))
			word = head[(addr + at - CODE - CODE_SIZE) / 4];
		memcpy((char *)buf + at, &word, 4);
	}
	return 0;
}

/* Of a target that leads on and on so much is read and no more, and then nothing is said. */
static void test_endless(void **state)
{
	struct endless endless = {0};
	struct msp_memory mem = {.read = endless_read, .ctx = &endless};
	struct msp_lj_layout y = {.arch = MSP_ARCH_ARM64, .gc64 = 1};
	struct msp_trace_snap snap[2] = {{.end = CODE_SIZE}, {.end = CODE_SIZE}};
	struct msp_trace_image image = {
		.number = 1, .szmcode = CODE_SIZE, .snap_count = 2, .snap = snap};
	struct msp_trace_ins ins[JUMPS] = {{0}};
	struct msp_trace_reader *r = calloc(1, sizeof(*r));

	(void)state;
	assert_non_null(r);
	for (uint32_t i = 0; i < JUMPS; i++)
		ins[i] =
			(struct msp_trace_ins){.code = i * 4, .jump = CODE + (i + 1) * 0x100000ull};
	/* the first is a guard of the second snapshot */
	ins[0].jump = CODE + CODE_SIZE + sizeof(uint32_t) * 4;
	*r = (struct msp_trace_reader){.layout = &y,
				       .mem = &mem,
				       .mcode = CODE,
				       .image = &image,
				       .ins = ins,
				       .ins_count = 1};
	msp_trace_place_snaps(r);
	assert_true(image.placed);
	image.placed = false;
	endless.reads = 0;
	r->ins_count = JUMPS;
	msp_trace_place_snaps(r);
	print_message("%u reads\n", endless.reads);
	assert_in_range(endless.reads, MSP_EXITS_READS / 2, MSP_EXITS_READS);
	assert_false(image.placed);
	for (int i = 0; i < 2; i++)
		assert_true(!snap[i].code && !snap[i].begin && snap[i].end == CODE_SIZE);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_guards, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_side_traces, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_certain, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
		cmocka_unit_test(test_endless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
