//! [`Connection`]: one connection to a broker. Every wait has a deadline, and every response a largest size.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::{Files, KafkaUrl, Login, Mechanism};
use super::message::{
    API_VERSIONS, Api, At, Broker, FETCH, LIST_OFFSETS, METADATA, Metadata, Offset,
    PartitionRecords, SASL_AUTHENTICATE, SASL_HANDSHAKE, ask_metadata, ask_offsets, ask_records,
    header, read_metadata, read_offsets, read_records, read_versions,
};
use super::scram::{Hash, Scram};
use super::wire::{Malformed, Reader, Writer};

/// How long connecting may take, with TLS and login.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// How long a response may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The largest response. One with messages has about 8 MiB, or one batch.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// The name of this client, for a broker's logs and quotas.
const CLIENT: &str = "bloomsday";

/// Why something was not read from a broker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRead {
    #[error("cannot connect to {0}: {1}")]
    Connect(Broker, String),
    #[error("{0} refuses the login of `{1}`: {2}")]
    Login(Broker, String, String),
    #[error("{0}: {1}")]
    Io(Broker, io::Error),
    #[error("{0} takes {1} {2} to {3} and not {4}: Kafka 2.1 and later do")]
    Version(Broker, &'static str, i16, i16, i16),
    #[error("the response of {0} is wrong: {1}")]
    Response(Broker, Malformed),
    #[error(
        "{0} sends {1} bytes at once, and at most 64 MiB are read: is it a broker of Kafka, and \
         without TLS (else `tls=true`)?"
    )]
    TooLarge(Broker, i32),
    #[error("{0}: {1}")]
    Kafka(Broker, &'static str),
    #[error("{0}: error {1} of Kafka")]
    Other(Broker, i16),
}

/// A stream, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to one broker.
pub(crate) struct Connection {
    broker: Broker,
    stream: BufReader<Box<dyn Stream>>,
    /// The number of the last request.
    number: i32,
}

impl Connection {
    /// Connects to a broker, and logs in.
    pub(crate) async fn open(url: &KafkaUrl, broker: &Broker) -> Result<Connection, NotRead> {
        let failed = |why: String| NotRead::Connect(broker.clone(), why);
        let opened = timeout(CONNECT_DEADLINE, Connection::open_now(url, broker)).await;
        opened.map_err(|_| failed(format!("it took longer than {CONNECT_DEADLINE:?}")))?
    }

    async fn open_now(url: &KafkaUrl, broker: &Broker) -> Result<Connection, NotRead> {
        let failed = |why: String| NotRead::Connect(broker.clone(), why);
        let tcp = TcpStream::connect((&*broker.host, broker.port)).await;
        let tcp = tcp.map_err(|error| failed(error.to_string()))?;
        // Requests are small and wait for nothing.
        let _ = tcp.set_nodelay(true);
        let stream: Box<dyn Stream> = match &url.tls {
            None => Box::new(tcp),
            Some(files) => {
                let config = client_config(files).map_err(failed)?;
                let name = ServerName::try_from(broker.host.clone());
                let name = name.map_err(|error| failed(error.to_string()))?;
                let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
                Box::new(stream.map_err(|error| failed(format!("TLS: {error}")))?)
            }
        };
        let (broker, stream) = (broker.clone(), BufReader::new(stream));
        let mut connection = Connection { broker, stream, number: 0 };
        connection.check_versions().await?;
        if let Some(login) = &url.login {
            connection.log_in(login).await?;
        }
        Ok(connection)
    }

    /// Whether the broker takes what this client sends.
    async fn check_versions(&mut self) -> Result<(), NotRead> {
        let body = self.call(API_VERSIONS, Writer::default()).await?;
        let (error, versions) = self.read(read_versions(&body))?;
        self.check(error)?;
        for api in [FETCH, LIST_OFFSETS, METADATA] {
            let taken = versions.iter().find(|[key, _, _]| *key == api.key);
            let [_, first, last] = *taken.unwrap_or(&[api.key, 0, -1]);
            if !(first..=last).contains(&api.version) {
                let (broker, name) = (self.broker.clone(), api.name);
                return Err(NotRead::Version(broker, name, first, last, api.version));
            }
        }
        Ok(())
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), NotRead> {
        let Login { user, password, mechanism } = login;
        let refused = |broker: &Broker, why| NotRead::Login(broker.clone(), user.clone(), why);
        let mut request = Writer::default();
        request.text(mechanism.name());
        let body = self.call(SASL_HANDSHAKE, request).await?;
        let mut reader = Reader::new(&body);
        let error = self.read(reader.i16())?;
        let taken = self.read(reader.list(Reader::text))?.join(", ").to_lowercase();
        if error != 0 {
            let why = format!("it takes `sasl` = {taken}, and not {}", mechanism.name());
            return Err(refused(&self.broker, why.to_lowercase()));
        }
        let hash = match mechanism {
            Mechanism::Plain => {
                let text = format!("\0{user}\0{password}");
                return self.authenticate(login, text.as_bytes()).await.map(drop);
            }
            Mechanism::ScramSha256 => Hash::sha256(),
            Mechanism::ScramSha512 => Hash::sha512(),
        };
        let broker = self.broker.clone();
        let scram = Scram::begin(hash, user, password).map_err(|why| refused(&broker, why))?;
        let challenge = self.authenticate(login, &scram.first()).await?;
        let (answer, proved) = scram.prove(&challenge).map_err(|why| refused(&broker, why))?;
        let last = self.authenticate(login, &answer).await?;
        proved.check(&last).map_err(|why| refused(&broker, why))
    }

