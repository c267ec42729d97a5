//! TLS by configuration: verified by a client that checks, renewed without a restart, refused with
//! clear words when the files are wrong, and bounded in time.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::user;
use bloomsday_tests::program::{Run, bloomsday};
use bloomsday_tests::publisher::Publisher;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls::{ServerConfig, ServerConnection};

/// An authority that a client trusts, and files with what it issued.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    client: Arc<ClientConfig>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A resumed session would show the certificate it began with.
        client.resumption = Resumption::disabled();
        let pem = certificate.pem();
        Authority { pem, issuer: Issuer::new(params, key), client: Arc::new(client) }
    }

    /// Issues a certificate for `localhost` with a serial number: (certificate, key), PEM.
    fn issue(&self, serial: u64) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.serial_number = Some(serial.into());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Sends a request over TLS; the answer, and the server's certificate.
    fn request(&self, address: &str, request: &str) -> Result<(String, Vec<u8>), std::io::Error> {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(self.client.clone(), name).unwrap();
        let mut stream = StreamOwned::new(client, TcpStream::connect(address)?);
        stream.sock.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            // Our server ends with its answer; TLS would like a word more.
            Err(e) if e.kind() != ErrorKind::UnexpectedEof => return Err(e),
            _ => {}
        }
        let presented = stream.conn.peer_certificates().unwrap()[0].to_vec();
        Ok((answer, presented))
    }
}

/// A store with one day, and the files of a certificate.
struct Site {
    backend: Backend,
    authority: Authority,
    cert: PathBuf,
    key: PathBuf,
}

impl Site {
    fn new() -> Site {
        let backend = Backend::local();
        Publisher::days_ago(&backend, 0).users(0..1_000).publish();
        let folder = backend.folder.path();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let site = Site { backend, authority: Authority::new(), cert, key };
        site.write(&site.authority.issue(1));
        site
    }

    fn write(&self, (cert, key): &(String, String)) {
        fs::write(&self.cert, cert).unwrap();
        fs::write(&self.key, key).unwrap();
    }

    fn serve(&self) -> (Daemon, String, String) {
        let (cert, key) = (self.cert.display().to_string(), self.key.display().to_string());
        let daemon = Daemon::start(&self.backend, &["--tls-cert", &cert, "--tls-key", &key]);
        let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
        let (public, admin) = (address(&daemon.public), address(&daemon.admin));
        (daemon, public, admin)
    }

    /// Starts with these flags, which must be refused before anything is listened on.
    #[track_caller]
    fn refused(&self, flags: &[&str], says: &[&str]) {
        let serve =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let run = self.backend.bloomsday(&[&serve[..], flags].concat()).run().expect(2);
        assert!(!run.stdout.contains("listen"), "{}", run.stdout);
        run.complains(says);
    }
}

const READY: &str = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const RELOAD: &str = "POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                      Content-Length: 0\r\n\r\n";

#[test]
fn both_addresses_speak_tls_to_a_client_that_verifies() {
    let site = Site::new();
    let (_daemon, public, admin) = site.serve();
    let (answer, _) = site.authority.request(&admin, RELOAD).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (answer, _) = site.authority.request(&public, READY).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let id = user(7);
    let lookup = READY.replace("/readyz", &format!("/v1/filters/rt/ids/{id}"));
    assert!(site.authority.request(&public, &lookup).unwrap().0.contains("\"contains\":true"));
    // A client with other authorities refuses; so what passed above was verified.
    Authority::new().request(&public, READY).unwrap_err();
}

#[test]
fn plain_http_gets_a_hint_to_use_https_and_garbage_is_dropped() {
    let site = Site::new();
    let (_daemon, public, admin) = site.serve();
    for address in [&public, &admin] {
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(READY.as_bytes()).unwrap();
        let mut answer = String::new();
        plain.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("HTTPS"), "{answer}");
        assert!(!answer.contains("ready"), "{answer}");
        // A TLS record that is none.
        let mut garbage = TcpStream::connect(address).unwrap();
        garbage.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        garbage.write_all(&[[0x16; 64], [0xff; 64]].concat()).unwrap();
        // An alert or a reset: either way an end, and at once.
        let mut answer = Vec::new();
        let ended = garbage.read_to_end(&mut answer);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
        assert!(answer.len() < 64, "{answer:?}");
    }
    assert!(site.authority.request(&admin, RELOAD).unwrap().0.starts_with("HTTP/1.1 200"));
}

