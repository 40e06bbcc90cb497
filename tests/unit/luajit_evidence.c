/* SPDX-License-Identifier: MIT */
/* Evidence from code on Debian's two LuaJIT binaries: every field, names, time. */
#include "luajit_help.h"

/*
 * Debian bookworm, 2.1.0~beta3+git20220320, amd64. Obtained from the debug
 * information (gdb ptype /o) of a build of the same source with the same
 * options, and from the opcode numbers of that build.
 */
static const struct {
	enum msp_lj_field field;
	int64_t value;
} truth[] = {
#define T(name, value) \
	{ \
		MSP_LJ_FIELD_##name, value \
	}
	T(arch, MSP_ARCH_X86_64),
	T(gc64, 1),
	T(fr2, 1),
	T(jit, 1),
	T(vmstate_gc, 2),
	T(reg_dispatch, MSP_X64_R14),
	T(reg_base, MSP_X64_RDX),
	T(reg_pc, MSP_X64_RBX),
	T(reg_l, MSP_REG_NONE),
	T(bc_funcf, 89),
	T(bc_funccw, 96),
	T(dualnum, 0),
	T(cframe_size, 80),
	T(cf_L, 16),
	T(cf_PC, 24),
	T(cf_prev, 32),
	T(dispatch_to_g, 3968),
	T(g_to_J, 728),
	T(g_mainthref, 192),
	T(g_cur_L, 368),
	T(g_jit_base, 376),
	T(g_vmstate, 184),
	T(g_strempty, 120),
	T(J_trace, 384),
	T(J_sizetrace, 396),
	T(gc_gct, 9),
	T(L_glref, 16),
	T(L_base, 32),
	T(L_top, 40),
	T(L_maxstack, 48),
	T(L_stack, 56),
	T(L_cframe, 80),
	T(L_stacksize, 88),
	T(L_status, 11),
	T(fn_ffid, 10),
	T(fn_pc, 32),
	T(fn_cfunc, 40),
	T(pt_size, 104),
	T(pt_numparams, 10),
	T(pt_framesize, 11),
	T(pt_sizebc, 12),
	T(pt_k, 32),
	T(pt_sizekgc, 48),
	T(pt_sizekn, 52),
	T(pt_sizept, 56),
	T(pt_sizeuv, 60),
	T(pt_flags, 61),
	T(pt_trace, 62),
	T(pt_chunkname, 64),
	T(pt_firstline, 72),
	T(pt_numline, 76),
	T(pt_lineinfo, 80),
	T(pt_uvinfo, 88),
	T(pt_varinfo, 96),
	T(str_len, 20),
	T(str_data, 24),
	T(T_nsnap, 10),
	T(T_nsnapmap, 44),
	T(T_nins, 12),
	T(T_nk, 40),
	T(T_ir, 32),
	T(T_snap, 48),
	T(T_snapmap, 56),
	T(T_startpt, 64),
	T(T_startpc, 72),
	T(T_szmcode, 84),
	T(T_mcode, 88),
	T(T_mcloop, 96),
	T(T_spadjust, 102),
	T(T_traceno, 104),
	T(T_link, 106),
	T(T_root, 108),
	T(T_linktype, 116),
	T(snap_size, 12),
	T(snap_mapofs, 0),
	T(snap_ref, 4),
	T(snap_mcofs, 6),
	T(snap_nslots, 8),
	T(snap_nent, 10),
#undef T
};

static void check_layout(const struct msp_lj_build *build)
{
	for (size_t i = 0; i < sizeof(truth) / sizeof(truth[0]); i++) {
		int64_t value = msp_lj_field_get(msp_lj_build_layout(build), truth[i].field);

		if (value != truth[i].value)
			fail_msg("%s is %ld, not %ld", msp_lj_field_name(truth[i].field),
				 (long)value, (long)truth[i].value);
	}
}

