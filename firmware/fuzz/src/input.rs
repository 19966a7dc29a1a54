// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz input as a source of choices; and the files that keep inputs.

/// Bytes that are used up from the front; then zeros.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// From the fuzzer's bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `n` (not 0) from one byte, or from two if `n` is larger than 256.
    pub fn below(&mut self, n: u32) -> u32 {
        let value = if n > 256 { u32::from(self.u16()) } else { u32::from(self.byte()) };
        value % n
    }

    /// The next `n` bytes, or what is left.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// Packs inputs into one file: length (32 bits, little-endian) and bytes of each.
pub fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for input in inputs {
        file.extend((input.len() as u32).to_le_bytes());
        file.extend(input);
    }
    file
}

/// The inputs of such a file; `None` when it is damaged.
pub fn unpack(mut file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !file.is_empty() {
        let (len, rest) = file.split_first_chunk()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        inputs.push(input.to_vec());
        file = rest;
    }
    Some(inputs)
}
