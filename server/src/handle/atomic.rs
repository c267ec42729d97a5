//! [`Atomic`]: the 64-bit atomic that counters and signals are made of. A program has the standard
//! library's; the test in `orderings` has loom's, which tries every order that the memory model
//! allows.

use std::sync::atomic::{AtomicU64, Ordering};

pub(super) trait Atomic {
    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
}

macro_rules! atomic {
    ($type:ty) => {
        impl Atomic for $type {
            #[inline(always)]
            fn new(value: u64) -> Self {
                <$type>::new(value)
            }

            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                <$type>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: u64, order: Ordering) {
                <$type>::store(self, value, order);
            }

            #[inline(always)]
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                <$type>::swap(self, value, order)
            }

            #[inline(always)]
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                <$type>::fetch_add(self, value, order)
            }
        }
    };
}

atomic!(AtomicU64);
#[cfg(test)]
atomic!(loom::sync::atomic::AtomicU64);
