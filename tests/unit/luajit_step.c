/* SPDX-License-Identifier: MIT */
/*
 * The VM block's unwind rows, checked at every instruction that a LuaJIT
 * process executes. The truth does not come from the rows: a shadow stack is
 * kept from the calls and returns that the single-stepped process makes, with
 * the callee-saved registers of each caller; and the VM's own L->cframe.
 *
 * MSP_STEPS in the environment: how many steps, per run.
 */
#include <inttypes.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "luajit_help.h"

#define MAX_DEPTH 4096
#define MAX_SHOWN 8
#define WINDOW 256

static const char workload[] =
	"local t = {}\n"
	"local mt = {__index = function(_, k) return k end, __add = function(a, b) return 1 end,\n"
	"  __eq = function() return true end, __lt = function() return true end,\n"
	"  __le = function() return false end, __concat = function() return 'c' end,\n"
	"  __call = function(_, x) return x end, __len = function() return 3 end,\n"
	"  __newindex = function(o, k, v) rawset(o, k, v) end, __unm = function() return 2 end}\n"
	"local function meta()\n"
	"  local a, b = setmetatable({}, mt), setmetatable({}, mt)\n"
	"  a.x = a.y; a[1] = b[2]\n"
	"  return a + 1, a == b, a < b, a <= b, a .. 'x', a(5), #a, -a, a ~= b\n"
	"end\n"
	"local function numbers(n)\n"
	"  local s = 0.5\n"
	"  for i = 1, n do\n"
	"    s = s + i % 7 + i % 2.5 + math.floor(s / 3) + math.ceil(s) + (i ^ 0.5) + i ^ 2\n"
	"    s = s + math.fmod(i, 3) + math.max(i, 3, s) + math.min(1, i) + math.abs(-i) % 5\n"
	"    s = s + math.sqrt(i) + math.log(i) + math.exp(0.1) + math.sin(i) + math.modf(s)\n"
	"    s = s + math.frexp(s) + math.ldexp(s, 1) + math.pow(2, 3) + math.atan2(i, 2)\n"
	"    s = s % 1000 + bit.band(i, 7) + bit.bor(i, 1) + bit.lshift(i, 2) + bit.rol(i, 3)\n"
	"  end\n"
	"  return s\n"
	"end\n"
	"local function strings()\n"
	"  local s = tostring(12) .. tostring(1.5) .. ('x'):rep(3) .. string.char(65, 66)\n"
	"  s = s:sub(2, 5) .. s:upper() .. s:lower() .. s:reverse() .. s:byte(1)\n"
	"  return s:gsub('.', function(c) return c .. c end), tonumber('0x10'), #s\n"
	"end\n"
	"local function coroutines()\n"
	"  local co = coroutine.create(function(a)\n"
	"    for i = 1, 3 do a = coroutine.yield(a + i) end\n"
	"    error('in coroutine')\n"
	"  end)\n"
	"  for i = 1, 5 do coroutine.resume(co, i) end\n"
	"  local w = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end return 9 "
	"end)\n"
	"  local n = w() + w() + w() + w()\n"
	"  local outer = coroutine.wrap(function()\n"
	"    local inner = coroutine.wrap(function() pcall(coroutine.yield, 1) return 2 end)\n"
	"    coroutine.yield(inner() + inner())\n"
	"  end)\n"
	"  pcall(coroutine.wrap(function() error('x') end))\n"
	"  return n + outer(), coroutine.status(co), coroutine.running()\n"
	"end\n"
	"local function varargs(...) return select('#', ...), ... end\n"
	"local function tail(n, ...) if n == 0 then return ... end return tail(n - 1, n, ...) end\n"
	"local function errors()\n"
	"  local r = {pcall(error, 'a'), pcall(function() local x = nil + 1 end),\n"
	"    xpcall(function() error({}) end, function(e) return debug.traceback('tb') end),\n"
	"    pcall(string.rep), pcall(setmetatable, 1), (pcall(function() t.a.b = 1 end))}\n"
	"  return #r, select(2, pcall(pcall, error, 'deep'))\n"
	"end\n"
	"local function iterate()\n"
	"  local n = 0\n"
	"  local q = {1, 2, 3, a = 4, b = 5}\n"
	"  for k, v in pairs(q) do n = n + v end\n"
	"  for i, v in ipairs(q) do n = n + v end\n"
	"  for k in next, q do n = n + 1 end\n"
	"  for w in ('a b c'):gmatch('%a') do n = n + 1 end\n"
	"  table.sort(q, function(a, b) return a > b end)\n"
	"  local p = {unpack(q)}\n"
	"  for i = 1, 20 do p[#p + 1] = i; p[i] = {i, x = i} end\n"
	"  repeat n = n - 1 until n < 0\n"
	"  while n < 5 do n = n + 1; if n == 3 then goto out end end\n"
	"  ::out::\n"
	"  return n, getmetatable('').__index, rawget(q, 1), rawlen, type(q), assert(true)\n"
	"end\n"
	"local function closures()\n"
	"  local fs = {}\n"
	"  for i = 1, 4 do local u = i; fs[i] = function() u = u + 1; return u end end\n"
	"  return fs[1]() + fs[4]()\n"
	"end\n"
	"local ffi = require('ffi')\n"
	"ffi.cdef('void qsort(void *, size_t, size_t, int (*)(const int *, const int *));'\n"
	"  .. 'int abs(int); double fabs(double); int raise(int);')\n"
	"local compare = ffi.cast('int (*)(const int *, const int *)', function(a, b)\n"
	"  return a[0] - b[0]\n"
	"end)\n"
	"local function foreign()\n"
	"  local a = ffi.new('int[4]', 3, 1, 4, 2)\n"
	"  ffi.C.qsort(a, 4, 4, compare)\n"
	"  return a[0] + ffi.C.abs(-3) + ffi.C.fabs(-2)\n"
	"end\n"
	"local function hooks()\n"
	"  local n = 0\n"
	"  debug.sethook(function() n = n + 1 end, 'crl', 3)\n"
	"  closures()\n"
	"  debug.sethook()\n"
	"  return n\n"
	"end\n"
	"local function hot(n)\n"
	"  local s, q = 0, {}\n"
	"  for i = 1, n do\n"
	"    if i % 3 == 0 then s = s + i % 7 elseif i % 4 == 0 then s = s - math.floor(i / 3) "
	"end\n"
	"    q[i % 5] = s; s = s + #tostring(i) + math.sqrt(i) % 1.5\n"
	"  end\n"
	"  return s\n"
	"end\n"
	"local function deep(n) if n == 0 then return 0 end return 1 + deep(n - 1) end\n"
	"if jit.status() then jit.opt.start('hotloop=4', 'hotexit=2') end\n"
	"ffi.C.raise(5)\n"
	"while true do\n"
	"  meta() numbers(3) strings() coroutines() varargs(tail(4)) errors() iterate() "
	"closures()\n"
	"  foreign() hooks() deep(300) hot(jit.status() and 60 or 4)\n"
	"  collectgarbage('step', 1)\n"
	"end\n";

