/* SPDX-License-Identifier: MIT */
/* A LuaJIT process for the tests of src/luajit: started, found, its VM located. */
#ifndef LUAJIT_HELP_H
#define LUAJIT_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "luajit/build.h"
#include "moonspy/moonspy.h"
#include "target/target.h"

#define LUAJIT "/usr/bin/luajit"
#define LIBLUAJIT "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"

struct lua_child {
	pid_t pid;
	int in; /* its standard input: nothing ever comes */
	struct msp_process *process;
	struct msp_image *image;
	struct msp_lj_build *build;
	uint64_t base; /* of the image in the child */
	uint64_t g[4];
	int g_count;
};

static inline double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* Of this process alone: the machine may be busy. */
static inline double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static inline bool have_file(const char *path)
{
	return access(path, R_OK) == 0;
}

static inline int open_image(const char *path, struct msp_image **image)
{
	struct msp_image_options opts = {.name = path};

	return msp_image_open_fd(open(path, O_RDONLY | O_CLOEXEC), &opts, image);
}

/* Starts luajit with a script; it runs once it has written "ready". */
static inline void lua_start(struct lua_child *c, const char *script, const char *option)
{
	int in[2], out[2];
	char buf[16];

	memset(c, 0, sizeof(*c));
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(out[0]);
		execl(LUAJIT, "luajit", option, "-e", script, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	assert_true(read(out[0], buf, sizeof(buf)) > 0);
	close(out[0]);
	close(in[0]);
	c->in = in[1];
}

/* Where the image starts in the child: its lowest mapping. */
static inline uint64_t image_base(struct msp_process *process, const char *path)
{
	struct msp_maps maps;
	uint64_t base = 0;

	assert_int_equal(msp_process_maps(process, &maps), 0);
	for (size_t i = 0; i < maps.count && !base; i++) {
		if (strstr(maps.map[i].name, path) && maps.map[i].offset == 0)
			base = maps.map[i].start;
	}
	msp_maps_free(&maps);
	return base;
}

static inline void lua_scan(struct lua_child *c)
{
	const struct msp_memory *mem = msp_process_memory(c->process);
	struct msp_maps maps;

	assert_int_equal(msp_process_maps(c->process, &maps), 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct msp_map *map = &maps.map[i];
		int n;

		if ((map->prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE) ||
		    map->inode)
			continue;
		n = msp_lj_scan(c->build, mem, c->base, map->start, map->end, c->g + c->g_count,
				4 - c->g_count);
		assert_true(n >= 0);
		c->g_count += n;
	}
	msp_maps_free(&maps);
}

static inline void lua_attach(struct lua_child *c)
{
	assert_int_equal(msp_process_open(c->pid, &c->process), 0);
	assert_int_equal(open_image(LUAJIT, &c->image), 0);
	assert_int_equal(msp_lj_build_find(c->image, &c->build), 0);
	c->base = image_base(c->process, "/luajit");
	assert_true(c->base != 0);
	lua_scan(c);
}

static inline void lua_stop(struct lua_child *c)
{
	close(c->in);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	msp_lj_build_free(c->build);
	msp_image_close(c->image);
	msp_process_close(c->process);
}

#endif
