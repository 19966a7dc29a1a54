# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the guests of parts `verbs` and `verbs-rxe` do: programs of others use the card. In the environment: `role` (a or b),
# `filter`, which the names of the tests that run contain, `long` (true or false), and `rxe`: whether guest b has Linux' soft
# RoCE on another network device in place of a card.
#
# Nothing passes or fails by the time that it takes. The limit of a program is there for one that hangs.

share=/mnt/share
device=berth0
netdev=eth0
if [ "$rxe$role" = trueb ]; then device=rxe0; fi
card=/sys/kernel/debug/berth/$device
# Which guest waits for the other's program.
server=a
limit=1200
case $role in
a) number=1 other=b ;;
b) number=2 other=a ;;
esac
own=192.0.2.$number
peer=192.0.2.$((3 - number))
export PYTHONDONTWRITEBYTECODE=1
# Of the test that runs.
name=
number_of_test=0
# Bytes of messages: one, all of a packet, one more than some packets, many packets.
sizes='1 63 1024 4097 100000'

# Waits until the other guest is here as well, or has failed in this test.
meet() {
    : > "$share/$1.$role"
    until [ -e "$share/$1.$other" ] || other_failed; do sleep 0.2; done
}

other_failed() { [ -e "$share/$name.failed.$other" ]; }

# Waits until a command succeeds, for as long as something that is sure to happen may take.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -gt 6000 ]; then
            echo "still not: $*"
            return 1
        fi
        sleep 0.1
    done
}

# Counters that nothing here may move, one line each: frames that are lost or damaged, and what a sound program and a sound
# driver do not do. It is no loss when cards that meet for the first time say so twice, or when packets are sent again: a
# foreign queue pair has no receive for them, or has not heard of an answer in time. Then the program may have gone, with
# its queue pair and its memory (RX_CORE_FULL, PAGE_FAULTS).
losses() {
    grep -E "^[CFD]_(RX_(TRUNCATED|OVERSIZED|MAC_ERROR|BAD_ICRC)|DMA_(NO_TRANSLATION|HOST_ERROR|TIMEOUTS|UNEXPECTED)|DOORBELL_(DENIED|MALFORMED)|BAR_BAD_ACCESS|CMD_BAD|CQ_OVERRUN|LISTS_REFUSED|FP_(BAD_WQE|BAD_ACKS)|RAW_(BAD|TOO_LONG)|NO_CREDIT|BAD_(OPCODE|HEADER|INDEX|COMMAND|EVENTS)|CONTROL_BAD|LIST_REFUSED|WITHDRAWN|PEERS_LOST|ACCESS_REFUSED|FENCE_TIMEOUTS|RESETS|HEARTBEAT_LOST) " \
        "$card/counters" | grep -Ev "^[CFD]_(${trespasses:-none}) "
}

# Whether nothing of any program is left on the card.
nothing_left() {
    ! grep -E '^D_(PINNED|QPS|CQS|CONTEXTS|KEYS) ' "$card/counters" | grep -qv ' 0$'
}

# After a test: what it must not leave behind. $1: the losses before it.
clean() {
    [ -e "$card" ] || return 0
    await nothing_left || grep -E '^D_(PINNED|QPS|CQS|CONTEXTS|KEYS) ' "$card/counters"
    losses > /tmp/losses
    if [ "$1" != "$(cat /tmp/losses)" ]; then
        echo "counters that should have stayed, before and after:"
        echo "$1" | diff - /tmp/losses
    fi
    nothing_left && [ "$1" = "$(cat /tmp/losses)" ]
}

