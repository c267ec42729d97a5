#!/usr/bin/env python3
"""An independent reader of blobs, written from docs/format.md.

    read_blob.py BLOB < IDS

Checks the blob, prints its header as one line of JSON, then 1 or 0 for each line of stdin (only
"\\n" ends a line). Ends with 1 and a sentence on stderr when the blob is not sound.

It shares no code with the program; XXH3-64 and BLAKE3 come from the packages xxhash and blake3.
"""

import datetime
import json
import math
import re
import struct
import sys

import blake3
import xxhash

MASK = (1 << 64) - 1
# `SALTS` of common/src/filter/blocked.rs.
SALTS = [
    0x243F6A89, 0x85A308D3, 0x13198A2F, 0x03707345, 0xA4093823, 0x299F31D1, 0x082EFA99, 0xEC4E6C89,
    0x452821E7, 0x38D01377, 0xBE5466CF, 0x34E90C6D, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917,
]
XXH3_SEED = 0x426C6F6F6D736461


class Unsound(Exception):
    """Why a blob cannot be trusted."""


def require(holds, why):
    if not holds:
        raise Unsound(why)


class Cursor:
    """Reads the record's fields one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        require(count <= len(self.data) - self.at, "the record ends within a field")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        (value,) = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return value

    def string(self):
        return self.take(self.number("Q")).decode("utf-8")

    def list(self):
        count = self.number("Q")
        return list(struct.unpack(f"<{count}Q", self.take(8 * count)))


def read_record(data):
    cursor = Cursor(data)
    record = {"filter": cursor.string(), "day": cursor.string()}
    for name, form in [
        ("layout", "B"), ("units", "Q"), ("probes", "I"), ("body_bytes", "Q"), ("hash", "B"),
        ("hash_bits", "H"), ("seed", "Q"), ("key_id", "Q"), ("id_encoding", "B"), ("origin", "B"),
        ("ids", "Q"), ("fpp_target", "d"), ("fpp_hits", "Q"), ("fpp_lookups", "Q"), ("ones", "Q"),
    ]:
        record[name] = cursor.number(form)
    record["probe_hashes"], record["probe_positions"] = cursor.list(), cursor.list()
    require(cursor.at == len(data), "the record is shorter than it says")
    day = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", record["day"], re.ASCII)
    require(day and is_date(*map(int, day.groups())), "the day is no day")
    return record


def is_date(year, month, day):
    try:
        return bool(datetime.date(year, month, day))
    except ValueError:
        return False


def rotate(x, by):
    return (x << by | x >> (64 - by)) & MASK


def murmur3(data):
    """MurmurHash3_x64_128 with seed 0: h1 and h2."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mix(k):
        k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & MASK
        k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return k ^ k >> 33

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & MASK
    tail = data[whole:]
    if len(tail) > 8:
        k2 = int.from_bytes(tail[8:], "little")
        h2 ^= rotate(k2 * c2 & MASK, 33) * c1 & MASK
    if tail:
        k1 = int.from_bytes(tail[:8], "little")
        h1 ^= rotate(k1 * c1 & MASK, 31) * c2 & MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    h1, h2 = mix(h1), mix(h2)
    h1 = (h1 + h2) & MASK
    return h1, (h2 + h1) & MASK


class Blocked:
    """512 bits an ID: one block, k bits in it."""

    codes = (0, 64, XXH3_SEED)
    name = "blocked"

    def __init__(self, record, body):
        self.units, self.probes = record["units"], record["probes"]
        require(0 < self.probes <= len(SALTS), "there are not so many salts")
        require(record["body_bytes"] == 64 * self.units, "N is not 64 U")
        self.bits = 512 * self.units
        self.words = body

    def hashes(self, id):
        return [xxhash.xxh3_64_intdigest(id, seed=XXH3_SEED)]

    def positions(self, hashes):
        (h,) = hashes
        block, x = h * self.units >> 64, h & 0xFFFFFFFF
        return [512 * block + ((x * salt & 0xFFFFFFFF) >> 23) for salt in SALTS[: self.probes]]

    def is_set(self, position):
        return self.words[position >> 3] >> (position & 7) & 1 == 1


