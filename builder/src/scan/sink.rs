//! What a scan's caller supplies and gets: [`Sink`], [`ScanProgress`], [`ScanTotals`].

/// What a scan has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanTotals {
    /// The number of files.
    pub files: u64,
    /// The number of rows, including rows without a valid ID.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID is empty or too long.
    pub invalid: u64,
    /// The bytes of all footers and of the column. Bytes that are fetched twice count once.
    pub bytes_read: u64,
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// The rows decoded so far.
    pub rows_done: u64,
    /// The rows of all files; 0 until all footers are read.
    pub rows_total: u64,
    /// The bytes so far: of footers fetched, and of the column decoded.
    pub bytes_done: u64,
}

/// Receives the IDs that one thread decodes. The thread creates the sink, fills it and finishes it.
///
/// A closure is a sink without an output.
pub trait Sink {
    /// What the sink returns at the end.
    type Output: Send + 'static;

    /// Receives a valid ID. The bytes are only valid during the call.
    fn push(&mut self, id: &[u8]);

    /// Comes after the last ID. A scan that fails does not call it.
    fn finish(self) -> Self::Output;
}

impl<F: FnMut(&[u8])> Sink for F {
    type Output = ();

    #[inline]
    fn push(&mut self, id: &[u8]) {
        self(id);
    }

    fn finish(self) {}
}
