/* SPDX-License-Identifier: MIT */
/* Mappings, and the files behind them. */
#include "target_help.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static void parse(const char *text, struct msp_maps *maps)
{
	assert_int_equal(msp_maps_parse(strdup(text), strlen(text), maps), 0);
}

static void test_parse(void **state)
{
	struct msp_maps maps;

	parse("559000000000-559000001000 r-xp 00002000 fe:01 1234                       "
	      "/usr/bin/lua jit\n"
	      "7f0000000000-7f0000001000 rw-s 00000000 00:05 77    /dev/zero (deleted)\n"
	      "7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n"
	      "7f0000004000-7f0000005000 r--p ffffffff000 103:00 18446744073709551615 "
	      "/a\\012b\\012\n"
	      "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
	      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
	      &maps);
	assert_int_equal(maps.count, 6);
	assert_int_equal(maps.map[0].start, 0x559000000000);
	assert_int_equal(maps.map[0].end, 0x559000001000);
	assert_int_equal(maps.map[0].offset, 0x2000);
	assert_int_equal(maps.map[0].dev_major, 0xfe);
	assert_int_equal(maps.map[0].dev_minor, 1);
	assert_int_equal(maps.map[0].inode, 1234);
	assert_int_equal(maps.map[0].prot, PROT_READ | PROT_EXEC);
	assert_false(maps.map[0].shared);
	assert_string_equal(maps.map[0].name, "/usr/bin/lua jit");
	assert_string_equal(maps.map[1].name, "/dev/zero");
	assert_true(maps.map[1].deleted && maps.map[1].shared);
	assert_string_equal(maps.map[2].name, "");
	assert_int_equal(maps.map[2].prot, 0);
	assert_string_equal(maps.map[3].name, "/a\nb\n");
	assert_int_equal(maps.map[3].inode, UINT64_MAX);
	assert_int_equal(maps.map[3].dev_major, 0x103);
	assert_string_equal(maps.map[4].name, "[stack]");
	assert_int_equal(maps.map[5].start, 0xffffffffff600000);
	assert_string_equal(maps.map[5].name, "[vsyscall]");
	msp_maps_free(&maps);
}

static void test_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"hello",
		"1000-2000",
		"1000-2000 r-x",
		"2000-1000 r-xp 0 0:0 0 x",
		"1000-1000 r-xp 0 0:0 0 x",
		"10000000000000000-2000 r-xp 0 0:0 0 x",
		"1000-2000 r-xp 0 0:0 x",
		"-2000 r-xp 0 0:0 0 x",
		"1000-2000 r-xp 0 00 0 x",
		"\n",
	};
	struct msp_maps maps;
	char *text;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		text = strdup(bad[i]);
		assert_int_equal(msp_maps_parse(text, strlen(text), &maps), MSP_E_FORMAT);
		free(text);
	}
	parse("", &maps);
	assert_int_equal(maps.count, 0);
	msp_maps_free(&maps);
}

/* Whatever the text: a list or an error, and nothing read outside of it. */
static void test_parse_mutated(void **state)
{
	static const char good[] =
		"559000000000-559000001000 r-xp 00002000 fe:01 1234    /usr/bin/a\\012b (deleted)\n"
		"7f0000000000-7f0000001000 rw-s 00000000 00:05 77      /dev/zero (deleted)\n"
		"7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n";
	static const char bytes[] = " \n-:\\012rwxps()fe9/\0";
	struct msp_maps maps;
	int parsed = 0;
	char *text;

	srand(1);
	for (int round = 0; round < 20000; round++) {
		size_t size = sizeof(good) - 1;

		text = strdup(good);
		assert_non_null(text);
		for (int i = rand() % 4; i >= 0; i--)
			text[rand() % size] = bytes[rand() % sizeof(bytes)];
		size = rand() % 8 ? size : rand() % size;
		text[size] = 0;
		if (msp_maps_parse(text, size, &maps) < 0) {
			free(text);
			continue;
		}
		for (size_t i = 0; i < maps.count; i++)
			assert_true(maps.map[i].start < maps.map[i].end &&
				    strlen(maps.map[i].name) < size);
		msp_maps_free(&maps);
		parsed++;
	}
	assert_true(parsed > 100);
}

static void many_mappings(struct shared *shared)
{
	/* Neighbours of different protection are never merged. */
	for (int i = 0; i < 5000; i++)
		if (mmap(NULL, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			shared->errors++;
	sleep_forever(shared);
}

static void test_many_mappings(void **state)
{
	struct msp_maps maps;
	struct child child;
	uint64_t start;

	spawn(&child, many_mappings);
	assert_int_equal(child.shared->errors, 0);
	start = now_us();
	assert_int_equal(msp_process_maps(child.process, &maps), 0);
	print_message("%zu mappings read in %llu us\n", maps.count,
		      (unsigned long long)(now_us() - start));
	assert_true(maps.count >= 5000);
	for (size_t i = 1; i < maps.count; i++)
		assert_true(maps.map[i - 1].end <= maps.map[i].start);
	msp_maps_free(&maps);
	finish(&child);
}

/* ---- A program copied somewhere odd, running, perhaps deleted ---- */

static void copy_file(const char *from, const char *to)
{
	char buf[65536];
	ssize_t n;
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, n), n);
	close(in);
	close(out);
}

