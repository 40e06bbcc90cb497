t moonspy record -p 1 -N nginx
t moonspy record -a -p 1
t moonspy record -p 1 -- true
t moonspy dump -a -N nginx
t moonspy record -p 1 --lua --native
t moonspy record -p 1 -qv
t moonspy record -as
t moonspy record -a --engine=ptrace
t moonspy report a.msp -f folded -o a.json
t moonspy report a.msp -o a.html -f msp
