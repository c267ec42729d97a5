//! [`Domains`]: which domains the URLs that are added belong to, of those with the largest shares.
//! In bounded memory, whatever is added.

use std::borrow::Cow;
use std::collections::HashMap;

use bloomsday_common::url_id;
use serde::Serialize;

/// How many domains a status and the metrics name.
pub const MAX_DOMAINS: usize = 20;
/// How many domains are counted: each with a share above 1 / 512 is among them.
const MAX_COUNTED: usize = 512;

/// A domain's share of the adds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DomainShare {
    /// The host of the URLs, in lower case and ASCII, without a port.
    pub domain: String,
    /// The share of the adds since the start, from 0 to 1; up to 1 / 512 too low.
    pub share: f64,
}

/// Counts of domains, by the algorithm Space-Saving (Metwally, Agrawal & El Abbadi 2005).
#[derive(Debug, Default)]
pub(in crate::live) struct Domains {
    counts: HashMap<Box<str>, Count>,
    all: u64,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    /// At least how often the domain came.
    sure: u64,
    /// How often it may have come before it was counted.
    before: u64,
}

impl Domains {
    /// Counts the domain of an ID; an ID that is no URL counts as one of none.
    pub(in crate::live) fn add(&mut self, id: &[u8]) {
        self.all += 1;
        let Some(domain) = url_id::domain(id) else { return };
        if let Some(count) = self.counts.get_mut(&*domain) {
            count.sure += 1;
            return;
        }
        let mut before = 0;
        if self.counts.len() >= MAX_COUNTED {
            let rarest = self.counts.iter().min_by_key(|(_, count)| count.sure + count.before);
            let rarest = rarest.map(|(domain, count)| (domain.clone(), count.sure + count.before));
            let (domain, count) = rarest.expect("there are counts");
            self.counts.remove(&domain);
            before = count;
        }
        self.counts.insert(Cow::into_owned(domain).into(), Count { sure: 1, before });
    }

    /// The domains with the largest shares, the largest first.
    pub(in crate::live) fn top(&self) -> Vec<DomainShare> {
        let mut top: Vec<_> = self.counts.iter().map(|(d, count)| (count.sure, d)).collect();
        top.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        top.truncate(MAX_DOMAINS);
        let share = |sure| sure as f64 / self.all.max(1) as f64;
        top.into_iter()
            .map(|(sure, domain)| DomainShare { domain: domain.to_string(), share: share(sure) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_domains_are_found_among_any_number_of_others() {
        let mut domains = Domains::default();
        for i in 0..100_000 {
            match i % 4 {
                0 => domains.add(format!("https://News.example:443/{i}?a=b").as_bytes()),
                1 => domains.add(b"user-1"),
                _ => domains.add(format!("http://u@host-{i}.example/").as_bytes()),
            }
        }
        assert_eq!(domains.counts.len(), MAX_COUNTED);
        let top = domains.top();
        assert_eq!((top.len(), &*top[0].domain), (MAX_DOMAINS, "news.example"));
        assert!((0.248..=0.25).contains(&top[0].share), "{}", top[0].share);
        assert!(top[1].share <= 1.0 / 512.0, "{}", top[1].share);
    }
}
