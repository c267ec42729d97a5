//! [`Tls`]: a certificate chain and its key, from PEM files, for every address of a server. A
//! reload reads the files again; open connections go on.
//!
//! There are no client certificates, and no file is watched.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::connections::until_stopped;
use crate::error::Error;

/// The largest certificate or key file: a long chain has 20 KB.
const MAX_PEM_BYTES: u64 = 1 << 20;
/// How long a handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Every TLS connection begins with a record of this type.
const HANDSHAKE_RECORD: u8 = 0x16;

/// A certificate and its key. Cheap to clone; clones share what [`Tls::reload`] reads.
///
/// ```no_run
/// use std::path::Path;
/// use bloomsday_server::Tls;
///
/// let tls = Tls::open(Path::new("/etc/tls/tls.crt"), Path::new("/etc/tls/tls.key"))?;
/// // After the files were renewed:
/// tls.reload()?;
/// # Ok::<(), bloomsday_server::error::Error>(())
/// ```
#[derive(Clone)]
pub struct Tls {
    files: Arc<CertificateFiles>,
    current: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
}

struct CertificateFiles {
    cert: PathBuf,
    key: PathBuf,
}

/// The certificate for new handshakes.
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentCertificate(hidden)")
    }
}

impl Tls {
    /// Reads a certificate chain, with the server's own certificate first, and its private key
    /// (PKCS #8, PKCS #1 or SEC 1). Both are PEM.
    ///
    /// # Errors
    /// [`Error::Tls`], with the file: it is missing, it has no certificate or key, or the key
    /// belongs to another certificate.
    pub fn open(cert: &Path, key: &Path) -> Result<Tls, Error> {
        let files = CertificateFiles { cert: cert.to_owned(), key: key.to_owned() };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(files.read(&provider)?)));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions of TLS");
        let config = config.with_no_client_auth().with_cert_resolver(current.clone());
        Ok(Tls { files: Arc::new(files), current, config: Arc::new(config) })
    }

    /// Reads both files again, for new connections. Open connections go on.
    ///
    /// # Errors
    /// Those of [`Tls::open`]; new connections then use the certificate as before.
    pub fn reload(&self) -> Result<(), Error> {
        let fresh = self.files.read(self.config.crypto_provider())?;
        self.current.0.store(Arc::new(fresh));
        Ok(())
    }

    /// For an address that speaks the protocol of this name in handshakes. Without a name, what a
    /// client says of its protocol is ignored.
    pub(crate) fn acceptor(&self, protocol: Option<&[u8]>) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The TLS handshake of a connection; `None` when it fails or takes too long, or `stopped` says so.
/// A client that does not speak TLS gets `refusal`.
pub(crate) async fn accept(
    tls: &TlsAcceptor,
    mut stream: TcpStream,
    refusal: &[u8],
    stopped: &mut watch::Receiver<bool>,
) -> Option<TlsStream<TcpStream>> {
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
            // The system drops the reply if a connection closes with unread bytes.
            let _ = stream.read(&mut [0; 8 << 10]).await?;
            stream.write_all(refusal).await?;
            stream.shutdown().await?;
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        tls.accept(stream).await
    };
    // Port scans fail here all day: they are not worth a log line.
    tokio::select! {
        stream = tokio::time::timeout(HANDSHAKE_DEADLINE, handshake) => stream.ok()?.ok(),
        () = until_stopped(stopped) => None,
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({})", self.files.cert.display())
    }
}

impl CertificateFiles {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
        let wrong = |file: &Path, why: String| Error::Tls { file: file.display().to_string(), why };
        let in_cert = |why: String| wrong(&self.cert, why);
        let in_key = |why: String| wrong(&self.key, why);

        let pem = read(&self.cert).map_err(in_cert)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|e| in_cert(format!("it is not PEM: {e}")))?;
        if chain.is_empty() {
            return Err(in_cert("it holds no certificate (-----BEGIN CERTIFICATE-----)".into()));
        }
        let pem = read(&self.key).map_err(in_key)?;
        // The parser's own error may quote the file, and this is a key.
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| match e {
            pem::Error::NoItemsFound => {
                in_key("it holds no private key (-----BEGIN PRIVATE KEY-----)".into())
            }
            _ => in_key("it is not PEM".into()),
        })?;
        CertifiedKey::from_der(chain, key, provider).map_err(|e| match e {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let cert = self.cert.display();
                in_key(format!("it is not the key of the first certificate in {cert}"))
            }
            rustls::Error::InvalidCertificate(e) => {
                in_cert(format!("its first certificate cannot be used: {e:?}"))
            }
            e => in_key(format!("it cannot be used: {e}")),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|e| format!("it cannot be opened: {e}"))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| format!("it cannot be read: {e}"))?;
    if bytes.len() as u64 > MAX_PEM_BYTES {
        return Err(format!("it has more than {MAX_PEM_BYTES} bytes"));
    }
    Ok(bytes)
}
