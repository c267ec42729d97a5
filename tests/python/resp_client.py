"""Live filters as redis-py sees them: both versions of the protocol, pipelines, transactions, asyncio.

Usage: resp_client.py PORT
"""

import asyncio
import sys

import redis
import redis.asyncio

PORT = int(sys.argv[1])


def check(got, expected):
    assert got == expected, f"{got!r} is not {expected!r}"


def field(info, attribute, name):
    """A field of INFO: an object's in version 2, a map's in version 3."""
    if not isinstance(info, dict):
        return getattr(info, attribute)
    return info[name] if name in info else info[name.encode()]


def synchronous(protocol):
    client = redis.Redis(port=PORT, db=protocol, protocol=protocol)
    check(client.ping(), True)
    bf = client.bf()
    check(bool(bf.create("bf", 0.01, 1000)), True)
    check(bf.add("bf", "a"), 1)
    check(bf.add("bf", "a"), 0)
    check(bf.madd("bf", "a", "b"), [0, 1])
    check(bf.insert("bf", ["c", "d"]), [1, 1])
    check(bf.exists("bf", "a"), 1)
    check(bf.mexists("bf", "a", "x"), [1, 0])
    check(bf.card("bf"), 4)
    info = bf.info("bf")
    check(field(info, "capacity", "Capacity"), 1000)
    check(field(info, "insertedNum", "Number of items inserted"), 4)
    cf = client.cf()
    check(bool(cf.create("cf", 1000)), True)
    check(cf.add("cf", "a"), 1)
    check(cf.addnx("cf", "a"), 0)
    check(cf.insert("cf", ["a"]), [1])
    check(cf.insertnx("cf", ["a", "b"]), [0, 1])
    check(cf.count("cf", "a"), 2)
    check(cf.delete("cf", "a"), 1)
    check(cf.mexists("cf", "a", "x"), [1, 0])
    check(field(cf.info("cf"), "insertedNum", "Number of items inserted"), 2)
    check(client.sadd("s", *range(1000)), 1000)
    check(client.sismember("s", 7), 1)
    check(client.smismember("s", [7, "x"]), [1, 0])
    check(client.scard("s"), 1000)
    check(client.srem("s", 7, "x"), 1)
    pipeline = client.pipeline()
    check(pipeline.sadd("t", 1).sadd("t", 1).scard("t").execute(), [1, 0, 1])
    pipeline = client.pipeline(transaction=False)
    for number in range(5000):
        pipeline.sadd("p", number)
    check(sum(pipeline.execute()), 5000)
    check(sorted(client.scan_iter()), [b"bf", b"cf", b"p", b"s", b"t"])
    check(client.type("bf"), b"MBbloom--")
    check((client.expire("s", 100), client.ttl("s"), client.persist("s")), (True, 100, True))
    check(client.execute_command("WAITAOF", 1, 0, 0), [1, 0])
    try:
        bf.add("s", "x")
        raise AssertionError("a set took an item of a filter")
    except redis.ResponseError as error:
        assert "wrong kind of value" in str(error), error
    check(client.info("server")["redis_mode"], "standalone")
    check(client.delete("bf", "cf", "s", "t", "p"), 5)
    client.client_setname("me")
    check(client.client_getname() in ("me", b"me"), True)
    client.close()


async def asynchronous(protocol):
    client = redis.asyncio.Redis(port=PORT, db=protocol + 2, protocol=protocol)
    added = await asyncio.gather(*(client.sadd("s", number // 2) for number in range(80)))
    check(sum(added), 40)
    check(await client.bf().add("bf", "a"), 1)
    async with client.pipeline(transaction=True) as pipeline:
        check(await pipeline.sadd("s", 0).scard("s").execute(), [0, 40])
    await client.aclose()


for protocol in (2, 3):
    synchronous(protocol)
    asyncio.run(asynchronous(protocol))
print("passed")
