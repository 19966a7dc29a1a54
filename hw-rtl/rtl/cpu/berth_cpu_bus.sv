// SPDX-License-Identifier: Apache-2.0 OR MIT
// The soft core's bus: firmware RAM, engine registers, statistics RAM and packet RAM.
//
// Masters are the core (instructions, data) and a debug port with which benches drive the engines while the core is in
// reset. Registers 0x00c-0x018 and 0x040-0x180 except receive and transmit belong to berth_hostif and are forwarded;
// the rest is here. The core sleeps while its read of CPU_WAIT is not taken, which is until something is pending.
//
// With FW_RAM 0 firmware's RAM is outside, behind two ports that may take any time.

module berth_cpu_bus #(
    parameter FW_RAM = 1
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic                        core_run,  // the core is out of reset

    // instructions
    input  logic                        ibus_stb,
    input  logic [31:2]                 ibus_adr,
    input  logic [2:0]                  ibus_cti,
    output logic                        ibus_ack,
    output logic [31:0]                 ibus_dat_r,
    output logic                        ibus_err,

    // data
    input  logic                        dbus_stb,
    input  logic                        dbus_we,
    input  logic [31:2]                 dbus_adr,
    input  logic [2:0]                  dbus_cti,
    input  logic [3:0]                  dbus_sel,
    input  logic [31:0]                 dbus_dat_w,
    output logic                        dbus_ack,
    output logic [31:0]                 dbus_dat_r,
    output logic                        dbus_err,

    // debug: whole words; held until the ack
    input  logic                        dbg_req,
    input  logic                        dbg_we,
    // verilator lint_off UNUSEDSIGNAL
    input  logic [31:0]                 dbg_addr,
    // verilator lint_on UNUSEDSIGNAL
    input  logic [31:0]                 dbg_wdata,
    output logic                        dbg_ack,
    output logic [31:0]                 dbg_rdata,

    // loader, while the core is in reset
    input  logic                        fwl_we,
    input  logic [19:2]                 fwl_addr,
    input  logic [31:0]                 fwl_wdata,
    output logic                        fwl_room,  // four words more find room
    output logic                        fwl_busy,  // not all words are in the RAM yet

    // firmware RAM, if it is outside: a request stands until its answer, or until the reset that ends it
    output logic                        xi_req,
    output logic [19:2]                 xi_addr,
    input  logic                        xi_ack,
    input  logic [31:0]                 xi_rdata,  // with the answer
    output logic                        xd_req,
    output logic                        xd_we,
    output logic [19:2]                 xd_addr,
    output logic [31:0]                 xd_wdata,
    output logic [3:0]                  xd_strb,
    input  logic                        xd_ack,
    input  logic [31:0]                 xd_rdata,

    // registers of berth_hostif; held until the ack
    output logic                        h_req,
    output logic                        h_we,
    output logic [11:0]                 h_addr,
    output logic [31:0]                 h_wdata,
    input  logic                        h_ack,
    input  logic [31:0]                 h_rdata,

    // packet RAM: takes an access at once, gives its data in the next cycle
    output logic                        p_valid,
    output logic                        p_we,
    output logic [17:0]                 p_addr,
    output logic [31:0]                 p_wdata,
    output logic [3:0]                  p_strb,
    input  logic [31:0]                 p_rdata,

    // statistics RAM, host side
    input  logic                        stat_req,
    input  logic [11:2]                 stat_addr,
    output logic [31:0]                 stat_rdata,

    // pending bits of berth_hostif
    input  logic                        pend_cmd,
    input  logic                        pend_doorbell,
    input  logic                        pend_dma_done,
    input  logic                        pend_xlt_rsp,
    input  logic                        pend_heartbeat,

    // receive engine
    input  logic                        desc_valid,
    input  berth_card_pkg::desc_t       desc,
    output logic                        desc_pop,
    output logic                        slot_free,
    output logic [7:0]                  slot_free_n,

    // transmit engine
    output logic                        send_valid,
    input  logic                        send_ready,
    output berth_card_pkg::send_t       send,
    input  logic                        sent_valid,
    input  berth_card_pkg::sent_t       sent,
    output logic                        sent_pop,

    // fast path: rows, events
    output logic                        fc_req,
    output berth_card_pkg::row_access_t fc,
    input  logic                        fc_ack,
    input  logic [31:0]                 fc_rdata,
    input  logic                        fe_valid,
    input  berth_row_pkg::fast_event_t fe,
    output logic                        fe_pop,

    // time
    input  logic [63:0]                 cycles,
    output logic                        timer_armed,
    output logic [63:0]                 timer_deadline,

    // the core waits in CPU_WAIT (or is in reset) and the bus is quiet
    output logic                        asleep,
    // the core waits in CPU_WAIT
    output logic                        waiting
);
    localparam AW          = $clog2(berth_regs_pkg::FW_RAM_BYTES);
    localparam int unsigned STATS_WORDS = berth_regs_pkg::STATS_BYTES / 4;

    // ---- pending bits ----------------------------------------------------------------
    logic [31:0] pending;
    always_comb begin
        pending = 32'd0;
        pending[berth_regs_pkg::PEND_CMD[4:0]]         = pend_cmd;
        pending[berth_regs_pkg::PEND_DOORBELL[4:0]]    = pend_doorbell;
        pending[berth_regs_pkg::PEND_RX[4:0]]          = desc_valid;
        pending[berth_regs_pkg::PEND_TX_DONE[4:0]]     = sent_valid;
        pending[berth_regs_pkg::PEND_DMA_DONE[4:0]]    = pend_dma_done;
        pending[berth_regs_pkg::PEND_XLT_RSP[4:0]]     = pend_xlt_rsp;
        pending[berth_regs_pkg::PEND_TIMER[4:0]]       = timer_armed && cycles >= timer_deadline;
        pending[berth_regs_pkg::PEND_HEARTBEAT[4:0]]   = pend_heartbeat;
        pending[berth_regs_pkg::PEND_FAST[4:0]]        = fe_valid;
    end

    // ---- one data master at a time ---------------------------------------------------
    // Writes are acknowledged as they are taken, except to berth_hostif; reads one cycle later.
    typedef enum logic [2:0] {
        IDLE,
        RAM,     // the RAM's word is there, or awaited if it is outside
        ANSWER,  // what was read elsewhere is there
        HOSTIF,  // wait for berth_hostif
        FAST     // wait for the fast path
    } state_t;

    state_t      state_q;
    logic        dbg_q;      // the access is the debug port's
    logic        err_q;      // no such address
    logic        stats_q;    // the word comes from the statistics RAM
    logic        pkt_q;      // ... from packet RAM
    logic [31:0] data_q;

    logic        m_dbg;      // the debug port goes first
    logic        m_stb;
    logic        m_we;
    logic [31:0] m_adr;
    logic [31:0] m_wdata;
    logic [3:0]  m_sel;
    assign m_dbg   = dbg_req;
    assign m_stb   = dbg_req || dbus_stb;
    assign m_we    = m_dbg ? dbg_we : dbus_we;
    assign m_adr   = m_dbg ? {dbg_addr[31:2], 2'b00} : {dbus_adr, 2'b00};
    assign m_wdata = m_dbg ? dbg_wdata : dbus_dat_w;
    assign m_sel   = m_dbg ? 4'b1111 : dbus_sel;

    logic at_ram, at_regs, at_stats, at_pkt, at_hostif, at_fast;
    logic [31:0] offset;   // of a register
    assign at_ram    = m_adr[31:AW] == '0;
    assign at_regs   = m_adr[31:12] == berth_regs_pkg::CPU_REGS[31:12];
    assign at_stats  = m_adr[31:12] == berth_regs_pkg::CPU_STATS[31:12];
    assign at_pkt    = m_adr[31:18] == berth_regs_pkg::CPU_PKT[31:18];
    assign at_fast   = m_adr[31:19] == berth_regs_pkg::CPU_FAST[31:19];
    assign offset    = {20'd0, m_adr[11:0]};
    assign at_hostif = (offset >= berth_regs_pkg::CPU_STATUS && offset <= berth_regs_pkg::CPU_HB_ANSWER)
                       || (offset >= berth_regs_pkg::CPU_CMD_POP && offset <= berth_regs_pkg::CPU_DB_CFG)
                       || (offset >= berth_regs_pkg::CPU_CMD_W0 && offset <= berth_regs_pkg::CPU_CQE_GO)
                       || (offset >= berth_regs_pkg::CPU_RAW_W0 && offset <= berth_regs_pkg::CPU_RAW_BUSY);

    // an access that has to wait before it is taken; of packet RAM each second clock is left to DMA
    logic stalls, pkt_last_q;
    assign stalls = (at_pkt && pkt_last_q)
                    || (at_regs && (m_we ? (offset == berth_regs_pkg::CPU_TX_SEND && !send_ready)
                                         : (offset == berth_regs_pkg::CPU_WAIT && pending == 32'd0)));

    logic go;
    assign go = state_q == IDLE && m_stb && !stalls && !fwl_busy;

    assign waiting = core_run && dbus_stb && !dbus_we
                     && {dbus_adr, 2'b00} == berth_regs_pkg::CPU_REGS + berth_regs_pkg::CPU_WAIT
                     && pending == 32'd0 && state_q == IDLE;
    assign asleep  = (waiting || !core_run) && state_q == IDLE && !ibus_stb && !dbg_req && !fwl_busy;

    // ---- firmware RAM ----------------------------------------------------------------
    logic          ram_next;      // a burst read goes on
    logic          ram_done;      // an access of data ends
    logic          ram_writes;    // a write ends as it is taken
    logic [31:0]   ram_d_rdata;
    if (FW_RAM != 0) begin : here
        logic          ram_i_re, ram_d_re, ram_d_we;
        logic [AW-1:2] ram_i_addr, ram_d_addr;
        logic          i_busy_q;      // the word for the instruction bus is there

        assign ram_i_re   = ibus_stb && (!i_busy_q || ibus_cti == 3'b010);
        assign ram_i_addr = i_busy_q ? ibus_adr[AW-1:2] + 1'b1 : ibus_adr[AW-1:2];
        assign ibus_ack   = i_busy_q && ibus_stb;
        assign ibus_err   = ibus_ack && ibus_adr[31:AW] != '0;

        assign ram_next   = state_q == RAM && !dbg_q && dbus_cti == 3'b010;
        assign ram_done   = 1'b1;
        assign ram_writes = 1'b1;
        assign ram_d_re   = (go && !m_we && at_ram) || ram_next;
        assign ram_d_we   = (go && m_we && at_ram) || fwl_we;
        assign ram_d_addr = fwl_we ? fwl_addr[AW-1:2] : ram_next ? dbus_adr[AW-1:2] + 1'b1 : m_adr[AW-1:2];

        berth_fwram #(.BYTES(berth_regs_pkg::FW_RAM_BYTES)) ram (
            .clk(clk),
            .i_re(ram_i_re), .i_addr(ram_i_addr), .i_rdata(ibus_dat_r),
            .d_re(ram_d_re), .d_we(ram_d_we), .d_addr(ram_d_addr),
            .d_wdata(fwl_we ? fwl_wdata : m_wdata), .d_wstrb(fwl_we ? 4'b1111 : m_sel),
            .d_rdata(ram_d_rdata)
        );

        always_ff @(posedge clk) begin
            i_busy_q <= ram_i_re;
            if (rst || !core_run)
                i_busy_q <= 1'b0;
        end
        assign {fwl_room, fwl_busy} = 2'b10;
        assign {xi_req, xi_addr, xd_req, xd_we, xd_addr, xd_wdata, xd_strb} = '0;
        wire unused = &{1'b0, xi_ack, xi_rdata, xd_ack, xd_rdata, fwl_addr};
    end else begin : outside
        // Each word is a request of its own, in bursts too.
        assign xi_req     = ibus_stb && ibus_adr[31:AW] == '0;
        assign xi_addr    = 18'(ibus_adr[AW-1:2]);
        assign ibus_ack   = ibus_stb && (xi_ack || ibus_adr[31:AW] != '0);
        assign ibus_err   = ibus_stb && ibus_adr[31:AW] != '0;
        assign ibus_dat_r = xi_rdata;

        // The loader's words wait their turn; no other master asks before they are in the RAM.
        logic        unused_room;
        logic [2:0]  used_q;
        logic [19:2] load_addr;
        logic [31:0] load_word;
        berth_lutfifo #(.WIDTH(50), .DEPTH(8)) loads (
            .clk(clk), .rst(rst), .wr_valid(fwl_we), .wr_ready(unused_room), .wr_data({fwl_addr, fwl_wdata}),
            .rd_valid(fwl_busy), .rd_ready(xd_ack && state_q != RAM), .rd_data({load_addr, load_word})
        );
        always_ff @(posedge clk)
            if (rst) used_q <= '0;
            else used_q <= used_q + 3'(fwl_we) - 3'(fwl_busy && xd_ack && state_q != RAM);
        assign fwl_room = used_q < 3'd4;

        logic [19:2] addr_q;
        logic [3:0]  strb_q;
        always_ff @(posedge clk)
            if (go) begin
                addr_q <= 18'(m_adr[AW-1:2]);
                strb_q <= m_sel;
            end
        assign xd_req     = state_q == RAM || fwl_busy;
        assign xd_we      = state_q != RAM || h_we;
        assign xd_addr    = state_q == RAM ? addr_q : load_addr;
        assign xd_wdata   = state_q == RAM ? h_wdata : load_word;
        assign xd_strb    = state_q == RAM ? strb_q : 4'b1111;
        assign ram_next   = 1'b0;
        assign ram_done   = xd_ack;
        assign ram_writes = 1'b0;
        assign ram_d_rdata = xd_rdata;
        wire unused = &{1'b0, unused_room, ibus_cti, dbus_cti, core_run};
    end

    // ---- statistics RAM --------------------------------------------------------------
    logic [31:0] stats [0:STATS_WORDS-1];
    logic [31:0] stats_rdata;
    always_ff @(posedge clk) begin
        if (go && m_we && at_stats) begin
            for (int i = 0; i < 4; i++)
                if (m_sel[i])
                    stats[m_adr[11:2]][8*i +: 8] <= m_wdata[8*i +: 8];
        end
        if (go && !m_we && at_stats)
            stats_rdata <= stats[m_adr[11:2]];
    end
    always_ff @(posedge clk) begin
        if (stat_req)
            stat_rdata <= stats[stat_addr];
    end

    // ---- answers ---------------------------------------------------------------------
    logic ack;         // of an access that has been taken
    logic ack_write;   // of a write that is being taken
    assign ack        = (state_q == RAM && ram_done) || state_q == ANSWER || (state_q == HOSTIF && h_ack)
                        || (state_q == FAST && fc_ack);
    assign ack_write  = go && m_we && ((at_ram && ram_writes) || at_stats || at_pkt || (at_regs && !at_hostif));
    assign dbus_ack   = (ack && !dbg_q) || (ack_write && !m_dbg);
    assign dbus_err   = state_q == ANSWER && err_q && !dbg_q;
    assign dbus_dat_r = state_q == RAM    ? ram_d_rdata
                      : state_q == HOSTIF ? h_rdata
                      : state_q == FAST   ? fc_rdata
                      : stats_q           ? stats_rdata
                      : pkt_q             ? p_rdata
                      : data_q;
    assign dbg_ack    = (ack && dbg_q) || (ack_write && m_dbg);
    assign dbg_rdata  = dbus_dat_r;

    // packet RAM takes every access of the core at once
    assign p_valid = go && at_pkt;
    always_ff @(posedge clk) pkt_last_q <= p_valid && !rst;
    assign p_we    = m_we;
    assign p_addr  = m_adr[17:0];
    assign p_wdata = m_wdata;
    assign p_strb  = m_sel;
    assign h_req   = state_q == HOSTIF;
    assign fc_req  = state_q == FAST;
    logic [18:2] fc_addr;
    assign fc.we    = h_we;
    assign {fc.half, fc.qpn, fc.word} = fc_addr;
    assign fc.data  = h_wdata;

    logic [31:0] cycles_hi_q;
    logic [31:0] timer_lo_q;

    // what a register here reads as
    logic [31:0] reg_rdata;
    berth_regs_pkg::cpu_rx_desc_t rx_desc;
    berth_regs_pkg::cpu_tx_done_t tx_done;
    always_comb begin
        rx_desc        = '0;
        rx_desc.valid  = 1'b1;
        rx_desc.length = desc.len;
        rx_desc.slot   = 8'(desc.slot);
        tx_done        = '0;
        tx_done.valid  = 1'b1;
        tx_done.status = sent.status;
        tx_done.slot   = sent.slot;
        reg_rdata = 32'd0;
        case (offset)
            berth_regs_pkg::CPU_ID:       reg_rdata = berth_regs_pkg::CARD_ID;
            berth_regs_pkg::CPU_WAIT,
            berth_regs_pkg::CPU_PENDING:  reg_rdata = pending;
            berth_regs_pkg::CPU_CYCLE_LO: reg_rdata = cycles[31:0];
            berth_regs_pkg::CPU_CYCLE_HI: reg_rdata = cycles_hi_q;
            berth_regs_pkg::CPU_CLOCK_HZ: reg_rdata = berth_regs_pkg::CLOCK_HZ;
            berth_regs_pkg::CPU_RX_DESC:  reg_rdata = desc_valid ? rx_desc : 32'd0;
            berth_regs_pkg::CPU_RX_FLAGS: reg_rdata = {29'd0, desc.flags};
            berth_regs_pkg::CPU_TX_DONE:  reg_rdata = sent_valid ? tx_done : 32'd0;
            berth_regs_pkg::CPU_FAST_EVENT: reg_rdata = fe_valid ? fe[63:32] : 32'd0;
            berth_regs_pkg::CPU_FAST_ARG: reg_rdata = fe[31:0];
            default: ;
        endcase
    end

    // strobes to the engines, in the cycle in which the access is taken
    logic reg_read, reg_write;
    assign reg_read     = go && at_regs && !m_we;
    assign reg_write    = go && at_regs && m_we;
    assign desc_pop       = reg_write && offset == berth_regs_pkg::CPU_RX_POP;
    assign slot_free      = reg_write && offset == berth_regs_pkg::CPU_RX_FREE;
    assign slot_free_n = m_wdata[7:0];
    assign send_valid      = reg_write && offset == berth_regs_pkg::CPU_TX_SEND;
    berth_regs_pkg::cpu_tx_send_t tx_send;
    assign tx_send         = m_wdata;
    assign send.len       = tx_send.length;
    assign send.raw       = tx_send.raw;
    assign send.loop      = tx_send.loopback;
    assign send.slot      = tx_send.slot;
    wire unused_send       = &{1'b0, tx_send};
    assign sent_pop  = reg_read && offset == berth_regs_pkg::CPU_TX_DONE;
    assign fe_pop       = reg_read && offset == berth_regs_pkg::CPU_FAST_ARG;

    always_ff @(posedge clk) begin
        case (state_q)
            IDLE: if (go) begin
                dbg_q   <= m_dbg;
                err_q   <= 1'b0;
                stats_q <= at_stats;
                pkt_q   <= at_pkt;
                h_we    <= m_we;
                h_addr  <= m_adr[11:0];
                fc_addr <= m_adr[18:2];
                h_wdata <= m_wdata;
                data_q  <= reg_rdata;
                if (at_regs && at_hostif) begin
                    state_q <= HOSTIF;
                end else if (at_fast) begin
                    state_q <= FAST;
                end else if (!ack_write) begin
                    state_q <= at_ram ? RAM : ANSWER;
                    if (!at_regs && !at_stats && !at_pkt) begin
                        err_q  <= 1'b1;
                        data_q <= 32'hffff_ffff;
                    end
                end
            end
            RAM: if (ram_done && !ram_next) state_q <= IDLE;
            ANSWER: state_q <= IDLE;
            HOSTIF: if (h_ack) state_q <= IDLE;
            FAST: if (fc_ack) state_q <= IDLE;
            default: state_q <= IDLE;
        endcase

        // registers that are kept here
        if (reg_read && offset == berth_regs_pkg::CPU_CYCLE_LO)
            cycles_hi_q <= cycles[63:32];
        if (reg_write) begin
            case (offset)
                berth_regs_pkg::CPU_TIMER_LO: timer_lo_q <= m_wdata;
                berth_regs_pkg::CPU_TIMER_HI: begin
                    timer_deadline <= {m_wdata, timer_lo_q};
                    timer_armed    <= 1'b1;
                end
                berth_regs_pkg::CPU_TIMER_OFF: timer_armed <= 1'b0;
                default: ;
            endcase
        end

        if (rst) begin
            state_q        <= IDLE;
            timer_armed    <= 1'b0;
            timer_deadline <= 64'd0;
        end
    end
endmodule
