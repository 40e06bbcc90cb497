/* SPDX-License-Identifier: MIT */
/* Threads of a process: ids, names, states. */
#include "target/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moonspy/moonspy.h"

int msp_process_threads(struct msp_process *process, pid_t **out)
{
	int n = msp_list_pids(process->dir, "task", out);

	if (n == 0) {
		free(*out);
		*out = NULL;
		return MSP_E_GONE;
	}
	return n;
}

int msp_process_thread_name(struct msp_process *process, pid_t tid, char buf[16])
{
	char path[48], *text;
	size_t size;
	int r;

	snprintf(path, sizeof(path), "task/%d/comm", (int)tid);
	r = msp_read_file(process->dir, path, &text, &size);
	if (r < 0)
		return r;
	if (size && text[size - 1] == '\n')
		text[--size] = 0;
	snprintf(buf, 16, "%s", text);
	free(text);
	return 0;
}

static int thread_stat(struct msp_process *process, pid_t tid, struct msp_stat *stat)
{
	char path[48];

	snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
	return msp_read_stat(process->dir, path, stat);
}

uint64_t msp_process_thread_start_time(struct msp_process *process, pid_t tid)
{
	struct msp_stat stat;

	return thread_stat(process, tid, &stat) < 0 ? UINT64_MAX : stat.start_time;
}

int msp_process_thread_state(struct msp_process *process, pid_t tid)
{
	struct msp_stat stat;
	int r = thread_stat(process, tid, &stat);

	return r < 0 ? r : stat.state;
}

int msp_process_thread_times(struct msp_process *process, pid_t tid, struct msp_thread_times *out)
{
	char path[48], text[96];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "task/%d/schedstat", (int)tid);
	fd = openat(process->dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return MSP_E_GONE;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return MSP_E_GONE;
	text[n] = 0;
	return sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &out->used_ns, &out->waited_ns,
		      &out->runs) == 3
		       ? 0
		       : MSP_E_GONE;
}

/* The value of a line of /proc/PID/status, which starts with a newline; NULL: it has none. */
static const char *status_value(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? at + strlen(name) + strspn(at + strlen(name), " \t") : NULL;
}

int msp_process_thread_look(struct msp_process *process, pid_t tid, struct msp_thread_look *out)
{
	const char *state, *gave_up, *lost;
	struct msp_stat stat;
	char path[48], *text;
	size_t size;
	int r;

	*out = (struct msp_thread_look){.on_cpu = true, .cpu = -1};
	snprintf(path, sizeof(path), "task/%d/status", (int)tid);
	r = msp_read_file(process->dir, path, &text, &size);
	if (r < 0)
		return r;
	state = status_value(text, "\nState:");
	gave_up = status_value(text, "\nvoluntary_ctxt_switches:");
	lost = status_value(text, "\nnonvoluntary_ctxt_switches:");
	out->state = state ? *state : 0;
	if (out->state == 'R' && msp_process_thread_times(process, tid, &out->times))
		out->times = (struct msp_thread_times){0};
	/* Who has got a CPU once more than lost one has it. */
	if (out->times.runs && gave_up && lost)
		out->on_cpu =
			out->times.runs > strtoull(gave_up, NULL, 10) + strtoull(lost, NULL, 10);
	if (!out->on_cpu && !thread_stat(process, tid, &stat))
		out->cpu = stat.cpu;
	free(text);
	return 0;
}

bool msp_process_has_thread(struct msp_process *process, pid_t tid)
{
	char path[48];

	snprintf(path, sizeof(path), "task/%d", (int)tid);
	return faccessat(process->dir, path, F_OK, 0) == 0;
}

bool msp_living_thread(struct msp_process *process, pid_t *out)
{
	int count, state;
	pid_t *tids;
	bool found = false;

	count = msp_process_threads(process, &tids);
	for (int i = 0; i < count && !found; i++) {
		state = msp_process_thread_state(process, tids[i]);
		found = state > 0 && state != 'Z' && state != 'X';
		*out = tids[i];
	}
	if (count >= 0)
		free(tids);
	return found;
}
