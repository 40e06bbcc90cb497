/* SPDX-License-Identifier: MIT */
/*
 * Proves a layout on a global state of a live process. Everything read may be
 * anything: each pointer is checked before it is followed, each loop is bounded.
 */
#include "luajit/proof.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonspy/moonspy.h"

/* A running target changes between two reads of one check: a failed one is run again, so many times. */
#define TRIES 6
#define STACK_TRIES 16 /* while its new slots are cleared, page by page, its bounds do not agree */
#define FRAME_TRIES \
	24 /* with callbacks the innermost frame is left half of the time before it is read */
/*
 * The list of all objects is followed into freed memory once in a while. A program that records and flushes
 * traces all the time has others by the time that they are read: half of the tries fail.
 */
#define OBJECT_TRIES 16
#define MORE_OBJECT_TRIES 48 /* if nothing else speaks against it */
#define ONE_OBJECT_TRIES 3
#define FIRST_PAUSE_NS 100000L
#define PAUSE_DOUBLINGS 6
#define MAX_STATUS 6
#define FF_C 1
#define MIN_VMSTATE (-16)
#define MAX_TRACES 65536
#define MAX_CFRAMES 16
#define MAX_REPLACED 8
/* lj_state.c: slots behind maxstack: LJ_STACK_EXTRA + 1, 6 to 9 so far. */
#define MIN_EXTRA 5
#define MAX_EXTRA 12
#define MAX_STACK_SLOTS (1U << 26)

void msp_proof_refresh(struct msp_prover *p)
{
	for (unsigned int i = 0; i < MSP_PROOF_LINES; i++)
		p->line[i].addr = 0;
}

/* The cached line at an aligned address; NULL: not readable. */
static const uint8_t *get_line(struct msp_prover *p, uint64_t addr)
{
	unsigned int i = (unsigned int)(addr / MSP_PROOF_LINE % MSP_PROOF_LINES);

	if (p->line[i].addr == addr)
		return p->line[i].bytes;
	p->line[i].addr = 0;
	if (!addr || msp_read(p->mem, addr, p->line[i].bytes, MSP_PROOF_LINE) != 0)
		return NULL;
	p->line[i].addr = addr;
	return p->line[i].bytes;
}

bool msp_proof_read(struct msp_prover *p, uint64_t addr, void *buf, size_t size)
{
	while (size) {
		size_t at = (size_t)(addr % MSP_PROOF_LINE);
		size_t n = MSP_PROOF_LINE - at < size ? MSP_PROOF_LINE - at : size;
		const uint8_t *line = get_line(p, addr - at);

		if (!line)
			return false;
		memcpy(buf, line + at, n);
		buf = (uint8_t *)buf + n;
		addr += n;
		size -= n;
	}
	return true;
}

bool msp_proof_u8(struct msp_prover *p, uint64_t addr, uint8_t *out)
{
	return msp_proof_read(p, addr, out, sizeof(*out));
}

bool msp_proof_u16(struct msp_prover *p, uint64_t addr, uint16_t *out)
{
	return msp_proof_read(p, addr, out, sizeof(*out));
}

bool msp_proof_u32(struct msp_prover *p, uint64_t addr, uint32_t *out)
{
	return msp_proof_read(p, addr, out, sizeof(*out));
}

bool msp_proof_u64(struct msp_prover *p, uint64_t addr, uint64_t *out)
{
	return msp_proof_read(p, addr, out, sizeof(*out));
}

bool msp_proof_ref(struct msp_prover *p, uint64_t addr, uint64_t *out)
{
	uint32_t half;

	if (p->layout->gc64)
		return msp_proof_u64(p, addr, out);
	if (!msp_proof_u32(p, addr, &half))
		return false;
	*out = half;
	return true;
}

bool msp_proof_is(struct msp_prover *p, uint64_t addr, uint8_t gct)
{
	uint8_t type;

	return msp_proof_pointer(addr, 8) &&
	       msp_proof_u8(p, addr + (uint64_t)p->layout->gc_gct, &type) && type == gct;
}

void msp_proof_pass(struct msp_prover *p, enum msp_lj_check check)
{
	if (p->out->check[check].result == MSP_LJ_NOT_RUN)
		p->out->check[check].result = MSP_LJ_PASSED;
}