struct shadow {
	uint64_t slot; /* where the return address is */
	uint64_t site; /* the call */
	uint64_t reg[MSP_SLOT_COUNT];
};

struct tracer {
	pid_t pid;
	struct msp_image *image;
	struct msp_lj_build *build;
	const struct msp_lj_layout *l;
	const struct msp_lj_vm_rows *rows;
	uint64_t base;
	struct user_regs_struct now, before;
	struct shadow stack[MAX_DEPTH];
	unsigned int depth;
	uint8_t window[WINDOW]; /* of the stack, from rsp */
	uint8_t *seen;		/* per byte of the block */
	bool quiet;
	uint64_t in_block, distinct, faults, vm, plain, exits;
};

static bool peek(struct tracer *t, uint64_t addr, void *buf, size_t size)
{
	struct iovec to = {buf, size}, from = {(void *)(uintptr_t)addr, size};

	return process_vm_readv(t->pid, &to, 1, &from, 1, 0) == (ssize_t)size;
}

static uint64_t word(struct tracer *t, uint64_t addr)
{
	uint64_t value = 0, from = t->now.rsp;

	if (addr >= from && addr + 8 <= from + WINDOW)
		memcpy(&value, t->window + (addr - from), 8);
	else
		peek(t, addr, &value, 8);
	return value;
}

/* In the order of msp_rule.saved. */
static void saved_regs(const struct user_regs_struct *r, uint64_t reg[MSP_SLOT_COUNT])
{
	memset(reg, 0, MSP_SLOT_COUNT * sizeof(*reg));
	reg[1] = r->rbx;
	reg[2] = r->rbp;
	reg[3] = r->r12;
	reg[4] = r->r13;
	reg[5] = r->r14;
	reg[6] = r->r15;
}

static void fault(struct tracer *t, const struct msp_rule *rule, const char *format, uint64_t value)
{
	if (t->faults++ >= MAX_SHOWN || t->quiet)
		return;
	print_message("fault at 0x%" PRIx64 ", rsp 0x%" PRIx64 ", rule cfa=rsp+%d flags %u: ",
		      (uint64_t)t->now.rip - t->base, (uint64_t)t->now.rsp, rule->cfa_off,
		      rule->flags);
	print_message(format, value);
	print_message("\n");
}

