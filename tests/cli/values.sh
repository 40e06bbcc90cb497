for value in '' 0 -1 x 1,,2 1,x 4194305 99999999999999999999; do
	t moonspy record -p "$value"
done
for value in '' 0 -5s 5x 1e9 0.0001s 100000000h 1.2.3s nan .5s; do
	t moonspy record -p 1 -d "$value"
done
for value in '' 0 -1 99.5 100001 0x10 ' 9'; do
	t moonspy record -p 1 -r "$value"
done
t moonspy record -p 1 -e wall
t moonspy record -p 1 --engine gdb
t moonspy record -p 1 -f png
t moonspy record -p 1 -o ''
t moonspy record -N ''
