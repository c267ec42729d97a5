//! [`Lines`]: cache lines of words that threads share, in huge pages if they are many.
//! [`LineArena`] makes them.
//!
//! A lookup reads a random line. With 4 KiB pages nearly every one also misses the TLB, and in a
//! virtual machine that costs more than the line itself.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use super::Buffer;

/// The words of a line.
pub const LINE_WORDS: usize = 8;
/// Fewer bytes than this come from the heap: a page for each would be too much.
const MIN_MAPPED_BYTES: usize = 128 << 10;
/// What is mapped at once, and shared by lines that are made one after the other.
const MAPPED_BYTES: usize = 8 << 20;
/// From this many bytes on, the next mapping is made before it is needed: a table of 256 shards has
/// eight such mappings then.
const MIN_PREPARED_BYTES: usize = 256 << 10;
/// The system gives memory, zeroed, at the first write to a page.
const PAGE: usize = 4096;

/// One cache line of words.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; LINE_WORDS]);

/// Lines that are all zero when they are made. Cheap to clone: clones are the same lines.
pub struct Lines {
    first: NonNull<Line>,
    len: usize,
    owner: Arc<Owner>,
}

/// What has the memory.
enum Owner {
    Heap(Box<[Line]>),
    Mapped(Buffer),
}

// SAFETY: a `Lines` is a shared reference to `len` lines, and what has their memory; both may go to
// other threads and be used by several, because `Line` is `Sync` and an `Owner` is never changed.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: `LineArena` made `first` and `len` of memory that `owner` has, that begins on a
        // line's boundary, that is initialised (a new mapping is zero), and that is changed by
        // atomics only.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Lines {
    /// The words of all lines, one line after the other.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as in `deref`: `len` lines begin at `first`, and a line is `LINE_WORDS` words
        // without padding.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().cast(), self.len * LINE_WORDS) }
    }
}

impl Clone for Lines {
    fn clone(&self) -> Lines {
        Lines { first: self.first, len: self.len, owner: self.owner.clone() }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_mapped = matches!(*self.owner, Owner::Mapped(_));
        f.debug_struct("Lines")
            .field("len", &self.len)
            .field("is_mapped", &is_mapped)
            .finish_non_exhaustive()
    }
}

/// Makes lines. What is made one after the other shares a mapping, which is there as long as any of
/// them.
#[derive(Default)]
pub struct LineArena {
    /// The last mapping, and how many of its bytes are in use.
    last: Option<(Arc<Owner>, usize)>,
    /// The next mapping. A thread writes to its pages, so that the system zeroes them before they
    /// are needed.
    next: Option<JoinHandle<io::Result<Buffer>>>,
}

impl LineArena {
    /// Makes lines that are all zero.
    ///
    /// # Errors
    /// The system's, when it refuses that much address space.
    pub fn lines(&mut self, len: usize) -> io::Result<Lines> {
        let bytes = len.saturating_mul(size_of::<Line>());
        if bytes < MIN_MAPPED_BYTES {
            let lines: Box<[Line]> = std::iter::repeat_with(Line::default).take(len).collect();
            let owner = Arc::new(Owner::Heap(lines));
            let Owner::Heap(lines) = &*owner else { unreachable!("it was made so") };
            let first = NonNull::from(&**lines).cast();
            return Ok(Lines { first, len, owner });
        }
        let (owner, used) = match self.last.take() {
            Some((owner, used)) if used + bytes <= owner.mapped() => (owner, used),
            _ => (Arc::new(Owner::Mapped(self.next_mapping(bytes)?)), 0),
        };
        let Owner::Mapped(buffer) = &*owner else { unreachable!("what is kept is mapped") };
        // SAFETY: `used + bytes` is at most the length of the buffer, see above, so that the
        // pointer stays within it. It is a multiple of the line's size from the begin of a page.
        let first = unsafe { buffer.first().add(used) }.cast();
        let lines = Lines { first, len, owner: owner.clone() };
        self.last = Some((owner, used + bytes));
        Ok(lines)
    }

    /// A mapping of at least this many bytes. The one after it is prepared, but never waited for.
    fn next_mapping(&mut self, bytes: usize) -> io::Result<Buffer> {
        // So long ones have one of their own.
        if bytes > MAPPED_BYTES {
            return Buffer::zeroed(bytes);
        }
        let prepared = self.next.take_if(|next| next.is_finished());
        let prepared = prepared.and_then(|next| next.join().ok()?.ok());
        if bytes >= MIN_PREPARED_BYTES && self.next.is_none() {
            let prepare = std::thread::Builder::new().name("live-memory".to_owned());
            self.next = prepare.spawn(prepared_mapping).ok();
        }
        prepared.map_or_else(|| Buffer::zeroed(MAPPED_BYTES), Ok)
    }
}

/// A mapping whose pages are all there.
fn prepared_mapping() -> io::Result<Buffer> {
    let mut buffer = Buffer::zeroed(MAPPED_BYTES)?;
    buffer.iter_mut().step_by(PAGE).for_each(|first| *first = 0);
    Ok(buffer)
}

impl Owner {
    /// The bytes of the mapping.
    fn mapped(&self) -> usize {
        match self {
            Owner::Heap(_) => 0,
            Owner::Mapped(buffer) => buffer.len,
        }
    }
}

impl fmt::Debug for LineArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.last.as_ref().map_or(0, |(_, used)| *used);
        f.debug_struct("LineArena").field("used", &used).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn lines_are_zero_and_their_own_whatever_is_made_and_dropped_before() {
        let (mut arena, mut kept) = (LineArena::default(), Vec::new());
        for number in 1..200_u64 {
            let len = [1, 3, 1_999, 2_048, 5_000, 40_000, 150_000][number as usize % 7];
            let lines = arena.lines(len).unwrap();
            assert_eq!((lines.len(), lines.as_ptr().align_offset(64)), (len, 0));
            for word in lines.iter().flat_map(|line| &line.0) {
                assert_eq!(word.swap(number, Ordering::Relaxed), 0, "lines of {len}");
            }
            kept.push((number, lines.clone()));
            if number % 3 == 0 {
                kept.remove(number as usize % kept.len());
            }
        }
        for (number, lines) in &kept {
            let mut words = lines.iter().flat_map(|line| &line.0);
            assert!(words.all(|word| word.load(Ordering::Relaxed) == *number));
        }
    }
}
