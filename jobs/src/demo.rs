//! `bloomsday demo`: every step from build to rollback, on sample data in a local folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::store::Store;
use bloomsday_server::http::{self, HttpConfig, Server};
use bloomsday_server::live::{Live, LiveConfig};
use bloomsday_server::{Bloomsday, Config, FilterConfig, start};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::defaults::{self, FPP};
use crate::error::Error;
use crate::output::{Output, print, state, thousands, who};
use crate::remedy;
use crate::repoint::{RepointRequest, repoint};
use crate::resources::Resources;
use crate::sample_data::{self, COLUMN, user};
use crate::signals::Signals;

/// How many users a day of the sample has.
const USERS_PER_DAY: u64 = 200_000;
/// How many of them are new: the others came on the day before too, as in a real app.
const NEW_PER_DAY: u64 = 20_000;
/// A user who is in no day's data, chosen so that no filter of the demo has a false positive for
/// it.
const VISITOR: u64 = 1_000_000_007;
/// For how many days an ID that was added is a hit by itself.
const LIVE_DAYS: u8 = 3;
/// The most bytes of the reply to an add that are read: a usual one has some hundred.
const MAX_REPLY_BYTES: u64 = 4096;
/// How many rows each user has: people come back within a day.
const ROWS_PER_USER: u64 = 2;

/// Run every step on sample data: build two days, serve, look up IDs, add one, publish a third day,
/// swap, roll back; then keep serving.
///
/// Example: bloomsday demo --dir /tmp/bloomsday-demo --exit
#[derive(Args)]
pub(crate) struct Demo {
    /// Where sample data and store go [default: a new folder for temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The address for lookups [default: 127.0.0.1:8642, or a free port if that one is taken].
    #[arg(long, value_name = "ADDRESS", value_parser = crate::config::address)]
    listen: Option<SocketAddr>,
    /// Stop after the last step, and do not keep serving. Until then it listens on free ports.
    #[arg(long)]
    exit: bool,
}

/// What the steps share.
struct Demonstration<'a> {
    output: &'a Output,
    input: PathBuf,
    address: String,
    store: Store,
    filter: FilterName,
    /// How many steps have begun.
    steps: u32,
}

