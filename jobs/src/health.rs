//! `bloomsday health`: checks over HTTP or HTTPS that a server or scheduler is alive. For
//! containers, whose image has no other HTTP client.

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
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::error::{Error, exit};
use crate::output::Output;

/// The most time for name resolution, connection, handshake and response together.
const DEADLINE: Duration = Duration::from_secs(2);
/// The most bytes of a response that are read: a usual one has some hundred.
const MAX_RESPONSE_BYTES: u64 = 4096;

/// Check that a running server or scheduler is alive; ends with 0 if it is, else with 1.
///
/// Over TLS the certificate is verified. A certificate seldom names a loopback address. Then give
/// --ca the server's own --tls-cert file: exactly that certificate is trusted under any name.
/// (After a renewal send SIGHUP to the server, so that it presents the certificate in the file.) Or
/// give --name.
///
/// Example: bloomsday health 127.0.0.1:8642
///
/// Example: bloomsday health https://127.0.0.1:8642 --ca /etc/bloomsday/tls/cert.pem
///
/// Example: bloomsday health https://127.0.0.1:8642 --ca /etc/ssl/ours.pem --name bidder.example
#[derive(Args)]
pub(crate) struct Health {
    /// The server's address: HOST:PORT or http://HOST:PORT without TLS, https://HOST:PORT with it.
    #[arg(default_value = "127.0.0.1:8642")]
    address: Address,
    /// Also check that every filter is loaded.
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
    /// As it was typed, for messages.
    text: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let has_scheme = text.contains("://");
        let full = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        let wrong = |why: &str| format!("write HOST:PORT or https://HOST:PORT: {why}");
        let url = Url::parse(&full).map_err(|e| wrong(&e.to_string()))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("the scheme must be http or https")),
        };
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("leave out user, path and query"));
        }
        // A URL has its scheme's default port; for a bare HOST, port 80 would be a surprise.
        let port = if has_scheme { url.port_or_known_default() } else { url.port() };
        let port = port.ok_or_else(|| wrong("there is no port"))?;
        let host = url.host().ok_or_else(|| wrong("there is no host"))?.to_owned();
        Ok(Address { is_tls, host, port, text: text.to_owned() })
    }
}

impl Health {
    pub(crate) async fn run(self, output: &Output) -> Result<ExitCode, Error> {
        let tls = match (self.address.is_tls, &self.ca, &self.name) {
            (true, ca, name) => Some(self.tls(ca.as_ref(), name.as_deref())?),
            (false, None, None) => None,
            (false, ..) => {
                let why = "--ca and --name are for a server with TLS: write https://HOST:PORT";
                return Err(Error::Usage(why.into()));
            }
        };
        let path = if self.ready { "/readyz" } else { "/livez" };
        let response = tokio::time::timeout(DEADLINE, self.get(path, tls)).await;
        let response = response.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", DEADLINE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        });
        let doing = format!("get {path} from {}", self.address.text);
        let response =
            response.map_err(|source| Error::System { doing, source: with_remedy(source) })?;
        let body = response.lines().last().unwrap_or_default();
        let is_ok = response.starts_with("HTTP/1.1 200 ");
        let report = json!({
            "address": self.address.text, "path": path, "ok": is_ok, "answer": body,
        });
        output.show(&report, || format!("{body}\n"));
        Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }

    async fn get(
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
        // An admin address without a token answers to loopback names only.
        let host = format!("{}:{port}", self.address.host);
        match tls {
            Some((connector, name)) => {
                exchange(connector.connect(name, stream).await?, &host, path).await
            }
            None => exchange(stream, &host, path).await,
        }
    }

    /// The TLS client, and the name that the server's certificate must have.
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
        // A certificate that an operator named is trusted itself; the system's certificates are
        // authorities.
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

/// Sends the request, and returns the start of the response.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut response = Vec::new();
    match stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response).await {
        // Our server closes the connection after its response, without a close_notify of TLS.
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
        _ => Ok(String::from_utf8_lossy(&response).into_owned()),
    }
}

/// Adds a remedy to the errors of certificates and handshakes.
fn with_remedy(error: io::Error) -> io::Error {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let remedy = match of_tls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "trust it with --ca FILE (its authority, or the certificate itself), or give with --name \
             NAME the name that it is for"
        }
        Some(rustls::Error::InvalidMessage(_)) => "does it speak TLS? If not, write HOST:PORT",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Trusts the authorities for the right name, and the named certificates for any.
///
/// The handshake proves that the server has the private key. So a certificate that an operator
/// named needs no authority; its name and its dates are not checked.
#[derive(Debug)]
struct Trusted {
    named: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.named.contains(presented) {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(presented, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, presented, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, presented, signature)
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