static unsigned int count_source(const struct msp_lj_build *build, const char *source)
{
	const struct msp_lj_evidence *e;
	size_t n = msp_lj_build_evidence(build, &e);
	unsigned int count = 0;

	for (size_t i = 0; i < n; i++)
		count += e[i].found && strcmp(e[i].source, source) == 0;
	return count;
}

/* Numbers and names as in the build's lj_ffdef.h; each kind of table and entry once. */
static void check_ff_names(const struct msp_lj_build *build)
{
	static const struct {
		uint32_t ffid;
		const char *name;
	} names[] = {{2, "assert"},
		     {6, "ipairs_aux"},
		     {29, "print"},
		     {35, "coroutine.resume"},
		     {36, "coroutine.wrap_aux"},
		     {39, "math.floor"},
		     {75, "bit.tohex"},
		     {86, "string.gmatch_aux"},
		     {88, "string.gsub"},
		     {93, "table.sort"},
		     {94, "table.new"},
		     {97, "io:read"},
		     {105, "io.open"},
		     {142, "debug.traceback"},
		     {143, "jit.on"},
		     {160, "jit.opt.start"},
		     {188, "ffi.new"},
		     {208, "string.buffer:put"},
		     {222, "string.buffer.decode"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_string_equal(msp_lj_build_ff_name(build, names[i].ffid), names[i].name);
	assert_null(msp_lj_build_ff_name(build, 0));
	assert_null(msp_lj_build_ff_name(build, 1));
	assert_null(msp_lj_build_ff_name(build, 223));
}

/* Bytes of the VM block for which it is not known where the Lua frame is: what nothing leads to. */
static uint32_t unknown_bytes(const struct msp_lj_vm_rows *rows)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i + 1 < rows->row_count; i++) {
		const struct msp_rule *rule = &rows->rules[rows->rows[i].rule];

		if ((rule->flags & MSP_RULE_VM) && !(rule->leaf & MSP_LEAF_KNOWN))
			bytes += rows->rows[i + 1].addr - rows->rows[i].addr;
	}
	return bytes;
}

static void check_binary(const char *path)
{
	const struct msp_unwind_table *table;
	const struct msp_lj_vm_rows *rows;
	struct msp_lj_build *build;
	struct msp_image *image;
	double start;

	if (!have_file(path)) {
		print_message("%s is not installed\n", path);
		skip();
	}
	assert_int_equal(open_image(path, &image), 0);
	assert_int_equal(msp_image_unwind(image, &table), 0);
	start = cpu_ms();
	assert_int_equal(msp_lj_build_find(image, &build), 0);
	start = cpu_ms() - start;
	rows = msp_lj_build_vm_rows(build);
	print_message(
		"%s: %.1f ms of CPU; evidence: %u from code, %u constants; VM block 0x%x to 0x%x, "
		"%u of %u instructions reached, %u rows, %u rules\n",
		path, start, count_source(build, "code"), count_source(build, "constant"),
		build->layout.vm_start, build->layout.vm_end, rows->reached, rows->instructions,
		rows->row_count, rows->rule_count);
	assert_true(start < 200);
	assert_string_equal(msp_lj_build_version(build), "LuaJIT 2.1.0-beta3");
	check_layout(build);
	check_ff_names(build);
	assert_true(rows->reached + 8 >= rows->instructions);
	assert_in_range(unknown_bytes(rows), 0, 16);
	msp_lj_build_free(build);
	msp_image_close(image);
}

static void test_program(void **state)
{
	(void)state;
	check_binary(LUAJIT);
}

static void test_library(void **state)
{
	(void)state;
	check_binary(LIBLUAJIT);
}

/* Programs without LuaJIT, among them this test, which knows all its names. */
static void test_others(void **state)
{
	static const char *const paths[] = {"/proc/self/exe", "/bin/sh", "/usr/bin/python3",
					    "/lib/x86_64-linux-gnu/libc.so.6"};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct msp_lj_build *build;
		struct msp_image *image;

		if (open_image(paths[i], &image) != 0)
			continue;
		assert_int_equal(msp_lj_build_find(image, &build), MSP_E_NO_LUAJIT);
		assert_null(build);
		msp_image_close(image);
	}
}

