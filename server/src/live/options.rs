//! [`Options`]: what a set was made with, and the record that keeps it in the log.

use std::num::NonZeroU64;

use bloomsday_common::hash::Xxh3;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::live::entry::{MAX_WINDOW_STEPS, Repeat, Window};
use bloomsday_common::live::segment::set_number;

/// A day in milliseconds.
pub(super) const DAY_MS: NonZeroU64 =
    NonZeroU64::new(24 * 3_600 * 1_000).expect("a day is not zero");

/// The longest name of a set.
pub(crate) const MAX_KEY_BYTES: usize = 1024;

/// The name of a set: any bytes, in one of the numbered databases of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) database: u8,
    pub(crate) name: Box<[u8]>,
}

impl Key {
    /// That of a filter of the configuration.
    pub(crate) fn of_filter(name: &FilterName) -> Key {
        Key { database: 0, name: name.as_str().as_bytes().into() }
    }

    /// A number that only this key has, as far as 64 bits of BLAKE3 go. Never 0.
    pub(crate) fn number(&self) -> u64 {
        set_number(self.database, &self.name)
    }
}

/// Which commands a set takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bloom,
    Cuckoo,
    Set,
    /// Those of filters and of sets.
    Any,
    /// Those of fingerprints of texts.
    Near,
}

/// The hash of an ID of this form.
#[inline]
pub(crate) fn hash_of(form: IdForm, id: &[u8]) -> u64 {
    form.hash::<Xxh3>(id).0
}

/// In the first byte of a record: IDs are URLs.
const URL_IDS: u8 = 0x80;

/// What a set was made with. The sizes are for `INFO`: the table grows as it must.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) kind: Kind,
    pub(crate) window: Window,
    pub(crate) capacity: u64,
    pub(crate) error: f64,
    /// 0 for a set that refuses IDs beyond its capacity.
    pub(crate) expansion: u32,
    pub(crate) bucket: u32,
    pub(crate) iterations: u32,
    /// Whether it lies over a day's filter, so that what is deleted has to be hidden.
    pub(crate) is_over_day: bool,
    pub(crate) id_form: IdForm,
}

impl Options {
    /// What a first add makes.
    pub(crate) fn of(kind: Kind) -> Options {
        let (capacity, expansion) = match kind {
            Kind::Bloom => (100, 2),
            Kind::Cuckoo => (1024, 1),
            Kind::Set | Kind::Any | Kind::Near => (0, 1),
        };
        Options {
            kind,
            window: Window::NONE,
            capacity,
            error: 0.01,
            expansion,
            bucket: 2,
            iterations: 20,
            is_over_day: false,
            id_form: IdForm::Bytes,
        }
    }

    /// Of a filter of the configuration: how many days IDs are alive after they were last seen.
    pub(crate) fn over_day(days: u8, id_form: IdForm) -> Options {
        let window = Window {
            step_ms: DAY_MS,
            steps: Some(days.clamp(1, MAX_WINDOW_STEPS as u8)),
            repeat: Repeat::Renew,
        };
        Options { window, is_over_day: true, id_form, ..Options::of(Kind::Any) }
    }

    /// The record of a set.
    pub(super) fn record(&self, key: &Key) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Bloom => 1,
            Kind::Cuckoo => 2,
            Kind::Set => 3,
            Kind::Any if self.is_over_day => 5,
            Kind::Any => 4,
            Kind::Near => 6,
        };
        let repeat = match self.window.repeat {
            Repeat::Renew => 1,
            Repeat::Keep => 2,
        };
        let kind = if self.id_form == IdForm::Url { kind | URL_IDS } else { kind };
        let mut bytes = vec![kind, repeat, self.window.steps.unwrap_or(0), key.database];
        for number in [self.expansion, self.bucket, self.iterations] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.window.step_ms.get(), self.capacity, self.error.to_bits()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&*key.name);
        bytes
    }

    /// Reads a record; `None` for anything else.
    pub(super) fn parse(record: &[u8]) -> Option<(Key, Options)> {
        let (head, rest) = record.split_first_chunk::<4>()?;
        let (small, rest) = rest.split_first_chunk::<12>()?;
        let (large, name) = rest.split_first_chunk::<24>()?;
        let small = |i: usize| small.as_chunks().0.get(i).map(|bytes| u32::from_le_bytes(*bytes));
        let large = |i: usize| large.as_chunks().0.get(i).map(|bytes| u64::from_le_bytes(*bytes));
        let kind = match head[0] & !URL_IDS {
            1 => Kind::Bloom,
            2 => Kind::Cuckoo,
            3 => Kind::Set,
            4 | 5 => Kind::Any,
            6 => Kind::Near,
            _ => return None,
        };
        let repeat = match head[1] {
            1 => Repeat::Renew,
            2 => Repeat::Keep,
            _ => return None,
        };
        let step = large(0)?;
        let window = match u64::from(head[2]) {
            0 => Window::NONE,
            steps => Window::of(step.checked_mul(steps)?, step, repeat)?,
        };
        let options = Options {
            kind,
            window,
            capacity: large(1)?,
            error: f64::from_bits(large(2)?),
            expansion: small(0)?,
            bucket: small(1)?,
            iterations: small(2)?,
            is_over_day: head[0] & !URL_IDS == 5,
            id_form: if head[0] & URL_IDS == 0 { IdForm::Bytes } else { IdForm::Url },
        };
        let key = Key { database: head[3], name: name.into() };
        (name.len() <= MAX_KEY_BYTES).then_some((key, options))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A record comes from a file, whose check sum says nothing of who wrote it.
        #[test]
        fn what_is_read_of_any_record_is_read_again(
            kind in 0u8..8,
            urls: bool,
            repeat in 0u8..4,
            rest in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let record = [&[kind | u8::from(urls) << 7, repeat], &rest[..]].concat();
            if let Some((key, options)) = Options::parse(&record) {
                let again = Options::parse(&options.record(&key)).map(|(key, options)| {
                    (key, options.error.to_bits(), Options { error: 0.0, ..options })
                });
                let first = (key, options.error.to_bits(), Options { error: 0.0, ..options });
                prop_assert_eq!(again, Some(first));
            }
        }
    }

    #[test]
    fn a_record_has_all_options() {
        let key = Key { database: 3, name: (*b"a\0b").into() };
        for kind in [Kind::Bloom, Kind::Cuckoo, Kind::Set, Kind::Any, Kind::Near] {
            let windows = [Window::NONE, Window::of(1_800, 300, Repeat::Renew).unwrap()];
            for window in windows {
                for id_form in [IdForm::Bytes, IdForm::Url] {
                    let (capacity, expansion) = (7, 0);
                    let of = Options::of(kind);
                    let options = Options { window, capacity, expansion, id_form, ..of };
                    let record = options.record(&key);
                    assert_eq!(Options::parse(&record), Some((key.clone(), options)));
                    for length in 0..40 {
                        assert_eq!(Options::parse(&record[..length]), None);
                    }
                }
            }
        }
    }
}
