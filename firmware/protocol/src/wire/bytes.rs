// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Big-endian fields one after the other, with an error where the bytes end.

use super::Error;

/// Reads fields from the front of bytes.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What was not read yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Error::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Writes fields to the front of a buffer.
pub(super) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(super) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes that are free.
    pub(super) const fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (head, rest) = core::mem::take(&mut self.0).split_at_mut_checked(bytes.len()).ok_or(Error::Room)?;
        head.copy_from_slice(bytes);
        self.0 = rest;
        Ok(())
    }

    pub(super) fn u8(&mut self, value: u8) -> Result<(), Error> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u16(&mut self, value: u16) -> Result<(), Error> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> Result<(), Error> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> Result<(), Error> {
        self.put(&value.to_be_bytes())
    }
}

/// `value` when it fits `bits` bits.
pub(super) fn fits(value: u32, bits: u32) -> Result<u32, Error> {
    match value.checked_shr(bits) {
        Some(0) | None => Ok(value),
        _ => Err(Error::Range),
    }
}
