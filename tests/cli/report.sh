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
# Profiles of Tarantool's sysprof: whole, cut off, damaged.
printf 'ljs\3\0\0\0\0\2\7@fib.lu\3\1\20\4main\1\40\11lua_pcall\200ljp\2\0\0\0\1\1\2\3\200\41\21\0\0\21\0' >cut.bin
{ cat cut.bin; printf '\200'; } >sysprof.bin
{ cat cut.bin; printf '\15\0\21\0\200'; } >damaged.bin
t moonspy report sysprof.bin -f folded -o -
t moonspy report - -f folded -o - <sysprof.bin
t moonspy report cut.bin -f folded
t moonspy report damaged.bin sysprof.bin -f folded -o sum.folded
t cat sum.folded
printf 'ljs\3\0\0\0\200ljm\3\0\0\0' >memory.bin
t moonspy report memory.bin -f folded -o -
