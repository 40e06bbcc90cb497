/* SPDX-License-Identifier: MIT */
/* The proof on a live LuaJIT: it holds, and each field made wrong breaks it. */
#include "luajit_help.h"

/*
 * Objects of every kind that the proof looks at: nested and variadic
 * functions, upvalues, constants, root and side traces, loops, links.
 */
static const char workload[] =
	"local floor = math.floor\n"
	"local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end\n"
	"local up1, up2, up3 = 1, 2.5, 'x'\n"
	"local function variadic(...)\n"
	"  local a, b = ...\n"
	"  return select('#', ...) + (a or 0) + up1\n"
	"end\n"
	"local Class = {}\n"
	"Class.__index = Class\n"
	"function Class.new(x)\n"
	"  return setmetatable({x = x}, Class)\n"
	"end\n"
	"function Class:add(y, z)\n"
	"  self.x = self.x + y * up2 + z\n"
	"  return self\n"
	"end\n"
	"local function nest(a)\n"
	"  local function inner(b)\n"
	"    local function innermost(c)\n"
	"      return a + b + c\n"
	"    end\n"
	"    return innermost(b * 3.25)\n"
	"  end\n"
	"  return inner(a)\n"
	"end\n"
	"local even, odd\n"
	"function even(n)\n"
	"  if n == 0 then return 1 end\n"
	"  return odd(n - 1)\n"
	"end\n"
	"function odd(n)\n"
	"  if n == 0 then return 0 end\n"
	"  return even(n - 1)\n"
	"end\n"
	"local function work()\n"
	"  even(150)\n"
	"  local t, o = {}, Class.new(1)\n"
	"  for i = 1, 300 do\n"
	"    if i % 3 == 0 then t[i] = i elseif i % 5 == 0 then t[i] = floor(i / 7) else t[i] = i "
	"* 1.5 end\n"
	"    o:add(i, 1):add(2, i)\n"
	"  end\n"
	"  local s = 0\n"
	"  for i, v in ipairs(t) do s = s + v end\n"
	"  for k, v in pairs(t) do s = s + k end\n"
	"  local i = 0\n"
	"  while i < 200 do i = i + 1; s = s + nest(i) % 7 end\n"
	"  repeat i = i - 1; s = s + variadic(i, 2, 3) until i == 0\n"
	"  return s + fib(15)\n"
	"end\n"
	"for i = 1, 50 do work() end\n"
	"io.write('ready\\n'); io.flush()\n"
	"local co = coroutine.wrap(function() while true do work() coroutine.yield() end end)\n"
	"while true do work() co() end\n";

static void show(const struct msp_lj_proof *proof)
{
	static const char *const text[] = {
#define _(id, about) about,
		MSP_LJ_CHECKS(_)
#undef _
	};
	static const char *const result[] = {"passed", "FAILED", "not run"};

	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++)
		print_message("  %-7s %s%s%s\n", result[proof->check[i].result], text[i],
			      proof->check[i].detail[0] ? ": " : "", proof->check[i].detail);
}

static void prove_all(const char *option)
{
	struct lua_child c;
	struct msp_lj_proof proof;
	double start;
	int proved = 0;

	lua_start(&c, workload, option);
	lua_attach(&c);
	assert_int_equal(c.g_count, 1);
	start = cpu_ms();
	for (int i = 0; i < 200; i++) {
		if (msp_lj_prove(c.build, msp_process_memory(c.process), c.base, c.g[0], &proof) ==
		    0)
			proved++;
		else
			show(&proof);
	}
	print_message("running, %s: %d of 200 proofs, %.2f ms each\n", option, proved,
		      (cpu_ms() - start) / 200);
	show(&proof);
	assert_int_equal(proved, 200);
	lua_stop(&c);
}

static void test_running(void **state)
{
	(void)state;
	if (!have_file(LUAJIT))
		skip();
	prove_all("-jon");
	prove_all("-joff");
}

/* A VM that did nothing yet has little to prove, but nothing wrong either. */
static void test_idle(void **state)
{
	struct lua_child c;
	struct msp_lj_proof proof;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c, "io.write('ready\\n') io.flush() io.read()", "-jon");
	lua_attach(&c);
	assert_int_equal(c.g_count, 1);
	if (msp_lj_prove(c.build, msp_process_memory(c.process), c.base, c.g[0], &proof) != 0) {
		show(&proof);
		fail();
	}
	lua_stop(&c);
}