#[test]
fn a_renewed_certificate_is_presented_after_sighup_and_a_wrong_one_never() {
    let site = Site::new();
    let (daemon, public, admin) = site.serve();
    let presented = || site.authority.request(&public, READY).unwrap().1;
    let first = presented();
    // A half-finished renewal: a new certificate, and still the old key.
    let (cert, key) = site.authority.issue(2);
    fs::write(&site.cert, &cert).unwrap();
    daemon.signal("HUP");
    site.authority.request(&admin, RELOAD).unwrap();
    assert_eq!(presented(), first, "the server presented a certificate whose key does not fit");
    fs::write(&site.key, &key).unwrap();
    daemon.signal("HUP");
    let start = std::time::Instant::now();
    while presented() == first {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the new certificate is never presented"
        );
    }
}

#[test]
fn wrong_files_are_refused_by_name_before_anything_is_listened_on() {
    let site = Site::new();
    let folder = site.backend.folder.path().display().to_string();
    let (cert, key) = (format!("{folder}/cert.pem"), format!("{folder}/key.pem"));
    site.refused(&["--tls-cert", &cert], &["--tls-key"]);
    site.refused(&["--tls-key", &key], &["--tls-cert"]);
    let pair = |cert: &str, key: &str, says: &[&str]| {
        site.refused(&["--tls-cert", cert, "--tls-key", key], says);
    };
    pair(&format!("{folder}/none.pem"), &key, &["none.pem", "cannot be opened"]);
    pair(&cert, &format!("{folder}/none.pem"), &["none.pem", "cannot be opened"]);
    // Exchanged by mistake.
    pair(&key, &cert, &["key.pem", "holds no certificate"]);
    pair(&cert, &cert, &["cert.pem", "holds no private key"]);
    let (_, other) = site.authority.issue(3);
    fs::write(format!("{folder}/other.pem"), &other).unwrap();
    pair(&cert, &format!("{folder}/other.pem"), &["other.pem", "not the key of", "cert.pem"]);
    fs::write(format!("{folder}/empty.pem"), "").unwrap();
    pair(&format!("{folder}/empty.pem"), &key, &["empty.pem", "holds no certificate"]);
    let cut = fs::read_to_string(&cert).unwrap()[..200].to_owned();
    fs::write(format!("{folder}/cut.pem"), cut).unwrap();
    pair(&format!("{folder}/cut.pem"), &key, &["cut.pem"]);
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(format!("{folder}/junk.pem"), junk).unwrap();
    pair(&format!("{folder}/junk.pem"), &key, &["junk.pem", "cannot be used"]);
    fs::write(format!("{folder}/huge.pem"), vec![b'x'; (1 << 20) + 1]).unwrap();
    pair(&format!("{folder}/huge.pem"), &key, &["huge.pem", "1048576"]);
    // The configuration file says the same as the flags.
    let config = format!("{folder}/bloomsday.toml");
    fs::write(&config, format!("tls_cert = \"{cert}\"\ntls_key = \"{folder}/none.pem\"\n"))
        .unwrap();
    site.refused(&["--config", &config], &["none.pem"]);
}

#[test]
fn a_handshake_that_never_ends_is_cut_off() {
    let site = Site::new();
    let (_daemon, public, admin) = site.serve();
    std::thread::scope(|scope| {
        for begun in [&b""[..], b"\x16", b"\x16\x03\x01\x40\x00half a hello"] {
            let mut stream = TcpStream::connect(&public).unwrap();
            // Only so that a server that never cuts it off fails the test instead of hanging it.
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            scope.spawn(move || {
                stream.write_all(begun).unwrap();
                let ended = stream.read_to_end(&mut Vec::new());
                let reset = |e: std::io::Error| e.kind() == ErrorKind::ConnectionReset;
                assert!(ended.map_or_else(reset, |_| true), "it was waited for for ever");
            });
        }
        let (answer, _) = site.authority.request(&public, READY).unwrap();
        assert!(answer.starts_with("HTTP/1.1"), "others are served at the same time: {answer}");
        site.authority.request(&admin, RELOAD).unwrap();
    });
}

