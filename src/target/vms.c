/* SPDX-License-Identifier: MIT */
/* The LuaJIT VMs of a process. */
#include "target/space_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "luajit/told_vms.h"
#include "moonspy/moonspy.h"

#define TRY_AGAIN_NS 100000000ull /* one that was not proved is not asked for before that */
#define MOST_LIES 64		  /* beyond, the list of live VMs is not read on */
#define MOST_SEARCHED \
	(64ull << 30) /* bytes of a mapping: beyond, which pages are there takes minutes to ask */

static void forget_vm(struct msp_vm *vm)
{
	msp_lj_names_free(vm->names);
	msp_lj_values_free(vm->values);
	msp_lj_traces_free(vm->traces);
}

void msp_space_forget_vms(struct msp_space *space)
{
	for (size_t i = 0; i < space->vms; i++)
		forget_vm(&space->vm[i]);
	free(space->vm);
	space->vm = NULL;
	space->vms = 0;
}

static struct msp_vm *find_vm(const struct msp_space *space, uint32_t image, uint64_t g)
{
	for (size_t i = 0; i < space->vms; i++)
		if (space->vm[i].g == g && space->vm[i].image == image)
			return &space->vm[i];
	return NULL;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Sets vm->proof. */
static int prove(struct msp_space *space, struct msp_vm *vm)
{
	const struct msp_image_entry *entry = msp_images_get(space->images, vm->image);
	int r = msp_lj_prove(entry->build, space->host->memory, vm->image_base, vm->g, &vm->proof);

	vm->tried_ns = now_ns();
	if (vm->proof.heap)
		vm->gone = false;
	return r == MSP_E_NOT_PROVED ? 0 : r;
}

/* A free slot, else that of a VM that is gone. */
static struct msp_vm *free_slot(struct msp_space *space)
{
	if (!space->vm)
		space->vm = calloc(MSP_MAX_VMS, sizeof(*space->vm));
	if (!space->vm)
		return NULL;
	if (space->vms < MSP_MAX_VMS)
		return &space->vm[space->vms];
	for (size_t i = 0; i < space->vms; i++) {
		if (!space->vm[i].gone)
			continue;
		forget_vm(&space->vm[i]);
		return &space->vm[i];
	}
	return NULL;
}

static struct msp_vm *keep_vm(struct msp_space *space, const struct msp_vm *fresh)
{
	struct msp_vm *slot = free_slot(space);

