/* SPDX-License-Identifier: MIT */
/*
 * Fields that no code was read for: they have been the same in all builds of a
 * layout generation. A generation is a table; which one applies is decided by
 * what the code showed. The proof checks each of them on live objects.
 */
#include "luajit/build.h"

#define F(name) MSP_LJ_FIELD_##name

struct constant_field {
	uint8_t field;
	int16_t value;
};

struct generation {
	const char *why;
	bool (*applies)(const struct msp_lj_build *build);
	const struct constant_field *field;
	unsigned int count;
};

/* lj_obj.h with LJ_GC64: GCHeader, lua_State, GCproto. */
static const struct constant_field gc64_objects[] = {
	{F(gc_gct), 9},	       {F(L_status), 11},     {F(L_glref), 16},	     {F(L_base), 32},
	{F(L_top), 40},	       {F(L_maxstack), 48},   {F(L_stack), 56},	     {F(L_cframe), 80},
	{F(L_stacksize), 88},  {F(fn_ffid), 10},      {F(fn_pc), 32},	     {F(fn_cfunc), 40},
	{F(pt_size), 104},     {F(pt_numparams), 10}, {F(pt_framesize), 11}, {F(pt_sizebc), 12},
	{F(pt_k), 32},	       {F(pt_sizekgc), 48},   {F(pt_sizekn), 52},    {F(pt_sizept), 56},
	{F(pt_sizeuv), 60},    {F(pt_flags), 61},     {F(pt_trace), 62},     {F(pt_chunkname), 64},
	{F(pt_firstline), 72}, {F(pt_numline), 76},   {F(pt_lineinfo), 80},  {F(pt_uvinfo), 88},
	{F(pt_varinfo), 96},
};

/* The same without GC64. */
static const struct constant_field gc32_objects[] = {
	{F(gc_gct), 5},	       {F(L_status), 7},     {F(L_glref), 8},	   {F(L_base), 16},
	{F(L_top), 24},	       {F(L_maxstack), 32},  {F(L_stack), 36},	   {F(L_cframe), 48},
	{F(L_stacksize), 56},  {F(fn_ffid), 6},	     {F(fn_pc), 16},	   {F(fn_cfunc), 24},
	{F(pt_size), 64},      {F(pt_numparams), 6}, {F(pt_framesize), 7}, {F(pt_sizebc), 8},
	{F(pt_k), 16},	       {F(pt_sizekgc), 24},  {F(pt_sizekn), 28},   {F(pt_sizept), 32},
	{F(pt_sizeuv), 36},    {F(pt_flags), 37},    {F(pt_trace), 38},	   {F(pt_chunkname), 40},
	{F(pt_firstline), 44}, {F(pt_numline), 48},  {F(pt_lineinfo), 52}, {F(pt_uvinfo), 56},
	{F(pt_varinfo), 60},
};

/* lj_obj.h: strings have a number of their own since 2020. */
static const struct constant_field gc64_strings[] = {{F(str_len), 20}, {F(str_data), 24}};
static const struct constant_field gc32_strings[] = {{F(str_len), 16}, {F(str_data), 20}};

/* lj_jit.h: what has not changed. */
static const struct constant_field gc64_traces[] = {
	{F(T_nins), 12},    {F(T_ir), 32},	{F(T_nk), 40},	      {F(T_snap), 48},
	{F(T_snapmap), 56}, {F(T_startpt), 64}, {F(T_startpc), 72},   {F(T_szmcode), 84},
	{F(T_mcode), 88},   {F(T_mcloop), 96},	{F(T_spadjust), 102}, {F(T_traceno), 104},
	{F(T_link), 106},   {F(T_root), 108},
};
static const struct constant_field gc32_traces[] = {
	{F(T_nins), 8},	    {F(T_ir), 16},	{F(T_nk), 24},	     {F(T_snap), 32},
	{F(T_snapmap), 40}, {F(T_startpt), 48}, {F(T_startpc), 52},  {F(T_szmcode), 60},
	{F(T_mcode), 64},   {F(T_mcloop), 72},	{F(T_spadjust), 78}, {F(T_traceno), 80},
	{F(T_link), 82},    {F(T_root), 84},
};

/* Where traces have their number of snapshots, before and since January 2019. */
static const struct constant_field gc64_snaps_2015[] = {
	{F(T_nsnap), 44}, {F(T_nsnapmap), 46}, {F(T_linktype), 11}};
static const struct constant_field gc64_snaps_2019[] = {
	{F(T_nsnap), 10}, {F(T_nsnapmap), 44}, {F(T_linktype), 116}};
static const struct constant_field gc32_snaps_2015[] = {
	{F(T_nsnap), 28}, {F(T_nsnapmap), 30}, {F(T_linktype), 7}};
static const struct constant_field gc32_snaps_2019[] = {
	{F(T_nsnap), 6}, {F(T_nsnapmap), 28}, {F(T_linktype), 92}};

