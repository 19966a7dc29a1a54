// SPDX-License-Identifier: Apache-2.0 OR MIT
// Lists as TCP options (CR-12e): gives the segments of a socket the option that stands in a map, and tells which options of
// this kind have come. It does nothing for sockets that are not in the map.

#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
// How a map is described in the BPF type format.
#define VALUE(name, value) int(*name)[value]
#define TYPE(name, type) type *name

// Bytes of all options of a segment.
#define OPTIONS 40

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const socket_cookie)(void *context) = (void *)BPF_FUNC_get_socket_cookie;
static long (*const set_flags)(struct bpf_sock_ops *context, int flags) = (void *)BPF_FUNC_sock_ops_cb_flags_set;
static long (*const reserve_option)(struct bpf_sock_ops *context, __u32 len, __u64 flags) = (void *)BPF_FUNC_reserve_hdr_opt;
static long (*const store_option)(struct bpf_sock_ops *context, const void *from, __u32 len, __u64 flags) =
    (void *)BPF_FUNC_store_hdr_opt;
static long (*const load_option)(struct bpf_sock_ops *context, void *to, __u32 len, __u64 flags) =
    (void *)BPF_FUNC_load_hdr_opt;
static long (*const ring_output)(void *ring, void *data, __u64 len, __u64 flags) = (void *)BPF_FUNC_ringbuf_output;

// What the segments of a socket get. `socket.rs` has the same.
struct entry {
    // Bytes by which full segments are shorter, so that an option always fits.
    __u32 room;
    // Bytes of the option.
    __u32 len;
    // 0: no segment gets it, 1: the next one does, 2: all do.
    __u32 often;
    __u8 bytes[OPTIONS];
};

// An option that came. `shared.rs` has the same.
struct arrival {
    __u64 cookie;
    __u32 len;
    __u8 bytes[OPTIONS];
    __u32 unused;
};

// By socket cookie. An entry's memory is used again only when nothing here looks at it any more.
struct {
    VALUE(type, BPF_MAP_TYPE_HASH);
    VALUE(map_flags, BPF_F_NO_PREALLOC);
    VALUE(max_entries, 65536);
    TYPE(key, __u64);
    TYPE(value, struct entry);
} entries SECTION(".maps");

// What does not fit in here is lost, and repeated by the peer.
struct {
    VALUE(type, BPF_MAP_TYPE_RINGBUF);
    VALUE(max_entries, 1 << 18);
} arrivals SECTION(".maps");

// Options that were written, and that came.
struct {
    VALUE(type, BPF_MAP_TYPE_ARRAY);
    VALUE(max_entries, 2);
    TYPE(key, __u32);
    TYPE(value, __u64);
} counts SECTION(".maps");

static void count(__u32 which)
{
    __u64 *counter = map_lookup(&counts, &which);

    if (counter)
        __sync_fetch_and_add(counter, 1);
}

static void read_option(struct bpf_sock_ops *context, __u64 cookie)
{
    // Kind, length and identifier of what is looked for: see `TCP_EXPERIMENT_ID` in `berth_protocol::credit::carrier`.
    struct arrival arrival = { .cookie = cookie, .bytes = { 253, 4, 'B', 'c' } };
    long len = load_option(context, arrival.bytes, OPTIONS, 0);

    if (len < 0)
        return;
    arrival.len = len;
    if (!ring_output(&arrivals, &arrival, sizeof(arrival), 0))
        count(1);
}

SECTION("sockops") int berth_lists(struct bpf_sock_ops *context)
{
    __u64 cookie = socket_cookie(context);
    struct entry *entry = map_lookup(&entries, &cookie);

    if (!entry)
        return 1;
    switch (context->op) {
    // Sockets that come from a listening one have its flags.
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        set_flags(context, context->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
                               BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG);
        break;
    case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
        if (context->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS) {
            if (entry->room)
                reserve_option(context, entry->room, 0);
        } else if (entry->often) {
            reserve_option(context, entry->len, 0);
        }
        break;
    case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
        // It is another one than room was kept for, perhaps a longer one: then the next segment has room for it.
        if (!entry->often || store_option(context, entry->bytes, OPTIONS, 0))
            break;
        if (entry->often == 1)
            entry->often = 0;
        count(0);
        break;
    case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
        read_option(context, cookie);
        break;
    }
    return 1;
}

// It calls nothing that wants GPL.
SECTION("license") const char licence[] = "Apache-2.0 OR MIT";
