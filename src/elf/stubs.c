/* SPDX-License-Identifier: MIT */
/*
 * Code that linkers and C libraries bring without CFI: PLT stubs (lld never
 * describes them, older GNU linkers only some), _init and _fini, musl's
 * signal trampoline, and the instructions behind the system call of clone().
 * Their few instructions are decoded; what is not exactly one of them gets no
 * rule.
 */
#include <string.h>

#include "elf/cfi.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

/* A trampoline is looked for in gaps between functions that are more than padding. */
#define GAP_MIN 64
/* A stub has no bigger frame. */
#define STUB_DEPTH_MAX 4096
/* x29, among those that a row tells of: cfi_rule.c. */
#define ARM64_SLOT_FP 11

/* What an instruction does to the stack. END: what follows begins with an empty frame. */
enum stub_op { STUB_PUSH, STUB_POP, STUB_SUB, STUB_ADD, STUB_END, STUB_PLAIN };

struct stub_code {
	uint8_t bytes[4];
	uint8_t match, length;
	enum stub_op op;
};

/* Length of the instruction, 0 if it is none of these. */
static size_t find_code(const struct stub_code *known, size_t count, const uint8_t *at, size_t size,
			enum stub_op *op)
{
	for (size_t i = 0; i < count; i++) {
		if (size < known[i].length || memcmp(at, known[i].bytes, known[i].match))
			continue;
		*op = known[i].op;
		return known[i].length;
	}
	return 0;
}

/* Length of the instruction, 0 if it is none that stubs are made of. */
static size_t decode_x64(const uint8_t *at, size_t size, enum stub_op *op)
{
	static const struct stub_code known[] = {
		{{0xf3, 0x0f, 0x1e, 0xfa}, 4, 4, STUB_PLAIN}, /* endbr64 */
		{{0xff, 0x35}, 2, 6, STUB_PUSH},	      /* push x(%rip) */
		{{0x68}, 1, 5, STUB_PUSH},		      /* push $x */
		{{0xff, 0x25}, 2, 6, STUB_END},		      /* jmp *x(%rip) */
		{{0xf2, 0xff, 0x25}, 3, 7, STUB_END},	      /* bnd jmp *x(%rip) */
		{{0xe9}, 1, 5, STUB_END},		      /* jmp x */
		{{0xf2, 0xe9}, 2, 6, STUB_END},		      /* bnd jmp x */
		{{0x90}, 1, 1, STUB_PLAIN},
		{{0x66, 0x90}, 2, 2, STUB_PLAIN},
		{{0xcc}, 1, 1, STUB_PLAIN},
		{{0x0f, 0x1f, 0x00}, 3, 3, STUB_PLAIN},
		{{0x0f, 0x1f, 0x40}, 3, 4, STUB_PLAIN},
		{{0x0f, 0x1f, 0x44}, 3, 5, STUB_PLAIN},
		{{0x66, 0x0f, 0x1f, 0x44}, 4, 6, STUB_PLAIN},
		{{0x0f, 0x1f, 0x80}, 3, 7, STUB_PLAIN},
		{{0x0f, 0x1f, 0x84}, 3, 8, STUB_PLAIN},
		{{0x66, 0x0f, 0x1f, 0x84}, 4, 9, STUB_PLAIN},
		{{0x66, 0x2e, 0x0f, 0x1f}, 4, 10, STUB_PLAIN},
	};

	return find_code(known, sizeof(known) / sizeof(known[0]), at, size, op);
}

