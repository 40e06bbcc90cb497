/* SPDX-License-Identifier: MIT */
/*
 * usage: latency SECONDS [rt]
 * A program whose pauses matter: every millisecond it runs a short piece of Lua, and measures
 * how late it was woken and how long the piece took. `rt` asks for real-time priority, so that
 * other programs on the machine do not show. Prints:
 *   pauses N max_late_us A p999_late_us B max_work_us C p999_work_us D p50_work_us E over_1ms F
 *   histogram of lateness + excess work: upper bound in us, count
 */
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

static const char source[] = "local function piece(n)\n"
			     "  local x = 0\n"
			     "  for i = 1, n do x = x + i % 7 end\n"
			     "  return x\n"
			     "end\n"
			     "return piece\n";

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void call_piece(lua_State *L, int n)
{
	lua_pushvalue(L, 1);
	lua_pushinteger(L, n);
	if (lua_pcall(L, 1, 0, 0)) {
		fprintf(stderr, "%s\n", lua_tostring(L, -1));
		exit(1);
	}
}

/* What so many rounds take, in ns, when nothing comes between. */
static int64_t shortest(lua_State *L, int n)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 5; i++) {
		int64_t before = now_ns(), took;

		call_piece(L, n);
		took = now_ns() - before;
		best = took < best ? took : best;
	}
	return best;
}

/* How many rounds take about 200 us. */
static int calibrate(lua_State *L)
{
	int n = 1000;

	while (shortest(L, n) < 200000 && n < 100000000)
		n += n / 4;
	return n;
}

static void print_result(double *late, double *work, int count)
{
	double median, pause[2] = {0, 0};
	unsigned bins[24] = {0}, over = 0;

	qsort(work, (size_t)count, sizeof(*work), by_value);
	median = work[count / 2];
	qsort(late, (size_t)count, sizeof(*late), by_value);
	for (int i = 0; i < count; i++) {
		/* Sorted apart: the two kinds of pause are counted each for itself. */
		pause[0] = late[i];
		pause[1] = work[i] - median;
		for (int k = 0; k < 2; k++) {
			int bin = pause[k] < 1 ? 0 : (int)log2(pause[k]) + 1;

			bins[bin > 23 ? 23 : bin]++;
			over += pause[k] > 1000;
		}
	}
	printf("pauses %d max_late_us %.0f p999_late_us %.0f max_work_us %.0f p999_work_us %.0f "
	       "p50_work_us %.1f over_1ms %u\n",
	       count, late[count - 1], late[(int)(count * 0.999)], work[count - 1] - median,
	       work[(int)(count * 0.999)] - median, median, over);
	for (int bin = 0; bin < 24; bin++)
		if (bins[bin])
			printf("  < %8.0f us %8u\n", ldexp(1, bin), bins[bin]);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	int count = (int)(seconds * 1000), n;
	double *late = calloc((size_t)count + 1, sizeof(*late));
	double *work = calloc((size_t)count + 1, sizeof(*work));
	lua_State *L = luaL_newstate();
	int64_t next;

	if (count < 1 || !late || !work || !L)
		return 2;
	luaL_openlibs(L);
	lua_settop(L, 0);
	if (luaL_loadbuffer(L, source, sizeof(source) - 1, "=latency") || lua_pcall(L, 0, 1, 0))
		return 1;
	if (argc > 2 && !strcmp(argv[2], "rt") &&
	    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10}))
		perror("latency: no real-time priority");
	mlockall(MCL_CURRENT | MCL_FUTURE);
	n = calibrate(L);
	next = now_ns() + 1000000;
	for (int i = 0; i < count; i++, next += 1000000) {
		struct timespec t = {next / 1000000000, next % 1000000000};
		int64_t woken;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		woken = now_ns();
		late[i] = (double)(woken - next) / 1000;
		call_piece(L, n);
		work[i] = (double)(now_ns() - woken) / 1000;
		if (now_ns() >
		    next + 1000000) /* late for the next one: that is counted here already */
			next = now_ns();
	}
	print_result(late, work, count);
	return 0;
}
