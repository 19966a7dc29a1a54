#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Makes Rust declarations of what HEADERS.h declares and kernel::bindings lacks.
#
#   generate.sh BUILD HEADERS OUTPUT
#
#   BUILD    the kernel's build folder
#   HEADERS  the C file that includes the headers
#   OUTPUT   the Rust file to write
#
# bindgen is run as the kernel's own build has run it, which that build has recorded with the names of the headers that it
# read. What these headers declare is taken from kernel::bindings, so that both have the same types.
set -eu

if [ $# -ne 3 ]; then
    sed -n '5p' "$0" | cut -c3- >&2
    exit 2
fi
headers=$(realpath "$2") output=$(realpath -m "$3")
cd "$1"
recorded=rust/bindings/.bindings_generated.rs.cmd
if [ ! -r $recorded ]; then
    echo "generate.sh: $1 has no $recorded: it says how the kernel's build ran bindgen" >&2
    exit 1
fi

# The command without what follows it; make's $(pound) is #.
command=$(sed -n '1{s/^[^=]*:= *//;s/ ; sed .*//;s/$(pound)/#/g;p}' $recorded)
known=$(sed -n 's/^ *\(\.\/\)\{0,1\}\([^ $]*\.h\) *\\\{0,1\}$/\2/p' $recorded | sed 's/[.+]/\\&/g' | paste -sd '|')
functions='helper_.*|(un)?register_netdev|alloc_etherdev_mqs|free_netdev|rtnl_(lock|unlock)|netif_carrier_(on|off)'
functions="$functions|napi_(enable|disable|complete_done)|eth_validate_addr"
functions="$functions|napi_consume_skb|dev_set_mac_address|skb_put|crc32_le"
functions="$functions|_ib_alloc_device|ib_(dealloc|register|unregister)_device|ib_set_device_ops|ib_device_set_netdev"
functions="$functions|ib_modify_qp_is_ok|rdma_alloc_hw_stats_struct"
types='net_device_ops|rtnl_link_stats64|netdev_tx|net_device_flags|ib_.*_flags|ib_qp_attr_mask|ib_odp_.*_bits|ib_qp_.*'
types="$types|ib_wc.*|ib_wr_opcode|ib_send_wr|ib_recv_wr|ib_ud_wr|ib_sig_type|rdma_network_type|ib_cq_notify_flags|ib_uverbs_write_cmds"
types="$types|ib_uverbs_advise_mr_flag|ib_mr_rereg_flags"
types="$types|ib_port_.*|ib_mtu|ib_atomic_cap|rdma_(node_type|link_layer|ah_attr_type|driver_id)|ib_mig_state|uverbs_attr_bundle"

eval "set -- $command"
bindgen=$1
shift
# Ours in the place of the kernel's header and output, and our options before those of the compiler.
n=$# compiler=
while [ "$n" -gt 0 ]; do
    n=$((n - 1))
    argument=$1
    shift
    case $argument in
    */bindings_helper.h) set -- "$@" "$headers" ;;
    *bindings_generated.rs) set -- "$@" "$output" ;;
    -Wp,-MMD,*) ;;
    --)
        compiler=y
        set -- "$@" --blocklist-file "(\\./)?($known)" --allowlist-function "$functions" \
            --allowlist-type "$types" --allowlist-var 'RDMA_CORE_CAP_.*|RDMA_NODE_.*|RDMA_HW_STATS_.*' --
        ;;
    *) set -- "$@" "$argument" ;;
    esac
done
[ -n "$compiler" ]
exec "$bindgen" "$@"