/* The same for _init and _fini, of crti.o, crtn.o and what is linked between. */
static size_t decode_x64_init(const uint8_t *at, size_t size, enum stub_op *op)
{
	static const struct stub_code known[] = {
		{{0xf3, 0x0f, 0x1e, 0xfa}, 4, 4, STUB_PLAIN}, /* endbr64 */
		{{0x48, 0x83, 0xec}, 3, 4, STUB_SUB},	      /* sub $x, %rsp */
		{{0x48, 0x83, 0xc4}, 3, 4, STUB_ADD},	      /* add $x, %rsp */
		{{0x50}, 1, 1, STUB_PUSH},		      /* push %rax */
		{{0x58}, 1, 1, STUB_POP},		      /* pop %rax */
		{{0x48, 0x8b, 0x05}, 3, 7, STUB_PLAIN},	      /* mov x(%rip), %rax */
		{{0x48, 0xc7, 0xc0}, 3, 7, STUB_PLAIN},	      /* mov $x, %rax */
		{{0x48, 0x85, 0xc0}, 3, 3, STUB_PLAIN},	      /* test %rax, %rax */
		{{0x74}, 1, 2, STUB_PLAIN},		      /* je x: over the call */
		{{0xff, 0xd0}, 2, 2, STUB_PLAIN},	      /* call *%rax */
		{{0xff, 0x15}, 2, 6, STUB_PLAIN},	      /* call *x(%rip) */
		{{0x67, 0xe8}, 2, 6, STUB_PLAIN},	      /* call x, padded */
		{{0xe8}, 1, 5, STUB_PLAIN},		      /* call x */
		{{0x66, 0x90}, 2, 2, STUB_PLAIN},
		{{0x90}, 1, 1, STUB_PLAIN},
		{{0xc3}, 1, 1, STUB_END}, /* ret */
	};

	return find_code(known, sizeof(known) / sizeof(known[0]), at, size, op);
}

static size_t decode_arm64(const uint8_t *at, size_t size, enum stub_op *op)
{
	uint32_t insn;

	if (size < 4)
		return 0;
	memcpy(&insn, at, 4);
	if (insn == 0xa9bf7bf0) /* stp x16, x30, [sp, #-16]! */
		*op = STUB_PUSH;
	else if (insn == 0xd61f0220) /* br x17 */
		*op = STUB_END;
	else if ((insn & 0x9f00001f) == 0x90000010 ||	   /* adrp x16, x */
		 (insn & 0xffc003ff) == 0xf9400211 ||	   /* ldr x17, [x16, x] */
		 (insn & 0xffc003ff) == 0x91000210 ||	   /* add x16, x16, x */
		 insn == 0xd503201f || insn == 0xd503245f) /* nop, bti c */
		*op = STUB_PLAIN;
	else
		return 0;
	return 4;
}

static size_t decode_arm64_init(const uint8_t *at, size_t size, enum stub_op *op)
{
	static const struct stub_code known[] = {
		{{0x3f, 0x23, 0x03, 0xd5}, 4, 4, STUB_PLAIN}, /* paciasp */
		{{0xbf, 0x23, 0x03, 0xd5}, 4, 4, STUB_PLAIN}, /* autiasp */
		{{0x5f, 0x24, 0x03, 0xd5}, 4, 4, STUB_PLAIN}, /* bti c */
		{{0x1f, 0x20, 0x03, 0xd5}, 4, 4, STUB_PLAIN}, /* nop */
		{{0xfd, 0x7b, 0xbf, 0xa9}, 4, 4, STUB_PUSH},  /* stp x29, x30, [sp, #-16]! */
		{{0xfd, 0x03, 0x00, 0x91}, 4, 4, STUB_PLAIN}, /* mov x29, sp */
		{{0xfd, 0x7b, 0xc1, 0xa8}, 4, 4, STUB_POP},   /* ldp x29, x30, [sp], #16 */
		{{0xc0, 0x03, 0x5f, 0xd6}, 4, 4, STUB_END},   /* ret */
	};

	if (size >= 4 && at[3] >> 2 == 0x25) { /* bl x */
		*op = STUB_PLAIN;
		return 4;
	}
	return find_code(known, sizeof(known) / sizeof(known[0]), at, size, op);
}

