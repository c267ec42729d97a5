"""One crawl: the test of scrapy-redis-bloomfilter, 110 requests of which 10 are duplicates. Prints
Scrapy's numbers as JSON.

Usage: spider.py '[SITE, SETTINGS, ARGUMENTS]'
"""

import itertools
import json
import sys
import time

from scrapy import Request, Spider, signals
from scrapy.crawler import CrawlerProcess

from bloomsday_scrapy import dupefilter_of


class Pages(Spider):
    name = "test"

    def __init__(
        self,
        site,
        reverse=False,
        lazily=False,
        end_pause_at=None,
        links=0,
        endlessly=False,
        **arguments,
    ):
        """With `links`, begins with one page, which links to so many others."""
        super().__init__(**arguments)
        self.site, self.lazily, self.end_pause_at = site, lazily, end_pause_at
        self.has_failed = False
        self.links = links
        self.numbers = [0] if links else [*range(10), *range(100)][:: -1 if reverse else 1]
        if endlessly:
            self.numbers = itertools.count()

    def requests(self):
        return map(self.request, self.numbers)

    def request(self, number):
        return Request(f"{self.site}/{number}", self.parse, errback=self.failed)

    def start_requests(self):
        """Of Scrapy 2.12."""
        return self.requests()

    async def start(self):
        """Of later ones, which take every request at once unless the spider waits."""
        for request in self.requests():
            if self.lazily and self.crawler.engine.needs_backout():
                await self.crawler.signals.wait_for(signals.scheduler_empty)
            yield request

    def parse(self, response):
        if response.url.endswith(f"/{self.end_pause_at}"):
            # As if the time had passed.
            dupefilter = dupefilter_of(self.crawler)
            self.crawler.stats.set_value("pause", dupefilter._paused_until - time.monotonic())
            dupefilter._paused_until = 0
        if response.url == f"{self.site}/0":
            for number in range(1, self.links + 1):
                # As many spiders do; Scrapy keeps in it that the page was a start request.
                yield self.request(number).replace(meta=response.meta)

    def failed(self, failure):
        """A page that failed is requested once more, by this crawl or the next one."""
        dupefilter_of(self.crawler).forget(failure.request)
        if not self.has_failed:
            self.has_failed = True
            yield failure.request.copy()


def main():
    site, settings, arguments = json.loads(sys.argv[1])
    settings = {"TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False, **settings}
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, site=site, **arguments)
    process.start()
    print()
    print(json.dumps(crawler.stats.get_stats(), default=str))


main()
