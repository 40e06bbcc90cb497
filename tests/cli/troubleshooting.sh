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
