//! Bytes → a Parquet file of one column, sound or forged, and the IDs that are in it.

use std::io::Write;

/// A file, and what a reader must find in it if nobody forged it.
pub struct File {
    pub bytes: Vec<u8>,
    pub column: &'static str,
    pub ids: Vec<Vec<u8>>,
    pub rows: u64,
    pub is_forged: bool,
}

/// The fuzzer's bytes, and zeros behind them.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    fn number(&mut self) -> i64 {
        match self.byte() % 6 {
            0 => -1,
            1 => i64::from(self.byte()),
            2 => (1 << 31) - i64::from(self.byte()),
            3 => 1 << (self.byte() % 64),
            4 => i64::from(i32::MIN) + i64::from(self.byte()),
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}

/// What is done to a field, chosen by its place in the order they are written.
#[derive(Clone, Copy)]
struct Forgery {
    field: usize,
    act: u8,
    number: i64,
}

/// Writes Thrift, and forges some of it.
struct Thrift {
    bytes: Vec<u8>,
    last: Vec<i64>,
}

struct Forger {
    forgeries: Vec<Forgery>,
    fields: usize,
    is_used: bool,
}

fn varint(bytes: &mut Vec<u8>, mut n: u64) {
    while n > 127 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

fn zigzag(bytes: &mut Vec<u8>, n: i64) {
    varint(bytes, (n << 1 ^ n >> 63) as u64);
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl Thrift {
    fn new() -> Thrift {
        Thrift { bytes: Vec::new(), last: vec![0] }
    }

    fn field(&mut self, id: i64, kind: u8) {
        let last = self.last.last_mut().expect("a struct is open");
        match id.wrapping_sub(*last) {
            step @ 1..=15 => self.bytes.push((step as u8) << 4 | kind),
            _ => {
                self.bytes.push(kind);
                zigzag(&mut self.bytes, id);
            }
        }
        *last = id;
    }

    fn int(&mut self, forger: &mut Forger, id: i64, kind: u8, mut number: i64) {
        let (mut id, mut wire) = (id, kind);
        match forger.next() {
            Some(Forgery { act: 0, number: other, .. }) => number = other,
            Some(Forgery { act: 1, .. }) => wire = if kind == I32 { I64 } else { I32 },
            Some(Forgery { act: 2, number: other, .. }) => {
                self.field(id, wire);
                zigzag(&mut self.bytes, other);
            }
            Some(Forgery { act: 3, .. }) => return,
            Some(Forgery { act: 4, number: other, .. }) => wire = other as u8 & 15,
            Some(Forgery { act: 5, number: other, .. }) => id = other,
            Some(Forgery { act: 6, number: other, .. }) => {
                number = number.wrapping_add(other % 9 - 4)
            }
            Some(_) => {
                // A struct of another kind of page.
                self.open(5 + number.rem_euclid(4), STRUCT);
                self.field(1, I32);
                zigzag(&mut self.bytes, 1);
                self.close();
            }
            None => {}
        }
        self.field(id, wire);
        zigzag(&mut self.bytes, number);
    }

    fn text(&mut self, forger: &mut Forger, id: i64, text: &[u8]) {
        let mut length = text.len() as u64;
        let mut wire = BINARY;
        match forger.next() {
            Some(Forgery { act: 0, number, .. }) => length = number as u64,
            Some(Forgery { act: 1, number, .. }) => wire = number as u8 & 15,
            Some(Forgery { act: 2, .. }) => return,
            _ => {}
        }
        self.field(id, wire);
        varint(&mut self.bytes, length);
        self.bytes.extend_from_slice(text);
    }

    fn open(&mut self, id: i64, kind: u8) {
        self.field(id, kind);
        self.last.push(0);
    }

    fn close(&mut self) {
        self.bytes.push(0);
        self.last.pop();
    }

    fn strukt(&mut self, forger: &mut Forger, id: i64, write: impl Fn(&mut Thrift, &mut Forger)) {
        let mut wire = STRUCT;
        match forger.next() {
            Some(Forgery { act: 0, number, .. }) => wire = number as u8 & 15,
            Some(Forgery { act: 1, .. }) => {
                self.open(id, wire);
                write(self, forger);
                self.close();
            }
            Some(Forgery { act: 2, .. }) => return,
            _ => {}
        }
        self.open(id, wire);
        write(self, forger);
        self.close();
    }

    fn list(&mut self, forger: &mut Forger, id: i64, of: u8, n: usize) {
        let (mut wire, mut of, mut n) = (LIST, of, n as u64);
        match forger.next() {
            Some(Forgery { act: 0, number, .. }) => n = number as u64,
            Some(Forgery { act: 1, .. }) => wire = 10,
            Some(Forgery { act: 2, number, .. }) => of = number as u8 & 15,
            Some(Forgery { act: 3, .. }) => n += 1,
            _ => {}
        }
        self.field(id, wire);
        self.bytes.push(0xf0 | of);
        varint(&mut self.bytes, n);
    }
}

impl Forger {
    fn next(&mut self) -> Option<Forgery> {
        self.fields += 1;
        let forgery = self.forgeries.iter().find(|forgery| forgery.field == self.fields).copied();
        self.is_used |= forgery.is_some();
        forgery
    }
}

/// What the column is.
#[derive(Clone, Copy)]
struct Column {
    physical: i64,
    width: usize,
    converted: Option<i64>,
    max_level: u8,
    codec: i64,
}

/// Writes a file as the bytes say.
pub fn write(input: &[u8]) -> File {
    let mut choices = Choices(input);
    choices.byte();
    let (physical, width, converted) = [
        (6, 0, Some(0)),
        (6, 0, None),
        (1, 4, None),
        (1, 4, Some(14)),
        (2, 8, None),
        (2, 8, Some(14)),
        (7, 16, None),
        (7, 3, None),
        (6, 0, Some(5)),
        (2, 8, Some(5)),
    ][choices.below(10)];
    // UINT_64 belongs to 64 bits.
    let converted = if physical == 1 { converted.map(|_| 13) } else { converted };
    let codec = [0, 1, 2, 5, 6, 7, 0, 4][choices.below(8)];
    let column = Column { physical, width, converted, max_level: choices.byte() % 3, codec };
    let mut forger = Forger { forgeries: Vec::new(), fields: 0, is_used: false };
    for _ in 0..choices.byte() % 4 {
        let field = 1 + choices.below(64);
        forger.forgeries.push(Forgery { field, act: choices.byte() % 8, number: choices.number() });
    }
    let flips: Vec<(u16, u8)> = (0..choices.byte() % 3)
        .map(|_| (u16::from_le_bytes([choices.byte(), choices.byte()]), choices.byte()))
        .collect();
    let mut file = File {
        bytes: b"PAR1".to_vec(),
        column: if column.max_level == 2 { "s.id" } else { "id" },
        ids: Vec::new(),
        rows: 0,
        // Nobody here packs Brotli.
        is_forged: column.codec == 4,
    };
    let mut groups = Vec::new();
    for _ in 0..1 + choices.byte() % 2 {
        groups.push(group(&mut file, &column, &mut choices, &mut forger));
    }
    let footer = footer(&file, &column, &groups, &mut forger);
    file.bytes.extend_from_slice(&footer);
    for (at, xor) in flips {
        let at = usize::from(at) % file.bytes.len();
        file.bytes[at] ^= xor;
        file.is_forged |= xor != 0;
    }
    file.bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    file.bytes.extend_from_slice(b"PAR1");
    file.is_forged |= forger.is_used;
    file
}

/// Where a row group's chunk lies, where its pages begin, and its rows.
type Group = (usize, usize, usize, u64);

fn group(
    file: &mut File,
    column: &Column,
    choices: &mut Choices<'_>,
    forger: &mut Forger,
) -> Group {
    let start = file.bytes.len();
    let dictionary: Vec<Vec<u8>> = match choices.byte() % 3 {
        0 => (0..1 + choices.below(9)).map(|_| value(column, choices)).collect(),
        _ => Vec::new(),
    };
    if !dictionary.is_empty() {
        let body: Vec<u8> = dictionary.iter().flat_map(|value| plain(column, value)).collect();
        let packed = pack(column.codec, &body);
        let mut header = Thrift::new();
        header.int(forger, 1, I32, 2);
        header.int(forger, 2, I32, body.len() as i64);
        header.int(forger, 3, I32, packed.len() as i64);
        header.strukt(forger, 7, |header, forger| {
            header.int(forger, 1, I32, dictionary.len() as i64);
            header.int(forger, 2, I32, 0);
        });
        header.bytes.push(0);
        file.bytes.extend(header.bytes.iter().chain(&packed));
    }
    let (pages, mut rows) = (file.bytes.len(), 0);
    for _ in 0..1 + choices.byte() % 4 {
        rows += page(file, column, &dictionary, choices, forger);
    }
    file.rows += rows;
    (start, pages, file.bytes.len(), rows)
}

/// Writes a page, and gives its rows.
fn page(
    file: &mut File,
    column: &Column,
    dictionary: &[Vec<u8>],
    choices: &mut Choices<'_>,
    forger: &mut Forger,
) -> u64 {
    let rows = choices.below(40);
    let top = column.max_level;
    let levels: Vec<u8> = (0..rows)
        .map(|_| {
            if top == 0 { 0 } else { [top, top, top, choices.byte() % (top + 1)][choices.below(4)] }
        })
        .collect();
    let keys: Vec<usize>;
    let present = levels.iter().filter(|level| **level == top).count();
    let fits: &[i64] = match column.physical {
        6 => &[0, 6, 7],
        7 => &[0, 7, 9],
        _ => &[0, 5, 9],
    };
    let mut encoding = fits[choices.below(3)];
    let values: Vec<Vec<u8>> = if dictionary.is_empty() || choices.byte().is_multiple_of(4) {
        keys = Vec::new();
        (0..present).map(|_| value(column, choices)).collect()
    } else {
        encoding = 8;
        keys = (0..present).map(|_| choices.below(dictionary.len())).collect();
        keys.iter().map(|key| dictionary[*key].clone()).collect()
    };
    file.ids.extend(values.iter().map(|value| text(column, value)).filter(|id| !id.is_empty()));
    let body = match encoding {
        0 => values.iter().flat_map(|value| plain(column, value)).collect(),
        5 => {
            let number = |value: &Vec<u8>| {
                let mut all = [if value.last().is_some_and(|b| *b > 127) { 0xff } else { 0 }; 8];
                all[..value.len()].copy_from_slice(value);
                i64::from_le_bytes(all)
            };
            deltas(
                &values.iter().map(number).collect::<Vec<_>>(),
                if column.width == 4 { 32 } else { 64 },
            )
        }
        6 => {
            let lengths: Vec<i64> = values.iter().map(|value| value.len() as i64).collect();
            [deltas(&lengths, 32), values.concat()].concat()
        }
        7 => {
            let mut before: &[u8] = &[];
            let mut prefixes = Vec::new();
            for value in &values {
                prefixes.push(before.iter().zip(value).take_while(|(a, b)| a == b).count() as i64);
                before = value;
            }
            let suffixes: Vec<&[u8]> =
                values.iter().zip(&prefixes).map(|(value, n)| &value[*n as usize..]).collect();
            let lengths: Vec<i64> = suffixes.iter().map(|suffix| suffix.len() as i64).collect();
            [deltas(&prefixes, 32), deltas(&lengths, 32), suffixes.concat()].concat()
        }
        9 => (0..column.width).flat_map(|at| values.iter().map(move |value| value[at])).collect(),
        _ => {
            let keys: Vec<u8> = keys.iter().map(|key| *key as u8).collect();
            [vec![4], runs(&keys, 4, choices)].concat()
        }
    };
    let bits = u32::from(8 - top.leading_zeros() as u8);
    let levels = if top == 0 { Vec::new() } else { runs(&levels, bits, choices) };
    let mut header = Thrift::new();
    let all = if choices.byte().is_multiple_of(2) {
        let length = (levels.len() as u32).to_le_bytes();
        let front = if top == 0 { Vec::new() } else { [&length[..], &levels].concat() };
        let body = [front, body].concat();
        let packed = pack(column.codec, &body);
        header.int(forger, 1, I32, 0);
        header.int(forger, 2, I32, body.len() as i64);
        header.int(forger, 3, I32, packed.len() as i64);
        header.strukt(forger, 5, |header, forger| {
            header.int(forger, 1, I32, rows as i64);
            header.int(forger, 2, I32, encoding);
            header.int(forger, 3, I32, 3);
            header.int(forger, 4, I32, 3);
        });
        packed
    } else {
        let is_packed = choices.byte().is_multiple_of(2);
        let packed = if is_packed { pack(column.codec, &body) } else { body.clone() };
        header.int(forger, 1, I32, 3);
        header.int(forger, 2, I32, (levels.len() + body.len()) as i64);
        header.int(forger, 3, I32, (levels.len() + packed.len()) as i64);
        header.strukt(forger, 8, |header, forger| {
            header.int(forger, 1, I32, rows as i64);
            header.int(forger, 2, I32, (rows - present) as i64);
            header.int(forger, 3, I32, rows as i64);
            header.int(forger, 4, I32, encoding);
            header.int(forger, 5, I32, levels.len() as i64);
            header.int(forger, 6, I32, 0);
            header.field(7, if is_packed { 1 } else { 2 });
        });
        [levels, packed].concat()
    };
    header.bytes.push(0);
    file.bytes.extend(header.bytes.iter().chain(&all));
    rows as u64
}

fn footer(file: &File, column: &Column, groups: &[Group], forger: &mut Forger) -> Vec<u8> {
    let mut footer = Thrift::new();
    footer.int(forger, 1, I32, 1);
    let is_nested = column.max_level == 2;
    footer.list(forger, 2, STRUCT, if is_nested { 3 } else { 2 });
    let mut element = |footer: &mut Thrift, name: &[u8], leaf: bool, is_root: bool| {
        footer.last.push(0);
        if leaf {
            footer.int(forger, 1, I32, column.physical);
            if column.physical == 7 {
                footer.int(forger, 2, I32, column.width as i64);
            }
        }
        if !is_root {
            footer.int(forger, 3, I32, i64::from(column.max_level > 0));
        }
        footer.text(forger, 4, name);
        if leaf {
            if let Some(converted) = column.converted {
                footer.int(forger, 6, I32, converted);
                if converted == 5 {
                    footer.int(forger, 7, I32, 0);
                    footer.int(forger, 8, I32, 18);
                }
            }
        } else {
            footer.int(forger, 5, I32, 1);
        }
        footer.close();
    };
    element(&mut footer, b"m", false, true);
    if is_nested {
        element(&mut footer, b"s", false, false);
    }
    element(&mut footer, b"id", true, false);
    footer.int(forger, 3, I64, file.rows as i64);
    footer.list(forger, 4, STRUCT, groups.len());
    for &(start, pages, end, rows) in groups {
        footer.last.push(0);
        footer.list(forger, 1, STRUCT, 1);
        footer.last.push(0);
        footer.int(forger, 2, I64, start as i64);
        footer.strukt(forger, 3, |footer, forger| {
            footer.int(forger, 1, I32, column.physical);
            footer.list(forger, 2, I32, 2);
            footer.bytes.extend([0, 6]);
            footer.list(forger, 3, BINARY, 1);
            footer.bytes.extend(b"\x02id");
            footer.int(forger, 4, I32, column.codec);
            footer.int(forger, 5, I64, rows as i64);
            footer.int(forger, 6, I64, (end - start) as i64);
            footer.int(forger, 7, I64, (end - start) as i64);
            footer.int(forger, 9, I64, pages as i64);
            if pages > start {
                footer.int(forger, 11, I64, start as i64);
            }
        });
        footer.close();
        footer.int(forger, 2, I64, (end - start) as i64);
        footer.int(forger, 3, I64, rows as i64);
        footer.close();
    }
    footer.bytes.push(0);
    footer.bytes
}

/// A value in the bytes that PLAIN has, without a length.
fn value(column: &Column, choices: &mut Choices<'_>) -> Vec<u8> {
    match (column.physical, column.converted) {
        (6, Some(5)) => vec![choices.byte(), choices.byte()],
        (6, _) => (0..choices.below(20)).map(|_| b'a' + choices.byte() % 4).collect(),
        (7, _) => (0..column.width).map(|_| choices.byte()).collect(),
        // A decimal of 18 digits, or a number of 16 bits without a sign.
        _ => {
            let low = [choices.byte(), choices.byte()];
            let mut all = vec![0; column.width];
            all[..2].copy_from_slice(&low);
            all
        }
    }
}

/// The ID of a value.
fn text(column: &Column, value: &[u8]) -> Vec<u8> {
    match (column.physical, column.converted) {
        (6, Some(5)) => i16::from_be_bytes([value[0], value[1]]).to_string().into_bytes(),
        (6 | 7, _) => value.to_vec(),
        _ => u16::from_le_bytes([value[0], value[1]]).to_string().into_bytes(),
    }
}

fn plain(column: &Column, value: &[u8]) -> Vec<u8> {
    let length = (value.len() as u32).to_le_bytes();
    if column.physical == 6 { [&length[..], value].concat() } else { value.to_vec() }
}

/// Numbers of a few bits in runs and groups.
fn runs(numbers: &[u8], bits: u32, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        if choices.byte().is_multiple_of(2) {
            let same = rest.iter().take_while(|number| *number == first).count();
            varint(&mut bytes, (same as u64) << 1);
            bytes.push(*first);
            rest = &rest[same..];
        } else {
            let groups = (1 + choices.below(3)).min(rest.len().div_ceil(8));
            varint(&mut bytes, (groups as u64) << 1 | 1);
            let (these, behind) = rest.split_at(rest.len().min(groups * 8));
            let mut all = vec![0_u8; groups * bits as usize];
            for (at, number) in these.iter().enumerate() {
                for bit in 0..bits as usize {
                    let to = at * bits as usize + bit;
                    all[to / 8] |= (number >> bit & 1) << (to % 8);
                }
            }
            bytes.extend(all);
            rest = behind;
        }
    }
    bytes
}

/// DELTA_BINARY_PACKED, in blocks of 128 and four parts, with as many bits as a difference can
/// have.
fn deltas(numbers: &[i64], bits: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 1, 4];
    varint(&mut bytes, numbers.len() as u64);
    zigzag(&mut bytes, numbers.first().copied().unwrap_or(0));
    let differences: Vec<i64> = numbers.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    for block in differences.chunks(128) {
        let least = block.iter().copied().min().unwrap_or(0);
        zigzag(&mut bytes, least);
        let mut widths = [0_u8; 4];
        let mut parts = Vec::new();
        for (part, width) in block.chunks(32).zip(&mut widths) {
            let over = |difference: &i64| difference.wrapping_sub(least) as u64;
            let most = part.iter().map(over).max().unwrap_or(0);
            *width = (64 - most.leading_zeros()).min(bits) as u8;
            let mut all = vec![0_u8; usize::from(*width) * 4];
            for (at, number) in part.iter().map(over).enumerate() {
                for bit in 0..usize::from(*width) {
                    let to = at * usize::from(*width) + bit;
                    all[to / 8] |= ((number >> bit & 1) as u8) << (to % 8);
                }
            }
            parts.extend(all);
        }
        bytes.extend(widths);
        bytes.extend(parts);
    }
    bytes
}

fn pack(codec: i64, body: &[u8]) -> Vec<u8> {
    match codec {
        1 => snap::raw::Encoder::new().compress_vec(body).expect("a page is small"),
        2 => {
            let level = flate2::Compression::fast();
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
            gzip.write_all(body).and_then(|()| gzip.finish()).expect("memory takes all")
        }
        5 => {
            let block = lz4_flex::block::compress(body);
            let lengths = [body.len(), block.len()].map(|n| (n as u32).to_be_bytes());
            [&lengths.concat()[..], &block].concat()
        }
        6 => zstd::bulk::compress(body, 1).expect("memory takes all"),
        7 => lz4_flex::block::compress(body),
        _ => body.to_vec(),
    }
}
