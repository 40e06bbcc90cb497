/* SPDX-License-Identifier: MIT */
/* What the VM descriptor (moonspy/vm_descriptor.h) would say of a build that has none. */
#include <stdio.h>
#include <string.h>

#include "luajit/build.h"
#include "luajit/bytecode.h"
#include "luajit/descriptor.h"
#include "luajit/descriptor_fields.h"
#include "luajit/jit.h"

/* ---- Constants ---- */

static int32_t value(const struct msp_lj_build *build, enum msp_lj_field field)
{
	return build->has[field] ? (int32_t)msp_lj_field_get(&build->layout, field) : -1;
}

static int32_t reg(uint8_t number)
{
	return number == MSP_REG_NONE ? -1 : number;
}

/* 2.1.0-beta3: 20100; the versions that count seconds: 20199, as they say of themselves. */
static int32_t version_number(const char *text)
{
	unsigned int major, minor;
	unsigned long patch;

	if (!text || sscanf(text, "LuaJIT %u.%u.%lu", &major, &minor, &patch) != 3)
		return -1;
	return (int32_t)(major * 10000 + minor * 100 + (patch > 99 ? 99 : patch));
}

static void fill_registers(struct ljvm_constants *c, const struct msp_lj_layout *l)
{
	c->arch = l->arch == MSP_ARCH_ARM64 ? LJVM_ARCH_ARM64 : LJVM_ARCH_X64;
	c->reg_dispatch_g = l->reg_is_g ? 0 : l->dispatch_to_g;
	c->reg_L = reg(l->reg_l);
	c->cf_ref_size = l->gc64 ? 8 : 4;
	c->cf_prev_size = sizeof(void *);
}

/* The same in every LuaJIT 2.x; what moonspy's proof and walker rely on too. */
static void fill_invariants(struct ljvm_constants *c, const struct msp_lj_layout *l)
{
	c->gc_next = 0;
	c->gct_str = MSP_GCT_STR;
	c->gct_thread = MSP_GCT_THREAD;
	c->gct_proto = MSP_GCT_PROTO;
	c->gct_func = MSP_GCT_FUNC;
	c->gct_trace = MSP_GCT_TRACE;
	c->tv_size = 8;
	c->tv_shift = l->gc64 ? 47 : -1;
	c->tv_func = ~MSP_GCT_FUNC;
	c->cframe_flags = 3;
	c->ff_c = 1;
	c->bc_size = 4;
	c->bc_funcc = l->bc_funccw - 1;
	c->frame_typep = 7;
	c->frame_type = 3;
	c->frame_lua = MSP_FT_LUA;
	c->frame_c = MSP_FT_C;
	c->frame_cont = MSP_FT_CONT;
	c->frame_varg = MSP_FT_VARG;
	c->frame_cp = MSP_FT_CPCALL;
	c->frame_pcall = MSP_FT_PCALL;
	c->frame_pcallh = MSP_FT_PCALLH;
	c->T_nsnapmap_size = c->snap_mapofs_size = !l->jit ? -1 : l->snap_size == 8 ? 2 : 4;
	c->mcode_unit = !l->jit ? -1 : l->arch == MSP_ARCH_ARM64 ? 4 : 1;
	c->ir_bias = l->jit ? 0x8000 : -1;
}

void msp_lj_descriptor_constants(const struct msp_lj_build *build, struct ljvm_constants *c)
{
	const struct msp_lj_layout *l = &build->layout;

	memset(c, 0xff, sizeof(*c)); /* -1 */
#define _(name) c->name = value(build, MSP_LJ_FIELD_##name);
	MSP_LJ_DESCRIPTOR_SAME(_)
#undef _
#define _(field, name) c->name = value(build, MSP_LJ_FIELD_##field);
	MSP_LJ_DESCRIPTOR_RENAMED(_)
#undef _
	c->ffi = msp_lj_build_ffi(build);
	c->version = version_number(msp_lj_build_version(build));
	c->dispatch_entries = (int32_t)build->handler_count +
			      l->bc_funcf; /* those in use, and those behind them */
	c->g_gc_root = build->g_gcroot;
	fill_registers(c, l);
	fill_invariants(c, l);
}