void msp_proof_fail(struct msp_prover *p, enum msp_lj_check check, const char *format, ...)
{
	va_list args;

	if (p->out->check[check].result == MSP_LJ_FAILED)
		return;
	p->out->check[check].result = MSP_LJ_FAILED;
	va_start(args, format);
	vsnprintf(p->out->check[check].detail, sizeof(p->out->check[check].detail), format, args);
	va_end(args);
}

static unsigned int statement(struct msp_tally *tally, const char *format)
{
	for (unsigned int i = 0; i < tally->count; i++) {
		if (tally->of[i].format == format)
			return i;
	}
	if (tally->count == MSP_TALLY_STATEMENTS)
		return MSP_TALLY_STATEMENTS - 1;
	tally->of[tally->count].format = format;
	return tally->count++;
}

bool msp_tally_add(struct msp_tally *tally, bool ok, const char *format, ...)
{
	unsigned int i = statement(tally, format);
	va_list args;

	if (ok) {
		tally->of[i].right++;
		return true;
	}
	if (!tally->of[i].wrong++) {
		va_start(args, format);
		vsnprintf(tally->of[i].detail, sizeof(tally->of[i].detail), format, args);
		va_end(args);
	}
	return false;
}

void msp_tally_result(struct msp_prover *p, enum msp_lj_check check, const struct msp_tally *tally)
{
	for (unsigned int i = 0; i < tally->count; i++) {
		unsigned int wrong = tally->of[i].wrong, right = tally->of[i].right;

		if (wrong && (!right || (wrong > 1 && wrong * 8 > right + wrong)))
			msp_proof_fail(p, check, "%s", tally->of[i].detail);
		else if (right)
			msp_proof_pass(p, check);
	}
}

static bool is_worse(const struct msp_tally *now, const struct msp_tally *before)
{
	for (unsigned int i = 0; i < now->count; i++) {
		if (now->of[i].wrong > (i < before->count ? before->of[i].wrong : 0))
			return true;
	}
	return false;
}

void msp_tally_object(struct msp_prover *p, struct msp_tally *tally, msp_object_check check,
		      uint64_t at, uint8_t gct)
{
	const struct msp_tally before = *tally;

	for (int i = 0; i < ONE_OBJECT_TRIES; i++) {
		*tally = before;
		if (!msp_proof_is(p, at, gct))
			return;
		check(p, tally, at);
		if (!is_worse(tally, &before))
			return;
		msp_proof_refresh(p);
	}
}

/*
 * Before a try: nothing that was read counts any more. A target that waits for a CPU stays as it
 * is, in the middle of something perhaps: it is given time to go on. False: no try is left.
 */
static bool may_try(struct msp_prover *p, int try, int tries)
{
	int doublings = try <= PAUSE_DOUBLINGS ? try - 1 : PAUSE_DOUBLINGS;
	struct timespec pause = {.tv_nsec = FIRST_PAUSE_NS << (try ? doublings : 0)};

	if (try >= (p->mem->running ? tries : 1))
		return false;
	if (try)
		nanosleep(&pause, NULL);
	msp_proof_refresh(p);
	return true;
}

static bool has_failed(const struct msp_prover *p)
{
	bool failed = false;

	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++)
		failed |= p->out->check[i].result == MSP_LJ_FAILED;
	return failed;
}

/* Runs a check until it passes, a few times; once if another has failed. It describes its failure in why. */
#define WHY_SIZE 96
static void attempt_often(struct msp_prover *p, enum msp_lj_check check,
			  bool (*run)(struct msp_prover *p, char *why), int tries)
{
	char why[WHY_SIZE] = "";

	if (has_failed(p))
		tries = 1;
	for (int i = 0; may_try(p, i, tries); i++) {
		if (run(p, why)) {
			msp_proof_pass(p, check);
			return;
		}
	}
	msp_proof_fail(p, check, "%s", why);
}

static void attempt(struct msp_prover *p, enum msp_lj_check check,
		    bool (*run)(struct msp_prover *p, char *why))
{
	attempt_often(p, check, run, TRIES);
}

#define WHY(...) (snprintf(why, WHY_SIZE, __VA_ARGS__), false)