/* A snapshot: until January 2019, until March 2021, since then. */
static const struct constant_field snap_2015[] = {{F(snap_size), 8},   {F(snap_mapofs), 0},
						  {F(snap_ref), 2},    {F(snap_mcofs), -1},
						  {F(snap_nslots), 4}, {F(snap_nent), 6}};
static const struct constant_field snap_2019[] = {{F(snap_size), 12},  {F(snap_mapofs), 0},
						  {F(snap_ref), 4},    {F(snap_mcofs), -1},
						  {F(snap_nslots), 6}, {F(snap_nent), 8}};
static const struct constant_field snap_2021[] = {{F(snap_size), 12},  {F(snap_mapofs), 0},
						  {F(snap_ref), 4},    {F(snap_mcofs), 6},
						  {F(snap_nslots), 8}, {F(snap_nent), 10}};

static bool is_gc64(const struct msp_lj_build *build)
{
	return build->layout.gc64;
}

static bool is_gc32(const struct msp_lj_build *build)
{
	return !build->layout.gc64;
}

static bool is_gc64_jit(const struct msp_lj_build *build)
{
	return build->layout.gc64 && build->layout.jit;
}

static bool is_gc32_jit(const struct msp_lj_build *build)
{
	return !build->layout.gc64 && build->layout.jit;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Does the code agree with all of those fields that it was read for, and with one at least? */
static bool says(const struct msp_lj_build *build, const struct constant_field *field,
		 unsigned int count)
{
	bool any = false;

	if (!build->layout.jit)
		return false;
	for (unsigned int i = 0; i < count; i++) {
		if (!build->has[field[i].field])
			continue;
		if (msp_lj_field_get(&build->layout, (enum msp_lj_field)field[i].field) !=
		    field[i].value)
			return false;
		any = true;
	}
	return any;
}
#define SAYS(list) \
	static bool is_##list(const struct msp_lj_build *build) \
	{ \
		return says(build, list, COUNT(list)); \
	}
SAYS(gc64_snaps_2015)
SAYS(gc64_snaps_2019)
SAYS(gc32_snaps_2015)
SAYS(gc32_snaps_2019)
SAYS(snap_2015)
SAYS(snap_2019)
SAYS(snap_2021)

/* Strings that no exported function tells of, in a build that is not older. */
static bool is_gc64_strings(const struct msp_lj_build *build)
{
	return build->layout.gc64 && !build->has[F(str_len)] && is_snap_2021(build);
}

static bool is_gc32_strings(const struct msp_lj_build *build)
{
	return !build->layout.gc64 && !build->has[F(str_len)] && is_snap_2021(build);
}

static const struct generation generations[] = {
	{"objects of all GC64 builds", is_gc64, gc64_objects, COUNT(gc64_objects)},
	{"objects of all builds without GC64", is_gc32, gc32_objects, COUNT(gc32_objects)},
	{"traces of all GC64 builds", is_gc64_jit, gc64_traces, COUNT(gc64_traces)},
	{"traces of all builds without GC64", is_gc32_jit, gc32_traces, COUNT(gc32_traces)},
#define _(list, why) \
	{ \
		why, is_##list, list, COUNT(list) \
	}
	_(gc64_snaps_2015, "traces with that count, before 2019"),
	_(gc64_snaps_2019, "traces with that count, since 2019"),
	_(gc32_snaps_2015, "traces with that count, before 2019"),
	_(gc32_snaps_2019, "traces with that count, since 2019"),
	_(snap_2015, "snapshots with those fields, before 2019"),
	_(snap_2019, "snapshots with those fields, 2019 to 2021"),
	_(snap_2021, "snapshots with those fields, since 2021"),
	_(gc64_strings, "strings of GC64 builds since 2021"),
	_(gc32_strings, "strings of builds without GC64 since 2021"),
#undef _
};

static void apply(struct msp_lj_build *build, const struct constant_field *constant,
		  const char *why)
{
	enum msp_lj_field field = (enum msp_lj_field)constant->field;

	/* What code says needs no such support; only a contradiction is worth a line. */
	if (!build->has[field] || msp_lj_field_get(&build->layout, field) != constant->value)
		msp_lj_found(build, field, "constant", constant->value, why);
}

void msp_lj_evidence_constants(struct msp_lj_build *build)
{
	struct constant_field size = {.field = F(J_sizetrace)};

	for (unsigned int g = 0; g < COUNT(generations); g++) {
		const struct generation *gen = &generations[g];
		bool applies = gen->applies(build);

		for (unsigned int i = 0; i < gen->count && applies; i++)
			apply(build, &gen->field[i], gen->why);
	}
	/* jit_State: GCRef *trace; TraceNo freetrace; MSize sizetrace. */
	if (build->has[F(J_trace)]) {
		size.value = (int16_t)(build->layout.J_trace + 12);
		apply(build, &size, "follows the trace table in all builds");
	}
}
