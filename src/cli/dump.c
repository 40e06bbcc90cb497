/* SPDX-License-Identifier: MIT */
/* Every thread's stack, now: which processes, and in what order things are done. */
#include "cli/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/commands.h"
#include "cli/messages.h"

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* Adds the children of all to the list, each pid once. */
static int add_children(pid_t **pids, int count)
{
	pid_t *children, *grown;
	int n, total = count, kept = 0;

	for (int i = 0; i < count; i++) {
		n = msp_process_children((*pids)[i], &children);
		if (n < 0)
			return n;
		grown = reallocarray(*pids, total + n + 1, sizeof(*grown));
		if (!grown) {
			free(children);
			return MSP_E_NOMEM;
		}
		*pids = grown;
		if (n)
			memcpy(grown + total, children, n * sizeof(*grown));
		free(children);
		total += n;
	}
	if (total)
		qsort(*pids, total, sizeof(**pids), compare_pids);
	for (int i = 0; i < total; i++)
		if (!i || (*pids)[i] != (*pids)[i - 1])
			(*pids)[kept++] = (*pids)[i];
	return kept;
}

/* The processes asked for; *out is malloc'ed. Their number, or an error. */
static int find_targets(const struct msp_options *options, pid_t **out)
{
	int count;

	if (options->name || options->all) {
		count = msp_process_find(options->name, out);
		if (count < 0)
			return count;
	} else {
		count = options->pid_count;
		*out = calloc(count + 1, sizeof(**out));
		if (!*out)
			return MSP_E_NOMEM;
		memcpy(*out, options->pids, count * sizeof(**out));
	}
	return options->subprocesses ? add_children(out, count) : count;
}

/* -a is for the processes with a LuaJIT: others, and those that cannot be read, are passed over. */
static bool is_wanted(const struct msp_options *options, const struct cli_live *live)
{
	return !options->all || msp_target_info(live->target)->vms;
}

static bool may_open(pid_t pid)
{
	struct msp_process_info info = {.size = sizeof(info)};

	return msp_process_look(pid, &info) == 0;
}

static int dump_live(struct cli_live *live, struct dump_writer *writer)
{
	int rc = dump_target(writer, live);

	if (rc < 0)
		return cli_live_error("dump", live, rc);
	if (!msp_target_info(live->target)->vms)
		cli_note("no LuaJIT in process %d: its native stacks are shown", (int)live->pid);
	return rc;
}

static int dump_pid(const struct msp_options *options, pid_t pid, struct msp_target *registry,
		    struct dump_writer *writer)
{
	struct cli_live live;
	int rc;

	if (options->all && !may_open(pid))
		return CLI_OK;
	rc = cli_live_open("dump", pid, registry, &live);
	if (rc)
		return options->all ? CLI_OK : rc;
	rc = is_wanted(options, &live) ? dump_live(&live, writer) : CLI_OK;
	cli_live_close(&live);
	return rc;
}

static int no_target(const struct msp_options *options)
{
	if (options->name)
		cli_error(cli_fmt("no process is called %s", options->name),
			  "neither the name nor the program of any is that", "moonspy list");
	return CLI_FAILED;
}

/*
 * While the target stands still nothing should come between. Without the right
 * to it, things are as they are.
 */
static void go_first(void)
{
	if (setpriority(PRIO_PROCESS, 0, -20) < 0)
		cli_detail("no higher priority (%s): on a busy machine the stop is longer",
			   strerror(errno));
}

int cmd_dump(const struct msp_options *options)
{
	struct dump_writer writer = {.options = options};
	struct msp_target *registry = NULL;
	pid_t *pids = NULL;
	int count, rc, worst = CLI_OK;

	count = find_targets(options, &pids);
	if (count <= 0) {
		free(pids);
		return no_target(options);
	}
	rc = cli_registry_open(&registry);
	if (rc)
		goto out;
	go_first();
	dump_begin(&writer, count > 1 || options->all || options->name || options->subprocesses);
	for (int i = 0; i < count; i++) {
		rc = dump_pid(options, pids[i], registry, &writer);
		/* Something that failed outweighs what is only partial. */
		if (rc && (worst == CLI_OK || worst == CLI_PARTIAL))
			worst = rc;
	}
	rc = dump_end(&writer) ? CLI_FAILED : worst;
out:
	msp_target_free(registry);
	free(pids);
	return rc;
}
