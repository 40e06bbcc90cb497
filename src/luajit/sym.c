/* SPDX-License-Identifier: MIT */
#include "luajit/sym.h"

#include <string.h>

#define MAX_PENDING 64
#define MAX_VISITS 512
/* How often a path may come by one instruction: loops show what they do the first time. */
#define VISITS_PER_INSN 4
#define MAX_SPILLS 8

struct path {
	uint64_t addr;
	struct msp_sym reg[MSP_REG_COUNT];
	struct {
		int64_t off; /* from the stack pointer at the start */
		struct msp_sym value;
	} spill[MAX_SPILLS];
	unsigned int spill_count;
};

struct run {
	struct msp_sym_env *env;
	const struct msp_code_abi *abi;
	struct path path;
	struct path pending[MAX_PENDING];
	unsigned int pending_count;
	struct {
		uint64_t addr;
		unsigned int count;
	} visit[MAX_VISITS];
	unsigned int visit_count;
	bool stop;
};

static const struct msp_sym unknown;

static struct msp_sym constant(int64_t value)
{
	return (struct msp_sym){1, value};
}

static bool is_constant(struct msp_sym v)
{
	return v.node == 1;
}

/* The node that is like this one: equal expressions get equal numbers. */
static struct msp_sym intern(struct msp_sym_env *env, const struct msp_sym_node *node)
{
	for (unsigned int i = 2; i < env->node_count; i++) {
		const struct msp_sym_node *n = &env->node[i];

		if (n->kind == node->kind && n->size == node->size && n->op == node->op &&
		    n->a.node == node->a.node && n->a.off == node->a.off &&
		    n->b.node == node->b.node && n->b.off == node->b.off)
			return (struct msp_sym){(uint16_t)i, 0};
	}
	if (env->node_count == MSP_SYM_NODES)
		return unknown;
	env->node[env->node_count] = *node;
	return (struct msp_sym){(uint16_t)env->node_count++, 0};
}

static struct msp_sym binary(struct msp_sym_env *env, int op, struct msp_sym a, struct msp_sym b)
{
	struct msp_sym_node node = {.kind = MSP_SYM_OP, .op = (uint8_t)op, .a = a, .b = b};

	if (!a.node || !b.node)
		return unknown;
	return intern(env, &node);
}

static struct msp_sym fold(int op, uint64_t a, uint64_t b)
{
	switch (op) {
	case MSP_OP_AND:
		return constant((int64_t)(a & b));
	case MSP_OP_OR:
		return constant((int64_t)(a | b));
	case MSP_OP_XOR:
		return constant((int64_t)(a ^ b));
	case MSP_OP_SHL:
		return constant((int64_t)(a << (b & 63)));
	case MSP_OP_SHR:
		return constant((int64_t)(a >> (b & 63)));
	case MSP_OP_SAR:
		return constant((int64_t)a >> (b & 63));
	default:
		return unknown;
	}
}

static struct msp_sym arithmetic(struct msp_sym_env *env, int op, struct msp_sym a,
				 struct msp_sym b)
{
	struct msp_sym x, y;

	if (op == MSP_OP_ADD && is_constant(a) && !is_constant(b))
		return (struct msp_sym){b.node, b.off + a.off};
	if ((op == MSP_OP_ADD || op == MSP_OP_SUB) && is_constant(b) && a.node)
		return (struct msp_sym){a.node, op == MSP_OP_ADD ? a.off + b.off : a.off - b.off};
	if (op == MSP_OP_SUB && a.node && a.node == b.node)
		return constant(a.off - b.off);
	if (is_constant(a) && is_constant(b))
		return fold(op, (uint64_t)a.off, (uint64_t)b.off);
	/* Shifting the tag out at the top and back is masking it. */
	if (op == MSP_OP_SHR && is_constant(b) && msp_sym_is_op(env, a, MSP_OP_SHL, &x, &y) &&
	    msp_sym_equal(y, b) && b.off > 0 && b.off < 64)
		return binary(env, MSP_OP_AND, x, constant((int64_t)(~0ULL >> b.off)));
	if (op == MSP_OP_AND && is_constant(a))
		return binary(env, op, b, a);
	return binary(env, op, a, b);
}

static struct msp_sym mem_address(struct run *run, const struct msp_operand *opnd)
{
	struct msp_sym base, index;
	struct msp_sym_node node = {.kind = MSP_SYM_INDEX, .op = opnd->scale};