struct program {
	char dir[64], path[128];
	pid_t pid;
	struct msp_process *process;
};

static bool runs(pid_t pid, const char *path)
{
	char link[64], target[256];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	return !strcmp(target, path);
}

static void end_program(struct program *program)
{
	msp_process_close(program->process);
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
	unlink(program->path);
	rmdir(program->dir);
}

static const struct msp_map *code_of(const struct msp_maps *maps, const char *path)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->map[i].name, path) && (maps->map[i].prot & PROT_EXEC))
			return &maps->map[i];
	return NULL;
}

/* It shows its new name before all of it is mapped. */
static bool is_mapped(struct program *program)
{
	struct msp_maps maps;
	bool mapped;

	if (msp_process_maps(program->process, &maps) < 0)
		return false;
	mapped = code_of(&maps, program->path);
	msp_maps_free(&maps);
	return mapped;
}

static void start_program(struct program *program, const char *name)
{
	strcpy(program->dir, "/tmp/moonspy-test-XXXXXX");
	assert_non_null(mkdtemp(program->dir));
	assert_int_equal(chmod(program->dir, 0755), 0);
	snprintf(program->path, sizeof(program->path), "%s/%s", program->dir, name);
	copy_file("/bin/sleep", program->path);
	program->pid = fork();
	if (program->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(program->path, "sleep", "60", "0", NULL);
		_exit(1);
	}
	wait_for(runs(program->pid, program->path));
	assert_int_equal(msp_process_open(program->pid, &program->process), 0);
	wait_for(is_mapped(program));
}

/* Opens the program's code; returns 0 if it is the file that /bin/sleep is a copy of. */
static int check_open(struct program *program, bool deleted)
{
	const struct msp_map *map;
	struct msp_maps maps;
	struct stat st, want;
	int fd, r = -1;

	if (msp_process_maps(program->process, &maps) < 0)
		return -2;
	map = code_of(&maps, program->path);
	if (map && map->deleted == deleted) {
		fd = msp_process_open_map(program->process, map);
		if (fd >= 0 && fstat(fd, &st) == 0 && stat("/bin/sleep", &want) == 0)
			r = st.st_size == want.st_size && st.st_ino == map->inode ? 0 : -3;
		if (fd >= 0)
			close(fd);
	}
	msp_maps_free(&maps);
	return r;
}

static int without_admin(void *arg);

static void test_files(void **state)
{
	struct program program;

	start_program(&program, "a b\n(deleted) ;");
	assert_int_equal(check_open(&program, false), 0);
	assert_int_equal(in_child(without_admin, &program), 0);
	assert_string_equal(msp_process_cmdline(program.process), "sleep 60 0");
	assert_string_equal(msp_process_comm(program.process), "a b\n(deleted) ;");
	assert_int_equal(msp_process_bits(program.process), 64);
	end_program(&program);
}

/* No CAP_SYS_ADMIN, no CAP_CHECKPOINT_RESTORE: map_files is closed. */
static int drop_admin(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		return -1;
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	data[1].effective &= ~(1u << (40 - 32));
	return syscall(SYS_capset, &header, data);
}

static int without_admin(void *arg)
{
	struct program *program = arg;

	return drop_admin() < 0 ? 9 : check_open(program, false) ? 1 : 0;
}

static int deleted_without_admin(void *arg)
{
	struct program *program = arg;

	return drop_admin() < 0 ? 9 : check_open(program, true) ? 1 : 0;
}

static void test_deleted(void **state)
{
	struct program program;

	start_program(&program, "gone");
	unlink(program.path);
	assert_int_equal(check_open(&program, true), 0);
	assert_int_equal(in_child(deleted_without_admin, &program), 0);
	/* Another file of that name is not taken for it. */
	copy_file("/bin/true", program.path);
	assert_int_equal(check_open(&program, true), 0);
	assert_int_equal(in_child(deleted_without_admin, &program), 0);
	end_program(&program);
}

