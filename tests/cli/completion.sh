# The completion for bash, asked as bash would.
[ -r "$completions/moonspy" ] || skip "no completion was built"
command -v bash >/dev/null || skip "there is no bash"
cat >ask <<'END'
compopt() { :; }
. "$completions/moonspy"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_moonspy moonspy "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]}"
END
t bash ask moonspy ''
t bash ask moonspy re
t bash ask moonspy help in
t bash ask moonspy record --l
t bash ask moonspy record --engine ''
t bash ask moonspy record -f ms
t bash ask moonspy report a.
if command -v zsh >/dev/null; then
	zsh -n "$completions/_moonspy" 2>&1
fi
if command -v fish >/dev/null; then
	fish -n "$completions/moonspy.fish" 2>&1
fi
