// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control connection to one peer: a small reliable message stream between the
//! `CONTROL_QPN`s of two cards (CR-12a, CR-13). See docs/reference/wire.md.

use super::hw::{Hw, TX_LOOPBACK};
use super::limits::{
    ARP_TRIES, CONTROL_ANSWERS, CONTROL_DOUBT, CONTROL_RETRIES, CONTROL_TIMEOUT, CONTROL_WINDOW, KEEPALIVE, PROBES,
};
use super::shared::Shared;
use crate::base::rule::{self, Rule};
use crate::rc::Tries;
use crate::wire::headers::{
    ACK, BTH_ACKNOWLEDGE, BTH_SEND_ONLY, Frame, HEADER_WORDS, Mac, NAK_SEQUENCE, PSN_MASK, Template, arp, psn_add,
    psn_sub,
};
use crate::wire::records::{CONTROL_WORDS, MESSAGE_HEADER, REC_KEEPALIVE, START, VERSION, record};
use berth_abi::card::{CONTROL_QPN, TX_SLOTS};
use berth_abi::counters::{F_BAD_ACK, F_CONTROL_RETRANSMITTED, F_CONTROL_SENT};

/// Headers of a packet of the control connection.
#[inline(never)]
pub fn headers(template: &Template, opcode: u8, ack_request: bool, psn: u32, ext: Option<u32>, len: u32) -> Frame {
    template.packet(opcode, false, ack_request, psn, ext, len)
}

/// Writes headers and a payload of at most `CONTROL_WORDS` words, which begins in the middle of a word, into transmit
/// slot `slot`.
#[inline(always)]
pub fn write_frame<H: Hw>(slot: u32, frame: &Frame, payload: &[u32], sh: &mut Shared, hw: &mut H) {
    let slot = slot % TX_SLOTS;
    let at = (frame.start / 4) as usize % HEADER_WORDS;
    hw.tx_write(slot, 0, &frame.words[..at]);
    // The first word's low half is the headers'.
    let mut left = frame.words[at] & 0xffff;
    let mut at = at as u32;
    for word in payload {
        sh.step();
        hw.tx_write(slot, at, &[left | word << 16]);
        left = word >> 16;
        at += 1;
    }
    hw.tx_write(slot, at, &[left]);
}

/// Messages under way to one peer.
const PLACES: usize = CONTROL_WINDOW + CONTROL_ANSWERS;

/// A control message: records behind a header that is filled in when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    len: u8,
    words: [u32; CONTROL_WORDS],
}

/// What became of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing to do but perhaps to send.
    Fine,
    /// The control connection gets no answer: the data connections are to probe the peer.
    Probe,
    /// The peer does not answer.
    Lost,
}

/// What a challenge means to the end that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenged {
    /// It is answered, or old.
    Fine,
    /// The peer may have forgotten this end.
    Doubt,
    /// The peer has forgotten this end: it has said nothing else for [`CONTROL_DOUBT`].
    Over,
}

/// One peer. All-zero when free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its IPv4 address; 0: no peer.
    pub ip: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// The MAC address is known.
    pub resolved: bool,
    /// The MAC address is asked for, though nothing is to be said.
    wanted: bool,
    /// The peer is this card.
    pub loopback: bool,
    /// Name of our end of this control connection.
    pub incarnation: u32,
    /// Name of the peer's end; 0 not known.
    pub peer_incarnation: u32,
    /// PSN of our first message.
    start: u32,
    /// Oldest PSN not acknowledged.
    una: u32,
    /// PSN of the next message to send (again).
    next: u32,
    /// PSN never sent.
    max: u32,
    /// PSN of the next new message.
    tail: u32,
    /// PSN expected.
    expected: u32,
    /// An acknowledgement is due.
    ack_due: bool,
    /// A NAK is due.
    nak_due: bool,
    /// A NAK has been sent for this gap.
    nak_sent: bool,
    /// Tries of the oldest message, or of the address resolution.
    tries: Tries,
    /// When to try again, or to probe the peer; 0 never.
    pub deadline: u64,
    /// When something last came from it.
    pub heard: u64,
    /// Time since which it only says that it does not know this end; 0: it does not say so.
    doubt: u64,
    /// Name that its challenge wants our first message to say; 0: none.
    echo: u32,
    messages: [Message; PLACES],
}

