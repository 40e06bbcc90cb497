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
#include "moonspy/moonspy.h"

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
	size_t vms;

	msp_space_vms(live->space, &vms);
	return !options->all || vms;
}

static bool may_open(pid_t pid)
{
	struct msp_process *process;

	if (msp_process_open(pid, &process) < 0)
		return false;
	msp_process_close(process);
	return true;
}

/* A VM that was busy while VMs were looked for is known by the stacks it is on. */
static void add_met_vms(struct cli_live *live, const struct msp_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->count; i++)
		for (size_t j = 0; j < snapshot->thread[i].count; j++) {
			const struct msp_raw_frame *f = &snapshot->thread[i].frames[j];

			if (f->kind == MSP_RAW_VM)
				msp_space_vm_at(live->space, f->image, f->addr);
		}
}

struct msp_snapshot_options dump_wanted(const struct msp_options *options)
{
	return (struct msp_snapshot_options){
		.coroutines = options->coroutines,
		.values = options->locals > 2 ? 2 : options->locals,
	};
}

int dump_snapshot(struct dump_writer *writer, struct cli_live *live,
		  const struct msp_snapshot *snapshot)
{
	add_met_vms(live, snapshot);
	return dump_process(writer, live, snapshot) ? CLI_PARTIAL : CLI_OK;
}

static int dump_live(const struct msp_options *options, struct cli_live *live,
		     struct dump_writer *writer)
{
	struct msp_snapshot_options wanted = dump_wanted(options);
	struct msp_snapshot snapshot;
	size_t vms;
	int r;

	r = msp_snapshot_take(live->space, &wanted, &snapshot);
	if (r < 0)
		return cli_live_error("dump", live, r);
	r = dump_snapshot(writer, live, &snapshot);
	msp_snapshot_free(&snapshot);
	msp_space_vms(live->space, &vms);
	if (!vms)
		cli_note("no LuaJIT in process %d: its native stacks are shown", (int)live->pid);
	return r;
}

static int dump_pid(const struct msp_options *options, pid_t pid, struct msp_images *images,
		    struct dump_writer *writer)
{
	struct cli_live live;
	int rc;

	if (options->all && !may_open(pid))
		return CLI_OK;
	rc = cli_live_open("dump", pid, images, &live);
	if (rc)
		return options->all ? CLI_OK : rc;
	rc = is_wanted(options, &live) ? dump_live(options, &live, writer) : CLI_OK;
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
	struct msp_images *images = NULL;
	pid_t *pids = NULL;
	int count, rc, worst = CLI_OK;

	count = find_targets(options, &pids);
	if (count <= 0) {
		free(pids);
		return no_target(options);
	}
	rc = cli_images_open(&images);
	if (rc)
		goto out;
	go_first();
	dump_begin(&writer, count > 1 || options->all || options->name || options->subprocesses);
	for (int i = 0; i < count; i++) {
		rc = dump_pid(options, pids[i], images, &writer);
		/* Something that failed outweighs what is only partial. */
		if (rc && (worst == CLI_OK || worst == CLI_PARTIAL))
			worst = rc;
	}
	rc = dump_end(&writer) ? CLI_FAILED : worst;
out:
	msp_images_free(images);
	free(pids);
	return rc;
}