/* Keeps the shadow stack: what lies below the stack pointer is gone; calls push. */
static void follow(struct tracer *t)
{
	uint64_t ra, from = t->before.rip, to = t->now.rip, rsp = t->now.rsp;

	while (t->depth && t->stack[t->depth - 1].slot < rsp)
		t->depth--;
	if (rsp != t->before.rsp - 8 || (to > from && to < from + 16 && to != from + 5))
		return;
	if (!peek(t, rsp, &ra, 8) || ra < from + 2 || ra > from + 7 || t->depth == MAX_DEPTH)
		return;
	t->stack[t->depth].slot = rsp;
	t->stack[t->depth].site = from;
	saved_regs(&t->before, t->stack[t->depth++].reg);
}

static const struct msp_rule *find_rule(struct tracer *t, uint32_t addr)
{
	uint32_t low = 0, high = t->rows->row_count;

	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;

		if (t->rows->rows[mid].addr <= addr)
			low = mid;
		else
			high = mid;
	}
	return &t->rows->rules[t->rows->rows[low].rule];
}

/* Every callee-saved register of the caller is where the rule says. */
static void check_registers(struct tracer *t, const struct msp_rule *rule, uint64_t cfa,
			    const struct shadow *s)
{
	uint64_t reg[MSP_SLOT_COUNT];

	saved_regs(&t->now, reg);
	for (unsigned int i = 1; i < 7; i++) {
		uint64_t value = reg[i];

		if (rule->saved[i] != MSP_SAVED_SAME)
			value = word(t, cfa + (uint64_t)(int64_t)rule->saved[i]);
		if (value != s->reg[i])
			fault(t, rule, "register slot %" PRIu64 " is not the caller's", i);
	}
}

static bool in_block(struct tracer *t, uint64_t pc)
{
	return pc >= t->base + t->l->vm_start && pc < t->base + t->l->vm_end;
}

static void check_plain(struct tracer *t, const struct msp_rule *rule, uint64_t cfa)
{
	const struct shadow *top = &t->stack[t->depth - 1];

	t->plain++;
	if (cfa != top->slot + 8)
		fault(t, rule, "the CFA should be 0x%" PRIx64, top->slot + 8);
	else
		check_registers(t, rule, cfa, top);
}

/* The frame is the innermost, but for a routine of the block itself; and L says it is its. */
static void check_vm(struct tracer *t, const struct msp_rule *rule, uint64_t cfa)
{
	const struct shadow *s = &t->stack[t->depth - 1];
	uint64_t L, cframe;

	t->vm++;
	if (s->slot != cfa - 8 && t->depth > 1 && in_block(t, s->site))
		s--;
	if (s->slot != cfa - 8) {
		fault(t, rule, "the CFA should be 0x%" PRIx64, s->slot + 8);
		return;
	}
	/* In a trace's entry r12 and r13 are still the caller's. */
	check_registers(t, rule, cfa, s);
	L = word(t, cfa - (uint64_t)t->l->cframe_size + (uint64_t)t->l->cf_L);
	cframe = word(t, L + (uint64_t)t->l->L_cframe) & ~3ULL;
	/* 0: the coroutine has just yielded */
	if (cframe && cframe != cfa - (uint64_t)t->l->cframe_size)
		fault(t, rule, "L->cframe is 0x%" PRIx64, cframe);
}

/* Out of a trace: the C frame that the trace runs on is the innermost. */
static void check_exit(struct tracer *t, const struct msp_rule *rule)
{
	uint64_t g = t->now.r14 - (uint64_t)t->l->dispatch_to_g;
	uint64_t L = word(t, g + (uint64_t)t->l->g_cur_L);
	uint64_t cframe = word(t, L + (uint64_t)t->l->L_cframe) & ~3ULL;

	t->exits++;
	if (cframe + (uint64_t)t->l->cframe_size - 8 != t->stack[t->depth - 1].slot)
		fault(t, rule, "the trace's C frame is 0x%" PRIx64, cframe);
}

/*
 * The frame that the script runs on is older than the first step. It is taken
 * once from the VM's own chain; everything after that is measured against it.
 */
static void adopt(struct tracer *t, const struct msp_rule *rule, uint64_t cfa)
{
	struct shadow *s = &t->stack[t->depth];

	saved_regs(&t->now, s->reg);
	s->slot = cfa - 8;
	s->site = 0;
	for (unsigned int i = 1; i < 7; i++) {
		if (rule->saved[i] != MSP_SAVED_SAME)
			s->reg[i] = word(t, cfa + (uint64_t)(int64_t)rule->saved[i]);
	}
	t->depth++;
}

