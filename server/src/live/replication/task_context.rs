//! [`TaskContext`]: what the tasks of one shared set work with.

use std::sync::Arc;

use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;

use super::access::WriteAccess;
use crate::clock::Clock;
use crate::live::set::LiveSet;

/// A set, whether it may be changed, and where the others are.
#[derive(Clone)]
pub(in crate::live) struct TaskContext {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) set: Arc<LiveSet>,
    pub(in crate::live) access: Arc<WriteAccess>,
    pub(in crate::live) store: Store,
    pub(in crate::live) clock: Clock,
}
