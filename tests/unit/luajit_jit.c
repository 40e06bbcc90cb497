/* SPDX-License-Identifier: MIT */
/* What a real LuaJIT compiled, what it gave up on and why; and memory that lies. */
#include "luajit_help.h"
#include "luajit_mutator.h"

#include "luajit/jit.h"

#define ROUNDS 300

/*
 * Line by line: a loop that closures keep from being compiled until it is given up; one that was
 * tried a few times; one that is switched off; one that is compiled, with a side trace; one that
 * leaves for gsub and cannot go on.
 */
#define SCRIPT \
	"local f, s = nil, 0\n" \
	"for i = 1, 1e6 do f = function() return i end end\n" \
	"local function tried(n) for i = 1, n do f = function() return i end end end tried(300)\n" \
	"local function off(n) for i = 1, n do s = s + i end end jit.off(off) off(300)\n" \
	"local function hot(n) for i = 1, n do if i % 3 == 0 then s = s + 1 else s = s + 2 end " \
	"end end hot(1000)\n" \
	"local function stitch(n) for i = 1, n do local g = ('a'):gsub('a', 'b') f = function() " \
	"return g end end end\n" \
	"stitch(3000)\n" \
	"io.write('ready') io.flush() io.read()\n" \
	"jit.flush() tried(300) io.read()"

struct fixture {
	struct lua_child child;
	const struct msp_memory *mem;
	struct msp_lj_names *names;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!f || !have_file(LUAJIT))
		return 0;
	lua_start(&f->child, SCRIPT, "-jon");
	lua_attach(&f->child);
	f->mem = msp_process_memory(f->child.process);
	f->names = msp_lj_names_new(f->child.build, f->mem, f->child.g[0]);
	return f->child.g_count == 1 && f->names ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	msp_lj_names_free(f->names);
	if (f->names)
		lua_stop(&f->child);
	free(f);
	return 0;
}

static uint32_t line_of(const struct fixture *f, const struct msp_lj_code_place *place)
{
	const struct msp_lj_function *fn;

	assert_true(place->pt != 0);
	assert_int_equal(msp_lj_names_function(f->names, place->pt, place->ident, 0, 0, &fn), 0);
	return msp_lj_names_line(f->names, place->pt, place->ident, place->pos);
}

/* The only refusal on a line. */
static const struct msp_lj_refusal *on_line(const struct fixture *f, const struct msp_lj_jit *jit,
					    uint32_t line)
{
	const struct msp_lj_refusal *found = NULL;

	for (size_t i = 0; i < jit->refusals; i++)
		if (line_of(f, &jit->refusal[i].place) == line) {
			assert_null(found);
			found = &jit->refusal[i];
		}
	return found;
}

static void test_refusals(void **state)
{
	struct fixture *f = *state;
	const struct msp_lj_refusal *r;
	struct msp_lj_jit jit;

	if (!f->names)
		skip();
	assert_int_equal(msp_lj_jit_read(f->child.build, f->mem, f->child.g[0], &jit), 0);
	assert_true(jit.all_functions && jit.aborts_known && !jit.flushed);
	r = on_line(f, &jit, 2);
	assert_non_null(r);
	assert_int_equal(r->kind, MSP_LJ_GIVEN_UP);
	assert_true(r->loop);
	assert_string_equal(msp_lj_reason_text(r->reason), "not yet implemented: bytecode");
	assert_int_equal(r->penalty, 0);
	r = on_line(f, &jit, 3);
	assert_non_null(r);
	assert_int_equal(r->kind, MSP_LJ_ABORTED);
	assert_true(r->loop);
	assert_string_equal(msp_lj_reason_text(r->reason), "not yet implemented: bytecode");
	assert_in_range(r->penalty, 72, 60000);
	r = on_line(f, &jit, 4);
	assert_non_null(r);
	assert_int_equal(r->kind, MSP_LJ_SWITCHED_OFF);
	assert_true(r->loop);
	assert_int_equal(r->reason, MSP_LJ_REASON_NONE);
	assert_null(on_line(f, &jit, 5));
	assert_null(on_line(f, &jit, 6));
	assert_int_equal(jit.refusals, 3);
	msp_lj_jit_free(&jit);
}