static void stub_rule(int arch, uint32_t depth, bool keeps_fp, struct msp_rule *rule)
{
	memset(rule, 0, sizeof(*rule));
	rule->cfa_kind = MSP_CFA_REG;
	rule->cfa_reg = msp_cfi_arch(arch)->sp;
	rule->cfa_off = (int32_t)depth;
	for (int i = 0; i < msp_cfi_arch(arch)->slot_count; i++)
		rule->saved[i] = MSP_SAVED_SAME;
	if (arch == MSP_ARCH_X86_64 || depth)
		rule->saved[MSP_SLOT_RA] = -8;
	if (depth && keeps_fp)
		rule->saved[ARM64_SLOT_FP] = -16;
}

static int add_stub_row(int arch, uint64_t addr, uint32_t depth, bool keeps_fp,
			struct msp_rows *rows)
{
	struct msp_rule rule;
	int index;

	stub_rule(arch, depth, keeps_fp, &rule);
	index = msp_rows_intern(rows, &rule);
	return index < 0 ? index : msp_rows_add(rows, (uint32_t)addr, (uint32_t)index);
}

typedef size_t decode_fn(const uint8_t *at, size_t size, enum stub_op *op);

static decode_fn *decoder(int arch, bool init)
{
	if (arch == MSP_ARCH_X86_64)
		return init ? decode_x64_init : decode_x64;
	return init ? decode_arm64_init : decode_arm64;
}

/* The stack after an instruction. */
static uint32_t depth_after(int arch, enum stub_op op, const uint8_t *at, uint32_t depth)
{
	bool x64 = arch == MSP_ARCH_X86_64;
	uint32_t push = x64 ? 8 : 16;

	switch (op) {
	case STUB_PUSH:
		return depth + push;
	case STUB_POP:
		return depth - push;
	case STUB_SUB:
		return depth + at[3];
	case STUB_ADD:
		return depth - at[3];
	case STUB_END:
		return x64 ? 8 : 0;
	case STUB_PLAIN:
		break;
	}
	return depth;
}

/*
 * Each stub starts with an empty frame and ends with a jump, _init and _fini with a return. The
 * first one of .plt is entered with one more word, the index that a stub has pushed.
 */
static int decode_stubs(int arch, bool init, const struct msp_bytes *bytes, uint64_t addr,
			struct msp_rows *rows)
{
	bool x64 = arch == MSP_ARCH_X86_64;
	uint32_t empty = x64 ? 8 : 0, depth = empty;
	size_t at = 0, length;
	enum stub_op op;
	int err = 0;

	if (x64 && !init && bytes->size > 2 && bytes->data[0] == 0xff && bytes->data[1] == 0x35)
		depth += 8;
	while (!err && at < bytes->size && depth >= empty && depth < STUB_DEPTH_MAX) {
		length = decoder(arch, init)(bytes->data + at, bytes->size - at, &op);
		if (!length)
			break;
		err = add_stub_row(arch, addr + at, depth, init && !x64, rows);
		depth = depth_after(arch, op, bytes->data + at, depth);
		at += length;
	}
	return err ? err : msp_rows_add(rows, (uint32_t)(addr + at), 0);
}

static int stub_section(struct msp_image *image, enum msp_section_id id, struct msp_rows *rows)
{
	struct msp_rows *more;
	struct msp_bytes bytes;
	uint64_t end;
	int err = msp_section_read(image, id, &bytes);

	if (err)
		return err == MSP_E_NOMEM ? err : 0;
	more = msp_rows_new();
	err = more ? 0 : MSP_E_NOMEM;
	if (!err && msp_image_executable(image, bytes.vaddr, &end) &&
	    bytes.size <= end - bytes.vaddr && end - image->min_vaddr <= UINT32_MAX)
		err = decode_stubs(image->arch, id == MSP_SECTION_INIT || id == MSP_SECTION_FINI,
				   &bytes, bytes.vaddr - image->min_vaddr, more);
	if (!err)
		err = msp_rows_fill(rows, more);
	msp_rows_free(more);
	msp_bytes_free(&bytes);
	return err;
}

