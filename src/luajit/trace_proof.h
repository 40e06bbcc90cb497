/* SPDX-License-Identifier: MIT */
/*
 * What is proved of the functions that a trace's code belongs to. Internal to src/luajit/.
 *
 * The compiler keeps the order: a bytecode instruction's code comes behind that of the ones before
 * it on the way. So all ways from a snapshot to the next are followed (trace_steps.c), and the
 * code between them along all of these: an instruction can only be of a step that can make such a
 * thing at all (trace_makes.c), and of none before the one that made the instruction before it.
 * What all steps that are left for an instruction have in common is proved.
 */
#ifndef MSP_LUAJIT_TRACE_PROOF_H
#define MSP_LUAJIT_TRACE_PROOF_H

#include "luajit/trace_path.h"

#define MSP_STEPS 512
#define MSP_STEP_FRAMES 128
#define MSP_STEP_EDGES 2048
#define MSP_STEP_WALLS 16
#define MSP_STEP_WORDS (MSP_STEPS / 64)

/* ---- The trace as a whole (trace_facts.c) ---- */

#define MSP_TRACE_LOWER 16
#define MSP_TRACE_CALLS 128
#define MSP_TRACE_METAS 32
#define MSP_META_NAME 12
#define MSP_TRACE_KEYS 256
#define MSP_TRACE_UPVALUES 256
#define MSP_TRACE_READ 256 /* what a read of the target's memory counts as work */

struct msp_trace_facts {
	struct msp_path_callees callees;		 /* all functions that it may call */
	struct msp_trace_proto *proto[MSP_PATH_CALLEES]; /* those in Lua, each once */
	uint32_t protos;
	struct {
		struct msp_trace_proto *proto;
		uint32_t pos;
	} lower[MSP_TRACE_LOWER]; /* where it returns to, below its base */
	uint32_t lowers;
	int64_t work; /* that may still be done */
	struct {
		const struct msp_trace_proto *p;
		uint32_t pos, index;
		uint8_t calls;	 /* enum msp_callee */
	} call[MSP_TRACE_CALLS]; /* what was found out of calls */
	uint32_t calls;
	struct {
		struct msp_trace_proto *proto;
		char name[MSP_META_NAME];
	} meta[MSP_TRACE_METAS]; /* metamethods that may be called */
	uint32_t metas;
	struct {
		const struct msp_trace_proto *proto;
		uint64_t at;
		uint32_t index;
	} upvalue[MSP_TRACE_UPVALUES]; /* of functions that are constants; if these are all */
	uint32_t upvalues;
	struct {
		const struct msp_trace_proto *p;
		uint32_t pos;
		uint64_t key;
	} key[MSP_TRACE_KEYS]; /* of steps, the last that were read */
	bool known,	       /* these are all, and the rest is true */
		any_meta,      /* other metamethods in Lua may be called, too */
		ctypes,	       /* C types' objects are worked with */
		wide,	       /* some of them unsigned and 64 bits wide */
		indexed,       /* what is got by a name may be from a metamethod, or of a C type */
		lookup, /* metatables are looked up, but for indexing: most steps can have the code of it */
		root,	  /* not made for an exit, nor behind a call */
		scans,	  /* strings become numbers */
		compares, /* strings are compared */
		negates,  /* numbers are negated, so that to add may be to subtract */
		doubles;  /* the number 2 is among the constants: to multiply by it is to add */
};
void msp_trace_facts_read(struct msp_trace_reader *r, struct msp_trace_facts *out);

/* Counts n of what the whole proof may cost at most. False: it has cost that. */
static inline bool msp_trace_work(struct msp_trace_facts *facts, uint32_t n)
{
	facts->work -= n;
	return facts->work > 0;
}

/* What the call at pos of a function calls. */
enum msp_callee {
	MSP_CALLEE_ANY,	    /* any that there is, or none */
	MSP_CALLEE_LUA,	    /* index in proto[] */
	MSP_CALLEE_BUILTIN, /* index in callees */
	MSP_CALLEE_NONE,    /* no function: a C type or function, or by a metamethod */
};
enum msp_callee msp_trace_callee(struct msp_trace_reader *r, struct msp_trace_facts *facts,
				 const struct msp_trace_proto *p, uint32_t pos, uint32_t *index);

/*
 * What is in a slot before pos: LUA: the function fn, which may be a built-in one too. ANY: not known;
 * then the slot has become the one that it was moved from.
 */
enum msp_callee msp_trace_value(struct msp_trace_reader *r, struct msp_trace_facts *facts,
				const struct msp_trace_proto *p, uint32_t pos, uint32_t *slot,
				uint64_t *fn);
/* The same as msp_trace_callee() for a function. */
enum msp_callee msp_trace_callee_of(const struct msp_trace_facts *facts, uint64_t fn,
				    uint32_t *index);

/* trace_callee.c: the string by which a table is accessed whose slot an instruction loads or stores; 0: none. */
uint32_t msp_trace_key_of(const struct msp_trace_reader *r, uint32_t ref);
/* Does another instruction write a slot? */
bool msp_trace_is_written(const struct msp_trace_reader *r, const struct msp_trace_proto *p,
			  uint32_t slot, uint32_t but);
