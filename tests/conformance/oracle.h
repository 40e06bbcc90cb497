/* SPDX-License-Identifier: MIT */
/*
 * The stepping oracle: a LuaJIT process runs instruction by instruction; after
 * each one its stack is unwound, and must be a legal successor of the stack
 * one instruction before.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <capstone/capstone.h>
#include <sys/user.h>

#include "profile/profile.h"
#include "symbols/symbols.h"
#include "target/snapshot.h"

/* ---- oracle_memory.c: what was read stays known until an instruction writes there ---- */

struct oracle_memory;

struct oracle_memory *oracle_memory_new(pid_t pid);
void oracle_memory_free(struct oracle_memory *m);
/* It is that process's memory from now on. */
void oracle_memory_of(struct oracle_memory *m, pid_t pid);
const struct msp_memory *oracle_memory_reader(struct oracle_memory *m);
/* The target writes, or may write, size bytes at addr; or anywhere. */
void oracle_memory_written(struct oracle_memory *m, uint64_t addr, uint64_t size);
void oracle_memory_flush(struct oracle_memory *m);
/* Everything that is known still is so. */
bool oracle_memory_verify(struct oracle_memory *m);

/* ---- oracle_code.c: instructions, decoded once ---- */

struct oracle_insn {
	uint64_t pc;
	uint8_t bytes[16];
	uint8_t size; /* 0: it is not known */
	bool syscall;
	bool anywhere; /* anything may be written */
	bool pushes;   /* writes below the stack pointer: push, call */
	bool moves_sp; /* changes the stack pointer other than by push, pop, call and ret */
	bool jumps;    /* an indirect jump through the table in jump_base */
	uint8_t jump_base;
	uint32_t loads;  /* registers that it loads from memory, by bits */
	uint32_t stores; /* and those that it stores */
	uint8_t memory_count;
	struct {
		uint8_t base, index, segment; /* ORACLE_REG_* or a DWARF number */
		uint8_t scale, extend;        /* of the index: factor, ORACLE_EXTEND_* */
		uint16_t size;
		int64_t disp;
	} memory[2];
};

#define ORACLE_REG_NONE 255
#define ORACLE_REG_PC 254
#define ORACLE_SEG_FS 1
#define ORACLE_EXTEND_UNSIGNED 1 /* the lower half of the index counts */
#define ORACLE_EXTEND_SIGNED 2

struct oracle_code;

struct oracle_code *oracle_code_new(void);
void oracle_code_free(struct oracle_code *code);
/* The instruction at pc; NULL: not readable. */
const struct oracle_insn *oracle_code_at(struct oracle_code *code, const struct msp_memory *mem,
					 uint64_t pc);
void oracle_code_text(struct oracle_code *code, const struct oracle_insn *insn, char *buf,
		      size_t size);
struct oracle_process;
/* Tells the process's memory what the instruction is about to write. */
void oracle_code_writes(const struct oracle_insn *insn, const struct oracle_process *p);

/* ---- oracle_x64.c, oracle_arm64.c: what differs between machines; the one that this runs on ---- */

struct oracle_arch {
	int arch;	  /* enum msp_arch */
	uint16_t machine; /* in ELF headers */
	uint8_t sp;	  /* a DWARF number */
	cs_arch cs_arch;
	cs_mode cs_mode;
	const char *reg[MSP_REG_COUNT];
};

extern const struct oracle_arch oracle_arch;

void oracle_arch_classify(csh handle, const cs_insn *insn, const struct msp_memory *mem,
			  struct oracle_insn *out);
/* Where the thread's own memory is, for instructions that count from there. */
uint64_t oracle_arch_thread(const struct user_regs_struct *set);
/* Makes the registers those of a thread that is at an instruction, not in a system call. */
void oracle_arch_leave_call(struct user_regs_struct *set);

/* ---- oracle_process.c: the stepped process ---- */

struct oracle_process {
	pid_t pid;
	pid_t tid;    /* the thread that is stepped; the others run */
	pid_t parent; /* of a child that is stepped instead of it; 0: none */
	struct msp_images *images;
	struct msp_process *process;
	struct msp_space *space;
	struct msp_symbolizer *symbols;
	struct msp_walker *walker;
	struct oracle_memory *memory;
	struct oracle_code *code;
	struct user_regs_struct set; /* as the kernel gives them */
	struct msp_registers regs;   /* the same, by DWARF number */
	bool ended;
	bool other;     /* it is another process than before */
	bool blocked;   /* the last step is in a system call that takes long */
	bool signalled; /* the last step went into a signal handler */
};