/* The rows go into the image's own table. */
static void test_overlay(void **state)
{
	const struct msp_lj_vm_rows *rows;
	const struct msp_lj_layout *l;
	struct msp_lj_build *build;
	struct msp_image *image;

	(void)state;
	if (!have_file(LUAJIT))
		skip();
	assert_int_equal(open_image(LUAJIT, &image), 0);
	assert_int_equal(msp_lj_build_find(image, &build), 0);
	rows = msp_lj_build_vm_rows(build);
	l = msp_lj_build_layout(build);
	assert_int_equal(rows->rows[0].addr, l->vm_start);
	for (uint32_t i = 1; i < rows->row_count; i++) {
		assert_true(rows->rows[i].addr > rows->rows[i - 1].addr);
		assert_true(rows->rows[i].addr < rows->end);
		assert_true(rows->rows[i].rule < rows->rule_count);
	}
	assert_true(rows->end > l->vm_end); /* vm_ffi_call follows */
	assert_int_equal(rows->rules[0].cfa_kind, MSP_CFA_NONE);
	assert_int_equal(msp_image_overlay(image, l->vm_start, (uint32_t)rows->end, rows->rows,
					   rows->row_count, rows->rules, rows->rule_count),
			 0);
	msp_lj_build_free(build);
	msp_image_close(image);
}

static uint8_t *read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes;

	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*size = (size_t)ftell(file);
	rewind(file);
	bytes = malloc(*size);
	assert_true(bytes && fread(bytes, 1, *size, file) == *size);
	fclose(file);
	return bytes;
}

/* Where in C code a constant of 8 bytes is: mov r64, imm64. As a file has it. */
static size_t find_constant(const struct msp_image *image, const uint8_t *bytes, size_t size,
			    const struct msp_lj_layout *l, uint64_t *addr)
{
	for (size_t i = 0; i + 10 <= size; i++) {
		if (bytes[i] == 0x48 && (bytes[i + 1] & 0xf8) == 0xb8 && bytes[i + 8] == 0xfd &&
		    bytes[i + 9] == 0xff && msp_image_offset_to_addr(image, i, addr) &&
		    (*addr < l->vm_start || *addr >= l->vm_end))
			return i;
	}
	return 0;
}

/* Bytes that look like a call of the middle of a handler, but are part of another instruction. */
static void test_false_reference(void **state)
{
	static const struct msp_image_options opts = {.name = "changed"};
	const struct msp_lj_vm_rows *rows;
	struct msp_lj_build *build;
	struct msp_image *image;
	uint32_t target, count;
	uint64_t addr;
	uint8_t *bytes;
	size_t size = 0, at;
	int32_t rel;

	(void)state;
	bytes = read_file(LUAJIT, &size);
	if (!bytes)
		skip();
	assert_int_equal(msp_image_open_memory(bytes, size, &opts, &image), 0);
	assert_int_equal(msp_lj_build_find(image, &build), 0);
	rows = msp_lj_build_vm_rows(build);
	count = build->ref_count;
	target = rows->rows[rows->row_count / 2].addr;
	at = find_constant(image, bytes, size, msp_lj_build_layout(build), &addr);
	assert_true(at != 0);
	msp_lj_build_free(build);
	msp_image_close(image);
	rel = (int32_t)(target - (uint32_t)(addr + 7));
	bytes[at + 2] = 0xe8;
	memcpy(bytes + at + 3, &rel, sizeof(rel));
	assert_int_equal(msp_image_open_memory(bytes, size, &opts, &image), 0);
	assert_int_equal(msp_lj_build_find(image, &build), 0);
	assert_int_equal(build->ref_count, count);
	for (unsigned int i = 0; i < build->ref_count; i++)
		assert_true(build->ref[i].target != target);
	msp_lj_build_free(build);
	msp_image_close(image);
	free(bytes);
}

