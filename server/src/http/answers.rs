//! [`Answers`]: the results of many lookups as the body of a reply. Each is a byte until it is
//! sent; JSON or lines are written only as the client reads them. They need no memory of their own:
//! each takes the place of an ID.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::blocks::Block;

/// How many results are written at once: 24 KiB of JSON.
const ANSWERS_PER_FRAME: usize = 4096;

/// How long a client may take to read all results. A client that reads nothing is cut off earlier.
const READ_DEADLINE: Duration = Duration::from_secs(60);

/// The format of the results.
#[derive(Clone, Copy)]
pub(super) enum BodyFormat {
    /// `1` or `0`, one line each.
    Lines,
    /// An array of `true` and `false`.
    Json,
}

/// The results of lookups, collected with [`Answers::add`], then sent as a body.
pub(crate) struct Answers {
    form: BodyFormat,
    /// 1 for a hit, 0 for a miss. A block that is sent goes back to its pool.
    blocks: VecDeque<Block>,
    /// The number of results of the first block that are sent already.
    sent: usize,
    /// The length of the body.
    bytes: u64,
    /// The number of bytes still to be sent.
    left: u64,
    /// When the client must have read all: counted from its first read, since what is answered may
    /// wait for a disk.
    deadline: Option<Instant>,
}

impl Answers {
    pub(super) fn new(form: BodyFormat) -> Answers {
        let bytes = match form {
            BodyFormat::Lines => 0,
            BodyFormat::Json => "[]\n".len() as u64,
        };
        Answers { form, blocks: VecDeque::new(), sent: 0, bytes, left: bytes, deadline: None }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            BodyFormat::Lines => "text/plain; charset=utf-8",
            BodyFormat::Json => "application/json",
        }
    }

    /// Adds results, 1 or 0 each, of which `hits` are 1.
    pub(super) fn add(&mut self, answers: Block, hits: u64) {
        let misses = answers.len() as u64 - hits;
        self.bytes += match self.form {
            BodyFormat::Lines => 2 * (hits + misses),
            // The last one has no comma.
            BodyFormat::Json => {
                5 * hits + 6 * misses - u64::from(self.blocks.is_empty() && !answers.is_empty())
            }
        };
        self.left = self.bytes;
        match self.blocks.back_mut() {
            Some(last) if last.remaining() >= answers.len() => _ = last.fill(&answers),
            _ if answers.is_empty() => {}
            _ => self.blocks.push_back(answers),
        }
    }

    /// Writes the next results.
    fn write(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let some = self.blocks.front().map_or(&[][..], |first| &first[self.sent..]);
        let some = &some[..some.len().min(ANSWERS_PER_FRAME)];
        match self.form {
            BodyFormat::Lines => {
                text.resize(2 * some.len(), b'\n');
                for ([digit, _], answer) in text.as_chunks_mut().0.iter_mut().zip(some) {
                    *digit = b'0' + answer;
                }
            }
            BodyFormat::Json => {
                text.reserve("[]\n".len() + "false,".len() * some.len());
                if self.left == self.bytes {
                    text.push(b'[');
                }
                for answer in some {
                    text.extend_from_slice(if *answer == 1 { b"true," } else { b"false," });
                }
            }
        }
        self.sent += some.len();
        if self.blocks.front().is_some_and(|first| first.len() == self.sent) {
            self.blocks.pop_front();
            self.sent = 0;
        }
        if let BodyFormat::Json = self.form
            && self.blocks.is_empty()
        {
            text.pop_if(|last| *last == b',');
            text.extend_from_slice(b"]\n");
        }
        self.left -= text.len() as u64;
        text
    }
}

impl Body for Answers {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let now = Instant::now();
        if now > *self.deadline.get_or_insert(now + READ_DEADLINE) {
            // Ends the connection; there is nothing to log.
            return Poll::Ready(Some(Err(ErrorKind::TimedOut.into())));
        }
        let next = (self.left > 0).then(|| self.write());
        Poll::Ready(next.map(|text| Ok(Frame::data(text.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::super::blocks::Blocks;
    use super::*;

    fn gathered(form: BodyFormat, answers: &[bool], at_once: usize) -> Answers {
        let blocks = Blocks::new(100, 5_000);
        let mut body = Answers::new(form);
        for some in answers.chunks(at_once) {
            let mut block = blocks.take().unwrap();
            let bytes: Vec<u8> = some.iter().map(|hit| u8::from(*hit)).collect();
            assert_eq!(block.fill(&bytes), some.len());
            body.add(block, some.iter().filter(|hit| **hit).count() as u64);
        }
        body
    }

    fn text(form: BodyFormat, answers: &[bool], at_once: usize) -> String {
        let mut body = gathered(form, answers, at_once);
        let announced = body.size_hint().exact().unwrap();
        let mut text = Vec::new();
        while !body.is_end_stream() {
            text.extend(body.write());
        }
        assert_eq!(text.len() as u64, announced, "the announced length is sent");
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn results_are_written_completely_from_any_number_of_blocks() {
        for many in [0, 1, 2, 4_096, 4_097, 5_000, 5_001, 33_333] {
            let answers: Vec<bool> = (0..many).map(|n| n % 3 == 0).collect();
            for at_once in [1, 1_024, 5_000] {
                let lines: String =
                    answers.iter().map(|hit| if *hit { "1\n" } else { "0\n" }).collect();
                assert_eq!(text(BodyFormat::Lines, &answers, at_once), lines);
                let array = text(BodyFormat::Json, &answers, at_once);
                assert!(array.ends_with("]\n") && !array.contains(' '));
                assert_eq!(serde_json::from_str::<Vec<bool>>(&array).unwrap(), answers);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_given_up() {
        let mut body = gathered(BodyFormat::Json, &[true; 33_333], 5_000);
        let frames = async |body: &mut Answers| body.frame().await.unwrap().is_ok();
        assert!(frames(&mut body).await);
        tokio::time::advance(READ_DEADLINE).await;
        assert!(frames(&mut body).await);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(!frames(&mut body).await);
    }
}