# A test of its own in the report: its name, a command and the command's arguments. What the command has printed is shown
# if it fails. A guest whose command fails has the other's program end, too.
check() {
    name=$1
    shift
    case $name in
    *"$filter"*) ;;
    *) return 0 ;;
    esac
    number_of_test=$((number_of_test + 1))
    port=$((18000 + number_of_test))
    echo "test $name begins"
    read -r begun rest < /proc/uptime
    before=$(losses 2>/dev/null)
    rm -f /tmp/figures
    # As a command by itself, or `set -e` would not count in it.
    (set -e; "$@") > /tmp/output 2>&1
    result=$?
    [ $result = 0 ] || : > "$share/$name.failed.$role"
    meet "$name.over"
    clean "$before" >> /tmp/output 2>&1 || result=1
    read -r now rest < /proc/uptime
    words=ok
    [ $result = 0 ] || words=FAILED
    echo "test $name ... $words ($(echo "$now $begun" | awk '{ printf "%.1f", $1 - $2 }') s)"
    [ $result = 0 ] || tail -n 60 /tmp/output | sed 's/^/    /'
    [ ! -e /tmp/figures ] || sed 's/^/    /' /tmp/figures
}

# Waits for a program, and ends it when the other guest has failed.
end_of() {
    (
        until other_failed; do sleep 0.3; done
        kill "$1"
    ) 2>/dev/null &
    watch=$!
    ended=0
    wait "$1" || ended=$?
    kill $watch 2>/dev/null || true
    return $ended
}

# Whether somebody listens on a TCP port.
listens() { grep -Eqs "$(printf ':%04X 0+:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6; }

# Whether somebody listens on a port of the connection manager of RDMA.
listens_cm() { rdma resource show cm_id | grep -q "LISTEN .*:$1 "; }

# Whether somebody listens on the test's port, or will not any more: process $1 has ended.
listening_or_ended() {
    ${by:-listens} "$port" || ! grep -qs '^State:.[^Z]' "/proc/$1/status"
}

# What the guests do together: $1 in the server, which then listens on $port, and $2 in the other guest once it does.
pair() {
    if [ "$role" = "$server" ]; then
        timeout -k 5 $limit sh -c "exec $1" &
        program=$!
        until listening_or_ended $program; do sleep 0.1; done
        : > "$share/$name.listens"
    else
        until [ -e "$share/$name.listens" ] || other_failed; do sleep 0.1; done
        timeout -k 5 $limit sh -c "exec $2" &
        program=$!
    fi
    end_of $program
}

# A program whose two ends differ by the name of the peer alone, as Debian's do.
both() {
    pair "$*" "$* $peer"
}

# A counter of the card.
counter() { sed -n "s/^$1 //p" "$card/counters"; }

# Runs a command, whose connections must have had credit lists.
with_credits() {
    lists=$(counter C_LISTS_TAKEN)
    "$@"
    echo "credit lists: $lists before, $(counter C_LISTS_TAKEN) behind"
    [ "$(counter C_LISTS_TAKEN)" -gt "$lists" ]
}

# As `pair`, for programs that meet by the connection manager of RDMA.
pair_cm() {
    by=listens_cm
    pair "$@"
    by=
}

# Fails unless a text on standard input has each of the patterns.
has() {
    cat > /tmp/text
    for pattern; do
        if ! grep -Eq "$pattern" /tmp/text; then
            echo "there is no $pattern in:"
            cat /tmp/text
            return 1
        fi
    done
}

# Index of the GID of this guest's IPv4 address.
gid_index() {
    folder=/sys/class/infiniband/$device/ports/1
    for file in "$folder"/gids/*; do
        if [ "$(cat "$file" 2>/dev/null)" = "0000:0000:0000:0000:0000:ffff:c000:020$number" ]; then
            echo "${file##*/}"
            return 0
        fi
    done
    return 1
}

has_gid() { gid_index > /dev/null; }

# An ordinary network device becomes a device of both kinds as well.
soft_roce() {
    modprobe virtio_net
    modprobe rdma_rxe
    await [ -e "/sys/class/net/$netdev" ]
    rdma link add "$device" type rxe netdev "$netdev"
}

# The card is a device of both kinds, and has its GID from the address of the network device.
address() {
    ip link set lo up
    if [ $device = rxe0 ]; then soft_roce; fi
    # Room for the largest path MTU of RoCE. The other make has what is usual.
    if [ "$rxe" = true ]; then mtu=1500; else mtu=4200; fi
    ip link set "$netdev" mtu $mtu up
    ip addr add "$own/24" dev "$netdev"
    await has_gid
    await grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state"
}

