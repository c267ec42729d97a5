"""Live filters over TLS as redis-py sees them: large pipelines, both versions, asyncio; who is refused.

Usage: resp_tls.py PORT AUTHORITY TOKEN
"""

import asyncio
import ssl
import sys

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT, AUTHORITY, TOKEN = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def check(got, expected):
    assert got == expected, f"{got!r} is not {expected!r}"


# One try: by default a client that is refused tries again, and waits in between.
ONCE = Retry(NoBackoff(), 0)


def options(protocol, **more):
    return {
        "host": "localhost",
        "port": PORT,
        "ssl": True,
        "ssl_ca_certs": AUTHORITY,
        "ssl_min_version": ssl.TLSVersion.TLSv1_2,
        "protocol": protocol,
        "db": protocol,
        "password": TOKEN,
        **more,
    }


def synchronous(protocol):
    with redis.Redis(**options(protocol)) as client:
        check(client.bf().add("bf", "a"), 1)
        # More than one record of TLS in each direction.
        pipeline = client.pipeline(transaction=False)
        for number in range(4_000):
            pipeline.sadd("s", f"an ID that is long enough {number:08}")
        check(sum(pipeline.execute()), 4_000)
        check(client.sadd("many", *range(20_000)), 20_000)
        check(sum(client.smismember("many", list(range(25_000)))), 20_000)
    for wrong, kind in (("other", redis.AuthenticationError), (None, redis.AuthenticationError)):
        with redis.Redis(**options(protocol, password=wrong, retry=ONCE)) as client:
            try:
                client.ping()
                raise AssertionError(f"{wrong} was let in")
            except kind:
                pass


async def asynchronous(protocol):
    client = redis.asyncio.Redis(**options(protocol))
    check(await client.sadd("t", "a", "b"), 2)
    await client.aclose()


for protocol in (2, 3):
    synchronous(protocol)
    asyncio.run(asynchronous(protocol))
try:
    redis.Redis(host="localhost", port=PORT, ssl=True, retry=ONCE).ping()
    raise AssertionError("an unknown authority was trusted")
except redis.ConnectionError:
    pass
print("passed")
