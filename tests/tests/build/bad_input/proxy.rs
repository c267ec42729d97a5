//! A proxy between the program and S3 that a test can make refuse or break connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bloomsday_tests::backend::{Backend, s3_server};

/// What the proxy does.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// Requests pass.
    Pass,
    /// Every request is answered 403.
    Forbidden,
    /// Every request is answered with this status and this code of S3.
    Refuses(&'static str, &'static str),
    /// Every connection is closed at once.
    Broken,
}

/// A proxy in front of the S3 server.
pub(crate) struct Proxy {
    address: String,
    state: Arc<Mutex<(Way, Vec<TcpStream>)>>,
}

impl Proxy {
    pub(crate) fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new((Way::Pass, Vec::new())));
        let server = s3_server().trim_start_matches("http://").to_owned();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = shared.lock().unwrap();
                let way = state.0;
                match way {
                    Way::Broken => drop(client),
                    Way::Forbidden => {
                        drop(std::thread::spawn(move || refuse(client, "403 Forbidden", "")))
                    }
                    Way::Refuses(status, code) => {
                        let body = format!("<Error><Code>{code}</Code></Error>");
                        drop(std::thread::spawn(move || refuse(client, status, &body)))
                    }
                    Way::Pass => {
                        let server = TcpStream::connect(&server).unwrap();
                        state.1.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                        carry(client.try_clone().unwrap(), server.try_clone().unwrap());
                        carry(server, client);
                    }
                }
            }
        });
        Proxy { address, state }
    }

    /// Changes what happens, also to connections that were kept open.
    pub(crate) fn set(&self, way: Way) {
        let mut state = self.state.lock().unwrap();
        state.0 = way;
        for stream in state.1.drain(..) {
            // Closed by its other end already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// An S3 store behind it.
    pub(crate) fn backend(&self) -> Backend {
        let mut backend = Backend::s3();
        for (name, value) in &mut backend.env {
            if *name == "AWS_ENDPOINT" {
                value.clone_from(&self.address);
            }
        }
        backend
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        // Ends when either side is closed.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn refuse(mut client: TcpStream, status: &str, body: &str) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    // A client that is gone needs no answer; what it still sends must be read, or it sees a reset.
    let _ = client.write_all(answer.as_bytes());
    let _ = client.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut client, &mut std::io::sink());
}