impl Demo {
    pub(crate) async fn run(self, output: &Output) -> Result<ExitCode, Error> {
        let temporary =
            || std::env::temp_dir().join(format!("bloomsday-demo-{}", std::process::id()));
        let dir = self.dir.unwrap_or_else(temporary);
        let address = dir.join("store").display().to_string();
        if dir.join("store").symlink_metadata().is_ok() {
            return Err(Error::Usage(format!(
                "{address} is there already, from another demonstration: delete {}, or choose another folder \
                 with --dir",
                dir.display()
            )));
        }
        let mut demo = Demonstration {
            output,
            input: dir.join("input"),
            store: Store::create(&address)?,
            address,
            filter: "rt".parse()?,
            steps: 0,
        };
        let today = Day::of(Timestamp::now());
        let days = [today.minus(2), today.minus(1), today];
        demo.build_two_days(days).await?;
        // Any free ports for a run that nobody looks at.
        let port_of = |address: SocketAddr| if self.exit { 0 } else { address.port() };
        let listen = self.listen.unwrap_or_else(|| free_or_any_port(defaults::LISTEN));
        let admin = free_or_any_port(defaults::ADMIN);
        let [listen, admin] =
            [listen, admin].map(|address| SocketAddr::new(address.ip(), port_of(address)));
        demo.step("Serve: load yesterday's filter, the newest that a pointer names.");
        let (bloomsday, server) = demo.serve(&dir, listen, admin).await?;
        demo.look_up_and_add(&bloomsday, server.public).await?;
        demo.publish_and_roll_back(&bloomsday, days).await?;
        if !self.exit {
            demo.step("The server keeps running. Try in another terminal (Ctrl-C stops it here):");
            demo.suggest((server.public, server.admin), &old_user(), (days[1], days[2]));
            Signals::new()?.until_stopped(&bloomsday, None).await;
        }
        server.stop().await;
        bloomsday.finish_shipping().await;
        if self.exit {
            demo.step(&format!(
                "Done. Everything is in {}; delete it when you like.",
                dir.display()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A user of yesterday and today.
fn old_user() -> String {
    user(USERS_PER_DAY / 2)
}

/// A user who comes for the first time today.
fn new_user() -> String {
    user(USERS_PER_DAY + 2 * NEW_PER_DAY - 1)
}

impl Demonstration<'_> {
    async fn build_two_days(&mut self, days: [Day; 3]) -> Result<(), Error> {
        self.step(&format!(
            "Three days of sample data, as Parquet in {}: {} users a day, a tenth of them new.",
            self.input.display(),
            thousands(USERS_PER_DAY)
        ));
        for (i, day) in days.iter().enumerate() {
            write_day(&self.input, *day, i as u64)?;
        }
        self.step("Build the first two days: each becomes an immutable blob and a dated pointer.");
        for day in &days[..2] {
            self.build(*day).await?;
        }
        Ok(())
    }

    async fn look_up_and_add(
        &mut self,
        bloomsday: &Bloomsday,
        address: SocketAddr,
    ) -> Result<(), Error> {
        self.step("Look up a user of yesterday, and one who comes for the first time today.");
        self.look_up(bloomsday, &old_user())?;
        self.look_up(bloomsday, &new_user())?;

        let visitor = user(VISITOR);
        self.step("Somebody comes now. One POST adds the ID: it counts at once, without a build.");
        self.look_up(bloomsday, &visitor)?;
        self.add(address, &visitor).await?;
        self.look_up(bloomsday, &visitor)
    }

    async fn publish_and_roll_back(
        &mut self,
        bloomsday: &Bloomsday,
        [_, yesterday, today]: [Day; 3],
    ) -> Result<(), Error> {
        self.step("Publish today. The server follows at its next poll, or at once after a reload.");
        self.build(today).await?;
        self.reload(bloomsday).await?;
        self.look_up(bloomsday, &old_user())?;
        self.look_up(bloomsday, &new_user())?;
        self.note("Today's data does not have the ID that was added; it stays, and is counted:");
        self.look_up(bloomsday, &user(VISITOR))?;

        self.step("Suppose today's data is bad: point today at yesterday's blob, and reload.");
        self.roll_back(today, yesterday).await?;
        self.reload(bloomsday).await?;
        self.look_up(bloomsday, &new_user())?;

        self.step("Run today's build again, with the same data: the rollback stands.");
        self.build(today).await.map(drop)
    }

    async fn serve(
        &self,
        dir: &Path,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Result<(Bloomsday, Server), Error> {
        let mut config = Config::new(&self.address, vec![FilterConfig::new(self.filter.clone())]);
        config.cache_dir = Some(dir.join("cache"));
        let mut live = LiveConfig::new(Some(dir.join("live")));
        live.name = "demo".into();
        config.live = Some(Live::open(live)?);
        config.filters[0].live_days = Some(LIVE_DAYS);
        let bloomsday = start(config).await?;
        let server = http::serve(bloomsday.clone(), HttpConfig::new(listen, admin)).await?;
        let (public, admin) = (server.public, server.admin);
        self.note(&format!("lookups at http://{public}, admin at http://{admin}"));
        Ok((bloomsday, server))
    }

    /// Prints what to try while the server runs.
    fn suggest(
        &self,
        (public, admin): (SocketAddr, SocketAddr),
        id: &str,
        (yesterday, today): (Day, Day),
    ) {
        let store = &self.address;
        print(&format!(
            "   curl http://{public}/v1/filters/rt/ids/{id}\n   \
             curl --data-binary any-id http://{public}/v1/filters/rt/add\n   \
             curl http://{public}/status\n   \
             bloomsday status rt --store {store}\n   \
             bloomsday history rt --store {store}\n   \
             bloomsday repoint rt {today} --to {today} --store {store} && \
             curl -X POST http://{admin}/admin/reload\n   \
             cp {store}/rt/pointers/{yesterday} {store}/rt/pointers/{today} && \
             curl -X POST http://{admin}/admin/reload\n"
        ));
    }

    /// Prints the title of the next step.
    fn step(&mut self, text: &str) {
        self.steps += 1;
        let step = self.steps;
        self.output.show(&json!({ "step": step, "text": text }), || format!("\n{step}. {text}\n"));
    }

    fn note(&self, text: &str) {
        if !self.output.is_json() {
            print(&format!("   {text}\n"));
        }
    }

    async fn build(&self, day: Day) -> Result<Report, Error> {
        let resources = Resources::default();
        let inputs = vec![self.input.join("dt={day}").display().to_string()];
        let job = Job {
            fpp: FPP,
            memory: 1 << 30,
            spill_folder: resources.spill_folder(None)?,
            threads: resources.threads(),
            by: who(),
            remedy_words: remedy::words,
            ..Job::new(self.filter.clone(), day, inputs, COLUMN.into())
        };
        let report = build(&job, &self.store, &self.output.build_progress()).await?;
        let overlap = report.overlap.map_or(String::new(), |share| {
            format!(", {:.0} % of them also in the newest earlier filter", share * 100.0)
        });
        let (ids, rows, fpp) = (thousands(report.ids), thousands(report.rows), report.fpp_measured);
        self.output.show(&report, || {
            format!(
                "   {day} {}: {ids} IDs from {rows} rows, fpp {fpp:.4} measured{overlap}\n",
                state(report.outcome.name())
            )
        });
        if let Some(reason) = report.reason.as_ref().filter(|_| !self.output.is_json()) {
            print(&format!("   {reason}\n"));
        }
        Ok(report)
    }

    fn look_up(&self, bloomsday: &Bloomsday, id: &str) -> Result<(), Error> {
        let rt = bloomsday.filter("rt")?;
        let contains = rt.contains(id.as_bytes());
        let day = rt.status().day;
        self.output.show(&json!({ "id": id, "contains": contains, "day": day }), || {
            let result = if contains { "has been here before" } else { "is new" };
            format!("   {id} {result} (by the filter of {})\n", crate::output::or_dash(day))
        });
        Ok(())
    }

    /// Adds an ID over HTTP, as any client does.
    async fn add(&self, server: SocketAddr, id: &str) -> Result<(), Error> {
        let failed = |source| Error::System { doing: format!("add an ID at {server}"), source };
        let mut stream = TcpStream::connect(server).await.map_err(failed)?;
        let request = format!(
            "POST /v1/filters/rt/add HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{id}",
            id.len()
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut reply = String::new();
        stream.take(MAX_REPLY_BYTES).read_to_string(&mut reply).await.map_err(failed)?;
        let is_new = reply.lines().last() == Some("1");
        self.output.show(&json!({ "id": id, "added": is_new }), || {
            let answer = reply.lines().last().unwrap_or_default();
            format!(
                "   $ curl --data-binary {id} http://{server}/v1/filters/rt/add\n   {answer}    (1: \
                 new, 0: known)\n"
            )
        });
        Ok(())
    }

    async fn reload(&self, bloomsday: &Bloomsday) -> Result<(), Error> {
        for reloaded in bloomsday.reload().await? {
            self.output.show(&reloaded, || {
                let day = bloomsday.status().first().and_then(|status| status.day);
                let outcome = json!(reloaded.outcome);
                format!(
                    "   reloaded: {}; {} answers now\n",
                    outcome.as_str().unwrap_or_default(),
                    crate::output::or_dash(day)
                )
            });
        }
        Ok(())
    }

    async fn roll_back(&self, day: Day, to: Day) -> Result<(), Error> {
        self.note(&format!("$ bloomsday repoint rt {day} --to {to} --store {}", self.address));
        let reason = Some("demo: suppose the data is bad".to_owned());
        let (filter, to, retention) = (&self.filter, to.to_string(), Retention::default());
        let request = RepointRequest { filter, day, to: &to, retention, reason, dry_run: false };
        let done = repoint(&self.store, request).await?;
        self.output.show(&done, String::new);
        Ok(())
    }
}

/// An address, or any free port of it: a daemon may run at the same time.
fn free_or_any_port(address: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// Writes the `index`th day as Parquet. Its users are those of the day before, without the oldest
/// ones, plus new ones.
fn write_day(input: &Path, day: Day, index: u64) -> Result<(), Error> {
    let folder = input.join(format!("dt={day}"));
    let failed = |source| Error::System { doing: format!("write {}", folder.display()), source };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let first = index * NEW_PER_DAY;
    let visits =
        (0..USERS_PER_DAY * ROWS_PER_USER).map(|visit| user(first + visit % USERS_PER_DAY));
    sample_data::write(&folder.join("part-0.parquet"), visits)
}