/* The dynamic part may be patched by hooks and the recorder; the static part behind it never is. */
static bool check_dispatch(struct msp_prover *p, char *why)
{
	const struct msp_lj_build *build = p->build;
	const struct msp_lj_layout *l = p->layout;
	uint64_t table = p->g + (uint64_t)(int64_t)l->dispatch_to_g, entry;
	unsigned int dynamic = build->handler_count, ops = l->bc_funccw + 1U;
	unsigned int replaced = 0;
	uint32_t bcff;

	for (unsigned int i = 0; i < dynamic + l->bc_funcf; i++) {
		if (!msp_proof_u64(p, table + i * 8, &entry))
			return WHY("entry %u is not readable", i);
		if (entry < p->image_base + l->vm_start || entry >= p->image_base + l->vm_end)
			return WHY("entry %u is 0x%" PRIx64, i, entry);
		if (i < dynamic || entry == p->image_base + build->handler[i - dynamic])
			continue;
		/* Counting instructions are replaced by those that do not, without the JIT. */
		if (++replaced > MAX_REPLACED)
			return WHY("static entry %u is 0x%" PRIx64, i - dynamic, entry);
	}
	/* Then comes the bytecode of fast functions: one opcode each behind the last. */
	for (unsigned int i = 0; i + ops < dynamic; i++) {
		if (!msp_proof_u32(p, table + (dynamic + l->bc_funcf) * 8 + i * 4, &bcff))
			return WHY("fast function %u is not readable", i);
		if ((bcff & 0xff) != ((ops + i) & 0xff))
			return WHY("fast function %u has opcode %u", i, bcff & 0xff);
	}
	return true;
}

static bool is_thread_of(struct msp_prover *p, uint64_t L)
{
	uint64_t glref;

	return msp_proof_is(p, L, MSP_GCT_THREAD) &&
	       msp_proof_ref(p, L + (uint64_t)p->layout->L_glref, &glref) && glref == p->g;
}

/* The main thread's state is also part of the allocation: it ends where the global state starts. */
static bool check_mainthref(struct msp_prover *p, char *why)
{
	uint64_t L;

	if (!msp_proof_ref(p, p->g + (uint64_t)(int64_t)p->layout->g_mainthref, &L))
		return WHY("0x%" PRIx64 " is not readable", p->g);
	if (!is_thread_of(p, L))
		return WHY("0x%" PRIx64 " is no thread of 0x%" PRIx64, L, p->g);
	if (L >= p->g || p->g - L > 512)
		return WHY("0x%" PRIx64 " is not right before 0x%" PRIx64, L, p->g);
	p->main_L = L;
	return true;
}

static bool check_cur_l(struct msp_prover *p, char *why)
{
	uint64_t L;

	if (!msp_proof_ref(p, p->g + (uint64_t)(int64_t)p->layout->g_cur_L, &L))
		return WHY("not readable");
	/* A VM that never ran has none. */
	if (L && !is_thread_of(p, L))
		return WHY("0x%" PRIx64 " is no thread of 0x%" PRIx64, L, p->g);
	p->cur_L = L;
	return true;
}

static bool check_strempty(struct msp_prover *p, char *why)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t str = p->g + (uint64_t)(int64_t)l->g_strempty;
	uint32_t len;
	uint8_t zero, gct;

	/* It is part of the global state: without GC64 it need not be aligned as objects are. */
	if (!msp_proof_pointer(str, 4) || !msp_proof_u8(p, str + (uint64_t)l->gc_gct, &gct) ||
	    gct != MSP_GCT_STR)
		return WHY("no string at 0x%" PRIx64, str);
	if (!msp_proof_u32(p, str + (uint64_t)l->str_len, &len) || len)
		return WHY("length at 0x%" PRIx64 " is %u", str, len);
	if (!msp_proof_u8(p, str + (uint64_t)l->str_data, &zero) || zero)
		return WHY("data starts with 0x%x", zero);
	return true;
}

struct stack {
	uint64_t stack, base, top, maxstack;
	uint32_t size;
};

static bool read_stack(struct msp_prover *p, uint64_t L, struct stack *s)
{
	const struct msp_lj_layout *l = p->layout;

	return msp_proof_ref(p, L + (uint64_t)l->L_stack, &s->stack) &&
	       msp_proof_u64(p, L + (uint64_t)l->L_base, &s->base) &&
	       msp_proof_u64(p, L + (uint64_t)l->L_top, &s->top) &&
	       msp_proof_ref(p, L + (uint64_t)l->L_maxstack, &s->maxstack) &&
	       msp_proof_u32(p, L + (uint64_t)l->L_stacksize, &s->size);
}

