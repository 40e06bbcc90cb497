# Every option of every verb, from the table that help prints, with values that make no sense; every
# pair of targets; endings that are no format's. Each is refused with 2, in three parts, and leaves no file.
refused() {
	"$moonspy" "$@" >out 2>err
	status=$?
	count=$((count + 1))
	[ $status = 2 ] || { echo "status $status: moonspy $*"; cat err; }
	[ ! -s out ] || echo "says something on standard output: moonspy $*"
	if [ "$(wc -l <err)" != 3 ] || ! sed -n 1p err | grep -q '^moonspy: ..*' ||
		! sed -n 2p err | grep -q '^    why: ..*' || ! sed -n 3p err | grep -q '^    try: ..*'; then
		echo "not in three parts: moonspy $*"
		cat err
	fi
}

count=0
verbs=$("$moonspy" help | sed -n 's/^ *moonspy \([a-z]*\) .*/\1/p; s/^  \([a-z][a-z]*\)  .*/\1/p' | sort -u)
for verb in $verbs; do
	"$moonspy" help "$verb" >help.txt 2>/dev/null || continue
	case $verb in
	record | dump) rest="-p 1" ;;
	report) rest=a.msp ;;
	core) rest=core ;;
	inspect | traces) rest="-p 1" ;;
	*) rest= ;;
	esac
	# "-x, --name ARG" or "--name"; an option with an argument has a word in capitals, or choices.
	sed -n 's/^ *\(-[a-zA-Z], \)\{0,1\}--\([a-z-]*\)\( \([^ ]*\)\)\{0,1\} .*/\2 \4/p' help.txt >options.txt
	[ -s options.txt ] || echo "no options in the help of $verb"
	while read -r name arg; do
		if [ -z "$arg" ]; then
			refused $verb $rest "--$name=1"
			continue
		fi
		refused $verb $rest "--$name"
		refused $verb $rest "--$name="
		case $arg in
		PID* | TIME | HZ | NUMBER) bad="-1 0 x 1x 99999999999999999999 0x1 1;2" ;;
		EVENT | FORMAT | *\|*) bad="x wall,cpu HTML -" ;;
		*) bad= ;;
		esac
		for value in $bad; do
			refused $verb $rest "--$name=$value"
			refused $verb $rest "--$name" "$value"
		done
	done <options.txt
	for option in --nonsense -Z --pids=1 ---lua --n; do
		refused $verb $rest $option
	done
done
for pair in "-p 1 -N x" "-p 1 -a" "-N x -a" "-p 1 -- true" "-N x -- true" "-a -- true"; do
	# shellcheck disable=SC2086
	refused record $pair
done
for pair in "-p 1 -N x" "-p 1 -a" "-N x -a" "-a -s" "-p 1 -qv"; do
	# shellcheck disable=SC2086
	refused dump $pair
done
for ending in png htmls msp.gz pb .msp. folded.txt; do
	refused record -p 1 -o "x.$ending"
	refused report a.msp -o "x.$ending"
done
refused record -p 1 -o x -f nonsense
refused record -p 1 --lua --native
refused record -p 1 -q -v
refused record -a -s
refused record -a --engine=ptrace
refused record -p 1 -o x.json -f folded
for word in nonsense --nonsense '' - -- 'record ' Record; do
	refused "$word"
done
refused help nonsense
refused record
refused record --
refused record x
refused dump
refused dump x
refused report
refused core
refused traces
refused traces -p 1 core
refused traces a b
refused traces -p 1,2
refused traces -p 1 --annotate 65536
refused traces -p 1 --exe /bin/true
refused core a b
refused inspect
refused inspect a b
refused inspect -p 1 a
refused list x
refused doctor x
refused doctor -p 1,2
rm -f out err help.txt options.txt
ls | grep -v '\.msp$'
[ $count -gt 300 ] || echo "only $count were tried: has the help's form changed?"
