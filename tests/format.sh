#!/bin/sh
# SPDX-License-Identifier: MIT
# All C files are as .clang-format says.
cd "$(dirname "$0")/.." || exit 1
command -v clang-format-14 >/dev/null || { echo "skip: clang-format-14 is not installed"; exit 77; }
exec make -s check-format
