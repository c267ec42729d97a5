//! Reading the log of a set once more, while the set goes on.

use std::time::Duration;

use bloomsday_common::live::segment::Frame;

use super::LiveSet;
use crate::live::log::tail::Tail;

/// How often a file that is just being renamed is looked for, and the pause in between.
const MAX_ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

impl LiveSet {
    /// Visits the frames that the log has now, in order. A set without a log has none. An error of
    /// `visit` ends it.
    ///
    /// Cost: a pass over the files; it waits for the disk.
    ///
    /// # Errors
    /// Why not all were visited.
    pub(super) fn read_own_log(
        &self,
        mut visit: impl FnMut(&Frame<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(log) = self.log() else { return Ok(()) };
        let through = log.last_seq();
        // What cannot be written is missing below.
        let written = log.write();
        let (mut tail, mut wanted, mut attempts) = (Tail::new(log.folder()), 1, 0);
        while wanted <= through {
            let piece = tail.read(wanted, through).map_err(|error| error.to_string())?;
            let Some(piece) = piece else {
                attempts += 1;
                if attempts > MAX_ATTEMPTS {
                    let missing = format!("the log has no frames {wanted} to {through}");
                    return Err(written.err().map_or(missing, |why| why.to_string()));
                }
                tail.restart();
                std::thread::sleep(PAUSE);
                continue;
            };
            for frame in piece.frames().map_while(Result::ok) {
                wanted = frame.seq + 1;
                visit(&frame)?;
            }
        }
        Ok(())
    }
}
