// SPDX-License-Identifier: Apache-2.0 OR MIT
// Socket of the soft core: two Wishbone masters (instructions, data) and nothing else,
// so that the core can be exchanged. What is plugged in is VexRiscv "Full" (RV32IM,
// caches; addresses from 0x8000_0000 on are not cached), which comes as a package.
// It starts at address 0. There are no interrupts: firmware polls and waits on the bus.

module berth_cpu (
    input  logic        clk,
    input  logic        rst,

    // instructions: classic cycles with cti (bursts of 8 words)
    output logic        ibus_stb,
    output logic [31:2] ibus_adr,
    output logic [2:0]  ibus_cti,
    input  logic        ibus_ack,
    input  logic [31:0] ibus_dat_r,
    input  logic        ibus_err,

    // data
    output logic        dbus_stb,
    output logic        dbus_we,
    output logic [31:2] dbus_adr,
    output logic [2:0]  dbus_cti,
    output logic [3:0]  dbus_sel,
    output logic [31:0] dbus_dat_w,
    input  logic        dbus_ack,
    input  logic [31:0] dbus_dat_r,
    input  logic        dbus_err
);
    logic ibus_cyc, dbus_cyc;
    logic ibus_stb_raw, dbus_stb_raw;

    assign ibus_stb = ibus_cyc && ibus_stb_raw;
    assign dbus_stb = dbus_cyc && dbus_stb_raw;

    // verilator lint_off PINCONNECTEMPTY
    VexRiscv core (
        .clk(clk),
        .reset(rst),
        .externalResetVector(32'd0),
        .timerInterrupt(1'b0),
        .softwareInterrupt(1'b0),
        .externalInterruptArray(32'd0),
        .iBusWishbone_CYC(ibus_cyc),
        .iBusWishbone_STB(ibus_stb_raw),
        .iBusWishbone_ACK(ibus_ack),
        .iBusWishbone_WE(),
        .iBusWishbone_ADR(ibus_adr),
        .iBusWishbone_DAT_MISO(ibus_dat_r),
        .iBusWishbone_DAT_MOSI(),
        .iBusWishbone_SEL(),
        .iBusWishbone_ERR(ibus_err),
        .iBusWishbone_CTI(ibus_cti),
        .iBusWishbone_BTE(),
        .dBusWishbone_CYC(dbus_cyc),
        .dBusWishbone_STB(dbus_stb_raw),
        .dBusWishbone_ACK(dbus_ack),
        .dBusWishbone_WE(dbus_we),
        .dBusWishbone_ADR(dbus_adr),
        .dBusWishbone_DAT_MISO(dbus_dat_r),
        .dBusWishbone_DAT_MOSI(dbus_dat_w),
        .dBusWishbone_SEL(dbus_sel),
        .dBusWishbone_ERR(dbus_err),
        .dBusWishbone_CTI(dbus_cti),
        .dBusWishbone_BTE()
    );
    // verilator lint_on PINCONNECTEMPTY
endmodule
