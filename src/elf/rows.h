/* SPDX-License-Identifier: MIT */
/* A table of rows while it is built. */
#ifndef MSP_ELF_ROWS_H
#define MSP_ELF_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/tables.h"

struct msp_rows {
	struct msp_row *rows;
	uint32_t count, room;
	struct msp_rule *rules; /* all different; 0 is MSP_CFA_NONE */
	uint32_t rule_count, rule_room;
	uint32_t *slots; /* hash of rules: index + 1, or 0 */
	uint32_t slot_mask;
	uint32_t *functions; /* where functions start, ascending */
	uint32_t function_count, function_room;
};

/*
 * Room for one more element of an array that doubles: the array, perhaps
 * elsewhere, or NULL and the old one is as it was.
 */
void *msp_elf_grow(void *array, uint32_t count, uint32_t *room, size_t size);

/* More of either is refused with MSP_E_LIMIT: no real file comes near. */
#define MSP_ROWS_MAX (1u << 27)
#define MSP_RULES_MAX (1u << 22)

struct msp_rows *msp_rows_new(void); /* NULL: out of memory */
void msp_rows_free(struct msp_rows *rows);

/* Index of a rule, added if it is new. Negative: error. */
int msp_rows_intern(struct msp_rows *rows, const struct msp_rule *rule);
/*
 * The rule from addr on. Not below the last row's addr: what is there already
 * wins. A row that says the same as the one before it is left out.
 */
int msp_rows_add(struct msp_rows *rows, uint32_t addr, uint32_t rule);
int msp_rows_add_function(struct msp_rows *rows, uint32_t addr);

/* Fills the gaps of base (rule 0) with the rows of more. Both keep their order. */
int msp_rows_fill(struct msp_rows *base, const struct msp_rows *more);
/* What more says holds, and base in its gaps. more is then no longer of use. */
int msp_rows_override(struct msp_rows *base, struct msp_rows *more);
/* Replaces [start, end) of base by the rows of more; outside, more is ignored. */
int msp_rows_replace(struct msp_rows *base, const struct msp_rows *more, uint32_t start,
		     uint32_t end);

/* Rule at an address: index, 0 if none. */
uint32_t msp_rows_find(const struct msp_rows *rows, uint32_t addr);

/* Whether untrusted rows keep what the walker and this file rely on. */
bool msp_rows_valid(const struct msp_row *rows, uint32_t count, const struct msp_rule *rules,
		    uint32_t rule_count);

#endif
