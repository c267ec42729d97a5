//! [`Reply`]: values of the protocol to bytes, in the version that the client chose.

use std::borrow::Cow;

/// An error that a command answers with: its text after the minus sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Fault {
        Fault(Cow::Borrowed(text))
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault(Cow::Owned(text))
    }
}

/// The bytes of replies.
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    /// Version 3 of the protocol.
    pub(crate) is_v3: bool,
}

impl Reply<'_> {
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn error(&mut self, fault: &Fault) {
        error(self.out, fault);
    }

    pub(crate) fn integer(&mut self, number: i64) {
        match number {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.line(b':', number.to_string().as_bytes()),
        }
    }

    /// `true` or `false`; 1 or 0 in version 2.
    #[inline]
    pub(crate) fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.is_v3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        });
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', bytes.len().to_string().as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Text with line ends, for people.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.is_v3 {
            return self.text(text);
        }
        self.line(b'=', (text.len() + 4).to_string().as_bytes());
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.is_v3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn array(&mut self, length: usize) {
        self.line(b'*', length.to_string().as_bytes());
    }

    /// A map with that many pairs; in version 2 an array of twice as many values.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.is_v3 {
            self.line(b'%', pairs.to_string().as_bytes());
        } else {
            self.array(2 * pairs);
        }
    }

    /// A set with that many members; in version 2 an array.
    pub(crate) fn set(&mut self, members: usize) {
        if self.is_v3 {
            self.line(b'~', members.to_string().as_bytes());
        } else {
            self.array(members);
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Writes an error. A line end in it would be a reply of its own.
pub(crate) fn error(out: &mut Vec<u8>, fault: &Fault) {
    out.push(b'-');
    let plain = |byte: u8| if byte == b'\r' || byte == b'\n' { b' ' } else { byte };
    out.extend(fault.0.bytes().map(plain));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_each_version_has_them() {
        let written = |is_v3: bool| {
            let mut out = Vec::new();
            let mut reply = Reply { out: &mut out, is_v3 };
            reply.set(1);
            reply.map(1);
            reply.boolean(true);
            reply.null();
            reply.integer(-7);
            reply.bulk(b"a\r\n");
            reply.verbatim("v");
            reply.error(&Fault::from("ERR a\r\n+b".to_owned()));
            String::from_utf8(out).unwrap()
        };
        let same = ":-7\r\n$3\r\na\r\n\r\n";
        let error = "-ERR a  +b\r\n";
        assert_eq!(written(false), format!("*1\r\n*2\r\n:1\r\n$-1\r\n{same}$1\r\nv\r\n{error}"));
        assert_eq!(written(true), format!("~1\r\n%1\r\n#t\r\n_\r\n{same}=5\r\ntxt:v\r\n{error}"));
    }
}
