//! [`is_another_failure`]: whether an error is to be logged.

/// Whether an error says another thing than the last one. How long was tried does not count: errors
/// of S3 say that.
pub(in crate::live) fn is_another_failure(last: Option<&str>, why: &str) -> bool {
    let is_duration = |word: &&str| {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        number.len() < word.len() && number.parse::<f64>().is_ok()
    };
    let words = |error| str::split_whitespace(error).filter(|word| !is_duration(word));
    last.is_none_or(|last| !words(last).eq(words(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_took_longer_is_the_same_and_one_of_another_segment_is_not() {
        let after = |time: &str| format!("503 after 2 retries, in {time}, giving up");
        assert!(!is_another_failure(Some(&after("630.490401ms")), &after("1.2s")));
        assert!(is_another_failure(None, &after("1.2s")));
        let damaged = |seq: u32| format!("rt/live/2026-11-28/1f-1-{seq:08}.seg is damaged");
        assert!(!is_another_failure(Some(&damaged(2)), &damaged(2)));
        assert!(is_another_failure(Some(&damaged(2)), &damaged(4)));
    }
}