static bool check_stack(struct msp_prover *p, char *why)
{
	const struct msp_lj_layout *l = p->layout;
	struct stack s;
	uint64_t first;
	uint8_t status, ffid;

	if (!read_stack(p, p->main_L, &s) ||
	    !msp_proof_u8(p, p->main_L + (uint64_t)l->fn_ffid, &ffid) ||
	    !msp_proof_u8(p, p->main_L + (uint64_t)l->L_status, &status))
		return WHY("0x%" PRIx64 " is not readable", p->main_L);
	if (!msp_proof_pointer(s.stack, 8) || s.size < 2 * MAX_EXTRA || s.size > MAX_STACK_SLOTS)
		return WHY("stack 0x%" PRIx64 " has %u slots", s.stack, s.size);
	if (s.maxstack < s.stack || s.maxstack > s.stack + (uint64_t)(s.size - MIN_EXTRA) * 8 ||
	    s.maxstack + MAX_EXTRA * 8 < s.stack + (uint64_t)s.size * 8)
		return WHY("maxstack is %" PRId64 " slots from the end",
			   (int64_t)(s.stack + (uint64_t)s.size * 8 - s.maxstack) / 8);
	if (s.base % 8 || s.base <= s.stack || s.base > s.maxstack)
		return WHY("base is %" PRId64 " bytes above the stack",
			   (int64_t)(s.base - s.stack));
	if (s.top % 8 || s.top < s.stack || s.top > s.stack + (uint64_t)s.size * 8)
		return WHY("top is %" PRId64 " bytes above the stack", (int64_t)(s.top - s.stack));
	/* The lowest slot is a frame of the thread itself. */
	if (!msp_proof_u64(p, s.stack, &first) ||
	    (l->gc64 ? first & ((1ULL << 47) - 1) : (uint32_t)first) != p->main_L)
		return WHY("lowest slot is 0x%" PRIx64, first);
	/* lj_obj.h: where a function has its number, a coroutine says that it is a C function. */
	if (ffid != FF_C || l->L_status != l->fn_ffid + 1)
		return WHY("as a function it is %u at %d, its status is at %d", ffid, l->fn_ffid,
			   l->L_status);
	if (status > MAX_STATUS)
		return WHY("status is %u", status);
	return true;
}

static bool in_stack(struct msp_prover *p, uint64_t L, uint64_t addr)
{
	struct stack s;

	return L && read_stack(p, L, &s) && addr > s.stack && addr <= s.maxstack;
}

static bool check_state(struct msp_prover *p, char *why)
{
	const struct msp_lj_layout *l = p->layout;
	uint32_t bits;
	int32_t vmstate;
	uint64_t base;

	if (!msp_proof_u32(p, p->g + (uint64_t)(int64_t)l->g_vmstate, &bits))
		return WHY("vmstate is not readable");
	vmstate = (int32_t)bits;
	if (vmstate < MIN_VMSTATE || vmstate > MAX_TRACES)
		return WHY("vmstate is %d", vmstate);
	if (!l->jit)
		return true;
	if (!msp_proof_ref(p, p->g + (uint64_t)(int64_t)l->g_jit_base, &base))
		return WHY("jit_base is not readable");
	if (base % 8 || base >= 1ULL << 47)
		return WHY("jit_base is 0x%" PRIx64, base);
	/* In a trace another coroutine than cur_L may be the one that runs. */
	if (base && vmstate < 0 && !in_stack(p, p->cur_L, base) && !in_stack(p, p->main_L, base))
		return WHY("jit_base 0x%" PRIx64 " is in no stack, vmstate %d", base, vmstate);
	return true;
}

/*
 * Is there a call instruction right before that address? A core file need not have the
 * code: then that is not known.
 */
static bool follows_call(struct msp_prover *p, uint64_t addr)
{
	uint8_t b[8];
	uint32_t word;

	if (!msp_proof_address(p, addr, 1))
		return false;
	if (!msp_proof_read(p, addr - 8, b, sizeof(b)))
		return true;
	if (p->layout->arch == MSP_ARCH_ARM64) { /* bl; blr, or one that checks a signature */
		memcpy(&word, b + 4, sizeof(word));
		return word >> 26 == 0x25 || (word & 0xfefff800) == 0xd63f0000 ||
		       (word & 0xfefff800) == 0xd63f0800;
	}
	/* call rel32; call reg/mem: ff /2 with 2, 3, 4, 6 or 7 bytes */
	return b[3] == 0xe8 || (b[6] == 0xff && (b[7] & 0x38) == 0x10) ||
	       (b[5] == 0xff && (b[6] & 0x38) == 0x10) || (b[4] == 0xff && (b[5] & 0x38) == 0x10) ||
	       (b[2] == 0xff && (b[3] & 0x38) == 0x10) || (b[1] == 0xff && (b[2] & 0x38) == 0x10);
}

