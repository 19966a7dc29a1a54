// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the wire formats of `berth-protocol` with two independent implementations, in both directions: scapy and
//! tshark read frames that we made, and we read frames that scapy made (and tshark reads those too). Every field of
//! every header is compared, and scapy computes every invariant CRC.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use berth_protocol::rc::{self, Kind, Placement, Position, Remote, RequestPacket, ResponseBody, ResponsePacket};
use berth_protocol::wire::berth::{Sack, list_qkey};
use berth_protocol::wire::headers::BTH_UD_SEND_ONLY;
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::records;
use berth_protocol::wire::reliable::{Headers, emit_request, emit_response};
use berth_protocol::wire::{
    self, Aeth, AtomicEth, Bth, CNP_PAYLOAD, Deth, Eth, Extended, Ip, Ipv4, Ipv6, MAX_HEADERS, MAX_PAYLOAD, Opcode,
    Packet, Reth, Syndrome,
};

use crate::progress;
use crate::steps::Builder;

/// A frame as its fields say it: numbers in decimal, addresses and payload in hex.
type Fields = BTreeMap<String, String>;

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Frames that scapy read.
    pub by_scapy: usize,
    /// Frames that tshark read.
    pub by_tshark: usize,
    /// Frames of scapy that we read.
    pub by_us: usize,
    /// Fields that were equal.
    pub fields: usize,
    /// What was not.
    pub differences: Vec<String>,
}

/// Small deterministic random numbers.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bits(&mut self, n: u32) -> u32 {
        (self.draw() >> (64 - n)) as u32
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.draw() as u8)
    }
}

