/* SPDX-License-Identifier: MIT */
/* The checks of the machine and of the user's rights on it. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif

/* Of the first pid namespace, the machine's (PROC_PID_INIT_INO of the kernel). */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCu

static void __attribute__((format(printf, 3, 4)))
found(struct doctor_result *result, enum doctor_level level, const char *format, ...)
{
	va_list args;

	result->level = level;
	va_start(args, format);
	vsnprintf(result->text, sizeof(result->text), format, args);
	va_end(args);
}

static void todo(struct doctor_result *result, const char *text)
{
	snprintf(result->todo, sizeof(result->todo), "%s", text);
}

/* First line of a small file; false if it cannot be read. */
static bool read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	bool got = file && fgets(buf, (int)size, file);

	if (file)
		fclose(file);
	if (got)
		buf[strcspn(buf, "\n")] = '\0';
	return got;
}

/* A sysctl's number; absent if there is none. */
static long read_number(const char *path, long absent)
{
	char line[64];

	return read_line(path, line, sizeof(line)) ? strtol(line, NULL, 10) : absent;
}

/* Field of /proc/self/status, as a hexadecimal number. */
static uint64_t status_field(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	size_t length = strlen(name);
	uint64_t value = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length))
			value = strtoull(line + length, NULL, 16);
	if (file)
		fclose(file);
	return value;
}

static bool has(uint64_t capabilities, int capability)
{
	return capabilities >> capability & 1;
}

static bool kernel_at_least(int major, int minor)
{
	struct utsname name;
	int have_major = 0, have_minor = 0;

	if (uname(&name) || sscanf(name.release, "%d.%d", &have_major, &have_minor) != 2)
		return false;
	return have_major > major || (have_major == major && have_minor >= minor);
}

void doctor_check_kernel(pid_t pid, struct doctor_result *result)
{
	struct utsname name;

	if (uname(&name))
		strcpy(name.release, "?");
	if (kernel_at_least(5, 10)) {
		found(result, DOCTOR_OK, "kernel %s", name.release);
		return;
	}
	found(result, DOCTOR_FAIL, "kernel %s is older than 5.10", name.release);
	todo(result, "--engine=ptrace works with it; for bpf, boot a newer kernel");
}

void doctor_check_btf(pid_t pid, struct doctor_result *result)
{
	if (!access("/sys/kernel/btf/vmlinux", R_OK)) {
		found(result, DOCTOR_OK, "the kernel describes its types (BTF)");
		return;
	}
	found(result, DOCTOR_FAIL, "/sys/kernel/btf/vmlinux: %s", strerror(errno));
	todo(result, errno == ENOENT ? "mount -t sysfs sysfs /sys, or boot a kernel with "
				       "CONFIG_DEBUG_INFO_BTF"
				     : "sudo moonspy doctor");
}

void doctor_check_lockdown(pid_t pid, struct doctor_result *result)
{
	char line[128];

	if (!read_line("/sys/kernel/security/lockdown", line, sizeof(line))) {
		found(result, DOCTOR_OK, "no kernel lockdown to be seen");
	} else if (strstr(line, "[confidentiality]")) {
		found(result, DOCTOR_FAIL,
		      "kernel lockdown is \"confidentiality\": BPF may read no "
		      "memory");
		todo(result, "boot with lockdown=integrity; --engine=ptrace works with it");
	} else {
		found(result, DOCTOR_OK, "kernel lockdown allows BPF: %s", line);
	}
}

void doctor_check_capabilities(pid_t pid, struct doctor_result *result)
{
	uint64_t caps = status_field("CapEff:");
	bool admin = has(caps, CAP_SYS_ADMIN);
	bool bpf = has(caps, CAP_BPF) || admin, perfmon = has(caps, CAP_PERFMON) || admin;

	if (bpf && perfmon && has(caps, CAP_SYS_PTRACE)) {
		found(result, DOCTOR_OK, "rights for BPF, events and other users' processes");
		return;
	}
	if (bpf && perfmon) {
		found(result, DOCTOR_WARN, "CAP_SYS_PTRACE is missing: only your own processes");
		todo(result, "sudo moonspy record ...");
		return;
	}
	found(result, DOCTOR_FAIL, "no rights for BPF: %s",
	      bpf	? "CAP_PERFMON is missing"
	      : perfmon ? "CAP_BPF is missing"
			: "CAP_BPF and CAP_PERFMON are missing");
	todo(result, "sudo moonspy record ...; or once: sudo setcap "
		     "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog=ep \"$(command -v moonspy)\"");
}

