# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the guests of part `sockets` do: programs of others that use TCP sockets, with Berth's library preloaded in both
# guests (`both`), or only in the one that listens or connects. The functions are those of ci/verbs/guest.sh.

library=/usr/lib/x86_64-linux-gnu/libberth_sockets.so
log=/tmp/berth-sockets.log
# No host is slower than a simulated one.
berth="env LD_PRELOAD=$library BERTH_SOCKETS_LOG=$log BERTH_SOCKETS_TIMEOUT=20000"
# Who has the library in a test: both, server or client.
how=both
# Interpreters begin slowly on a simulated host.
limit=1200

# Runs a command, with the library if this guest is to have it: `by server` or `by client`.
by() {
    if [ $how = both ] || [ $how = "$1" ]; then echo "$berth"; fi
}

# Runs a test. In both guests Berth must have carried its connections then, and none otherwise.
carries() {
    rm -f $log
    "$@"
    cat $log 2>/dev/null || true
    if [ $how = both ]; then
        has 'berth 192.0.2.[12]:[0-9]+ 192.0.2.[12]:[0-9]+ sent' < $log
    else
        ! grep ': berth ' $log 2>/dev/null
    fi
}

# A test with the library in both guests, and in one: its name, which one, and a command.
twice() {
    test=$1
    one=$2
    shift 2
    for how in both "$one"; do
        check "${test}_$how" carries "$@"
    done
    how=both
}

# Bytes in the share, the same for both guests: $1 of them, in a file of that name.
bytes() {
    [ "$role" = b ] || [ -e "$share/bytes.$1" ] || head -c "$1" /dev/urandom > "$share/bytes.$1"
}

# A server that does not end by itself: $1 in guest a, and in guest b function $2.
serve() {
    if [ "$role" = a ]; then
        timeout -k 5 $limit sh -c "exec $1" &
        program=$!
        until listening_or_ended $program; do sleep 0.1; done
        : > "$share/$name.listens"
        meet "$name.done"
        kill $program
        wait $program || true
    else
        until [ -e "$share/$name.listens" ] || other_failed; do sleep 0.1; done
        $2
        meet "$name.done"
    fi
}

# It gives the other direction half a second after the first has ended, if nothing says more.
# A file one way, from the client, and another one back.
file() {
    bytes 300000
    bytes 4097
    meet "$name.bytes"
    pair "$(by server) socat -t 60 TCP-LISTEN:$port,reuseaddr OPEN:$share/bytes.4097,rdonly!!OPEN:/tmp/got,creat,trunc" \
        "$(by client) socat -t 60 TCP:$peer:$port OPEN:$share/bytes.300000,rdonly!!OPEN:/tmp/got,creat,trunc"
    if [ "$role" = a ]; then cmp "$share/bytes.300000" /tmp/got; else cmp "$share/bytes.4097" /tmp/got; fi
}

# Each connection is another program's, which a child of the server becomes.
executed() { serve "$(by server) socat -t 60 TCP-LISTEN:$port,reuseaddr,fork EXEC:'tr a-z A-Z'" upper; }

