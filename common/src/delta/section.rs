//! [`Section`]: which bits of one subtree of a blob differ. Each section is decoded alone.

use super::golomb::{Decoder, Encoder, best_divisor};

/// The length of the numbers before a section's code: its bytes, its flips, its divisor.
pub(super) const HEAD_BYTES: usize = 12;
/// The divisor that stands for a code that is the subtree's XOR itself.
const RAW: u32 = 0;

/// A section of a file.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    /// How many bits differ.
    pub(super) flips: u32,
    /// The divisor of the Golomb code, or [`RAW`].
    divisor: u32,
    code: &'a [u8],
}

/// The section of two subtrees of one length, as bytes of a file; and how many bits differ.
pub(super) fn encode(a: &[u8], b: &[u8]) -> (Vec<u8>, u64) {
    assert_eq!(a.len(), b.len(), "the subtrees of two blobs of one length");
    let words = || words(a).zip(words(b)).map(|(a, b)| a ^ b);
    let flips: u64 = words().map(|word| u64::from(word.count_ones())).sum();
    let mut divisor = best_divisor(flips, 8 * a.len() as u64);
    let mut encoder = Encoder::new(divisor);
    // One past the last flip.
    let mut next = 0;
    for (start, mut word) in (0..).step_by(64).zip(words()) {
        while word != 0 {
            let at = start + u64::from(word.trailing_zeros());
            encoder.push(at - next);
            next = at + 1;
            word &= word - 1;
        }
    }
    let mut code = encoder.finish();
    if code.len() >= a.len() && flips > 0 {
        divisor = RAW;
        code = a.iter().zip(b).map(|(a, b)| a ^ b).collect();
    }
    let head = [code.len() as u32, flips as u32, divisor];
    let mut section: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
    section.extend(code);
    (section, flips)
}

/// Bytes as little-endian words; the last is filled with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(last);
    words.iter().copied().chain(last).map(u64::from_le_bytes)
}

impl Section<'_> {
    /// Reads the section of a subtree of `subtree_bytes` bytes at the beginning of `bytes`. Returns
    /// it and its length, or `None` when some of it is not there yet.
    ///
    /// # Errors
    /// A sentence: what is wrong with its numbers.
    pub(super) fn parse(
        bytes: &[u8],
        subtree_bytes: usize,
    ) -> Result<Option<(Section<'_>, usize)>, &'static str> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [length, flips, divisor] = bytemuck::cast::<_, [[u8; 4]; 3]>(*head);
        let (length, flips) = (u32::from_le_bytes(length) as usize, u32::from_le_bytes(flips));
        let divisor = u32::from_le_bytes(divisor);
        if length > subtree_bytes || u64::from(flips) > 8 * subtree_bytes as u64 {
            return Err("a section is longer than its subtree of the blob");
        }
        if divisor == RAW && length != subtree_bytes {
            return Err("a section without a code is not as long as its subtree of the blob");
        }
        let Some(code) = rest.get(..length) else { return Ok(None) };
        Ok(Some((Section { flips, divisor, code }, HEAD_BYTES + length)))
    }

    /// Flips the bits of a subtree, piece by piece. `fill` is called for each piece first, with its
    /// offset, and writes the base's bytes into it; `done` is called when the piece is as it should
    /// be.
    ///
    /// # Errors
    /// A sentence: what is wrong with the code; or the error of `fill`.
    pub(super) fn apply(
        self,
        subtree: &mut [u8],
        piece_bytes: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), String>,
        mut done: impl FnMut(usize, &[u8]),
    ) -> Result<(), String> {
        if self.divisor == RAW {
            let mut flips = 0;
            let pieces = subtree.chunks_mut(piece_bytes).zip(self.code.chunks(piece_bytes));
            for (offset, (piece, code)) in (0..).step_by(piece_bytes).zip(pieces) {
                fill(offset, piece)?;
                piece.iter_mut().zip(code).for_each(|(byte, code)| *byte ^= code);
                flips += code.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
                done(offset, piece);
            }
            return if flips == u64::from(self.flips) {
                Ok(())
            } else {
                Err("a section has another number of flips than it says".into())
            };
        }
        let wrong = || "a section's code is not one of its subtree of the blob".to_owned();
        let bits = 8 * subtree.len() as u64;
        let mut flips = Flips::new(self, bits).ok_or_else(wrong)?;
        for (offset, piece) in (0..).step_by(piece_bytes).zip(subtree.chunks_mut(piece_bytes)) {
            fill(offset, piece)?;
            flips.flip(8 * offset as u64, piece).ok_or_else(wrong)?;
            done(offset, piece);
        }
        // One that was past the subtree was not flipped.
        if flips.left > 0 {
            return Err(wrong());
        }
        if flips.gaps.is_at_end() {
            Ok(())
        } else {
            Err("a section's code is longer than its flips".into())
        }
    }
}

/// The bits of a subtree that are still to be flipped.
struct Flips<'a> {
    gaps: Decoder<'a>,
    /// The next of them, if any is left.
    next: u64,
    left: u32,
}

impl Flips<'_> {
    /// `None` when there is no first one.
    fn new(section: Section<'_>, bits: u64) -> Option<Flips<'_>> {
        let mut gaps = Decoder::new(section.divisor, section.code, bits);
        let next = if section.flips > 0 { gaps.next()? } else { 0 };
        Some(Flips { gaps, next, left: section.flips })
    }

    /// Flips those of the piece that begins at the bit `start`. `None` when the code has too few.
    ///
    /// A function of its own, so that the loop has the registers for itself: inlined it takes half
    /// as long again.
    #[inline(never)]
    fn flip(&mut self, start: u64, piece: &mut [u8]) -> Option<()> {
        let Flips { mut gaps, next, mut left } = *self;
        let end = 8 * piece.len() as u64;
        let mut at = next.wrapping_sub(start);
        while left > 0 && at < end {
            piece[(at >> 3) as usize] ^= 1 << (at & 7);
            left -= 1;
            if left > 0 {
                at += 1 + gaps.next()?;
            }
        }
        *self = Flips { gaps, next: at.wrapping_add(start), left };
        Some(())
    }
}