/* Starts a program, with a library loaded into it, and lets it run for some time. Negative: an error code. */
int oracle_process_start(struct msp_images *images, char *const argv[], const char *preload,
			 unsigned int ms, struct oracle_process *p);
void oracle_process_end(struct oracle_process *p);
/* These return false when there was no step: the process has ended or is another one now, or it waits. */
bool oracle_process_run(struct oracle_process *p, unsigned int ms);
bool oracle_process_step(struct oracle_process *p);
bool oracle_process_alone(struct oracle_process *p); /* it has one thread */
/* Goes over to its next thread, if it has several. */
bool oracle_process_next_thread(struct oracle_process *p);
/* A signal that hits the thread at its next instruction. */
void oracle_process_signal(struct oracle_process *p, int number);
void oracle_process_refresh(struct oracle_process *p);

/* ---- oracle_stack.c: stacks, and which may follow which ---- */

struct oracle_stack {
	struct msp_raw_frame raw[MSP_MAX_FRAMES];
	uint32_t count, ways;
	int error;
	/* Of the Lua level, over all coroutines and VMs, outermost first. */
	uint32_t lua_count;
	uint64_t lua[MSP_MAX_FRAMES]; /* what the frame is */
	uint32_t pos[MSP_MAX_FRAMES]; /* and where in it */
	/* Return addresses into native code, outermost first. */
	uint32_t native_count;
	uint64_t native[MSP_MAX_FRAMES];
	uint32_t markers; /* how often the Lua stack goes on in another VM frame */
	bool trace;       /* compiled code on top of it */
};

void oracle_stack_take(struct oracle_stack *s, const struct msp_stack *from);
/* A number for everything that has a name in it. */
uint64_t oracle_stack_hash(const struct oracle_stack *s);

enum oracle_move {
	ORACLE_SAME,
	ORACLE_PUSH,
	ORACLE_POP,
	ORACLE_REPLACE,
	ORACLE_RESUME, /* of several frames, on a coroutine's own C frame */
	ORACLE_YIELD,
	ORACLE_UNWIND, /* several frames gone */
	ORACLE_GROW,   /* several frames more */
	ORACLE_MIX,
};

/* What happened to the top frame since it became the top. */
enum oracle_top {
	ORACLE_TOP_NEW,     /* it was called, and has done nothing yet */
	ORACLE_TOP_EXPOSED, /* its callee returned */
	ORACLE_TOP_ACTIVE,
	ORACLE_TOP_UNDONE, /* a new frame is gone again, and must come back */
};

/* Circumstances of one step. */
struct oracle_step {
	const struct oracle_insn *insn;
	bool native;   /* before or after it, the pc was outside of the VM block */
	bool tail_call; /* PC was loaded from a function, or became a link */
	bool dispatch; /* the instruction is the interpreter's jump to the next one */
};

struct oracle_judge {
	enum oracle_top top;
	uint64_t undone; /* the frame that must come back */
	uint64_t moves[ORACLE_MIX + 1];
	char why[160]; /* of the last fault */
};

/* Is now a legal successor of before? Else judge->why says what is wrong. */
bool oracle_judge_step(struct oracle_judge *judge, const struct oracle_step *step,
		       const struct oracle_stack *before, const struct oracle_stack *now);

/* ---- oracle_kernel.c: the same moment in BPF ---- */

struct oracle_kernel;

/* NULL: not possible here; why says the reason. */
struct oracle_kernel *oracle_kernel_new(char *why, size_t size);
void oracle_kernel_free(struct oracle_kernel *k);
/* The process's tables, again if it has changed. */
int oracle_kernel_set(struct oracle_kernel *k, struct oracle_process *p);
/* Like oracle_process_step(), with BPF run at the instruction: its frames, NULL: none came. */
bool oracle_kernel_step(struct oracle_kernel *k, struct oracle_process *p,
			const struct msp_raw_frame **frames, uint32_t *count);

/* ---- oracle_core.c: the same moment in a core file ---- */

/* The stack that the core host finds; false: no such file could be made or read. */
bool oracle_core_walk(const struct oracle_process *p, struct oracle_stack *out);

#endif