	if (opnd->kind != MSP_OPND_MEM)
		return unknown;
	base = opnd->base == MSP_REG_NONE ? constant(0) : run->path.reg[opnd->base];
	if (!base.node)
		return unknown;
	base.off += opnd->value;
	if (opnd->index == MSP_REG_NONE)
		return base;
	index = run->path.reg[opnd->index];
	if (is_constant(index))
		return (struct msp_sym){base.node, base.off + index.off * opnd->scale};
	node.a = (struct msp_sym){base.node, 0};
	node.b = index;
	index = intern(run->env, &node);
	if (index.node)
		index.off = base.off;
	return index;
}

static void emit(struct run *run, const struct msp_insn *insn, int kind, unsigned int size,
		 struct msp_sym a, struct msp_sym b)
{
	struct msp_sym_event event = {.kind = (uint8_t)kind,
				      .size = (uint8_t)size,
				      .addr = insn->addr,
				      .a = a,
				      .b = b,
				      .reg = run->path.reg};

	if (run->env->event(run->env, &event))
		run->stop = true;
}

static struct msp_sym *find_spill(struct run *run, struct msp_sym addr)
{
	struct path *path = &run->path;

	for (unsigned int i = 0; i < path->spill_count; i++) {
		if (path->spill[i].off == addr.off)
			return &path->spill[i].value;
	}
	return NULL;
}

/* A value put on the stack, until it is needed again. */
static void spill(struct run *run, struct msp_sym addr, struct msp_sym value)
{
	struct path *path = &run->path;
	struct msp_sym *known;

	if (!run->env->keep_spills || !msp_sym_is_reg(run->env, addr, run->abi->sp))
		return;
	known = find_spill(run, addr);
	if (!known && path->spill_count < MAX_SPILLS) {
		path->spill[path->spill_count].off = addr.off;
		known = &path->spill[path->spill_count++].value;
	}
	if (known)
		*known = value;
}

static struct msp_sym load_at(struct run *run, const struct msp_insn *insn,
			      const struct msp_operand *opnd, struct msp_sym addr)
{
	struct msp_sym_node node = {.kind = MSP_SYM_LOAD, .size = opnd->size, .a = addr};
	struct msp_sym value = unknown;

	if (run->env->keep_spills && msp_sym_is_reg(run->env, node.a, run->abi->sp)) {
		const struct msp_sym *known = find_spill(run, node.a);

		if (known)
			return *known;
	}
	if (node.a.node) {
		value = intern(run->env, &node);
		emit(run, insn, MSP_SYM_AT_LOAD, opnd->size, node.a, value);
	}
	return value;
}

static struct msp_sym load(struct run *run, const struct msp_insn *insn,
			   const struct msp_operand *opnd)
{
	return load_at(run, insn, opnd, mem_address(run, opnd));
}

/* A register as an operand uses it: shifted. What is cut off at the top is not followed. */
static struct msp_sym read_register(struct run *run, const struct msp_operand *opnd)
{
	struct msp_sym value = run->path.reg[opnd->reg];

	if (opnd->narrow && opnd->narrow < 4)
		value = unknown;
	if (opnd->shift_op)
		value = arithmetic(run->env, opnd->shift_op, value, constant(opnd->shift));
	return value;
}

static struct msp_sym read_operand(struct run *run, const struct msp_insn *insn, unsigned int i)
{
	const struct msp_operand *opnd = &insn->operand[i];

	switch (opnd->kind) {
	case MSP_OPND_REG:
		if (opnd->reg == MSP_REG_NONE || opnd->high_byte)
			return unknown;
		return read_register(run, opnd);
	case MSP_OPND_IMM:
		return constant(opnd->value);
	case MSP_OPND_MEM:
		return load(run, insn, opnd);
	default:
		return unknown;
	}
}

static void set_reg(struct run *run, const struct msp_insn *insn, unsigned int reg,
		    unsigned int size, struct msp_sym value)
{
	/* A 32-bit result is zero-extended. A narrower one leaves the rest: not followed. */
	if (size < 4)
		value = unknown;
	else if (size == 4 && is_constant(value))
		value.off = (int64_t)(uint32_t)value.off;
	if (reg == run->abi->sp && value.node != run->path.reg[reg].node)
		emit(run, insn, MSP_SYM_AT_RSP, size, value, unknown);
	run->path.reg[reg] = value;
}

