//! The program `bloomsday`: reads the command line, runs one job, ends with its exit status.
//!
//! Each command is in one file, some with their opposite (`pin`, `unpin`). They share the
//! configuration ([`config`], [`defaults`]), the errors with their exit statuses ([`error`],
//! [`remedy`]) and the output ([`output`], [`report`]); `repoint` and `pin` share what an operator
//! points at ([`pointing`]). The rules of schedules ([`scheduling`]) know no command.

#![forbid(unsafe_code)]

mod build;
mod compact;
mod config;
mod config_check;
mod defaults;
mod demo;
mod error;
mod filters;
mod follow;
mod followed;
mod health;
mod history;
mod import_export;
mod inspect;
mod man_pages;
mod output;
mod pin;
mod place;
mod plan;
mod pointing;
mod prune;
mod query;
mod remedy;
mod repoint;
mod report;
mod resources;
mod sample_data;
mod schedule;
mod scheduling;
mod serve;
mod signals;
mod simhash;
mod size;
mod status;
mod trace;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_common::redact::single_line;
use bloomsday_common::store::RETRY_LOG;
use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, Writer};

use config::Settings;
use error::Error;
use output::Output;

/// How long the end of a command waits for threads that it no longer needs.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers "has this user been in our app before?" from a Bloom filter that is rebuilt every day.
///
/// Try it: `bloomsday demo` builds, serves and rolls back sample data.
#[derive(Parser)]
#[command(name = "bloomsday", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done; 1 failed; 2 usage or configuration; 3 no ID was found; \
    4 not found; 5 superseded; 6 refused by a gate; 7 corrupt; 75 try again later."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of all commands, before or after a command's name. Those that need no store or
/// configuration ignore them: a script may pass the same flags to every command.
#[derive(Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Where blobs and pointers live: a URL (s3://bucket/prefix) or a local path.
    #[arg(long, global = true, value_name = "URL", env = "BLOOMSDAY_STORE")]
    #[arg(hide_env_values = true)]
    store: Option<String>,
    /// The configuration file [default: ./bloomsday.toml, else /etc/bloomsday/bloomsday.toml].
    #[arg(long, global = true, value_name = "FILE", env = "BLOOMSDAY_CONFIG")]
    config: Option<PathBuf>,
    /// Print each object as one line of JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Log only warnings and errors, and show no progress.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Log more; give it twice to log everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// The help of a command is the documentation of its struct.
#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Build(build::Build),
    Compact(compact::Compact),
    Serve(serve::Serve),
    Status(status::Status),
    History(history::History),
    Inspect(inspect::Inspect),
    Query(query::Query),
    Follow(follow::Follow),
    #[command(alias = "why")]
    Trace(trace::Trace),
    Repoint(repoint::Repoint),
    Pin(pin::Pin),
    Unpin(pin::Unpin),
    Prune(prune::Prune),
    Schedule(schedule::Schedule),
    Export(import_export::Export),
    Import(import_export::Import),
    Plan(plan::Plan),
    Simhash(simhash::Simhash),
    Health(health::Health),
    Completions(man_pages::Completions),
    Man(man_pages::Man),
    /// Check the configuration.
    ///
    /// Example: bloomsday config check --config /etc/bloomsday/bloomsday.toml
    #[command(subcommand)]
    Config(config_check::ConfigJob),
}

/// An empty variable is as good as none: some programs cannot unset one.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        value.is_some_and(|value| value.is_empty())
    };
    let command =
        command.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg });
    command.mut_subcommands(without_empty_variables)
}

fn main() -> ExitCode {
    let matches = without_empty_variables(Cli::command()).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let output = Output::new(cli.global.json, cli.global.quiet);
    // They retry for half a minute, in which a mistyped address would look like a program that
    // hangs.
    let is_patient = matches!(cli.command, Command::Build(_) | Command::Schedule(_));
    start_logging(&cli.global, is_patient);
    let store_is_flag = is_flag(&matches, "store");
    // What a server says is read on other machines, too, where its own flags mean something else.
    if !matches!(cli.command, Command::Serve(_)) {
        remedy::repeat_flags(
            cli.global.store.as_deref().filter(|_| store_is_flag),
            cli.global.config.as_deref().filter(|_| is_flag(&matches, "config")),
        );
    }
    match run(cli, store_is_flag, &output) {
        Ok(code) => output::exit_code(code),
        Err(error) => {
            // A message of this program may have several lines. Values in it have been made single
            // lines.
            let lines: Vec<String> =
                error.to_string().lines().map(|line| single_line(line, MAX_LINE_CHARS)).collect();
            output::say("error", &lines.join("\n"));
            error.exit_code()
        }
    }
}

