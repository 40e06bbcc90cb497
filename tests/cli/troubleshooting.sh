# Every error has an entry in docs/troubleshooting.md, under its text. What the
# text is filled with is %s in the source and a word in capitals there.
sed -n 's/^## //p' "$cases/../../docs/troubleshooting.md" |
	sed -E "s/'?\b[A-Z][A-Z]+\b'?/X/g" | sort -u >entries
cat "$cases"/../../src/cli/*.c | tr '\n\t' '  ' |
	grep -oE 'cli_error\( *(cli_fmt\( *)?"[^"]*"' | sed -E 's/^[^"]*"//; s/"$//' |
	sed -E "s/'?%[0-9.]*[a-z]+'?/X/g; s/'?%\.\*s'?/X/g; s/'?\b[A-Z][A-Z]+\b'?/X/g" |
	sort -u >errors
comm -13 entries errors | grep -v 'not there yet'
:
# Every reason and every second way is explained, by its text.
texts() {
	sed -n "/define $1/,/^\$/p" "$cases/../../include/moonspy/frame.h" | sed -n 's/^\t_([A-Z_]*, "\(.*\)").*/\1/p'
}
texts MSP_ERROR_REASONS | grep -v '^none$\|^truncated$' >reasons
texts MSP_WAYS >ways
[ -s reasons ] && [ -s ways ] || echo "no reasons"
while read -r text; do
	grep -qF "\`$text\`" "$cases/../../docs/troubleshooting.md" || echo "$text"
done <reasons
while read -r text; do
	grep -qF "| $text |" "$cases/../../docs/oracle.md" || echo "$text"
done <ways
# Every variable that is read has an entry in the man page; MOONSPY_BPF_LOG is for who changes moonspy.
cat "$cases"/../../src/*/*.c | grep -oE 'getenv\("[A-Z_]+' | sed 's/.*"//' | sort -u | grep -v MOONSPY_BPF_LOG >variables
[ -s variables ] || echo "no variables"
while read -r name; do
	grep -qw -- "$name" "$cases/../../src/cli/man.c" || echo "$name"
done <variables
:
