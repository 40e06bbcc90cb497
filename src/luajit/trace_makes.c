/* SPDX-License-Identifier: MIT */
/*
 * Which steps can make which machine instructions at all: by lj_record.c, lj_opt_*.c, lj_asm_x86.h and
 * lj_asm_arm64.h, the widest that any version does. What is not listed here can come from anything: moves,
 * loads, comparisons, conversions, integer additions and subtractions, branches.
 */
#include <string.h>

#include "luajit/build.h"
#include "luajit/trace_proof.h"

#define BITS \
	(MSP_MAKES_AND | MSP_MAKES_OR | MSP_MAKES_XOR | MSP_MAKES_SHIFT | MSP_MAKES_ROTATE | \
	 MSP_MAKES_NOT)
/* An index is checked, and used. */
#define INDEX (MSP_MAKES_INDEX | MSP_MAKES_BOUND)
/* A table's hash is computed. */
#define ACCESS (BITS | MSP_MAKES_IMUL | MSP_MAKES_KEY)
/* An addition, perhaps of a constant. */
#define FADD (MSP_MAKES_FADD | MSP_MAKES_FADDK)
#define FLOATS (FADD | MSP_MAKES_FSUB | MSP_MAKES_FMUL | MSP_MAKES_FDIV | MSP_MAKES_XOR)
/* Numbers that are integers: what computes with them, and what an index is computed from. */
#define INT (MSP_MAKES_INT | MSP_MAKES_OVERFLOW)
/* Strings become numbers, where the trace has any that do; else it is no call. */
#define SCAN (1u << 31)
/* The same with strings that are compared. */
#define COMPARE (1u << 30)
/* A new object, or room for a key: the Lua state is the first argument, if that is seen. */
#define ALLOC (MSP_MAKES_CALL | MSP_MAKES_STATE)
#define NUMBER (SCAN | INT | MSP_MAKES_IMUL | MSP_MAKES_XOR | MSP_MAKES_NOT | MSP_MAKES_SHIFT)

static const uint32_t makes[MSP_BC_COUNT] = {
	[MSP_BC_ISLT... MSP_BC_ISGT] = COMPARE | MSP_MAKES_ORDER,
	[MSP_BC_UNM] = NUMBER | MSP_MAKES_FSUB,
	[MSP_BC_LEN] = MSP_MAKES_CALL | MSP_MAKES_INT | INDEX,
	[MSP_BC_ADDVN] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_SUBVN] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_MULVN] = NUMBER | MSP_MAKES_FMUL | FADD,
	[MSP_BC_DIVVN] = NUMBER | FADD | MSP_MAKES_FMUL | MSP_MAKES_FDIV,
	[MSP_BC_MODVN] = NUMBER | FLOATS | MSP_MAKES_ROUND | MSP_MAKES_AND | MSP_MAKES_CALL,
	[MSP_BC_ADDNV] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_SUBNV] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_MULNV] = NUMBER | MSP_MAKES_FMUL | FADD,
	[MSP_BC_DIVNV] = NUMBER | FADD | MSP_MAKES_FMUL | MSP_MAKES_FDIV,
	[MSP_BC_MODNV] = NUMBER | FLOATS | MSP_MAKES_ROUND | MSP_MAKES_AND | MSP_MAKES_CALL,
	[MSP_BC_ADDVV] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_SUBVV] = NUMBER | FADD | MSP_MAKES_FSUB,
	[MSP_BC_MULVV] = NUMBER | MSP_MAKES_FMUL | FADD,
	[MSP_BC_DIVVV] = NUMBER | FADD | MSP_MAKES_FMUL | MSP_MAKES_FDIV,
	[MSP_BC_MODVV] = NUMBER | FLOATS | MSP_MAKES_ROUND | MSP_MAKES_AND | MSP_MAKES_CALL,
	[MSP_BC_POW] = NUMBER | FLOATS | MSP_MAKES_CALL | MSP_MAKES_SQRT | MSP_MAKES_ROUND |
		       MSP_MAKES_BOUND,
	[MSP_BC_CAT] = MSP_MAKES_ALL,
	[MSP_BC_UGET] = MSP_MAKES_BOUND,
	[MSP_BC_USETV... MSP_BC_USETP] =
		MSP_MAKES_BOUND | MSP_MAKES_STORE | MSP_MAKES_CALL | MSP_MAKES_AND | MSP_MAKES_OR,
	[MSP_BC_FNEW... MSP_BC_TDUP] = MSP_MAKES_STORE | ALLOC,
	[MSP_BC_GGET] = ACCESS,
	[MSP_BC_GSET] = ACCESS | MSP_MAKES_STORE | ALLOC,
	[MSP_BC_TGETV] = ACCESS | INT | INDEX,
	[MSP_BC_TGETS] = ACCESS,
	[MSP_BC_TGETB... MSP_BC_TGETR] = ACCESS | INDEX,
	[MSP_BC_TSETV] = ACCESS | INT | MSP_MAKES_STORE | ALLOC | INDEX,
	[MSP_BC_TSETS] = ACCESS | MSP_MAKES_STORE | ALLOC,
	[MSP_BC_TSETB... MSP_BC_TSETR] = ACCESS | MSP_MAKES_STORE | ALLOC | INDEX,
	[MSP_BC_CALLM... MSP_BC_CALLT] = MSP_MAKES_ALL,
	[MSP_BC_ITERC... MSP_BC_VARG] = MSP_MAKES_ALL,
	[MSP_BC_FORI... MSP_BC_JFORI] = MSP_MAKES_ORDER | INT | FADD | MSP_MAKES_FSUB | SCAN,
	[MSP_BC_FORL... MSP_BC_JFORL] = MSP_MAKES_ORDER | INT | FADD,
	[MSP_BC_JLOOP] = MSP_MAKES_ALL,
	[MSP_BC_BNOT... MSP_BC_BSAR] = BITS | MSP_MAKES_TOBIT | MSP_MAKES_INT | FADD | SCAN,
	[MSP_BC_UNKNOWN] = MSP_MAKES_ALL,
};

/* On arm64 a constant key's place is looked for by its hash only, and values get their type by an addition. */
static uint32_t of_opcode(const struct msp_steps *s, uint8_t op)
{
	bool constant = op == MSP_BC_GGET || op == MSP_BC_GSET || op == MSP_BC_TGETS ||
			op == MSP_BC_TGETB || op == MSP_BC_TSETS || op == MSP_BC_TSETB;

	if (s->r->layout->arch == MSP_ARCH_ARM64 && constant)
		return makes[op] & ~(uint32_t)(BITS & ~MSP_MAKES_AND);
	return makes[op];
}

/* Calls that only some traces have. */
static uint32_t with_calls(const struct msp_trace_facts *facts, uint32_t can)
{
	if ((can & SCAN && facts->scans) || (can & COMPARE && facts->compares))
		can |= MSP_MAKES_CALL;
	return can & ~(SCAN | COMPARE);
}

static bool is_one_of(uint8_t op, uint8_t vn, uint8_t nv, uint8_t vv)
{
	return op == vn || op == nv || op == vv;
}

/*
 * Arithmetic that becomes another one (lj_opt_fold.c): with a number that is negated; by 2, which
 * adds it to itself, also where it was a division by 0.5. What is multiplied or divided by -1 is
 * negated.
 */
static uint32_t with_numbers(const struct msp_trace_facts *facts, uint8_t op, uint32_t can)
{
	if (!facts->negates && is_one_of(op, MSP_BC_ADDVN, MSP_BC_ADDNV, MSP_BC_ADDVV))
		can &= ~(uint32_t)MSP_MAKES_FSUB;
	if (!facts->negates && is_one_of(op, MSP_BC_SUBVN, MSP_BC_SUBNV, MSP_BC_SUBVV))
		can &= ~(uint32_t)FADD;
	if (!facts->doubles && (is_one_of(op, MSP_BC_MULVN, MSP_BC_MULNV, MSP_BC_MULVV) ||
				is_one_of(op, MSP_BC_DIVVN, MSP_BC_DIVNV, MSP_BC_DIVVV)))
		can &= ~(uint32_t)FADD;
	return can;
}

static const char *name_of(const struct msp_trace_reader *r, uint8_t ffid)
{
	const char *name = r->build ? msp_lj_build_ff_name(r->build, ffid) : NULL;

	return name ? name : "";
}

/* A C type's or library's own metamethod: what it indexes is no function. */
bool msp_builtin_is_ffi(const struct msp_trace_reader *r, uint8_t ffid)
{
	return !strncmp(name_of(r, ffid), "ffi:", 4);
}

/* Functions that call none but metamethods. Also those in C: where one is called, a trace ends. */
bool msp_builtin_calls(const struct msp_trace_reader *r, uint8_t ffid)
{
	static const char *const none[] = {
		"bit.",		"ffi.",		"ffi:",	   "table.insert", "table.remove",
		"table.concat", "math.",	"string.", "assert",	   "type",
		"next",		"pairs",	"ipairs",  "rawget",	   "rawset",
		"rawequal",	"rawlen",	"select",  "tonumber",	   "tostring",
		"setmetatable", "getmetatable", "unpack"};
	const char *name = name_of(r, ffid);

	if (!strcmp(name, "string.gsub"))
		return true;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (!strncmp(name, none[i], strlen(none[i])))
			return false;
	return ffid != 1;
}

/* Instructions that look for a metamethod, if what they work on is no number, table or string. */
bool msp_has_metamethods(uint8_t op)
{
	return op <= MSP_BC_ISNEP || op == MSP_BC_UNM || op == MSP_BC_LEN ||
	       (op >= MSP_BC_ADDVN && op <= MSP_BC_CAT) ||
	       (op >= MSP_BC_GGET && op <= MSP_BC_ITERC);
}

/*
 * Looking for a metamethod, and what is done with C types' objects where there is none: of numbers
 * they only have conversions, one of which adds a constant.
 */
static uint32_t of_lookup(const struct msp_trace_facts *facts, uint8_t op)
{
	uint32_t can = facts->lookup ? ACCESS : 0;

	if (!facts->ctypes || op == MSP_BC_GGET || op == MSP_BC_GSET)
		return can;
	can |= ACCESS | (facts->wide ? MSP_MAKES_FADDK : 0);
	can |= INDEX | INT;
	return op <= MSP_BC_ISNEP ? can : can | MSP_MAKES_STORE | ALLOC;
}

/* What a function of the VM's own makes; all that are not named here: anything. */
#define TO_BITS \
	(MSP_MAKES_TOBIT | FADD | MSP_MAKES_IMUL | MSP_MAKES_INT | \
	 SCAN) /* what becomes of its arguments */

static const struct {
	const char *name;
	uint32_t makes;
} builtins[] = {
	{"bit.tobit", TO_BITS},
	{"bit.bnot", TO_BITS | MSP_MAKES_NOT | MSP_MAKES_XOR},
	{"bit.bswap", TO_BITS},
	{"bit.band", TO_BITS | MSP_MAKES_AND | MSP_MAKES_SHIFT},
	{"bit.bor", TO_BITS | MSP_MAKES_OR | MSP_MAKES_ROTATE | MSP_MAKES_XOR},
	{"bit.bxor", TO_BITS | MSP_MAKES_XOR | MSP_MAKES_NOT},
	{"bit.lshift", TO_BITS | MSP_MAKES_SHIFT | MSP_MAKES_AND},
	{"bit.rshift", TO_BITS | MSP_MAKES_SHIFT | MSP_MAKES_AND},
	{"bit.arshift", TO_BITS | MSP_MAKES_SHIFT | MSP_MAKES_AND},
	{"bit.rol", TO_BITS | MSP_MAKES_ROTATE | MSP_MAKES_NOT},
	{"bit.ror", TO_BITS | MSP_MAKES_ROTATE | MSP_MAKES_NOT},
	{"math.abs", MSP_MAKES_AND | SCAN},
	{"math.ceil", MSP_MAKES_INT | MSP_MAKES_ROUND | MSP_MAKES_CALL},
	{"math.floor", MSP_MAKES_INT | MSP_MAKES_ROUND | MSP_MAKES_CALL},
	{"math.max", SCAN},
	{"math.min", SCAN},
	{"math.sqrt", MSP_MAKES_SQRT | MSP_MAKES_CALL},
	{"string.byte", INT | ALLOC | INDEX},
	{"string.len", ALLOC},
	{"assert", MSP_MAKES_CALL},
	{"tonumber", MSP_MAKES_INT | SCAN},
	{"type", MSP_MAKES_CALL},
};

/* Arithmetic is one operation. */
uint32_t msp_makes_once(const struct msp_steps *s, const struct msp_step *step)
{
	bool plain = (step->op >= MSP_BC_ADDVN && step->op <= MSP_BC_DIVVN) ||
		     (step->op >= MSP_BC_ADDNV && step->op <= MSP_BC_DIVNV) ||
		     (step->op >= MSP_BC_ADDVV && step->op <= MSP_BC_DIVVV) ||
		     (step->op >= MSP_BC_FORL && step->op <= MSP_BC_JFORL);

	if (!plain || step->unknown)
		return 0;
	return MSP_MAKES_OVERFLOW |
	       (s->facts->ctypes ? FLOATS & ~(uint32_t)(MSP_MAKES_FADDK | MSP_MAKES_XOR) : FLOATS);
}

