// SPDX-License-Identifier: Apache-2.0 OR MIT
// Raw queues, in: whose each frame is that the fast path does not keep. RoCE to this card's address is the core's, except
// unreliable datagrams to other QPNs than CONTROL_QPN; of the others the first filter that matches decides, then the default queue; what nobody wants is the core's if it is to this
// card, else dropped. ARP for this card's IPv4 address is the core's besides. A queue wants frames to this card's address and
// to all, and what its flags and the addresses of its filters say.
//
// Three stages, a frame per clock, and no frame waits: fields, comparisons, choice.
module berth_raw_filter #(
    parameter int unsigned QUEUES  = berth_regs_pkg::RAW_QUEUES,
    parameter int unsigned FILTERS = berth_regs_pkg::RAW_FILTERS,
    parameter int unsigned QW      = $clog2(QUEUES),
    parameter int unsigned NW      = $clog2(FILTERS)
) (
    input  logic                       clk,
    input  logic                       rst,
    // Names of this card, as the fast path has them.
    input  logic [47:0]                own_mac,
    input  logic [31:0]                own_ip,
    // Queues and filters. The filters of a queue that ends end with it.
    input  logic                       setup_valid,
    input  berth_card_pkg::raw_setup_t setup,
    input  logic [QUEUES-1:0]          on,
    output logic                       wide,        // frames to other addresses may be wanted
    // Frames, and their first bytes.
    input  logic                       cf_valid,
    input  berth_card_pkg::frame_t     cf,
    input  logic [8*96-1:0]            cf_hdr,
    // Judged.
    output logic                       busy,
    output logic                       to_core,
    output logic                       to_queue,
    output logic                       to_none,
    output logic [QW-1:0]              number,      // with `to_queue`
    output logic                       both,        // with `to_queue`: to the core afterwards
    output berth_card_pkg::frame_t     frame
);
  localparam logic [15:0] TYPE_IPV4 = 16'h0800, TYPE_ARP = 16'h0806, TYPE_IPV6 = 16'h86dd;
  localparam logic [7:0] TCP = 8'd6, UDP = 8'd17;

  // ---- Queues and filters -----------------------------------------------------------------------------------------------
  logic [QUEUES-1:0] default_q, multicast_q, promiscuous_q;
  logic [3:0] fields_q[FILTERS];       // 0: there is none
  logic [QW-1:0] queue_q[FILTERS];
  logic [7:0] protocol_q[FILTERS];
  logic [15:0] type_q[FILTERS], port_q[FILTERS];
  logic [47:0] mac_q[FILTERS];
  berth_regs_pkg::cpu_raw_attr_t attr;
  berth_regs_pkg::cpu_raw_filter_attr_t wanted;
  berth_regs_pkg::cpu_raw_filter_ports_t ports;
  assign attr   = setup.words[31:0];
  assign wanted = setup.words[31:0];
  assign ports  = setup.words[63:32];
  localparam int unsigned DEFAULT = $clog2(berth_regs_pkg::RAW_DEFAULT), MULTICAST = $clog2(berth_regs_pkg::RAW_MULTICAST),
                          PROMISCUOUS = $clog2(berth_regs_pkg::RAW_PROMISCUOUS),
                          ETHERTYPE = $clog2(berth_regs_pkg::RAW_MATCH_ETHERTYPE),
                          PROTOCOL = $clog2(berth_regs_pkg::RAW_MATCH_PROTOCOL), PORT = $clog2(berth_regs_pkg::RAW_MATCH_PORT),
                          MAC = $clog2(berth_regs_pkg::RAW_MATCH_MAC);
  wire ends = setup_valid && setup.go == berth_regs_pkg::RAW_GO_END[2:0];
  wire sets = setup_valid && (setup.go == berth_regs_pkg::RAW_GO_CREATE[2:0] || setup.go == berth_regs_pkg::RAW_GO_MODE[2:0]);
  wire filters = setup_valid && setup.go == berth_regs_pkg::RAW_GO_FILTER[2:0];
  logic any_mac;
  always_comb begin
    any_mac = 1'b0;
    for (int unsigned f = 0; f < FILTERS; f++) any_mac = any_mac || fields_q[f][MAC];
  end
  always_ff @(posedge clk) begin
    wide <= any_mac || (on & (multicast_q | promiscuous_q)) != '0;
    if (sets) begin
      default_q[attr.number[QW-1:0]]     <= attr.flags[DEFAULT];
      multicast_q[attr.number[QW-1:0]]   <= attr.flags[MULTICAST];
      promiscuous_q[attr.number[QW-1:0]] <= attr.flags[PROMISCUOUS];
    end
    for (int unsigned f = 0; f < FILTERS; f++) begin
      if (ends && queue_q[f] == attr.number[QW-1:0]) fields_q[f] <= '0;
      if (filters && wanted.filter[NW-1:0] == NW'(f)) begin
        fields_q[f]   <= wanted.fields;
        queue_q[f]    <= wanted.target[QW-1:0];
        protocol_q[f] <= wanted.protocol;
        type_q[f]     <= ports.ethertype;
        port_q[f]     <= ports.port;
        mac_q[f]      <= {setup.words[95:64], setup.words[111:96]};
      end
      if (rst) fields_q[f] <= '0;
    end
  end

  // ---- 1: fields of the frame ---------------------------------------------------------------------------------------------
  function automatic logic [7:0] b8(input logic [8*96-1:0] h, input int unsigned n);
    b8 = h[8*n+:8];
  endfunction
  function automatic logic [15:0] b16(input logic [8*96-1:0] h, input int unsigned n);
    b16 = {h[8*n+:8], h[8*n+8+:8]};
  endfunction
  function automatic logic [31:0] b32(input logic [8*96-1:0] h, input int unsigned n);
    b32 = {h[8*n+:8], h[8*n+8+:8], h[8*n+16+:8], h[8*n+24+:8]};
  endfunction
  wire [47:0] dst = {b16(cf_hdr, 0), b32(cf_hdr, 2)};
  wire [15:0] ethertype = b16(cf_hdr, 12);
  wire [3:0] ihl = cf_hdr[8*14+:4];
  wire ipv4 = ethertype == TYPE_IPV4 && cf_hdr[8*14+4+:4] == 4'd4 && ihl >= 4'd5 && cf.len >= 13'd34;
  wire ipv6 = ethertype == TYPE_IPV6 && cf_hdr[8*14+4+:4] == 4'd6 && cf.len >= 13'd54;
  wire [7:0] protocol = ipv4 ? b8(cf_hdr, 23) : b8(cf_hdr, 20);
  wire later = (b16(cf_hdr, 20) & 16'h1fff) != 16'd0;      // fragment
  logic [15:0] port4;
  always_comb begin
    port4 = '0;
    for (int unsigned i = 5; i < 16; i++) if (ihl == 4'(i)) port4 = b16(cf_hdr, 14 + 4 * i + 2);
  end
  wire ported = (protocol == TCP || protocol == UDP)
      && ((ipv4 && !later && cf.len >= 13'd18 + {7'd0, ihl, 2'b00}) || (ipv6 && cf.len >= 13'd58));

  wire [7:0] opcode = b8(cf_hdr, 42);
  wire datagram = (opcode == berth_regs_pkg::BTH_UD_SEND_ONLY[7:0] || opcode == berth_regs_pkg::BTH_UD_SEND_ONLY_IMM[7:0])
      && {b8(cf_hdr, 47), b16(cf_hdr, 48)} != berth_regs_pkg::CONTROL_QPN[23:0];

  logic v1_q, roce_q, datagram_q, arp_q, ip_q, ported_q;
  logic [47:0] dst_q;
  logic [15:0] ethertype_q, l4_q;
  logic [7:0] next_q;
  berth_card_pkg::frame_t f1_q, f2_q;
  always_ff @(posedge clk) begin
    v1_q        <= cf_valid && !rst;
    f1_q        <= cf;
    dst_q       <= dst;
    ethertype_q <= ethertype;
    ip_q        <= ipv4 || ipv6;
    next_q      <= protocol;
    ported_q    <= ported;
    l4_q        <= ipv4 ? port4 : b16(cf_hdr, 56);
    datagram_q  <= datagram;
    roce_q      <= (cf.flags & berth_regs_pkg::RX_FLAG_ROCE[2:0]) != '0;
    arp_q       <= ethertype == TYPE_ARP && cf.len >= 13'd42 && b32(cf_hdr, 38) == own_ip;
  end

  // ---- 2: comparisons ----------------------------------------------------------------------------------------------------------
  wire named = own_mac != '0;
  wire to_me = dst_q == own_mac;
  wire ours = !named || to_me || dst_q == '1;
  logic [QUEUES-1:0] wants;
  logic [FILTERS-1:0] hits;
  always_comb begin
    for (int unsigned q = 0; q < QUEUES; q++)
      wants[q] = on[q] && (ours || promiscuous_q[q] || (multicast_q[q] && dst_q[40]));
    for (int unsigned f = 0; f < FILTERS; f++)
      hits[f] = fields_q[f] != '0 && (fields_q[f][MAC] ? on[queue_q[f]] : wants[queue_q[f]])
          && (!fields_q[f][ETHERTYPE] || type_q[f] == ethertype_q)
          && (!fields_q[f][PROTOCOL] || (ip_q && protocol_q[f] == next_q))
          && (!fields_q[f][PORT] || (ported_q && port_q[f] == l4_q))
          && (!fields_q[f][MAC] || mac_q[f] == dst_q);
  end
  logic v2_q, own_q, both_q, ours_q;
  logic [FILTERS-1:0] hits_q;
  logic [QUEUES-1:0] takes_q;
  always_ff @(posedge clk) begin
    v2_q    <= v1_q && !rst;
    f2_q    <= f1_q;
    own_q   <= named && roce_q && to_me && !datagram_q;
    both_q  <= named && arp_q && ours;
    ours_q  <= ours;
    hits_q  <= hits;
    takes_q <= wants & default_q;
  end

  // ---- 3: choice -----------------------------------------------------------------------------------------------------------------
  logic found;
  logic [QW-1:0] chosen;
  always_comb begin
    found  = takes_q != '0;
    chosen = '0;
    for (int unsigned q = QUEUES; q > 0; q--) if (takes_q[q-1]) chosen = QW'(q - 1);
    for (int unsigned f = FILTERS; f > 0; f--)
      if (hits_q[f-1]) begin
        found  = 1'b1;
        chosen = queue_q[f-1];
      end
    found = found && !own_q;
  end
  always_ff @(posedge clk) begin
    to_core  <= v2_q && !found && ours_q && !rst;
    to_queue <= v2_q && found && !rst;
    to_none  <= v2_q && !found && !ours_q && !rst;
    number   <= chosen;
    both     <= both_q;
    frame    <= f2_q;
  end
  assign busy = v1_q || v2_q || to_core || to_queue || to_none;
  wire unused = &{1'b0, setup, attr, wanted, cf_hdr, b8(cf_hdr, 0)};
endmodule
