//! The native side of `filter.py`: `Filter::contains_batch` over the IDs of a file.
//!
//! `native BLOB IDS` looks all of them up for each line on standard input, and prints the
//! nanoseconds of one lookup on the clock.

use std::io::BufRead;
use std::time::Instant;

use bloomsday_common::blob::{self, RawBlob};
use bloomsday_common::memory::Buffer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (file, ids) = (words.next().ok_or("no blob")?, words.next().ok_or("no file of IDs")?);
    let bytes = std::fs::read(&file)?;
    let mut memory = Buffer::zeroed(bytes.len())?;
    memory.copy_from_slice(&bytes);
    let key = blob::key_of(&memory, &file)?;
    let (_, filter) = blob::open(RawBlob::of(memory), &key)?;
    let text = std::fs::read_to_string(ids)?;
    let ids: Vec<&str> = text.lines().collect();
    let mut answers = vec![false; ids.len()];
    for line in std::io::stdin().lock().lines() {
        line?;
        let began = Instant::now();
        filter.contains_batch(&ids, &mut answers);
        println!("{}", began.elapsed().as_nanos() as f64 / ids.len() as f64);
    }
    Ok(())
}