/* Offset of the instructions that call rt_sigreturn, and their size; -1 if there are none. */
static int64_t find_trampoline(int arch, const uint8_t *bytes, size_t size, size_t from,
			       size_t *length)
{
	static const uint8_t x64[] = {0x0f, 0, 0, 0, 0x0f, 0x05}; /* ..., $15; syscall */
	static const uint8_t arm64[] = {0x68, 0x11, 0x80, 0xd2,
					1,    0,    0,	  0xd4}; /* mov x8,#139; svc 0 */
	const uint8_t *at = bytes + from;

	if (arch == MSP_ARCH_ARM64) {
		at = memmem(at, size - from, arm64, sizeof(arm64));
		*length = sizeof(arm64);
		return at ? at - bytes : -1;
	}
	while ((at = memmem(at, size - (size_t)(at - bytes), x64, sizeof(x64)))) {
		if (at - bytes >= 3 && !memcmp(at - 3, "\x48\xc7\xc0", 3)) {
			*length = sizeof(x64) + 3;
			return at - 3 - bytes;
		}
		if (at - bytes >= 1 && at[-1] == 0xb8) {
			*length = sizeof(x64) + 1;
			return at - 1 - bytes;
		}
		at++;
	}
	return -1;
}

static int scan_gap(const struct msp_image *image, const struct msp_segment *seg, uint64_t start,
		    uint64_t end, struct msp_rows *rows)
{
	struct msp_rule rule = {.cfa_kind = MSP_CFA_SIGNAL,
				.cfa_reg = msp_cfi_arch(image->arch)->sp};
	struct msp_bytes bytes;
	size_t from = 0, length;
	int64_t at;
	int err;

	if (msp_image_read_bytes(image, seg->offset + (start - seg->vaddr), end - start, &bytes))
		return 0;
	err = msp_rows_intern(rows, &rule);
	while (err >= 0 &&
	       (at = find_trampoline(image->arch, bytes.data, bytes.size, from, &length)) >= 0) {
		uint32_t addr = (uint32_t)(start - image->min_vaddr + (uint64_t)at);
		/*
		 * Nothing calls the trampoline: the address on the stack is its first byte.
		 * Walkers look one byte before a return address, so the rule starts there,
		 * unless that byte is the end of another one.
		 */
		bool touches = from && (size_t)at == from;
		int add = msp_rows_add(rows, addr && !touches ? addr - 1 : addr, (uint32_t)err);

		if (!add)
			add = msp_rows_add(rows, addr + (uint32_t)length, 0);
		if (add)
			err = add;
		from = (size_t)at + length;
	}
	msp_bytes_free(&bytes);
	return err < 0 ? err : 0;
}

/* A jump, if the result of a system call is negative, or zero: its size; 0: something else. */
static size_t conditional_x64(const uint8_t *code)
{
	if (code[0] == 0x7c || code[0] == 0x74)
		return 2;
	return code[0] == 0x0f && (code[1] == 0x8c || code[1] == 0x84) ? 6 : 0;
}

/* Bytes of `syscall; test rax, rax; jl error; je child; ret`; 0: it is not that. */
static size_t clone_x64(const uint8_t code[32])
{
	static const uint8_t head[] = {0x0f, 0x05, 0x48, 0x85, 0xc0};
	size_t size = sizeof(head), jump = 0;

	if (memcmp(code, head, sizeof(head)))
		return 0;
	for (int i = 0; i < 2; i++) {
		jump = conditional_x64(code + size);
		size += jump;
	}
	return jump && code[size] == 0xc3 ? size + 1 : 0;
}

/* `svc 0; cmp x0, 0; b.eq child; b.lt error; ret`, or what a compiler of another time made of it. */
static size_t clone_arm64(const uint8_t code[32])
{
	uint32_t word[8];
	size_t n = 2;

	memcpy(word, code, sizeof(word));
	if (word[0] != 0xd4000001 || word[1] != 0xf100001f)
		return 0;
	while (n < 4 && word[n] >> 24 == 0x54)
		n++;
	return n > 2 && word[n] == 0xd65f03c0 ? 4 * (n + 1) : 0;
}