#[test]
fn a_stop_does_not_wait_for_a_handshake() {
    let site = Site::new();
    let (daemon, public, admin) = site.serve();
    site.authority.request(&admin, RELOAD).unwrap();
    let _idle = TcpStream::connect(&public).unwrap();
    let start = std::time::Instant::now();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);
    assert!(start.elapsed() < Duration::from_secs(8), "it waited {:?}", start.elapsed());
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn curl_agrees() {
    let site = Site::new();
    let (_daemon, public, _) = site.serve();
    let url = format!("https://localhost:{}/livez", public.rsplit_once(':').unwrap().1);
    let trusted = site.backend.folder.path().join("authority.pem");
    fs::write(&trusted, &site.authority.pem).unwrap();
    let trusted = trusted.display().to_string();
    let run = |flags: &[&str]| Command::new("curl").args(flags).arg(&url).output().unwrap();
    let verified = run(&["-sS", "--noproxy", "*", "--cacert", &trusted]);
    assert_eq!(String::from_utf8_lossy(&verified.stdout), "live\n", "{verified:?}");
    assert!(!run(&["-sS", "--noproxy", "*"]).status.success(), "curl took it from a stranger");
}

/// Runs `bloomsday health` with these words.
fn health(words: &[&str]) -> Run {
    bloomsday(&[&["health"], words].concat()).run()
}

#[test]
fn health_checks_over_tls_and_trusts_the_named_certificates() {
    let site = Site::new();
    let (_daemon, public, admin) = site.serve();
    site.authority.request(&admin, RELOAD).unwrap();
    let url = format!("https://{public}");
    let named = format!("https://localhost:{}", public.rsplit_once(':').unwrap().1);
    let authority = site.backend.folder.path().join("authority.pem");
    fs::write(&authority, &site.authority.pem).unwrap();
    let (authority, cert) = (authority.display().to_string(), site.cert.display().to_string());

    let live = health(&[&url, "--ca", &cert]).expect(0);
    assert_eq!(live.stdout, "live\n");
    health(&[&url, "--ready", "--ca", &cert]).expect(0);
    health(&[&url, "--ca", &authority, "--name", "localhost"]).expect(0);
    health(&[&named, "--ca", &authority]).expect(0);
    // The certificate is for `localhost`, and says nothing of 127.0.0.1.
    health(&[&url, "--ca", &authority]).expect(1).complains(&["not valid for name", "--name NAME"]);

    // Without --ca the system decides, as OpenSSL's variable names it.
    let other = site.backend.folder.path().join("other-authority.pem");
    fs::write(&other, Authority::new().pem).unwrap();
    let other = other.display().to_string();
    let system = |file: &str| {
        let env = [("SSL_CERT_FILE", file.to_owned()), ("SSL_CERT_DIR", String::new())];
        bloomsday(&["health", &named]).envs(&env).run()
    };
    system(&authority).expect(0);
    system(&other).expect(1).complains(&["invalid peer certificate", "--ca FILE"]);
    health(&[&named, "--ca", &other]).expect(1).complains(&["invalid peer certificate"]);

    // TLS to a plain server, and plain HTTP to a TLS server.
    let plain = Daemon::ready(&site.backend, &[]);
    let plain = plain.public.strip_prefix("http://").unwrap().to_owned();
    let wrong = health(&[&format!("https://{plain}"), "--ca", &cert]).expect(1);
    wrong.complains(&["does it speak TLS?"]);
    assert!(health(&[&public]).expect(1).stdout.contains("HTTPS"));
    health(&[&public, "--ca", &cert]).expect(2).complains(&["https://HOST:PORT"]);
    let key = site.key.display().to_string();
    health(&[&url, "--ca", &key]).expect(2).complains(&["key.pem", "holds no certificate"]);
    health(&[&url, "--ca", "/nowhere.pem"]).expect(2).complains(&["/nowhere.pem"]);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", silent.local_addr().unwrap());
    health(&[&silent, "--ca", &cert]).expect(1).complains(&["no answer within 2 s"]);
}

/// Shows this pair to everybody, whether the two belong together or not.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[test]
fn health_does_not_take_a_certificate_from_one_who_lacks_its_key() {
    let site = Site::new();
    let certificate = CertificateDer::from_pem_file(&site.cert).unwrap();
    let (_, other) = site.authority.issue(2);
    let asked_with = |key: PrivateKeyDer| {
        let key = any_supported_type(&key).unwrap();
        let presented = Arc::new(CertifiedKey::new(vec![certificate.clone()], key));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shows(presented)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let connection = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(connection, listener.accept().unwrap().0);
            // One who is not trusted is hung up on.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nlive\n");
            stream.conn.send_close_notify();
            let _ = stream.flush();
        });
        let run = health(&[&url, "--ca", site.cert.to_str().unwrap()]);
        server.join().unwrap();
        run
    };
    asked_with(PrivateKeyDer::from_pem_file(&site.key).unwrap()).expect(0);
    asked_with(PrivateKeyDer::from_pem_slice(other.as_bytes()).unwrap())
        .expect(1)
        .complains(&["BadSignature"]);
}
