//! What lies in deploy/ holds: each file by the tool that reads it, the alerts by the metrics that
//! there are, the memory limits by the size of a filter; and completions and man pages by their
//! readers.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use bloomsday_tests::INTEGRATION;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, write_users};
use bloomsday_tests::live::Wire;
use bloomsday_tests::program::bloomsday;
use bloomsday_tests::sources::root;

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn every_file_is_accepted_by_the_tool_that_reads_it() {
    let ran = Command::new(root().join("deploy/check.sh")).output().unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
    // The schemas know the field's name, not its values.
    for job in ["builder", "prune"] {
        let file = format!("deploy/kubernetes/{job}-cronjob.yaml");
        assert!(read(&file).contains("concurrencyPolicy: Forbid\n"), "{file}");
    }
}

/// The files of a folder in deploy/, with their names.
fn files_in(folder: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let named = names.map(|name| format!("{folder}/{name}"));
    named.map(|name| (name.clone(), read(&name))).collect()
}

#[test]
fn the_program_has_each_command_and_each_flag_that_a_unit_or_a_manifest_gives() {
    let units = files_in("deploy/systemd").into_iter().filter_map(|(file, text)| {
        let (_, line) = text.split_once("\nExecStart=/usr/local/bin/bloomsday ")?;
        Some((file, line.lines().next()?.replace('"', "")))
    });
    let manifests = files_in("deploy/kubernetes").into_iter().filter_map(|(file, text)| {
        let (_, args) = text.split_once(" args: [")?;
        Some((file, args.split_once(']')?.0.replace(['"', ','], "")))
    });
    let lines: Vec<(String, String)> = units.chain(manifests).collect();
    assert!(lines.len() >= 9, "{lines:?}");
    for (file, line) in &lines {
        // An unknown flag is refused before the help is printed.
        let words: Vec<&str> = line.split_whitespace().chain(["--help"]).collect();
        println!("{file}: {words:?}");
        bloomsday(&words).run().expect(0);
    }
    for command in ["serve", "schedule", "prune"] {
        let begins = |line: &str| line.split_whitespace().next() == Some(command);
        for folder in ["systemd", "kubernetes"] {
            let mut of_it = lines.iter().filter(|(_, line)| begins(line));
            assert!(of_it.any(|(file, _)| file.contains(folder)), "{folder} has no {command}");
        }
    }
}

#[test]
fn every_alert_fires_is_silent_and_is_explained() {
    let (rules, tests, runbook) = (
        read("deploy/prometheus/rules.yml"),
        read("deploy/prometheus/rules_test.yml"),
        read("docs/operations.md"),
    );
    let named = |line: &str| line.trim().strip_prefix("- alert: ").map(str::to_owned);
    let alerts: Vec<String> = rules.lines().filter_map(named).collect();
    assert!(alerts.len() >= 16, "{alerts:?}");
    // Each expectation begins with its alert's name and ends where the next one begins.
    let expected: Vec<(&str, &str)> = tests
        .split("alertname: ")
        .skip(1)
        .map(|text| text.split_at(text.find([',', '\n']).unwrap()))
        .collect();
    for alert in alerts {
        let of_it = || expected.iter().filter(|(name, _)| *name == alert);
        let fires = of_it().any(|(_, text)| text.contains("- exp_labels: {"));
        let is_silent = of_it().any(|(_, text)| text.contains("exp_alerts: []"));
        assert!(fires && is_silent, "{alert}: fires {fires}, silent {is_silent}");
        assert!(runbook.contains(&format!("\n### {alert}\n**Means** ")), "no entry for {alert}");
        let link = format!("runbook: docs/operations.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not lead to its entry");
    }
}