/// Whether a value was given as a flag, before or after the command.
fn is_flag(matches: &ArgMatches, name: &str) -> bool {
    let is_given = |matches: &ArgMatches| {
        matches.try_contains_id(name).is_ok()
            && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    is_given(matches) || matches.subcommand().is_some_and(|(_, matches)| is_given(matches))
}

fn run(cli: Cli, store_is_flag: bool, output: &Output) -> Result<ExitCode, Error> {
    let Global { store, config, .. } = cli.global;
    let settings = if cli.command.needs_settings() {
        Settings::load(config, store, store_is_flag)?
    } else {
        Settings::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| Error::System { doing: "start the runtime".into(), source })?;
    let done = runtime.block_on(async {
        signals::outlive_file_limits()?;
        cli.command.run(&settings, output).await
    });
    // A name that nobody resolves keeps a thread long after the command has given up on it.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

impl Command {
    /// Whether it reads the configuration: a wrong one stops no other command.
    fn needs_settings(&self) -> bool {
        use Command::{Completions, Demo, Health, Man, Plan, Simhash};
        !matches!(self, Demo(_) | Plan(_) | Simhash(_) | Health(_) | Completions(_) | Man(_))
    }

    async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        match self {
            Command::Demo(job) => job.run(output).await,
            Command::Build(job) => job.run(settings, output).await,
            Command::Compact(job) => job.run(settings, output).await,
            Command::Serve(job) => job.run(settings, output).await,
            Command::Status(job) => job.run(settings, output).await,
            Command::History(job) => job.run(settings, output).await,
            Command::Inspect(job) => job.run(settings, output).await,
            Command::Query(job) => job.run(settings, output).await,
            Command::Follow(job) => job.run(settings, output).await,
            Command::Trace(job) => job.run(settings, output).await,
            Command::Schedule(job) => job.run(settings, output).await,
            Command::Repoint(job) => job.run(settings, output).await,
            Command::Pin(job) => job.run(settings, output).await,
            Command::Unpin(job) => job.run(settings, output).await,
            Command::Prune(job) => job.run(settings, output).await,
            Command::Export(job) => job.run(settings, output).await,
            Command::Import(job) => job.run(settings, output).await,
            Command::Plan(job) => job.run(output).await,
            Command::Simhash(job) => job.run(output),
            Command::Health(job) => job.run(output).await,
            Command::Completions(job) => job.run(Cli::command()),
            Command::Man(job) => job.run(Cli::command()),
            Command::Config(job) => job.run(settings, output).await,
        }
    }
}

/// The most characters of a line of an error, and of one value in a log line.
const MAX_LINE_CHARS: usize = 4000;

/// Writes one value of a log line. No value can begin a new line.
fn one_line(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = single_line(&format!("{value:?}"), MAX_LINE_CHARS);
    match field.name() {
        "message" => writer.write_str(&text),
        name => write!(writer, "{name}={text}"),
    }
}

/// Logs to stderr from now on. The retries of a store are logged with `--verbose`, and by default
/// where it `logs_retries`.
fn start_logging(global: &Global, logs_retries: bool) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "warn",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let retries = if level == "debug" || logs_retries && level == "info" { "info" } else { "warn" };
    // Other dependencies log below `warn` only at the level `trace`; RUST_LOG overrides this.
    let default = match level {
        "trace" => "trace".to_owned(),
        level => format!(
            "warn,bloomsday={level},bloomsday_builder={level},bloomsday_server={level},\
             {RETRY_LOG}={retries}"
        ),
    };
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).unwrap_or_else(|why| {
            output::say("warning", &format!("RUST_LOG is ignored: {why}"));
            EnvFilter::new(default)
        }),
        _ => EnvFilter::new(default),
    };
    // Whatever RUST_LOG says: the pool of connections logs addresses with their passwords.
    let silent = "hyper_util::client::legacy::pool=off".parse().expect("a directive");
    let filter = filter.add_directive(silent);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::is_coloured(&std::io::stderr()))
        .with_target(false)
        .fmt_fields(format::debug_fn(one_line).delimited(" "))
        // Otherwise a failed write to stderr is reported on stderr, which panics: a full disk under
        // the log would end the thread that follows the pointers.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use bloomsday_common::protocol::Retention;
    use bloomsday_server::Config;

    use super::*;

    #[test]
    fn every_command_has_an_example_in_its_help() {
        let mut program = Cli::command();
        program.build();
        let mut commands: Vec<&mut clap::Command> = program.get_subcommands_mut().collect();
        while let Some(command) = commands.pop() {
            if command.get_name() == "help" {
                continue;
            }
            let help = command.render_long_help().to_string();
            let has_commands = command.has_subcommands();
            assert!(has_commands || help.contains("Example: "), "{help}");
            commands.extend(command.get_subcommands_mut());
        }
    }

    #[test]
    fn the_help_names_the_defaults() {
        let interval = Config::new("", Vec::new()).poll_interval;
        let expected = [
            ("serve", "listen", defaults::LISTEN.to_string()),
            ("serve", "admin", defaults::ADMIN.to_string()),
            ("serve", "poll_interval", humantime::format_duration(interval).to_string()),
            ("build", "fpp", defaults::FPP.to_string()),
            ("prune", "keep_days", Retention::DEFAULT.keep_days.to_string()),
        ];
        let program = Cli::command();
        let health = program.find_subcommand("health").expect("a command");
        let address = health.get_arguments().find(|known| known.get_id() == "address");
        let found = address.expect("an argument").get_default_values();
        assert_eq!(found, [&*defaults::LISTEN.to_string()]);
        for (command, argument, value) in expected {
            let command = program.find_subcommand(command).expect("a command");
            let mut arguments = command.get_arguments();
            let argument = arguments.find(|known| known.get_id() == argument).expect("an argument");
            let help = argument.get_help().expect("help").to_string();
            assert!(help.contains(&format!(" {value}]")), "{value} is not in: {help}");
        }
    }
}
