/* SPDX-License-Identifier: MIT */
/* A LuaJIT process for the tests of names, and its prototypes. */
#ifndef NAMES_HELP_H
#define NAMES_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "luajit/names.h"
#include "moonspy/moonspy.h"
#include "unwind/ident.h"

/* As found in the luajit that the tests run. */
static struct msp_lj_layout lua_layout;

#define PROTOS_MAX 200000

struct lua {
	pid_t pid;
	int in, out; /* its standard input and output */
	struct msp_memory mem;
	uint64_t range[256][2];
	int ranges;
	struct msp_proto *proto; /* headers only */
	int protos;
	long reads;
	char text[1 << 16]; /* what it printed before "ready" */
	size_t text_len;
};

static inline int lua_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct lua *lua = ctx;
	struct iovec local = {buf, size}, remote = {(void *)(uintptr_t)addr, size};

	lua->reads++;
	if (process_vm_readv(lua->pid, &local, 1, &remote, 1, 0) == (ssize_t)size)
		return 0;
	return errno == ESRCH ? MSP_E_GONE : MSP_E_FAULT;
}

/* Keeps what it prints, up to the line "ready". False: the program ended without it. */
static inline bool lua_ready(struct lua *lua)
{
	char c;

	lua->text_len = 0;
	while (lua->text_len < sizeof(lua->text) - 1 && read(lua->out, &c, 1) == 1) {
		lua->text[lua->text_len++] = c;
		lua->text[lua->text_len] = 0;
		if (c == '\n' && lua->text_len >= 6 &&
		    !strcmp(lua->text + lua->text_len - 6, "ready\n"))
			return true;
	}
	return false;
}

/* Fills in lua_layout; returns the build, to be freed by the caller, with its image in *image. */
static inline struct msp_lj_build *lua_build(struct lua *lua, struct msp_image **image)
{
	struct msp_lj_build *build;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)lua->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(msp_image_open_fd(fd, NULL, image), 0);
	assert_int_equal(msp_lj_build_find(*image, &build), 0);
	lua_layout = *msp_lj_build_layout(build);
	return build;
}

/* Starts luajit; the arguments end with NULL. */
static inline void lua_start(struct lua *lua, const char *const *args)
{
	const char *argv[16] = {"luajit"};
	struct msp_image *image;
	int in[2], out[2];

	memset(lua, 0, sizeof(*lua));
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	for (int i = 0; i < 14 && args[i]; i++)
		argv[i + 1] = args[i];
	lua->pid = fork();
	assert_true(lua->pid >= 0);
	if (!lua->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		execvp("luajit", (char **)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	lua->in = in[1];
	lua->out = out[0];
	lua->mem = (struct msp_memory){lua_read, lua};
	assert_true(lua_ready(lua));
	msp_lj_build_free(lua_build(lua, &image));
	msp_image_close(image);
}

static inline void lua_line(struct lua *lua)
{
	assert_int_equal(write(lua->in, "\n", 1), 1);
}

static inline void lua_stop(struct lua *lua)
{
	close(lua->in);
	close(lua->out);
	kill(lua->pid, SIGKILL);
	waitpid(lua->pid, NULL, 0);
	free(lua->proto);
}

/* Writable private mappings without a file. */
static inline void lua_ranges(struct lua *lua)
{
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)lua->pid);
	f = fopen(path, "r");
	assert_non_null(f);
	lua->ranges = 0;
	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end, inode;
		char prot[8];

		if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, prot, &inode) != 4)
			continue;
		if (!inode && !memcmp(prot, "rw-p", 4) && lua->ranges < 256) {
			lua->range[lua->ranges][0] = start;
			lua->range[lua->ranges++][1] = end;
		}
	}
	fclose(f);
}

/* All prototypes in a range that look alive. */
static inline void lua_scan(struct lua *lua, uint64_t start, uint64_t end)
{
	size_t size = end - start, head = lua_layout.pt_size;
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX] = {0};
	uint8_t *data = malloc(size);

	assert_non_null(data);
	if (lua_read(lua, start, data, size)) {
		free(data);
		return;
	}
	for (size_t off = 0; off + head <= size && lua->protos < PROTOS_MAX; off += 8) {
		memcpy(header, data + off, head);
		if (!msp_proto_parse(&lua_layout, header, start + off, &lua->proto[lua->protos]))
			lua->protos++;
	}
	free(data);
}

/* Finds mappings and prototypes. */
static inline void lua_look(struct lua *lua)
{
	lua_ranges(lua);
	if (!lua->proto)
		lua->proto = malloc(PROTOS_MAX * sizeof(*lua->proto));
	assert_non_null(lua->proto);
	lua->protos = 0;
	for (int i = 0; i < lua->ranges; i++)
		lua_scan(lua, lua->range[i][0], lua->range[i][1]);
}

/* A names object for it, with all ranges or with none. */
static inline struct msp_lj_names *lua_names(struct lua *lua, bool ranges)
{
	struct msp_lj_names *names = msp_lj_names_new_layout(&lua_layout, &lua->mem, 0);

	assert_non_null(names);
	for (int i = 0; ranges && i < lua->ranges; i++)
		assert_int_equal(msp_lj_names_add_range(names, lua->range[i][0], lua->range[i][1]),
				 0);
	return names;
}

/* Is the prototype's chunk name this one? */
static inline bool lua_is_chunk(struct lua *lua, const struct msp_proto *pt, const char *chunk)
{
	char buf[512];
	uint32_t len;

	return !msp_lj_string_read(&lua_layout, &lua->mem, pt->chunkname, buf, sizeof(buf), &len) &&
	       !strcmp(buf, chunk);
}

/* The prototype of a chunk that is defined on a line; NULL: it was not found. */
static inline const struct msp_proto *lua_find(struct lua *lua, const char *chunk, uint32_t line)
{
	for (int i = 0; i < lua->protos; i++)
		if (lua->proto[i].firstline == line && lua_is_chunk(lua, &lua->proto[i], chunk))
			return &lua->proto[i];
	return NULL;
}

static inline uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

#endif
