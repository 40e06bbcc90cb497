/* SPDX-License-Identifier: MIT */
/* Numbers in bytes of a target or a file: little-endian, as both this machine and all targets are, and aligned to nothing. */
#ifndef MSP_ELF_BYTES_H
#define MSP_ELF_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t msp_get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t msp_get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t msp_get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#endif