class Guava:
    """Guava's file: a byte 1, a byte k, U, then U big-endian words."""

    codes = (1, 128, 0)
    name = "guava"

    def __init__(self, record, body):
        self.units, self.probes = record["units"], record["probes"]
        require(record["body_bytes"] == 6 + 8 * self.units, "N is not 6 + 8 U")
        stated = struct.unpack(">BBI", body[:6])
        require(stated == (1, self.probes, self.units), "the body is of another shape")
        self.bits = 64 * self.units
        self.words = body[6:]

    def hashes(self, id):
        return list(murmur3(id))

    def positions(self, hashes):
        c, h2 = hashes
        found = []
        for _ in range(self.probes):
            found.append((c & 0x7FFFFFFFFFFFFFFF) % self.bits)
            c = (c + h2) & MASK
        return found

    def is_set(self, position):
        (word,) = struct.unpack_from(">Q", self.words, position >> 6 << 3)
        return word >> (position & 63) & 1 == 1


def spark_murmur3(data, seed):
    """Spark's Murmur3_x86_32: each byte after the last whole four is mixed as a word of its own."""

    def rotate(x, by):
        return (x << by | x >> (32 - by)) & 0xFFFFFFFF

    whole = len(data) // 4 * 4
    words = [word for (word,) in struct.iter_unpack("<i", data[:whole])]
    words += [byte for (byte,) in struct.iter_unpack("<b", data[whole:])]
    h = seed
    for word in words:
        k = rotate(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        h = (rotate(h ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def signed(x, bits):
    """The number that these low bits are in two's complement."""
    return (x + (1 << bits - 1) & (1 << bits) - 1) - (1 << bits - 1)


class Spark:
    """Spark's file: version, k, in version 2 a seed, U, then U big-endian words."""

    codes = (2, 64, 0)

    def __init__(self, record, body):
        self.version = record["layout"] - 1
        self.name = f"spark{self.version}"
        self.units, self.probes = record["units"], record["probes"]
        stated = (1, self.probes, self.units) if self.version == 1 else (2, self.probes, 0, self.units)
        first = struct.pack(f">{len(stated)}i", *stated)
        require(record["body_bytes"] == len(first) + 8 * self.units, "N is not 12 or 16 + 8 U")
        require(body[: len(first)] == first, "the body is of another shape")
        require(self.version == 2 or self.units <= 1 << 25, "version 1 has at most 2^31 bits")
        self.bits = 64 * self.units
        self.words = body[len(first) :]

    def hashes(self, id):
        h1 = spark_murmur3(id, 0)
        return [h1 << 32 | spark_murmur3(id, h1)]

    def positions(self, hashes):
        (hash,) = hashes
        h1, h2 = signed(hash >> 32, 32), signed(hash, 32)
        found = []
        for i in range(1, self.probes + 1):
            if self.version == 1:
                c = signed(h1 + i * h2, 32)
            else:
                c = signed(h1 * 0x7FFFFFFF + i * h2, 64)
            found.append((~c if c < 0 else c) % self.bits)
        return found

    is_set = Guava.is_set


def check_limits(record, kind):
    """The section "Limits" of the page."""
    name = re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", record["filter"], re.ASCII)
    require(name, "the filter's name is none")
    most_units = {Blocked: 1 << 32}.get(kind, (1 << 31) - 1)
    require(1 <= record["units"] <= most_units, "it cannot have so many units")
    require(1 <= record["probes"] <= (16 if kind is Blocked else 125), "it cannot have so many probes")
    bits = record["units"] * (512 if kind is Blocked else 64)
    require(1 <= record["ids"] <= bits, "it cannot have so many IDs")
    require(0 < record["fpp_target"] < 1, "the target is not between 0 and 1")
    require(record["fpp_hits"] <= record["fpp_lookups"], "more hits than lookups")


def check_fill(filter, ids, ones):
    """Whether as many bits are set as that number of IDs sets: also all ones can have a digest."""
    k = filter.probes
    if isinstance(filter, Blocked):
        share = -math.expm1(ids / filter.units * math.expm1(k * math.log1p(-1 / 512)))
    else:
        share = -math.expm1(-k * ids / filter.bits)
    sigma = k * math.sqrt(ids / 2) / filter.bits
    near = abs(ones / filter.bits - share) <= max(0.01 * share, 6 * sigma)
    require(near, f"{ones} bits are set, and {ids} IDs set about {share * filter.bits:.0f}")


def probe_id(i):
    length = i + 1 if i < 16 else 16 + 21 * (i - 15)
    return bytes(ord("a") + (i + j) % 26 for j in range(length))


def read(blob):
    """The header and the filter of a blob that is sound in every way the page describes."""
    require(len(blob) >= 14 + 32, "shorter than a header and a digest")
    digest = blake3.blake3(blob[:-32]).digest()
    require(blob[-32:] == digest, "the digest is not that of the bytes before it")
    magic, version, length = struct.unpack("<8sHI", blob[:14])
    require(magic == b"BLOOMSDY", "the magic is missing")
    require(version in (0, 1), f"format version {version} is unknown")
    require(length <= 65536, "the record is too long")
    end = 14 + length
    start = -(-end // 4096) * 4096
    record = read_record(blob[14:end])
    require(start + record["body_bytes"] + 32 == len(blob), "the length is not as the record says")
    require(not any(blob[end:start]), "the space before the body is not zero")
    require(record["layout"] < 4, "the layout is unknown")
    kind = (Blocked, Guava, Spark, Spark)[record["layout"]]
    codes = (record["hash"], record["hash_bits"], record["seed"])
    require(codes == kind.codes, "the hash is not the layout's")
    require(record["id_encoding"] != 2, "its IDs are URLs, for which this reader has no rules")
    require(record["key_id"] == 0 and record["id_encoding"] == 0, "a reserved field is used")
    require(record["origin"] in (0, 1), "the origin is unknown")
    check_limits(record, kind)

    filter = kind(record, blob[start:-32])
    ones = sum(byte.bit_count() for byte in filter.words)
    require(ones == record["ones"], f"{ones} bits are set, not {record['ones']}")
    check_fill(filter, record["ids"], ones)
    hashes = [filter.hashes(probe_id(i)) for i in range(64)]
    require([h for pair in hashes for h in pair] == record["probe_hashes"], "the hashes differ")
    positions = [position for pair in hashes for position in filter.positions(pair)]
    require(positions == record["probe_positions"], "the probe positions differ")

    header = {
        "blob": f"{record['filter']}/blobs/{record['day']}-{digest.hex()}.bloom",
        "filter": record["filter"],
        "day": record["day"],
        "digest": digest.hex(),
        "format": version,
        "layout": filter.name,
        "units": filter.units,
        "probes": filter.probes,
        "bits": filter.bits,
        "bytes": len(blob),
        "ids": record["ids"],
        "ids_estimated": record["origin"] == 1,
        "fpp_target": record["fpp_target"],
        "fpp_measured": record["fpp_hits"] / max(record["fpp_lookups"], 1),
        "fpp_hits": record["fpp_hits"],
        "fpp_lookups": record["fpp_lookups"],
        "fill": ones / filter.bits,
        "sound": True,
    }
    return header, filter


def main():
    with open(sys.argv[1], "rb") as file:
        blob = file.read()
    try:
        header, filter = read(blob)
    except (Unsound, UnicodeDecodeError) as why:
        sys.exit(f"{sys.argv[1]} is not sound: {why}")
    print(json.dumps(header))
    for id in sys.stdin.buffer.read().split(b"\n")[:-1]:
        legal = 1 <= len(id) <= 1024
        seen = legal and all(map(filter.is_set, filter.positions(filter.hashes(id))))
        print(int(seen))


if __name__ == "__main__":
    main()