static void write_operand(struct run *run, const struct msp_insn *insn, struct msp_sym value)
{
	const struct msp_operand *opnd = &insn->operand[0];

	if (opnd->kind == MSP_OPND_MEM) {
		struct msp_sym addr = mem_address(run, opnd);

		emit(run, insn, MSP_SYM_AT_STORE, opnd->size, addr, value);
		spill(run, addr, value);
	} else if (opnd->kind == MSP_OPND_REG && opnd->reg != MSP_REG_NONE)
		set_reg(run, insn, opnd->reg, opnd->high_byte ? 1 : opnd->size, value);
}

static void clobber(struct run *run, uint32_t mask)
{
	for (unsigned int i = 0; i < run->abi->regs; i++) {
		if (mask & 1U << i)
			run->path.reg[i] = unknown;
	}
}

static bool same_register(const struct msp_operand *a, const struct msp_operand *b)
{
	return a->kind == MSP_OPND_REG && b->kind == MSP_OPND_REG && a->reg == b->reg;
}

/* arm64: a register plus another one shifted left, the address of an element. */
static bool exec_index(struct run *run, const struct msp_insn *insn)
{
	const struct msp_operand *base = msp_insn_left(insn), *index = msp_insn_right(insn);
	struct msp_operand mem = {.kind = MSP_OPND_MEM, .base = base->reg, .index = index->reg};

	if (insn->op != MSP_OP_ADD || base->kind != MSP_OPND_REG || base->reg == MSP_REG_NONE ||
	    index->kind != MSP_OPND_REG || index->reg == MSP_REG_NONE ||
	    index->shift_op != MSP_OP_SHL || index->shift > 7)
		return false;
	mem.scale = (uint8_t)(1U << index->shift);
	write_operand(run, insn, mem_address(run, &mem));
	return true;
}

static void exec_two_operands(struct run *run, const struct msp_insn *insn)
{
	struct msp_sym a, b;

	if (insn->operand_count < 2) {
		clobber(run, insn->writes);
		return;
	}
	if (exec_index(run, insn))
		return;
	a = read_operand(run, insn, insn->operand_count == 3);
	b = read_operand(run, insn, 1 + (insn->operand_count == 3));
	if (insn->op == MSP_OP_CMP || insn->op == MSP_OP_TEST)
		emit(run, insn, MSP_SYM_AT_CMP, insn->operand[0].size, a, b);
	else if (insn->op == MSP_OP_XOR && same_register(msp_insn_left(insn), msp_insn_right(insn)))
		write_operand(run, insn, constant(0));
	else
		write_operand(run, insn, arithmetic(run->env, insn->op, a, b));
}

/* arm64: a load or store, of two registers perhaps; the base register may move along. */
static void exec_access(struct run *run, const struct msp_insn *insn)
{
	bool store = insn->operand[0].kind == MSP_OPND_MEM;
	const struct msp_operand *mem = &insn->operand[!store];
	struct msp_sym addr = mem_address(run, mem), behind = addr, base = run->path.reg[mem->base];
	struct msp_sym value;

	behind.off += mem->size;
	if (store) {
		write_operand(run, insn, read_operand(run, insn, 1));
		if (insn->second != MSP_REG_NONE && addr.node) {
			value = run->path.reg[insn->second];
			emit(run, insn, MSP_SYM_AT_STORE, mem->size, behind, value);
			spill(run, behind, value);
		}
	} else {
		write_operand(run, insn, read_operand(run, insn, 1));
		if (insn->second != MSP_REG_NONE)
			set_reg(run, insn, insn->second, mem->size,
				addr.node ? load_at(run, insn, mem, behind) : unknown);
	}
	if (mem->step) {
		base.off += base.node ? mem->step : 0;
		run->path.reg[mem->base] = base;
	}
}

/* Into a register, by a constant, and added to another perhaps; other forms are not followed. */
static void exec_mul(struct run *run, const struct msp_insn *insn)
{
	struct msp_sym product;

	if (insn->operand_count != 3) {
		clobber(run, insn->writes);
		return;
	}
	product = binary(run->env, MSP_OP_MUL, read_operand(run, insn, 1),
			 read_operand(run, insn, 2));
	if (insn->addend != MSP_REG_NONE)
		product = arithmetic(run->env, MSP_OP_ADD, product, run->path.reg[insn->addend]);
	write_operand(run, insn, product);
}

