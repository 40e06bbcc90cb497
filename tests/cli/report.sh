t moonspy report a.msp -o -
t moonspy report a.msp b.msp -f folded -o -
t moonspy report a.msp b.msp -f folded -o - -p 200
t moonspy report a.msp b.msp -f folded -o - -p 300
# What says of which recording it is stays.
moonspy report a.msp b.msp -o some.msp -p 200
grep -ac c0ffee some.msp
moonspy report some.msp -o - -f json | grep '"command"'
rm some.msp
t moonspy report a.msp -f folded -o - --lua
t moonspy report a.msp -f folded -o - --native --no-kernel
t moonspy report a.msp -f folded -o - --lines
t moonspy report -f folded -o - -- a.msp
t moonspy report a.msp -f folded
t cat a.folded
t moonspy report a.msp b.msp -o sum.msp
t moonspy report sum.msp -f folded -o - --stats
t moonspy report missing.msp -f folded -o -
echo nonsense >bad.msp
t moonspy report bad.msp -f folded -o -
t moonspy report a.msp bad.msp -f folded
t ls
