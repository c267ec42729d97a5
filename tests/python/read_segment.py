#!/usr/bin/env python3
"""An independent reader of segments of the live log, written from docs/format.md.

    read_segment.py SEGMENT…

Prints a line of JSON for each segment: what its header says, and its frames. A name that ends in `.open` is one that
is being written, whose end may be torn. Ends with 1 and a sentence on stderr when a segment is damaged.

It shares no code with the program; XXH3-64 and BLAKE3 come from the packages xxhash and blake3.
"""

import json
import struct
import sys

import blake3
import xxhash

XXH3_SEED = 0x426C6F6F6D736461
HEADER_BYTES, FRAME_BYTES, DIGEST_BYTES = 64, 40, 32
OPERATIONS = {1: "add", 2: "delete", 3: "reserve", 4: "drop", 5: "expire"}
KINDS = {1: "BF", 2: "CF", 3: "set", 4: "any", 5: "over", 6: "fingerprints"}
NEVER = (1 << 64) - 1


class Damaged(Exception):
    """Why a segment cannot be read."""


def require(holds, why):
    if not holds:
        raise Damaged(why)


def check(data):
    return xxhash.xxh3_64_intdigest(data, seed=XXH3_SEED)


def read_header(data):
    require(len(data) >= HEADER_BYTES, "it is shorter than a header")
    magic, version, hash, kind, epoch, seed, set, node, first, created, sum = struct.unpack("<8sHBBI6Q", data[:HEADER_BYTES])
    require(magic == b"bloomlog" and sum == check(data[:56]), "it does not begin with a header")
    require(version == 0, f"version {version} is unknown")
    require((hash, kind, seed) == (1, 1, XXH3_SEED), "it has other hashes")
    return {"set": set, "node": node, "epoch": epoch, "first": first, "created_ms": created}


def read_reserve(record):
    kind, repeat, steps, database, expansion, bucket, iterations, step_ms, capacity, error = struct.unpack(
        "<4B3I2Qd", record[:40]
    )
    name = record[40:]
    require(steps > 0 or step_ms == NEVER, "there is a step without a window")
    return {
        "kind": KINDS[kind & 127],
        "urls": kind >= 128,
        "repeat": {1: "renew", 2: "keep"}[repeat],
        "steps": steps,
        "database": database,
        "expansion": expansion,
        "bucket": bucket,
        "iterations": iterations,
        "step_ms": step_ms if steps else None,
        "capacity": capacity,
        "error": error,
        "name": name.decode(),
        # The set of the header.
        "number": int.from_bytes(blake3.blake3(bytes([database]) + name).digest()[:8], "little") or 1,
    }


def read_frame(data, at, number):
    """The frame at this place, and where the next one begins; none if no whole frame is there."""
    if len(data) - at < FRAME_BYTES:
        return None
    sum, length, hashes, frame, ms, op = struct.unpack("<QIIQQB", data[at : at + 33])
    end = at + FRAME_BYTES + length
    if end > len(data) or sum != check(data[at + 8 : end]) or frame != number or op not in OPERATIONS:
        return None
    if any(data[at + 33 : at + 40]) or op > 2 and (hashes != 0 or length > 4096):
        return None
    payload = data[at + FRAME_BYTES : end]
    said = {"number": frame, "ms": ms, "operation": OPERATIONS[op]}
    if op <= 2:
        if length != 8 * hashes or hashes > 65_536:
            return None
        said["hashes"] = list(struct.unpack(f"<{hashes}Q", payload))
    elif op == 3:
        said["record"] = read_reserve(payload)
    elif op == 5:
        (ms,) = struct.unpack("<Q", payload)
        said["ends_ms"] = None if ms == NEVER else ms
    return said, end


def read(data, is_open):
    if not is_open:
        require(len(data) >= HEADER_BYTES + DIGEST_BYTES, "it is shorter than a header and a digest")
        data, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        require(blake3.blake3(data).digest() == digest, "its digest is not that of its bytes")
    said = read_header(data)
    at, number, frames = HEADER_BYTES, said["first"], []
    while at < len(data):
        found = read_frame(data, at, number)
        if found is None:
            require(is_open, f"the frame at byte {at} is damaged or incomplete")
            break
        frame, at = found
        frames.append(frame)
        number += 1
    return said | {"frames": frames, "good_bytes": at}


def main():
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            data = file.read()
        try:
            print(json.dumps(read(data, path.endswith(".open"))))
        except Damaged as why:
            sys.exit(f"{path} is damaged: {why}")


if __name__ == "__main__":
    main()
