/* SPDX-License-Identifier: MIT */
/* Which processes have a LuaJIT in them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/finder.h"
#include "cli/messages.h"
#include "cli/sudo.h"
#include "moonspy/moonspy.h"
#include "output/json_writer.h"
#include "target/target.h"

struct list {
	const struct msp_options *options;
	struct cli_finder finder;
	size_t shown, denied;
	struct msp_json json;
};

static void user_of(struct msp_process *process, char *buf, size_t size)
{
	struct stat st;

	snprintf(buf, size, "?");
	if (!fstat(msp_process_dir(process), &st))
		cli_user_name(st.st_uid, buf, size);
}

static void put_json(struct msp_json *json, struct msp_process *process, const char *user,
		     const struct cli_file *file)
{
	msp_json_object(json);
	msp_json_key(json, "pid");
	msp_json_int(json, msp_process_pid(process));
	msp_json_key(json, "user");
	msp_json_string(json, user);
	msp_json_key(json, "name");
	msp_json_string(json, msp_process_comm(process));
	msp_json_key(json, "command");
	msp_json_string(json, msp_process_cmdline(process));
	msp_json_key(json, "version");
	msp_json_string(json, file->version);
	msp_json_key(json, "gc64");
	if (file->complete)
		msp_json_bool(json, file->gc64);
	else
		msp_json_null(json);
	msp_json_key(json, "object");
	msp_json_string(json, file->name);
	msp_json_key(json, "complete");
	msp_json_bool(json, file->complete);
	msp_json_end(json);
}

/* The command line of another's process may hold anything: terminals get printable bytes. */
static void put_printable(const char *text)
{
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
}

static void put_line(struct list *list, struct msp_process *process, const char *user,
		     const struct cli_file *file)
{
	const char *command = msp_process_cmdline(process);
	char build[96];

	if (!list->shown)
		printf("%7s  %-10s %-28s %-22s %s\n", "PID", "USER", "LUAJIT", "IN", "COMMAND");
	snprintf(build, sizeof(build), "%s%s", file->version,
		 !file->complete ? " (not known)"
		 : file->gc64	 ? ", GC64"
				 : "");
	printf("%7d  %-10s %-28s %-22s ", msp_process_pid(process), user, build, file->name);
	put_printable(*command ? command : msp_process_comm(process));
	putchar('\n');
}

static void visit(struct list *list, pid_t pid)
{
	struct msp_process *process;
	const struct cli_file *file;
	int error = msp_process_open(pid, &process);
	char user[64];

	if (error) {
		list->denied += error == MSP_E_PERMISSION;
		return; /* else it has ended meanwhile */
	}
	file = cli_finder_look(&list->finder, process);
	if (file) {
		user_of(process, user, sizeof(user));
		if (list->options->json)
			put_json(&list->json, process, user, file);
		else
			put_line(list, process, user, file);
		list->shown++;
	}
	msp_process_close(process);
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return x < y ? -1 : x > y;
}

/* Pids of all processes, ascending, malloc'ed; their number, -1 if /proc cannot be read. */
static ssize_t all_pids(pid_t **out)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t *pids = NULL;
	size_t n = 0;

	while (proc && (entry = readdir(proc))) {
		uint64_t pid;
		pid_t *grown;

		if (!cli_parse_number(entry->d_name, 1, INT_MAX, &pid))
			continue;
		grown = n % 256 ? pids : reallocarray(pids, n + 256, sizeof(*pids));
		if (!grown)
			break;
		pids = grown;
		pids[n++] = (pid_t)pid;
	}
	*out = pids;
	if (!proc)
		return -1;
	closedir(proc);
	if (n)
		qsort(pids, n, sizeof(*pids), by_number);
	return (ssize_t)n;
}

static int finish(struct list *list)
{
	if (list->options->json) {
		msp_json_end(&list->json);
		msp_json_key(&list->json, "denied");
		msp_json_uint(&list->json, list->denied);
		msp_json_end(&list->json);
		if (msp_json_finish(&list->json))
			return CLI_FAILED;
	}
	if (list->denied)
		cli_note("not permitted to look into %zu of the processes%s", list->denied,
			 geteuid() ? "; sudo moonspy list can" : "");
	if (!list->shown) {
		cli_note("no process here has a LuaJIT in it");
		return CLI_NO_LUAJIT;
	}
	return CLI_OK;
}

int cmd_list(const struct msp_options *options)
{
	struct list list = {.options = options, .json = {.buffer.out = stdout}};
	pid_t *pids = NULL;
	ssize_t n = all_pids(&pids);
	int rc;

	if (n < 0) {
		cli_error("cannot read /proc", strerror(errno), "mount -t proc proc /proc");
		return CLI_FAILED;
	}
	if (options->json) {
		msp_json_object(&list.json);
		msp_json_key(&list.json, "schema");
		msp_json_uint(&list.json, 1);
		msp_json_key(&list.json, "type");
		msp_json_string(&list.json, "list");
		msp_json_key(&list.json, "processes");
		msp_json_array(&list.json);
	}
	for (ssize_t i = 0; i < n; i++)
		visit(&list, pids[i]);
	rc = finish(&list);
	cli_finder_free(&list.finder);
	free(pids);
	return rc;
}