/// Random frames, every opcode several times over IPv4 and IPv6.
fn frames(seed: u64) -> Result<Vec<(Vec<u8>, Fields)>> {
    let mut rng = Random(seed);
    let mut frames = Vec::new();
    for opcode in (0..=255).map(Opcode) {
        let Some(layout) = opcode.layout() else { continue };
        for round in 0..6 {
            let ip = match round % 2 {
                0 => Ip::V4(Ipv4 {
                    from: rng.bytes(),
                    to: rng.bytes(),
                    traffic_class: rng.bits(8) as u8,
                    id: rng.bits(16) as u16,
                    df: rng.bits(1) != 0,
                    ttl: rng.bits(8) as u8,
                }),
                _ => Ip::V6(Ipv6 {
                    from: rng.bytes(),
                    to: rng.bytes(),
                    traffic_class: rng.bits(8) as u8,
                    flow: rng.bits(20),
                    hops: rng.bits(8) as u8,
                }),
            };
            let bth = Bth {
                solicited: rng.bits(1) != 0,
                migrated: rng.bits(1) != 0,
                pkey: rng.bits(16) as u16,
                fecn: rng.bits(1) != 0,
                becn: rng.bits(1) != 0,
                ack_request: rng.bits(1) != 0,
                // Not the management QPs 0 and 1, whose payload tshark takes for messages.
                ..Bth::new(opcode, rng.bits(23) + 2, rng.bits(24))
            };
            let ext = Extended {
                eec: layout.rdeth.then(|| rng.bits(24)),
                deth: layout.deth.then(|| Deth { qkey: rng.bits(32), source_qpn: rng.bits(23) + 2 }),
                reth: layout.reth.then(|| Reth { va: rng.draw(), rkey: rng.bits(32), len: rng.bits(32) }),
                atomic: layout.atomic.then(|| AtomicEth {
                    va: rng.draw(),
                    rkey: rng.bits(32),
                    swap_add: rng.draw(),
                    compare: rng.draw(),
                }),
                aeth: layout.aeth.then(|| Aeth { syndrome: Syndrome::from_bits(rng.bits(8) as u8), msn: rng.bits(24) }),
                atomic_ack: layout.atomic_ack.then(|| rng.draw()),
                imm: layout.imm.then(|| rng.bits(32)),
                invalidate: layout.ieth.then(|| rng.bits(32)),
            };
            let eth = Eth { to: rng.bytes(), from: rng.bytes() };
            // Dynamic ports, as RoCEv2 has them: tshark may take others for another protocol's.
            let packet = Packet { eth, ip, source_port: 0xc000 | rng.bits(14) as u16, bth, ext };
            let len = match opcode.check_payload(1) {
                Ok(()) => [round, 100, 1024, MAX_PAYLOAD][rng.bits(2) as usize],
                Err(_) if opcode == Opcode::CNP => CNP_PAYLOAD,
                Err(_) if opcode == Opcode::SELECTIVE_ACKNOWLEDGE => Sack::BYTES,
                Err(_) => 0,
            };
            let payload: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
            let mut frame = vec![0; MAX_HEADERS + MAX_PAYLOAD + 8];
            let n = wire::emit(&packet, &[&payload], &mut frame)
                .map_err(|e| anyhow::anyhow!("emit of opcode {:#x}: {e:?}", opcode.0))?;
            frame.truncate(n);
            frames.push((frame, fields(&packet, &payload)));
        }
    }
    Ok(frames)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The fields of a packet, by the names that formats.py uses too.
fn fields(p: &Packet, payload: &[u8]) -> Fields {
    let mut all = Fields::new();
    let mut put = |key: &str, value: String| all.insert(key.to_owned(), value);
    put("to", hex(&p.eth.to));
    put("from", hex(&p.eth.from));
    match &p.ip {
        Ip::V4(ip) => {
            put("ip_from", hex(&ip.from));
            put("ip_to", hex(&ip.to));
            put("tclass", ip.traffic_class.to_string());
            put("id", ip.id.to_string());
            put("df", u8::from(ip.df).to_string());
            put("ttl", ip.ttl.to_string());
        }
        Ip::V6(ip) => {
            put("ip_from", hex(&ip.from));
            put("ip_to", hex(&ip.to));
            put("tclass", ip.traffic_class.to_string());
            put("flow", ip.flow.to_string());
            put("ttl", ip.hops.to_string());
        }
    }
    put("sport", p.source_port.to_string());
    put("opcode", p.bth.opcode.0.to_string());
    put("pad", (payload.len().wrapping_neg() % 4).to_string());
    put("pkey", p.bth.pkey.to_string());
    put("qpn", p.bth.qpn.to_string());
    put("psn", p.bth.psn.to_string());
    for (key, flag) in [
        ("se", p.bth.solicited),
        ("m", p.bth.migrated),
        ("fecn", p.bth.fecn),
        ("becn", p.bth.becn),
        ("a", p.bth.ack_request),
    ] {
        put(key, u8::from(flag).to_string());
    }
    if let Some(eec) = p.ext.eec {
        put("eec", eec.to_string());
    }
    if let Some(deth) = p.ext.deth {
        put("qkey", deth.qkey.to_string());
        put("srcqp", deth.source_qpn.to_string());
    }
    if let Some(reth) = p.ext.reth {
        put("va", reth.va.to_string());
        put("rkey", reth.rkey.to_string());
        put("dmalen", reth.len.to_string());
    }
    if let Some(atomic) = p.ext.atomic {
        put("va", atomic.va.to_string());
        put("rkey", atomic.rkey.to_string());
        put("swap", atomic.swap_add.to_string());
        put("cmp", atomic.compare.to_string());
    }
    if let Some(aeth) = p.ext.aeth {
        put("syndrome", aeth.syndrome.to_bits().to_string());
        put("msn", aeth.msn.to_string());
    }
    if let Some(value) = p.ext.atomic_ack {
        put("orig", value.to_string());
    }
    if let Some(imm) = p.ext.imm {
        put("imm", imm.to_string());
    }
    if let Some(rkey) = p.ext.invalidate {
        put("ieth", rkey.to_string());
    }
    put("payload", hex(payload));
    all
}

/// Our names of fields and tshark's; the second one is IPv6's or that of another header.
const TSHARK: [(&str, &str, &str); 31] = [
    ("to", "eth.dst", ""),
    ("from", "eth.src", ""),
    ("ip_from", "ip.src", "ipv6.src"),
    ("ip_to", "ip.dst", "ipv6.dst"),
    ("tclass", "ip.dsfield", "ipv6.tclass"),
    ("id", "ip.id", ""),
    ("df", "ip.flags.df", ""),
    ("ttl", "ip.ttl", "ipv6.hlim"),
    ("flow", "ipv6.flow", ""),
    ("sport", "udp.srcport", ""),
    ("opcode", "infiniband.bth.opcode", ""),
    ("se", "infiniband.bth.se", ""),
    ("m", "infiniband.bth.m", ""),
    ("pad", "infiniband.bth.padcnt", ""),
    ("pkey", "infiniband.bth.p_key", ""),
    ("qpn", "infiniband.bth.destqp", ""),
    ("a", "infiniband.bth.a", ""),
    ("psn", "infiniband.bth.psn", ""),
    ("eec", "infiniband.rdeth.eecnxt", ""),
    ("qkey", "infiniband.deth.q_key", ""),
    ("srcqp", "infiniband.deth.srcqp", ""),
    ("va", "infiniband.reth.va", ""),
    ("rkey", "infiniband.reth.r_key", ""),
    ("dmalen", "infiniband.reth.dmalen", ""),
    ("swap", "infiniband.atomiceth.swapdt", ""),
    ("cmp", "infiniband.atomiceth.cmpdt", ""),
    ("syndrome", "infiniband.aeth.syndrome", ""),
    ("msn", "infiniband.aeth.msn", ""),
    ("orig", "infiniband.atomicacketh.origremdt", ""),
    ("imm", "infiniband.immdt", ""),
    ("ieth", "infiniband.ieth", ""),
];

/// What scapy and tshark do not know of the reliable datagram (IBTA 9.2.1, table 38, says both): its acknowledgement
/// (0x51) has an RDETH before the AETH, and there is RESYNC (0x55). And what is in Berth's own acknowledgement (0xd1).
fn unknown_to_others(opcode: &str, key: &str) -> bool {
    match opcode {
        "81" => matches!(key, "eec" | "syndrome" | "msn"),
        "85" => matches!(key, "eec" | "qkey" | "srcqp"),
        "209" => matches!(key, "syndrome" | "msn"),
        _ => false,
    }
}

/// A value of tshark in our notation.
fn from_tshark(key: &str, text: &str) -> Option<String> {
    match key {
        "to" | "from" => Some(text.replace(':', "")),
        "ip_from" | "ip_to" => text
            .parse::<Ipv4Addr>()
            .map(|a| hex(&a.octets()))
            .or_else(|_| text.parse::<Ipv6Addr>().map(|a| hex(&a.octets())))
            .ok(),
        // Bytes.
        "imm" | "ieth" => u32::from_str_radix(text, 16).ok().map(|n| n.to_string()),
        _ => match text {
            "True" => Some("1".to_owned()),
            "False" => Some("0".to_owned()),
            _ => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok().map(|n| n.to_string()),
                None => text.parse::<u64>().ok().map(|n| n.to_string()),
            },
        },
    }
}