/* Loops that go through the interpreter: each trace ends before a call of gsub, and none begins behind it. */
static const char *const stitches =
	"local src = {}\n"
	"for i = 1, 20 do src[i] = 'local function f(n) for i = 1, n do "
	"local s = (\"a\"):gsub(\"a\", \"b\") local g = function() return s end end end f(3000)' "
	"end\n"
	"for i = 1, 20 do loadstring(src[i])() end\n"
	"io.write('ready\\n') io.flush() io.read()";

/* Those are linked to themselves: as many as there are, it is no wrong layout. */
static void test_stitches(void **state)
{
	struct lua_child c;
	struct msp_lj_proof proof;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c, stitches, "-jon");
	lua_attach(&c);
	assert_int_equal(c.g_count, 1);
	msp_lj_prove(c.build, msp_process_memory(c.process), c.base, c.g[0], &proof);
	show(&proof);
	assert_true(proof.proved);
	assert_int_equal(proof.check[MSP_LJ_CHECK_TRACES].result, MSP_LJ_PASSED);
	lua_stop(&c);
}

/* Stops it, so that each run sees the same objects; at a moment with a whole proof. */
static void stop_whole(struct lua_child *c, struct msp_memory *still)
{
	struct msp_lj_proof proof;
	int rc = -1;

	*still = *msp_process_memory(c->process);
	still->running = false;
	for (int i = 0; i < 100 && rc != 0; i++) {
		kill(c->pid, SIGSTOP);
		waitpid(c->pid, NULL, WUNTRACED);
		rc = msp_lj_prove(c->build, still, c->base, c->g[0], &proof);
		if (rc != 0)
			kill(c->pid, SIGCONT);
	}
	assert_int_equal(rc, 0);
}

/* Everything but the code's evidence, which would reject any change by itself. */
static bool rejected_by_memory(struct lua_child *c, const struct msp_memory *mem,
			       enum msp_lj_check *by)
{
	struct msp_lj_proof proof;

	msp_lj_prove(c->build, mem, c->base, c->g[0], &proof);
	for (int i = 0; i < MSP_LJ_CHECK_EVIDENCE; i++) {
		*by = (enum msp_lj_check)i;
		if (proof.check[i].result == MSP_LJ_FAILED)
			return true;
	}
	*by = MSP_LJ_CHECK_EVIDENCE;
	return false;
}

static bool rejected_by_evidence(struct lua_child *c, const struct msp_memory *mem)
{
	struct msp_lj_proof proof;

	return msp_lj_prove(c->build, mem, c->base, c->g[0], &proof) != 0 &&
	       proof.check[MSP_LJ_CHECK_EVIDENCE].result == MSP_LJ_FAILED;
}

/* By other fields alone, as in a build whose functions have no names. */
static bool rejected_by_layout(struct lua_child *c, const struct msp_memory *mem)
{
	size_t count = c->build->evidence_count;
	bool rejected;

	c->build->evidence_count = 0;
	rejected = rejected_by_evidence(c, mem);
	c->build->evidence_count = count;
	return rejected;
}

/* Wrong values of a field: shifted by what other versions might shift it. */
static void inject(struct lua_child *c, const struct msp_memory *mem, enum msp_lj_field field,
		   unsigned int *memory, unsigned int *evidence, unsigned int *missed)
{
	static const char *const names[] = {
#define _(id, text) #id,
		MSP_LJ_CHECKS(_)
#undef _
	};
	static const int shifts[] = {-8, -4, -1, 1, 4, 8, 16};
	int64_t right = msp_lj_field_get(&c->build->layout, field);
	char line[256] = "";

	for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		enum msp_lj_check by;
		size_t n = strlen(line);
		bool by_evidence;

		/* A negative offset is none, not a wrong one. */
		if (right >= 0 && right + shifts[i] < 0)
			continue;
		msp_lj_field_set(&c->build->layout, field, right + shifts[i]);
		if (rejected_by_memory(c, mem, &by)) {
			++*memory;
			snprintf(line + n, sizeof(line) - n, " %+d:%s", shifts[i], names[by]);
		} else {
			by_evidence = rejected_by_evidence(c, mem);
			++*(by_evidence ? evidence : missed);
			snprintf(line + n, sizeof(line) - n, " %+d:%s", shifts[i],
				 !by_evidence		      ? "MISSED"
				 : rejected_by_layout(c, mem) ? "other field"
							      : "code");
		}
	}
	msp_lj_field_set(&c->build->layout, field, right);
	print_message("%-14s%s\n", msp_lj_field_name(field), line);
}

