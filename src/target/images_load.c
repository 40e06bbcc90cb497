/* SPDX-License-Identifier: MIT */
/* Loading images into the registry: several at once, each file once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "target/images.h"

/* Bytes in memory have no inode; what they hold tells them apart (FNV-1a). */
static struct msp_file_id bytes_id(const unsigned char *bytes, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3;
	return (struct msp_file_id){.dev = UINT64_MAX, .inode = hash, .size = size};
}

static bool request_id(const struct msp_image_request *request, struct msp_file_id *id)
{
	struct stat st;

	if (request->bytes) {
		*id = bytes_id(request->bytes, request->size);
		return true;
	}
	if (fstat(request->fd, &st) < 0)
		return false;
	*id = (struct msp_file_id){st.st_dev, st.st_ino, st.st_size, st.st_ctim.tv_sec,
				   st.st_ctim.tv_nsec};
	return true;
}

/* A request that is not answered from what is known. */
struct load {
	struct msp_image_request *request;
	struct msp_file_id id;
	struct msp_image_key key;
	struct load *same; /* an earlier one of this batch with that key */
	struct msp_image_entry *entry;
};

struct batch {
	struct msp_images *images;
	struct load *load;
	size_t count;
	atomic_size_t next;
};

/* Lays the analysed interpreter block over the rows that the file has for it. */
static void overlay_vm(struct msp_image_entry *entry)
{
	const struct msp_lj_layout *layout = msp_lj_build_layout(entry->build);
	const struct msp_lj_vm_rows *vm = msp_lj_build_vm_rows(entry->build);
	int r;

	if (!vm || !vm->row_count)
		return;
	r = msp_image_overlay(entry->image, layout->vm_start, (uint32_t)vm->end, vm->rows,
			      vm->row_count, vm->rules, vm->rule_count);
	if (r < 0)
		entry->build_error = r;
}

/*
 * Which moonspy this is. It notes the files in which it found no LuaJIT, which
 * takes long to see in a big library; another one looks again.
 */
static uint32_t this_program(void)
{
	struct stat st;
	uint64_t hash = 0xcbf29ce484222325;

	if (stat("/proc/self/exe", &st) < 0)
		return 0;
	hash = (hash ^ (uint64_t)st.st_dev) * 0x100000001b3;
	hash = (hash ^ (uint64_t)st.st_ino) * 0x100000001b3;
	hash = (hash ^ (uint64_t)st.st_size) * 0x100000001b3;
	hash = (hash ^ (uint64_t)st.st_ctim.tv_sec) * 0x100000001b3;
	hash = (hash ^ (uint64_t)st.st_ctim.tv_nsec) * 0x100000001b3;
	return (uint32_t)(hash >> 32) | 1;
}

static struct msp_image_entry *make_entry(const struct msp_images *images, struct load *load)
{
	const struct msp_image_request *request = load->request;
	struct msp_image_options opts = {.root = request->root,
					 .cache_dir = request->partial ? NULL : images->cache_dir,
					 .name = request->name};
	struct msp_image_entry *entry = calloc(1, sizeof(*entry));
	int fd = request->fd;
	uint32_t program;
	int r;

	if (!entry) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	r = request->bytes
		    ? msp_image_open_memory(request->bytes, request->size, &opts, &entry->image)
		    : msp_image_open_fd(fd, &opts, &entry->image);
	if (r < 0) {
		free(entry);
		return NULL;
	}
	entry->layout = MSP_LAYOUT_NONE;
	entry->build_error = MSP_E_NO_LUAJIT;
	if (msp_image_unwind(entry->image, &entry->table) < 0)
		entry->table = NULL;
	program = this_program();
	if (images->no_luajit || request->bytes ||
	    (program && msp_image_note(entry->image) == program))
		return entry;
	entry->build_error = msp_lj_build_find_cached(entry->image, program, &entry->build);
	if (entry->build_error == MSP_E_NO_LUAJIT)
		msp_image_set_note(entry->image, program);
	if (entry->build_error == 0)
		overlay_vm(entry);
	if (!entry->build) /* a big library's code, looked at once */
		msp_image_drop_bytes(entry->image);
	/* The overlay may have made it anew. */
	if (msp_image_unwind(entry->image, &entry->table) < 0)
		entry->table = NULL;
	return entry;
}

static void *load_some(void *arg)
{
	struct batch *batch = arg;
	size_t i;

	while ((i = atomic_fetch_add(&batch->next, 1)) < batch->count)
		if (!batch->load[i].same)
			batch->load[i].entry = make_entry(batch->images, &batch->load[i]);
	return NULL;
}

static void load_all(struct batch *batch)
{
	pthread_t thread[MSP_IMAGE_THREADS];
	unsigned int started = 0;

	while (started + 1 < batch->images->threads && started + 1 < batch->count) {
		if (pthread_create(&thread[started], NULL, load_some, batch))
			break;
		started++;
	}
	load_some(batch);
	while (started)
		pthread_join(thread[--started], NULL);
}

/* Answers from what is known, else queues the request. It owns the fd until it is queued. */
static void take_request(struct batch *batch, struct msp_image_request *request)
{
	struct msp_images *images = batch->images;
	struct load *load = &batch->load[batch->count];
	const struct msp_seen_file *seen;

	*load = (struct load){.request = request};
	if (!request_id(request, &load->id))
		goto done;
	seen = msp_images_seen(images, &load->id);
	if (seen) {
		request->entry = seen->entry;
		goto done;
	}
	if (!request->bytes && msp_image_key_fd(request->fd, &load->key) < 0) {
		msp_images_note(images, &load->id, NULL);
		goto done;
	}
	request->entry = request->bytes ? NULL : msp_images_by_key(images, &load->key);
	if (request->entry) {
		msp_images_note(images, &load->id, request->entry);
		goto done;
	}
	for (size_t i = 0; i < batch->count && !load->same; i++)
		if (request->bytes ? msp_file_same(&batch->load[i].id, &load->id)
				   : !strcmp(batch->load[i].key.text, load->key.text))
			load->same = &batch->load[i];
	batch->count++;
	if (!load->same)
		return;
done:
	if (request->fd >= 0)
		close(request->fd);
}

/* One for which there is no index is answered as if there were no image; it may be asked for again. */
static void finish_load(struct msp_images *images, struct load *load)
{
	if (load->same) {
		load->entry = load->same->entry;
	} else if (load->entry && msp_images_insert(images, load->entry) < 0) {
		msp_image_entry_free(load->entry);
		load->entry = NULL;
		return;
	}
	load->request->entry = load->entry;
	msp_images_note(images, &load->id, load->entry);
}

int msp_images_load(struct msp_images *images, struct msp_image_request *requests, size_t count)
{
	struct batch batch = {.images = images};

	batch.load = calloc(count + 1, sizeof(*batch.load));
	if (!batch.load) {
		for (size_t i = 0; i < count; i++)
			if (requests[i].fd >= 0)
				close(requests[i].fd);
		return MSP_E_NOMEM;
	}
	for (size_t i = 0; i < count; i++)
		take_request(&batch, &requests[i]);
	load_all(&batch);
	for (size_t i = 0; i < batch.count; i++)
		finish_load(images, &batch.load[i]);
	free(batch.load);
	return 0;
}

int msp_images_add_file(struct msp_images *images, int fd, const char *name,
			const struct msp_image_entry **out)
{
	struct msp_image_request request = {.fd = fd, .name = name};
	int r = msp_images_load(images, &request, 1);

	if (r < 0)
		return r;
	*out = request.entry;
	return request.entry ? 0 : MSP_E_FORMAT;
}