void doctor_check_memlock(pid_t pid, struct doctor_result *result)
{
	const rlim_t wanted = 256 << 20;
	struct rlimit limit;

	if (kernel_at_least(5, 11) || getrlimit(RLIMIT_MEMLOCK, &limit)) {
		found(result, DOCTOR_OK, "BPF maps need no locked memory");
	} else if (limit.rlim_max >= wanted || has(status_field("CapEff:"), CAP_SYS_RESOURCE)) {
		found(result, DOCTOR_OK, "as much memory may be locked as BPF maps need");
	} else {
		found(result, DOCTOR_FAIL, "at most %llu KiB may be locked, BPF maps need more",
		      (unsigned long long)limit.rlim_max >> 10);
		todo(result, "sudo prlimit --memlock=unlimited --pid $$");
	}
}

/* The smallest thing BPF can do shows whether it may be used at all. */
void doctor_check_bpf(pid_t pid, struct doctor_result *result)
{
	union bpf_attr attr;
	long fd;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_PERCPU_HASH; /* needs rights, unlike a plain array */
	attr.key_size = 4;
	attr.value_size = 4;
	attr.max_entries = 1;
	fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	if (fd >= 0) {
		close((int)fd);
		found(result, DOCTOR_OK, "bpf() works");
		return;
	}
	found(result, DOCTOR_FAIL, "bpf(): %s", strerror(errno));
	if (errno == ENOSYS)
		todo(result, "boot a kernel with CONFIG_BPF_SYSCALL");
	else if (geteuid() == 0)
		todo(result, "run outside of the container, or give it CAP_BPF and CAP_PERFMON");
	else
		todo(result, "sudo moonspy record ...");
}

void doctor_check_perf_event(pid_t pid, struct doctor_result *result)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.disabled = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	long paranoid = read_number("/proc/sys/kernel/perf_event_paranoid", -1);

	if (fd >= 0) {
		close((int)fd);
		found(result, DOCTOR_OK, "perf_event_open() works, kernel included");
		return;
	}
	found(result, DOCTOR_FAIL, "perf_event_open(): %s; kernel.perf_event_paranoid is %ld",
	      strerror(errno), paranoid);
	todo(result, geteuid() == 0 ? "allow perf_event_open in the container's seccomp profile"
				    : "sudo moonspy record ...; or sudo sysctl "
				      "kernel.perf_event_paranoid=1");
}

void doctor_check_sample_rate(pid_t pid, struct doctor_result *result)
{
	long rate = read_number("/proc/sys/kernel/perf_event_max_sample_rate", 100000);

	found(result, rate < 1000 ? DOCTOR_WARN : DOCTOR_OK, "up to %ld samples a second and CPU",
	      rate);
	if (rate < 1000)
		todo(result, "sudo sysctl kernel.perf_event_max_sample_rate=100000");
}

void doctor_check_kernel_symbols(pid_t pid, struct doctor_result *result)
{
	char line[256];

	if (!read_line("/proc/kallsyms", line, sizeof(line))) {
		found(result, DOCTOR_WARN, "/proc/kallsyms: kernel frames have no names");
	} else if (strtoull(line, NULL, 16)) {
		found(result, DOCTOR_OK, "kernel frames have names");
	} else {
		found(result, DOCTOR_WARN,
		      "kernel frames have no names for this user (kernel.kptr_restrict is %ld)",
		      read_number("/proc/sys/kernel/kptr_restrict", 0));
		todo(result, geteuid() == 0 ? "sudo sysctl kernel.kptr_restrict=1"
					    : "sudo moonspy record ...");
	}
}

void doctor_check_ptrace(pid_t pid, struct doctor_result *result)
{
	long scope = read_number("/proc/sys/kernel/yama/ptrace_scope", 0);
	bool may = has(status_field("CapEff:"), CAP_SYS_PTRACE);

	if (scope == 3) {
		found(result, DOCTOR_FAIL, "kernel.yama.ptrace_scope is 3: nobody may use ptrace");
		todo(result, "only a reboot brings ptrace back");
	} else if (may) {
		found(result, DOCTOR_OK, "any process may be stopped and read");
	} else if (scope == 0) {
		found(result, DOCTOR_OK, "your own processes may be stopped and read");
	} else {
		found(result, DOCTOR_WARN,
		      "kernel.yama.ptrace_scope is %ld: only processes that moonspy starts", scope);
		todo(result, "sudo sysctl kernel.yama.ptrace_scope=0");
	}
}

void doctor_check_container(pid_t pid, struct doctor_result *result)
{
	struct stat st;
	bool inside = !stat("/proc/self/ns/pid", &st) && st.st_ino != FIRST_PID_NAMESPACE;
	bool seccomp = status_field("Seccomp:") == 2;

	if (inside) {
		found(result, DOCTOR_WARN,
		      "inside of a container%s: only its own processes can be seen",
		      seccomp ? " with a system call filter" : "");
		todo(result, "run moonspy on the host: it finds processes in containers by pid");
	} else if (seccomp) {
		found(result, DOCTOR_WARN, "a system call filter (seccomp) is on this process");
	} else {
		found(result, DOCTOR_OK, "not in a container");
	}
}
