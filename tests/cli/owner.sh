# What root writes on behalf of a user belongs to that user.
[ "$(id -u)" = 0 ] || skip "only root can give files away"
export SUDO_UID=12345 SUDO_GID=54321
t moonspy report a.msp -o mine.folded
t stat -c '%u:%g %a' mine.folded
export SUDO_UID=-1 SUDO_GID=0
t moonspy report a.msp -o root.folded
t stat -c '%u:%g' root.folded