    /// Sends a message of a login. Returns the broker's.
    async fn authenticate(&mut self, login: &Login, said: &[u8]) -> Result<Vec<u8>, NotRead> {
        let mut request = Writer::default();
        request.size(said.len()).bytes(said);
        let body = self.call(SASL_AUTHENTICATE, request).await?;
        let mut reader = Reader::new(&body);
        let (error, why) = (self.read(reader.i16())?, self.read(reader.text())?);
        if error != 0 {
            let why = if why.is_empty() { format!("error {error} of Kafka") } else { why };
            return Err(NotRead::Login(self.broker.clone(), login.user.clone(), why));
        }
        Ok(self.read(reader.bytes())?.unwrap_or_default().to_vec())
    }

    /// The cluster, and the partitions of a topic.
    pub(crate) async fn metadata(&mut self, topic: &str) -> Result<Metadata, NotRead> {
        let body = self.call(METADATA, ask_metadata(topic)).await?;
        let metadata = self.read(read_metadata(&body))?;
        self.check(metadata.error)?;
        Ok(metadata)
    }

    /// The offsets at an end of these partitions, which this broker leads.
    pub(crate) async fn offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        at: At,
    ) -> Result<Vec<Offset>, NotRead> {
        let body = self.call(LIST_OFFSETS, ask_offsets(topic, partitions, at)).await?;
        let offsets = self.read(read_offsets(&body))?;
        for offset in &offsets {
            self.check(offset.error)?;
        }
        Ok(offsets)
    }

    /// The messages of partitions, which this broker leads, from these offsets on: waits half a second for the
    /// first. `read` gets each partition, and looks at its error.
    pub(crate) async fn records(
        &mut self,
        topic: &str,
        from: &[(i32, i64)],
        mut read: impl FnMut(PartitionRecords<'_>),
    ) -> Result<(), NotRead> {
        let body = self.call(FETCH, ask_records(topic, from)).await?;
        let (error, partitions) = self.read(read_records(&body))?;
        self.check(error)?;
        partitions.into_iter().for_each(&mut read);
        Ok(())
    }

    /// An error of the protocol, in words.
    pub(crate) fn check(&self, error: i16) -> Result<(), NotRead> {
        let broker = || self.broker.clone();
        Err(match error {
            0 => return Ok(()),
            3 => NotRead::Kafka(
                broker(),
                "there is no such topic: create it, or mend the name in `live_from`",
            ),
            5 => NotRead::Kafka(broker(), "a partition has no leader"),
            6 => NotRead::Kafka(broker(), "a partition has another leader"),
            29 => NotRead::Kafka(
                broker(),
                "the topic may not be read: give this user Read and Describe on it",
            ),
            76 => NotRead::Kafka(broker(), "it does not send this compression to this client"),
            other => NotRead::Other(broker(), other),
        })
    }

    fn read<T>(&self, read: Result<T, Malformed>) -> Result<T, NotRead> {
        read.map_err(|malformed| NotRead::Response(self.broker.clone(), malformed))
    }

    /// Sends a request. Returns its response without its head.
    async fn call(&mut self, api: Api, request: Writer) -> Result<Vec<u8>, NotRead> {
        let called = timeout(DEADLINE, self.call_now(api, request)).await;
        called.unwrap_or_else(|_| {
            let late = format!("it did not answer within {} s", DEADLINE.as_secs());
            Err(self.failed(io::Error::new(io::ErrorKind::TimedOut, late)))
        })
    }

    async fn call_now(&mut self, api: Api, request: Writer) -> Result<Vec<u8>, NotRead> {
        self.number = self.number.wrapping_add(1);
        let mut body = header(api, self.number, CLIENT);
        body.bytes(&request.0);
        let mut message = Writer::default();
        message.size(body.0.len()).bytes(&body.0);
        self.stream.write_all(&message.0).await.map_err(|e| self.failed(e))?;
        self.stream.flush().await.map_err(|e| self.failed(e))?;
        let len = self.stream.read_i32().await.map_err(|e| self.failed(e))?;
        let bytes = usize::try_from(len).ok().filter(|bytes| *bytes <= MAX_RESPONSE_BYTES);
        let bytes = bytes.ok_or_else(|| NotRead::TooLarge(self.broker.clone(), len))?;
        // The buffer grows as bytes arrive, whatever the length says.
        let mut response = Vec::new();
        let read = (&mut self.stream).take(bytes as u64).read_to_end(&mut response).await;
        let read = read.map_err(|e| self.failed(e))?;
        let number = Reader::new(&response).i32();
        if read < bytes {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if number != Ok(self.number) {
            return self.read(Err(Malformed("its number")));
        }
        response.drain(..size_of::<i32>());
        Ok(response)
    }

    fn failed(&self, error: io::Error) -> NotRead {
        NotRead::Io(self.broker.clone(), error)
    }
}

/// The settings of TLS: the files are read anew for each connection.
fn client_config(files: &Files) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(file) => {
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions of TLS")
        .with_root_certificates(roots);
    let Some((cert, key)) = &files.own else { return Ok(config.with_no_client_auth()) };
    // The parser's own error may quote the file, and this is a key.
    let read = PrivateKeyDer::from_pem_file(key);
    let read = read.map_err(|_| format!("{} has no private key in PEM", key.display()))?;
    let config = config.with_client_auth_cert(certificates(cert)?, read);
    config.map_err(|error| format!("{} and {}: {error}", cert.display(), key.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: String| format!("{}: {why}", file.display());
    let all = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() {
        return Err(wrong("it has no certificate".into()));
    }
    Ok(all)
}
