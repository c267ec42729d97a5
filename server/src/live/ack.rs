//! [`Ack`]: what the answer to an add promises.

/// What the answer to an add promises.
///
/// ```
/// use bloomsday_server::live::Ack;
///
/// assert_eq!("written".parse(), Ok(Ack::Written));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ack {
    /// It is on the disk: a crash of the machine does not lose it.
    #[default]
    Synced,
    /// The system has it: the end of the process does not lose it, and a crash of the machine
    /// loses at most the last second.
    Written,
    /// It is on the disk, and in the engine or the store, where other servers read it: the loss of
    /// the disk does not lose it. Of a filter that is not shared: it is on the disk.
    Shipped,
    /// It is in memory only.
    Memory,
}

impl Ack {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Ack::Synced => "synced",
            Ack::Written => "written",
            Ack::Shipped => "shipped",
            Ack::Memory => "memory",
        }
    }
}

impl std::str::FromStr for Ack {
    type Err = String;

    fn from_str(text: &str) -> Result<Ack, String> {
        let known = [Ack::Synced, Ack::Written, Ack::Shipped, Ack::Memory];
        let found = known.into_iter().find(|ack| ack.name() == text);
        found.ok_or_else(|| "it is `synced`, `written`, `shipped` or `memory`".to_owned())
    }
}
