//! [`Atomic`] and [`AtomicByte`]: what counters and signals are made of. A program has the standard
//! library's atomics; the tests in `orderings` have loom's, which try every order that the memory
//! model allows.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// 64 bits.
pub(super) trait Atomic {
    type Byte: AtomicByte;

    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// What other threads did before they stored a value that was loaded before this is visible
    /// after it.
    #[cfg(any(feature = "live", test))]
    fn fence_acquire();
}

/// 8 bits.
pub(super) trait AtomicByte {
    fn new(value: u8) -> Self;
    fn load(&self, order: Ordering) -> u8;
    fn store(&self, value: u8, order: Ordering);
}

macro_rules! atomic {
    ($type:ty, $byte:ty, $fence:path) => {
        impl Atomic for $type {
            type Byte = $byte;

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

            #[cfg(any(feature = "live", test))]
            #[inline(always)]
            fn fence_acquire() {
                $fence(Ordering::Acquire);
            }
        }

        impl AtomicByte for $byte {
            #[inline(always)]
            fn new(value: u8) -> Self {
                <$byte>::new(value)
            }

            #[inline(always)]
            fn load(&self, order: Ordering) -> u8 {
                <$byte>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: u8, order: Ordering) {
                <$byte>::store(self, value, order);
            }
        }
    };
}

atomic!(AtomicU64, AtomicU8, std::sync::atomic::fence);
#[cfg(test)]
atomic!(loom::sync::atomic::AtomicU64, loom::sync::atomic::AtomicU8, loom::sync::atomic::fence);
