/* SPDX-License-Identifier: MIT */
/* Who asked, when root runs on behalf of a user. */
#ifndef CLI_SUDO_H
#define CLI_SUDO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct cli_caller {
	uid_t uid;
	gid_t gid;
};

/* True if this is root, started by sudo from another user's session. */
bool cli_sudo_caller(struct cli_caller *caller);

/*
 * Becomes the calling user for good: groups, ids, HOME, USER, LOGNAME. 0, or -1
 * with errno.
 */
int cli_sudo_drop(const struct cli_caller *caller);

/* Login name of a user, its number if it has none in /etc/passwd. Returns buf. */
const char *cli_user_name(uid_t uid, char *buf, size_t size);

#endif
