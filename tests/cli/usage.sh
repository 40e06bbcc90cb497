t moonspy nonsense
t moonspy --nonsense
t moonspy record
t moonspy record luajit app.lua
t moonspy record 4711
t moonspy dump 4711
t moonspy inspect 4711
t moonspy traces 4711
t moonspy record --
t moonspy record --nonsense=3 -p 1
t moonspy record -Z
t moonspy dump -p 1 --rate 5
t moonspy record -p
t moonspy record -p -- true
t moonspy record --lua=yes -p 1
t moonspy report
t moonspy inspect
t moonspy traces
t moonspy traces -p 1,2
t moonspy traces -p 1 --exe /bin/true
t moonspy traces -p 1 --annotate 0
t moonspy core
t moonspy core a b
t moonspy inspect -p 1 /bin/true
t moonspy list everything
t moonspy doctor -p 1,2
