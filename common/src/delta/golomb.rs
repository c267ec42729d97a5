//! Golomb codes with truncated binary remainders: [`Encoder`] and [`Decoder`] of the gaps between
//! flipped bits.
//!
//! A gap g is coded with the divisor M as ⌊g / M⌋ zeros and a one, then g mod M in truncated
//! binary: with b = ⌈log2 M⌉ and u = 2^b − M, a remainder r < u in b − 1 bits, any other as r + u
//! in b bits. The first b − 1 of these bits come as a number with its lowest bit first, then the
//! bit that is left. Bits fill each byte from its lowest bit. The format is described in
//! `docs/format.md`.

/// The divisor that makes the code shortest when `ones` of `bits` bits are set: the smallest M with
/// (1−p)^M + (1−p)^(M+1) ≤ 1 (Gallager & van Voorhis 1975).
pub(super) fn best_divisor(ones: u64, bits: u64) -> u32 {
    if ones == 0 || ones >= bits {
        return 1;
    }
    let p = ones as f64 / bits as f64;
    libm::ceil(-libm::log(2.0 - p) / libm::log1p(-p)).max(1.0) as u32
}

/// How a remainder is written.
#[derive(Clone, Copy)]
struct Remainders {
    divisor: u64,
    /// b − 1, or 0 for the divisor 1, whose remainders have no bits.
    short: u32,
    /// u: how many remainders are short.
    shorts: u64,
    /// `short` ones.
    mask: u64,
}

impl Remainders {
    fn of(divisor: u32) -> Remainders {
        let divisor = u64::from(divisor.max(1));
        if divisor == 1 {
            return Remainders { divisor, short: 0, shorts: 1, mask: 0 };
        }
        let long = u64::BITS - (divisor - 1).leading_zeros();
        let mask = (1 << (long - 1)) - 1;
        Remainders { divisor, short: long - 1, shorts: (1 << long) - divisor, mask }
    }
}

/// Writes gaps.
pub(super) struct Encoder {
    code: Vec<u8>,
    /// Bits that are not in `code` yet, from the lowest.
    bits: u64,
    ready: u32,
    remainders: Remainders,
}

/// The most bits that are added at once: fewer than 8 are left of those before.
const MAX_ADDED: u32 = 32;

impl Encoder {
    pub(super) fn new(divisor: u32) -> Encoder {
        Encoder { code: Vec::new(), bits: 0, ready: 0, remainders: Remainders::of(divisor) }
    }

    pub(super) fn push(&mut self, gap: u64) {
        let Remainders { divisor, short, shorts, .. } = self.remainders;
        let (mut zeros, rest) = (gap / divisor, gap % divisor);
        while zeros >= u64::from(MAX_ADDED) {
            self.add(0, MAX_ADDED);
            zeros -= u64::from(MAX_ADDED);
        }
        self.add(1 << zeros, zeros as u32 + 1);
        if rest < shorts {
            self.add(rest, short);
        } else {
            self.add((rest + shorts) >> 1, short);
            self.add((rest + shorts) & 1, 1);
        }
    }

    fn add(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.ready;
        self.ready += count;
        while self.ready >= 8 {
            self.code.push(self.bits as u8);
            self.bits >>= 8;
            self.ready -= 8;
        }
    }

    /// The bytes; the last is filled with zeros.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.ready > 0 {
            self.code.push(self.bits as u8);
        }
        self.code
    }
}

/// Reads gaps.
#[derive(Clone, Copy)]
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
    /// Bits that are out of `rest` already, from the lowest. Above the ready ones there may be some
    /// that are in `rest` as well.
    bits: u64,
    ready: u32,
    remainders: Remainders,
    most: u64,
}

impl Decoder<'_> {
    /// No gap is expected to be longer than `most`.
    pub(super) fn new(divisor: u32, code: &[u8], most: u64) -> Decoder<'_> {
        Decoder { rest: code, bits: 0, ready: 0, remainders: Remainders::of(divisor), most }
    }

    /// The next gap: below 2^38, or at most the longest that is expected. `None` when the code
    /// ends, or has a longer one.
    ///
    /// Millions are decoded in a load, so that most take one test of 56 bits, and no branch that
    /// depends on what they are.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u64> {
        let Remainders { divisor, short, shorts, mask } = self.remainders;
        if self.fill() {
            let zeros = self.bits.trailing_zeros();
            let after = self.bits.wrapping_shr(zeros) >> 1;
            let low = after & mask;
            let is_long = low >= shorts;
            let long = (low << 1 | (after >> short & 1)).wrapping_sub(shorts);
            let used = zeros + 1 + short + u32::from(is_long);
            if used <= self.ready {
                self.skip(used);
                return Some(u64::from(zeros) * divisor + if is_long { long } else { low });
            }
        }
        let gap;
        (*self, gap) = self.next_in_steps();
        gap
    }

    /// The same for a gap of more bits than are ready at once, and for the last ones.
    ///
    /// By value: a decoder whose address is taken would be kept in memory by the loop that calls
    /// [`Self::next`].
    #[cold]
    fn next_in_steps(mut self) -> (Self, Option<u64>) {
        let gap = self.step();
        (self, gap)
    }

    fn step(&mut self) -> Option<u64> {
        let Remainders { divisor, short, shorts, mask } = self.remainders;
        let mut quotient = 0;
        loop {
            self.fill_to_the_end();
            let zeros = self.ready_bits().trailing_zeros();
            if zeros < self.ready {
                quotient += u64::from(zeros);
                self.skip(zeros + 1);
                break;
            }
            quotient += u64::from(self.ready);
            if self.rest.is_empty() || quotient > self.most {
                return None;
            }
            (self.bits, self.ready) = (0, 0);
        }
        self.fill_to_the_end();
        let mut rest = self.bits & mask;
        let mut used = short;
        if rest >= shorts {
            rest = (rest << 1 | (self.bits >> short & 1)) - shorts;
            used += 1;
        }
        if used > self.ready {
            return None;
        }
        self.skip(used);
        let gap = quotient.checked_mul(divisor)?.checked_add(rest)?;
        (gap <= self.most).then_some(gap)
    }

    /// Whether nothing is left but less than a byte of zeros.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.ready < 8 && self.ready_bits() == 0
    }

    fn ready_bits(&self) -> u64 {
        self.bits & ((1 << self.ready) - 1)
    }

    /// Takes as many bytes as fit: then at least 56 bits are ready, at most 63. Returns whether
    /// there were enough.
    #[inline(always)]
    fn fill(&mut self) -> bool {
        let Some((eight, _)) = self.rest.split_first_chunk::<8>() else { return false };
        self.bits |= u64::from_le_bytes(*eight) << self.ready;
        // The bits that are not counted as ready come again with the next byte, and are the same
        // then.
        self.rest = &self.rest[((63 - self.ready) / 8) as usize & 7..];
        self.ready |= 56;
        true
    }

    /// Like [`fill`](Self::fill), but near the end takes all bytes that are left.
    fn fill_to_the_end(&mut self) {
        if self.fill() {
            return;
        }
        self.bits = self.ready_bits();
        while self.ready < 56
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.bits |= u64::from(*byte) << self.ready;
            self.ready += 8;
            self.rest = rest;
        }
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.bits >>= count;
        self.ready -= count;
    }
}
