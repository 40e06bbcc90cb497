/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Objects of a LuaJIT (lj_obj.h) at the offsets of a layout, and the words of a Lua stack. Part of lua.h. */
#ifndef MSP_UNWIND_OBJECT_H
#define MSP_UNWIND_OBJECT_H

#define MSP_CONT_FFI_CALLBACK 1

/* Bytes between two frames: a Lua stack has at most 65,500 slots and some (LUAI_MAXSTACK, luaconf.h). */
#define MSP_MAX_DISTANCE (1u << 20)

#define MSP_TAG_FUNC (-9)  /* ~LJ_TFUNC = ~8 as the upper 17 bits of a GC64 TValue */
#define MSP_TAG_THREAD (-7)
#define MSP_TAGS_32 0xfff00000u /* without GC64: the upper half of a slot from there on is no link */
#define MSP_GCV_MASK ((1ull << 47) - 1)

#define MSP_OBJ_READ 96 /* covers lua_State and GCfunc of every build */
#define MSP_MAX_PROTO 124

/* The object in w->buf, at offsets that come from a layout. */
static MSP_INLINE uint64_t obj_u64(const struct msp_walk *w, int32_t ofs)
{
	return *(const uint64_t *)(w->buf + ((uint32_t)ofs & 0xfc));
}

static MSP_INLINE uint32_t obj_u32(const struct msp_walk *w, int32_t ofs)
{
	return *(const uint32_t *)(w->buf + ((uint32_t)ofs & 0xfc));
}

static MSP_INLINE uint32_t obj_u16(const struct msp_walk *w, int32_t ofs)
{
	return obj_u32(w, ofs) >> ((uint32_t)ofs & 2) * 8 & 0xffff;
}

static MSP_INLINE uint8_t obj_u8(const struct msp_walk *w, int32_t ofs)
{
	return w->buf[(uint32_t)ofs & 0xff];
}

/* An object reference (GCRef, MRef): 8 bytes with GC64, else 4. */
static MSP_INLINE uint64_t obj_ref(const struct msp_walk *w, const struct msp_lj_layout *y, int32_t ofs)
{
	return y->gc64 ? obj_u64(w, ofs) : obj_u32(w, ofs);
}

static MSP_INLINE int read_ref(struct msp_walk *w, const struct msp_lj_layout *y, uint64_t addr,
	uint64_t *value)
{
	uint32_t v32 = 0;

	if (y->gc64)
		return host_read(w, value, 8, addr);
	if (host_read(w, &v32, 4, addr))
		return -1;
	*value = v32;
	return 0;
}

/* Slots that a frame's function and link take below its base. */
static MSP_INLINE uint32_t frame_head(const struct msp_lj_layout *y)
{
	return y->fr2 ? 16 : 8;
}

#endif
