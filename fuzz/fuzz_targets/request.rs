//! Requests of Redis's protocol: the same whatever pieces they arrive in. The first byte chooses the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../server/src/resp/request.rs"]
#[allow(dead_code)]
mod request;

use request::{Malformed, Request, Scanner};

/// All requests in bytes that arrive in pieces of one length, and what ends them.
fn scan(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>, usize) {
    let (mut scanner, mut requests, mut begin) = (Scanner::default(), Vec::new(), 0);
    let mut arrived = 0;
    while arrived < bytes.len() {
        arrived = bytes.len().min(arrived + piece);
        loop {
            let mut arguments = Vec::new();
            match scanner.scan(&bytes[begin..arrived], &mut arguments) {
                Err(why) => return (requests, Some(why), begin),
                Ok(None) => {
                    assert!(arguments.is_empty());
                    break;
                }
                Ok(Some(Request::Array(length))) => {
                    assert!((4..=arrived - begin).contains(&length));
                    requests.push(arguments.iter().map(|argument| argument.to_vec()).collect());
                    begin += length;
                }
                Ok(Some(Request::Inline(length, words))) => {
                    assert!((1..=arrived - begin).contains(&length));
                    requests.push(words);
                    begin += length;
                }
            }
        }
    }
    (requests, None, begin)
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else { return };
    let whole = scan(bytes, bytes.len().max(1));
    assert_eq!(scan(bytes, usize::from(*piece) + 1), whole);
    // What was understood, written as a client writes it, is the same.
    let mut written = Vec::new();
    for request in &whole.0 {
        written.extend(format!("*{}\r\n", request.len()).bytes());
        for argument in request {
            written.extend(format!("${}\r\n", argument.len()).bytes());
            written.extend_from_slice(argument);
            written.extend_from_slice(b"\r\n");
        }
    }
    let again = scan(&written, 7);
    assert_eq!(again, (whole.0, None, written.len()));
});
