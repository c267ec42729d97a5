//! Raw HTTP: for requests that an HTTP client does not send, and for very many.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a server may send nothing before the test fails.
const SILENCE: Duration = Duration::from_secs(60);

/// Sends exactly these bytes to an address or a URL. Returns everything received until the
/// connection ends, so the last request should have `Connection: close`.
///
/// # Panics
/// When the server neither responds nor ends the connection.
pub fn exchange(to: &str, request: &[u8]) -> String {
    let address = to.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SILENCE)).expect("a time limit");
    let mut writing = stream.try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        // Writes and reads at the same time: a server stops reading when nobody reads its
        // responses. A server that refuses a request need not read the rest.
        scope.spawn(move || drop(writing.write_all(request)));
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("the server ends the connection");
        String::from_utf8_lossy(&response).into_owned()
    })
}

/// One request with these headers and no body; the host is the address itself, unless they name
/// one.
pub fn request(to: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let address = to.trim_start_matches("http://");
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        head += "Content-Length: 0\r\n";
    }
    exchange(address, format!("{head}\r\n").as_bytes())
}

/// The status of a response.
pub fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {response:?}"))
}
