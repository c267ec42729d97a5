//! [`damage`]: what disks, networks and attackers do to bytes.

use crate::campaign::Random;

/// Damages bytes in one of the ways disks, networks and attackers do. Says how.
pub fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let len = bytes.len() as u64;
    // Half of the time where the header is: the rest is bits, and one is like the other.
    let place = |random: &mut Random| {
        let head = random.below(2) == 0;
        random.below(if head { len.min(1_400) } else { len }) as usize
    };
    let range = |random: &mut Random| {
        let start = place(random);
        let most = (len - start as u64).min(if random.below(4) == 0 { len } else { 64 });
        start..start + 1 + random.below(most) as usize
    };
    match random.below(8) {
        0 => {
            let flips = 1 + random.below(16);
            for _ in 0..flips {
                let at = place(random);
                bytes[at] ^= 1 << random.below(8);
            }
            format!("{flips} flips")
        }
        1 => {
            let to = random.below(len) as usize;
            bytes.truncate(to);
            format!("cut to {to}")
        }
        2 => {
            let (from, to) = (range(random), place(random));
            let part = bytes[from.clone()].to_vec();
            let end = bytes.len().min(to + part.len());
            bytes[to..end].copy_from_slice(&part[..end - to]);
            format!("{from:?} copied to {to}")
        }
        3 => {
            let zeroed = range(random);
            bytes[zeroed.clone()].fill(0);
            format!("{zeroed:?} zeroed")
        }
        4 => {
            let filled = range(random);
            bytes[filled.clone()].fill(0xff);
            format!("{filled:?} filled")
        }
        5 => {
            let removed = range(random);
            bytes.drain(removed.clone());
            format!("{removed:?} removed")
        }
        6 => {
            let at = place(random);
            let n = 1 + random.below(100);
            let more: Vec<u8> = (0..n).map(|_| random.draw() as u8).collect();
            bytes.splice(at..at, more);
            format!("{n} bytes inserted at {at}")
        }
        // A number of the header becomes one that breaks arithmetic.
        _ => {
            let at = random.below(200.min(len.saturating_sub(8)).max(1)) as usize;
            let extremes =
                [0, 1, 255, u64::from(u32::MAX), 1 << 32, 1 << 38, u64::MAX >> 1, u64::MAX];
            let value = extremes[random.below(extremes.len() as u64) as usize];
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            format!("{value} at {at}")
        }
    }
}
