//! [`FeedReader::run`]: reads a stream for as long as a process runs, whatever fails.

use super::address::Feed;
use super::feed::{FeedError, FeedReader, MAX_PAUSE, PAUSE};
#[cfg(feature = "kafka")]
use super::feed_kafka;
#[cfg(feature = "redis-streams")]
use super::feed_redis;
use crate::backoff::Backoff;
use crate::live::replication::access::StreamTask;

impl FeedReader {
    /// Reads the feed while this server decides. What was added since the position was kept last is
    /// read again by the next start.
    pub(in crate::live) async fn run(self) {
        self.access.begin_feed(self.feed.name());
        let mut backoff = Backoff::new(PAUSE, MAX_PAUSE);
        let mut at = None;
        loop {
            let wait = match self.session(&mut at, &mut backoff).await {
                Ok(()) => PAUSE,
                Err(FeedError::NotDecider) => {
                    // Another server reads the stream.
                    self.access.set_stream_error(StreamTask::Feed, None);
                    PAUSE
                }
                Err(error @ FeedError::NotLoaded) => {
                    self.access.set_stream_error(StreamTask::Feed, Some(error.to_string()));
                    PAUSE
                }
                Err(error) => {
                    self.access.set_stream_error(StreamTask::Feed, Some(error.to_string()));
                    backoff.after_failure_jittered()
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads until that fails, or another server decides. `at` is the position, if it is known.
    async fn session(
        &self,
        at: &mut Option<String>,
        backoff: &mut Backoff,
    ) -> Result<(), FeedError> {
        self.begin_turn();
        match self.feed.0 {
            #[cfg(feature = "redis-streams")]
            Feed::Redis(ref stream) => feed_redis::session(self, stream, at, backoff).await,
            #[cfg(feature = "kafka")]
            Feed::Kafka(ref topic) => feed_kafka::session(self, topic, at, backoff).await,
        }
    }
}