uint32_t msp_makes_of_step(const struct msp_steps *s, const struct msp_step *step)
{
	const char *name;
	uint32_t lookup;

	if (step->unknown)
		return MSP_MAKES_ALL;
	if (!msp_bc_is_call(step->op) || step->calls == MSP_CALLEE_ANY)
		return with_numbers(s->facts, step->op,
				    with_calls(s->facts, of_opcode(s, step->op))) |
		       (msp_has_metamethods(step->op) ? of_lookup(s->facts, step->op) : 0);
	if (step->calls == MSP_CALLEE_LUA)
		return 0;
	lookup = of_lookup(s->facts, step->op);
	if (step->calls == MSP_CALLEE_NONE)
		return lookup | MSP_MAKES_FOREIGN;
	name = name_of(s->r, step->builtin);
	if (!strncmp(name, "ffi.", 4))
		return lookup;
	for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++)
		if (!strcmp(name, builtins[i].name))
			return with_calls(s->facts, builtins[i].makes) | lookup;
	return MSP_MAKES_ALL & ~(uint32_t)MSP_MAKES_FOREIGN;
}

/* By 2, or divided by 0.5, is to add what it is to itself. */
bool msp_step_has_variables(const struct msp_steps *s, const struct msp_step *step, uint32_t need)
{
	if (step->unknown)
		return true;
	switch (step->op) {
	case MSP_BC_ADDVN ... MSP_BC_SUBVN:
	case MSP_BC_ADDNV ... MSP_BC_SUBNV:
		return false;
	case MSP_BC_BNOT ... MSP_BC_BSAR:
		return false;
	case MSP_BC_CALLM ... MSP_BC_CALLT: /* conversions for bit operations add a constant */
		return step->calls != MSP_CALLEE_BUILTIN || step->makes & MSP_MAKES_FMUL;
	case MSP_BC_MULVN:
	case MSP_BC_MULNV:
	case MSP_BC_DIVVN:
	case MSP_BC_DIVNV:
		return s->facts->doubles && need & MSP_MAKES_FADD;
	default:
		return true;
	}
}

/* Is it known which slots it reads? */
static bool reads_operands(uint8_t op)
{
	return op <= MSP_BC_ISNUM || (op >= MSP_BC_MOV && op <= MSP_BC_LEN) ||
	       (op >= MSP_BC_ADDVN && op <= MSP_BC_POW) ||
	       (op >= MSP_BC_KSTR && op <= MSP_BC_KPRI) ||
	       (op >= MSP_BC_GGET && op <= MSP_BC_TGETR) ||
	       (op >= MSP_BC_TSETV && op <= MSP_BC_TSETB) || op == MSP_BC_JMP;
}

/*
 * What is called has its own slots, which the trace has filled; but for upvalues that are slots of the
 * base, and for a concatenation that goes on behind its metamethod.
 */
bool msp_step_reads_slot(const struct msp_steps *s, const struct msp_step *step, uint32_t slot)
{
	const struct msp_path_frame *f = &s->frame[step->frame];
	struct msp_bc_ins ins = msp_bc_decode(s->r->set, f->proto->ins[step->pos]);
	uint8_t reads = msp_bc_reads(step->op);

	if (step->unknown || (step->op >= MSP_BC_UGET && step->op <= MSP_BC_USETP))
		return true;
	if (f->depth)
		return msp_bc_is_return(step->op) && (s->facts->metas || s->facts->any_meta);
	return !reads_operands(step->op) || (reads & MSP_BC_A && ins.a == slot) ||
	       (reads & MSP_BC_B && ins.b == slot) || (reads & MSP_BC_C && ins.c == slot) ||
	       (reads & MSP_BC_D && ins.d == slot);
}

