//! [`expected_bytes`]: how large a delta will be, before there is one.

use super::entropy_bytes;
use crate::filter::Shape;

/// Golomb codes take about half a percent more than the entropy.
const GOLOMB_OVERHEAD: f64 = 1.005;

/// The size of a delta between two days with `n_ids` each, of which the share `churn` left and as
/// many arrived.
///
/// An ID that both days have sets the same bits in both. Any other bit differs if IDs of exactly
/// one of the two days set it.
///
/// ```
/// use bloomsday_common::delta::expected_bytes;
/// use bloomsday_common::filter::{Layout, Shape};
///
/// let shape = Shape::for_ids(Layout::Blocked, 300_000_000, 0.03)?;
/// let megabytes = expected_bytes(shape, 300_000_000, 0.01) / 1e6;
/// assert!((16.0..17.0).contains(&megabytes), "{megabytes}");
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn expected_bytes(shape: Shape, n_ids: u64, churn: f64) -> f64 {
    let bits = shape.bits() as f64;
    let probes_a_bit = f64::from(shape.probes()) * n_ids as f64 / bits;
    let by_shared = 1.0 - libm::exp(-probes_a_bit * (1.0 - churn));
    let by_others = 1.0 - libm::exp(-probes_a_bit * churn);
    let flips = (1.0 - by_shared) * 2.0 * by_others * (1.0 - by_others);
    // A section that would be longer than its part is stored as it is.
    (entropy_bytes(bits, flips * bits) * GOLOMB_OVERHEAD).min(bits / 8.0)
}
