//! [`Assembler`]: the pieces of all ranges, in order → the parts of the blob. Two ranges may have
//! one block in common: its bits are those of both.

use bloomsday_common::blob::SUBTREE_BYTES;

use super::fill::FillPlan;

/// Puts pieces together. Memory: one part.
#[derive(Debug)]
pub struct Assembler {
    plan: FillPlan,
    /// The part that is being put together.
    part: u64,
    /// Its bytes within the body.
    bytes: Vec<u8>,
}

/// The order of pieces is wrong, or there is one that is not of this blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

/// A part of the blob: one subtree of its digest.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its number.
    pub number: u64,
    /// Where its bytes begin in the blob: behind the header in the first part.
    pub offset: u64,
    /// Its bytes, without the header.
    pub bytes: &'a [u8],
}

impl Assembler {
    /// For a blob without any piece yet.
    pub fn new(plan: FillPlan) -> Assembler {
        let mut assembler = Assembler { plan, part: 0, bytes: Vec::new() };
        assembler.bytes = vec![0; assembler.len()];
        assembler
    }

    /// Where the bytes of the open part begin in the blob.
    fn start(&self) -> u64 {
        (self.part * SUBTREE_BYTES as u64).max(self.plan.blob_sizes.header_bytes)
    }

    /// How many bytes of the body the open part has.
    fn len(&self) -> usize {
        let end = ((self.part + 1) * SUBTREE_BYTES as u64).min(self.plan.blob_sizes.content());
        end.saturating_sub(self.start()) as usize
    }

    /// Passes all parts before `part` to `done`: those without any piece have no bits.
    ///
    /// # Errors
    /// `Misplaced`: the parts from `part` on have been passed on.
    pub fn skip_to(&mut self, part: u64, done: &mut impl FnMut(Part<'_>)) -> Result<(), Misplaced> {
        if part < self.part || part > self.plan.blob_sizes.subtrees() {
            return Err(Misplaced);
        }
        while self.part < part {
            done(Part { number: self.part, offset: self.start(), bytes: &self.bytes });
            self.part += 1;
            self.bytes.clear();
            self.bytes.resize(self.len(), 0);
        }
        Ok(())
    }

    /// Adds the bits of a piece. The parts before it go to `done`.
    ///
    /// # Errors
    /// `Misplaced`.
    pub fn add(
        &mut self,
        part: u64,
        offset: u64,
        bytes: &[u8],
        done: &mut impl FnMut(Part<'_>),
    ) -> Result<(), Misplaced> {
        self.skip_to(part, done)?;
        let at = offset.checked_sub(self.start()).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| self.bytes.get_mut(at..)?.get_mut(..bytes.len()));
        let place = place.ok_or(Misplaced)?;
        place.iter_mut().zip(bytes).for_each(|(sum, more)| *sum |= more);
        Ok(())
    }

    /// Goes past a part that is known already, and that no piece belongs to. The parts before it go
    /// to `done`.
    ///
    /// # Errors
    /// `Misplaced`.
    pub fn pass(&mut self, part: u64, done: &mut impl FnMut(Part<'_>)) -> Result<(), Misplaced> {
        self.skip_to(part, done)?;
        if part >= self.plan.blob_sizes.subtrees() || self.bytes.iter().any(|byte| *byte != 0) {
            return Err(Misplaced);
        }
        self.part += 1;
        self.bytes.clear();
        self.bytes.resize(self.len(), 0);
        Ok(())
    }

    /// Passes all parts that are left to `done`.
    pub fn finish(mut self, done: &mut impl FnMut(Part<'_>)) {
        let end = self.plan.blob_sizes.subtrees();
        self.skip_to(end, done).expect("no part is past the last one");
    }
}
