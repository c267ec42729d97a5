//! A real Kafka of one broker (KRaft), started and killed as a test likes, with Kafka's own
//! producer.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::backend::free_port;
use crate::sources::root;

/// A running broker. A drop kills it.
pub struct Kafka {
    process: Option<Child>,
    client: Client,
    port: u16,
    secure_port: u16,
    folder: TempDir,
}

/// Kafka's own clients, in another process.
struct Client {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// A message: its partition, its key and its value.
pub type Message<'a> = (u32, Option<&'a str>, Option<&'a str>);

/// A JVM that starts fast and stays small, with Kafka's jars.
fn java() -> Command {
    let jars = root().join("target/test-tools/kafka/*");
    let mut java = Command::new("java");
    java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(jars);
    java
}

impl Kafka {
    /// Starts one. TLS clients of its second address trust the authority whose certificate and key
    /// signed `chain_and_key`, in PEM; they log in as `me`, by PLAIN or SCRAM.
    pub fn start(chain_and_key: &str, password: &str) -> Kafka {
        let folder = TempDir::new().expect("a temporary folder");
        let [port, secure_port, controller] = [free_port(), free_port(), free_port()];
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("tls.pem"), chain_and_key).expect("a file is written");
        let (tls, logs) = (path("tls.pem"), path("logs"));
        let security = "org.apache.kafka.common.security";
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners=PLAIN://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAIN://127.0.0.1:{port},SECURE://localhost:{secure_port}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL\n\
             inter.broker.listener.name=PLAIN\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.secure.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_me=\"{password}\";\n\
             listener.name.secure.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;\n\
             listener.name.secure.ssl.keystore.type=PEM\n\
             listener.name.secure.ssl.keystore.location={}\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             broker.heartbeat.interval.ms=500\n\
             broker.session.timeout.ms=4000\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=1\n",
            tls.display(),
            logs.display()
        );
        std::fs::write(path("server.properties"), properties).expect("a file is written");
        let format = java()
            .args(["kafka.tools.StorageTool", "format", "-t", "q1Sh-9_ISia_zwGINzRvyQ", "-c"])
            .arg(path("server.properties"))
            .stdout(Stdio::null())
            .status();
        assert!(format.expect("java runs").success(), "Kafka's folder is not made");
        let client = Client::start(port);
        let mut kafka = Kafka { process: None, client, port, secure_port, folder };
        kafka.again();
        kafka.run(&format!("scram me {password}"));
        kafka
    }

    /// Starts it again where it was.
    pub fn again(&mut self) {
        let process = java()
            .arg("kafka.Kafka")
            .arg(self.folder.path().join("server.properties"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.expect("java runs (tests/run.sh installs it)"));
        self.run("ready");
    }

    /// Kills it, as a power failure would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// The address of a topic, without TLS.
    pub fn address(&self, topic: &str) -> String {
        format!("kafka://127.0.0.1:{}/{topic}", self.port)
    }

    /// The address of a topic for a login over TLS.
    pub fn secure_address(&self, login: &str, topic: &str) -> String {
        format!("kafka://{login}@localhost:{}/{topic}", self.secure_port)
    }

    /// Runs a command of `tests/kafka/Client.java`.
    #[track_caller]
    pub fn run(&mut self, command: &str) {
        let said = self.client.run(command);
        assert_eq!(said, "ok", "{}", command.lines().next().unwrap_or_default());
    }

    /// Sends messages, and returns when the broker has all.
    #[track_caller]
    pub fn send(&mut self, topic: &str, compression: &str, messages: &[Message<'_>]) {
        self.run(&format!("produce {topic} {compression}\n{}", lines(messages)));
    }

    /// Sends messages in a transaction, which is then aborted.
    #[track_caller]
    pub fn send_and_abort(&mut self, topic: &str, messages: &[Message<'_>]) {
        self.run(&format!("abort {topic} none\n{}", lines(messages)));
    }

    /// The file of the first messages of a partition.
    pub fn log(&self, topic: &str, partition: u32) -> PathBuf {
        let folder = self.folder.path().join(format!("logs/{topic}-{partition}"));
        folder.join(Path::new("00000000000000000000.log"))
    }
}

fn lines(messages: &[Message<'_>]) -> String {
    let text = |text: Option<&str>| text.unwrap_or("\\N").to_owned();
    let line = |(partition, key, value): &Message<'_>| {
        format!("{partition}\t{}\t{}\n", text(*key), text(*value))
    };
    messages.iter().map(line).collect::<String>() + "."
}

impl Client {
    fn start(port: u16) -> Client {
        let mut process = java()
            .arg(root().join("tests/kafka/Client.java"))
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java runs");
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Client { process, stdin, stdout }
    }

    fn run(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").expect("the client reads");
        let mut said = String::new();
        self.stdout.read_line(&mut said).expect("the client answers");
        said.trim_end().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.kill();
    }
}
