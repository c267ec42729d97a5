//! The answers to many questions, a byte each until they are sent: written out only as the client reads them.
//! They need no memory of their own: each takes the place of an ID.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::blocks::Block;

/// How many answers are written out at once: 24 KiB of JSON.
const ANSWERS_AT_ONCE: usize = 4096;

/// How long a client may take to read all answers. One that reads nothing is cut off earlier.
const READ_DEADLINE: Duration = Duration::from_secs(60);

/// How answers are written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// `1` or `0`, a line each.
    Lines,
    /// An array of `true` and `false`.
    Json,
}

/// Answers, gathered with [`Answers::add`], then a body to be sent.
pub(crate) struct Answers {
    form: Form,
    /// 1 or 0 for each answer. Blocks that are sent are given back.
    blocks: VecDeque<Block>,
    /// How many answers of the first block are sent already.
    sent: usize,
    /// The length of the body.
    bytes: u64,
    /// How many bytes of it are still to be sent.
    left: u64,
    deadline: Instant,
}

impl Answers {
    pub(super) fn new(form: Form) -> Answers {
        let bytes = match form {
            Form::Lines => 0,
            Form::Json => "[]\n".len() as u64,
        };
        let deadline = Instant::now() + READ_DEADLINE;
        Answers { form, blocks: VecDeque::new(), sent: 0, bytes, left: bytes, deadline }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            Form::Lines => "text/plain; charset=utf-8",
            Form::Json => "application/json",
        }
    }

    /// More answers, 1 or 0 each, `seen` of which are 1.
    pub(super) fn add(&mut self, answers: Block, seen: u64) {
        let absent = answers.len() as u64 - seen;
        self.bytes += match self.form {
            Form::Lines => 2 * (seen + absent),
            // The last one has no comma.
            Form::Json => {
                5 * seen + 6 * absent - u64::from(self.blocks.is_empty() && !answers.is_empty())
            }
        };
        self.left = self.bytes;
        match self.blocks.back_mut() {
            Some(last) if last.room() >= answers.len() => _ = last.fill(&answers),
            _ if answers.is_empty() => {}
            _ => self.blocks.push_back(answers),
        }
    }

    /// Writes the next answers out.
    fn write(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let some = self.blocks.front().map_or(&[][..], |first| &first[self.sent..]);
        let some = &some[..some.len().min(ANSWERS_AT_ONCE)];
        match self.form {
            Form::Lines => {
                text.resize(2 * some.len(), b'\n');
                for ([digit, _], seen) in text.as_chunks_mut().0.iter_mut().zip(some) {
                    *digit = b'0' + seen;
                }
            }
            Form::Json => {
                text.reserve("[]\n".len() + "false,".len() * some.len());
                if self.left == self.bytes {
                    text.push(b'[');
                }
                for seen in some {
                    text.extend_from_slice(if *seen == 1 { b"true," } else { b"false," });
                }
            }
        }
        self.sent += some.len();
        if self.blocks.front().is_some_and(|first| first.len() == self.sent) {
            self.blocks.pop_front();
            self.sent = 0;
        }
        if let Form::Json = self.form
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
        if Instant::now() > self.deadline {
            // Nobody is told: what ends the connection is its own business.
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

    fn gathered(form: Form, answers: &[bool], at_once: usize) -> Answers {
        let blocks = Blocks::new(100, 5_000);
        let mut body = Answers::new(form);
        for some in answers.chunks(at_once) {
            let mut block = blocks.take().unwrap();
            let bytes: Vec<u8> = some.iter().map(|seen| u8::from(*seen)).collect();
            assert_eq!(block.fill(&bytes), some.len());
            body.add(block, some.iter().filter(|seen| **seen).count() as u64);
        }
        body
    }

    fn text(form: Form, answers: &[bool], at_once: usize) -> String {
        let mut body = gathered(form, answers, at_once);
        let announced = body.size_hint().exact().unwrap();
        let mut text = Vec::new();
        while !body.is_end_stream() {
            text.extend(body.write());
        }
        assert_eq!(text.len() as u64, announced, "what is announced is sent");
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn answers_are_written_whole_however_many_blocks_they_take() {
        for many in [0, 1, 2, 4_096, 4_097, 5_000, 5_001, 33_333] {
            let answers: Vec<bool> = (0..many).map(|n| n % 3 == 0).collect();
            for at_once in [1, 1_024, 5_000] {
                let lines: String =
                    answers.iter().map(|seen| if *seen { "1\n" } else { "0\n" }).collect();
                assert_eq!(text(Form::Lines, &answers, at_once), lines);
                let array = text(Form::Json, &answers, at_once);
                assert!(array.ends_with("]\n") && !array.contains(' '));
                assert_eq!(serde_json::from_str::<Vec<bool>>(&array).unwrap(), answers);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_given_up() {
        let mut body = gathered(Form::Json, &[true; 33_333], 5_000);
        let frames = async |body: &mut Answers| body.frame().await.unwrap().is_ok();
        assert!(frames(&mut body).await);
        tokio::time::advance(READ_DEADLINE).await;
        assert!(frames(&mut body).await);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(!frames(&mut body).await);
    }
}
