# Where writing fails: said, with a status, and nothing half-written stays.
export TMPDIR=$PWD/spare
mkdir spare
moonspy report a.msp -f folded -o /dev/full 2>&1 | sed 's/full-[0-9-]*/full-TIME/; s|[^ ]*/spare|SPARE|'
t ls -A
cat spare/full-*.folded | head -n 1
moonspy report a.msp -f folded -o - >/dev/full 2>/dev/null
echo "status $?"
t ls -A
moonspy help >/dev/full
echo "status $?"
# A reader that goes away is no crash.
(
	sleep 0.2
	moonspy report a.msp -f folded -o - 2>log
	echo "status $?" >>log
) | true
cat log
