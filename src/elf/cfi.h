/* SPDX-License-Identifier: MIT */
/* Call frame information to rows. */
#ifndef MSP_ELF_CFI_H
#define MSP_ELF_CFI_H

#include "elf/image.h"
#include "elf/rows.h"

/* What differs between processors. */
struct msp_cfi_arch {
	int arch;
	uint8_t ra, sp;
	uint8_t slot_count;
	uint8_t slot_reg[MSP_SLOT_COUNT];
	bool ra_live; /* the return address is in a register until it is saved */
	bool negate_ra_state;
	uint8_t eh_data; /* registers from 0 on that hand an exception to its landing pad */
};

const struct msp_cfi_arch *msp_cfi_arch(int arch);

enum msp_cfi_how {
	CFI_DEFAULT = 0, /* nothing said: as the psABI has it */
	CFI_UNDEFINED,
	CFI_SAME,
	CFI_OFFSET,	/* at CFA + value */
	CFI_VAL_OFFSET, /* is CFA + value */
	CFI_REGISTER,	/* in register value */
	CFI_EXPRESSION, /* at the address an expression gives */
	CFI_VAL_EXPRESSION,
};

struct msp_cfi_reg {
	uint8_t how;
	uint32_t size; /* of the expression */
	union {
		int64_t value;
		const uint8_t *expr;
	};
};

#define MSP_CFI_SP_SLOT MSP_SLOT_COUNT

/* What the instructions have said so far of the CFA, sp and what a rule can restore. */
struct msp_cfi_state {
	uint32_t cfa_reg;
	int64_t cfa_off;
	const uint8_t *cfa_expr; /* NULL: register + offset */
	uint32_t cfa_expr_size;
	bool ra_signed;
	bool pushed; /* arm64: two words that the PLT has pushed before belong to its frame */
	uint32_t ever_saved; /* bit per register: the function has saved it */
	uint32_t eh_cfa_reg; /* what the CFA was told by when it saved one of those that hand an exception over */
	bool unknown; /* something we do not understand: no rule from here on */
	struct msp_cfi_reg regs[MSP_SLOT_COUNT + 1];
};

/* A program and its circumstances; what a CIE says. */
struct msp_cfi_cie {
	uint64_t offset; /* in its section */
	bool usable;
	bool signal;
	bool other_ra;	  /* the return address is where no rule can say */
	bool sized;	  /* 'z': FDEs say how long their augmentation is */
	uint8_t encoding; /* of addresses in FDEs */
	uint64_t code_align;
	int64_t data_align;
	const uint8_t *program, *program_end;
	bool started; /* initial is valid */
	struct msp_cfi_state initial;
};

struct msp_cfi_fde {
	uint32_t start, end; /* image-relative */
	uint32_t cie;
	uint32_t program_size;
	const uint8_t *program;
};

/* Runs the program of one FDE and adds its rows in [from, fde->end). */
int msp_cfi_run(const struct msp_cfi_arch *arch, struct msp_cfi_cie *cie,
		const struct msp_cfi_fde *fde, uint32_t from, struct msp_rows *rows);

/* The rule that says the same as the state, or MSP_CFA_UNSUPPORTED. */
void msp_cfi_rule(const struct msp_cfi_arch *arch, const struct msp_cfi_state *state, bool signal,
		  struct msp_rule *rule);

/*
 * Adds the rows of a section. Addresses in it plus delta are those of image
 * (a debug file may have been made before its image was prelinked).
 */
int msp_cfi_compile(const struct msp_image *image, const struct msp_bytes *section, bool eh_frame,
		    int64_t delta, struct msp_rows *rows);

/* Rows for instructions of arm64 of which the CFI does not tell, or tells what is only right at calls. */
int msp_frame_rows(struct msp_image *image, struct msp_rows *rows);
/* Rows for where an exception lands behind a function of arm64, of which gcc's CFI does not tell. */
int msp_landing_rows(struct msp_image *image, struct msp_rows *rows);
/* Rows of linker stubs and signal trampolines without CFI; only where their code proves them. */
int msp_stub_rows(struct msp_image *image, struct msp_rows *rows);
/* Of functions of arm64's vDSO that leave the stack alone. */
int msp_leaf_rows(struct msp_image *image, struct msp_rows *rows);

/* Bounded LEB128 readers: false at the end of the bytes. Bits beyond 64 are dropped. */
bool msp_uleb(const uint8_t **at, const uint8_t *end, uint64_t *value);
bool msp_sleb(const uint8_t **at, const uint8_t *end, int64_t *value);

#endif