/* Where the interpreter's C frame has its return address, by the rule of its body. */
static int32_t return_slot(const struct msp_lj_build *build)
{
	int32_t size = build->layout.cframe_size;

	for (uint32_t i = 0; i < build->rows.rule_count; i++) {
		const struct msp_rule *rule = &build->rows.rules[i];

		if (rule->flags & MSP_RULE_VM && rule->cfa_off == size &&
		    rule->saved[MSP_SLOT_RA] < 0)
			return size + rule->saved[MSP_SLOT_RA];
	}
	return size - 8;
}

static bool check_frames(struct msp_prover *p, char *why)
{
	const struct msp_lj_layout *l = p->layout;
	uint64_t frame, L, prev, pc, ra;

	if (!msp_proof_u64(p, p->main_L + (uint64_t)l->L_cframe, &frame))
		return WHY("not readable");
	for (int i = 0; frame && i < MAX_CFRAMES; i++, frame = prev) {
		frame &= ~3ULL;
		if (!msp_proof_address(p, frame, 8) ||
		    !msp_proof_ref(p, frame + (uint64_t)(int64_t)l->cf_L, &L) ||
		    !msp_proof_ref(p, frame + (uint64_t)(int64_t)l->cf_PC, &pc) ||
		    !msp_proof_u64(p, frame + (uint64_t)(int64_t)l->cf_prev, &prev) ||
		    !msp_proof_u64(p, frame + (uint64_t)(int64_t)return_slot(p->build), &ra))
			return WHY("frame 0x%" PRIx64 " is not readable", frame);
		if (L != p->main_L)
			return WHY("frame 0x%" PRIx64 " holds 0x%" PRIx64, frame, L);
		/* A bytecode position, a frame link, L, or an address: never something wider. */
		if (pc > msp_proof_last(p))
			return WHY("frame 0x%" PRIx64 " has position 0x%" PRIx64, frame, pc);
		if (prev && prev <= frame)
			return WHY("frame 0x%" PRIx64 " follows 0x%" PRIx64, prev, frame);
		if (l->arch == MSP_ARCH_ARM64)
			ra &= MSP_ARM64_ADDRESS; /* it may be signed */
		if (!follows_call(p, ra))
			return WHY("frame 0x%" PRIx64 " returns to 0x%" PRIx64, frame, ra);
	}
	return true;
}

/* No frames is no proof. */
static void run_frames(struct msp_prover *p)
{
	uint64_t frame;

	if (msp_proof_u64(p, p->main_L + (uint64_t)p->layout->L_cframe, &frame) && !frame)
		return;
	attempt_often(p, MSP_LJ_CHECK_FRAMES, check_frames, FRAME_TRIES);
}

/* No two fields of one structure, which is what their names start with, are at one place. */
static bool check_places(struct msp_prover *p, char *why)
{
	for (int a = 0; a < MSP_LJ_FIELD_COUNT; a++) {
		const char *name = msp_lj_field_name((enum msp_lj_field)a);
		int64_t value = msp_lj_field_get(p->layout, (enum msp_lj_field)a);
		size_t part = strcspn(name, "_") + 1;

		for (int b = 0; value >= 0 && name[part - 1] && b < a; b++) {
			const char *other = msp_lj_field_name((enum msp_lj_field)b);

			if (strncmp(name, other, part) == 0 &&
			    msp_lj_field_get(p->layout, (enum msp_lj_field)b) == value)
				return WHY("%s and %s are both %" PRId64, other, name, value);
		}
	}
	return true;
}

/* Whatever the layout came from: where the machine code shows a field, it must be that. */
static bool check_evidence(struct msp_prover *p, char *why)
{
	const struct msp_lj_build *build = p->build;

	for (int f = 0; f < MSP_LJ_FIELD_COUNT; f++) {
		enum msp_lj_field field = (enum msp_lj_field)f;
		int64_t value = msp_lj_field_get(p->layout, field);

		if (build->conflict[f])
			return WHY("%s: evidence disagrees", msp_lj_field_name(field));
		for (size_t i = 0; i < build->evidence_count; i++) {
			const struct msp_lj_evidence *e = &build->evidence[i];

			if (e->found && e->field == msp_lj_field_name(field) && e->value != value &&
			    strcmp(e->source, "constant") != 0)
				return WHY("%s is %" PRId64 ", %s says %" PRId64, e->field, value,
					   e->source, e->value);
		}
	}
	return check_places(p, why);
}