	if (!slot)
		return NULL;
	*slot = *fresh;
	space->vms += slot == &space->vm[space->vms];
	return slot;
}

static struct msp_vm *add_vm(struct msp_space *space, const struct msp_image_entry *entry,
			     uint64_t base, uint64_t g)
{
	struct msp_vm *vm = find_vm(space, entry->index, g);
	struct msp_vm fresh = {
		.g = g, .image = entry->index, .layout = entry->layout, .image_base = base};

	if (vm) {
		vm->image_base = base;
		return prove(space, vm) < 0 ? NULL : vm;
	}
	return prove(space, &fresh) < 0 ? NULL : keep_vm(space, &fresh);
}

/* One build, mapped at base, looked for in memory. */
struct search {
	struct msp_space *space;
	const struct msp_image_entry *entry;
	uint64_t base;
	int result;
	unsigned int lies; /* of the list of live VMs: what is no VM */
};

static void scan_run(void *arg, uint64_t start, uint64_t end)
{
	struct search *search = arg;
	const struct msp_memory *mem = search->space->host->memory;
	uint64_t g[64];
	int n;

	n = msp_lj_scan(search->entry->build, mem, search->base, start, end, g, 64);
	if (n < 0 && search->result == 0)
		search->result = n;
	for (int i = 0; i < n; i++)
		add_vm(search->space, search->entry, search->base, g[i]);
}

static bool holds_objects(const struct msp_map *map)
{
	int rw = PROT_READ | PROT_WRITE;

	return (map->prot & rw) == rw && !map->inode && strcmp(map->name, "[stack]") != 0;
}

/*
 * Mappings of terabytes, of which next to nothing is there, are the shadows of sanitizers and the
 * pools of databases. The search finds no VM in one.
 */
static bool is_searched(const struct msp_map *map)
{
	return holds_objects(map) && map->end - map->start <= MOST_SEARCHED;
}

static void search_memory(struct search *search)
{
	const struct msp_host *host = search->space->host;
	const struct msp_maps *maps = &search->space->maps;

	for (size_t i = 0; i < maps->count; i++)
		if (is_searched(&maps->map[i]))
			host->present(host->ctx, maps->map[i].start, maps->map[i].end, scan_run,
				      search);
}

static uint64_t descriptor_at(const struct msp_image_entry *entry, uint64_t base)
{
	uint64_t descriptor = msp_lj_build_descriptor(entry->build);

	return descriptor ? base + descriptor : 0;
}

/* What is in the list, and proved. */
static bool add_told(void *arg, const struct msp_lj_told_vm *told)
{
	struct search *search = arg;
	struct msp_vm *vm = find_vm(search->space, search->entry->index, told->g);
	struct msp_vm fresh = {.g = told->g,
			       .image = search->entry->index,
			       .layout = search->entry->layout,
			       .image_base = search->base};

	if (vm && vm->image_base != search->base) { /* the library was loaded anew */
		vm->image_base = search->base;
		prove(search->space, vm);
	} else if (!vm && prove(search->space, &fresh) >= 0 && fresh.proof.heap) {
		vm = keep_vm(search->space, &fresh);
		if (!vm)
			return false; /* no more are kept */
	}
	if (vm && vm->proof.heap)
		vm->listed = true;
	else
		search->lies++;
	return search->lies < MOST_LIES;
}

/* False: there may be more VMs than the list has, or it has none. */
static bool read_list(struct search *search)
{
	uint64_t descriptor = descriptor_at(search->entry, search->base);

	search->lies = 0;
	return msp_lj_told_each(search->space->host->memory, descriptor, add_told, search) &&
	       !search->lies;
}

/* Proves all again. A VM that is no more keeps its slot: somebody may still name what it did. */
static void prove_again(struct msp_space *space)
{
	for (size_t i = 0; i < space->vms; i++) {
		struct msp_vm *vm = &space->vm[i];
		bool was = vm->proof.heap;

		vm->listed = false;
		if (prove(space, vm) < 0)
			vm->proof.heap = vm->proof.proved = false;
		vm->gone = !vm->proof.heap && (was || vm->gone);
	}
}

/* What only looks a little like a VM is of no interest beside a proved VM of that build. */
static void drop_debris(struct msp_space *space)
{
	for (size_t i = 0; i < space->vms; i++) {
		struct msp_vm *vm = &space->vm[i];

		if (vm->proof.heap ||
		    vm->proof.check[MSP_LJ_CHECK_MAINTHREF].result != MSP_LJ_FAILED)
			continue;
		for (size_t j = 0; j < space->vms; j++)
			vm->gone |= space->vm[j].image == vm->image && space->vm[j].proof.heap;
	}
}

int msp_space_find_vms(struct msp_space *space)
{
	struct search search = {.space = space};
	uint64_t base[MSP_MAX_BASES];
	size_t bases;

	prove_again(space);
	for (uint32_t i = 1; i < MSP_LAYOUT_SLOTS; i++) {
		search.entry = msp_images_by_layout(space->images, i);
		if (!search.entry)
			continue;
		bases = msp_space_image_bases(space, search.entry->index, base);
		for (size_t k = 0; k < bases; k++) {
			search.base = base[k];
			if (!read_list(&search))
				search_memory(&search);
		}
	}
	drop_debris(space);
	return space->vms || search.result == 0 ? (int)space->vms : search.result;
}

const struct msp_vm *msp_space_vms(const struct msp_space *space, size_t *count)
{
	*count = space->vms;
	return space->vm;
}

/* Which of the places that the build is mapped at the VM's code is in: its first dispatch entry tells. */
static bool base_of_vm(const struct msp_space *space, const struct msp_image_entry *entry,
		       uint64_t g, uint64_t *out)
{
	const struct msp_lj_layout *l = msp_lj_build_layout(entry->build);
	uint64_t base[MSP_MAX_BASES], code = 0;
	size_t n = msp_space_image_bases(space, entry->index, base);

	if (n > 1 && msp_read(space->host->memory, g + (uint64_t)(int64_t)l->dispatch_to_g, &code,
			      sizeof(code)) != 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (n > 1 && (code < base[i] + l->vm_start || code >= base[i] + l->vm_end))
			continue;
		*out = base[i];
		return true;
	}
	return false;
}

const struct msp_vm *msp_space_vm_at(struct msp_space *space, uint32_t layout, uint64_t g)
{
	const struct msp_image_entry *entry = msp_images_by_layout(space->images, layout);
	struct msp_vm *vm;
	uint64_t base;

	if (!entry)
		return NULL;
	vm = find_vm(space, entry->index, g);
	if (vm && vm->proof.heap)
		return vm;
	if (vm && now_ns() - vm->tried_ns < TRY_AGAIN_NS)
		return NULL;
	if (!base_of_vm(space, entry, g, &base))
		return NULL;
	vm = add_vm(space, entry, base, g);
	if (!vm)
		return NULL;
	vm->gone = !vm->proof.heap;
	return vm->gone ? NULL : vm;
}

const struct msp_vm *msp_space_vm_known(const struct msp_space *space, uint64_t g)
{
	for (size_t i = 0; i < space->vms; i++)
		if (space->vm[i].g == g && space->vm[i].proof.heap)
			return &space->vm[i];
	return NULL;
}

const struct msp_vm *msp_space_vm_told(struct msp_space *space, uint64_t g)
{
	const struct msp_image_entry *entry;
	const struct msp_vm *vm = msp_space_vm_known(space, g);
	uint64_t base[MSP_MAX_BASES];

	for (uint32_t i = 1; !vm && i < MSP_LAYOUT_SLOTS; i++) {
		entry = msp_images_by_layout(space->images, i);
		if (entry && msp_space_image_bases(space, entry->index, base))
			vm = msp_space_vm_at(space, i, g);
	}
	return vm;
}

void msp_space_vm_closed(struct msp_space *space, uint64_t g)
{
	for (size_t i = 0; i < space->vms; i++) {
		struct msp_vm *vm = &space->vm[i];

		if (vm->g != g)
			continue;
		vm->gone |= vm->proof.heap;
		vm->proof.heap = vm->proof.proved = false;
		vm->tried_ns = 0;
	}
}

static const struct msp_image_entry *entry_of(const struct msp_space *space,
					      const struct msp_mapping *map)
{
	const struct msp_image_entry *entry =
		map->flags & MSP_MAP_FILE ? msp_images_get(space->images, map->image) : NULL;

	return entry && entry->layout != MSP_LAYOUT_NONE ? entry : NULL;
}

static bool is_told_by_vm(const struct msp_image_entry *entry)
{
	return !msp_lj_build_layout(entry->build)->gc64;
}

/* A file that is mapped twice (dlmopen) counts twice. */
size_t msp_space_host_vms(const struct msp_space *space, struct msp_host_vm out[MSP_MAX_HOST_VMS])
{
	const struct msp_image_entry *entry;
	size_t n = 0;

	for (size_t i = 0; i < space->count && n < MSP_MAX_HOST_VMS; i++) {
		entry = entry_of(space, &space->mapping[i]);
		if (!entry || is_told_by_vm(entry) ||
		    (n && out[n - 1].base == space->mapping[i].base))
			continue;
		out[n++] = (struct msp_host_vm){entry->layout, space->mapping[i].base, 0};
	}
	for (size_t i = 0; i < space->vms && n < MSP_MAX_HOST_VMS; i++) {
		const struct msp_vm *vm = &space->vm[i];

		entry = msp_images_get(space->images, vm->image);
		if (vm->proof.proved && entry && is_told_by_vm(entry))
			out[n++] = (struct msp_host_vm){vm->layout, vm->image_base, vm->g};
	}
	return n;
}

int msp_space_find_host_vms(struct msp_space *space)
{
	const struct msp_image_entry *entry;

	for (size_t i = 0; i < space->count; i++) {
		entry = entry_of(space, &space->mapping[i]);
		if (entry && is_told_by_vm(entry))
			return msp_space_find_vms(space);
	}
	return 0;
}

/* Where functions and their names may be. A range known already is passed over. */
static void add_ranges(const struct msp_space *space, struct msp_lj_names *names)
{
	for (size_t i = 0; i < space->maps.count; i++) {
		const struct msp_map *map = &space->maps.map[i];

		if (is_searched(map) && !map->shared &&
		    msp_lj_names_add_range(names, map->start, map->end) == MSP_E_LIMIT)
			return;
	}
}

struct msp_lj_names *msp_space_vm_names(struct msp_space *space, const struct msp_vm *vm)
{
	struct msp_vm *own = &space->vm[vm - space->vm];
	const struct msp_image_entry *entry = msp_images_get(space->images, own->image);

	if (!own->names) {
		own->names = msp_lj_names_new(entry->build, space->host->memory, own->g);
		own->names_generation = 0;
	}
	if (own->names && own->names_generation != space->generation) {
		add_ranges(space, own->names);
		own->names_generation = space->generation;
	}
	return own->names;
}

struct msp_lj_values *msp_space_vm_values(struct msp_space *space, const struct msp_vm *vm)
{
	struct msp_vm *own = &space->vm[vm - space->vm];
	const struct msp_image_entry *entry = msp_images_get(space->images, own->image);

	if (!own->values)
		own->values = msp_lj_values_new(entry->build, space->host->memory, own->g);
	return own->values;
}

struct msp_lj_traces *msp_space_vm_traces(struct msp_space *space, const struct msp_vm *vm)
{
	struct msp_vm *own = &space->vm[vm - space->vm];
	const struct msp_image_entry *entry = msp_images_get(space->images, own->image);

	if (!own->traces) {
		own->traces = msp_lj_traces_new(msp_lj_build_layout(entry->build), entry->build,
						space->host->memory, own->g);
		if (own->traces)
			msp_lj_traces_set_descriptor(own->traces,
						     descriptor_at(entry, own->image_base));
	}
	return own->traces;
}