impl Peer {
    /// No peer.
    pub const FREE: Self = Self {
        ip: 0,
        mac: Mac(0, 0),
        resolved: false,
        wanted: false,
        loopback: false,
        incarnation: 0,
        peer_incarnation: 0,
        start: 0,
        una: 0,
        next: 0,
        max: 0,
        tail: 0,
        expected: 0,
        ack_due: false,
        nak_due: false,
        nak_sent: false,
        tries: Tries::NONE,
        deadline: 0,
        heard: 0,
        doubt: 0,
        echo: 0,
        messages: [Message { len: 0, words: [0; CONTROL_WORDS] }; PLACES],
    };

    /// Begins a control connection to `ip`.
    pub fn open(&mut self, ip: u32, sh: &mut Shared) {
        self.ip = ip;
        self.loopback = ip == sh.ip;
        self.resolved = self.loopback;
        self.wanted = false;
        self.mac = sh.mac;
        self.heard = 0;
        self.renew(sh);
    }

    /// Forgets what was said: a new incarnation begins.
    pub fn renew(&mut self, sh: &mut Shared) {
        let [incarnation, start] = sh.random_pair();
        self.incarnation = incarnation;
        self.peer_incarnation = 0;
        self.start = start & PSN_MASK;
        self.una = self.start;
        self.next = self.start;
        self.max = self.start;
        self.tail = self.start;
        self.ack_due = false;
        self.nak_due = false;
        self.nak_sent = false;
        self.tries = Tries::NONE;
        self.deadline = 0;
        self.doubt = 0;
        self.echo = 0;
    }

    /// Messages that are not acknowledged.
    pub fn busy(&self) -> bool {
        self.una != self.tail
    }

    /// The first message of this incarnation is not acknowledged: it comes again, marked as such.
    pub fn fresh(&self) -> bool {
        self.una == self.start
    }

    fn place(psn: u32) -> usize {
        psn as usize % PLACES
    }

    /// Whether the newest message takes `words` words more: only before it is sent.
    fn newest_takes(&self, words: usize) -> bool {
        self.tail != self.max && self.messages[Self::place(psn_sub(self.tail, 1))].len as usize + words <= CONTROL_WORDS
    }

    /// Whether there is room for `words` words of answers to the message that has just come: in the newest message, or
    /// in a new one.
    ///
    /// Answers have [`CONTROL_ANSWERS`] messages of their own. So two ends that each have [`CONTROL_WINDOW`] messages
    /// under way that the other is to answer do not wait for each other: an answer is not answered, a message is answered
    /// by one message at most, and the last of the messages for answers is taken only when what this end had asked before
    /// is acknowledged.
    pub fn room_for_answers(&self, words: usize) -> bool {
        self.newest_takes(words) || (psn_sub(self.tail, self.una) as usize) < PLACES
    }

    /// Appends a record of at most `CONTROL_WORDS - MESSAGE_HEADER` words to the newest message if that was not yet sent,
    /// or to a new one. False when there is no room.
    pub fn append(&mut self, record: &[u32]) -> bool {
        self.append_within(record, CONTROL_WINDOW)
    }

    /// As [`append`](Self::append), of an answer to what the message that has just come asks for.
    pub fn answer(&mut self, record: &[u32]) -> bool {
        self.append_within(record, PLACES)
    }

    fn append_within(&mut self, record: &[u32], window: usize) -> bool {
        let open = self.newest_takes(record.len());
        if !open && psn_sub(self.tail, self.una) as usize >= window {
            return false;
        }
        let psn = if open { psn_sub(self.tail, 1) } else { self.tail };
        let message = &mut self.messages[Self::place(psn)];
        if !open {
            message.len = MESSAGE_HEADER as u8;
            self.tail = psn_add(self.tail, 1);
        }
        let at = message.len as usize;
        let Some(to) = message.words.get_mut(at..at + record.len()) else {
            return false;
        };
        to.copy_from_slice(record);
        message.len += record.len() as u8;
        true
    }

    fn template(&self, sh: &Shared) -> Template {
        Template::new(sh.mac, sh.ip, self.mac, self.ip, 0xc000 | CONTROL_QPN as u16, CONTROL_QPN)
    }

    fn flags(&self) -> u32 {
        if self.loopback { TX_LOOPBACK } else { 0 }
    }