upper() {
    for word in small letters; do
        $(by client) sh -c "echo $word | socat -t 60 - TCP:$peer:$port" >> /tmp/upper
    done
    [ "$(cat /tmp/upper)" = "SMALL
LETTERS" ]
    rm /tmp/upper
}

measured() {
    pair "$(by server) iperf3 -s -1 -p $port" "$(by client) iperf3 -c $peer -p $port -n 200K -l 16K $*"
}

web() { serve "$(by server) python3 -m http.server -d $share $port" fetch; }

# All by one program, but by a connection each.
fetch() {
    urls=
    for n in $sizes; do urls="$urls -o /tmp/got.$n http://$peer:$port/bytes.$n"; done
    # shellcheck disable=SC2086
    $(by client) curl -sS $urls
    for n in $sizes; do cmp "$share/bytes.$n" "/tmp/got.$n"; done
}

redis() { serve "$(by server) redis-server --port $port --bind 0.0.0.0 --protected-mode no --save ''" benchmark; }

benchmark() {
    $(by client) redis-benchmark -h "$peer" -p $port -n 20 -c 4 -d 100 -q -t set,get,lpush,lrange_100 > /tmp/benchmark
    cat /tmp/benchmark
    $(by client) redis-cli -h "$peer" -p $port -x set bytes < "$share/bytes.4097"
    $(by client) redis-cli -h "$peer" -p $port get bytes > /tmp/got
    # It ends a reply with a line's end.
    head -c 4097 /tmp/got | cmp - "$share/bytes.4097"
}

mirrored() {
    cat > /tmp/rsyncd.conf <<CONF
[bytes]
path = $share
use chroot = no
uid = 0
CONF
    serve "$(by server) rsync --daemon --no-detach --port $port --config /tmp/rsyncd.conf" mirror
}

mirror() {
    mkdir /tmp/mirror
    $(by client) rsync -a "rsync://$peer:$port/bytes/bytes.*" /tmp/mirror
    for file in "$share"/bytes.*; do cmp "$file" "/tmp/mirror/${file##*/}"; done
    rm -r /tmp/mirror
}

cached() { serve "$(by server) memcached -u root -l $own -p $port -U 0" keep; }

keep() {
    {
        printf 'set key 0 0 4097\r\n'
        cat "$share/bytes.4097"
        printf '\r\nget key\r\nquit\r\n'
    } > /tmp/request
    $(by client) socat -t 60 "TCP:$peer:$port" - < /tmp/request > /tmp/got
    head -n 2 /tmp/got | has STORED 'VALUE key 0 4097'
    tail -c +27 /tmp/got | head -c 4097 | cmp - "$share/bytes.4097"
}

# Python's: $1 in the server, $2 in the client, $3 connections at once, $4 bytes of each.
python() {
    pair "$(by server) python3 $share/sockets.py serve $1 $port $3" \
        "$(by client) python3 $share/sockets.py call $2 $peer $port $3 $4"
}

# A port that the user has left out.
excluded() {
    rm -f $log
    all=$berth
    berth="$berth BERTH_SOCKETS_PORTS=!$port"
    python threads plainly 1 1000
    [ "$role" = a ] || has "tcp to $peer:$port: by the rules" < $log
    berth=$all
}

some=$filter
filter=
check ap_3_the_card_has_an_address address
filter=$some
for n in 0 1 4097 300000; do bytes $n; done
sizes='0 1 4097 300000'
p=plainly
check ap_3_servers_of_many_kinds carries python threads,fork,prefork,select,poll,epoll,edge $p,$p,$p,$p,$p,$p,$p 2 20000
check ap_3_python_server_whose_parent_has_ended carries python orphan in-turn 1 1000
check ap_3_what_else_sockets_do carries python threads,threads oddly,urgently 2 5000
# A process may have 48 queue pairs: the other connections are TCP's.
idle=24
if [ "$long" = true ]; then idle=52; fi
check ap_3_idle_connections_take_little carries python idle idly $idle 0
check ap_3_resets_and_kills carries python broken and-break 4 20000
check ap_3_a_port_is_left_out excluded
twice ap_3_socat server file
twice ap_3_socat_exec client executed
twice ap_3_iperf3 server measured
check ap_3_iperf3_reverse_streams carries measured -R -P 3 -B $own
twice ap_3_http_server_and_curl client web
if [ "$long" = true ]; then
    bytes 4194304
    sizes=4194304
    check ap_3_http_server_and_curl_4_mib carries web
fi
twice ap_3_redis server redis
twice ap_3_rsync client mirrored
twice ap_3_memcached server cached
twice ap_3_python_asyncio client python asyncio asyncio 4 50000
exit 0
