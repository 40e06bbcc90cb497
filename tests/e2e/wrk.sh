#!/bin/sh
# SPDX-License-Identifier: MIT
# wrk with a Lua script against an nginx of our own on the loopback interface.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
PATH=$PATH:/usr/sbin
need wrk nginx
port=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
cat >"$work/nginx.conf" <<-END
	daemon off;
	worker_processes 1;
	pid $work/nginx.pid;
	error_log $work/error.log;
	events { worker_connections 64; }
	http {
		access_log off;
		client_body_temp_path $work/body;
		proxy_temp_path $work/proxy;
		fastcgi_temp_path $work/fastcgi;
		uwsgi_temp_path $work/uwsgi;
		scgi_temp_path $work/scgi;
		keepalive_requests 1000000;
		server {
			listen 127.0.0.1:$port;
			location / { return 200 "hello from a small server, with a text that is not empty\n"; }
		}
	}
END
start "$work/nginx" nginx -p "$work" -e "$work/error.log" -c "$work/nginx.conf"
server=$!
for _ in $(seq 50); do
	python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null && break
	sleep 0.1
done
cd "$workloads"
record "$work/p" -- wrk -t 2 -c 4 -d "${SECONDS_EACH:-5}s" -s wrk.lua "http://127.0.0.1:$port/"
grep -q "Requests/sec" "$work/p.out" || fail "wrk did not finish: $(cat "$work/p.out")"
! grep -q "Non-2xx" "$work/p.out" || fail "wrk met errors: $(cat "$work/p.out")"
check wrk "$work/p" --graph "$workloads/wrk.graph" --min-whole 99.5 --inlined-hidden \
	--contains '{thread};{any}.*request \([^;]*wrk.lua:[0-9]+\)=5'
stop "$server"
finish
