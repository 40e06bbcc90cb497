/* SPDX-License-Identifier: MIT */
/*
 * What the walker looks up in user space: how its parts are called there, and its tables. Included
 * between unwind/walk.h and unwind/walker.h by hosts, which define
 *
 *	host_find(w, pc)              the executable mapping around pc; NULL: none
 *	host_table(w, image, layout)  rows of an image, and the layout of the build in it; NULL: none
 *	host_vms(w, count)            const struct msp_host_vm *
 *	host_layout(w, index)         see unwind/walk.h
 */
#ifndef MSP_TARGET_LOOKUP_H
#define MSP_TARGET_LOOKUP_H

#define MSP_INLINE inline
typedef uint32_t __attribute__((aligned(1), may_alias)) msp_word_anywhere;
#define MSP_SUB(name) static int name(struct msp_walk *w)
#define MSP_CALL(w, name) name(w)
#define MSP_SUB_N(name) static int name(struct msp_walk *w, uint64_t n)
#define MSP_CALL_N(w, name, n) name(w, n)

static const struct msp_lj_layout *host_vm(struct msp_walk *w, uint32_t i)
{
	uint32_t count;
	const struct msp_host_vm *vm = host_vms(w, &count);

	if (i >= count)
		return NULL;
	w->layout = vm[i].layout;
	w->vm_base = vm[i].base;
	w->vm_g = vm[i].g;
	return host_layout(w, w->layout);
}

/* Only files count: code elsewhere was compiled by somebody at run time. */
MSP_SUB(find_mapping)
{
	const struct msp_mapping *map;

	if (w->look - w->map.start < w->map.end - w->map.start)
		return 0;
	map = host_find(w, w->look);
	if (map && (map->flags & (MSP_MAP_FILE | MSP_MAP_UNREAD))) {
		w->map = *map;
		return 0;
	}
	w->map.start = w->map.end = 0;
	return 1;
}

MSP_SUB(find_rule)
{
	const struct msp_unwind_table *table;
	const struct msp_row *row;

	w->image_layout = 0;
	w->rule = (struct msp_rule){0};
	if (!w->map.image)
		return MSP_ERR_NO_FILE;
	table = host_table(w, w->map.image, &w->image_layout);
	if (!table)
		return MSP_ERR_NO_TABLE;
	row = msp_unwind_row(table, w->look - w->map.base);
	if (!row || row->rule >= table->rule_count)
		return MSP_ERR_NO_RULE;
	w->rule = table->rules[row->rule];
	return w->rule.cfa_kind == MSP_CFA_NONE ? MSP_ERR_NO_RULE : MSP_ERR_NONE;
}

#endif