/* The checks on objects. A running target frees and moves some meanwhile: then again with others. */
static void run_objects(struct msp_prover *p)
{
	static const enum msp_lj_check checks[] = {MSP_LJ_CHECK_FUNCTIONS, MSP_LJ_CHECK_PROTOS,
						   MSP_LJ_CHECK_LINES,	   MSP_LJ_CHECK_TRACES,
						   MSP_LJ_CHECK_SNAPSHOTS, MSP_LJ_CHECK_MCODE};
	int tries = has_failed(p) ? OBJECT_TRIES : MORE_OBJECT_TRIES;
	bool failed = true;

	for (int i = 0; failed && may_try(p, i, tries); i++) {
		for (size_t k = 0; k < sizeof(checks) / sizeof(checks[0]); k++)
			memset(&p->out->check[checks[k]], 0, sizeof(p->out->check[0]));
		for (size_t k = 0; k < sizeof(checks) / sizeof(checks[0]); k++)
			p->out->check[checks[k]].result = MSP_LJ_NOT_RUN;
		p->proto_count = p->func_count = 0;
		msp_proof_collect(p);
		msp_proof_functions(p);
		msp_proof_protos(p);
		msp_proof_lines(p);
		if (p->layout->jit)
			msp_proof_traces(p);
		failed = false;
		for (size_t k = 0; k < sizeof(checks) / sizeof(checks[0]); k++)
			failed |= p->out->check[checks[k]].result == MSP_LJ_FAILED;
	}
}

static bool passed(const struct msp_lj_proof *out)
{
	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++) {
		if (out->check[i].result == MSP_LJ_FAILED)
			return false;
		if (i <= MSP_LJ_CHECK_STACK && out->check[i].result != MSP_LJ_PASSED)
			return false;
	}
	return true;
}

/* Without what may be broken while the heap is not. */
static bool heap_passed(const struct msp_lj_proof *out)
{
	static const enum msp_lj_check must[] = {MSP_LJ_CHECK_DISPATCH, MSP_LJ_CHECK_MAINTHREF,
						 MSP_LJ_CHECK_STREMPTY, MSP_LJ_CHECK_FUNCTIONS,
						 MSP_LJ_CHECK_EVIDENCE};
	bool passed = out->check[MSP_LJ_CHECK_PROTOS].result != MSP_LJ_FAILED &&
		      out->check[MSP_LJ_CHECK_LINES].result != MSP_LJ_FAILED;

	for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++)
		passed &= out->check[must[i]].result == MSP_LJ_PASSED;
	return passed;
}

int msp_lj_prove(const struct msp_lj_build *build, const struct msp_memory *mem,
		 uint64_t image_base, uint64_t g, struct msp_lj_proof *out)
{
	struct msp_prover *p = calloc(1, sizeof(*p));

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++)
		out->check[i].result = MSP_LJ_NOT_RUN;
	if (!p)
		return MSP_E_NOMEM;
	*p = (struct msp_prover){.build = build,
				 .layout = &build->layout,
				 .mem = mem,
				 .image_base = image_base,
				 .g = g,
				 .out = out};
	attempt(p, MSP_LJ_CHECK_EVIDENCE, check_evidence);
	attempt(p, MSP_LJ_CHECK_DISPATCH, check_dispatch);
	attempt(p, MSP_LJ_CHECK_MAINTHREF, check_mainthref);
	attempt(p, MSP_LJ_CHECK_STREMPTY, check_strempty);
	/* The rest starts from the main thread. */
	if (p->main_L) {
		attempt(p, MSP_LJ_CHECK_CUR_L, check_cur_l);
		attempt_often(p, MSP_LJ_CHECK_STACK, check_stack, STACK_TRIES);
		attempt(p, MSP_LJ_CHECK_STATE, check_state);
		run_frames(p);
		run_objects(p);
	}
	out->proved = passed(out);
	out->heap = out->proved || heap_passed(out);
	free(p);
	return out->proved ? 0 : MSP_E_NOT_PROVED;
}
