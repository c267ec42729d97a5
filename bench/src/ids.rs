//! The IDs of a race: 32 hex characters that look random, and the same for every contestant.
//! They are made before any clock runs. `java/Race.java` makes the same ones.

/// Numbers from here on are in no filter: those are filled with the IDs of 0, 1, 2, …
pub(crate) const ABSENT: u64 = 1 << 61;

pub(crate) use bloomsday_common::hash::mix64;

pub(crate) type Id = [u8; 32];

/// The ID of a number.
pub(crate) fn id(number: u64) -> Id {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let high = mix64(number);
    let low = mix64(high);
    let mut id = [0; 32];
    for i in 0..16 {
        id[i] = HEX[(high >> (60 - 4 * i)) as usize & 15];
        id[16 + i] = HEX[(low >> (60 - 4 * i)) as usize & 15];
    }
    id
}

/// The IDs of `count` numbers, made on all cores.
pub(crate) fn range(first: u64, count: usize) -> Vec<Id> {
    let mut ids = vec![[0; 32]; count];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = count.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (part, ids) in ids.chunks_mut(each).enumerate() {
            let first = first + (part * each) as u64;
            scope.spawn(move || {
                for (number, slot) in (first..).zip(ids) {
                    *slot = id(number);
                }
            });
        }
    });
    ids
}

/// Lookups of IDs that nobody looked up before: the lines that they touch are in no cache.
pub(crate) struct FreshIds {
    pool: Vec<Id>,
    first: u64,
    next: usize,
}

impl FreshIds {
    /// A pool of absent IDs; it starts again from the front when it is used up.
    pub(crate) fn absent(count: usize) -> FreshIds {
        FreshIds { pool: range(ABSENT, count), first: ABSENT, next: 0 }
    }

    /// The next `count`, and the number of the first.
    pub(crate) fn next(&mut self, count: usize) -> (u64, Vec<&[u8]>) {
        if self.next + count > self.pool.len() {
            self.next = 0;
        }
        let start = self.next;
        self.next += count;
        let ids = self.pool[start..start + count].iter().map(|id| &id[..]).collect();
        (self.first + start as u64, ids)
    }
}
