/* SPDX-License-Identifier: MIT */
#include "cli/sudo.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"

#define MAX_GROUPS 1024

bool cli_sudo_caller(struct cli_caller *caller)
{
	const char *uid_text = getenv("SUDO_UID"), *gid_text = getenv("SUDO_GID");
	uint64_t uid, gid;

	if (geteuid() != 0 || !uid_text || !gid_text)
		return false;
	/* (uid_t)-1 means "leave as it is" to the system calls that get it */
	if (!cli_parse_number(uid_text, 1, UINT_MAX - 1, &uid) ||
	    !cli_parse_number(gid_text, 0, UINT_MAX - 1, &gid))
		return false;
	caller->uid = (uid_t)uid;
	caller->gid = (gid_t)gid;
	return true;
}

/*
 * The passwd and group files are read directly: getpwuid() and initgroups()
 * load libraries at run time, which a static program cannot rely on. The entry
 * is good until the next call.
 */
static const struct passwd *user_entry(uid_t uid)
{
	FILE *file = fopen("/etc/passwd", "re");
	struct passwd *entry = NULL;

	while (file && (entry = fgetpwent(file)) && entry->pw_uid != uid)
		;
	if (file)
		fclose(file);
	return entry;
}

const char *cli_user_name(uid_t uid, char *buf, size_t size)
{
	const struct passwd *entry = user_entry(uid);

	if (entry)
		snprintf(buf, size, "%s", entry->pw_name);
	else
		snprintf(buf, size, "%u", uid);
	return buf;
}

static size_t groups_of(const char *name, gid_t *groups, size_t max)
{
	FILE *file = fopen("/etc/group", "re");
	struct group *entry;
	size_t n = 0;

	while (file && n < max && (entry = fgetgrent(file))) {
		for (char **member = entry->gr_mem; *member; member++) {
			if (!strcmp(*member, name)) {
				groups[n++] = entry->gr_gid;
				break;
			}
		}
	}
	if (file)
		fclose(file);
	return n;
}

int cli_sudo_drop(const struct cli_caller *caller)
{
	gid_t groups[MAX_GROUPS] = {caller->gid};
	const struct passwd *entry = user_entry(caller->uid);
	size_t n = 1;

	if (entry) {
		setenv("HOME", entry->pw_dir, 1);
		setenv("USER", entry->pw_name, 1);
		setenv("LOGNAME", entry->pw_name, 1);
		setenv("SHELL", entry->pw_shell, 1);
		n += groups_of(entry->pw_name, groups + 1, MAX_GROUPS - 1);
	}
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
	unsetenv("SUDO_USER");
	unsetenv("SUDO_COMMAND");
	/* All three ids, or the command could take root back. */
	if (setgroups(n, groups) || setresgid(caller->gid, caller->gid, caller->gid) ||
	    setresuid(caller->uid, caller->uid, caller->uid))
		return -1;
	if (setuid(0) == 0) {
		errno = EPERM;
		return -1;
	}
	return 0;
}
