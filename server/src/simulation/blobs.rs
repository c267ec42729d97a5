//! [`Made`]: small blobs of every day and kind, made once for all simulated months.

use std::sync::OnceLock;

use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
use bloomsday_common::hash::mix64;
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::key::{BlobKey, FilterName};
use bytes::Bytes;

/// The first day of the simulated month. The month includes a leap day and an end of month.
pub(super) const FIRST_DAY: &str = "2028-02-20";
/// How many days have blobs: a month, and some on both sides.
pub(super) const DAYS: u32 = 44;
/// How many of them are before the first day.
const BEFORE: i64 = 8;
/// How many users a day has.
pub(super) const USERS: u64 = 1_000;

/// Which users a day's blob contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Most users of the day before, and some new ones.
    Good,
    /// The same, built a second time with one more user.
    Mended,
    /// None of the users that are looked up.
    Strangers,
    /// None of them, and other users than the kind before.
    OtherStrangers,
}

/// Every kind, in order.
const KINDS: [Kind; 4] = [Kind::Good, Kind::Mended, Kind::Strangers, Kind::OtherStrangers];

/// A blob, and what a server must answer from it.
pub(super) struct Made {
    pub(super) key: BlobKey,
    pub(super) bytes: Bytes,
    pub(super) kind: Kind,
    pub(super) first_user: u64,
    /// The filter from which the blob was encoded.
    pub(super) filter: Filter,
}

pub(super) fn rt() -> FilterName {
    "rt".parse().unwrap()
}

/// The `n`th user's ID.
pub(super) fn user(n: u64) -> [u8; 16] {
    (u128::from(mix64(n)) << 64 | u128::from(n)).to_le_bytes()
}

/// The `n`th day of the month; a negative `n` is before its first day.
pub(super) fn day(n: i64) -> Day {
    let first: Day = FIRST_DAY.parse().unwrap();
    match u32::try_from(n) {
        Ok(n) => first.plus(n),
        Err(_) => first.minus(n.unsigned_abs() as u32),
    }
}

/// The blob of the `n`th day from the eighth before the first on.
pub(super) fn made(n: i64, kind: Kind) -> &'static Made {
    static ALL: OnceLock<Vec<Made>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        (0..i64::from(DAYS)).flat_map(|n| KINDS.map(|kind| make(n - BEFORE, kind))).collect()
    });
    &all[(n + BEFORE) as usize * KINDS.len() + kind as usize]
}

/// The blob of this name, if it was made here.
pub(super) fn find(key: &BlobKey) -> Option<&'static Made> {
    let n = (-BEFORE..i64::from(DAYS) - BEFORE).find(|n| day(*n) == key.day)?;
    KINDS.into_iter().map(|kind| made(n, kind)).find(|made| made.key == *key)
}

fn make(n: i64, kind: Kind) -> Made {
    let (first_user, ids) = match kind {
        Kind::Good => ((n + BEFORE) as u64 * 20, USERS),
        Kind::Mended => ((n + BEFORE) as u64 * 20, USERS + 1),
        Kind::Strangers => (1_000_000 + (n + BEFORE) as u64 * USERS, USERS),
        Kind::OtherStrangers => (2_000_000 + (n + BEFORE) as u64 * USERS, USERS),
    };
    let shape = Shape::for_ids(Layout::Blocked, ids, 0.03).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    (first_user..first_user + ids).for_each(|n| filter.insert(Xxh3::of(&user(n))));
    let filter = filter.freeze();
    let (key, bytes) = encoded(day(n), ids, &filter);
    Made { key, bytes, kind, first_user, filter }
}

/// The blob of this filter, and its name.
pub(super) fn encoded(day: Day, ids: u64, filter: &Filter) -> (BlobKey, Bytes) {
    let header = Header {
        filter: rt(),
        day,
        shape: filter.shape(),
        id_form: Default::default(),
        origin: Origin::Built,
        ids,
        fpp_target: 0.03,
        fpp_hits: 29,
        fpp_lookups: 1_000,
        ones: filter.count_ones(),
    };
    let encoded = blob::encode(&header, filter);
    (encoded.key().clone(), Bytes::from(encoded.parts().concat()))
}
