//! Requests of Redis's protocol: the same whatever pieces they arrive in. The first byte chooses
//! the pieces.

#![no_main]

use std::cell::RefCell;
use std::io::Write;

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../server/src/resp/request.rs"]
#[allow(dead_code)]
mod request;

use request::{Malformed, Request, Scanner};

/// All requests in some bytes, and what ends them. Flat, and used again: to allocate for each word
/// would take most of the time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scanned {
    /// The words, one after the other, and where each ends.
    words: Vec<u8>,
    ends: Vec<usize>,
    /// How many words there are at the end of each request.
    requests: Vec<usize>,
    error: Option<Malformed>,
    /// How many bytes the requests have.
    used: usize,
}

impl Scanned {
    fn push(&mut self, word: &[u8]) {
        self.words.extend_from_slice(word);
        self.ends.push(self.words.len());
    }

    /// Scans bytes that arrive in pieces of one length.
    fn scan(&mut self, bytes: &[u8], piece: usize) {
        self.words.clear();
        self.ends.clear();
        self.requests.clear();
        (self.error, self.used) = (None, 0);
        let (mut scanner, mut arrived) = (Scanner::default(), 0);
        let mut arguments = Vec::new();
        while arrived < bytes.len() {
            arrived = bytes.len().min(arrived + piece);
            loop {
                arguments.clear();
                let length = match scanner.scan(&bytes[self.used..arrived], &mut arguments) {
                    Err(why) => {
                        self.error = Some(why);
                        return;
                    }
                    Ok(None) => {
                        assert!(arguments.is_empty());
                        break;
                    }
                    Ok(Some(Request::Array(length))) => {
                        assert!(length >= 4);
                        arguments.iter().for_each(|word| self.push(word));
                        length
                    }
                    Ok(Some(Request::Inline(length, words))) => {
                        assert!(length >= 1 && arguments.is_empty());
                        words.iter().for_each(|word| self.push(word));
                        length
                    }
                };
                self.requests.push(self.ends.len());
                self.used += length;
                assert!(self.used <= arrived);
            }
        }
    }

    /// Writes the requests as a client does.
    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let (mut word, mut begin) = (0, 0);
        for end in &self.requests {
            write!(out, "*{}\r\n", end - word).expect("memory takes everything");
            for end in &self.ends[word..*end] {
                write!(out, "${}\r\n", end - begin).expect("memory takes everything");
                out.extend_from_slice(&self.words[begin..*end]);
                out.extend_from_slice(b"\r\n");
                begin = *end;
            }
            word = *end;
        }
    }
}

thread_local! {
    static SCANNED: RefCell<(Scanned, Scanned, Vec<u8>)> = RefCell::default();
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else { return };
    SCANNED.with_borrow_mut(|(whole, other, written)| {
        whole.scan(bytes, bytes.len().max(1));
        other.scan(bytes, usize::from(*piece) + 1);
        assert_eq!(whole, other);
        // What was understood, written as a client writes it, is the same.
        whole.write(written);
        other.scan(written, 7);
        (whole.error, whole.used) = (None, written.len());
        assert_eq!(whole, other);
    });
});
