//! An Azure Blob server: azurite, Microsoft's own emulator.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::backend::{Backend, free_port};

/// A running server. A drop kills it.
pub struct Azure {
    process: Child,
    url: String,
    _folder: TempDir,
}

impl Azure {
    /// Starts one on a free port.
    pub fn start() -> Azure {
        let port = free_port();
        let folder = TempDir::new().expect("a temporary folder");
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-tools");
        let mut process = Command::new(format!("{tools}/node_modules/.bin/azurite-blob"))
            .args(["--skipApiVersionCheck", "--blobPort", &port.to_string(), "--location"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("azurite runs (tests/run.sh installs it)");
        let mut lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        let ready = lines
            .find(|line| line.as_ref().is_ok_and(|line| line.contains("successfully listens")));
        assert!(ready.is_some(), "azurite did not start on port {port}");
        std::thread::spawn(move || lines.for_each(drop));
        Azure { process, url: format!("http://127.0.0.1:{port}"), _folder: folder }
    }

    /// The same store for a server whose shared access signature may read and list, and nothing
    /// else.
    pub fn reader(&self, backend: &Backend) -> Backend {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/azure_sas.py");
        let container = backend.store.trim_start_matches("az://").split('/').next().expect("one");
        let signed = Command::new("python3").args([script, container]).output();
        let signed = signed.expect("python3 runs");
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        let signature = String::from_utf8(signed.stdout).expect("text").trim().to_owned();
        let mut env = backend.env.clone();
        env.push(("AZURE_STORAGE_SAS_KEY", signature));
        let folder = TempDir::new().expect("a temporary folder");
        Backend { store: backend.store.clone(), env, folder }
    }

    /// A store in a new container.
    pub fn backend(&self, container: &str) -> Backend {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/azure_container.py");
        let account = format!("{}/devstoreaccount1", self.url);
        let made = Command::new("python3").args([script, &account, container]).output();
        let made = made.expect("python3 runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let env = vec![
            ("AZURITE_BLOB_STORAGE_URL", self.url.clone()),
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ];
        let folder = TempDir::new().expect("a temporary folder");
        Backend { store: format!("az://{container}/prod/filters"), env, folder }
    }
}

impl Drop for Azure {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
