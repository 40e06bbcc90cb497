t moonspy report a.msp -o out.folded
t moonspy report b.msp -o out.folded
t moonspy report b.msp -o out.folded --force
t cat out.folded
t moonspy report a.msp -o out.nonsense
t moonspy report a.msp -o out.nonsense -f folded
t moonspy report a.msp -o nowhere/out.folded
mkdir folder.folded
t moonspy report a.msp -o folder.folded
echo precious >file
ln -s file link.folded
t moonspy report a.msp -o link.folded
t moonspy report a.msp -o link.folded --force
t cat file
t stat -c '%F' link.folded
(umask 027 && moonspy report a.msp -o mask.folded)
t stat -c '%a' mask.folded
t moonspy report a.msp -f folded -o /dev/null
t moonspy report a.msp -f folded -o /dev/stdout
t moonspy report a.msp -f folded -o /dev/fd/1
mkfifo pipe
cat pipe &
t moonspy report a.msp -f folded -o pipe
wait
t ls -A
