//! The servers of a filter as the page shows them: by count, with the laggards by name.

use std::collections::BTreeMap;

use bloomsday_common::digest::Digest;
use bloomsday_common::store::heartbeat::{Heartbeat, Servers};
use serde_json::{Value, json};

/// The most servers that are named, and the most blobs that are counted.
const MAX_NAMED: usize = 30;

/// How many servers answer from which blob, and up to [`MAX_NAMED`] servers by name, those of the
/// rarest blob first. `same` counts those with `digest`.
pub(super) fn summary(fleet: &Servers, digest: Option<Digest>) -> Value {
    let mut by_blob: BTreeMap<_, usize> = BTreeMap::new();
    for beat in &fleet.servers {
        *by_blob.entry((beat.day, beat.digest)).or_default() += 1;
    }
    let same = fleet.servers.iter().filter(|beat| beat.digest == digest).count();
    let mut servers: Vec<&Heartbeat> = fleet.servers.iter().collect();
    servers.sort_by_key(|beat| by_blob[&(beat.day, beat.digest)]);
    let mut by_blob: Vec<_> = by_blob.into_iter().collect();
    by_blob.sort_by_key(|(_, servers)| std::cmp::Reverse(*servers));
    let blob =
        |((day, digest), servers)| json!({ "day": day, "digest": digest, "servers": servers });
    json!({
        "alive": fleet.servers.len() + fleet.more + fleet.unreadable,
        "same": same,
        "by_blob": by_blob.into_iter().take(MAX_NAMED).map(blob).collect::<Vec<_>>(),
        "servers": servers.into_iter().take(MAX_NAMED).collect::<Vec<_>>(),
        "more": fleet.more,
        "expired": fleet.expired,
        "unreadable": fleet.unreadable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_servers_are_counted_and_the_one_laggard_is_named() {
        let beat = |n: usize| Heartbeat {
            server: format!("s-{n}"),
            version: "1".into(),
            digest: Some(Digest::new([if n == 7_777 { 1 } else { 2 }; 32])),
            day: None,
            loaded_at: None,
            last_error: None,
        };
        let mut fleet = Servers::default();
        fleet.servers = (0..10_000).map(beat).collect();
        let page = summary(&fleet, Some(Digest::new([2; 32])));
        assert_eq!((&page["alive"], &page["same"]), (&json!(10_000), &json!(9_999)));
        assert_eq!(page["servers"][0]["server"], "s-7777");
        let own_page = summary(&fleet, Some(Digest::new([1; 32])));
        assert_eq!((&own_page["same"], &own_page["servers"][0]), (&json!(1), &page["servers"][0]));
        let counts: Vec<_> =
            page["by_blob"].as_array().unwrap().iter().map(|blob| &blob["servers"]).collect();
        assert_eq!(counts, [&json!(9_999), &json!(1)]);
        assert!(page.to_string().len() < 20_000, "{}", page.to_string().len());
    }
}
