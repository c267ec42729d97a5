#!/usr/bin/env python3
"""An independent reader of deltas, written from docs/format.md.

    apply_delta.py BLOB DELTA > OTHER_BLOB

Ends with 1 and a sentence on stderr when the delta is not sound or not of this blob. It shares no code with
the program; BLAKE3 comes from the package blake3.
"""

import struct
import sys

import blake3

PART = 2 << 20


class Unsound(Exception):
    """Why a delta cannot be used."""


def require(holds, why):
    if not holds:
        raise Unsound(why)


class Bits:
    """The bits of a code: each byte's lowest first."""

    def __init__(self, code):
        self.code, self.at = code, 0

    def bit(self):
        require(self.at < 8 * len(self.code), "a code ends within a gap")
        bit = self.code[self.at >> 3] >> (self.at & 7) & 1
        self.at += 1
        return bit

    def number(self, count):
        return sum(self.bit() << i for i in range(count))

    def end(self):
        left = 8 * len(self.code) - self.at
        require(left < 8 and self.number(left) == 0, "a code is longer than its flips")


def gap(bits, divisor):
    quotient = 0
    while bits.bit() == 0:
        quotient += 1
    if divisor == 1:
        return quotient
    b = (divisor - 1).bit_length()
    u = (1 << b) - divisor
    rest = bits.number(b - 1)
    if rest >= u:
        rest = 2 * rest + bits.bit() - u
    return quotient * divisor + rest


def apply_section(part, flips, divisor, code):
    if divisor == 0:
        require(len(code) == len(part), "an XOR is not as long as its part")
        require(sum(byte.bit_count() for byte in code) == flips, "the flips are miscounted")
        for i, byte in enumerate(code):
            part[i] ^= byte
        return
    bits, at = Bits(code), -1
    for _ in range(flips):
        at += 1 + gap(bits, divisor)
        require(at < 8 * len(part), "a flip is past the end of its part")
        part[at >> 3] ^= 1 << (at & 7)
    bits.end()


def apply(blob, delta):
    require(len(delta) >= 88 + 32, "it is cut short")
    magic, version, content = struct.unpack_from("<8sQQ", delta)
    require(magic == b"BLOOMDLT" and version == 1, "it is no delta of version 1")
    require(blake3.blake3(delta[:-32]).digest() == delta[-32:], "its digest is wrong")
    low, high = delta[24:56], delta[56:88]
    require(low < high, "its digests are not in order")
    require(content == len(blob) - 32, "the blob has another length")
    own = blob[-32:]
    require(own in (low, high), "the blob is not one of its two")
    other, at, parts = high if own == low else low, 88, []
    for start in range(0, content, PART):
        part = bytearray(blob[start : min(start + PART, content)])
        length, flips, divisor = struct.unpack_from("<III", delta, at)
        at += 12
        apply_section(part, flips, divisor, delta[at : at + length])
        at += length
        parts.append(part)
    require(at == len(delta) - 32, "it goes on after its end")
    result = b"".join(parts)
    require(blake3.blake3(result).digest() == other, "it gives another blob")
    return result + other


def main():
    with open(sys.argv[1], "rb") as blob, open(sys.argv[2], "rb") as delta:
        blob, delta = blob.read(), delta.read()
    try:
        sys.stdout.buffer.write(apply(blob, delta))
    except (Unsound, struct.error) as why:
        print(f"{sys.argv[2]} is not sound: {why}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
