/* SPDX-License-Identifier: MIT */
/*
 * The descriptor itself. Constants and addresses have the size 0 until a LuaJIT is proved; what is not known of it, says
 * -1 or 0. Helpers are there from the beginning: they serve descriptors of other processes too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "companion/helpers.h"
#include "luajit/build.h"
#include "luajit/bytecode.h"
#include "luajit/descriptor_fields.h"
#include "luajit/jit.h"
#include "target/own.h"

struct companion_whole companion_descriptor = {
	.head = {.magic = {'L', 'u', 'a', 'J', 'I', 'T', 'v', 'm'},
		 .major = LJVM_MAJOR,
		 .minor = LJVM_MINOR,
		 .size = sizeof(struct companion_whole),
		 .pointer_size = sizeof(void *),
		 .flags = LJVM_FLAG_OUTSIDE | LJVM_FLAG_LIVE_PARTIAL,
		 .constants = {offsetof(struct companion_whole, constants), 0},
		 .addresses = {offsetof(struct companion_whole, addresses), 0},
		 .helpers = {offsetof(struct companion_whole, helpers),
			     sizeof(struct ljvm_helpers)}},
	.helpers = {.read_self = companion_read_self,
		    .vm = companion_vm,
		    .owner = companion_owner,
		    .context = companion_context,
		    .frame_first = companion_frame_first,
		    .frame_next = companion_frame_next,
		    .function = companion_function,
		    .trace = companion_trace,
		    .cframe = companion_cframe},
};

/* Whoever wins if another library has that name, here is this one. */
extern struct companion_whole LJVM_SYMBOL
	__attribute__((alias("companion_descriptor"), visibility("default")));

__asm__(".pushsection .note.luajit, \"a\", %note\n"
	".balign 4\n"
	".4byte 992f - 991f, 994f - 993f, 1\n"
	"991: .asciz \"LuaJIT\"\n"
	"992: .balign 4\n"
	"993: .8byte companion_descriptor - 993b\n"
	"994: .balign 4\n"
	".popsection\n");

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
	c->frame_lua = 0;
	c->frame_type = 3;
	c->frame_c = 1;
	c->frame_cont = 2;
	c->frame_varg = 3;
	c->frame_cp = 5;
	c->frame_pcall = 6;
	c->frame_pcallh = 7;
	c->T_nsnapmap_size = c->snap_mapofs_size = !l->jit ? -1 : l->snap_size == 8 ? 2 : 4;
	c->mcode_unit = !l->jit ? -1 : l->arch == MSP_ARCH_ARM64 ? 4 : 1;
	c->ir_bias = l->jit ? 0x8000 : -1;
}

static void fill_constants(struct ljvm_constants *c, const struct msp_lj_build *build)
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

static char version_text[64], ff_names[12288], trace_errors[4096], bc_names[1024];
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
static void fill_ff_names(const struct msp_lj_build *build)
{
	char text[96];
	size_t used = 0;
	const char *name;

	append(ff_names, sizeof(ff_names), &used, "Lua");
	append(ff_names, sizeof(ff_names), &used, "C");
	for (uint32_t i = 2; (name = msp_lj_build_ff_name(build, i)) && *name; i++)
		if (!append(ff_names, sizeof(ff_names), &used, spell(name, text, sizeof(text))))
			break;
}

/* NULL: a generation of bytecode that is not known. */
static const char *fill_bc_names(const struct msp_lj_layout *l)
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
		append(bc_names, sizeof(bc_names), &used, common[set->op[op]]);
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		append(bc_names, sizeof(bc_names), &used, headers[i]);
	return bc_names;
}

static void fill_trace_errors(void)
{
	size_t used = 0;
	const char *text;

	for (uint32_t i = 0; (text = msp_lj_reason_text(i)); i++)
		if (!append(trace_errors, sizeof(trace_errors), &used, text))
			break;
}

static struct ljvm_addresses addresses_of(const struct companion_found *found)
{
	const struct msp_lj_layout *l = &found->build->layout;
	const char *version = msp_lj_build_version(found->build);

	fill_ff_names(found->build);
	if (l->jit)
		fill_trace_errors();
	snprintf(version_text, sizeof(version_text), "%s", version ? version : "");
	return (struct ljvm_addresses){
		.vm_code = (const void *)(uintptr_t)(found->base + l->vm_start),
		.vm_code_end = (const void *)(uintptr_t)(found->base + l->vm_end),
		.ff_names = ff_names,
		.vmstate_names = vmstate_names(l),
		.gc_names = gc_names,
		.trace_errors = l->jit ? trace_errors : NULL,
		.version = version ? version_text : NULL,
		.bc_names = fill_bc_names(l),
		.live = companion_live(),
	};
}

/* ---- Filling and using it ---- */

static void publish(struct ljvm_part *part, uint32_t size)
{
	__atomic_store_n(&part->size, size, __ATOMIC_RELEASE);
}

void companion_fill(const struct companion_found *found)
{
	struct companion_whole *d = &companion_descriptor;

	fill_constants(&d->constants, found->build);
	d->addresses = addresses_of(found);
	publish(&d->head.addresses, sizeof(d->addresses));
	publish(&d->head.constants, sizeof(d->constants));
}

bool companion_ready(void)
{
	return __atomic_load_n(&companion_descriptor.head.constants.size, __ATOMIC_ACQUIRE) != 0;
}

const struct ljvm_constants *companion_constants(void)
{
	return &companion_descriptor.constants;
}

const struct ljvm_addresses *companion_addresses(void)
{
	return &companion_descriptor.addresses;
}

bool companion_is_needless(void)
{
	const void *first = dlsym(RTLD_DEFAULT, "luaJIT_vm_descriptor");
	const void *next = dlsym(RTLD_NEXT, "luaJIT_vm_descriptor");

	dlerror(); /* there mostly is none, which is no error of the program's */
	return next || (first && first != &companion_descriptor);
}

bool companion_read(void *to, uint64_t address, size_t size)
{
	int kept = errno;
	bool done = own_read((uint32_t)getpid(), to, address, size);

	errno = kept;
	return done;
}

uint64_t companion_ref(uint64_t address)
{
	uint64_t value = 0;

	return companion_read(&value, address, companion_descriptor.constants.gc64 ? 8 : 4) ? value
											    : 0;
}

uint64_t companion_word(uint64_t address)
{
	uint64_t value = 0;

	return companion_read(&value, address, sizeof(value)) ? value : 0;
}

uint64_t companion_vm_of(uint64_t L)
{
	const struct ljvm_constants *c = companion_constants();
	const struct ljvm_addresses *a = &companion_descriptor.addresses;
	uint64_t g = companion_ref(L + (uint64_t)c->L_glref), main_l, entry;

	if (!g)
		return 0;
	main_l = companion_ref(g + (uint64_t)c->g_mainthref);
	entry = companion_word(g + (uint64_t)(int64_t)c->g_dispatch);
	if (!main_l || companion_ref(main_l + (uint64_t)c->L_glref) != g ||
	    entry < (uintptr_t)a->vm_code || entry >= (uintptr_t)a->vm_code_end)
		return 0;
	return g;
}