/// A capture file in the classic format, with time stamps of 0.
fn pcap<'a>(frames: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// A frame as tshark understands it. tshark (4.4) takes the opcodes of the reliable datagram for those of another
/// transport and skips eight bytes behind the BTH: we put eight there, so that it finds the headers behind them.
fn for_tshark(frame: &[u8]) -> Vec<u8> {
    const SKIPPED: u16 = 8;
    let mut frame = frame.to_vec();
    let six = frame[12..14] == [0x86, 0xdd];
    let ip = if six { 40 } else { 20 };
    let bth = 14 + ip + 8;
    if frame[bth] >> 5 == 2 {
        let length = if six { 18 } else { 16 };
        for at in [length, 14 + ip + 4] {
            let value = u16::from_be_bytes([frame[at], frame[at + 1]]) + SKIPPED;
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        frame.splice(bth + 12..bth + 12, [0; SKIPPED as usize]);
    }
    frame
}

/// The names of tshark's dissectors that guess what a payload is: random bytes may look like anything.
pub fn guessing(builder: &Builder, folder: &Path) -> Result<Vec<String>> {
    let output = builder.sysroot.command(folder, &[folder], "tshark").args(["-G", "heuristic-decodes"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let name = |l: &str| l.strip_prefix("infiniband.payload\t").and_then(|l| l.split('\t').nth(3)).map(str::to_owned);
    Ok(text.lines().filter_map(name).collect())
}

/// Frames of a connection with selective repeat (docs/reference/wire.md), whose placement headers have the bytes that could be
/// taken for other protocols' (IPv4, ARP, IPv6, IDP and the like), before payloads of zeros, ones and random bytes.
fn selective_frames(seed: u64) -> Result<Vec<Vec<u8>>> {
    let mut rng = Random(seed);
    let mut headers = Vec::new();
    let types = [0x0000_u32, 0x0200, 0x0600, 0x0800, 0x0806, 0x86dd, 0x8847, 0x8915, 0xffff];
    let positions = [
        (Kind::Send, Position::First, false),
        (Kind::Send, Position::Middle, false),
        (Kind::Send, Position::Last, true),
        (Kind::Send, Position::Only, true),
        (Kind::Write, Position::Only, false),
        (Kind::Write, Position::Only, true),
    ];
    for (kind, position, imm) in positions {
        for credit in 0..=255 {
            for index in types.map(|t| t << 16 >> 9).into_iter().chain([1, 2, rng.bits(23)]) {
                let remote = Remote { va: rng.draw(), key: rng.bits(32), len: rng.bits(32) };
                let request = RequestPacket {
                    psn: rng.bits(24),
                    kind,
                    position,
                    imm: imm.then(|| rng.bits(32)),
                    remote: (kind == Kind::Write).then_some(remote),
                    placement: Some(Placement { credit, index }),
                    ack_request: rng.bits(1) != 0,
                    ..RequestPacket::default()
                };
                let made = emit_request(Service::Rc, &request).map_err(|e| anyhow::anyhow!("{request:?}: {e:?}"))?;
                headers.push((request.psn, made, [0, 0xff, rng.draw() as u8][rng.bits(8) as usize % 3]));
            }
        }
    }
    for _ in 0..256 {
        let sack = Some(u128::from(rng.draw()) << 63 | 1);
        let body = ResponseBody::Ack { syndrome: rc::Syndrome::Ack(rng.bits(5) as u8), sack };
        let response = ResponsePacket { psn: rng.bits(24), msn: rng.bits(24), body };
        headers.push((response.psn, emit_response(Service::Rc, &response), 0));
    }
    let frame = |(psn, made, fill): (u32, Headers, u8)| {
        let packet = Packet {
            eth: Eth { to: rng.bytes(), from: rng.bytes() },
            ip: Ip::V4(Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2])),
            source_port: 0xc000 | rng.bits(14) as u16,
            bth: Bth::new(made.opcode, rng.bits(23) + 2, psn),
            ext: made.ext,
        };
        let payload: Vec<u8> = match (made.opcode, fill) {
            (Opcode::SELECTIVE_ACKNOWLEDGE, _) => Vec::new(),
            (_, 0 | 0xff) => vec![fill; 64],
            _ => (0..64).map(|_| rng.draw() as u8).collect(),
        };
        let mut frame = vec![0; MAX_HEADERS + MAX_PAYLOAD];
        let n = wire::emit(&packet, &[made.prefix(), &payload], &mut frame)
            .map_err(|e| anyhow::anyhow!("emit of opcode {:#x}: {e:?}", made.opcode.0))?;
        frame.truncate(n);
        Ok(frame)
    };
    headers.into_iter().map(frame).collect()
}

/// Credit lists as datagrams (docs/reference/wire.md): every QPN that a card has, lists of 1 to 32 credits.
fn list_frames(seed: u64) -> Result<Vec<Vec<u8>>> {
    const CONTROL_QPN: u32 = berth_abi::card::CONTROL_QPN;
    let mut rng = Random(seed);
    let mut frames = Vec::new();
    for qpn in berth_abi::card::FIRST_QPN..berth_abi::card::NUM_QP_ROWS {
        for len in [1, 2, 8, 1 + rng.bits(5), 32] {
            let mut words = vec![records::record(records::REC_LIST, 3 + len as usize, qpn), rng.bits(32), rng.bits(32)];
            words.extend((0..len).map(|_| rng.bits(31) >> rng.bits(5)));
            let payload: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            let packet = Packet {
                eth: Eth { to: rng.bytes(), from: rng.bytes() },
                ip: Ip::V4(Ipv4::new([192, 0, 2, 1], [192, 0, 2, 2])),
                source_port: 0xc000 | rng.bits(14) as u16,
                bth: Bth::new(Opcode(BTH_UD_SEND_ONLY), CONTROL_QPN, 0),
                ext: Extended {
                    deth: Some(Deth { qkey: list_qkey(rng.bits(32)), source_qpn: CONTROL_QPN }),
                    ..Extended::NONE
                },
            };
            let mut frame = vec![0; MAX_HEADERS + MAX_PAYLOAD];
            let n = wire::emit(&packet, &[&payload], &mut frame).map_err(|e| anyhow::anyhow!("a list: {e:?}"))?;
            frame.truncate(n);
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// The frames of such a file.
fn read_pcap(file: &[u8]) -> Result<Vec<&[u8]>> {
    let word = |at: usize| -> Result<u32> {
        let bytes = file.get(at..at + 4).context("the capture is cut short")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    if word(0)? != 0xa1b2_c3d4 {
        bail!("not a little-endian pcap file");
    }
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let len = word(at + 8)? as usize;
        frames.push(file.get(at + 16..at + 16 + len).context("the capture is cut short")?);
        at += 16 + len;
    }
    Ok(frames)
}

fn read_lines(path: &Path) -> Result<Vec<Fields>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let field = |f: &str| f.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    Ok(text.lines().map(|l| l.split('\t').filter_map(field).collect()).collect())
}

impl Compared {
    fn compare(&mut self, who: &str, frame: usize, ours: &Fields, key: &str, theirs: Option<&str>) {
        let ours = ours.get(key).map(String::as_str);
        if ours == theirs {
            self.fields += usize::from(ours.is_some());
        } else if self.differences.len() < 200 {
            self.differences.push(format!("{who}, frame {frame}, {key}: ours {ours:?}, theirs {theirs:?}"));
        } else {
            self.differences.truncate(200);
        }
    }

    /// What tshark sees in a capture.
    fn tshark(&mut self, builder: &Builder, folder: &Path, name: &str, expected: &[Fields]) -> Result<()> {
        let mut command = builder.sysroot.command(folder, &[folder], "tshark");
        command.args(["-r", name, "-T", "fields", "-E", "occurrence=f", "-e", "_ws.malformed"]);
        for heuristic in guessing(builder, folder)? {
            command.arg("--disable-heuristic").arg(heuristic);
        }
        for (_, first, second) in TSHARK {
            command.args(["-e", first]);
            if !second.is_empty() {
                command.args(["-e", second]);
            }
        }
        let output = command.output().context("starting tshark")?;
        if !output.status.success() {
            bail!("tshark: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() != expected.len() {
            bail!("tshark read {} frames of {}", lines.len(), expected.len());
        }
        for (i, (line, ours)) in lines.into_iter().zip(expected).enumerate() {
            let mut columns = line.split('\t');
            let who = format!("tshark on {name}, opcode {}", ours["opcode"]);
            if columns.next().is_some_and(|malformed| !malformed.is_empty()) {
                self.differences.push(format!("{who}, frame {}: malformed", i + 1));
            }
            for (key, _, second) in TSHARK {
                let mut value = columns.next().unwrap_or_default();
                if !second.is_empty() {
                    let other = columns.next().unwrap_or_default();
                    value = if value.is_empty() { other } else { value };
                }
                if unknown_to_others(&ours["opcode"], key) {
                    continue;
                }
                let theirs = (!value.is_empty()).then(|| from_tshark(key, value)).flatten();
                self.compare(&who, i + 1, ours, key, theirs.as_deref());
            }
            self.by_tshark += 1;
        }
        Ok(())
    }
}

impl Compared {
    /// Frames that only Berth cards send, in a tshark that may guess what their payload is: to it a data packet or a
    /// credit list has data, nothing else, and an acknowledgement with SACK has what only the manufacturer knows.
    fn left_to_guess(&mut self, builder: &Builder, folder: &Path, frames: &[Vec<u8>]) -> Result<()> {
        fs::write(folder.join("selective.pcap"), pcap(frames.iter().map(Vec::as_slice)))?;
        let fields = ["frame.protocols", "infiniband.invariant.crc", "infiniband.vendor", "_ws.malformed"];
        let mut command = builder.sysroot.command(folder, &[folder], "tshark");
        command.args(["-r", "selective.pcap", "-T", "fields", "-E", "occurrence=l"]);
        command.args(fields.iter().flat_map(|f| ["-e", f]));
        let output = command.output().context("starting tshark")?;
        if !output.status.success() {
            bail!("tshark: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() != frames.len() {
            bail!("tshark read {} frames of {}", lines.len(), frames.len());
        }
        for (i, (line, frame)) in lines.into_iter().zip(frames).enumerate() {
            const BTH_END: usize = 54;
            let wanted = match Opcode(frame[42]) {
                Opcode::SELECTIVE_ACKNOWLEDGE => {
                    format!("eth:ethertype:ip:udp:infiniband\t\t{}\t", hex(&frame[BTH_END..]))
                }
                _ => format!("eth:ethertype:ip:udp:infiniband:data\t0x{}\t\t", hex(&frame[frame.len() - 4..])),
            };
            let both = [wanted.as_str(), line].map(|l| Fields::from([("line".to_owned(), l.to_owned())]));
            let who = format!("tshark left to guess, opcode {}", frame[42]);
            self.compare(&who, i + 1, &both[0], "line", both[1].get("line").map(String::as_str));
            self.by_tshark += 1;
        }
        Ok(())
    }
}

/// Makes frames, has them read, reads frames, in the sysroot.
///
/// # Errors
/// When a tool cannot be fetched or fails. Differences are not errors.
pub fn compare(builder: &Builder, seed: u64) -> Result<Compared> {
    let folder = builder.context.built_folder("formats")?;
    let scapy = builder.scapy()?;
    let ours = frames(seed)?;
    fs::write(folder.join("ours.pcap"), pcap(ours.iter().map(|(f, _)| f.as_slice())))?;
    fs::write(folder.join("formats.py"), include_str!("formats.py"))?;
    let mut command = builder.sysroot.command(&folder, &[&folder], "python3");
    command.args(["formats.py", "ours.pcap", "seen.txt", "theirs.pcap", "made.txt", &seed.to_string()]);
    command.env("PYTHONPATH", scapy);
    progress::run("scapy reads and makes frames", None, &builder.context.log("formats")?, &mut command)?;

    let mut result = Compared::default();
    let seen = read_lines(&folder.join("seen.txt"))?;
    if seen.len() != ours.len() {
        bail!("scapy read {} frames of {}", seen.len(), ours.len());
    }
    for (i, ((frame, ours), seen)) in ours.iter().zip(&seen).enumerate() {
        let who = format!("scapy, opcode {}", ours["opcode"]);
        let unknown = |key: &str| unknown_to_others(&ours["opcode"], key);
        for key in seen.keys().filter(|k| !k.starts_with("crc") && *k != "body" && !unknown(k)) {
            result.compare(&who, i + 1, ours, key, Some(&seen[key]));
        }
        // The CRC that we sent is the one that scapy computes, and behind the BTH is what we put there.
        let crc = hex(&frame[frame.len() - 4..]);
        let sent = Fields::from([("crc".to_owned(), crc.clone()), ("crc_wanted".to_owned(), crc)]);
        for key in ["crc", "crc_wanted"] {
            result.compare(&who, i + 1, &sent, key, seen.get(key).map(String::as_str));
        }
        let padded = format!("{}{}", ours["payload"], "00".repeat(ours["pad"].parse()?));
        if !seen.get("body").is_some_and(|body| body.ends_with(&padded)) {
            result.differences.push(format!("{who}, frame {}: payload", i + 1));
        }
        result.by_scapy += 1;
    }
    let adapted: Vec<Vec<u8>> = ours.iter().map(|(f, _)| for_tshark(f)).collect();
    fs::write(folder.join("ours-tshark.pcap"), pcap(adapted.iter().map(Vec::as_slice)))?;
    let ours: Vec<Fields> = ours.into_iter().map(|(_, f)| f).collect();
    result.tshark(builder, &folder, "ours-tshark.pcap", &ours)?;

    let made = read_lines(&folder.join("made.txt"))?;
    let theirs = fs::read(folder.join("theirs.pcap"))?;
    let theirs = read_pcap(&theirs)?;
    if made.len() != theirs.len() {
        bail!("scapy made {} frames and noted {}", theirs.len(), made.len());
    }
    let adapted: Vec<Vec<u8>> = theirs.iter().map(|f| for_tshark(f)).collect();
    for (i, (frame, made)) in theirs.into_iter().zip(&made).enumerate() {
        let who = format!("we on scapy's, opcode {}", made["opcode"]);
        match wire::parse(frame) {
            Ok((packet, payload)) => {
                let ours = fields(&packet, payload);
                for key in made.keys().chain(ours.keys().filter(|k| !made.contains_key(*k))) {
                    result.compare(&who, i + 1, &ours, key, made.get(key).map(String::as_str));
                }
            }
            Err(error) => result.differences.push(format!("{who}, frame {}: {error:?}", i + 1)),
        }
        result.by_us += 1;
    }
    fs::write(folder.join("theirs-tshark.pcap"), pcap(adapted.iter().map(Vec::as_slice)))?;
    result.tshark(builder, &folder, "theirs-tshark.pcap", &made)?;
    let own = [selective_frames(seed)?, list_frames(seed)?].concat();
    result.left_to_guess(builder, &folder, &own)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_read_as_they_were_written() {
        let frames = [&b"one"[..], b"", b"three"];
        assert_eq!(read_pcap(&pcap(frames.into_iter())).unwrap(), frames);
        assert!(read_pcap(&pcap(frames.into_iter())[..40]).is_err());
    }

    #[test]
    fn values_of_tshark_are_understood() {
        assert_eq!(from_tshark("to", "02:00:00:00:00:01").as_deref(), Some("020000000001"));
        assert_eq!(from_tshark("ip_to", "192.0.2.1").as_deref(), Some("c0000201"));
        assert_eq!(from_tshark("se", "True").as_deref(), Some("1"));
        assert_eq!(from_tshark("qpn", "0x000010").as_deref(), Some("16"));
        assert_eq!(from_tshark("imm", "0000000a").as_deref(), Some("10"));
    }

    #[test]
    fn every_opcode_is_made_and_parses_to_its_fields() {
        for (frame, made) in frames(1).unwrap() {
            let (packet, payload) = wire::parse(&frame).unwrap();
            assert_eq!(fields(&packet, payload), made);
        }
    }
}
