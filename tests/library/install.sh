#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: install.sh BUILD: installed somewhere, a stranger's program finds it by pkg-config, shared and static, in C and C++.
set -eu
build=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
DESTDIR=$work meson install -C "$build" --no-rebuild --quiet
lib=$(dirname "$(find "$work" -name libmoonspy.a)")
prefix=$(dirname "$(dirname "$(find "$work" -path '*/moonspy/moonspy.h')")")
sed -i "s|^prefix=.*|prefix=${prefix%/include}|; s|^includedir=.*|includedir=$prefix|; s|^libdir=.*|libdir=$lib|" \
	"$lib/pkgconfig/moonspy.pc"
export PKG_CONFIG_PATH="$lib/pkgconfig"
cat >"$work/stranger.c" <<END
#include <moonspy/moonspy.h>
#include <stdio.h>
int main(void)
{
	struct msp_target *target;

	if (msp_target_new(NULL, &target) || msp_target_open_self(target))
		return 1;
	puts(msp_target_info(target)->name);
	msp_target_free(target);
	return 0;
}
END
cp "$work/stranger.c" "$work/stranger.cc"
# shellcheck disable=SC2046
cc -Wall -Werror -o "$work/shared" "$work/stranger.c" $(pkg-config --cflags --libs moonspy)
[ "$(LD_LIBRARY_PATH=$lib "$work/shared")" = shared ]
# shellcheck disable=SC2046
cc -o "$work/static" "$work/stranger.c" -Wl,-Bstatic -L"$lib" -l:libmoonspy.a -Wl,-Bdynamic \
	$(pkg-config --cflags moonspy) $(pkg-config --static --libs-only-l moonspy | sed 's/-lmoonspy//')
[ "$("$work/static")" = static ]
if command -v c++ >/dev/null; then
	# shellcheck disable=SC2046
	c++ -Wall -Werror -fsyntax-only "$work/stranger.cc" $(pkg-config --cflags moonspy)
fi
# Nothing but public names is seen in the static library.
nm -g --defined-only "$lib/libmoonspy.a" | sed -n 's/.* [A-Z] //p' | sort >"$work/names"
sed -n 's/^\t\(msp_.*\);$/\1/p' "$(dirname "$0")/../../src/library/moonspy.map" | sort >"$work/wanted"
diff "$work/names" "$work/wanted"
