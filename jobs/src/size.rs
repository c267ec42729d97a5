//! Sizes in bytes, as people write them.

use bytesize::ByteSize;

/// The error of a text that is no size.
pub(crate) const WHAT_A_SIZE_IS: &str = "a size is a number and a unit, such as 512MiB";

/// The size that a flag says.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| WHAT_A_SIZE_IS.to_owned())
}