list() {
    ibv_devices | has "^ +$device"
    ibv_devinfo -v -d "$device" | has "hca_id:.$device" 'PORT_ACTIVE' 'link_layer:.*Ethernet' 'GID.*::ffff:192.0.2.'"$number"', RoCE v2' \
        'atomic_cap:.*ATOMIC_(HCA|GLOB)' 'ODP' 'SUPPORT_SEND' 'SUPPORT_WRITE' 'SUPPORT_READ'
    rdma link show | has "link $device/1 .*state ACTIVE .*netdev $netdev"
    rdma dev show | has "$device:"
    # QP 1 is the kernel's.
    rdma resource show | has "$device: .*qp 1 cm_id 0 mr 0 ctx 0"
}

pingpong() {
    both "ibv_rc_pingpong -d $device -g $gid -p $port -c $*"
}

# With every kind of packet.
pingpong_sizes() {
    for size in $sizes; do
        pingpong "-e -n 3 -r 4 -s $size"
        meet "$name.$server.$size"
        rm -f "$share/$name.listens"
        meet "$name.$server.$size.again"
    done
}

# Several queue pairs with one receive queue.
srq_pingpong() {
    both "ibv_srq_pingpong -d $device -g $gid -p $port $*"
}

# Datagrams have no other end that asks for lost ones again, but nothing is lost here.
datagrams() {
    both "ibv_ud_pingpong -d $device -g $gid -p $port $*"
}

# By the connection manager: QP 1, and what the kernel does by it.
rping_() { pair_cm "rping -s -v -C 3 -S 1000 -a $own -p $port" "rping -c -v -C 3 -S 1000 -a $peer -p $port"; }

ucmatose_() { pair_cm "ucmatose -b $own -p $port -C 4 -S 1000" "ucmatose -s $peer -p $port -C 4 -S 1000"; }

# It has a port of its own.
udaddy_() {
    port=7174
    pair_cm "udaddy -b $own -C 4 -S 1000" "udaddy -s $peer -C 4 -S 1000"
}

cmtime_() { pair_cm "cmtime -b $own -p $port -c 4" "cmtime -s $peer -p $port -c 4"; }

rstream_() { pair_cm "rstream -b $own -p $port -S 20000 -I 2 -C 2" "rstream -s $peer -p $port -S 20000 -I 2 -C 2"; }

riostream_() { pair_cm "riostream -b $own -p $port -S 20000 -I 2 -C 2" "riostream -s $peer -p $port -S 20000 -I 2 -C 2"; }

rdma_client_() { pair_cm "rdma_server -p $port" "rdma_client -s $peer -p $port"; }

# A file. The server serves one client after the other, and does not end.
rcopy_() {
    if [ "$role" = a ]; then
        rcopy -p "$port" > /tmp/rcopy 2>&1 &
        program=$!
        await listens_cm "$port"
        : > "$share/$name.listens"
        meet "$name.copied"
        kill $program
        cat /tmp/rcopy
        cmp "$share/copied" /tmp/copy
    else
        until [ -e "$share/$name.listens" ] || other_failed; do sleep 0.1; done
        head -c 300000 /dev/urandom > "$share/copied"
        timeout -k 5 $limit rcopy "$share/copied" "$peer:/tmp/copy" -p "$port"
        meet "$name.copied"
    fi
}

# The link goes and comes back, which the program is told.
asyncwatch() {
    stdbuf -oL ibv_asyncwatch -d "$device" > /tmp/events 2>&1 &
    program=$!
    await grep -q 'async' /tmp/events
    ip link set "$netdev" down
    await grep -Eiq 'port.*err' /tmp/events
    ip link set "$netdev" up
    await grep -Eiq 'port.*active' /tmp/events
    kill $program
    await has_gid
    await grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state"
}