static void count_place(void *ctx, const struct msp_lj_code_place *place)
{
	assert_true(place->pt != 0);
	++*(int *)ctx;
}

static void test_traces(void **state)
{
	struct fixture *f = *state;
	int loops = 0, sides = 0, stitches = 0, places;
	uint64_t bytes = 0;
	struct msp_lj_jit jit;

	if (!f->names)
		skip();
	assert_int_equal(msp_lj_jit_read(f->child.build, f->mem, f->child.g[0], &jit), 0);
	for (size_t i = 0; i < jit.traces; i++) {
		const struct msp_lj_trace *t = &jit.trace[i];
		uint32_t line = line_of(f, &t->start);

		assert_true(!i || t->number > jit.trace[i - 1].number);
		assert_true(t->szmcode && t->snapshots);
		bytes += t->szmcode;
		if (line == 5 && !t->root) {
			loops++;
			assert_string_equal(msp_lj_link_name(t->linktype), "loop");
			assert_int_equal(t->link, t->number);
			assert_int_equal(t->parent, 0);
		} else if (line == 5) {
			sides++;
			assert_int_equal(t->parent, t->root);
			assert_true(t->exit > 0 && t->exit < 100);
		} else if (line == 6) {
			stitches++;
			assert_string_equal(msp_lj_link_name(t->linktype), "stitch");
			assert_true(msp_lj_link_gives_up(t));
		}
		places = 0;
		assert_int_equal(
			msp_lj_trace_places(f->child.build, f->mem, t, count_place, &places), 0);
		assert_true(places >= (int)t->snapshots);
	}
	assert_true(bytes == jit.mcode);
	assert_true(loops == 1 && sides >= 1 && stitches == 1);
	msp_lj_jit_free(&jit);
}

/* After a flush there are no traces, what was given up is forgotten, and only the index tells of it. */
static void test_flush(void **state)
{
	struct fixture *f = *state;
	struct msp_lj_jit jit;
	bool flushed = false;

	if (!f->names)
		skip();
	assert_int_equal(write(f->child.in, "\n", 1), 1);
	for (int i = 0; i < 1000 && !flushed; i++) {
		assert_int_equal(msp_lj_jit_read(f->child.build, f->mem, f->child.g[0], &jit), 0);
		flushed = jit.aborts_known && jit.flushed;
		if (flushed)
			assert_non_null(on_line(f, &jit, 3));
		msp_lj_jit_free(&jit);
		usleep(10000);
	}
	assert_true(flushed);
}

static void ignore_place(void *ctx, const struct msp_lj_code_place *place)
{
	(void)ctx;
	(void)place;
}

static void test_hostile(void **state)
{
	struct fixture *f = *state;
	struct mutator m = {.mem = f->mem, .seed = 88172645463325252ull};
	struct msp_memory mem = {.read = mutate, .ctx = &m};
	int results = 0, whole = 0;
	struct msp_lj_jit jit;

	if (!f->names)
		skip();
	for (int i = 0; i < ROUNDS; i++) {
		m.one_in = 10 + next_random(&m.seed) % 20000;
		if (msp_lj_jit_read(f->child.build, &mem, f->child.g[0], &jit))
			continue;
		results++;
		whole += jit.all_functions;
		for (size_t k = 0; k < jit.traces; k++) {
			msp_lj_link_name(jit.trace[k].linktype);
			msp_lj_trace_places(f->child.build, &mem, &jit.trace[k], ignore_place,
					    NULL);
		}
		for (size_t k = 0; k < jit.refusals; k++)
			msp_lj_reason_text(jit.refusal[k].reason);
		msp_lj_jit_free(&jit);
	}
	print_message("%d of %d had an answer, %d with all functions\n", results, ROUNDS, whole);
	assert_true(results > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_traces),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_flush),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
