//! Frames of a log that could not be read: they are looked for again, and what follows them is read
//! all the same.

use std::cmp::Reverse;

use bloomsday_common::key::SegmentKey;

use super::frames::Gap;
use super::{CallError, FollowError, LogFollower, MAX_PROBLEMS, RemoteLog, fetch, in_time};

/// How many segments before a gap are read at a time.
const MAX_LOOKS_BACK: usize = 64;

/// What a look back found.
#[derive(PartialEq)]
enum Found {
    NewFrames,
    Nothing,
    /// Nothing, and the next one goes on.
    NotAllRead,
}

impl LogFollower {
    /// Looks again for what could not be read. Whatever waits for a gap, late deletions too, ends
    /// when it is filled; so nothing stops this.
    pub(super) async fn fill_gaps(&mut self) {
        let since = *self.days().start();
        let gaps_of = |(node, log): (&u64, &mut RemoteLog)| {
            let gaps = log.frames.expire_gaps(since, log.shipped);
            let is_complete = log.frames.next().is_none_or(|next| next > log.shipped);
            if gaps.is_empty() && is_complete {
                log.looked_back.clear();
            }
            gaps.into_iter().map(|gap| (*node, gap)).collect::<Vec<_>>()
        };
        let gaps: Vec<(u64, Gap)> = self.logs.iter_mut().flat_map(gaps_of).collect();
        for (node, gap) in gaps {
            // Each other gap would wait as long.
            if let Err(FollowError::Store(CallError::Slow)) = self.fill(node, &gap).await {
                return;
            }
        }
    }

    /// Reads the frames after the last one from a segment that begins before them: a server that
    /// writes its log again may do so in longer segments. Returns whether there was one.
    pub(super) async fn follow_longer(&mut self, node: u64) -> Result<bool, FollowError> {
        let log = &self.logs[&node];
        let end = log.frames.end(log.shipped, *self.days().end());
        match end.filter(|_| !log.frames.is_end_unknown()) {
            Some(gap) => self.fill(node, &gap).await,
            None => Ok(false),
        }
    }

    /// Reads the segments that begin in a gap. If they bring no new frame, reads earlier ones of
    /// the same days: they may have been written again, longer. Returns whether a new frame came.
    async fn fill(&mut self, node: u64, gap: &Gap) -> Result<bool, FollowError> {
        let mut listed = Vec::new();
        for day in gap.days.0.through(gap.days.1) {
            listed.extend(in_time(self.store.segments_of(&self.filter, day, node, None)).await?);
        }
        listed.retain(|(key, _)| key.first_seq <= gap.last);
        let (earlier, inside): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(key, _)| key.first_seq < gap.first);
        let (mut is_any_new, mut unusable) = (false, Vec::new());
        for (key, _) in inside {
            if unusable.len() == MAX_PROBLEMS {
                break;
            }
            match self.fetch_and_apply(&key).await {
                Ok((is_new, _)) => is_any_new |= is_new,
                Err(slow @ FollowError::Store(CallError::Slow)) => return Err(slow),
                Err(why) => {
                    unusable.push(key.first_seq);
                    self.note_unusable(&key, &why);
                }
            }
        }
        if is_any_new {
            return Ok(true);
        }
        let is_inside_read = unusable.len() < MAX_PROBLEMS;
        let found = self.look_back(node, earlier, &mut unusable).await?;
        if found == Found::Nothing
            && is_inside_read
            && let Some(log) = self.logs.get_mut(&node)
        {
            log.frames.keep_unusable(gap, &unusable);
        }
        Ok(found == Found::NewFrames)
    }

    /// Reads segments from before a gap, the nearest first, until one has a new frame. Adds those
    /// that cannot be used to `unusable`.
    ///
    /// Cost: [`MAX_LOOKS_BACK`] reads, of each sound one once while something is missing.
    async fn look_back(
        &mut self,
        node: u64,
        mut earlier: Vec<(SegmentKey, u64)>,
        unusable: &mut Vec<u64>,
    ) -> Result<Found, FollowError> {
        let Some(log) = self.logs.get_mut(&node) else { return Ok(Found::Nothing) };
        // One that cannot be used may be put back with the same size.
        let is_read = |(key, size): &(SegmentKey, u64)| {
            log.looked_back.get(key) == Some(&Some(*size)) && !log.frames.is_unusable(key.first_seq)
        };
        earlier.retain(|segment| !is_read(segment));
        // The ones that could not be read keep no other from being read.
        earlier.sort_by_key(|(key, _)| (log.looked_back.contains_key(key), Reverse(key.first_seq)));
        for (looks, (key, listed)) in earlier.into_iter().enumerate() {
            if looks == MAX_LOOKS_BACK {
                return Ok(Found::NotAllRead);
            }
            let read = match self.fetch_and_apply(&key).await {
                Ok((true, _)) => return Ok(Found::NewFrames),
                Err(slow @ FollowError::Store(CallError::Slow)) => return Err(slow),
                // A cache on the way may return what was there before.
                Ok((_, size)) => Some(size).filter(|size| *size == listed),
                // Its frames were read, or are a gap of their own.
                Err(_) => {
                    unusable.push(key.first_seq);
                    None
                }
            };
            if let Some(log) = self.logs.get_mut(&node) {
                log.looked_back.insert(key, read);
            }
        }
        Ok(Found::Nothing)
    }

    /// Returns whether it had a frame that was not read, and its size.
    pub(super) async fn fetch_and_apply(
        &mut self,
        key: &SegmentKey,
    ) -> Result<(bool, u64), FollowError> {
        let bytes = fetch(&self.store, key).await?;
        Ok((self.apply(key, &bytes).await?, bytes.len() as u64))
    }

    /// Remembers that a segment cannot be used, and logs it the first time.
    pub(super) fn note_unusable(&mut self, key: &SegmentKey, why: &FollowError) {
        let log = self.logs.entry(key.node).or_default();
        if log.frames.add_unusable(key.first_seq, key.day, why.to_string()) {
            tracing::warn!(filter = %self.filter, "{why}");
        }
    }
}