/* Is there a number in a slot, before the instruction at pos? */
bool msp_trace_is_number(const struct msp_trace_reader *r, struct msp_trace_facts *facts,
			 const struct msp_trace_proto *p, uint32_t pos, uint32_t slot);
/* The function that a loaded one was checked to be, before it was called; 0: none. */
uint64_t msp_trace_checked_function(const struct msp_trace_reader *r, uint32_t loaded);

/* trace_metas.c: what a constant tells of metamethods, and all the rest. */
void msp_trace_metas_constant(struct msp_trace_reader *r, struct msp_trace_facts *facts,
			      uint32_t ref);
void msp_trace_metas_read(struct msp_trace_reader *r, struct msp_trace_facts *facts);
/* Is a string the name of a metamethod, or not readable? */
bool msp_trace_is_meta_name(const struct msp_trace_reader *r, uint64_t string);
/* Can a step of that opcode call it? */
bool msp_meta_called_by(const struct msp_trace_facts *facts, uint32_t meta, uint8_t op);

/* trace_upvalues.c: where those of the functions are that are known. */
void msp_trace_upvalues_read(struct msp_trace_reader *r, struct msp_trace_facts *facts);
/* The one that memory at a place is of; 0: none. */
uint64_t msp_trace_upvalue_at(const struct msp_trace_reader *r, const struct msp_trace_facts *facts,
			      uint64_t place);

/* ---- All ways from one place to another (trace_steps.c) ---- */

#define MSP_KEY_NONE 1

struct msp_step {
	uint16_t frame;
	uint8_t op;	 /* enum msp_bc_op */
	uint8_t calls;	 /* enum msp_callee: of a call */
	uint8_t builtin; /* its ffid */
	bool unknown;	 /* can call something in Lua that is no step of its own */
	uint32_t pos;
	uint32_t not_to; /* the guard of a snapshot: does not go there. MSP_PATH_NONE: it is none */
	uint32_t makes;	 /* of enum msp_makes */
	/* KEY: with this string, but for names of metamethods; 0: any, MSP_KEY_NONE: none */
	uint64_t key;
	uint32_t once;	      /* of them: one of these, once at most */
	uint16_t edges, edge; /* how many, from which one on */
};

#define MSP_EDGE_RETURNS 0x8000 /* it leads below the trace's base */

struct msp_steps {
	struct msp_trace_reader *r;
	struct msp_trace_facts *facts;
	struct msp_step step[MSP_STEPS];
	uint32_t steps;
	struct msp_path_frame frame[MSP_STEP_FRAMES];
	uint32_t frames;
	/* to which step; from which one; and perhaps MSP_EDGE_RETURNS */
	uint16_t edge[MSP_STEP_EDGES], back[MSP_STEP_EDGES];
	uint16_t back_from[MSP_STEPS + 1];
	uint32_t edges;
	uint64_t start[MSP_STEP_WORDS], end[MSP_STEP_WORDS];
	struct msp_trace_proto *loop_proto; /* a root trace's loop, as bytecode */
	uint32_t loop_begin, loop_end;	    /* MSP_PATH_NONE: it has none */
	struct {
		uint16_t frame;
		uint32_t begin, end; /* its FORI and FORL */
	} wall[MSP_STEP_WALLS];	     /* loops that do not come round without a snapshot */
	uint32_t walls;
	int from;	/* the snapshot at the start */
	uint16_t first; /* the innermost frame there */
	uint16_t last;	/* the innermost frame at the end */
	bool metas;	/* metamethods are followed */
	bool recurses;	/* a function that was active is called */
	uint8_t deep;	/* so many times more it is followed; else what it calls is not known */
	bool too_many;	/* or something that is not understood: nothing is proved */
};

/* Bits of steps. */
static inline void msp_step_add(uint64_t *set, uint32_t step)
{
	set[step / 64] |= 1ull << step % 64;
}
static inline bool msp_step_in(const uint64_t *set, uint32_t step)
{
	return set[step / 64] >> step % 64 & 1;
}

/* Where a part of the code begins or ends. */
enum { MSP_AT_LOOP = -1 }; /* where the loop begins again; else a snapshot */

/* trace_graph.c: adds a frame or a step, if it is not there; too many: sets that, and returns 0. */
uint16_t msp_steps_add_frame(struct msp_steps *s, const struct msp_path_frame *f);
uint32_t msp_steps_add(struct msp_steps *s, uint16_t frame, uint32_t pos, uint32_t not_to);
/* The frame of a snapshot's node; what it has called that is not in Lua is left out. */
uint16_t msp_steps_frame_of(struct msp_steps *s, uint16_t node);
/* Makes back[] of edge[]. */
void msp_steps_find_back(struct msp_steps *s);

/*
 * All steps on ways from a snapshot, or from the loop's beginning, to a snapshot or the loop's end.
 * False: they are not known, or too many.
 */