/* Constants of more than 16 bits are put together. */
static void exec_insert(struct run *run, const struct msp_insn *insn)
{
	struct msp_sym value = read_operand(run, insn, 0);
	uint64_t mask = 0xffffULL << insn->operand[1].shift;

	if (is_constant(value))
		value.off =
			(int64_t)(((uint64_t)value.off & ~mask) | (uint64_t)insn->operand[1].value);
	else
		value = unknown;
	write_operand(run, insn, value);
}

static void exec_call(struct run *run, const struct msp_insn *insn)
{
	struct msp_sym_node node = {.kind = MSP_SYM_RESULT, .b = {1, (int64_t)insn->addr}};
	struct msp_sym callee =
		insn->has_target ? constant((int64_t)insn->target) : read_operand(run, insn, 0);

	emit(run, insn, MSP_SYM_AT_CALL, 0, callee, unknown);
	clobber(run, run->abi->caller_saved);
	run->path.reg[run->abi->result] = intern(run->env, &node);
}

static void exec_push_pop(struct run *run, const struct msp_insn *insn)
{
	struct msp_sym *rsp = &run->path.reg[run->abi->sp];
	struct msp_sym value;

	if (insn->op == MSP_OP_PUSH) {
		value = read_operand(run, insn, 0);
		if (rsp->node)
			rsp->off -= 8;
		emit(run, insn, MSP_SYM_AT_STORE, 8, *rsp, value);
		return;
	}
	if (rsp->node)
		rsp->off += 8;
	write_operand(run, insn, unknown);
}

static void exec(struct run *run, const struct msp_insn *insn)
{
	switch (insn->op) {
	case MSP_OP_MOV:
		if (insn->second != MSP_REG_NONE || insn->operand[0].step || insn->operand[1].step)
			exec_access(run, insn);
		else
			write_operand(run, insn, read_operand(run, insn, 1));
		break;
	case MSP_OP_MOVSX: {
		struct msp_sym v = read_operand(run, insn, 1);

		write_operand(run, insn, insn->operand[1].size >= 4 ? v : unknown);
		break;
	}
	case MSP_OP_LEA:
		write_operand(run, insn, mem_address(run, &insn->operand[1]));
		break;
	case MSP_OP_ADD:
	case MSP_OP_SUB:
	case MSP_OP_AND:
	case MSP_OP_OR:
	case MSP_OP_XOR:
	case MSP_OP_SHL:
	case MSP_OP_SHR:
	case MSP_OP_SAR:
	case MSP_OP_CMP:
	case MSP_OP_TEST:
		exec_two_operands(run, insn);
		break;
	case MSP_OP_INSERT:
		exec_insert(run, insn);
		break;
	case MSP_OP_MUL:
		exec_mul(run, insn);
		break;
	case MSP_OP_PUSH:
	case MSP_OP_POP:
		exec_push_pop(run, insn);
		break;
	case MSP_OP_CALL:
		exec_call(run, insn);
		break;
	case MSP_OP_RET:
		emit(run, insn, MSP_SYM_AT_RET, 0, run->path.reg[run->abi->result], unknown);
		break;
	default:
		for (unsigned int i = 0; i < insn->operand_count; i++) {
			if (insn->operand[i].kind == MSP_OPND_MEM)
				load(run, insn, &insn->operand[i]);
		}
		clobber(run, insn->writes);
		break;
	}
}

static bool may_visit(struct run *run, uint64_t addr)
{
	for (unsigned int i = 0; i < run->visit_count; i++) {
		if (run->visit[i].addr == addr)
			return run->visit[i].count++ <
			       (run->env->visits ? run->env->visits : VISITS_PER_INSN);
	}
	if (run->visit_count == MAX_VISITS)
		return false;
	run->visit[run->visit_count].addr = addr;
	run->visit[run->visit_count++].count = 1;
	return true;
}

static bool inside(const struct msp_sym_env *env, uint64_t addr)
{
	return addr >= env->start && addr < env->end;
}

