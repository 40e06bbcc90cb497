/* SPDX-License-Identifier: MIT */
#include "luajit/fields.h"

#include <stddef.h>
#include <string.h>

enum { KIND_uint8_t, KIND_uint32_t, KIND_int32_t };

static const struct {
	const char *name;
	uint16_t offset;
	uint8_t kind;
	uint8_t needed;
} fields[MSP_LJ_FIELD_COUNT] = {
#define _(name, type, needed) {#name, offsetof(struct msp_lj_layout, name), KIND_##type, needed},
	MSP_LJ_FIELDS(_)
#undef _
};

const char *msp_lj_field_name(enum msp_lj_field field)
{
	return fields[field].name;
}

int64_t msp_lj_field_get(const struct msp_lj_layout *layout, enum msp_lj_field field)
{
	const char *at = (const char *)layout + fields[field].offset;
	uint32_t u;
	int32_t i;

	switch (fields[field].kind) {
	case KIND_uint8_t:
		return *(const uint8_t *)at;
	case KIND_uint32_t:
		memcpy(&u, at, sizeof(u));
		return u;
	default:
		memcpy(&i, at, sizeof(i));
		return i;
	}
}

void msp_lj_field_set(struct msp_lj_layout *layout, enum msp_lj_field field, int64_t value)
{
	char *at = (char *)layout + fields[field].offset;
	uint32_t bits = (uint32_t)value;

	if (fields[field].kind == KIND_uint8_t)
		*(uint8_t *)at = (uint8_t)value;
	else
		memcpy(at, &bits, sizeof(bits));
}

bool msp_lj_field_needed(const struct msp_lj_layout *layout, enum msp_lj_field field)
{
	return fields[field].needed == 1 || layout->jit;
}