/// The metrics that a text names, without the suffixes of recorded ones.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let named = text.split(word).filter(|word| word.starts_with("bloomsday_"));
    named.map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_use_only_metrics_that_exist() {
    let backend = Backend::local();
    let folder = backend.folder.path();
    write_users(&folder.join(format!("in/dt={}/a.parquet", today().minus(1))), 0..1_000);
    std::fs::write(folder.join(format!("in/dt={}/_SUCCESS", today().minus(1))), b"").unwrap();
    let config = format!(
        "[filters.rt]\ninput = \"{}/in/dt={{day}}\"\ncolumn = \"device_id\"\n\
         schedule = \"0 0 * * *\"\ncatch_up_days = 0\nlive = \"decide\"\n\
         live_from = \"redis://127.0.0.1:1/x\"\n",
        folder.display()
    );
    std::fs::write(folder.join("bloomsday.toml"), config).unwrap();
    let file = folder.join("b.prom").display().to_string();
    let config = folder.join("bloomsday.toml").display().to_string();
    let words = ["schedule", "--once", "--config", &config, "--metrics-file", &file];
    backend.bloomsday(&words).run().expect(0);
    let data = folder.join("data").display().to_string();
    let flags = ["--config", &config, "--data-dir", &data, "--resp", "127.0.0.1:0"];
    let daemon = Daemon::ready(&backend, &flags);
    let mut client = Wire::connect(daemon.resp.as_ref().unwrap());
    assert_eq!(client.call("BF.ADD of-a-client x"), ":1|");
    let there =
        metrics_in(&(daemon.get("/metrics").body + &std::fs::read_to_string(file).unwrap()));
    for file in ["deploy/prometheus/rules.yml", "deploy/grafana/bloomsday.json"] {
        let used = metrics_in(&read(file));
        assert!(used.len() > 8, "{file} uses {used:?}");
        let missing: Vec<&String> = used.difference(&there).collect();
        assert!(missing.is_empty(), "{file} uses {missing:?}, which nothing exports");
    }
    // The checks of containers, of the same server.
    let address = daemon.public.strip_prefix("http://").unwrap();
    bloomsday(&["health", address]).run().expect(0);
    bloomsday(&["health", "--ready", address]).run().expect(0);
    let admin = daemon.admin.strip_prefix("http://").unwrap();
    bloomsday(&["health", admin]).run().expect(0);
    bloomsday(&["health", "127.0.0.1:1"]).run().expect(1);
}

#[test]
fn memory_limits_fit_the_filter_they_were_stated_for() {
    // At a start live IDs may take 1.25 times what they are counted for, and a process 1.26 times
    // what is counted.
    let live_memory = 1_024 * 8 / 5;
    for (file, more) in [
        ("deploy/kubernetes/server-deployment.yaml", 0),
        ("deploy/kubernetes/sidecar.yaml", 0),
        ("deploy/kubernetes/live.yaml", live_memory),
    ] {
        let text = read(file);
        let after = |key: &str| {
            let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("{file}: no {key}"));
            let value = rest.split(['\n', ' ', '}', ',']).find(|word| !word.is_empty()).unwrap();
            value.trim_matches('"').to_owned()
        };
        let ids = after("bloomsday/ids:");
        let fpp = after("bloomsday/fpp:");
        let words = ["plan", "--ids", &ids, "--fpp", &fpp, "--sizes-only", "--json"];
        let plan = bloomsday(&words).run().expect(0).json();
        let mut layouts = plan["layouts"].as_array().unwrap().iter();
        let chosen = layouts.find(|layout| layout["layout"] == plan["recommended"]);
        let bytes = chosen.and_then(|layout| layout["bytes"].as_u64());
        let blob = bytes.unwrap_or_else(|| panic!("{plan}")).div_ceil(1 << 20);
        let limit: u64 = after("limits: { memory:").trim_end_matches("Mi").parse().unwrap();
        // Three generations, one more for a trace over past days, and the rest of the process.
        let needed = 4 * blob + 256 + more;
        assert!((needed..needed * 5 / 4).contains(&limit), "{file}: {limit} Mi, needed {needed}");
    }
}

#[test]
fn shells_read_the_completions_and_man_reads_the_pages() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let page = bloomsday(&["completions", shell]).run().expect(0).stdout;
        assert!(page.contains("repoint") && page.contains("schedule"), "{shell}");
        if shell == "bash" {
            use std::io::Write;
            let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            bash.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success());
        }
    }
    let folder = tempfile::TempDir::new().unwrap();
    let dir = folder.path().display().to_string();
    let pages = bloomsday(&["man", "--dir", &dir]).run().expect(0).stdout;
    assert!(pages.lines().count() > 15, "{pages}");
    // Where mandoc is installed.
    for page in pages.lines().filter(|_| INTEGRATION) {
        let lint = Command::new("mandoc").args(["-T", "lint", "-W", "error", page]).output();
        let lint = lint.expect("mandoc runs (tests/run.sh installs it)");
        assert!(lint.status.success(), "{page}: {}", String::from_utf8_lossy(&lint.stdout));
    }
    let main = std::fs::read_to_string(folder.path().join("bloomsday.1")).unwrap();
    assert!(main.contains("schedule") && main.contains("Exit status"), "{main}");
}
