//! Requests in any pieces, and what is none.

use proptest::prelude::*;

use super::*;

fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.len()).bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// What scanning the bytes gives when they arrive in pieces.
fn in_pieces(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Vec<Vec<u8>>>, Malformed> {
    let (mut scanner, mut requests) = (Scanner::default(), Vec::new());
    let (mut begin, mut arrived) = (0, 0);
    for piece in pieces.iter().cycle() {
        arrived = bytes.len().min(arrived + piece);
        loop {
            let mut arguments = Vec::new();
            match scanner.scan(&bytes[begin..arrived], &mut arguments)? {
                None => break,
                Some(Request::Array(length)) => {
                    requests.push(arguments.iter().map(|argument| argument.to_vec()).collect());
                    begin += length;
                }
                Some(Request::Inline(length, arguments)) => {
                    requests.push(arguments);
                    begin += length;
                }
            }
        }
        if arrived == bytes.len() {
            return Ok(requests);
        }
    }
    unreachable!("the pieces have no end")
}

proptest! {
    #[test]
    fn requests_are_what_was_sent_whatever_pieces_they_come_in(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
            1..8,
        ),
        pieces in prop::collection::vec(1..100_usize, 1..10),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        prop_assert_eq!(in_pieces(&bytes, &pieces), Ok(requests));
    }

    #[test]
    fn any_bytes_give_the_same_in_any_pieces(
        bytes in prop::collection::vec(
            prop_oneof![3 => prop::sample::select(&b"*$0123456789\r\n\"'\\x -+"[..]), 1 => any::<u8>()],
            0..200,
        ),
        pieces in prop::collection::vec(1..20_usize, 1..10),
    ) {
        prop_assert_eq!(in_pieces(&bytes, &pieces), in_pieces(&bytes, &[200]));
    }
}

#[test]
fn a_line_is_a_request_with_quotes_as_in_c() {
    let words = |line: &str| {
        let requests = in_pieces(line.as_bytes(), &[1]).unwrap();
        requests
            .into_iter()
            .map(|words| words.iter().map(|w| w.escape_ascii().to_string()).collect())
    };
    let one = |line| words(line).next().unwrap_or_else(|| vec!["none".to_owned()]);
    assert_eq!(one("PING\r\n"), ["PING"]);
    assert_eq!(one("  bf.add\t a  b \n"), ["bf.add", "a", "b"]);
    assert_eq!(one("\r\n"), Vec::<String>::new());
    assert_eq!(one(r#"a "b c\x41\n\q" 'd\'\n'"#.to_owned().leak()), ["none"]);
    assert_eq!(one("a \"b c\\x41\\n\\q\" 'd\\'\\n'\n"), ["a", "b cA\\nq", "d\\'\\\\n"]);
}

#[test]
fn what_is_no_request_is_told() {
    for (bytes, why) in [
        ("*-2147483649999999999999\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*abc\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
        ("*1\r\n$+4\r\nPING\r\n", "invalid bulk length"),
        ("*1111111111111111111111111", "invalid multibulk length"),
        ("*1\r\n:5\r\n", "expected '$', got ':'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$67108865\r\n", "invalid bulk length"),
        ("*1\r\n$3\r\nabcde", "does not end with CRLF"),
        ("a \"b\n", "unbalanced quotes"),
        ("a 'b'c\n", "unbalanced quotes"),
        ("POST / HTTP/1.1\r\nBF.ADD rt x\r\n", "this is HTTP"),
        ("host: 127.0.0.1\r\n", "this is HTTP"),
        (&"x".repeat(65_536), "too big inline request"),
    ] {
        let got = in_pieces(bytes.as_bytes(), &[7]).unwrap_err().to_string();
        assert!(got.contains(why), "{bytes:?}: {got}");
    }
    assert_eq!(in_pieces(b"*0\r\n*-1\r\n", &[3]), Ok(vec![vec![], vec![]]));
    let mut scanner = Scanner { is_unauthenticated: true, ..Scanner::default() };
    let many = scanner.scan(b"*11\r\n", &mut Vec::new());
    assert_eq!(many, Err(Malformed::UnauthenticatedArguments));
    let mut scanner = Scanner { is_unauthenticated: true, ..Scanner::default() };
    let long = scanner.scan(b"*1\r\n$16385\r\n", &mut Vec::new());
    assert_eq!(long, Err(Malformed::UnauthenticatedBytes));
}
