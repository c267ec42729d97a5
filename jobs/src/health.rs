//! `bloomsday health`: asks a running server or scheduler whether it lives, over HTTP or HTTPS. For
//! containers, which hold no other program that could.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::error::{Error, exit};

/// How long name, connection, handshake and answer may take together.
const DEADLINE: Duration = Duration::from_secs(2);
/// The most bytes of an answer: ours has some hundred.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Ask a running server or scheduler whether it lives; ends with 0 if so, else with 1.
///
/// Over TLS the certificate is verified. On a loopback address its name seldom fits: give --ca the file
/// that the server was given as --tls-cert, and that very certificate is trusted under any name (after a
/// renewal send SIGHUP to the server, or it shows another one than the file holds); or give --name.
///
/// Example: bloomsday health 127.0.0.1:8642
///
/// Example: bloomsday health https://127.0.0.1:8642 --ca /etc/bloomsday/tls/cert.pem
///
/// Example: bloomsday health https://127.0.0.1:8642 --ca /etc/ssl/ours.pem --name bidder.example
#[derive(Args)]
pub(crate) struct Health {
    /// Where it listens: HOST:PORT or http://HOST:PORT without TLS, https://HOST:PORT with it.
    #[arg(default_value = "127.0.0.1:8642")]
    address: Address,
    /// Ask whether every filter answers, too.
    #[arg(long)]
    ready: bool,
    /// With https: a PEM file with the authorities to trust, or with the server's own certificate
    /// [default: the system's authorities].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// With https: the name that the certificate must be for [default: HOST].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Clone)]
struct Address {
    is_tls: bool,
    host: Host,
    port: u16,
    shown: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let has_scheme = text.contains("://");
        let whole = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        let wrong = |why: &str| format!("write HOST:PORT or https://HOST:PORT: {why}");
        let url = Url::parse(&whole).map_err(|e| wrong(&e.to_string()))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http and https are spoken")),
        };
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("nothing else belongs into it"));
        }
        // A URL has the scheme's port; without one, 80 would surprise.
        let port = if has_scheme { url.port_or_known_default() } else { url.port() };
        let port = port.ok_or_else(|| wrong("there is no port"))?;
        let host = url.host().ok_or_else(|| wrong("there is no host"))?.to_owned();
        Ok(Address { is_tls, host, port, shown: text.to_owned() })
    }
}

impl Health {
    pub(crate) async fn run(self) -> Result<ExitCode, Error> {
        let tls = match (self.address.is_tls, &self.ca, &self.name) {
            (true, ca, name) => Some(self.tls(ca.as_ref(), name.as_deref())?),
            (false, None, None) => None,
            (false, ..) => {
                let why = "--ca and --name are for a server with TLS: write https://HOST:PORT";
                return Err(Error::Usage(why.into()));
            }
        };
        let path = if self.ready { "/readyz" } else { "/livez" };
        let asked = tokio::time::timeout(DEADLINE, self.ask(path, tls)).await;
        let asked = asked.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", DEADLINE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        });
        let doing = format!("ask {} for {path}", self.address.shown);
        let answer = asked.map_err(|source| Error::System { doing, source: told(source) })?;
        let said = answer.lines().last().unwrap_or_default();
        crate::output::print(&format!("{said}\n"));
        let well = answer.starts_with("HTTP/1.1 200 ");
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }

    async fn ask(
        &self,
        path: &str,
        tls: Option<(TlsConnector, ServerName<'static>)>,
    ) -> io::Result<String> {
        let port = self.address.port;
        let stream = match &self.address.host {
            Host::Domain(name) => TcpStream::connect((name.as_str(), port)).await?,
            Host::Ipv4(address) => TcpStream::connect((*address, port)).await?,
            Host::Ipv6(address) => TcpStream::connect((*address, port)).await?,
        };
        match tls {
            Some((connector, name)) => exchange(connector.connect(name, stream).await?, path).await,
            None => exchange(stream, path).await,
        }
    }

    /// What trusts the server, and the name that it must have.
    fn tls(
        &self,
        ca: Option<&PathBuf>,
        name: Option<&str>,
    ) -> Result<(TlsConnector, ServerName<'static>), Error> {
        let host = match (name, &self.address.host) {
            (Some(name), _) => ServerName::try_from(name.to_owned()),
            (None, Host::Domain(name)) => ServerName::try_from(name.clone()),
            (None, Host::Ipv4(address)) => Ok(std::net::IpAddr::from(*address).into()),
            (None, Host::Ipv6(address)) => Ok(std::net::IpAddr::from(*address).into()),
        };
        let host = host.map_err(|e| Error::Usage(format!("no certificate has that name: {e}")))?;
        let certificates = match ca {
            Some(file) => {
                let wrong = |why: String| Error::Usage(format!("--ca {}: {why}", file.display()));
                let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
                let read: Vec<CertificateDer> = read.map_err(|e| wrong(e.to_string()))?;
                if read.is_empty() {
                    return Err(wrong(
                        "it holds no certificate (-----BEGIN CERTIFICATE-----)".into(),
                    ));
                }
                read
            }
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authorities =
            WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone()).build();
        let authorities = authorities.map_err(|_| {
            Error::Usage("there is no authority to trust: name a PEM file with --ca".into())
        })?;
        // Only what an operator named is trusted by itself; the system's certificates are authorities.
        let named = if ca.is_some() { certificates } else { Vec::new() };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions of TLS")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusted { named, authorities }))
            .with_no_client_auth();
        Ok((TlsConnector::from(Arc::new(config)), host))
    }
}

/// Sends the question; the answer, as far as it is looked at.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await {
        // Our server ends with its answer; TLS would like a word more.
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Adds what to do to the errors that a certificate gives.
fn told(error: io::Error) -> io::Error {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let remedy = match of_tls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "trust it with --ca FILE (its authority, or the certificate itself), or say with --name \
             NAME for whom it is"
        }
        Some(rustls::Error::InvalidMessage(_)) => "does it speak TLS? Without, write HOST:PORT",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Trusts the authorities for the right name, and the named certificates for any.
///
/// Who shows a certificate has proved to hold its key, so one that an operator named needs nobody to
/// vouch for it. No name and no date is looked at then.
#[derive(Debug)]
struct Trusted {
    named: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.named.contains(shown) {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(shown, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, shown, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| {
            let Address { is_tls, host, port, .. } = text.parse()?;
            Ok::<_, String>(format!("{is_tls} {host} {port}"))
        };
        assert_eq!(read("127.0.0.1:8642").unwrap(), "false 127.0.0.1 8642");
        assert_eq!(read("[::1]:8642").unwrap(), "false [::1] 8642");
        assert_eq!(read("localhost:8642").unwrap(), "false localhost 8642");
        assert_eq!(read("https://[::1]:8642").unwrap(), "true [::1] 8642");
        assert_eq!(read("https://bidder.example").unwrap(), "true bidder.example 443");
        for wrong in
            ["", "127.0.0.1", "ftp://a:1", "https://a:1/livez", "https://u:p@a:1", "a:99999"]
        {
            assert!(read(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }
}
