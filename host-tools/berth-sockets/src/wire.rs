// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What two ends say to each other: private data of connection management, and messages.
//!
//! A TCP port is the service of the same number. Request and accept carry a [`Hello`]. A message without an immediate has
//! bytes of the stream; one with the immediate [`END`] has none, and ends its direction; [`LEFT`] comes behind it.

/// How a hello begins, with the version of all this.
const MAGIC: [u8; 4] = *b"BSK1";

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 8;

/// The immediate that ends a direction.
pub const END: u32 = 1;

/// The immediate behind it of a process that ends.
pub const LEFT: u32 = 2;

/// What an end tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Port of the end that asks; its peer's in the answer.
    pub port: u16,
    /// Bytes of each of its receives: no message may be longer.
    pub bytes: u16,
}

impl Hello {
    /// As it travels.
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        let ([p0, p1], [b0, b1]) = (self.port.to_le_bytes(), self.bytes.to_le_bytes());
        [m0, m1, m2, m3, p0, p1, b0, b1]
    }

    /// Reads one; `None` if it is something else. What follows it is of later versions.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let [p0, p1, b0, b1, ..] = *data.strip_prefix(&MAGIC)? else { return None };
        let hello = Self { port: u16::from_le_bytes([p0, p1]), bytes: u16::from_le_bytes([b0, b1]) };
        (hello.bytes > 0 && hello.port > 0).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ap_3_a_hello_is_read_as_it_is_written_and_nothing_else_is_one() {
        let hello = Hello { port: 40000, bytes: 4096 };
        let mut data = hello.encode().to_vec();
        assert_eq!(Hello::decode(&data), Some(hello));
        data.resize(32, 0);
        assert_eq!(Hello::decode(&data), Some(hello));
        assert_eq!(Hello::decode(&data[..7]), None);
        assert_eq!(Hello::decode(b""), None);
        assert_eq!(Hello::decode(&[0; 32]), None);
        assert_eq!(Hello::decode(&Hello { bytes: 0, ..hello }.encode()), None);
    }
}
