// SPDX-License-Identifier: Apache-2.0 OR MIT
// C ABI of the Verilated card: plain structs in and out. The Rust side is src/ffi.rs;
// both list the same fields in the same order.
//
// Compiled once per width of the card: BERTH_WIDTH is DATA_W, BERTH_HEADER and BERTH_ROOT
// name the model's headers, and all that leaves this file is the table berth_api_WIDTH.

#include <cstdint>
#include <cstring>

#include BERTH_HEADER
#ifdef BERTH_CLOCK_STATE
#include BERTH_ROOT
#endif
#ifdef BERTH_SYMBOLS
#include BERTH_SYMBOLS
#endif
#include "verilated.h"
#ifdef BERTH_SYMBOLS
#include "verilated_cov.h"
#endif
#ifdef BERTH_TRACE
#include "verilated_fst_c.h"
#endif

#define BERTH_JOIN2(a, b) a##b
#define BERTH_JOIN(a, b) BERTH_JOIN2(a, b)
#define BERTH_TOP BERTH_JOIN(Vberth, BERTH_WIDTH)

namespace {

// Room for the widest beat of the MAC port, and of the host port, which is twice as wide.
constexpr int MOST_WORDS = 8;
constexpr int MOST_HOST_WORDS = 2 * MOST_WORDS;

struct BerthInputs {
    uint64_t mmio_wdata;
    uint64_t hcpl_data[MOST_HOST_WORDS];
    uint64_t rx_data[MOST_WORDS];
    uint64_t rx_keep;
    uint64_t skip;
    uint32_t mmio_addr;
    uint32_t dbg_addr;
    uint32_t dbg_wdata;
    uint16_t hcpl_off;
    uint16_t hcpl_len;
    uint8_t rst;
    uint8_t mmio_valid;
    uint8_t mmio_write;
    uint8_t mmio_bar;
    uint8_t mmio_wstrb;
    uint8_t hrd_ready;
    uint8_t hcpl_valid;
    uint8_t hcpl_tag;
    uint8_t hcpl_last;
    uint8_t hcpl_err;
    uint8_t hwr_ready;
    uint8_t msix_ready;
    uint8_t cfg_max_payload;
    uint8_t cfg_max_read_req;
    uint8_t tx_ready;
    uint8_t rx_valid;
    uint8_t rx_last;
    uint8_t rx_err;
    uint8_t dbg_req;
    uint8_t dbg_we;
};

struct BerthOutputs {
    uint64_t mmio_rdata;
    uint64_t hrd_addr;
    uint64_t hwr_addr;
    uint64_t hwr_data[MOST_HOST_WORDS];
    uint64_t tx_data[MOST_WORDS];
    uint64_t tx_keep;
    uint64_t timer_deadline;
    uint64_t cycles;
    uint32_t dbg_rdata;
    uint16_t hrd_len;
    uint16_t hwr_len;
    uint8_t mmio_ready;
    uint8_t mmio_rvalid;
    uint8_t hrd_valid;
    uint8_t hrd_tag;
    uint8_t hcpl_ready;
    uint8_t hwr_valid;
    uint8_t hwr_first;
    uint8_t hwr_last;
    uint8_t msix_valid;
    uint8_t msix_vector;
    uint8_t tx_valid;
    uint8_t tx_last;
    uint8_t rx_ready;
    uint8_t idle;
    uint8_t timer_armed;
    uint8_t dbg_ack;
};

struct BerthModel {
    VerilatedContext context;
    BERTH_TOP* top = nullptr;
    uint64_t clock = 0;
#ifdef BERTH_TRACE
    VerilatedFstC* trace = nullptr;
#endif
};

// A beat between the C ABI and the model: one word or, little end first, an array of them.
void to_model(QData& port, const uint64_t* beat) { port = *beat; }
void from_model(uint64_t* beat, const QData& port) { *beat = port; }
template <std::size_t N> void to_model(VlWide<N>& port, const uint64_t* beat) { std::memcpy(&port[0], beat, 4 * N); }
template <std::size_t N> void from_model(uint64_t* beat, const VlWide<N>& port) { std::memcpy(beat, &port[0], 4 * N); }

// Verilator keeps the current context in thread-local storage; a thread may own several
// models and a model may move between threads, so every call sets it.
void enter(BerthModel* m) { Verilated::threadContextp(&m->context); }

void record(BerthModel* m, uint64_t time) {
#ifdef BERTH_TRACE
    if (m->trace) m->trace->dump(time);
#else
    (void)m;
    (void)time;
#endif
}

void copy_out(const BERTH_TOP* t, BerthOutputs* o) {
    o->mmio_rdata = t->mmio_rdata;
    o->hrd_addr = t->hrd_addr;
    o->hwr_addr = t->hwr_addr;
    from_model(o->hwr_data, t->hwr_data);
    from_model(o->tx_data, t->tx_data);
    o->timer_deadline = t->timer_deadline;
    o->cycles = t->cycles;
    o->dbg_rdata = t->dbg_rdata;
    o->hrd_len = t->hrd_len;
    o->hwr_len = t->hwr_len;
    o->mmio_ready = t->mmio_ready;
    o->mmio_rvalid = t->mmio_rvalid;
    o->hrd_valid = t->hrd_valid;
    o->hrd_tag = t->hrd_tag;
    o->hcpl_ready = t->hcpl_ready;
    o->hwr_valid = t->hwr_valid;
    o->hwr_first = t->hwr_first;
    o->hwr_last = t->hwr_last;
    o->msix_valid = t->msix_valid;
    o->msix_vector = t->msix_vector;
    o->tx_valid = t->tx_valid;
    o->tx_keep = t->tx_keep;
    o->tx_last = t->tx_last;
    o->rx_ready = t->rx_ready;
    o->idle = t->idle;
    o->timer_armed = t->timer_armed;
    o->dbg_ack = t->dbg_ack;
}

// Registers and memories begin with anything, by the seed (1 or more).
BerthModel* berth_model_new(int seed) {
    auto* m = new BerthModel;
    enter(m);
    m->context.randSeed(seed);
    m->context.randReset(2);
    // Else the context starts a thread for each further processor, which nothing uses: the model has one.
    m->context.threads(1);
#ifdef BERTH_TRACE
    m->context.traceEverOn(true);
#endif
    m->top = new BERTH_TOP(&m->context);
    return m;
}

void berth_model_free(BerthModel* m) {
    enter(m);
#ifdef BERTH_TRACE
    if (m->trace) {
        m->trace->close();
        delete m->trace;
    }
#endif
    m->top->final();
    delete m->top;
    delete m;
}

// Sets the inputs, settles the logic before the clock edge, gives the outputs.
void berth_model_settle(BerthModel* m, const BerthInputs* i, BerthOutputs* o) {
    enter(m);
    BERTH_TOP* t = m->top;
    t->mmio_wdata = i->mmio_wdata;
    to_model(t->hcpl_data, i->hcpl_data);
    to_model(t->rx_data, i->rx_data);
    t->skip = i->skip;
    t->mmio_addr = i->mmio_addr;
    t->dbg_addr = i->dbg_addr;
    t->dbg_wdata = i->dbg_wdata;
    t->hcpl_off = i->hcpl_off;
    t->hcpl_len = i->hcpl_len;
    t->rst = i->rst;
    t->mmio_valid = i->mmio_valid;
    t->mmio_write = i->mmio_write;
    t->mmio_bar = i->mmio_bar;
    t->mmio_wstrb = i->mmio_wstrb;
    t->hrd_ready = i->hrd_ready;
    t->hcpl_valid = i->hcpl_valid;
    t->hcpl_tag = i->hcpl_tag;
    t->hcpl_last = i->hcpl_last;
    t->hcpl_err = i->hcpl_err;
    t->hwr_ready = i->hwr_ready;
    t->msix_ready = i->msix_ready;
    t->cfg_max_payload = i->cfg_max_payload;
    t->cfg_max_read_req = i->cfg_max_read_req;
    t->tx_ready = i->tx_ready;
    t->rx_valid = i->rx_valid;
    t->rx_keep = i->rx_keep;
    t->rx_last = i->rx_last;
    t->rx_err = i->rx_err;
    t->dbg_req = i->dbg_req;
    t->dbg_we = i->dbg_we;
    t->clk = 0;
    t->eval();
    record(m, 2 * m->clock);
    copy_out(t, o);
}

// The clock edge; gives the outputs behind it, with the inputs of the last settle.
void berth_model_edge(BerthModel* m, BerthOutputs* o) {
    enter(m);
    m->top->clk = 1;
    m->top->eval();
    record(m, 2 * m->clock + 1);
    m->clock++;
    copy_out(m->top, o);
}

// Clocks until the card wants something from outside, becomes idle (and was not when it
// began), or `limit` cycles have passed. To be called with quiet inputs (no valid, no
// skip). Gives the number of cycles; the outputs are those behind the last edge.
uint64_t berth_model_run(BerthModel* m, uint64_t limit, BerthOutputs* o) {
    enter(m);
    BERTH_TOP* t = m->top;
    const bool was_idle = t->idle;
    uint64_t done = 0;
    while (done < limit) {
        if (t->mmio_rvalid | t->hrd_valid | t->hwr_valid | t->msix_valid | t->tx_valid) break;
        if (t->idle && !was_idle) break;
#ifdef BERTH_CLOCK_STATE
        // Nothing happens at the falling edge; so the model is only told that the clock
        // was low, which saves an evaluation.
        t->rootp->BERTH_CLOCK_STATE = 0;
#else
        t->clk = 0;
        t->eval();
        record(m, 2 * m->clock);
#endif
        t->clk = 1;
        t->eval();
        record(m, 2 * m->clock + 1);
        m->clock++;
        done++;
    }
    copy_out(t, o);
    return done;
}

// Starts (or with a null path ends) a waveform. 0 done, 1 not built with waveforms.
int berth_model_trace(BerthModel* m, const char* path) {
    enter(m);
#ifdef BERTH_TRACE
    if (m->trace) {
        m->trace->close();
        delete m->trace;
        m->trace = nullptr;
    }
    if (path) {
        m->trace = new VerilatedFstC;
        m->top->trace(m->trace, 99);
        m->trace->open(path);
    }
    return 0;
#else
    (void)m;
    return path ? 1 : 0;
#endif
}

#ifdef BERTH_SYMBOLS
// Verilator's coverage counters, in its own order.
uint32_t* counters(BerthModel* m) { return m->top->rootp->vlSymsp->__Vcoverage; }
constexpr uint32_t COUNTERS = sizeof(BERTH_JOIN(BERTH_TOP, __Syms)::__Vcoverage) / sizeof(uint32_t);
#endif

// Number of coverage counters; 0 when built without.
uint32_t berth_model_points(BerthModel* m) {
    (void)m;
#ifdef BERTH_SYMBOLS
    return COUNTERS;
#else
    return 0;
#endif
}

// Moves the coverage counters to `counts`, which has room for all, and begins anew with 0.
void berth_model_cover(BerthModel* m, uint32_t* counts) {
#ifdef BERTH_SYMBOLS
    std::memcpy(counts, counters(m), sizeof(uint32_t) * COUNTERS);
    std::memset(counters(m), 0, sizeof(uint32_t) * COUNTERS);
#else
    (void)m;
    (void)counts;
#endif
}

// Writes a file in Verilator's format, as if the counters were `counts`. Counting begins anew with 0. 0 done, 1 not built
// with coverage.
int berth_model_cover_write(BerthModel* m, const uint32_t* counts, const char* path) {
#ifdef BERTH_SYMBOLS
    enter(m);
    std::memcpy(counters(m), counts, sizeof(uint32_t) * COUNTERS);
    m->context.coveragep()->forcePerInstance(true);
    m->context.coveragep()->write(path);
    std::memset(counters(m), 0, sizeof(uint32_t) * COUNTERS);
    return 0;
#else
    (void)m;
    (void)counts;
    (void)path;
    return 1;
#endif
}

}  // namespace

extern "C" {

struct BerthApi {
    BerthModel* (*make)(int);
    void (*free)(BerthModel*);
    void (*settle)(BerthModel*, const BerthInputs*, BerthOutputs*);
    void (*edge)(BerthModel*, BerthOutputs*);
    uint64_t (*run)(BerthModel*, uint64_t, BerthOutputs*);
    int (*trace)(BerthModel*, const char*);
    uint32_t (*points)(BerthModel*);
    void (*cover)(BerthModel*, uint32_t*);
    int (*cover_write)(BerthModel*, const uint32_t*, const char*);
};

extern const BerthApi BERTH_JOIN(berth_api_, BERTH_WIDTH);
const BerthApi BERTH_JOIN(berth_api_, BERTH_WIDTH) = {
    berth_model_new, berth_model_free,   berth_model_settle, berth_model_edge,        berth_model_run,
    berth_model_trace, berth_model_points, berth_model_cover,  berth_model_cover_write,
};

}  // extern "C"
