//! [`Echo`]: a server that scans requests as ours does and answers each with `:0`, but looks
//! nothing up: no server of this protocol can do less for a request.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::wire::anywhere;

#[rustfmt::skip] // it is formatted in the server
#[path = "../../../server/src/resp/request.rs"]
#[allow(dead_code)] // the server's own scanner, of which an echo needs less
mod request;

use self::request::{Request, Scanner};

/// As in the server: the buffer of a connection, a read, and the requests that are answered by one
/// write.
const SMALL_READ_BYTES: usize = 16 << 10;
const READ_BYTES: usize = 256 << 10;
const MAX_BATCH: usize = 16 << 10;

pub(super) struct Echo {
    pub(super) address: SocketAddr,
}

impl Echo {
    /// Answers until the runtime ends.
    pub(super) async fn start() -> Echo {
        let listener = TcpListener::bind(anywhere()).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                tokio::spawn(converse(stream));
            }
        });
        Echo { address }
    }
}

/// Until the client goes away.
async fn converse(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut buffer, mut out) = (BytesMut::with_capacity(SMALL_READ_BYTES), Vec::new());
    let mut scanner = Scanner::default();
    loop {
        if buffer.capacity() - buffer.len() < SMALL_READ_BYTES / 2 {
            buffer.reserve(READ_BYTES);
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        loop {
            let used = answer(&mut scanner, &buffer, &mut out);
            if used == 0 {
                break;
            }
            stream.write_all(&out).await?;
            out.clear();
            buffer.advance(used);
        }
    }
}

/// Answers the complete requests at the beginning of `bytes`, and returns how many bytes they have.
fn answer(scanner: &mut Scanner, bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let (mut arguments, mut used) = (Vec::new(), 0);
    for _ in 0..MAX_BATCH {
        match scanner.scan(&bytes[used..], &mut arguments) {
            Ok(Some(Request::Array(length))) => used += length,
            Ok(None) => break,
            other => panic!("no request of ours: {other:?}"),
        }
        out.extend_from_slice(b":0\r\n");
    }
    std::hint::black_box(&arguments);
    used
}