# Tests of pyverbs, of modules or some in them: what has figures, and is refused.
pyverbs() {
    python3 "$share/suite.py" "$device" "$gid" /tmp/figures "$@"
}

measure() {
    program=$1
    shift
    both "$program -d $device -x $gid -p $port -F $*"
}

measure_cm() {
    program=$1
    shift
    by=listens_cm
    both "$program -R -x $gid -p $port -F $*"
    by=
}

# A measurement of UCX: $1, with options. A terminal keeps the program from looking for MPI.
ucx() {
    ucx_perftest="env UCX_TLS=rc UCX_NET_DEVICES=$device:1 UCX_IB_GID_INDEX=$gid ucx_perftest -p $port < /dev/console"
    pair "$ucx_perftest" "$ucx_perftest $peer -n 20 -w 1 -t $*"
}

# One IPv4 address is the card's and the network device's: verbs, ping and TCP at the same time.
beside() {
    ping -q -c 20 -i 0.3 -W 60 "$peer" > /tmp/ping 2>&1 &
    ping=$!
    if [ "$role" = a ]; then
        head -c 1000000 /dev/urandom > "$share/sent"
        (meet "$name.tcp"; timeout $limit /run/busybox nc "$peer" 5001 < "$share/sent") &
        stream=$!
    else
        # Its input does not end, or it would end the connection.
        mkfifo /tmp/open
        timeout $limit /run/busybox nc -l -p 5001 <> /tmp/open > /tmp/got &
        stream=$!
        await listens 5001
        meet "$name.tcp"
    fi
    pingpong '-e -n 100'
    wait $stream
    wait $ping || { cat /tmp/ping; return 1; }
    has ' 0% packet loss' < /tmp/ping
    [ "$role" = a ] || cmp "$share/sent" /tmp/got
}

# The card's driver goes, and with it both devices.
leaves() {
    ip link set "$netdev" down
    [ $device = berth0 ] || return 0
    rmmod berth
    [ ! -e "/sys/class/infiniband/$device" ]
    [ ! -e "/sys/class/net/$netdev" ]
    dmesg -l emerg,alert,crit,err | grep -v '^$' > /tmp/errors && { cat /tmp/errors; return 1; }
    true
}

# Part `sockets` uses all of the above for programs of its own.
if [ -e "$share/sockets.sh" ]; then
    . "$share/sockets.sh"
    exit 0
fi

# All others need it.
some=$filter
filter=
check ap_1_the_card_has_a_gid address
filter=$some
gid=$(gid_index)
if [ "$rxe" = true ]; then
    . "$share/rxe.sh"
    exit 0
fi
check ap_1_the_card_is_listed list
check ap_1_registering_pins_nothing python3 "$share/memory.py" "$device"
check ap_1_a_queue_pair_is_used_again_after_a_reset python3 "$share/reset.py" "$device" "$gid"
check ap_1_ibv_rc_pingpong with_credits pingpong '-n 20'
check ap_1_ibv_rc_pingpong_events pingpong '-e -n 100'
check ap_1_ibv_rc_pingpong_new_post_api pingpong '-e -N -n 20 -s 8192'
check ap_1_ibv_rc_pingpong_on_demand pingpong '-e -o -n 20'
check ap_1_ibv_rc_pingpong_sizes pingpong_sizes
for program in ib_send_bw ib_write_bw ib_read_bw; do
    check "ap_1_$program" measure $program -n 20 -s 4096 -t 16
