/* SPDX-License-Identifier: MIT */
/*
 * What the unwind comparison stops at random: C++ that throws, sorts, prints
 * and matches; a function that realigns its stack; signal handlers; vfork.
 */
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <alloca.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned sink;

static void on_tick(int)
{
	char text[32];

	sink += (unsigned)std::snprintf(text, sizeof(text), "%u %g", sink, sink / 7.0);
}

/* A frame whose CFA is known only through memory: realigned and of variable size. */
__attribute__((noinline)) static unsigned realigned(unsigned a, unsigned b, unsigned c, unsigned d,
	unsigned e, unsigned f, unsigned on_stack, std::vector<unsigned> &v)
{
	alignas(64) unsigned block[32];
	unsigned *more = static_cast<unsigned *>(alloca(64 + (a & 63)));

	std::memset(more, (int)b, 64);
	for (unsigned i = 0; i < 32; i++)
		block[i] = a * i + on_stack;
	std::sort(v.begin(), v.end(), [&](unsigned x, unsigned y) {
		return (x ^ block[x & 31]) < (y ^ block[y & 31]);
	});
	return block[c & 31] + more[d & 15] + e + f;
}

__attribute__((noinline)) static unsigned thrower(unsigned depth)
{
	std::string text(depth + 1, 'x');

	if (depth == 0)
		throw std::runtime_error(text);
	return thrower(depth - 1) + (unsigned)text.size();
}

static unsigned run_map(unsigned seed)
{
	std::map<std::string, unsigned> map;
	std::ostringstream out;

	for (unsigned i = 0; i < 50; i++)
		map[std::to_string(seed * i % 997)] += i;
	for (auto &item : map)
		out << item.first << ' ' << item.second * 1.5 << '\n';
	return (unsigned)out.str().size();
}

static void run_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, nullptr, 0);
}

int main()
{
	struct sigaction action = {};
	struct itimerval every = {{0, 20000}, {0, 20000}};
	const std::regex pattern("([a-z]+)-([0-9]+)");
	std::vector<unsigned> v(200);

	action.sa_handler = on_tick;
	action.sa_flags = SA_RESTART;
	sigaction(SIGPROF, &action, nullptr);
	setitimer(ITIMER_PROF, &every, nullptr);
	for (unsigned round = 0;; round++) {
		std::smatch match;
		std::string text = "name-" + std::to_string(round);

		for (auto &x : v)
			x = (unsigned)std::rand();
		sink += realigned(round, 2, 3, 4, 5, 6, 7, v) + run_map(round);
		sink += std::regex_match(text, match, pattern);
		try {
			sink += thrower(round % 20);
		} catch (const std::exception &e) {
			sink += (unsigned)std::strlen(e.what());
		}
		if (round % 16 == 0)
			run_vfork();
	}
}
