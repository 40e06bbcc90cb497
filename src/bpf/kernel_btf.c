/* SPDX-License-Identifier: MIT */
/*
 * The few kernel types that the program uses, kept once per kernel. libbpf
 * would else read all of the kernel's BTF, 5 MB, at every start to find a
 * handful of offsets. What is kept is BTF as well: of each structure and
 * enumeration in the program's own BTF that the kernel has too, the members
 * that the program names, at the kernel's offsets.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <bpf/btf.h>

#include "bpf/internal.h"

#define NAME_SIZE 64
#define MAX_NESTED 4 /* anonymous structures within one another */

/* "task_struct___old" is the kernel's task_struct, in libbpf's way of naming. */
static const char *kernel_name(const char *name, char buf[NAME_SIZE])
{
	const char *end = strstr(name, "___");

	snprintf(buf, NAME_SIZE, "%.*s", (int)(end ? end - name : (ptrdiff_t)strlen(name)), name);
	return buf;
}

/* Offset in bits and type of a member, also in anonymous structures. */
static bool find_member(const struct btf *kernel, const struct btf_type *type, const char *name,
			int nested, uint32_t *offset, const struct btf_type **found)
{
	const struct btf_member *m = btf_members(type);
	const struct btf_type *inner;
	const char *its;
	uint32_t at;

	for (int i = 0; i < btf_vlen(type); i++) {
		its = btf__name_by_offset(kernel, m[i].name_off);
		inner = btf__type_by_id(kernel, m[i].type);
		while (inner && (btf_is_mod(inner) || btf_is_typedef(inner)))
			inner = btf__type_by_id(kernel, inner->type);
		at = btf_member_bit_offset(type, i);
		if (its && inner && !strcmp(its, name) && !btf_member_bitfield_size(type, i)) {
			*offset = at;
			*found = inner;
			return true;
		}
		if (its && !*its && inner && btf_is_composite(inner) && nested < MAX_NESTED &&
		    find_member(kernel, inner, name, nested + 1, offset, found)) {
			*offset += at;
			return true;
		}
	}
	return false;
}

/*
 * A type like the kernel's as far as CO-RE looks: pointers, integers, structures whose members nobody
 * asks for by way of this one, and arrays of structures. Negative: something else.
 */
static int add_like(struct btf *out, const struct btf *kernel, const struct btf_type *type)
{
	char name[NAME_SIZE];
	int element, index;

	if (btf_is_ptr(type))
		return btf__add_ptr(out, 0);
	if (btf_is_struct(type))
		return btf__add_struct(out, NULL, type->size);
	if (btf_is_array(type)) {
		index = btf__add_int(out, "index", 4, 0);
		element = add_like(out, kernel, btf__type_by_id(kernel, btf_array(type)->type));
		return element < 0 ? element
				   : btf__add_array(out, index, element, btf_array(type)->nelems);
	}
	if (!btf_is_int(type))
		return -EINVAL;
	snprintf(name, sizeof(name), "int%u", type->size * 8);
	return btf__add_int(out, name, type->size, 0);
}

static int copy_struct(struct btf *out, const struct btf *kernel, const struct btf *own,
		       const struct btf_type *type)
{
	char name[NAME_SIZE];
	int id = btf__find_by_name_kind(kernel,
					kernel_name(btf__name_by_offset(own, type->name_off), name),
					BTF_KIND_STRUCT);
	const struct btf_type *theirs = id > 0 ? btf__type_by_id(kernel, id) : NULL, *found;
	struct member {
		const char *name;
		uint32_t offset;
		int type;
	} member[32];
	int count = 0, err;

	if (!theirs)
		return 0; /* one of our own */
	for (int i = 0; i < btf_vlen(type) && count < 32; i++) {
		struct member *m = &member[count];

		m->name = btf__name_by_offset(own, btf_members(type)[i].name_off);
		if (!find_member(kernel, theirs, m->name, 0, &m->offset, &found))
			continue;
		m->type = add_like(out, kernel, found);
		count += m->type > 0;
	}
	err = btf__add_struct(out, name, theirs->size);
	for (int i = 0; err >= 0 && i < count; i++)
		err = btf__add_field(out, member[i].name, member[i].type, member[i].offset, 0);
	return err < 0 ? err : 0;
}

