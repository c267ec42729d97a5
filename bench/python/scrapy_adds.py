"""How many new requests one spider can look up in a second: bloomsday-scrapy against the filters of
scrapy-redis-bloomfilter and scrapy-redis, each with its own server on this machine, in turns.

    cargo build --release --bin bloomsday
    target/test-tools/scrapy-2.12/bin/python bench/python/scrapy_adds.py target/release/bloomsday
"""

import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [
    os.path.join(HERE, "../../python/scrapy"),
    os.path.join(HERE, "../../tests/python/scrapy"),
]

from scrapy import Request, Spider  # noqa: E402
from scrapy.crawler import Crawler  # noqa: E402
from scrapy.utils.request import RequestFingerprinter  # noqa: E402
from scrapy_redis.dupefilter import RFPDupeFilter as RedisSet  # noqa: E402
from scrapy_redis_bloomfilter.dupefilter import RFPDupeFilter as RedisBloom  # noqa: E402
from servers import Bloomsday, Redis  # noqa: E402

import bloomsday_scrapy  # noqa: E402

ROUNDS = 7
REQUESTS = 2_000
# Enough for the requests of all rounds, with its number of hashes.
BIT = 24


class Pages(Spider):
    name = "pages"


def bloomsday(server):
    crawler = Crawler(Pages, {"BLOOMSDAY_URL": server.url})
    crawler.request_fingerprinter = RequestFingerprinter()
    return bloomsday_scrapy.DupeFilter.from_crawler(crawler)


def main():
    program = sys.argv[1]
    import redis

    written, synced, plain = Bloomsday(program, ["--ack", "written"]), Bloomsday(program), Redis()
    client = redis.Redis(port=plain.port)
    filters = {
        "bloomsday-scrapy, --ack written": bloomsday(written),
        "bloomsday-scrapy, --ack synced": bloomsday(synced),
        "scrapy-redis (a set)": RedisSet(client, "set"),
        "scrapy-redis-bloomfilter": RedisBloom(client, "bloom", False, BIT, 6),
    }
    rates = {name: [] for name in filters}
    for round_number in range(ROUNDS):
        requests = [
            Request(f"http://example.org/{round_number}/{page}") for page in range(REQUESTS)
        ]
        for name, dupefilter in filters.items():
            start = time.perf_counter()
            seen = sum(dupefilter.request_seen(request) for request in requests)
            rates[name].append(REQUESTS / (time.perf_counter() - start))
            # Bloom filters may take a new request for an old one.
            assert seen <= (
                0 if "bloomfilter" not in name else REQUESTS
            ), f"{name}: {seen} of them seen"
    base = statistics.median(rates["scrapy-redis-bloomfilter"])
    for name, each in rates.items():
        median = statistics.median(each)
        print(
            f"{name:32} {median:8,.0f}/s ({min(each):,.0f} to {max(each):,.0f})"
            f" {median / base:5.1f} x"
        )
    for server in (written, synced, plain):
        server.close()


main()
