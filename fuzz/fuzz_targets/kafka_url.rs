//! The address of a topic: read, or refused; what is shown of it leads to the same topic, without a
//! login.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../server/src/live/stream/kafka_url.rs"]
#[allow(dead_code)]
mod kafka_url;

use kafka_url::KafkaUrl;

fuzz_target!(|text: &str| {
    let Ok(url) = text.parse::<KafkaUrl>() else { return };
    let name = url.name();
    assert!(!name.contains(|c: char| c == '@' || c.is_control()), "{name:?}");
    let again: KafkaUrl = name.parse().expect("a name is an address of its own");
    assert_eq!((again.brokers, again.topic), (url.brokers.clone(), url.topic.clone()));
});
