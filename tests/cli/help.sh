t moonspy
t moonspy help
t moonspy help record
t moonspy dump -h
t moonspy core -h
t moonspy report --help
t moonspy help traces
t moonspy help inspect
t moonspy help list
t moonspy help doctor
t moonspy record -p nonsense -h
t moonspy help nonsense
