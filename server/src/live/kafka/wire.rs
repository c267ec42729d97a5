//! [`Writer`] and [`Reader`]: numbers, texts and lists of Kafka's protocol. All numbers are big-endian.

/// Bytes that break the protocol's rules: what was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be read")]
pub(crate) struct Malformed(pub(super) &'static str);

/// What is sent.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn i8(&mut self, number: i8) -> &mut Writer {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn i16(&mut self, number: i16) -> &mut Writer {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn i32(&mut self, number: i32) -> &mut Writer {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn i64(&mut self, number: i64) -> &mut Writer {
        self.bytes(&number.to_be_bytes())
    }

    /// The length of a list, or of bytes.
    pub(super) fn size(&mut self, size: usize) -> &mut Writer {
        self.i32(i32::try_from(size).expect("nothing of this size is sent"))
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Writer {
        self.i16(i16::try_from(text.len()).expect("addresses have short names only"));
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// What was received. No length in it is believed before the bytes are there.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed("a number"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn i8(&mut self) -> Result<i8, Malformed> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A number of variable length: seven bits a byte, and the sign in the lowest bit.
    pub(super) fn varint(&mut self) -> Result<i64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err(Malformed("a number of variable length"))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.rest.split_at_checked(len).ok_or(Malformed("a length"))?;
        self.rest = rest;
        Ok(first)
    }

    /// Bytes after a length of this kind; `None` if that is negative.
    fn sized(&mut self, len: i64) -> Result<Option<&'a [u8]>, Malformed> {
        if len < 0 {
            return Ok(None);
        }
        self.take(usize::try_from(len).map_err(|_| Malformed("a length"))?).map(Some)
    }

    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let len = self.i32()?;
        self.sized(len.into())
    }

    /// Bytes after a length of variable length.
    pub(super) fn varbytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let len = self.varint()?;
        self.sized(len)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let len = self.i16()?;
        let bytes = self.sized(len.into())?.unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A list, of which `read` reads one.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = usize::try_from(self.i32()?).unwrap_or(0);
        let mut all = Vec::new();
        for _ in 0..len {
            // Everything in a list has a byte at least: a wrong length ends here.
            all.push(read(self)?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_are_read_as_protobuf_writes_them() {
        for (bytes, number) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x7f], -64),
            (&[0x80, 0x01], 64),
            (&[0xfe, 0xff, 0xff, 0xff, 0x0f], i64::from(i32::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MIN),
        ] {
            assert_eq!(Reader::new(bytes).varint(), Ok(number));
        }
        assert!(Reader::new(&[0x80]).varint().is_err());
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
    }

    #[test]
    fn no_length_is_believed() {
        assert_eq!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).bytes(), Err(Malformed("a length")));
        assert_eq!(Reader::new(&[0xff; 4]).bytes(), Ok(None));
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).list(|each| each.i8()).is_err());
        assert!(Reader::new(&[0x7f, 0xff]).text().is_err());
    }
}