static void check(struct tracer *t)
{
	uint32_t addr = (uint32_t)(t->now.rip - t->base);
	const struct msp_rule *rule = find_rule(t, addr);
	uint64_t cfa = t->now.rsp + (uint64_t)(int64_t)rule->cfa_off;

	t->in_block++;
	t->distinct += !t->seen[addr - t->l->vm_start];
	t->seen[addr - t->l->vm_start] = 1;
	if (!peek(t, t->now.rsp, t->window, WINDOW))
		return;
	if (!t->depth && (rule->flags & MSP_RULE_VM))
		adopt(t, rule, cfa);
	if (!t->depth)
		return;
	if (rule->flags & MSP_RULE_VM_EXIT)
		check_exit(t, rule);
	else if (rule->flags & MSP_RULE_VM)
		check_vm(t, rule, cfa);
	else
		check_plain(t, rule, cfa);
}

static bool step(struct tracer *t)
{
	int status;

	t->before = t->now;
	if (ptrace(PTRACE_SINGLESTEP, t->pid, 0, 0) != 0 || waitpid(t->pid, &status, 0) != t->pid ||
	    !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
		return false;
	return ptrace(PTRACE_GETREGS, t->pid, 0, &t->now) == 0;
}

static uint64_t exec_base(pid_t pid)
{
	struct msp_process *process;
	uint64_t base;

	assert_int_equal(msp_process_open(pid, &process), 0);
	base = image_base(process, "/luajit");
	msp_process_close(process);
	return base;
}

/* Both on one processor: a step is then a switch, not a wake-up. */
static void stay_together(pid_t pid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned int)sched_getcpu(), &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

/* Runs the child until its script is set up: it raises SIGTRAP. */
static void run_to_script(struct tracer *t)
{
	int status;

	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_CONT, t->pid, 0, 0), 0);
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	t->base = exec_base(t->pid);
	assert_int_equal(ptrace(PTRACE_GETREGS, t->pid, 0, &t->now), 0);
	stay_together(t->pid);
}

static void start(struct tracer *t, const char *option)
{
	memset(t, 0, sizeof(*t));
	assert_int_equal(open_image(LUAJIT, &t->image), 0);
	assert_int_equal(msp_lj_build_find(t->image, &t->build), 0);
	t->l = msp_lj_build_layout(t->build);
	t->rows = msp_lj_build_vm_rows(t->build);
	t->seen = calloc(1, t->l->vm_end - t->l->vm_start);
	assert_non_null(t->seen);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl(LUAJIT, "luajit", option, "-e", workload, (char *)NULL);
		_exit(127);
	}
	run_to_script(t);
}

/* What the assembler says: one rule for the whole block. */
static void flatten(struct tracer *t, struct msp_lj_vm_rows *flat)
{
	*flat = *t->rows;
	flat->row_count = 1;
	t->rows = flat;
}

/* Returns how many faults there were. */
static uint64_t run(const char *option, uint64_t steps, bool one_rule)
{
	struct tracer *t = malloc(sizeof(*t));
	const char *env = getenv("MSP_STEPS");
	struct msp_lj_vm_rows flat;
	uint64_t done = 0, faults;
	double begin = now_ms();

	assert_non_null(t);
	if (env && !one_rule)
		steps = strtoull(env, NULL, 0);
	start(t, option);
	t->quiet = one_rule;
	if (one_rule)
		flatten(t, &flat);
	while (done < steps && step(t)) {
		done++;
		follow(t);
		if (in_block(t, t->now.rip))
			check(t);
	}
	print_message("%s: %" PRIu64 " steps in %.1f s, %" PRIu64 " in the VM block (%" PRIu64
		      " interpreter, %" PRIu64 " plain, %" PRIu64 " trace exit), %" PRIu64
		      " of %u instructions, %" PRIu64 " faults\n",
		      option, done, (now_ms() - begin) / 1e3, t->in_block, t->vm, t->plain,
		      t->exits, t->distinct, t->rows->instructions, t->faults);
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
	assert_int_equal(done, steps);
	faults = t->faults;
	msp_lj_build_free(t->build);
	msp_image_close(t->image);
	free(t->seen);
	free(t);
	return faults;
}

static void test_interpreter(void **state)
{
	(void)state;
	if (!have_file(LUAJIT))
		skip();
	assert_int_equal(run("-joff", 150000, false), 0);
}

static void test_jit(void **state)
{
	(void)state;
	if (!have_file(LUAJIT))
		skip();
	assert_int_equal(run("-jon", 250000, false), 0);
}

/* The test would see it: with the one rule that the file has, there are faults. */
static void test_detects(void **state)
{
	(void)state;
	if (!have_file(LUAJIT))
		skip();
	assert_int_not_equal(run("-jon", 30000, true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interpreter),
		cmocka_unit_test(test_jit),
		cmocka_unit_test(test_detects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
