/* SPDX-License-Identifier: MIT */
#include "cli/live.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cachedir.h"
#include "cli/messages.h"
#include "cli/sudo.h"
#include "moonspy/moonspy.h"
#include "output/buffer.h"

static int out_of_memory(void)
{
	cli_error("out of memory", strerror(ENOMEM), "ulimit -v unlimited");
	return CLI_FAILED;
}

int cli_images_open(struct msp_images **out)
{
	char dir[512];
	struct msp_images_options options = {.cache_dir = cli_cache_dir(dir, sizeof(dir))};

	return msp_images_new(&options, out) < 0 ? out_of_memory() : 0;
}

static int not_permitted(const char *verb, const struct cli_live *live)
{
	char user[64], proc[32];
	struct stat st;
	pid_t tracer = live->process ? msp_process_tracer(live->process) : 0;

	if (tracer) {
		cli_error(cli_fmt("process %d is being traced", (int)live->pid),
			  cli_fmt("process %d, a debugger or strace, holds it", (int)tracer),
			  cli_fmt("end process %d first", (int)tracer));
		return CLI_PERMISSION;
	}
	snprintf(proc, sizeof(proc), "/proc/%d", (int)live->pid);
	if (stat(proc, &st) < 0)
		st.st_uid = 0;
	cli_error(cli_fmt("not permitted to look into process %d", (int)live->pid),
		  cli_fmt("it runs as %s, or the system restricts tracing",
			  cli_user_name(st.st_uid, user, sizeof(user))),
		  geteuid() ? cli_fmt("sudo moonspy %s -p %d", verb, (int)live->pid)
			    : "moonspy doctor");
	return CLI_PERMISSION;
}

int cli_live_error(const char *verb, const struct cli_live *live, int error)
{
	int pid = live->pid;

	switch (error) {
	case MSP_E_GONE:
		cli_error(cli_fmt("there is no process %d", pid),
			  live->process ? "it ended meanwhile"
					: cli_fmt("/proc/%d is not there", pid),
			  "moonspy list");
		return CLI_FAILED;
	case MSP_E_PERMISSION:
		return not_permitted(verb, live);
	case MSP_E_BUSY:
		cli_error(cli_fmt("process %d does not stop", pid),
			  "all its threads are in uninterruptible sleep",
			  cli_fmt("cat /proc/%d/stack", pid));
		return CLI_FAILED;
	default:
		cli_error(cli_fmt("cannot look into process %d", pid), msp_strerror(error),
			  cli_fmt("moonspy doctor -p %d", pid));
		return CLI_FAILED;
	}
}

/* Everything that the space, if r says that there is one, is filled with. */
static int load_space(struct cli_live *live, int r)
{
	if (r == 0)
		r = msp_symbolizer_new(msp_space_images(live->space), live->space, NULL,
				       &live->symbols);
	if (r == 0)
		r = msp_space_refresh(live->space);
	if (r >= 0)
		r = msp_space_find_vms(live->space);
	return r < 0 ? r : 0;
}

static int load(struct cli_live *live)
{
	int r = msp_process_open(live->pid, &live->process);

	if (r == 0)
		r = msp_space_new(live->images, live->process, &live->space);
	return load_space(live, r);
}

int cli_live_open_core(const char *path, const struct msp_core_options *options,
		       struct msp_images *images, struct cli_live *out)
{
	char why[MSP_CORE_WHY_SIZE];
	int fd, r;

	*out = (struct cli_live){.images = images};
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		cli_error(cli_fmt("cannot read %s", path), strerror(errno),
			  cli_fmt("ls -l %s", path));
		return errno == EACCES ? CLI_PERMISSION : CLI_FAILED;
	}
	r = msp_core_open(fd, options, &out->core, why);
	if (r < 0) {
		cli_error(cli_fmt("cannot read %s", path), why, cli_fmt("file %s", path));
		return CLI_FAILED;
	}
	out->pid = msp_core_pid(out->core);
	r = msp_space_new_host(images, msp_core_host(out->core), &out->space);
	r = load_space(out, r);
	if (r < 0) {
		cli_error(cli_fmt("cannot read %s", path), msp_strerror(r),
			  cli_fmt("file %s", path));
		cli_live_close(out);
		return CLI_FAILED;
	}
	return 0;
}