/*
 * The C library's clone(), and clone3(): their CFI ends before the system call, since in the new thread it would be
 * wrong (clone.S of glibc). before: the rule up to there, which still holds in the old one.
 */
static int scan_clone(const struct msp_image *image, const struct msp_segment *seg, uint64_t start,
		      uint64_t end, const struct msp_rule *before, struct msp_rows *rows)
{
	struct msp_rule rule = *before;
	uint8_t code[32] = {0};
	struct msp_bytes bytes;
	uint32_t addr = (uint32_t)(start - image->min_vaddr);
	size_t size = end - start < sizeof(code) ? end - start : sizeof(code);
	int err;

	if (msp_image_read_bytes(image, seg->offset + (start - seg->vaddr), size, &bytes))
		return 0;
	memcpy(code, bytes.data, size);
	msp_bytes_free(&bytes);
	size = image->arch == MSP_ARCH_ARM64 ? clone_arm64(code) : clone_x64(code);
	if (!size || size > end - start)
		return 0;
	rule.flags |= MSP_RULE_STARTS;
	err = msp_rows_intern(rows, &rule);
	if (err >= 0)
		err = msp_rows_add(rows, addr, (uint32_t)err);
	return err ? err : msp_rows_add(rows, addr + (uint32_t)size, 0);
}

/* Gaps behind CFI, and those that are large enough. */
static int scan_segment(const struct msp_image *image, const struct msp_segment *seg,
			const struct msp_rows *rows, struct msp_rows *found)
{
	uint64_t at = seg->vaddr, end = seg->vaddr + seg->file_size, next;
	uint32_t i = 0, rule = 0, before = 0;
	int err = 0;

	if (end - image->min_vaddr > UINT32_MAX)
		return 0;
	while (!err && at < end) {
		while (i < rows->count && rows->rows[i].addr + image->min_vaddr <= at) {
			before = rule;
			rule = rows->rows[i++].rule;
		}
		next = i < rows->count ? rows->rows[i].addr + image->min_vaddr : end;
		if (next > end)
			next = end;
		if (rule == 0 && before)
			err = scan_clone(image, seg, at, next, &rows->rules[before], found);
		if (!err && rule == 0 && next - at >= GAP_MIN)
			err = scan_gap(image, seg, at, next, found);
		at = next;
	}
	return err;
}

static int signal_trampolines(struct msp_image *image, struct msp_rows *rows)
{
	struct msp_rows *found;
	bool dynamic, defines = msp_symbols_export(image, "sigaction", &dynamic);
	int err = 0;

	/* The trampoline is where sigaction() is: in a C library or a static program; or in arm64's vDSO, without CFI. */
	if (dynamic && !defines && (image->arch != MSP_ARCH_ARM64 || rows->count))
		return 0;

	for (uint32_t i = 0; !err && i < image->segment_count; i++) {
		if (!image->segments[i].exec)
			continue;
		found = msp_rows_new();
		err = found ? scan_segment(image, &image->segments[i], rows, found) : MSP_E_NOMEM;
		if (!err)
			err = msp_rows_fill(rows, found);
		msp_rows_free(found);
	}
	return err;
}

int msp_stub_rows(struct msp_image *image, struct msp_rows *rows)
{
	static const enum msp_section_id ids[] = {MSP_SECTION_PLT,     MSP_SECTION_PLT_SEC,
						  MSP_SECTION_PLT_GOT, MSP_SECTION_IPLT,
						  MSP_SECTION_INIT,    MSP_SECTION_FINI};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(ids) / sizeof(ids[0]); i++)
		err = stub_section(image, ids[i], rows);
	return err ? err : signal_trampolines(image, rows);
}