    /// Sends the messages that there are to send. True when a slot was missing.
    pub fn step<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) -> bool {
        if self.ip == 0 {
            return false;
        }
        if !self.resolved {
            if self.deadline == 0 && (self.busy() || self.wanted) {
                return self.ask_address(now, sh, hw);
            }
            return false;
        }
        while self.next != self.tail {
            sh.step();
            let Some(slot) = sh.tx_alloc(hw) else {
                return true;
            };
            self.send(slot, sh, hw);
            if self.next == self.una {
                self.deadline = now + self.timeout();
                sh.arm(self.deadline, hw);
            }
            self.next = psn_add(self.next, 1);
            if psn_sub(self.next, self.una) > psn_sub(self.max, self.una) {
                self.max = self.next;
            } else {
                hw.count(F_CONTROL_RETRANSMITTED, 1);
            }
        }
        false
    }

    /// Acknowledges what has come. True when a slot was missing.
    pub fn acknowledge_step<H: Hw>(&mut self, sh: &mut Shared, hw: &mut H) -> bool {
        if self.ip != 0 && self.resolved && (self.ack_due || self.nak_due) {
            let Some(slot) = sh.tx_alloc(hw) else {
                return true;
            };
            let (syndrome, psn) = match self.nak_due {
                true => (NAK_SEQUENCE, self.expected),
                false => (ACK, psn_sub(self.expected, 1)),
            };
            self.ack_due = false;
            self.nak_due = false;
            let frame = headers(&self.template(sh), BTH_ACKNOWLEDGE, false, psn, Some(syndrome << 24), 0);
            hw.tx_write(slot, 0, &frame.words);
            hw.tx_send(slot, frame.end, self.flags());
        }
        false
    }

    fn timeout(&self) -> u64 {
        self.tries.back_off(CONTROL_TIMEOUT)
    }

    /// Sends the message with PSN `next` from slot `slot`.
    fn send<H: Hw>(&mut self, slot: u32, sh: &mut Shared, hw: &mut H) {
        let psn = self.next;
        let start = if psn == self.start { START } else { 0 };
        let template = self.template(sh);
        let message = &mut self.messages[Self::place(psn)];
        let len = (message.len as usize).min(CONTROL_WORDS);
        message.words[0] = self.incarnation;
        message.words[1] = match self.echo {
            echo if start != 0 && echo != 0 => echo,
            _ => self.peer_incarnation,
        };
        message.words[2] = VERSION | start | (len as u32) << 16;
        let frame = headers(&template, BTH_SEND_ONLY, true, psn, None, 4 * len as u32);
        write_frame(slot, &frame, message.words.get(..len).unwrap_or_default(), sh, hw);
        hw.tx_send(slot, frame.end, self.flags());
        hw.count(F_CONTROL_SENT, 1);
    }

    /// The peer does not know this end: `name` is its answer to our message `psn`. Only a host that has seen that
    /// message can answer so.
    pub fn challenged(&mut self, now: u64, psn: u32, name: u32) -> Challenged {
        if psn_sub(psn, self.una) >= psn_sub(self.max, self.una) {
            // The message has been acknowledged since.
            return Challenged::Fine;
        }
        if self.fresh() {
            // We begin, and echo the name to show that we hear the peer.
            if psn == self.start && self.echo != name {
                self.echo = name;
                self.next = self.una;
            }
            return Challenged::Fine;
        }
        if self.doubt == 0 {
            self.doubt = now.max(1);
        }
        match now.saturating_sub(self.doubt) >= CONTROL_DOUBT {
            true => Challenged::Over,
            false => Challenged::Doubt,
        }
    }

    /// An AETH for `psn` has come. False when it is for nothing that was sent.
    pub fn acknowledge<H: Hw>(&mut self, now: u64, psn: u32, syndrome: u32, hw: &mut H) -> bool {
        let nak = syndrome == NAK_SEQUENCE;
        let upto = if nak { psn } else { psn_add(psn, 1) };
        if psn_sub(upto, self.una) > psn_sub(self.max, self.una) || (syndrome >> 5 != 0 && !nak) {
            if psn_sub(upto, self.una) < 1 << 23 {
                hw.count(F_BAD_ACK, 1);
            }
            return false;
        }
        let progress = upto != self.una;
        // What was acknowledged need not be sent again.
        if psn_sub(upto, self.una) > psn_sub(self.next, self.una) {
            self.next = upto;
        }
        self.una = upto;
        if progress {
            self.tries = Tries::NONE;
            self.doubt = 0;
            self.deadline = match self.una != self.next {
                true => now + CONTROL_TIMEOUT,
                false => now + KEEPALIVE,
            };
        }
        if nak && self.una != self.max {
            self.next = self.una;
        }
        true
    }

    /// Looks at the deadline. `users`: QPs or requests live from this peer; `connected`: QPs are connected to it.
    pub fn due<H: Hw>(&mut self, now: u64, users: bool, connected: bool, sh: &mut Shared, hw: &mut H) -> Due {
        if self.deadline == 0 || now < self.deadline {
            return Due::Fine;
        }
        self.deadline = 0;
        if !self.resolved {
            if self.tries.spent(ARP_TRIES) {
                return Due::Lost;
            }
            if self.ask_address(now, sh, hw) {
                self.deadline = now + CONTROL_TIMEOUT;
            }
            return Due::Fine;
        }
        if self.una != self.next {
            let again = self.tries.expired(CONTROL_RETRIES);
            let silence = now.saturating_sub(self.heard);
            let patience = if connected { PROBES as u64 * self.timeout() } else { self.timeout() };
            // If other frames come from the peer, it lives, and only control frames are lost (decision 6).
            if !again && silence > patience {
                return Due::Lost;
            }
            self.next = self.una;
            self.deadline = now + self.timeout();
            if connected && self.tries.spent(CONTROL_RETRIES - PROBES + 1) && silence > self.timeout() / 2 {
                return Due::Probe;
            }
        } else if users && !self.busy() && !self.loopback {
            if now.saturating_sub(self.heard) >= KEEPALIVE {
                self.append(&[record(REC_KEEPALIVE, 1, 0)]);
            } else {
                self.deadline = self.heard + KEEPALIVE;
            }
        }
        Due::Fine
    }

    /// Sends an ARP request. True when a slot was missing.
    fn ask_address<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) -> bool {
        let Some(slot) = sh.tx_alloc(hw) else {
            return true;
        };
        let ask = arp::Arp { reply: false, mac: sh.mac, ip: sh.ip, target: self.ip };
        sh.send_arp(slot, &ask, Mac::BROADCAST, hw);
        self.deadline = now + self.timeout();
        self.tries.expired(ARP_TRIES);
        sh.arm(self.deadline, hw);
        false
    }

    /// A connection needs the peer's MAC address and no more; `anew`: no other one knows that it is still right.
    pub fn want_address(&mut self, anew: bool) {
        if anew && !self.loopback && !self.busy() {
            (self.resolved, self.tries, self.deadline) = (false, Tries::NONE, 0);
        }
        self.wanted = !self.resolved;
    }

    /// The peer's MAC address is known. True when that is news.
    pub fn resolve(&mut self, mac: Mac) -> bool {
        if self.loopback || (self.resolved && self.mac == mac) {
            return false;
        }
        self.mac = mac;
        if !self.resolved {
            self.resolved = true;
            self.wanted = false;
            self.tries = Tries::NONE;
            self.deadline = 0;
        }
        true
    }

    /// A message with PSN `psn` of the incarnation that we know has come: is it the next one?
    /// Acknowledgements and NAKs are prepared.
    pub fn expect(&mut self, psn: u32) -> bool {
        let ahead = psn_sub(psn, self.expected);
        if ahead == 0 {
            return true;
        }
        if rule::broken(Rule::ControlOnce) && ahead >> 23 != 0 {
            return true;
        }
        if ahead < 1 << 23 {
            // A message before it is missing.
            if !self.nak_sent {
                self.nak_sent = true;
                self.nak_due = true;
            }
        } else {
            self.ack_due = true;
        }
        false
    }

    /// The expected message has been taken. `us`: it was for this end by name.
    pub fn taken(&mut self, us: bool) {
        self.expected = psn_add(self.expected, 1);
        if us {
            self.doubt = 0;
        }
        self.ack_due = true;
        self.nak_sent = false;
    }

    /// The peer's first message of incarnation `incarnation` has PSN `psn`.
    pub fn begin(&mut self, incarnation: u32, psn: u32) {
        self.peer_incarnation = incarnation;
        self.expected = psn;
        self.doubt = 0;
        self.echo = 0;
        self.nak_sent = false;
    }
}
