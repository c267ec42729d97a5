//! The answers to many questions, a byte each until they are sent: written out only as the client reads them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::blocks::{Block, Blocks};

/// How many answers are written out at once: 24 KiB of JSON.
const ANSWERS_AT_ONCE: usize = 4096;

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
    /// 1 or 0 for each that is still to be sent, but for the first ones of the first block.
    blocks: VecDeque<Block>,
    /// How many of the first block are sent.
    sent: usize,
    /// How many bytes all together have, and how many of them are still to be sent.
    bytes: u64,
    left: u64,
}

impl Answers {
    pub(super) fn new(form: Form) -> Answers {
        let bytes = match form {
            Form::Lines => 0,
            Form::Json => "[]\n".len() as u64,
        };
        Answers { form, blocks: VecDeque::new(), sent: 0, bytes, left: bytes }
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            Form::Lines => "text/plain; charset=utf-8",
            Form::Json => "application/json",
        }
    }

    /// More answers, `seen` of which are "yes"; `None` when there is no block for them.
    pub(super) fn add(&mut self, mut answers: &[bool], seen: usize, blocks: &Blocks) -> Option<()> {
        let (yes, no) = (seen as u64, (answers.len() - seen) as u64);
        self.bytes += match self.form {
            Form::Lines => 2 * (yes + no),
            // The last one has no comma.
            Form::Json => 5 * yes + 6 * no - u64::from(self.blocks.is_empty() && yes + no > 0),
        };
        self.left = self.bytes;
        while !answers.is_empty() {
            let Some(last) = self.blocks.back_mut().filter(|last| last.room() > 0) else {
                self.blocks.push_back(blocks.take()?);
                continue;
            };
            let (now, later) = answers.split_at(answers.len().min(last.room()));
            last.extend(now.iter().map(|seen| u8::from(*seen)));
            answers = later;
        }
        Some(())
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
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
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
    use super::*;

    fn text(form: Form, answers: &[bool], at_once: usize) -> String {
        let blocks = Blocks::new(100, 5_000);
        let mut body = Answers::new(form);
        for some in answers.chunks(at_once) {
            let seen = some.iter().filter(|seen| **seen).count();
            body.add(some, seen, &blocks).unwrap();
        }
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
            for at_once in [1, 1_024, 40_000] {
                let lines: String =
                    answers.iter().map(|seen| if *seen { "1\n" } else { "0\n" }).collect();
                assert_eq!(text(Form::Lines, &answers, at_once), lines);
                let array = text(Form::Json, &answers, at_once);
                assert!(array.ends_with("]\n") && !array.contains(' '));
                assert_eq!(serde_json::from_str::<Vec<bool>>(&array).unwrap(), answers);
            }
        }
    }

    #[test]
    fn answers_without_room_are_refused() {
        let blocks = Blocks::new(1, 100);
        let room = blocks.take().unwrap().room();
        let mut answers = Answers::new(Form::Lines);
        assert!(answers.add(&vec![true; room], room, &blocks).is_some());
        assert!(answers.add(&[true], 1, &blocks).is_none());
    }
}