done
check ap_1_ibv_srq_pingpong with_credits srq_pingpong '-q 4 -n 60 -r 24'
check ap_1_ib_send_bw_few_shared_receives measure ib_send_bw --use-srq -n 10 -s 2048 -t 8 -q 4 -r 6
check ap_1_ucx_tag_bw ucx tag_bw -s 100000
if [ "$long" = true ]; then
    check ap_1_ucx_tag_lat ucx tag_lat -s 1000
    check ap_1_ucx_stream_bw ucx stream_bw -s 20000
    check ap_1_ucx_put_bw ucx ucp_put_bw -s 5000
    check ap_1_ucx_get ucx ucp_get -s 5000
    check ap_1_ucx_fadd ucx ucp_fadd -s 8
    check ap_1_ib_send_bw_many_packets measure ib_send_bw -n 5 -s 50000 -t 4 -m 1024
    # With completions of every n-th send alone (`-t`), a program that sends both ways ends before the last sends are posted,
    # unless their number is a multiple of it.
    check ap_1_ib_send_bw_queue_pairs_both_ways measure ib_send_bw -b -n 16 -s 2048 -t 8 -q 4
    check ap_1_ib_send_bw_events measure ib_send_bw -n 20 -s 2048 -t 8 -e
    check ap_1_ibv_srq_pingpong_events srq_pingpong '-e -q 2 -n 20 -s 10000'
    check ap_1_ib_send_bw_shared_receives measure ib_send_bw --use-srq -b -n 8 -s 2048 -t 4 -q 2
    check ap_1_ib_send_lat_inline measure ib_send_lat -n 20 -s 32 -I 32
    check ap_1_ib_atomic_bw measure ib_atomic_bw -n 20 -t 8
    check ap_1_ib_send_lat_datagrams measure ib_send_lat -c UD -n 20 -s 32 -I 32
    check ap_1_cmtime cmtime_
    check ap_1_riostream riostream_
    check ap_1_ib_send_lat_connection_manager measure_cm ib_send_lat -n 20 -s 32 -I 0
fi
check ap_1_ib_send_lat measure ib_send_lat -n 20 -s 32 -I 0
check ap_1_ib_read_lat measure ib_read_lat -n 20 -s 32
check ap_1_ib_write_lat_inline measure ib_write_lat -n 20 -s 32 -I 32
check ap_1_ib_atomic_lat measure ib_atomic_lat -n 20
check ap_1_ibv_ud_pingpong datagrams '-n 20'
check ap_1_ibv_ud_pingpong_events datagrams '-e -n 20 -s 4096'
check ap_1_ib_send_bw_datagrams measure ib_send_bw -c UD -n 20 -s 2048 -t 8
check ap_1_rping with_credits rping_
check ap_1_ucmatose ucmatose_
check ap_1_udaddy udaddy_
check ap_1_rstream rstream_
check ap_1_rdma_client rdma_client_
check ap_1_rcopy rcopy_
check ap_1_ib_write_bw_connection_manager measure_cm ib_write_bw -n 20 -s 4096 -t 8
check ap_4_verbs_beside_ping_and_tcp beside
check ap_1_ibv_asyncwatch asyncwatch
# In each guest others, with both ends in it. Some want what they may not have, and are refused; packets behind that are not
# taken any more.
trespasses='ACCESS_REFUSED|BAD_OPCODE'
if [ "$role" = a ]; then
    check ap_1_some_of_pyverbs pyverbs test_mr.MWTest.test_mw_type1 test_mr.MWTest.test_mw_type2_invalidate_remote \
        test_atomic.AtomicTest.test_atomic_invalid_qp_access test_cq_events.CqEventsTestCase.test_cq_events_ud
else
    check ap_1_some_of_pyverbs pyverbs test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw test_mr.MRTest.test_mr_rereg_atomic \
        test_srq.SrqTestCase.test_modify_srq_limit test_srq.SrqTestCase.test_resize_srq
fi
if [ "$role" = a ]; then
    modules='test_device test_pd test_addr test_mr test_atomic test_cqex test_fork test_srq test_flow test_rss_traffic
        test_tag_matching'
else
    modules='test_qp test_qpex test_shared_pd test_cq test_cq_events test_odp test_relaxed_ordering test_parent_domain test_rdmacm
        test_cuda_dmabuf'
fi
# shellcheck disable=SC2086
[ "$long" = false ] || check ap_1_pyverbs pyverbs $modules
trespasses=
check ap_1_the_driver_leaves leaves
exit 0
