# dump and inspect where there is nothing to see.
t moonspy dump -p 4194303
t moonspy dump -p 4194303 -j
t moonspy dump -N 'no such name'
t moonspy inspect -p 4194303
t moonspy inspect nothing.there
echo text >text
t moonspy inspect text
t moonspy inspect /dev/null
t moonspy doctor -p 4194303 | grep -E '4194303|status'
touch 4711
t moonspy inspect 4711
t moonspy traces -p 4194303
t moonspy traces nothing.there
t moonspy traces text
t moonspy core nothing.there
t moonspy core text
t moonspy core /bin/true
ln -s /bin/true native
t moonspy inspect native
t moonspy inspect native -j
sleep 60 &
sleeper=$!
until grep -q '^sleep' /proc/$sleeper/cmdline; do :; done
t moonspy dump -q -p $sleeper | sed -E "s/$sleeper/PID/; s/0x[0-9a-f]+/ADDRESS/" | grep -E '^(Process|Thread)'
t moonspy inspect -p $sleeper 2>&1 | sed "s/$sleeper/PID/"
t moonspy traces -p $sleeper 2>&1 | sed "s/$sleeper/PID/"
t moonspy traces -p $sleeper --samples nothing.there 2>&1 | sed "s/$sleeper/PID/"
t moonspy traces -p $sleeper --samples text 2>&1 | sed "s/$sleeper/PID/"
kill $sleeper
