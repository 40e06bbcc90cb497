/* SPDX-License-Identifier: MIT */
/* Which processes have a LuaJIT in them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/sudo.h"
#include "moonspy/moonspy.h"
#include "output/json_writer.h"

struct list {
	const struct msp_options *options;
	struct msp_finder *finder;
	size_t shown, denied;
	struct msp_json json;
};

static void put_json(struct msp_json *json, const char *user, const struct msp_found *found)
{
	msp_json_object(json);
	msp_json_key(json, "pid");
	msp_json_int(json, found->pid);
	msp_json_key(json, "user");
	msp_json_string(json, user);
	msp_json_key(json, "name");
	msp_json_string(json, found->name);
	msp_json_key(json, "command");
	msp_json_string(json, found->command);
	msp_json_key(json, "version");
	msp_json_string(json, found->version);
	msp_json_key(json, "gc64");
	if (found->complete)
		msp_json_bool(json, found->gc64);
	else
		msp_json_null(json);
	msp_json_key(json, "object");
	msp_json_string(json, found->object);
	msp_json_key(json, "complete");
	msp_json_bool(json, found->complete);
	msp_json_end(json);
}

/* The command line of another's process may hold anything: terminals get printable bytes. */
static void put_printable(const char *text)
{
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
}

static void put_line(struct list *list, const char *user, const struct msp_found *found)
{
	char build[96];

	if (!list->shown)
		printf("%7s  %-10s %-28s %-22s %s\n", "PID", "USER", "LUAJIT", "IN", "COMMAND");
	snprintf(build, sizeof(build), "%s%s", found->version,
		 !found->complete ? " (not known)"
		 : found->gc64	  ? ", GC64"
				  : "");
	printf("%7d  %-10s %-28s %-22s ", found->pid, user, build, found->object);
	put_printable(*found->command ? found->command : found->name);
	putchar('\n');
}

static void visit(struct list *list, pid_t pid)
{
	const struct msp_found *found;
	int r = msp_finder_look(list->finder, pid, &found);
	char user[64];

	list->denied += r == MSP_E_PERMISSION;
	if (r <= 0)
		return; /* else it has ended meanwhile, or there is none */
	cli_user_name(found->uid, user, sizeof(user));
	if (list->options->json)
		put_json(&list->json, user, found);
	else
		put_line(list, user, found);
	list->shown++;
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
	if (msp_finder_new(&list.finder)) {
		free(pids);
		cli_error("out of memory", strerror(ENOMEM), "ulimit -v unlimited");
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
	msp_finder_free(list.finder);
	free(pids);
	return rc;
}
