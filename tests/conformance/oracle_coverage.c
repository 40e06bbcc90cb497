/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "moonspy/moonspy.h"
#include "oracle_run.h"

int oracle_coverage_new(struct oracle_coverage *c, const struct msp_image_entry *entry)
{
	const struct msp_lj_layout *y = msp_lj_build_layout(entry->build);

	c->vm_start = y->vm_start;
	c->size = y->vm_end - y->vm_start;
	c->instructions = msp_lj_build_vm_rows(entry->build)->instructions;
	c->seen = calloc(1, c->size);
	return c->seen ? 0 : MSP_E_NOMEM;
}

void oracle_coverage_free(struct oracle_coverage *c)
{
	free(c->seen);
	c->seen = NULL;
}

uint32_t oracle_coverage_count(const struct oracle_coverage *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->size; i++)
		n += c->seen[i];
	return n;
}

uint32_t oracle_coverage_merge(struct oracle_coverage *c, const char *path)
{
	FILE *file = fopen(path, "r");
	int byte;

	for (uint32_t i = 0; file && i < c->size && (byte = fgetc(file)) != EOF; i++)
		c->seen[i] |= byte == 1;
	if (file)
		fclose(file);
	file = fopen(path, "w");
	if (file) {
		fwrite(c->seen, 1, c->size, file);
		fclose(file);
	}
	return oracle_coverage_count(c);
}

void oracle_coverage_print(const struct oracle_coverage *c, struct oracle_process *p, uint64_t base)
{
	const struct msp_memory *mem = oracle_memory_reader(p->memory);
	bool gap = true;
	char text[96];

	for (uint32_t i = 0; i < c->size;) {
		const struct oracle_insn *insn =
			oracle_code_at(p->code, mem, base + c->vm_start + i);

		if (!insn || !insn->size)
			return;
		if (!c->seen[i]) {
			oracle_code_text(p->code, insn, text, sizeof(text));
			printf("%s  0x%" PRIx64 ": %s\n", gap ? "not seen:\n" : "", c->vm_start + i,
			       text);
		}
		gap = c->seen[i];
		i += insn->size;
	}
}