static void test_fault_injection(void **state)
{
	unsigned int memory = 0, evidence = 0, missed = 0;
	struct msp_memory still;
	struct lua_child c;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c, workload, "-jon");
	lua_attach(&c);
	assert_int_equal(c.g_count, 1);
	stop_whole(&c, &still);
	print_message("wrong by:rejected by which check\n");
	for (int f = MSP_LJ_FIELD_cframe_size; f < MSP_LJ_FIELD_COUNT; f++)
		inject(&c, &still, (enum msp_lj_field)f, &memory, &evidence, &missed);
	print_message("%u rejected by memory, %u by code, %u missed\n", memory, evidence, missed);
	assert_int_equal(missed, 0);
	lua_stop(&c);
}

/* A word of the memory reads as something else: always, or for so many milliseconds. */
struct patched {
	const struct msp_memory *mem;
	uint64_t at, word;
	double first_ms, lasts_ms; /* 0: not read yet; 0: always */
};

static int read_patched(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct patched *p = ctx;
	int rc = msp_read(p->mem, addr, buf, size);

	if (rc != 0 || p->at < addr || p->at + 8 > addr + size)
		return rc;
	if (p->first_ms == 0)
		p->first_ms = now_ms();
	if (p->lasts_ms == 0 || now_ms() - p->first_ms < p->lasts_ms)
		memcpy((char *)buf + (p->at - addr), &p->word, sizeof(p->word));
	return 0;
}

/*
 * The number right before the table's size may look like a size: where the search for a free number
 * starts. Neither it nor nothing at all is taken for the size.
 */
static void test_table_size(void **state)
{
	struct msp_lj_layout *l;
	struct msp_lj_proof proof;
	struct msp_memory still;
	struct lua_child c;
	uint64_t J, word;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c, workload, "-jon");
	lua_attach(&c);
	stop_whole(&c, &still);
	l = &c.build->layout;
	J = c.g[0] + (uint64_t)(int64_t)l->g_to_J;
	assert_int_equal(msp_read(&still, J + (uint64_t)l->J_sizetrace - 4, &word, 8), 0);
	for (uint64_t first = 0; first <= 8; first += 8) {
		struct patched patch = {
			.mem = &still, .at = J + (uint64_t)l->J_sizetrace - 4, .word = first};
		struct msp_memory mem = {.read = read_patched, .ctx = &patch};

		patch.word |= word & ~0xffffffffULL;
		assert_int_equal(msp_lj_prove(c.build, &mem, c.base, c.g[0], &proof), 0);
		l->J_sizetrace -= 4;
		assert_int_not_equal(msp_lj_prove(c.build, &mem, c.base, c.g[0], &proof), 0);
		assert_int_equal(proof.check[MSP_LJ_CHECK_TRACES].result, MSP_LJ_FAILED);
		l->J_sizetrace += 4;
	}
	lua_stop(&c);
}

/*
 * A target that has no CPU stays in the middle of what it does: that is no reason to reject it. It
 * is one only in a target that stands still.
 */
static void test_changing(void **state)
{
	struct msp_lj_proof proof;
	struct msp_memory still;
	struct lua_child c;
	uint64_t L;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	lua_start(&c, workload, "-joff");
	lua_attach(&c);
	stop_whole(&c, &still);
	assert_int_equal(msp_read(&still, c.g[0] + (uint64_t)c.build->layout.g_mainthref, &L, 8),
			 0);
	for (int running = 0; running < 2; running++) {
		struct patched patch = {.mem = &still,
					.at = L + (uint64_t)c.build->layout.L_maxstack,
					.lasts_ms = 1};
		struct msp_memory mem = {.read = read_patched, .ctx = &patch, .running = running};
		int rc = msp_lj_prove(c.build, &mem, c.base, c.g[0], &proof);

		if (running)
			show(&proof);
		assert_int_equal(rc, running ? 0 : MSP_E_NOT_PROVED);
	}
	lua_stop(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_running),		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_fault_injection), cmocka_unit_test(test_table_size),
		cmocka_unit_test(test_changing),	cmocka_unit_test(test_stitches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