uint32_t msp_makes_of_ins(const struct msp_trace_ins *ins)
{
	static const struct {
		uint32_t does, makes;
	} of[] = {
		{MSP_DOES_STORE, MSP_MAKES_STORE}, {MSP_DOES_CALL, MSP_MAKES_CALL},
		{MSP_DOES_DIV, MSP_MAKES_FDIV},	   {MSP_DOES_SQRT, MSP_MAKES_SQRT},
		{MSP_DOES_ROUND, MSP_MAKES_ROUND}, {MSP_DOES_AND, MSP_MAKES_AND},
		{MSP_DOES_OR, MSP_MAKES_OR},	   {MSP_DOES_XOR, MSP_MAKES_XOR},
		{MSP_DOES_SHL, MSP_MAKES_SHIFT},   {MSP_DOES_SHR, MSP_MAKES_SHIFT},
		{MSP_DOES_SAR, MSP_MAKES_SHIFT},   {MSP_DOES_ROL, MSP_MAKES_ROTATE},
		{MSP_DOES_NOT, MSP_MAKES_NOT},
	};
	bool floats = ins->does & MSP_DOES_FLOAT;
	uint32_t need = 0;

	if (ins->tells & MSP_TELLS_HEAD)
		return MSP_MAKES_HEAD;
	if (ins->does & MSP_DOES_TYPE)
		return ins->does & MSP_DOES_INDEX ? MSP_MAKES_INDEX : 0;
	if (ins->does & MSP_DOES_CHECK)
		return MSP_MAKES_CHECK;
	if (ins->does & MSP_DOES_STATE)
		return MSP_MAKES_STATE;
	if (ins->does & MSP_DOES_FOREIGN)
		return MSP_MAKES_FOREIGN;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		if (ins->does & of[i].does)
			need |= of[i].makes;
	if (ins->does & MSP_DOES_MUL)
		need |= floats ? MSP_MAKES_FMUL : MSP_MAKES_IMUL;
	if (ins->does & MSP_DOES_ADD && floats)
		need |= ins->does & MSP_DOES_FIXED ? MSP_MAKES_FADDK : MSP_MAKES_FADD;
	if (ins->does & MSP_DOES_SUB && floats)
		need |= MSP_MAKES_FSUB;
	/* not where what was read is an operand: that is done for what computes with it */
	if (ins->does & MSP_DOES_INDEX &&
	    !(ins->does & ~(uint32_t)(MSP_DOES_INDEX | MSP_DOES_LOAD | MSP_DOES_STORE)))
		need |= MSP_MAKES_INDEX;
	if (ins->does & MSP_DOES_BOUND)
		need |= MSP_MAKES_BOUND;
	if (ins->does & MSP_DOES_KEY)
		need |= MSP_MAKES_KEY;
	if (ins->does & MSP_DOES_TOINT)
		need |= MSP_MAKES_INT;
	if (ins->tells & MSP_TELLS_TOBIT)
		need |= MSP_MAKES_TOBIT;
	if (ins->tells & MSP_TELLS_ORDER)
		need |= MSP_MAKES_ORDER;
	if (ins->tells & MSP_TELLS_OVERFLOW)
		need |= MSP_MAKES_OVERFLOW;
	return need;
}

static uint64_t read_key(const struct msp_steps *s, const struct msp_trace_proto *p, uint32_t pos)
{
	struct msp_bc_ins ins = msp_bc_decode(s->r->set, p->ins[pos]);

	switch (ins.op) {
	case MSP_BC_TGETS:
	case MSP_BC_TSETS:
		return msp_trace_work(s->facts, MSP_TRACE_READ) ? msp_trace_object(s->r, p, ins.c)
								: 0;
	case MSP_BC_GGET:
	case MSP_BC_GSET:
		return msp_trace_work(s->facts, MSP_TRACE_READ) ? msp_trace_object(s->r, p, ins.d)
								: 0;
	case MSP_BC_TGETB:
	case MSP_BC_TGETR:
	case MSP_BC_TSETB:
	case MSP_BC_TSETR:
		return MSP_KEY_NONE;
	case MSP_BC_TGETV:
	case MSP_BC_TSETV:
		return msp_trace_is_number(s->r, s->facts, p, pos, ins.c) ? MSP_KEY_NONE : 0;
	default:
		return 0;
	}
}

/* The string by which a step accesses a table, if it can be no other. */
uint64_t msp_key_of_step(const struct msp_steps *s, const struct msp_step *step)
{
	const struct msp_trace_proto *p = s->frame[step->frame].proto;
	uint32_t i = ((uint32_t)(p - s->r->proto) * 31 + step->pos) % MSP_TRACE_KEYS;

	if (step->unknown)
		return 0;
	if (s->facts->key[i].p != p || s->facts->key[i].pos != step->pos) {
		s->facts->key[i].p = p;
		s->facts->key[i].pos = step->pos;
		s->facts->key[i].key = read_key(s, p, step->pos);
	}
	return s->facts->key[i].key;
}
