# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=sh
# What the guests of part `verbs-rxe` do, after the functions of `guest.sh`: plain RoCE v2 between a card and Linux' soft
# RoCE, in each test with either of them as the server.

# No program's end is fast; those that have an option for it get a time-out of 4.3 s (4.096 µs · 2^20).
patient='-u 20'
sizes='1 4097 30000'

# What $@ does, with either guest as the server.
either() {
    for server in a b; do
        "$@"
        meet "$name.$server"
        rm -f "$share/$name.listens"
        meet "$name.$server.again"
    done
}

# Two processes of one host send each other bursts over device $1 with GID $2 and address $3. $4: credits or bare.
verbs_bursts_() {
    timeout -k 5 $limit verbs_bursts "$1" "$2" "$port" "$4" &
    program=$!
    until listening_or_ended $program; do sleep 0.1; done
    timeout -k 5 $limit verbs_bursts "$1" "$2" "$port" "$4" "$3"
    wait $program
}

# The library's credits, over any NIC (CR-15): with soft RoCE alone and `rnr_retry` 0. A card takes a receive when it
# has the pages, and is not ready until then. $1: credits or bare.
bursts() {
    [ $device = rxe0 ] || return 0
    verbs_bursts_ $device "$gid" "$own" "$1"
}

# The same with soft iWARP. The connection manager knows a device by its address, so it is that of another network
# device.
iwarp() {
    [ $device = rxe0 ] || return 0
    modprobe dummy numdummies=0
    # What siw stands on. Debian's kernel has no siw.
    modprobe iw_cm
    insmod /usr/lib/modules/siw.ko
    ip link add siw type dummy
    ip addr add 198.51.100.1/24 dev siw
    ip link set siw up
    rdma link add siw0 type siw netdev siw
    await grep -q ACTIVE /sys/class/infiniband/siw0/ports/1/state
    verbs_bursts_ siw0 0 198.51.100.1 credits
    port=$((port + 1000))
    verbs_bursts_ siw0 0 "$own" credits 2>&1 | has "$own is the address of $device, not of siw0"
    # Queue pairs and their connections have gone with the processes.
    rdma resource show | has 'siw0: .*qp 0 cm_id 0 mr 0 ctx 0'
    rdma link delete siw0
    ip link delete siw
    rmmod siw
}

# The library's credits over TCP, between two processes of the host with the stock kernel: lists as TCP options (CR-12e), and
# inside the stream where options do not get through. Each with a port of its own.
options() {
    [ $device = rxe0 ] || return 0
    cgroup=/tmp/cgroup
    mkdir -p $cgroup
    mount -t cgroup2 none $cgroup
    for how in both asleep one stripped; do
        port=$((port + 1000))
        timeout -k 5 $limit tcp_bursts $cgroup $port $how &
        program=$!
        until listening_or_ended $program; do sleep 0.1; done
        timeout -k 5 $limit tcp_bursts $cgroup $port $how 127.0.0.1
        wait $program
    done
    umount $cgroup
}

# Neighbours are found by ARP, in both directions.
ping_other() {
    for _ in 1 2 3; do ping -q -c 1 -W 60 "$peer" | has ' 0% packet loss'; done
}

check ap_4_rxe_ping ping_other
check ap_1_rxe_ibv_rc_pingpong either pingpong '-e -n 20'
check ap_1_rxe_ibv_rc_pingpong_sizes either pingpong_sizes
check ap_1_rxe_ib_send_bw either measure ib_send_bw -n 20 -s 4096 -t 16 $patient
check ap_1_rxe_ib_send_bw_both_ways either measure ib_send_bw -b -n 16 -s 2048 -t 8 -q 2 $patient
check ap_1_rxe_ibv_srq_pingpong either srq_pingpong '-q 2 -n 20 -r 8 -s 1000'
check ap_1_rxe_ib_send_bw_shared_receives either measure ib_send_bw --use-srq -n 10 -s 2048 -t 8 -q 2 -r 20 $patient
check ap_1_rxe_ib_send_lat either measure ib_send_lat -n 20 -s 32 -I 0 $patient
check ap_1_rxe_ib_write_bw either measure ib_write_bw -n 20 -s 4096 -t 16 $patient
check ap_1_rxe_ib_write_lat either measure ib_write_lat -n 20 -s 32 -I 32 $patient
check ap_1_rxe_ib_read_bw either measure ib_read_bw -n 20 -s 4096 -t 16 $patient
check ap_1_rxe_ib_read_lat either measure ib_read_lat -n 20 -s 32 $patient
check ap_1_rxe_ib_atomic_bw either measure ib_atomic_bw -n 20 -t 8 $patient
check ap_1_rxe_ib_atomic_lat either measure ib_atomic_lat -n 20 $patient
check ap_1_rxe_ibv_ud_pingpong either datagrams '-n 20 -s 1000'
check ap_1_rxe_rping either rping_
check ap_1_rxe_ucmatose either ucmatose_
check cr_15_credits_over_verbs_meet_no_receiver_not_ready bursts credits
check cr_15_credits_over_iwarp iwarp
check cr_15_without_credits_a_receiver_is_not_ready bursts bare
check cr_12_lists_as_tcp_options_cut_what_is_sent options
check ap_1_rxe_the_driver_leaves leaves