static void test_replaced(void **state)
{
	struct msp_map map = {.start = 0x1000, .end = 0x2000, .prot = PROT_EXEC};
	struct child child;
	struct stat st;
	int fd;

	spawn(&child, sleep_forever);
	assert_int_equal(stat("/bin/sleep", &st), 0);
	map.dev_major = major(st.st_dev);
	map.dev_minor = minor(st.st_dev);
	map.inode = st.st_ino;
	map.name = "/bin/sleep";
	fd = msp_process_open_map(child.process, &map);
	assert_true(fd >= 0);
	close(fd);
	/* Another device is forgiven (overlayfs), another inode never. */
	map.dev_minor++;
	fd = msp_process_open_map(child.process, &map);
	assert_true(fd >= 0);
	close(fd);
	map.inode++;
	assert_int_equal(msp_process_open_map(child.process, &map), MSP_E_NOT_FOUND);
	map.name = "[heap]";
	assert_int_equal(msp_process_open_map(child.process, &map), MSP_E_NOT_FOUND);
	finish(&child);
}

/* A device that a process mapped is not opened, whatever it would do. */
static void map_device(struct shared *shared)
{
	int fd = open("/dev/zero", O_RDWR);

	if (fd < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		shared->errors++;
	sleep_forever(shared);
}

static void test_device(void **state)
{
	struct msp_maps maps;
	struct child child;
	int seen = 0;

	spawn(&child, map_device);
	assert_int_equal(child.shared->errors, 0);
	assert_int_equal(msp_process_maps(child.process, &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (!strcmp(maps.map[i].name, "/dev/zero") && !maps.map[i].deleted) {
			seen++;
			assert_int_equal(msp_process_open_map(child.process, &maps.map[i]),
					 MSP_E_NOT_FOUND);
		}
	assert_true(seen > 0);
	msp_maps_free(&maps);
	finish(&child);
}

/* ---- Another mount and pid namespace ---- */

static void test_namespace(void **state)
{
	struct program program = {.path = "/mnt/nsleep"};
	pid_t *pids = NULL, shell;
	int n = 0;

	if (geteuid() != 0)
		skip();
	shell = fork();
	if (shell == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("unshare", "unshare", "-mpf", "--kill-child", "--mount-proc", "sh", "-c",
		       "mount -t tmpfs t /mnt && cp /bin/sleep /mnt/nsleep && exec /mnt/nsleep 60",
		       NULL);
		_exit(1);
	}
	for (int i = 0; i < 3000 && n == 0; i++) {
		free(pids);
		pids = NULL;
		nap();
		n = msp_process_find("nsleep", &pids);
	}
	assert_int_equal(n, 1);
	program.pid = pids[0];
	free(pids);
	assert_int_equal(access("/mnt/nsleep", F_OK), -1);
	assert_int_equal(msp_process_open(program.pid, &program.process), 0);
	wait_for(check_open(&program, false) == 0);
	assert_int_equal(in_child(without_admin, &program), 0);
	assert_int_equal(msp_process_stop(program.process), 1);
	msp_process_resume(program.process);
	n = msp_process_children(shell, &pids);
	assert_int_equal(n, 1);
	assert_int_equal(pids[0], program.pid);
	free(pids);
	msp_process_close(program.process);
	kill(program.pid, SIGKILL);
	waitpid(shell, NULL, 0);
}

/* ---- Finding ---- */

static void test_find(void **state)
{
	struct program program;
	pid_t *pids, parent;
	int n, pipes[2];
	bool seen = false;

	start_program(&program, "moonspyfindme");
	assert_int_equal(msp_process_find("moonspyfindme", &pids), 1);
	assert_int_equal(pids[0], program.pid);
	free(pids);
	unlink(program.path);
	assert_int_equal(msp_process_find("moonspyfindme", &pids), 1);
	free(pids);
	assert_int_equal(msp_process_find("no such name", &pids), 0);
	free(pids);
	n = msp_process_find(NULL, &pids);
	for (int i = 0; i < n; i++) {
		assert_true(pids[i] != getpid());
		assert_true(!i || pids[i - 1] < pids[i]);
		seen |= pids[i] == program.pid;
	}
	assert_true(seen);
	free(pids);
	end_program(&program);

	assert_int_equal(pipe(pipes), 0);
	parent = fork();
	if (parent == 0) {
		for (int i = 0; i < 3; i++)
			if (fork() == 0) {
				if (i == 2)
					fork();
				if (write(pipes[1], "x", 1) == 1)
					pause();
			}
		pause();
	}
	for (char c, i = 0; i < 4; i++)
		assert_int_equal(read(pipes[0], &c, 1), 1);
	n = msp_process_children(parent, &pids);
	assert_int_equal(n, 4);
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	free(pids);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),	      cmocka_unit_test(test_parse_refuses),
		cmocka_unit_test(test_parse_mutated), cmocka_unit_test(test_many_mappings),
		cmocka_unit_test(test_files),	      cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_replaced),      cmocka_unit_test(test_device),
		cmocka_unit_test(test_namespace),     cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
