/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as an ELF file, and as a cached table: all that can be asked of
 * an image is asked, and the rows are checked for what the walker relies on.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/elf.h"
#include "elf/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_table(const struct msp_unwind_table *table)
{
	if (!msp_rows_valid(table->rows, table->row_count, table->rules, table->rule_count))
		abort();
	for (uint32_t i = 1; i < table->row_count; i++)
		if (table->rows[i].rule == table->rows[i - 1].rule)
			abort();
	for (uint32_t i = 1; i < table->function_count; i++)
		if (table->functions[i] <= table->functions[i - 1])
			abort();
}

static void read_all(const struct msp_image *image, uint64_t addr)
{
	size_t avail;
	const volatile uint8_t *bytes = msp_image_bytes(image, addr, &avail);

	if (bytes && avail) {
		(void)bytes[0];
		(void)bytes[avail - 1];
	}
}

static void use_image(struct msp_image *image, uint64_t seed)
{
	const struct msp_rule rule = {.cfa_kind = MSP_CFA_END};
	const struct msp_row row = {(uint32_t)seed, 0};
	const struct msp_unwind_table *table;
	struct msp_dynamic dynamic;
	struct msp_symbol symbol;
	struct msp_probe *probe;
	uint64_t addr = 0;
	int probes;

	if (!msp_image_unwind(image, &table)) {
		check_table(table);
		for (uint32_t i = 0; i < table->row_count; i += table->row_count / 16 + 1)
			if (!msp_image_symbol(image, table->rows[i].addr, &symbol) &&
			    strlen(symbol.name) > 1 << 20)
				abort();
		if (!msp_image_overlay(image, (uint32_t)seed, (uint32_t)(seed >> 32), &row, 1,
				       &rule, 1) &&
		    !msp_image_unwind(image, &table))
			check_table(table);
	}
	if (msp_image_dynamic(image, &dynamic) == 0)
		for (size_t i = 0; i < dynamic.needed_count; i++)
			if (strlen(dynamic.needed[i]) > 1 << 20)
				abort();
	msp_dynamic_free(&dynamic);
	probes = msp_image_probes(image, MSP_PROBE_PROVIDER, &probe);
	for (int i = 0; i < probes; i++)
		if (strlen(probe[i].name) >= sizeof(probe[i].name))
			abort();
	free(probe);
	msp_image_find_symbol(image, "malloc", &symbol);
	msp_image_symbol(image, seed % 65536, &symbol);
	msp_image_offset_to_addr(image, seed % 65536, &addr);
	read_all(image, addr);
	read_all(image, seed);
	if (strlen(msp_image_key(image)->text) >= MSP_IMAGE_KEY_SIZE)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* No debug files of this machine: the result must not depend on it. */
	const struct msp_image_options opts = {.root = "/proc/self/fdinfo", .name = "/fuzz"};
	struct msp_image *image;
	struct msp_image_key key;
	uint64_t seed = 0;
	int fd;

	memcpy(&seed, data + (size > 8 ? size - 8 : 0), size > 8 ? 8 : 0);
	/* The same parsers read both; a file costs system calls that find nothing. */
	if (seed & 3) {
		if (msp_image_open_memory(data, size, &opts, &image))
			return 0;
	} else {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		if (fd < 0 || write(fd, data, size) != (ssize_t)size)
			abort();
		msp_image_key_fd(fd, &key);
		if (msp_image_open_fd(fd, &opts, &image))
			return 0;
	}
	use_image(image, seed);
	msp_image_close(image);
	return 0;
}