/* Where the path goes after a branch; false: it ends. */
static bool branch(struct run *run, const struct msp_insn *insn)
{
	/* CBZ, CBNZ */
	if (insn->op == MSP_OP_JCC && insn->operand[0].kind == MSP_OPND_REG)
		emit(run, insn, MSP_SYM_AT_CMP, insn->operand[0].size, read_operand(run, insn, 0),
		     constant(0));
	if (insn->op == MSP_OP_JMP && !insn->has_target) {
		emit(run, insn, MSP_SYM_AT_JUMP, 0, read_operand(run, insn, 0), unknown);
		return false;
	}
	if (!inside(run->env, insn->target)) {
		emit(run, insn, MSP_SYM_AT_CALL, 0, constant((int64_t)insn->target), unknown);
		if (insn->op == MSP_OP_JMP)
			return false;
	} else if (insn->op == MSP_OP_JMP) {
		run->path.addr = insn->target;
		return true;
	} else if (run->pending_count < MAX_PENDING) {
		run->pending[run->pending_count] = run->path;
		run->pending[run->pending_count++].addr = insn->target;
	}
	run->path.addr = insn->addr + insn->size;
	return true;
}

/* One instruction of the current path; false: the path ends. */
static bool step(struct run *run)
{
	struct msp_insn insn;

	if (!inside(run->env, run->path.addr) || !may_visit(run, run->path.addr) ||
	    msp_code_decode(run->env->code, run->path.addr, &insn) != 0)
		return false;
	if (insn.op == MSP_OP_JMP || insn.op == MSP_OP_JCC)
		return branch(run, &insn);
	exec(run, &insn);
	run->path.addr += insn.size;
	return msp_insn_falls_through(&insn);
}

static void next_path(struct run *run)
{
	unsigned int which = run->env->early_first ? 0 : run->pending_count - 1;

	run->path = run->pending[which];
	run->pending_count--;
	memmove(&run->pending[which], &run->pending[which + 1],
		(run->pending_count - which) * sizeof(run->pending[0]));
}

void msp_sym_run(struct msp_sym_env *env, uint64_t entry)
{
	struct run run = {.env = env, .abi = msp_code_abi(env->code)};
	unsigned int left = env->max_insns;

	memset(env->node, 0, sizeof(env->node[0]) * 2);
	env->node[1].kind = MSP_SYM_CONST;
	env->node_count = 2;
	run.path.addr = entry;
	for (unsigned int i = 0; i < run.abi->regs; i++) {
		struct msp_sym_node node = {.kind = MSP_SYM_REG, .op = (uint8_t)i};

		run.path.reg[i] = intern(env, &node);
	}
	for (;;) {
		while (left && !run.stop && step(&run))
			left--;
		if (!left || run.stop || !run.pending_count)
			break;
		next_path(&run);
	}
}

bool msp_sym_is_load(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
		     struct msp_sym *addr)
{
	const struct msp_sym_node *node = &env->node[v.node];

	if (node->kind != MSP_SYM_LOAD || v.off != 0 || (size && node->size != size))
		return false;
	*addr = node->a;
	return true;
}

bool msp_sym_is_load_reg(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
			 int reg, int64_t *off)
{
	struct msp_sym addr;

	if (!msp_sym_is_load(env, v, size, &addr) || !msp_sym_is_reg(env, addr, reg))
		return false;
	*off = addr.off;
	return true;
}

bool msp_sym_is_load_load_reg(const struct msp_sym_env *env, struct msp_sym v, unsigned int size,
			      int reg, int64_t outer, int64_t *off)
{
	struct msp_sym addr, base;
	int64_t base_off;

	if (!msp_sym_is_load(env, v, size, &addr))
		return false;
	base = (struct msp_sym){addr.node, 0};
	if (!msp_sym_is_load_reg(env, base, 0, reg, &base_off) || base_off != outer)
		return false;
	*off = addr.off;
	return true;
}

bool msp_sym_is_op(const struct msp_sym_env *env, struct msp_sym v, int op, struct msp_sym *a,
		   struct msp_sym *b)
{
	const struct msp_sym_node *node = &env->node[v.node];

	if (node->kind != MSP_SYM_OP || node->op != op || v.off != 0)
		return false;
	*a = node->a;
	*b = node->b;
	return true;
}

bool msp_sym_is_untagged(const struct msp_sym_env *env, struct msp_sym v)
{
	const struct msp_sym_node *node = &env->node[v.node];

	if (env->refs32)
		return node->kind == MSP_SYM_LOAD && node->size == 4 && v.off == 0;
	return node->kind == MSP_SYM_OP && node->op == MSP_OP_AND && is_constant(node->b) &&
	       node->b.off == (int64_t)(~0ULL >> 17);
}
