/* SPDX-License-Identifier: MIT */
/* From an address space into the BPF maps: what all that feed the kernel host do. */
#include <stdlib.h>

#include "bpf/tables.h"
#include "moonspy/moonspy.h"

static int send_image(struct msp_tables *t, const struct msp_image_entry *e)
{
	int err = 0;

	if (e->layout != MSP_LAYOUT_NONE)
		err = msp_tables_set_layout(t, e->layout, msp_lj_build_layout(e->build));
	return err ? err : msp_tables_add_image(t, e->index, e->table, e->layout);
}

/* The images of these mappings that the kernel does not have yet. */
static int send_images(struct msp_tables *t, const struct msp_images *images,
		       const struct msp_mapping *map, uint32_t count)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < count; i++)
		if (map[i].image && !msp_tables_has_image(t, map[i].image))
			err = send_image(t, msp_images_get(images, map[i].image));
	return err;
}

/* File mappings only: what else is executable is compiled code, or unknown. */
static struct msp_mapping *file_mappings(const struct msp_space *space, uint32_t *count)
{
	size_t n, to = 0;
	const struct msp_mapping *map = msp_space_mappings(space, &n);
	struct msp_mapping *out = calloc(n + 1, sizeof(*out));

	for (size_t i = 0; out && i < n; i++)
		if (map[i].flags & (MSP_MAP_FILE | MSP_MAP_UNREAD))
			out[to++] = map[i];
	*count = to;
	return out;
}

size_t msp_tables_builds(const struct msp_space *space, struct msp_bpf_process *process)
{
	struct msp_host_vm vm[MSP_MAX_HOST_VMS];
	size_t vms = 0;

	process->build_count = (uint32_t)msp_space_host_vms(space, vm);
	for (uint32_t i = 0; i < process->build_count; i++) {
		process->build[i].layout = vm[i].layout;
		process->build[i].vm_base = vm[i].base;
		process->build[i].g = vm[i].g;
		vms += vm[i].g != 0;
	}
	return vms;
}

int msp_tables_send(struct msp_tables *t, const struct msp_space *space, pid_t pid)
{
	struct msp_bpf_process process = {0};
	uint32_t count;
	struct msp_mapping *map = file_mappings(space, &count);
	int err;

	if (!map)
		return MSP_E_NOMEM;
	err = send_images(t, msp_space_images(space), map, count);
	msp_tables_builds(space, &process);
	if (err)
		msp_tables_forget_mappings(t, pid);
	else
		err = msp_tables_set_process(t, pid, map, count, &process);
	free(map);
	return err;
}
