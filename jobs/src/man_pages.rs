//! `bloomsday completions` and `bloomsday man`: generated from the definition that parses the
//! command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Error;

/// Print shell completions.
///
/// Example: bloomsday completions bash > /etc/bash_completion.d/bloomsday
#[derive(Args)]
pub(crate) struct Completions {
    /// bash, elvish, fish, powershell or zsh.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut program: Command) -> Result<ExitCode, Error> {
        let mut page = Vec::new();
        clap_complete::generate(self.shell, &mut program, "bloomsday", &mut page);
        crate::output::print(&String::from_utf8_lossy(&page));
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the man pages: bloomsday.1, and one for each command.
///
/// Example: bloomsday man --dir /usr/local/share/man/man1
#[derive(Args)]
pub(crate) struct Man {
    /// The folder to write to; it must exist.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Print the names of the files, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Man {
    pub(crate) fn run(self, mut program: Command) -> Result<ExitCode, Error> {
        if !self.dir.is_dir() {
            let why = format!("there is no folder {}: create it", self.dir.display());
            return Err(Error::NotFound(why));
        }
        program.build();
        let mut pages = vec![("bloomsday".to_owned(), program.clone())];
        for job in program.get_subcommands().filter(|job| job.get_name() != "help") {
            let name = format!("bloomsday-{}", job.get_name());
            pages.push((name.clone(), job.clone().display_name(name)));
        }
        for (name, command) in pages {
            let file = self.dir.join(format!("{name}.1"));
            let doing = format!("write {}", file.display());
            let system = |source| Error::System { doing, source };
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            let written = rendered
                .and_then(|()| if self.dry_run { Ok(()) } else { std::fs::write(&file, page) });
            written.map_err(system)?;
            crate::output::print(&format!("{}\n", file.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