/* ---- The states of a VM, by what its block stores ---- */

#define STATE_AT 184
#define STATE_REG MSP_X64_R14

static void add_store(struct msp_lj_build *build, uint8_t base, int64_t at, int64_t value)
{
	build->insn[build->insn_count++] =
		(struct msp_insn){.op = MSP_OP_MOV,
				  .operand_count = 2,
				  .operand = {{.kind = MSP_OPND_MEM,
					       .size = 4,
					       .base = base,
					       .index = MSP_REG_NONE,
					       .value = at},
					      {.kind = MSP_OPND_IMM, .size = 4, .value = value}}};
}

/* arm64: a constant goes into a register; one is stored. */
static void add_store_by_register(struct msp_lj_build *build, int state, bool call)
{
	build->insn[build->insn_count++] = (struct msp_insn){
		.op = MSP_OP_MOV,
		.operand_count = 2,
		.writes = 1 << 8,
		.operand = {{.kind = MSP_OPND_REG, .size = 4, .reg = 8},
			    {.kind = MSP_OPND_IMM, .size = 4, .value = (uint32_t)~state}}};
	build->insn[build->insn_count++] =
		(struct msp_insn){.op = call ? MSP_OP_CALL : MSP_OP_OTHER};
	add_store(build, STATE_REG, STATE_AT, 0);
	build->insn[build->insn_count - 1].operand[1] =
		(struct msp_operand){.kind = MSP_OPND_REG, .size = 4, .reg = 8};
}

/* The collector's number for a block that stores some states; -1: not told. by_register: so many are. */
static int collector_of(uint32_t states, bool by_register)
{
	struct msp_lj_build *build = calloc(1, sizeof(*build));
	int told;

	assert_non_null(build);
	build->insn = calloc(64, sizeof(*build->insn));
	assert_non_null(build->insn);
	build->layout.reg_dispatch = STATE_REG;
	build->layout.reg_is_g = true;
	build->layout.g_vmstate = STATE_AT;
	build->has[MSP_LJ_FIELD_g_vmstate] = true;
	for (int state = 0; state < 16; state++) {
		if (!(states >> state & 1))
			continue;
		if (by_register)
			add_store_by_register(build, state, false);
		else
			add_store(build, STATE_REG, STATE_AT, ~state);
	}
	/* Others' fields, what is no state, and what may have changed before it is stored. */
	add_store(build, STATE_REG, STATE_AT + 4, ~2);
	add_store(build, MSP_X64_RBX, STATE_AT, ~2);
	add_store(build, STATE_REG, STATE_AT, 2);
	add_store(build, STATE_REG, STATE_AT, -100);
	add_store_by_register(build, 2, true);
	msp_lj_evidence_states(build);
	told = build->has[MSP_LJ_FIELD_vmstate_gc] ? build->layout.vmstate_gc : -1;
	free(build->insn);
	free(build);
	return told;
}

static void test_states(void **state)
{
	static const struct {
		uint32_t stored;
		int collector;
	} shapes[] = {{0x3, 2},	 {0xb, 2},   {0xf, 4},	 {0x2f, 4},  {0, -1},  {0x1, -1},
		      {0x7, -1}, {0x1f, -1}, {0x2b, -1}, {0x6f, -1}, {0xa, -1}};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		assert_int_equal(collector_of(shapes[i].stored, false), shapes[i].collector);
		assert_int_equal(collector_of(shapes[i].stored, true), shapes[i].collector);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_program),		cmocka_unit_test(test_library),
		cmocka_unit_test(test_others),		cmocka_unit_test(test_overlay),
		cmocka_unit_test(test_false_reference), cmocka_unit_test(test_states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
