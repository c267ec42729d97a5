//! An ID that is a URL: its form with a scheme in front has the same form, and its host is the
//! parser's.

#![no_main]

use bloomsday_common::hash::is_valid_len;
use bloomsday_common::url_id::{domain, normalised};
use libfuzzer_sys::fuzz_target;
use url::Url;

fuzz_target!(|id: &[u8]| {
    let url = std::str::from_utf8(id).ok().filter(|_| is_valid_len(id));
    let url = url.and_then(|text| Url::parse(text).ok());
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    assert_eq!(domain(id).as_deref(), url.as_ref().and_then(Url::host_str));
    let form = normalised(id);
    if url.is_none() {
        assert_eq!(*form, *id);
        return;
    }
    // A port is dropped with one of the schemes only.
    let again = ["http://", "https://"].map(|scheme| [scheme.as_bytes(), &form].concat());
    if again.iter().all(|url| is_valid_len(url)) {
        assert!(again.iter().any(|url| *normalised(url) == *form), "{:?}", form.escape_ascii());
    }
});