static int copy_enum(struct btf *out, const struct btf *kernel, const struct btf *own,
		     const struct btf_type *type)
{
	char name[NAME_SIZE], value[NAME_SIZE];
	int id = btf__find_by_name_kind(
		kernel, kernel_name(btf__name_by_offset(own, type->name_off), name), BTF_KIND_ENUM);
	const struct btf_type *theirs = id > 0 ? btf__type_by_id(kernel, id) : NULL;
	const struct btf_enum *e = theirs ? btf_enum(theirs) : NULL;
	int err = theirs ? btf__add_enum(out, name, theirs->size) : 0;

	for (int i = 0; e && err >= 0 && i < btf_vlen(type); i++) {
		kernel_name(btf__name_by_offset(own, btf_enum(type)[i].name_off), value);
		for (int j = 0; err >= 0 && j < btf_vlen(theirs); j++)
			if (!strcmp(btf__name_by_offset(kernel, e[j].name_off), value))
				err = btf__add_enum_value(out, value, e[j].val);
	}
	return err < 0 ? err : 0;
}

static int copy_types(struct btf *out, const struct btf *kernel, const struct btf *own)
{
	const struct btf_type *type;
	const char *name;
	int err = 0;

	for (uint32_t id = 1; !err && id < btf__type_cnt(own); id++) {
		type = btf__type_by_id(own, id);
		name = btf__name_by_offset(own, type->name_off);
		if (!name || !*name || !strncmp(name, "msp_", 4))
			continue;
		if (btf_is_struct(type))
			err = copy_struct(out, kernel, own, type);
		else if (btf_is_enum(type))
			err = copy_enum(out, kernel, own, type);
	}
	return err;
}

/* ---- On disk ---- */

static uint32_t file_crc(const char *path, uint32_t crc)
{
	unsigned char buf[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		crc = crc32(crc, buf, n);
	if (fd >= 0)
		close(fd);
	return crc;
}

/* By the kernel (its notes hold the build id, its version the rest) and by the program that asks. */
static bool file_name(char *buf, size_t size, const char *dir)
{
	uint32_t kernel = file_crc("/sys/kernel/notes", file_crc("/proc/version", 0));
	size_t length;
	const void *data = sampler_bpf__elf_bytes(&length);

	return kernel && snprintf(buf, size, "%s/kernel-%08x-%08x.btf", dir, kernel,
				  (uint32_t)crc32(0, data, length)) < (int)size;
}

/* A directory or file that only we can write. */
static bool is_ours(const char *path, mode_t kind)
{
	struct stat st;

	return !lstat(path, &st) && (st.st_mode & S_IFMT) == kind && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

static bool write_file(const char *path, const void *data, uint32_t size)
{
	char temporary[4200];
	bool written;
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write(fd, data, size) == (ssize_t)size;
	written = !close(fd) && written && !rename(temporary, path);
	if (!written)
		unlink(temporary);
	return written;
}

static bool make_file(const char *path)
{
	struct sampler_bpf *skel = sampler_bpf__open();
	struct btf *kernel = btf__load_vmlinux_btf(), *out = btf__new_empty();
	const struct btf *own = skel ? bpf_object__btf(skel->obj) : NULL;
	const void *data = NULL;
	uint32_t size = 0;
	bool made;

	if (kernel && out && own && !copy_types(out, kernel, own))
		data = btf__raw_data(out, &size);
	made = data && write_file(path, data, size);
	btf__free(kernel);
	btf__free(out);
	sampler_bpf__destroy(skel);
	return made;
}

bool sampler_kernel_btf(const char *dir, char *path, size_t size)
{
	if (!dir || !is_ours(dir, S_IFDIR) || !file_name(path, size, dir))
		return false;
	return is_ours(path, S_IFREG) || make_file(path);
}
