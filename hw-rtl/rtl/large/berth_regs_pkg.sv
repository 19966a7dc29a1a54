// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from driver/abi by `cargo xtask gen`; do not edit.
// Registers, opcodes and sizes that the RTL shares with driver and firmware.

/* verilator lint_off UNUSEDPARAM */
package berth_regs_pkg;

    // Identity and sizes
    localparam logic [31:0] PCI_VENDOR               = 32'h000010ee; // PCI vendor id of the card (Xilinx, as many FPGA boards use)
    localparam logic [31:0] PCI_DEVICE               = 32'h0000be47; // PCI device id of the card
    localparam logic [31:0] PCI_CLASS                = 32'h00020700; // PCI class code: network controller, InfiniBand
    localparam logic [31:0] CARD_ID                  = 32'h42455254; // Value of the register `HOST_ID`: "BERT"
    localparam logic [31:0] ABI_VERSION              = 32'h00000003; // Version of this layout; driver, firmware and RTL refuse to work with another
    localparam logic [31:0] BAR0_SIZE                = 32'h00010000; // Size of BAR0 in bytes: control registers and statistics
    localparam logic [31:0] BAR2_SIZE                = 32'h00040000; // Size of BAR2 in bytes: one doorbell page per process
    localparam logic [31:0] NUM_UARS                 = 32'h00000040; // Number of doorbell pages (4 KiB each) in BAR2; page 0 belongs to the kernel
    localparam logic [31:0] NUM_QP_ROWS              = 32'h00000400; // Rows of the QP tables in RTL; a row's index is the QPN
    localparam logic [31:0] FIRST_QPN                = 32'h00000010; // First QPN that a process may get; lower ones are reserved (0, 1 by InfiniBand, 2 for Berth's control connection)
    localparam logic [31:0] NUM_QPS                  = 32'h000003f0; // Data QPs that one card serves; QPNs are FIRST_QPN .. FIRST_QPN + NUM_QPS - 1
    localparam logic [31:0] CONTROL_QPN              = 32'h00000002; // QPN of the control connection between two cards
    localparam logic [31:0] NUM_CQS                  = 32'h00000040; // Completion queues of one card; CQNs are 0 .. NUM_CQS - 1
    localparam logic [31:0] CM_REQUESTS              = 32'h0000000c; // Connection requests that wait for the host's answer at a time
    localparam logic [31:0] NUM_PEERS                = 32'h00000020; // Other end nodes that one card has connections to at a time
    localparam logic [31:0] CM_SERVICES              = 32'h00000040; // Services that one card listens to at a time
    localparam logic [31:0] NUM_ASIDS                = 32'h00000040; // Address spaces (processes) that one card serves; ASID 0 is invalid
    localparam logic [31:0] XLT_ENTRIES              = 32'h00002000; // Entries of the translation table: one page each
    localparam logic [31:0] NUM_KEYS                 = 32'h00001000; // Keys that peers can be given (QP-11)
    localparam logic [31:0] XLT_ROWS                 = 32'h00000200; // Rows of the translation table
    localparam logic [31:0] XLT_WAYS                 = 32'h00000010; // Entries of a row, at most `MAX_WAYS`
    localparam logic [31:0] CREDITS_PER_QP           = 32'h00000080; // Credits that one QP's FIFO holds, in each direction
    localparam logic [31:0] MAX_LIST                 = 32'h00000040; // Largest credit list: half of the sender's store (decision: L is at most half)
    localparam logic [31:0] TX_SLOTS                 = 32'h00000010; // Transmit slots in packet RAM
    localparam logic [31:0] RX_SLOTS                 = 32'h00000010; // Receive slots in packet RAM
    localparam logic [31:0] SLOT_BYTES               = 32'h00001200; // Bytes per packet slot: the largest frame (MTU 4096 and headers) and room for alignment
    localparam logic [31:0] SCRATCH_SLOTS            = 32'h00000040; // Scratch places in packet RAM, for queue elements and small transfers
    localparam logic [31:0] SCRATCH_BYTES            = 32'h00000080; // Bytes per scratch place
    localparam logic [31:0] READ_TAGS                = 32'h00000040; // Reads of host memory that are out at a time, a power of two; commands to read likewise
    localparam logic [31:0] FAST_PLACES              = 32'h00000100; // Places of the fast path's windows, a power of two: at most one packet less is under way
    localparam logic [31:0] FAST_PROBE               = 32'h00000080; // Least time without news until the fast path sends the oldest packet again as a probe, in units of 64 cycles (33 µs)
    localparam logic [31:0] FAST_ELEMENTS            = 32'h00000080; // Elements of a send queue that the fast path has fetched and not completed, a power of two
    localparam logic [31:0] FAST_CONTEXTS            = 32'h00000100; // Memory ranges of these elements, a power of two
    localparam logic [31:0] MIN_SQ_DEPTH             = 32'h00000004; // Smallest send queue, in elements: the fast path reads so many at a time
    localparam logic [31:0] MAX_DEPTH                = 32'h00001000; // Largest send or receive queue, in elements, a power of two
    localparam logic [31:0] FAST_BIG_FRAMES          = 32'h00000010; // Frames with more than 1 KiB of payload that the fast path has in its transmit RAM
    localparam logic [31:0] FAST_SMALL_FRAMES        = 32'h00000040; // Frames with less that it has there
    localparam logic [31:0] CLOCK_HZ                 = 32'h0ee6b280; // Clock of the engines in Hz: card cycles per second
    localparam logic [31:0] FW_RAM_BYTES             = 32'h00100000; // Bytes of RAM that hold firmware, its data and its stack
    localparam logic [31:0] MAX_READS                = 32'h00000020; // RDMA READ requests that may be under way to a QP at most, a power of two
    localparam logic [31:0] RAW_QUEUES               = 32'h00000004; // Raw queues: the kernel's, for whole Ethernet frames
    localparam logic [31:0] RAW_FILTERS              = 32'h00000008; // Filters that choose among them
    localparam logic [31:0] RAW_ELEMENTS             = 32'h00000020; // Elements of each ring of a raw queue that the card has fetched and not used, a power of two
    localparam logic [31:0] RAW_SEND_BYTES           = 32'h00008000; // Bytes of frames of raw queues that are on their way out, a power of two
    localparam logic [31:0] FW_MAGIC                 = 32'h31574642; // Magic of a firmware image: "BFW1"
    localparam logic [31:0] FW_HEADER_BYTES          = 32'h00000020; // Bytes of a firmware image's header (struct `FwHeader`)

    // BAR0: control registers
    localparam logic [31:0] HOST_ID                  = 32'h00000000; // ro: `CARD_ID`
    localparam logic [31:0] HOST_ABI                 = 32'h00000004; // ro: `ABI_VERSION`
    localparam logic [31:0] HOST_CAPS0               = 32'h00000008; // ro: data QPs in bits 15:0, CQs in bits 31:16
    localparam logic [31:0] HOST_CAPS1               = 32'h0000000c; // ro: doorbell pages in bits 15:0, rows of the translation table in bits 31:16
    localparam logic [31:0] HOST_CTRL                = 32'h00000010; // wo: bit 0 resets the card (everything but BAR0's reset-surviving identity); done when `HOST_STATUS` reads `FW_RESET`
    localparam logic [31:0] HOST_STATUS              = 32'h00000014; // ro: state of the firmware, see `FW_*` in status
    localparam logic [31:0] HOST_FW_CODE             = 32'h00000018; // ro: reason that belongs to `HOST_STATUS` (image refused, panic)
    localparam logic [31:0] HOST_CLOCK_HZ            = 32'h0000001c; // ro: engine clock in Hz
    localparam logic [31:0] HOST_CYCLES_LO           = 32'h00000020; // ro: card cycles since reset, low half; reading latches the high half
    localparam logic [31:0] HOST_CYCLES_HI           = 32'h00000024; // ro: card cycles, high half as latched
    localparam logic [31:0] HOST_CAPS2               = 32'h00000028; // ro: address spaces in bits 15:0, entries of a row of the translation table in bits 23:16, first data QPN in bits 31:24
    localparam logic [31:0] HOST_CAPS3               = 32'h0000002c; // ro: keys in bits 15:0
    localparam logic [31:0] HOST_FW_DATA             = 32'h00000040; // wo: next word of the firmware image, header first; words arrive in order
    localparam logic [31:0] HOST_FW_BOOT             = 32'h00000044; // wo: any value: the image is complete; the card checks it and starts the core, or refuses with a code
    localparam logic [31:0] HOST_HB_CHALLENGE        = 32'h00000048; // rw: challenge to the firmware; it answers with the same value
    localparam logic [31:0] HOST_HB_ANSWER           = 32'h0000004c; // ro: the firmware's last answer
    localparam logic [31:0] HOST_CMD_BASE_LO         = 32'h00000050; // rw: command ring, bus address low half (64-byte aligned)
    localparam logic [31:0] HOST_CMD_BASE_HI         = 32'h00000054; // rw: command ring, bus address high half
    localparam logic [31:0] HOST_CMD_LOG2            = 32'h00000058; // rw: log2 of the command ring's entries (64 bytes each), 4 to 12; writing it resets both indices
    localparam logic [31:0] HOST_CMD_PI              = 32'h0000005c; // rw: producer index of the command ring (free-running 16 bits); writing is the doorbell
    localparam logic [31:0] HOST_CMD_CI              = 32'h00000060; // ro: consumer index of the command ring (free-running 16 bits): entries that the card has fetched
    localparam logic [31:0] HOST_EVT_BASE_LO         = 32'h00000070; // rw: event ring, bus address low half (64-byte aligned)
    localparam logic [31:0] HOST_EVT_BASE_HI         = 32'h00000074; // rw: event ring, bus address high half
    localparam logic [31:0] HOST_EVT_LOG2            = 32'h00000078; // rw: log2 of the event ring's entries (64 bytes each), 4 to 12; writing it resets both indices
    localparam logic [31:0] HOST_EVT_CI              = 32'h0000007c; // rw: consumer index of the event ring (free-running 16 bits); bit 31 arms MSI-X vector 0 for the next event (at once, if there is one already), with bit 30 for the next one but `EV_PAGE_RELEASE` and `EV_PAGE_EVICTED`, or when half of the ring is in use
    localparam logic [31:0] HOST_EVT_PI              = 32'h00000080; // ro: producer index of the event ring (free-running 16 bits)
    localparam logic [31:0] HOST_FENCE_LO            = 32'h00000088; // rw: bus address that `CMD_FENCE` writes its token to, low half (8-byte aligned)
    localparam logic [31:0] HOST_FENCE_HI            = 32'h0000008c; // rw: the same, high half
    localparam logic [31:0] HOST_DMA_ENABLE          = 32'h00000090; // rw: bit 0 lets the card do DMA; cleared, it stops issuing (reads in flight end)
    localparam logic [31:0] HOST_DMA_BUSY            = 32'h00000094; // ro: DMA reads and writes in flight
    localparam logic [31:0] HOST_PCIE_LIMITS         = 32'h00000098; // ro: the slot's limits, as configuration space has them now (Device Control, PCI Express 7.5.3.4): log2 of maximum payload in bits 3:0 (7 to 12), log2 of maximum read request in bits 7:4 (7 to 12)
    localparam logic [31:0] HOST_READ_TIMEOUT        = 32'h0000009c; // rw: log2 of the cycles of a third of the time after which a read of host memory counts as failed (10 to 27)
    localparam logic [31:0] HOST_COUNTERS            = 32'h00000400; // ro: first RTL counter (see counters), 8 bytes each, little-endian
    localparam logic [31:0] HOST_CMD_PUSH            = 32'h00002000; // wo, 8 bytes: index (free-running 16 bits) of a command that is written into the card beside its place in the ring; its eight words follow, in order, from here + 0x40 on, 8 bytes each
    localparam logic [31:0] HOST_STATS               = 32'h00008000; // ro: statistics RAM, written by firmware: 64-bit counters, then the panic text

    // BAR2: doorbell page
    localparam logic [31:0] DB_SQ                    = 32'h00000000; // Send-queue doorbell: QPN in bits 15:0, producer index in bits 31:16 (free-running), bytes posted so far (modulo 2^32) in bits 63:32
    localparam logic [31:0] DB_RQ                    = 32'h00000008; // Receive-queue doorbell: QPN in bits 15:0, producer index in bits 31:16 (free-running)
    localparam logic [31:0] DB_CQ                    = 32'h00000010; // Completion-queue doorbell: CQN in bits 15:0, consumer index in bits 31:16 (free-running), bit 63 arms the notification for the next completion (at once, if there is one beyond the consumer index already)
    localparam logic [31:0] DB_RAW_SQ                = 32'h00000018; // Send doorbell of a raw queue, in page 0 only: queue in bits 15:0, producer index in bits 31:16 (free-running)
    localparam logic [31:0] DB_RAW_RQ                = 32'h00000020; // Receive doorbell of a raw queue, likewise
    localparam logic [31:0] DB_WQE                   = 32'h00000040; // Send-queue doorbell with its element: a slot of eight words, written in order

    // Commands (host to card)
    localparam logic [31:0] CMD_PAGE_INSTALL         = 32'h00000001; // RTL
    localparam logic [31:0] CMD_PAGE_READY           = 32'h00000002; // RTL
    localparam logic [31:0] CMD_PAGE_EVICT           = 32'h00000003; // RTL
    localparam logic [31:0] CMD_PAGE_REVOKE          = 32'h00000004; // RTL
    localparam logic [31:0] CMD_FENCE                = 32'h00000005; // RTL
    localparam logic [31:0] CMD_NET_CONFIG           = 32'h00000010; // Firmware
    localparam logic [31:0] CMD_CQ_CREATE            = 32'h00000011; // Firmware
    localparam logic [31:0] CMD_CQ_DESTROY           = 32'h00000012; // Firmware
    localparam logic [31:0] CMD_QP_CREATE            = 32'h00000013; // Firmware
    localparam logic [31:0] CMD_QP_DESTROY           = 32'h00000014; // Firmware
    localparam logic [31:0] CMD_CM_LISTEN            = 32'h00000015; // Firmware
    localparam logic [31:0] CMD_CM_UNLISTEN          = 32'h00000016; // Firmware
    localparam logic [31:0] CMD_CM_CONNECT           = 32'h00000017; // Firmware
    localparam logic [31:0] CMD_CM_ACCEPT            = 32'h00000018; // Firmware
    localparam logic [31:0] CMD_CM_REJECT            = 32'h00000019; // Firmware
    localparam logic [31:0] CMD_CM_DISCONNECT        = 32'h0000001a; // Firmware
    localparam logic [31:0] CMD_RANGE_REVOKED        = 32'h0000001b; // Firmware
    localparam logic [31:0] CMD_PRESSURE             = 32'h0000001c; // Firmware
    localparam logic [31:0] CMD_QP_QUERY             = 32'h0000001d; // Firmware
    localparam logic [31:0] CMD_CRASH                = 32'h0000001e; // Firmware
    localparam logic [31:0] CMD_KEY_REGISTER         = 32'h0000001f; // Firmware
    localparam logic [31:0] CMD_KEY_BIND             = 32'h00000020; // Firmware
    localparam logic [31:0] CMD_KEY_FREE             = 32'h00000021; // Firmware
    localparam logic [31:0] CMD_KEYS_DROP            = 32'h00000022; // Firmware
    localparam logic [31:0] CMD_QP_PEER              = 32'h00000023; // Firmware
    localparam logic [31:0] CMD_RAW_CREATE           = 32'h00000024; // Firmware
    localparam logic [31:0] CMD_RAW_DESTROY          = 32'h00000025; // Firmware
    localparam logic [31:0] CMD_RAW_MODE             = 32'h00000026; // Firmware
    localparam logic [31:0] CMD_RAW_FILTER           = 32'h00000027; // Firmware
    localparam logic [31:0] CMD_QP_RECALL            = 32'h00000028; // Firmware
    localparam logic [31:0] CMD_QP_TRIGGER           = 32'h00000029; // Firmware
    localparam logic [31:0] CMD_QP_CAP               = 32'h0000002a; // Firmware

    // Events (card to host)
    localparam logic [31:0] EV_PAGE_NEED             = 32'h00000001; // RTL
    localparam logic [31:0] EV_PAGE_RELEASE          = 32'h00000002; // RTL
    localparam logic [31:0] EV_PAGE_EVICTED          = 32'h00000003; // RTL
    localparam logic [31:0] EV_CQ_NOTIFY             = 32'h00000004; // RTL
    localparam logic [31:0] EV_CQ_OVERRUN            = 32'h00000005; // RTL
    localparam logic [31:0] EV_CMD_DONE              = 32'h00000010; // Firmware
    localparam logic [31:0] EV_CM_REQUEST            = 32'h00000011; // Firmware
    localparam logic [31:0] EV_CM_ESTABLISHED        = 32'h00000012; // Firmware
    localparam logic [31:0] EV_CM_CLOSED             = 32'h00000013; // Firmware
    localparam logic [31:0] EV_QP_ERROR              = 32'h00000014; // Firmware
    localparam logic [31:0] EV_LOG                   = 32'h00000015; // Firmware
    localparam logic [31:0] EV_CM_REQUEST_OVER       = 32'h00000016; // Firmware

    // Firmware states and refusals
    localparam logic [31:0] FW_RESET                 = 32'h00000000; // The core is held in reset; an image may be loaded
    localparam logic [31:0] FW_LOADING               = 32'h00000001; // An image is being loaded
    localparam logic [31:0] FW_REFUSED               = 32'h00000002; // The image was refused; `HOST_FW_CODE` says why (`FW_BAD_*`)
    localparam logic [31:0] FW_STARTED               = 32'h00000003; // The core has been started
    localparam logic [31:0] FW_RUNNING               = 32'h00000004; // The firmware is up and serves commands
    localparam logic [31:0] FW_PANIC                 = 32'h00000005; // The firmware has panicked; the text stands in the statistics RAM at `STATS_PANIC`
    localparam logic [31:0] FW_BAD_MAGIC             = 32'h00000001; // Image refused: wrong magic
    localparam logic [31:0] FW_BAD_ABI               = 32'h00000002; // Image refused: built for another ABI version
    localparam logic [31:0] FW_BAD_LENGTH            = 32'h00000003; // Image refused: length zero, not a multiple of 4, or above the RAM's size
    localparam logic [31:0] FW_TRUNCATED             = 32'h00000004; // Image refused: fewer or more words were loaded than the header says
    localparam logic [31:0] FW_BAD_CRC               = 32'h00000005; // Image refused: checksum wrong
    localparam logic [31:0] FW_BUSY                  = 32'h00000006; // Boot refused: the core runs already; reset the card first

    // Completion status
    localparam logic [31:0] WC_OK                    = 32'h00000000; // Success
    localparam logic [31:0] WC_BAD_WQE               = 32'h00000001; // The queue element is malformed: unknown opcode or flags, too many SGEs, lengths that do not fit
    localparam logic [31:0] WC_LOCAL_PROTECTION      = 32'h00000002; // Memory of the element cannot be used: unmapped, no access, kernel address, special mapping
    localparam logic [31:0] WC_OVER_BUDGET           = 32'h00000003; // The element does not fit the pinned-memory budget, however long one waits
    localparam logic [31:0] WC_WITHDRAWN             = 32'h00000004; // Memory that was granted has been withdrawn (unmapped) before the data came
    localparam logic [31:0] WC_RETRY_EXCEEDED        = 32'h00000005; // The peer did not answer: retries are used up
    localparam logic [31:0] WC_FLUSHED               = 32'h00000006; // The QP went into error before this element was done
    localparam logic [31:0] WC_REMOTE_ERROR          = 32'h00000007; // The peer refused: remote operation error
    localparam logic [31:0] WC_TOO_LONG              = 32'h00000008; // Message mode: the credit is smaller than the message
    localparam logic [31:0] WC_NO_MEMORY             = 32'h00000009; // The host had no memory to bring the element's pages in, however often it tried
    localparam logic [31:0] WC_REMOTE_ACCESS         = 32'h0000000a; // The peer's key does not allow the access: unknown, of another protection domain, unbound, used up, wrong range or right
    localparam logic [31:0] WC_BIND                  = 32'h0000000b; // A BIND names a key that the QP's protection domain does not have, or a range or right that cannot be
    localparam logic [31:0] WC_RNR_RETRY             = 32'h0000000c; // The peer had no receive, however often it was tried: RNR retries are used up
    localparam logic [31:0] WC_REMOTE_REQUEST        = 32'h0000000d; // The peer takes no such request: longer than its receive, or of a kind that its QP does not serve
    localparam logic [31:0] WC_RECALLED              = 32'h0000000e; // Nothing has come for the receive, and it was recalled

    // Command status
    localparam logic [31:0] CMD_OK                   = 32'h00000000; // Done
    localparam logic [31:0] CMD_UNKNOWN              = 32'h00000001; // Unknown opcode
    localparam logic [31:0] CMD_INVALID              = 32'h00000002; // A field is out of range
    localparam logic [31:0] CMD_BUSY                 = 32'h00000003; // The object is there already, or in a state that does not allow the command
    localparam logic [31:0] CMD_NOT_FOUND            = 32'h00000004; // No such object
    localparam logic [31:0] CMD_FULL                 = 32'h00000005; // No room left

    // Reasons
    localparam logic [31:0] REASON_LOCAL_CLOSE       = 32'h00000000; // Closed by the local side
    localparam logic [31:0] REASON_PEER_CLOSE        = 32'h00000001; // Closed by the peer
    localparam logic [31:0] REASON_PEER_LOST         = 32'h00000002; // The peer does not answer any more
    localparam logic [31:0] REASON_BAD_INDEX         = 32'h00000003; // A doorbell's producer index is further ahead than the queue is deep
    localparam logic [31:0] REASON_QUEUE_READ        = 32'h00000004; // The host answered a DMA read of a queue with an error
    localparam logic [31:0] REASON_WITHDRAWN         = 32'h00000005; // Memory that was granted has been withdrawn
    localparam logic [31:0] REASON_PROTOCOL          = 32'h00000006; // The peer broke the protocol (a packet without a credit, a list before the proof, …)
    localparam logic [31:0] REASON_SEND_FAILED       = 32'h00000007; // A send element failed
    localparam logic [31:0] REASON_CQ_FULL           = 32'h00000008; // The completion queue is full
    localparam logic [31:0] REASON_REJECTED          = 32'h00000009; // The listener refused
    localparam logic [31:0] REASON_NO_LISTENER       = 32'h0000000a; // Nobody listens to that service
    localparam logic [31:0] REASON_UNREACHABLE       = 32'h0000000b; // The peer's name (IPv4 address) could not be resolved, or it did not answer the request
    localparam logic [31:0] REASON_BUSY              = 32'h0000000c; // Too many requests wait for that service or for the peer, or the listener did not answer in time
    localparam logic [31:0] REASON_ACCESS            = 32'h0000000d; // The peer used a key that does not allow what it wanted
    localparam logic [31:0] REASON_NO_TARGET         = 32'h0000000e; // Memory that the peer was to write to could not be had: unmapped, no access, over the budget

    // Answers to page requests
    localparam logic [31:0] PAGE_OK                  = 32'h00000000; // The pages are installed: acquire again
    localparam logic [31:0] PAGE_FAULT               = 32'h00000001; // The memory cannot be pinned (unmapped, no access, special mapping)
    localparam logic [31:0] PAGE_OVER_BUDGET         = 32'h00000002; // The range is larger than the budget
    localparam logic [31:0] PAGE_NO_PROCESS          = 32'h00000003; // The process is gone
    localparam logic [31:0] PAGE_NO_MEMORY           = 32'h00000004; // The host had no memory for it, however often it tried

    // RTL counters
    localparam logic [31:0] C_TX_FRAMES              = 32'h00000000; // Frames sent to the wire (loopback not counted)
    localparam logic [31:0] C_TX_BYTES               = 32'h00000001; // Bytes sent to the wire, with iCRC, without preamble, FCS and gap
    localparam logic [31:0] C_RX_FRAMES              = 32'h00000002; // Frames taken from the wire
    localparam logic [31:0] C_RX_BYTES               = 32'h00000003; // Bytes taken from the wire
    localparam logic [31:0] C_LOOPBACK_FRAMES        = 32'h00000004; // Frames looped back
    localparam logic [31:0] C_RX_TRUNCATED           = 32'h00000005; // Received frames dropped: shorter than their headers say, or than the least
    localparam logic [31:0] C_RX_OVERSIZED           = 32'h00000006; // Received frames dropped: longer than a slot
    localparam logic [31:0] C_RX_MAC_ERROR           = 32'h00000007; // Received frames dropped: marked bad by the MAC
    localparam logic [31:0] C_RX_BAD_ICRC            = 32'h00000008; // Received RoCE frames dropped: iCRC wrong
    localparam logic [31:0] C_RX_STALL_CYCLES        = 32'h00000009; // Cycles in which the wire had to wait for a receive slot
    localparam logic [31:0] C_DMA_READS              = 32'h0000000a; // DMA reads: requests issued
    localparam logic [31:0] C_DMA_READ_BYTES         = 32'h0000000b; // DMA reads: bytes
    localparam logic [31:0] C_DMA_WRITES             = 32'h0000000c; // DMA writes: requests issued
    localparam logic [31:0] C_DMA_WRITE_BYTES        = 32'h0000000d; // DMA writes: bytes
    localparam logic [31:0] C_DMA_NO_TRANSLATION     = 32'h0000000e; // DMA refused: no translation
    localparam logic [31:0] C_DMA_HOST_ERROR         = 32'h0000000f; // DMA ended by an error answer of the host
    localparam logic [31:0] C_XLT_HITS               = 32'h00000010; // Page acquisitions answered by the translation table
    localparam logic [31:0] C_XLT_MISSES             = 32'h00000011; // Page acquisitions that asked the host
    localparam logic [31:0] C_EVENTS                 = 32'h00000012; // Events written
    localparam logic [31:0] C_COMPLETIONS            = 32'h00000013; // Completions written
    localparam logic [31:0] C_INTERRUPTS             = 32'h00000014; // MSI-X interrupts raised
    localparam logic [31:0] C_DOORBELLS              = 32'h00000015; // Doorbells taken
    localparam logic [31:0] C_DOORBELL_DENIED        = 32'h00000016; // Doorbells dropped: QP or CQ of another process, or none
    localparam logic [31:0] C_DOORBELL_MALFORMED     = 32'h00000017; // Doorbells dropped: not one 8-byte write (torn), or to an unknown offset
    localparam logic [31:0] C_BAR_BAD_ACCESS         = 32'h00000018; // BAR0 accesses to an offset without a register
    localparam logic [31:0] C_CMD_BAD                = 32'h00000019; // Commands with an unknown RTL opcode or a field out of range
    localparam logic [31:0] C_CQ_OVERRUN             = 32'h0000001a; // Completions lost because their queue was full
    localparam logic [31:0] C_CREDITS_POSTED         = 32'h0000001b; // Credits posted to builders
    localparam logic [31:0] C_LISTS_SENT             = 32'h0000001c; // Credit lists taken from builders, repeats not included
    localparam logic [31:0] C_CREDITS_SENT           = 32'h0000001d; // Credits in them
    localparam logic [31:0] C_LISTS_TAKEN            = 32'h0000001e; // Credit lists that readers took
    localparam logic [31:0] C_CREDITS_TAKEN          = 32'h0000001f; // Credits that readers took
    localparam logic [31:0] C_LISTS_REFUSED          = 32'h00000020; // Credit lists that readers refused (gap, overflow, early, bad)
    localparam logic [31:0] C_HOST_WAIT_CYCLES       = 32'h00000021; // Cycles in which at least one DMA read waited for the host (counted apart from work)
    localparam logic [31:0] C_IDLE_CYCLES            = 32'h00000022; // Cycles in which the core was stalled in `CPU_WAIT`
    localparam logic [31:0] C_FP_PACKETS             = 32'h00000023; // Fast path: data packets sent, those sent again included
    localparam logic [31:0] C_FP_AGAIN               = 32'h00000024; // Fast path: data packets sent again
    localparam logic [31:0] C_FP_ACKS                = 32'h00000025; // Fast path: acknowledgements sent
    localparam logic [31:0] C_FP_LISTS               = 32'h00000026; // Fast path: credit lists sent, repeats included
    localparam logic [31:0] C_FP_BYTES_SENT          = 32'h00000027; // Fast path: payload bytes read from memory for sending, those sent again included, inline data not
    localparam logic [31:0] C_FP_BLOCKS              = 32'h00000028; // Fast path: blocks asked for sending
    localparam logic [31:0] C_FP_TAKEN               = 32'h00000029; // Fast path: data packets accepted
    localparam logic [31:0] C_FP_BYTES_PLACED        = 32'h0000002a; // Fast path: payload bytes placed in receive buffers
    localparam logic [31:0] C_FP_LANDED              = 32'h0000002b; // Fast path: pieces that have landed (credits used by the peer)
    localparam logic [31:0] C_FP_DUPLICATES          = 32'h0000002c; // Fast path: data packets dropped as duplicates
    localparam logic [31:0] C_FP_DROPPED             = 32'h0000002d; // Fast path: data packets dropped: out of sequence, outside the window, without a credit, with a malformed header
    localparam logic [31:0] C_FP_SLOTS               = 32'h0000002e; // Fast path: doorbells that brought their element
    localparam logic [31:0] C_FW_FRAMES              = 32'h0000002f; // Frames that firmware was given, loopback included, `C_RX_CORE_FULL` not: what the fast path does not take
    localparam logic [31:0] C_FP_BAD_WQE             = 32'h00000030; // Fast path: malformed queue elements, of send and receive queues
    localparam logic [31:0] C_CMD_PUSHED             = 32'h00000031; // Commands that were not fetched, as the host had written them into the card
    localparam logic [31:0] C_DMA_TIMEOUTS           = 32'h00000032; // DMA reads, those of queues and rings included, that were given up because the host did not answer in time (`HOST_READ_TIMEOUT`)
    localparam logic [31:0] C_DMA_UNEXPECTED         = 32'h00000033; // Completions of reads thrown away: of no read that is awaited (unknown tag, given up, failed, of before a reset)
    localparam logic [31:0] C_RX_NOT_FOR_US          = 32'h00000034; // Received frames dropped: neither to this card's MAC address nor to all
    localparam logic [31:0] C_RX_CORE_FULL           = 32'h00000035; // Received frames dropped: for firmware, which had as many as it may have
    localparam logic [31:0] C_FP_ACKS_TAKEN          = 32'h00000036; // Fast path: acknowledgements that came, negative and repeated ones included
    localparam logic [31:0] C_FP_BAD_ACKS            = 32'h00000037; // Fast path: acknowledgements dropped: for packets that were never sent, or of an unknown kind
    localparam logic [31:0] C_FP_LIST_REPEATS        = 32'h00000038; // Fast path: credit lists that came again
    localparam logic [31:0] C_FP_PAGE_STRAYS         = 32'h00000039; // Fast path: answers to page requests (`CMD_PAGE_READY`) thrown away: it had not asked, or was answered before
    localparam logic [31:0] C_FP_ANSWERS             = 32'h0000003a; // Fast path: packets of answers to RDMA READs and atomics, repeated ones included, as they were given to be sent
    localparam logic [31:0] C_FP_ATOMICS             = 32'h0000003b; // Fast path: atomics of peers that were carried out
    localparam logic [31:0] C_FP_ATOMICS_AGAIN       = 32'h0000003c; // Fast path: answers to atomics that had been carried out before
    localparam logic [31:0] C_RAW_SENT               = 32'h0000003d; // Raw queues: frames sent
    localparam logic [31:0] C_RAW_RECEIVED           = 32'h0000003e; // Raw queues: frames given to receives
    localparam logic [31:0] C_RAW_BAD                = 32'h0000003f; // Raw queues: elements that are malformed, or could not be read, or whose memory could not; doorbells further ahead than the ring is deep
    localparam logic [31:0] C_RAW_NO_RECEIVE         = 32'h00000040; // Raw queues: frames dropped for want of a receive
    localparam logic [31:0] C_RAW_TOO_LONG           = 32'h00000041; // Raw queues: frames dropped that are longer than their receive
    localparam logic [31:0] C_RAW_NO_SLOT            = 32'h00000042; // Raw queues: frames dropped because those before them still had all receive slots that raw frames may have: they came faster than the card reads receives and writes frames

    // Firmware counters
    localparam logic [31:0] F_NO_CREDIT              = 32'h00000000; // Connections ended by a data packet without a credit, from a rogue peer (invariant 1)
    localparam logic [31:0] F_TIMEOUTS               = 32'h00000001; // Time-outs of data packets that were not acknowledged
    localparam logic [31:0] F_UNKNOWN_QP             = 32'h00000002; // Frames, lists and records dropped: no QP has their QPN and epoch, or it is not connected
    localparam logic [31:0] F_BAD_OPCODE             = 32'h00000003; // Frames dropped: opcode unknown or not expected there
    localparam logic [31:0] F_BAD_HEADER             = 32'h00000004; // Frames dropped: headers malformed, lengths that contradict each other
    localparam logic [31:0] F_NOT_FOR_US             = 32'h00000005; // Frames dropped: not for this end node (MAC or IP), not from the QP's peer, or control messages of an end that this one does not know
    localparam logic [31:0] F_BAD_ACK                = 32'h00000006; // Acknowledgements on the control connection dropped: for a PSN never sent
    localparam logic [31:0] F_CONTROL_SENT           = 32'h00000007; // Control messages sent, retransmissions included
    localparam logic [31:0] F_CONTROL_RETRANSMITTED  = 32'h00000008; // Control messages sent again
    localparam logic [31:0] F_CONTROL_RECEIVED       = 32'h00000009; // Control messages received and taken
    localparam logic [31:0] F_CONTROL_BAD            = 32'h0000000a; // Control messages, lists and records dropped: malformed, or with a key that is not the connection's
    localparam logic [31:0] F_LIST_REFUSED           = 32'h0000000b; // Connections ended by a credit list that breaks the protocol (early, gap, overflow, empty credits)
    localparam logic [31:0] F_BAD_INDEX              = 32'h0000000c; // Queue pairs in error for a doorbell with a wild producer index
    localparam logic [31:0] F_RECALLED               = 32'h0000000d; // Credits recalled under pressure
    localparam logic [31:0] F_WITHDRAWN              = 32'h0000000e; // Connections ended by data for a receive whose memory went away
    localparam logic [31:0] F_PEERS_LOST             = 32'h0000000f; // Peers that stopped answering
    localparam logic [31:0] F_BAD_COMMAND            = 32'h00000010; // Commands refused
    localparam logic [31:0] F_LOG_DROPPED            = 32'h00000011; // Log bytes dropped because the host did not take them
    localparam logic [31:0] F_TX_STARVED             = 32'h00000012; // Frames dropped for want of a transmit slot or control buffer (resent later by time-out)
    localparam logic [31:0] F_FAST_EVENTS            = 32'h00000013; // Events of the fast path that firmware decided on (time-outs, errors); none on a clean wire
    localparam logic [31:0] F_REQUESTS_BUSY          = 32'h00000014; // Requests for a connection refused because too many wait, or nobody answered in time
    localparam logic [31:0] F_FOREIGN                = 32'h00000015; // Frames dropped that are neither RoCE nor ARP: VLAN, IPv6, IP options, fragments
    localparam logic [31:0] F_ADDRESS_CONFLICTS      = 32'h00000016; // ARP messages of another host that has this card's IPv4 address (RFC 5227)
    localparam logic [31:0] F_ACCESS_REFUSED         = 32'h00000017; // Connections ended by an access that no key allows (QP-11)
    localparam logic [31:0] F_MEMORY_WAITS           = 32'h00000018; // Times that a connection had to wait for memory of its peer (PC-4)
    localparam logic [31:0] F_BINDS                  = 32'h00000019; // BINDs of send queues (QP-4)
    localparam logic [31:0] F_BINDS_REFUSED          = 32'h0000001a; // BINDs refused, which ended their connections
    localparam logic [31:0] F_INVALIDATES            = 32'h0000001b; // Keys that peers have invalidated by SENDs (QP-4)
    localparam logic [31:0] F_INVALIDATES_REFUSED    = 32'h0000001c; // Keys that they may not invalidate, which ended their connections
    localparam logic [31:0] F_CREDIT_REPORTS         = 32'h0000001d; // Reports of how a peer uses its credits, after each of which lists may go by another trigger (CR-6 to CR-9)

    // Driver counters
    localparam logic [31:0] D_PINNED                 = 32'h00000000; // Gauge: bytes pinned now (pinned pages x page size, each page once per address space)
    localparam logic [31:0] D_PINNED_PEAK            = 32'h00000001; // Most bytes pinned at any time since the device appeared or the peak was reset
    localparam logic [31:0] D_PAGE_NEEDS             = 32'h00000002; // Page requests taken from the card
    localparam logic [31:0] D_PAGES_PINNED           = 32'h00000003; // Pages pinned
    localparam logic [31:0] D_PAGES_UNPINNED         = 32'h00000004; // Pages unpinned
    localparam logic [31:0] D_BUDGET_WAITS           = 32'h00000005; // Page requests that had to wait for budget, or for room for copies
    localparam logic [31:0] D_PAGE_FAULTS            = 32'h00000006; // Page requests refused: memory cannot be pinned
    localparam logic [31:0] D_OVER_BUDGET            = 32'h00000007; // Page requests refused: larger than the budget
    localparam logic [31:0] D_REVOKED                = 32'h00000008; // Translations revoked because memory went away
    localparam logic [31:0] D_FENCES                 = 32'h00000009; // Fences that ended
    localparam logic [31:0] D_FENCE_TIMEOUTS         = 32'h0000000a; // Fences that the card did not answer in time (it was reset)
    localparam logic [31:0] D_RESETS                 = 32'h0000000b; // Card resets
    localparam logic [31:0] D_HEARTBEAT_LOST         = 32'h0000000c; // Heartbeats that the firmware did not answer
    localparam logic [31:0] D_BAD_IOCTL              = 32'h0000000d; // ioctls refused
    localparam logic [31:0] D_INTERRUPTS             = 32'h0000000e; // Interrupts taken
    localparam logic [31:0] D_EVENTS                 = 32'h0000000f; // Events taken
    localparam logic [31:0] D_BAD_EVENTS             = 32'h00000010; // Events with an unknown kind or a field out of range
    localparam logic [31:0] D_CONTEXTS               = 32'h00000011; // Gauge: contexts (open descriptors that own an address space)
    localparam logic [31:0] D_QPS                    = 32'h00000012; // Gauge: queue pairs
    localparam logic [31:0] D_BUDGET                 = 32'h00000013; // Gauge: the card's budget in bytes
    localparam logic [31:0] D_NO_MEMORY              = 32'h00000014; // Times that a page request found no memory in the host; it is tried again, for a while
    localparam logic [31:0] D_XLT_USED               = 32'h00000015; // Gauge: places taken in the card's translation table, those included whose eviction is not answered yet
    localparam logic [31:0] D_CQS                    = 32'h00000016; // Gauge: completion queues
    localparam logic [31:0] D_KEYS                   = 32'h00000017; // Gauge: keys that peers can be given
    localparam logic [31:0] D_DATAGRAMS              = 32'h00000018; // Datagrams sent for queue pairs of verbs
    localparam logic [31:0] D_DATAGRAMS_NO_RECEIVE   = 32'h00000019; // Datagrams dropped: their queue pair had no receive, or a shorter one
    localparam logic [31:0] D_DATAGRAMS_REFUSED      = 32'h0000001a; // Datagrams dropped: malformed, or without the QPN and Q_Key of a queue pair that receives
    localparam logic [31:0] D_COPY_USED              = 32'h0000001b; // Gauge: bytes of copies for sending (VC-5, VC-6) that the card has; none of them are pinned memory of a process
    localparam logic [31:0] D_COPY_PEAK              = 32'h0000001c; // Most bytes of copies at any time since the device appeared or the peak was reset
    localparam logic [31:0] D_COPIES                 = 32'h0000001d; // Page requests that were answered by copies
    localparam logic [31:0] D_COPIED_BYTES           = 32'h0000001e; // Bytes copied for them
    localparam logic [31:0] D_COPY_MOST              = 32'h0000001f; // Gauge: sends of up to so many bytes are copied where the driver chooses (VC-10), after what pinning and copying have cost

    // Soft core: pending bits
    localparam logic [31:0] PEND_CMD                 = 32'h00000000; // A firmware command waits (`CPU_CMD_W0`…)
    localparam logic [31:0] PEND_DOORBELL            = 32'h00000001; // A QP's doorbell has rung (`CPU_DB_POP`)
    localparam logic [31:0] PEND_RX                  = 32'h00000002; // A frame has been received (`CPU_RX_DESC`)
    localparam logic [31:0] PEND_TX_DONE             = 32'h00000003; // A frame has been sent or given up (`CPU_TX_DONE`)
    localparam logic [31:0] PEND_DMA_DONE            = 32'h00000004; // A DMA command has ended (`CPU_DMA_DONE`)
    localparam logic [31:0] PEND_XLT_RSP             = 32'h00000005; // The translation unit has an answer (`CPU_XLT_RSP`)
    localparam logic [31:0] PEND_TIMER               = 32'h00000007; // The timer is armed and its time has come
    localparam logic [31:0] PEND_HEARTBEAT           = 32'h00000008; // The host's challenge differs from the last answer
    localparam logic [31:0] PEND_FAST                = 32'h00000009; // The fast path has an event (`CPU_FAST_EVENT`)

    // Soft core: engine registers
    localparam logic [31:0] CPU_ID                   = 32'h00000000; // ro: `CARD_ID`
    localparam logic [31:0] CPU_WAIT                 = 32'h00000004; // ro: pending bits; the read stalls the core until at least one is set
    localparam logic [31:0] CPU_PENDING              = 32'h00000008; // ro: pending bits, at once
    localparam logic [31:0] CPU_STATUS               = 32'h0000000c; // wo: state of the firmware for `HOST_STATUS`
    localparam logic [31:0] CPU_FW_CODE              = 32'h00000010; // wo: reason for `HOST_FW_CODE`
    localparam logic [31:0] CPU_HB_CHALLENGE         = 32'h00000014; // ro: the host's challenge
    localparam logic [31:0] CPU_HB_ANSWER            = 32'h00000018; // wo: answer to the challenge
    localparam logic [31:0] CPU_CYCLE_LO             = 32'h00000020; // ro: card cycles since reset, low half; reading latches the high half
    localparam logic [31:0] CPU_CYCLE_HI             = 32'h00000024; // ro: card cycles, high half as latched
    localparam logic [31:0] CPU_TIMER_LO             = 32'h00000028; // wo: timer deadline in cycles, low half (held until the high half is written)
    localparam logic [31:0] CPU_TIMER_HI             = 32'h0000002c; // wo: timer deadline, high half: arms the timer
    localparam logic [31:0] CPU_TIMER_OFF            = 32'h00000030; // wo: any value disarms the timer
    localparam logic [31:0] CPU_CLOCK_HZ             = 32'h00000034; // ro: engine clock in Hz
    localparam logic [31:0] CPU_CMD_POP              = 32'h00000040; // wo: any value drops the command at the head
    localparam logic [31:0] CPU_DB_POP               = 32'h00000044; // ro: takes the next QP with a fresh doorbell; latches the two registers below
    localparam logic [31:0] CPU_DB_INDEX             = 32'h00000048; // ro: that QP's producer indices
    localparam logic [31:0] CPU_DB_BYTES             = 32'h0000004c; // ro: that QP's bytes posted so far, modulo 2^32
    localparam logic [31:0] CPU_DB_CFG_QPN           = 32'h00000050; // wo: QPN of the doorbell row to configure
    localparam logic [31:0] CPU_DB_CFG               = 32'h00000054; // wo: doorbell row; clears its indices, except that a valid row of the same page that gets `fast` is rung there as it stands
    localparam logic [31:0] CPU_RX_DESC              = 32'h00000060; // ro: received frame at the head
    localparam logic [31:0] CPU_RX_FLAGS             = 32'h00000064; // ro: its flags, see `RX_FLAG_*`
    localparam logic [31:0] CPU_RX_POP               = 32'h00000068; // wo: any value drops the descriptor at the head (its slot stays in use)
    localparam logic [31:0] CPU_RX_FREE              = 32'h0000006c; // wo: gives slot (bits 7:0) back to the receiver
    localparam logic [31:0] CPU_TX_SEND              = 32'h00000070; // wo: sends a slot
    localparam logic [31:0] CPU_TX_DONE              = 32'h00000074; // ro, pops: a frame sent or given up
    localparam logic [31:0] CPU_CMD_W0               = 32'h00000080; // ro: first of the 16 words of the command at the head
    localparam logic [31:0] CPU_DMA_LOCAL            = 32'h000000c0; // wo: DMA: byte offset in packet RAM
    localparam logic [31:0] CPU_DMA_LEN_TAG          = 32'h000000c4; // wo: DMA: length and tag
    localparam logic [31:0] CPU_DMA_ADDR_LO          = 32'h000000c8; // wo: DMA: host address low half
    localparam logic [31:0] CPU_DMA_ADDR_HI          = 32'h000000cc; // wo: DMA: host address high half
    localparam logic [31:0] CPU_DMA_GO               = 32'h000000d0; // wo: DMA: starts it
    localparam logic [31:0] CPU_DMA_DONE             = 32'h000000d4; // ro, pops: a DMA command has ended
    localparam logic [31:0] CPU_XLT_VA_LO            = 32'h000000e0; // wo: translation: virtual address low half
    localparam logic [31:0] CPU_XLT_VA_HI            = 32'h000000e4; // wo: translation: virtual address high half
    localparam logic [31:0] CPU_XLT_LEN              = 32'h000000e8; // wo: translation: length in bytes (1 to 2^31 - 1)
    localparam logic [31:0] CPU_XLT_TAG              = 32'h000000ec; // wo: translation: tag (16 bits) that answers and events carry
    localparam logic [31:0] CPU_XLT_GO               = 32'h000000f0; // wo: translation: starts it
    localparam logic [31:0] CPU_XLT_RSP              = 32'h000000f4; // ro, pops: an answer of the translation unit
    localparam logic [31:0] CPU_EV_W0                = 32'h00000100; // wo: first of the 16 words of an event to be written to the host
    localparam logic [31:0] CPU_EV_GO                = 32'h00000140; // wo: any value queues the event
    localparam logic [31:0] CPU_EV_SPACE             = 32'h00000144; // ro: free entries of the host's event ring
    localparam logic [31:0] CPU_CQ_BASE_LO           = 32'h00000150; // wo: completion queue: bus address low half
    localparam logic [31:0] CPU_CQ_BASE_HI           = 32'h00000154; // wo: completion queue: bus address high half
    localparam logic [31:0] CPU_CQ_ATTR              = 32'h00000158; // wo: completion queue
    localparam logic [31:0] CPU_CQ_CFG               = 32'h0000015c; // wo: configures the CQN in bits 15:0 with the three above; clears its indices
    localparam logic [31:0] CPU_CQE_W0               = 32'h00000160; // wo: first of the 8 words of a completion
    localparam logic [31:0] CPU_CQE_GO               = 32'h00000180; // wo: queues the completion for the CQN in bits 15:0
    localparam logic [31:0] CPU_FAST_EVENT           = 32'h000001b0; // ro: upper half of an event of the fast path, as `rows` has it; 0: there is none
    localparam logic [31:0] CPU_FAST_ARG             = 32'h000001b4; // ro, pops: its lower half: the argument
    localparam logic [31:0] CPU_RAW_W0               = 32'h000001c0; // wo: first of the 6 words that say what is done to a raw queue
    localparam logic [31:0] CPU_RAW_GO               = 32'h000001d8; // wo: does it: `RAW_GO_*`
    localparam logic [31:0] CPU_RAW_BUSY             = 32'h000001dc; // ro: bit n: raw queue n exists, or DMA of it is under way

    // Soft core: flags of a received frame
    localparam logic [31:0] RX_FLAG_ICRC_OK          = 32'h00000001; // The frame is IPv4 / UDP to port 4791 and its iCRC is right
    localparam logic [31:0] RX_FLAG_ROCE             = 32'h00000002; // The frame is IPv4 / UDP to port 4791
    localparam logic [31:0] RX_FLAG_LOOPBACK         = 32'h00000004; // The frame came by loopback

    // Soft core: DMA status
    localparam logic [31:0] DMA_OK                   = 32'h00000000; // Done
    localparam logic [31:0] DMA_NO_TRANSLATION       = 32'h00000001; // A page of a virtual range has no valid translation, or not for writing; nothing past it was touched
    localparam logic [31:0] DMA_HOST_ERROR           = 32'h00000002; // The host answered with an error (unsupported request, completer abort)
    localparam logic [31:0] DMA_REFUSED              = 32'h00000003; // DMA is not enabled, or the length is out of range

    // Soft core: translation answers
    localparam logic [31:0] XLT_HIT                  = 32'h00000000; // All pages of the range are there and are now counted as in use
    localparam logic [31:0] XLT_MISS                 = 32'h00000001; // At least one page is missing; nothing is counted; the host has been asked
    localparam logic [31:0] XLT_READY                = 32'h00000002; // The host has answered the request with this tag; on status 0, acquire again

    // Soft core: answers to a credit list
    localparam logic [31:0] LIST_OK                  = 32'h00000000; // Taken
    localparam logic [31:0] LIST_REPEAT              = 32'h00000001; // All of it is known already: ignored
    localparam logic [31:0] LIST_GAP                 = 32'h00000002; // Its first number is past the next expected one: not taken
    localparam logic [31:0] LIST_OVERFLOW            = 32'h00000003; // More credits than the FIFO has room for: not taken
    localparam logic [31:0] LIST_EARLY               = 32'h00000004; // The first credit of the previous list has not been used yet, so no proof can have come: not taken
    localparam logic [31:0] LIST_BAD                 = 32'h00000005; // Length 0 or above `MAX_LIST`: not taken

    // Raw queues: flags
    localparam logic [31:0] RAW_DEFAULT              = 32'h00000001; // It takes what no filter takes
    localparam logic [31:0] RAW_MULTICAST            = 32'h00000002; // It takes frames to all multicast addresses
    localparam logic [31:0] RAW_PROMISCUOUS          = 32'h00000004; // It takes frames to any address

    // Raw queues: filters
    localparam logic [31:0] RAW_MATCH_ETHERTYPE      = 32'h00000001; // Type of the Ethernet frame
    localparam logic [31:0] RAW_MATCH_PROTOCOL       = 32'h00000002; // Protocol of IPv4, or next header of IPv6
    localparam logic [31:0] RAW_MATCH_PORT           = 32'h00000004; // Destination port of UDP or TCP, in IPv4 that is no later fragment, or directly in IPv6
    localparam logic [31:0] RAW_MATCH_MAC            = 32'h00000008; // Destination MAC address

    // Frames: opcodes
    localparam logic [31:0] BTH_SEND_FIRST           = 32'h00000000; // RC SEND First
    localparam logic [31:0] BTH_SEND_MIDDLE          = 32'h00000001; // RC SEND Middle
    localparam logic [31:0] BTH_SEND_LAST            = 32'h00000002; // RC SEND Last
    localparam logic [31:0] BTH_SEND_LAST_IMM        = 32'h00000003; // RC SEND Last with Immediate
    localparam logic [31:0] BTH_SEND_ONLY            = 32'h00000004; // RC SEND Only
    localparam logic [31:0] BTH_SEND_ONLY_IMM        = 32'h00000005; // RC SEND Only with Immediate
    localparam logic [31:0] BTH_WRITE_FIRST          = 32'h00000006; // RC RDMA WRITE First
    localparam logic [31:0] BTH_WRITE_MIDDLE         = 32'h00000007; // RC RDMA WRITE Middle
    localparam logic [31:0] BTH_WRITE_LAST           = 32'h00000008; // RC RDMA WRITE Last
    localparam logic [31:0] BTH_WRITE_LAST_IMM       = 32'h00000009; // RC RDMA WRITE Last with Immediate
    localparam logic [31:0] BTH_WRITE_ONLY           = 32'h0000000a; // RC RDMA WRITE Only; under selective repeat each packet of a WRITE, with the RETH of the whole
    localparam logic [31:0] BTH_WRITE_ONLY_IMM       = 32'h0000000b; // RC RDMA WRITE Only with Immediate; likewise the last one
    localparam logic [31:0] BTH_READ_REQUEST         = 32'h0000000c; // RC RDMA READ Request
    localparam logic [31:0] BTH_READ_RESPONSE_FIRST  = 32'h0000000d; // RC RDMA READ Response First
    localparam logic [31:0] BTH_READ_RESPONSE_MIDDLE = 32'h0000000e; // RC RDMA READ Response Middle
    localparam logic [31:0] BTH_READ_RESPONSE_LAST   = 32'h0000000f; // RC RDMA READ Response Last
    localparam logic [31:0] BTH_READ_RESPONSE_ONLY   = 32'h00000010; // RC RDMA READ Response Only
    localparam logic [31:0] BTH_ACKNOWLEDGE          = 32'h00000011; // RC Acknowledge
    localparam logic [31:0] BTH_ATOMIC_ACKNOWLEDGE   = 32'h00000012; // RC ATOMIC Acknowledge
    localparam logic [31:0] BTH_CMP_SWAP             = 32'h00000013; // RC CmpSwap
    localparam logic [31:0] BTH_FETCH_ADD            = 32'h00000014; // RC FetchAdd
    localparam logic [31:0] BTH_SEND_LAST_INVALIDATE = 32'h00000016; // RC SEND Last with Invalidate
    localparam logic [31:0] BTH_SEND_ONLY_INVALIDATE = 32'h00000017; // RC SEND Only with Invalidate
    localparam logic [31:0] BTH_UC_WRITE_ONLY        = 32'h0000002a; // UC RDMA WRITE Only; to `CONTROL_QPN` a credit list (CR-12c)
    localparam logic [31:0] BTH_UD_SEND_ONLY         = 32'h00000064; // UD SEND Only; to `CONTROL_QPN` or a queue pair of a connection a credit list
    localparam logic [31:0] BTH_UD_SEND_ONLY_IMM     = 32'h00000065; // UD SEND Only with Immediate
    localparam logic [31:0] BTH_SELECTIVE_ACKNOWLEDGE = 32'h000000d1; // Berth's own: RC Acknowledge with a SACK

    // Frames: records
    localparam logic [31:0] REC_LIST                 = 32'h00000001; // A credit list
    localparam logic [31:0] REC_REQ                  = 32'h00000002; // Connection request
    localparam logic [31:0] REC_REP                  = 32'h00000003; // The request is accepted
    localparam logic [31:0] REC_RTU                  = 32'h00000004; // The acceptance has arrived
    localparam logic [31:0] REC_REJ                  = 32'h00000005; // The request is refused
    localparam logic [31:0] REC_DREQ                 = 32'h00000006; // The connection is over
    localparam logic [31:0] REC_KEEPALIVE            = 32'h00000008; // Nothing, but to be acknowledged
    localparam logic [31:0] REC_RECALL               = 32'h00000009; // Credits are wanted back
    localparam logic [31:0] REC_RECALLED             = 32'h0000000a; // Number of the first credit not kept
    localparam logic [31:0] REC_GO                   = 32'h0000000b; // Memory that the peer was told to wait for can be had (PC-4): PSN of the operation's first packet
    localparam logic [31:0] REC_BIND                 = 32'h0000000c; // A queue pair whose host has named this one as its peer: both have credit lists as if they had been connected

    // Soft core: fields of engine registers
    typedef struct packed {
        logic [0:0] valid; // There is one
        logic [14:0] zero_30_16;
        logic [15:0] qpn; // QPN
    } cpu_db_pop_t;
    typedef struct packed {
        logic [15:0] receive; // Of the receive queue
        logic [15:0] send; // Of the send queue
    } cpu_db_index_t;
    typedef struct packed {
        logic [0:0] valid; // The row is in use
        logic [0:0] fast; // Doorbells go to the fast path
        logic [21:0] zero_29_8;
        logic [7:0] page; // Doorbell page
    } cpu_db_cfg_t;
    typedef struct packed {
        logic [0:0] valid; // There is one
        logic [1:0] zero_30_29;
        logic [12:0] length; // Length with iCRC, without FCS
        logic [7:0] zero_15_8;
        logic [7:0] slot; // Receive slot
    } cpu_rx_desc_t;
    typedef struct packed {
        logic [2:0] zero_31_29;
        logic [12:0] length; // Length without iCRC and FCS
        logic [5:0] zero_15_10;
        logic [0:0] raw; // Append no iCRC: the frame is not RoCE
        logic [0:0] loopback; // To this card's own receiver
        logic [7:0] slot; // Transmit slot
    } cpu_tx_send_t;
    typedef struct packed {
        logic [0:0] valid; // There is one
        logic [6:0] zero_30_24;
        logic [7:0] status; // 0 sent; else `DMA_*`: an attached read failed and nothing was sent
        logic [7:0] zero_15_8;
        logic [7:0] slot; // Transmit slot
    } cpu_tx_done_t;
    typedef struct packed {
        logic [15:0] tag; // Comes back
        logic [15:0] length; // Bytes, 1 to 4608
    } cpu_dma_len_tag_t;
    typedef struct packed {
        logic [7:0] zero_31_24;
        logic [7:0] asid; // Address space of a virtual address
        logic [7:0] slot; // Transmit slot that the read is attached to
        logic [4:0] zero_7_3;
        logic [0:0] attach; // A read that a transmit slot waits for
        logic [0:0] virt; // The address is virtual, else one of the bus
        logic [0:0] write; // To the host, else from it
    } cpu_dma_go_t;
    typedef struct packed {
        logic [0:0] valid; // There is one
        logic [6:0] zero_30_24;
        logic [7:0] status; // `DMA_*`
        logic [15:0] tag; // Its tag
    } cpu_dma_done_t;
    typedef struct packed {
        logic [7:0] zero_31_24;
        logic [7:0] asid; // Address space
        logic [6:0] zero_15_9;
        logic [0:0] write; // The card will write, or has written
        logic [5:0] zero_7_2;
        logic [0:0] give_back; // The range is released: `EV_PAGE_RELEASE` goes to the host
        logic [0:0] acquire; // It is acquired: if a page is missing, `EV_PAGE_NEED` goes to the host
    } cpu_xlt_go_t;
    typedef struct packed {
        logic [0:0] valid; // There is one
        logic [2:0] zero_30_28;
        logic [3:0] kind; // `XLT_*`
        logic [7:0] status; // Of `XLT_READY`: as the driver gave it
        logic [15:0] tag; // Tag of the command
    } cpu_xlt_rsp_t;
    typedef struct packed {
        logic [0:0] valid; // The queue is in use
        logic [14:0] zero_30_16;
        logic [7:0] page; // Doorbell page
        logic [3:0] zero_7_4;
        logic [3:0] log2; // log2 of its entries
    } cpu_cq_attr_t;
    typedef struct packed {
        logic [4:0] zero_31_27;
        logic [2:0] flags; // `RAW_*` flags
        logic [3:0] zero_23_20;
        logic [3:0] log2_rq; // log2 of the receive ring's elements
        logic [3:0] zero_15_12;
        logic [3:0] log2_sq; // log2 of the send ring's elements
        logic [7:0] number; // Queue
    } cpu_raw_attr_t;
    typedef struct packed {
        logic [15:0] recv; // CQN for receives
        logic [15:0] send; // CQN for sends
    } cpu_raw_cqs_t;
    typedef struct packed {
        logic [7:0] protocol; // Protocol
        logic [3:0] zero_23_20;
        logic [3:0] fields; // `RAW_MATCH_*`; 0 ends the filter
        logic [7:0] target; // Queue
        logic [7:0] filter; // Filter
    } cpu_raw_filter_attr_t;
    typedef struct packed {
        logic [15:0] port; // Destination port
        logic [15:0] ethertype; // Type of the frame
    } cpu_raw_filter_ports_t;

    // Messages of the rings: those that the RTL carries out or sends, up to their last word in use
    typedef struct packed {
        logic [31:0] status; // `PAGE_*`
        logic [31:0] tag; // Tag of the `EV_PAGE_NEED`
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } page_ready_t;
    typedef struct packed {
        logic [31:0] index; // Index in the translation table
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } page_revoke_t;
    typedef struct packed {
        logic [63:0] token; // What is written to `HOST_FENCE` then
        logic [55:0] zero_63_8;
        logic [7:0] code; // Opcode or kind
    } fence_t;
    typedef struct packed {
        logic [31:0] len; // Bytes
        logic [63:0] va; // Virtual address
        logic [30:0] zero_127_97;
        logic [0:0] write; // The card will write
        logic [31:0] asid; // Address space
        logic [31:0] tag; // Tag for the answer, see `TAG_*`
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } page_need_t;
    typedef struct packed {
        logic [31:0] len; // Bytes
        logic [63:0] va; // Virtual address
        logic [30:0] zero_127_97;
        logic [0:0] wrote; // The card has written
        logic [31:0] asid; // Address space
        logic [31:0] tag; // Tag of the `EV_PAGE_NEED`
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } page_release_t;
    typedef struct packed {
        logic [31:0] cqn; // Completion queue
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } cq_notify_t;
    typedef struct packed {
        logic [31:0] qpn; // QP that it was for
        logic [31:0] cqn; // Completion queue
        logic [23:0] zero_31_8;
        logic [7:0] code; // Opcode or kind
    } cq_overrun_t;
    typedef struct packed {
        logic [19:0] zero_31_12;
        logic [3:0] further; // Pages beside the first one
        logic [7:0] code; // Opcode or kind
    } pages_t;
    typedef struct packed {
        logic [0:0] write; // The card may write
        logic [0:0] index_high; // Bit 12 of `index`
        logic [49:0] page; // Bus address in pages of 4 KiB
        logic [11:0] index; // Place in the translation table
    } installed_page_t;
    typedef struct packed {
        logic [0:0] dropped; // The entry was dropped, else it is in use
        logic [1:0] zero_14_13;
        logic [12:0] index; // Place in the translation table
    } evicted_page_t;

    // Layout beyond the tables
    localparam logic [31:0] CPU_FAST                 = 32'h82000000; // Bus address of the fast path's rows
    localparam logic [31:0] CPU_RAM                  = 32'h00000000; // Bus address of the firmware RAM (cached)
    localparam logic [31:0] CPU_REGS                 = 32'h80000000; // Bus address of the engine registers
    localparam logic [31:0] CPU_STATS                = 32'h80010000; // Bus address of the statistics RAM
    localparam logic [31:0] CPU_PKT                  = 32'h81000000; // Bus address of the packet RAM
    localparam logic [31:0] CMD_PUSHES               = 32'h00000040; // Places for pushed commands
    localparam logic [31:0] STATS_BYTES              = 32'h00001000; // Bytes of the statistics RAM
    localparam logic [31:0] ENTRY_BYTES              = 32'h00000040; // Bytes of an entry of the command or event ring
    localparam logic [31:0] EVENT_PHASE              = 32'h0000000f; // Word of an event whose bit 31 is the phase
    localparam logic [31:0] CMD_FIRST_FW             = 32'h00000010; // First command opcode that firmware carries out
    localparam logic [31:0] INSTALL_PAGES            = 32'h00000006; // Most pages of a `CMD_PAGE_INSTALL`
    localparam logic [31:0] INSTALL_ASID             = 32'h00000001; // Word of it with the address space
    localparam logic [31:0] INSTALL_VPN              = 32'h00000002; // First of two words with the number of the first virtual page
    localparam logic [31:0] INSTALL_FIRST            = 32'h00000004; // First word with a page
    localparam logic [31:0] EVICT_PAGES              = 32'h0000000c; // Most pages of a `CMD_PAGE_EVICT`
    localparam logic [31:0] EVICT_FIRST              = 32'h00000001; // First word of it, and of its answer, with pages
    localparam logic [31:0] CQE_BYTES                = 32'h00000020; // Bytes of a completion
    localparam logic [31:0] OP_SEND                  = 32'h00000001; // Opcode of a send, in its queue element and its completion
    localparam logic [31:0] OP_RECV                  = 32'h00000002; // Opcode of a receive, likewise
    localparam logic [31:0] OP_WRITE                 = 32'h00000003; // Opcode of an RDMA WRITE, likewise
    localparam logic [31:0] OP_READ                  = 32'h00000004; // Opcode of an RDMA READ, likewise
    localparam logic [31:0] OP_NOP                   = 32'h00000005; // Opcode of an element that sends nothing, likewise
    localparam logic [31:0] OP_DELAY                 = 32'h00000006; // Opcode of an element that holds those behind it for a time, likewise
    localparam logic [31:0] OP_BIND                  = 32'h00000007; // Opcode of an element that binds a key, likewise
    localparam logic [31:0] OP_CMP_SWAP              = 32'h00000008; // Opcode of a compare-and-swap, likewise
    localparam logic [31:0] OP_FETCH_ADD             = 32'h00000009; // Opcode of a fetch-and-add, likewise
    localparam logic [31:0] ATOMIC_BYTES             = 32'h00000008; // Bytes that an atomic changes
    localparam logic [31:0] SEND_PUSH                = 32'h00000001; // Flag of a send's element: PUSH
    localparam logic [31:0] SEND_INLINE              = 32'h00000002; // Flag of a send's element: its data stand in it
    localparam logic [31:0] SEND_IMMEDIATE           = 32'h00000004; // Flag of a send's element: an immediate stands in front of the rest
    localparam logic [31:0] SEND_FENCE               = 32'h00000008; // Flag of a send's element: READs before it are complete before it begins
    localparam logic [31:0] SEND_UNSIGNALLED         = 32'h00000010; // Flag of a send's element: no completion if it succeeds
    localparam logic [31:0] SEND_INVALIDATE          = 32'h00000020; // Flag of a send's element: a key that the peer is to invalidate stands where the immediate does
    localparam logic [31:0] CQE_PUSH                 = 32'h00000001; // Flag of a completion: PUSH
    localparam logic [31:0] CQE_IMMEDIATE            = 32'h00000002; // Flag of a completion: `remaining` is the sender's
    localparam logic [31:0] CQE_INVALIDATED          = 32'h00000004; // Flag of a completion: `remaining` is a key that is dead
    localparam logic [31:0] MAX_INLINE               = 32'h00000040; // Most bytes of data in an element
    localparam logic [31:0] SLOT_INLINE              = 32'h00000028; // Most bytes of data in an element that a doorbell brings
    localparam logic [31:0] MAX_SGE                  = 32'h00000007; // Ranges of a queue element
    localparam logic [31:0] WQE_BYTES                = 32'h00000080; // Bytes of a queue element
    localparam logic [31:0] RAW_SGES                 = 32'h00000003; // Ranges of an element of a raw queue
    localparam logic [31:0] RAW_WQE_BYTES            = 32'h00000040; // Bytes of an element of a raw queue
    localparam logic [31:0] RAW_FRAME_BYTES          = 32'h00001200; // Bytes of its longest frame
    localparam logic [31:0] RAW_LEAST_BYTES          = 32'h0000000e; // Bytes of its shortest frame
    localparam logic [31:0] RAW_RECEIVE_BYTES        = 32'h0000ffff; // Most bytes of a receive of a raw queue
    localparam logic [31:0] RAW_QPN                  = 32'h01000000; // Number of raw queue 0 in completions
    localparam logic [31:0] RAW_GO_CREATE            = 32'h00000001; // Makes a raw queue
    localparam logic [31:0] RAW_GO_END               = 32'h00000002; // Ends it
    localparam logic [31:0] RAW_GO_MODE              = 32'h00000003; // Sets its flags
    localparam logic [31:0] RAW_GO_FILTER            = 32'h00000004; // Sets a filter
    localparam logic [31:0] LIST_KEY                 = 32'h4c697374; // Key of the window for credit lists
    localparam logic [31:0] LIST_SLOT                = 32'h00000200; // Bytes of it for each queue pair
    localparam logic [31:0] NUM_RTL_COUNTERS         = 32'h00000043; // RTL counters (see C_*)

    // Packet RAM
    localparam logic [31:0] PKT_RX_BASE              = 32'h00012000; // Offset of receive slot 0 in packet RAM
    localparam logic [31:0] PKT_SCRATCH_BASE         = 32'h00024000; // Offset of scratch place 0 in packet RAM
    localparam logic [31:0] PKT_BYTES                = 32'h00026000; // Bytes of packet RAM in use

endpackage
/* verilator lint_on UNUSEDPARAM */
