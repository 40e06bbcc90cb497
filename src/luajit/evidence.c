/* SPDX-License-Identifier: MIT */
/* Gathers all evidence for a build and answers what was found. */
#include "luajit/build.h"

#include <stdlib.h>
#include <string.h>

#include "moonspy/moonspy.h"

static void record(struct msp_lj_build *build, enum msp_lj_field field, const char *source,
		   int64_t value, bool found, const char *why)
{
	for (size_t i = 0; i < build->evidence_count; i++) {
		const struct msp_lj_evidence *e = &build->evidence[i];

		/* The same habit seen in another place is no further evidence. */
		if (e->field == msp_lj_field_name(field) && e->why == why && e->value == value)
			return;
	}
	if (build->evidence_count == MSP_LJ_MAX_EVIDENCE)
		return;
	build->evidence[build->evidence_count++] = (struct msp_lj_evidence){
		.field = msp_lj_field_name(field),
		.source = source,
		.value = value,
		.found = found,
		.why = why,
	};
}

void msp_lj_found(struct msp_lj_build *build, enum msp_lj_field field, const char *source,
		  int64_t value, const char *why)
{
	record(build, field, source, value, true, why);
	if (!build->has[field]) {
		build->has[field] = true;
		msp_lj_field_set(&build->layout, field, value);
	} else if (msp_lj_field_get(&build->layout, field) != value) {
		build->conflict[field] = true;
	}
}

void msp_lj_not_found(struct msp_lj_build *build, enum msp_lj_field field, const char *source,
		      const char *why)
{
	record(build, field, source, 0, false, why);
}

/* All fields that this build needs are there, and no evidence contradicts another. */
static bool complete(struct msp_lj_build *build)
{
	bool all = true;

	for (int i = 0; i < MSP_LJ_FIELD_COUNT; i++) {
		enum msp_lj_field field = (enum msp_lj_field)i;

		if (build->conflict[field])
			all = false;
		if (!build->has[field]) {
			msp_lj_field_set(&build->layout, field, -1);
			if (msp_lj_field_needed(&build->layout, field)) {
				msp_lj_not_found(build, field, "code", "no evidence");
				all = false;
			}
		}
	}
	return all;
}

static int find(struct msp_lj_build *build)
{
	int rc = msp_lj_read_segments(build);

	if (rc == 0)
		rc = msp_code_open(build->image, &build->code);
	if (rc == 0)
		rc = msp_lj_locate_block(build);
	if (rc != 0)
		return rc;
	msp_lj_find_version(build);
	msp_lj_evidence_descriptor(build);
	msp_lj_find_refs(build);
	msp_lj_evidence_api(build);
	msp_lj_find_ff_names(build);
	msp_lj_evidence_vm(build);
	msp_lj_evidence_states(build);
	msp_lj_evidence_static(build);
	msp_lj_evidence_traces(build);
	msp_lj_evidence_constants(build);
	rc = msp_lj_analyse_block(build);
	if (rc != 0)
		return rc;
	return complete(build) ? 0 : MSP_E_NOT_PROVED;
}

int msp_lj_build_find(struct msp_image *image, struct msp_lj_build **out)
{
	struct msp_lj_build *build = calloc(1, sizeof(*build));
	int rc;

	*out = NULL;
	if (!build)
		return MSP_E_NOMEM;
	build->image = image;
	build->layout.abi = MSP_LJ_LAYOUT_ABI;
	build->layout.g_gcroot_unused = -1;
	build->g_gcroot = -1;
	rc = find(build);
	/* Only the analysis needs the disassembler and the instructions. */
	msp_code_close(build->code);
	build->code = NULL;
	free(build->insn);
	build->insn = NULL;
	build->insn_count = 0;
	if (rc == 0 || rc == MSP_E_NOT_PROVED) {
		*out = build;
		return rc;
	}
	msp_lj_build_free(build);
	/* What is not ELF for a known machine holds no LuaJIT that we could read. */
	return rc == MSP_E_NOMEM ? rc : MSP_E_NO_LUAJIT;
}

void msp_lj_build_free(struct msp_lj_build *build)
{
	if (!build)
		return;
	msp_code_close(build->code);
	free(build->insn);
	free((void *)build->rows.rows);
	free((void *)build->rows.rules);
	for (unsigned int i = 0; i < MSP_LJ_MAX_FF; i++)
		free(build->ff_name[i]);
	free(build->strings);
	free(build);
}

const struct msp_lj_layout *msp_lj_build_layout(const struct msp_lj_build *build)
{
	return &build->layout;
}

const char *msp_lj_build_version(const struct msp_lj_build *build)
{
	return build->version;
}

uint64_t msp_lj_build_descriptor(const struct msp_lj_build *build)
{
	return build->descriptor;
}

const struct msp_lj_vm_rows *msp_lj_build_vm_rows(const struct msp_lj_build *build)
{
	return &build->rows;
}

const char *msp_lj_build_ff_name(const struct msp_lj_build *build, uint32_t ffid)
{
	return ffid < MSP_LJ_MAX_FF ? build->ff_name[ffid] : NULL;
}

bool msp_lj_build_ffi(const struct msp_lj_build *build)
{
	for (unsigned int i = 0; i < MSP_LJ_MAX_FF; i++) {
		const char *name = build->ff_name[i], *dot = name ? strrchr(name, '.') : NULL;

		/* Without symbols the library's own name may not be known. */
		if (name && strcmp(dot ? dot + 1 : name, "typeof") == 0)
			return true;
	}
	return false;
}

size_t msp_lj_build_evidence(const struct msp_lj_build *build, const struct msp_lj_evidence **out)
{
	*out = build->evidence;
	return build->evidence_count;
}