/* ---- Names ---- */

static const char gc_names[] = "pause\0propagate\0atomic\0sweepstring\0sweep\0finalize\0";

static const char *vmstate_names(const struct msp_lj_layout *l)
{
	switch (l->vmstate_gc) {
	case 2:
		return "INTERP\0C\0GC\0EXIT\0RECORD\0OPT\0ASM\0";
	case 4:
		return "INTERP\0LFUNC\0FFUNC\0CFUNC\0GC\0EXIT\0RECORD\0OPT\0ASM\0";
	default:
		return NULL;
	}
}

/* Appends a text to a list; false: there is no room for it and the end. */
static bool append(char *list, size_t room, size_t *used, const char *text)
{
	size_t size = strlen(text) + 1;

	if (size >= room - *used)
		return false;
	memcpy(list + *used, text, size);
	*used += size;
	list[*used] = 0;
	return true;
}

/*
 * As LuaJIT itself spells them: string.gsub is string_gsub, the read of a file io_method_read. Of the metamethods of ffi
 * it is not known which of its tables they are of, and the functions of jit.util and jit.profile have only their own names.
 */
static const char *spell(const char *name, char *to, size_t room)
{
	const char *method = strchr(name, ':');
	int before = method ? (int)(method - name) : 0;

	if (method)
		snprintf(to, room, "%.*s_%s%s", before, name,
			 !strncmp(name, "io:", 3) ? "method_" : "", method + 1);
	else
		snprintf(to, room, "%s", name);
	for (char *dot = to; (dot = strchr(dot, '.'));)
		*dot = '_';
	return to;
}

/* One that was not found ends the list: the rest has no index. */
static void fill_ff_names(const struct msp_lj_build *build, char *list, size_t room)
{
	char text[96];
	size_t used = 0;
	const char *name;

	append(list, room, &used, "Lua");
	append(list, room, &used, "C");
	for (uint32_t i = 2; (name = msp_lj_build_ff_name(build, i)) && *name; i++)
		if (!append(list, room, &used, spell(name, text, sizeof(text))))
			break;
}

/* NULL: a generation of bytecode that is not known. */
static const char *fill_bc_names(const struct msp_lj_layout *l, char *list, size_t room)
{
	static const char *const common[] = {
#define _(name, mode, jump) #name,
		MSP_BC_COMMON(_) MSP_BC_BITOPS(_)
#undef _
	};
	static const char *const headers[] = {"FUNCF",	"IFUNCF", "JFUNCF", "FUNCV",
					      "IFUNCV", "JFUNCV", "FUNCC",  "FUNCCW"};
	const struct msp_bc_set *set = msp_bc_set_find(l);
	size_t used = 0;

	if (!set)
		return NULL;
	for (unsigned int op = 0; op < l->bc_funcf; op++)
		append(list, room, &used, common[set->op[op]]);
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		append(list, room, &used, headers[i]);
	return list;
}

static void fill_trace_errors(char *list, size_t room)
{
	size_t used = 0;
	const char *text;

	for (uint32_t i = 0; (text = msp_lj_reason_text(i)); i++)
		if (!append(list, room, &used, text))
			break;
}

void msp_lj_descriptor_names(const struct msp_lj_build *build, struct msp_lj_descriptor_text *text,
			     struct ljvm_addresses *out)
{
	const struct msp_lj_layout *l = &build->layout;
	const char *version = msp_lj_build_version(build);

	fill_ff_names(build, text->ff, sizeof(text->ff));
	if (l->jit)
		fill_trace_errors(text->trace_errors, sizeof(text->trace_errors));
	snprintf(text->version, sizeof(text->version), "%s", version ? version : "");
	out->ff_names = text->ff;
	out->vmstate_names = vmstate_names(l);
	out->gc_names = gc_names;
	out->trace_errors = l->jit ? text->trace_errors : NULL;
	out->version = version ? text->version : NULL;
	out->bc_names = fill_bc_names(l, text->bc, sizeof(text->bc));
}
