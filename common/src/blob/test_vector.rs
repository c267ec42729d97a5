//! [`TestVector`]: what fixed IDs hash to, and the bits that they probe. A reader in which one of
//! these differs must not answer.

use crate::filter::{Layout, Shape, blocked, classic};
use crate::hash::{IdHash, Murmur3, Spark, Xxh3};

/// How many fixed IDs the test vector has.
pub(super) const TEST_IDS: usize = 64;

pub(super) struct TestVector {
    pub(super) hashes: Vec<u64>,
    pub(super) positions: Vec<u64>,
}

impl TestVector {
    pub(super) fn of(shape: Shape) -> TestVector {
        let mut vector = TestVector { hashes: Vec::new(), positions: Vec::new() };
        for id in (0..TEST_IDS).map(test_vector_id) {
            match shape.layout() {
                Layout::Blocked => {
                    let Xxh3(hash) = Xxh3::of(&id);
                    let block = blocked::block_of(hash, shape.units()) as u64;
                    let bits = (0..shape.probes() as usize)
                        .map(|i| block * blocked::BLOCK_BITS + u64::from(blocked::bit_of(hash, i)));
                    vector.hashes.push(hash);
                    vector.positions.extend(bits);
                }
                Layout::Guava => {
                    let hash = Murmur3::of(&id);
                    vector.hashes.extend([hash.0, hash.1]);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
                Layout::Spark1 => {
                    let hash = Spark::<1>::of(&id);
                    vector.hashes.push(hash.0);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
                Layout::Spark2 => {
                    let hash = Spark::<2>::of(&id);
                    vector.hashes.push(hash.0);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
            }
        }
        vector
    }
}

/// The `i`th of the 64 fixed IDs of the test vector: lengths 1 to 16, then every 21st up to 1,024,
/// so that each branch of a hash by length is covered; the letters a to z, starting at the `i`th.
pub fn test_vector_id(i: usize) -> Vec<u8> {
    const LETTERS: [u8; TEST_IDS + 1024] = {
        let mut letters = [0; TEST_IDS + 1024];
        let mut j = 0;
        while j < letters.len() {
            letters[j] = b'a' + (j % 26) as u8;
            j += 1;
        }
        letters
    };
    let length = if i < 16 { i + 1 } else { 16 + (i - 15) * 21 };
    LETTERS[i..i + length].to_vec()
}
