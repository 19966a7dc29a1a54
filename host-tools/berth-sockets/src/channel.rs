// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What carries a connection between two hosts: messages each way, in order.

/// A message that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// The peer sends no more.
    End,
    /// The peer's process has ended in order, after [`End`](Self::End): nobody takes what it is sent.
    Left,
}

/// One end of a connection between two hosts.
pub trait Channel {
    /// Memory for the next message's bytes; `None` while none is free, and when the connection is over.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `len` bytes (at least one) of what [`room`](Self::room) gave last.
    fn send(&mut self, len: usize);

    /// Sends bytes of the program's memory, without a copy; answers how many, from the first one on: 0 while there is no room.
    ///
    /// # Safety
    /// The memory must stay what it is until [`placed`](Self::placed) has counted the bytes, or the channel is dropped.
    unsafe fn send_from(&mut self, address: usize, len: usize) -> usize;

    /// Bytes that were sent so and that the peer's card has.
    fn placed(&self) -> u64;

    /// Sends [`Message::End`]; false while there is no room for it.
    fn send_end(&mut self) -> bool;

    /// Sends [`Message::Left`], if there is room for it.
    fn send_left(&mut self);

    /// Whether the peer's card has all that was sent.
    fn is_acknowledged(&self) -> bool;

    /// The oldest message that has come and was not dropped.
    fn front(&self) -> Option<Message<'_>>;

    /// Drops the oldest message.
    fn drop_front(&mut self);

    /// Whether the connection is over: what has come by then may still be taken.
    fn is_over(&self) -> bool;
}