bool msp_steps_find(struct msp_trace_reader *r, struct msp_trace_facts *facts, int from, int to,
		    struct msp_steps *out);

/* ---- Parameters (trace_params.c) ---- */

/* What a call in a frame calls, if that is among what the frame's own call was given. */
enum msp_callee msp_steps_param(const struct msp_steps *s, uint16_t frame, uint32_t pos,
				uint32_t *index);

/* ---- Loops (trace_loops.c) ---- */

/*
 * Where a root trace's own loop comes round its recording ends, and does not go on another way; nor
 * does it leave the loop's bytecode (lj_record.c: rec_loop_interp(), lj_record_ins()).
 */
void msp_steps_find_loop(struct msp_steps *s);
bool msp_steps_comes_round(const struct msp_steps *s, const struct msp_step *step);
bool msp_steps_leaves_loop(const struct msp_steps *s, uint16_t frame, uint32_t pos);
/* What a slot holds at a snapshot; 0: what it held before the trace. */
uint32_t msp_trace_slot_ref(const struct msp_trace_reader *r, uint32_t snap, uint32_t slot);
/*
 * The loops that are under way at a snapshot and count with a variable: each time around has a
 * snapshot, and a way to the next one does not pass there.
 */
void msp_steps_find_walls(struct msp_steps *s, uint32_t snap, int to);
bool msp_steps_is_wall(const struct msp_steps *s, const struct msp_step *step);
/* A loop that begins anew on the way is another one: its wall falls. False: none did. */
bool msp_steps_drop_walls(struct msp_steps *s);

/* ---- What a step can make (trace_makes.c) ---- */

/* Things of which not every step can make one. */
enum msp_makes {
	MSP_MAKES_STORE = 1 << 0,
	MSP_MAKES_CALL = 1 << 1,
	MSP_MAKES_FADD = 1 << 2,
	MSP_MAKES_FSUB = 1 << 3,
	MSP_MAKES_FMUL = 1 << 4,
	MSP_MAKES_FDIV = 1 << 5,
	MSP_MAKES_SQRT = 1 << 6,
	MSP_MAKES_ROUND = 1 << 7,
	MSP_MAKES_IMUL = 1 << 8,
	MSP_MAKES_AND = 1 << 9,
	MSP_MAKES_OR = 1 << 10,
	MSP_MAKES_XOR = 1 << 11,
	MSP_MAKES_SHIFT = 1 << 12,
	MSP_MAKES_ROTATE = 1 << 13,
	MSP_MAKES_NOT = 1 << 14,
	MSP_MAKES_INDEX = 1 << 15,   /* reads or writes memory with an index */
	MSP_MAKES_STATE = 1 << 16,   /* calls with the Lua state */
	MSP_MAKES_FADDK = 1 << 17,   /* adds a constant in memory */
	MSP_MAKES_FOREIGN = 1 << 18, /* calls a C function of the program */
	MSP_MAKES_KEY = 1 << 19,     /* looks for a key in a table */
	MSP_MAKES_INT = 1 << 20,     /* makes a number an integer */
	MSP_MAKES_BOUND = 1 << 21,   /* compares integers that have no sign */
	MSP_MAKES_TOBIT = 1 << 22,   /* makes a number what the bit operations work with */
	MSP_MAKES_ORDER = 1 << 23,   /* compares which of two numbers is larger */
	MSP_MAKES_OVERFLOW = 1 << 24, /* computes with integers, and checks whether the result is one */
	MSP_MAKES_ALL = (1 << 25) - 1,
	MSP_MAKES_CHECK = 1 << 25, /* is it time for the collector? */
	MSP_MAKES_HEAD = 1 << 26,  /* what is before all else */
};
/* Does a step of that opcode look for a metamethod, if what it works on is no number, table or string? */
bool msp_has_metamethods(uint8_t op);
/* Does a function of the VM's own call what it is given? */
bool msp_builtin_calls(const struct msp_trace_reader *r, uint8_t ffid);
bool msp_builtin_is_ffi(const struct msp_trace_reader *r, uint8_t ffid);
uint32_t msp_makes_once(const struct msp_steps *s, const struct msp_step *step);
uint32_t msp_makes_of_step(const struct msp_steps *s, const struct msp_step *step);
uint64_t msp_key_of_step(const struct msp_steps *s, const struct msp_step *step);
/* Can a step be the one that reads or writes an upvalue? (trace_upvalues.c) */
bool msp_step_has_upvalue(const struct msp_steps *s, const struct msp_step *step, uint64_t upvalue);
/* Can a step be the one that computes with numbers of which none is constant? */
bool msp_step_has_variables(const struct msp_steps *s, const struct msp_step *step, uint32_t need);
/* Can a step be the one that reads a slot of the trace's base? */
bool msp_step_reads_slot(const struct msp_steps *s, const struct msp_step *step, uint32_t slot);
/* What the step that made an instruction must be able to make. */
uint32_t msp_makes_of_ins(const struct msp_trace_ins *ins);

#endif
