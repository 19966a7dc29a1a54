// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A short queue whose state depends on its content only, so that equal queues compare (and hash) equal whatever
//! happened before.

use super::bound::at_most;

/// At most `N` values in order, oldest first. Places that are not in use hold `T::default()`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fifo<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: core::fmt::Debug, const N: usize> core::fmt::Debug for Fifo<T, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.items.iter().take(self.len)).finish()
    }
}

impl<T: Copy + Default, const N: usize> Default for Fifo<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy + Default, const N: usize> Fifo<T, N> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { items: [T::default(); N], len: 0 }
    }

    /// Values in the queue.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Nothing is in the queue.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No more fits.
    pub const fn is_full(&self) -> bool {
        self.len >= N
    }

    /// The values, oldest first.
    pub fn as_slice(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }

    /// The values, oldest first.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.items.get_mut(..self.len).unwrap_or(&mut [])
    }

    /// The value at place `i`, 0 the oldest.
    pub fn get(&self, i: usize) -> Option<&T> {
        self.as_slice().get(i)
    }

    /// The value at place `i`, 0 the oldest.
    pub fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        self.as_mut_slice().get_mut(i)
    }

    /// Place of the oldest value for which `wanted` is true.
    pub fn position(&self, wanted: impl Fn(&T) -> bool) -> Option<usize> {
        (0..self.len).find(|i| self.get(*i).is_some_and(&wanted))
    }

    /// The newest value.
    pub fn last(&self) -> Option<&T> {
        self.as_slice().last()
    }

    /// Appends `value`. False when the queue is full.
    pub fn push(&mut self, value: T) -> bool {
        self.insert(self.len, value)
    }

    /// Puts `value` at place `i`. False when the queue is full or shorter than `i`.
    pub fn insert(&mut self, i: usize, value: T) -> bool {
        if self.is_full() || i > self.len {
            return false;
        }
        self.len += 1;
        let Some(tail) = self.items.get_mut(i..self.len) else {
            return false;
        };
        if !tail.is_empty() {
            tail.rotate_right(1);
        }
        if let Some(first) = tail.first_mut() {
            *first = value;
        }
        true
    }

    /// Takes the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        self.remove(0)
    }

    /// Takes the value at place `i`.
    pub fn remove(&mut self, i: usize) -> Option<T> {
        let tail = self.items.get_mut(i..self.len)?;
        let value = *tail.first()?;
        if !tail.is_empty() {
            tail.rotate_left(1);
        }
        self.len -= 1;
        if let Some(place) = self.items.get_mut(self.len) {
            *place = T::default();
        }
        Some(value)
    }

    /// Keeps the oldest `n` values.
    pub fn truncate(&mut self, n: usize) {
        for place in at_most(N, self.items.iter_mut().take(self.len).skip(n)) {
            *place = T::default();
        }
        self.len = self.len.min(n);
    }
}

#[cfg(test)]
mod tests {
    use super::Fifo;

    #[test]
    fn equal_content_is_equal_whatever_came_before() {
        let mut a: Fifo<u8, 3> = Fifo::new();
        assert!(a.push(9) && a.push(1) && a.push(3) && !a.push(4));
        assert_eq!((a.pop(), a.len(), a.is_full()), (Some(9), 2, false));
        assert!(a.insert(1, 2) && !a.insert(0, 7));
        assert_eq!(a.as_slice(), [1, 2, 3]);
        assert_eq!(a.remove(5), None);
        assert_eq!(a.remove(2), Some(3));
        a.truncate(1);
        let mut b = Fifo::default();
        assert!(!b.insert(1, 1) && b.push(1));
        assert_eq!(a, b);
        assert_eq!((a.get(0), a.last()), (Some(&1), Some(&1)));
        assert_eq!((a.position(|v| *v == 1), a.position(|v| *v == 2)), (Some(0), None));
        assert!(a.get_mut(1).is_none());
        assert!(a.pop().is_some() && a.pop().is_none() && a.is_empty());
    }
}