static void note_gap(const struct msp_core_gap *gap)
{
	char digits[CLI_COUNT_SIZE];

	switch (gap->kind) {
	case MSP_CORE_GAP_FILE:
		cli_note("missing: %s%s%s: %s", gap->name, *gap->build_id ? ", build id " : "",
			 gap->build_id, gap->why);
		return;
	case MSP_CORE_GAP_MEMORY:
		cli_note("missing: %s bytes of memory: %s", cli_count(gap->bytes, digits),
			 gap->why);
		return;
	case MSP_CORE_GAP_NOTES:
		cli_note("missing: %s", gap->why);
		return;
	}
}

size_t cli_live_note_gaps(const struct cli_live *live)
{
	const struct msp_core_gap *gaps;
	size_t count, unchecked = msp_core_unchecked(live->core);

	gaps = msp_core_gaps(live->core, &count);
	for (size_t i = 0; i < count; i++)
		note_gap(&gaps[i]);
	if (unchecked)
		cli_note("%zu files were taken by their paths: the core does not say which builds "
			 "they were",
			 unchecked);
	return count;
}

const char *cli_live_name(struct cli_live *live)
{
	return live->core ? msp_core_comm(live->core) : msp_process_comm(live->process);
}

const char *cli_live_command(struct cli_live *live)
{
	return live->core ? msp_core_command(live->core) : msp_process_cmdline(live->process);
}

int cli_live_open(const char *verb, pid_t pid, struct msp_images *images, struct cli_live *out)
{
	int r;

	*out = (struct cli_live){.pid = pid, .images = images};
	r = load(out);
	if (r == 0 && msp_process_bits(out->process) == 32) {
		cli_error(cli_fmt("process %d is a 32-bit program", (int)pid),
			  "only 64-bit programs are supported",
			  cli_fmt("perf record -g -p %d", (int)pid));
		cli_live_close(out);
		return CLI_FAILED;
	}
	if (r == 0)
		return 0;
	r = cli_live_error(verb, out, r);
	cli_live_close(out);
	return r;
}

void cli_live_close(struct cli_live *live)
{
	msp_symbolizer_free(live->symbols);
	msp_space_free(live->space);
	msp_process_close(live->process);
	msp_core_close(live->core);
	*live = (struct cli_live){0};
}

const char *cli_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

const char *cli_arch_name(int arch)
{
	return arch == MSP_ARCH_X86_64 ? "x86-64" : arch == MSP_ARCH_ARM64 ? "arm64" : "?";
}

const char *cli_build_text(const struct msp_image_entry *entry, char *buf, size_t size)
{
	const struct msp_lj_layout *layout = msp_lj_build_layout(entry->build);
	const char *version = msp_lj_build_version(entry->build);

	snprintf(buf, size, "%s (%s, %s%s)", version && *version ? version : "LuaJIT",
		 cli_base_name(msp_image_name(entry->image)),
		 cli_arch_name(msp_image_arch(entry->image)),
		 layout && layout->gc64 ? ", GC64" : "");
	return buf;
}

const char *cli_check_name(enum msp_lj_check check)
{
	static const char *const names[] = {
#define _(id, text) #id,
		MSP_LJ_CHECKS(_)
#undef _
	};
	static char lower[MSP_LJ_CHECK_COUNT][16];

	if (!lower[check][0])
		for (size_t i = 0; names[check][i] && i < sizeof(lower[check]) - 1; i++)
			lower[check][i] = tolower((unsigned char)names[check][i]);
	return lower[check];
}

const char *cli_check_text(enum msp_lj_check check)
{
	static const char *const texts[] = {
#define _(id, text) text,
		MSP_LJ_CHECKS(_)
#undef _
	};

	return texts[check];
}

const char *cli_proof_text(const struct msp_lj_proof *proof, char *buf, size_t size)
{
	if (proof->proved) {
		snprintf(buf, size, "layout proved by code analysis and live memory");
		return buf;
	}
	for (int i = 0; i < MSP_LJ_CHECK_COUNT; i++) {
		if (proof->check[i].result != MSP_LJ_FAILED)
			continue;
		snprintf(buf, size, "layout not proved: not true that %s (%s)", cli_check_text(i),
			 proof->check[i].detail);
		return buf;
	}
	snprintf(buf, size, "layout not proved");
	return buf;
}

void cli_put_text(const char *text)
{
	struct msp_buffer buffer = {0};

	msp_buffer_escaped(&buffer, text, "");
	fwrite(buffer.data, 1, buffer.size, stdout); /* not flushed: there may be many */
	msp_buffer_free(&buffer);
}
