"""Real crawls of a local site with the filters of bloomsday-scrapy, by the Python that runs this.

Usage: crawls.py PROGRAM CASE…    PROGRAM is `bloomsday`; without a case, prints the names of all.
"""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
import zipfile
from collections import Counter
from contextlib import ExitStack

from servers import Bloomsday, Crawl, Redis, Relay
from website import Site

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../python/scrapy")
sys.path.insert(0, PACKAGE)
import bloomsday_scrapy  # noqa: E402
from scrapy import Request, Spider  # noqa: E402
from scrapy.crawler import Crawler  # noqa: E402
from scrapy.statscollectors import MemoryStatsCollector  # noqa: E402
from scrapy.utils.request import RequestFingerprinter  # noqa: E402

PROGRAM = sys.argv[1]
# The test of scrapy-redis-bloomfilter has these, and each is requested once.
PAGES = Counter(f"/{number}" for number in range(100))
# One request at a time, so that a page that is held back is the only one under way.
ONE_BY_ONE = {"CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}


def idle_crawler(settings):
    """A crawler that does not run, with what a filter uses of it."""
    crawler = Crawler(type("Pages", (Spider,), {"name": "test"}), settings)
    crawler.stats = MemoryStatsCollector(crawler)
    crawler.request_fingerprinter = RequestFingerprinter()
    return crawler


def check(got, expected, what):
    assert got == expected, f"{what}: {got!r} is not {expected!r}"


class Scene:
    """What a case needs: a site, a Bloomsday, a Redis and more if it wants them."""

    def __init__(self, stack):
        self._stack = stack
        self.site = self.close_later(Site())
        self.bloomsday = self.close_later(Bloomsday(PROGRAM))
        self.redis = None

    def close_later(self, server):
        self._stack.callback(server.close)
        return server

    def folder(self):
        return self._stack.enter_context(tempfile.TemporaryDirectory())

    def own(self, more={}):
        """The settings for Scrapy's own scheduler."""
        return {
            "DUPEFILTER_CLASS": "bloomsday_scrapy.DupeFilter",
            "BLOOMSDAY_URL": self.bloomsday.url,
            **more,
        }

    def shared(self, more={}):
        """The settings for the schedulers of scrapy-redis, with a Redis that keeps the queue."""
        if self.redis is None:
            self.redis = self.close_later(Redis())
        return {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "REDIS_URL": self.redis.url,
            "DUPEFILTER_CLASS": "bloomsday_scrapy.RedisDupeFilter",
            "BLOOMSDAY_URL": self.bloomsday.url,
            **more,
        }

    def crawl(self, settings, **arguments):
        return Crawl(sys.executable, self.site.url, settings, **arguments)


def filtered_and_downloaded(stats):
    """Both names of what was filtered have the same number."""
    filtered = stats.get("bloomfilter/filtered", 0)
    check(stats.get("dupefilter/filtered", 0), filtered, "dupefilter/filtered")
    return filtered, stats.get("downloader/response_count", 0)


def check_ended_by_error(stats):
    check(stats["bloomsday/errors"], 1, "bloomsday/errors")
    # An error in `start` of a newer Scrapy stops the engine before the spider is closed.
    assert stats["finish_reason"] in ("bloomsday_error", "shutdown"), stats


def one_crawl_filters_10_of_110(case):
    stats = case.crawl(case.own()).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")
    check(stats["finish_reason"], "finished", "finish_reason")
    check(case.bloomsday.call("BF.CARD", "test:bloomfilter"), b":100", "requests in the filter")


def a_second_crawl_downloads_nothing_although_the_server_was_killed(case):
    case.crawl(case.own()).stats()
    case.bloomsday.kill()
    case.bloomsday.start()
    stats = case.crawl(case.own()).stats()
    check(filtered_and_downloaded(stats), (110, 0), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")


def two_spiders_at_once_download_each_page_once(case):
    # Each has begun before either goes on. Lazily: otherwise the first may have queued every page by then.
    own = case.own({"CONCURRENT_REQUESTS": 4})
    for page in range(100):
        case.site.hold(f"/{page}")
    crawls = [case.crawl(own, lazily=True), case.crawl(own, reverse=True, lazily=True)]
    case.site.wait_for("/0")
    case.site.wait_for("/99")
    for page in range(100):
        case.site.release(f"/{page}")
    both = [filtered_and_downloaded(crawl.stats()) for crawl in crawls]
    check(tuple(map(sum, zip(*both))), (120, 100), f"filtered, downloaded of {both}")
    check(case.site.visits(), PAGES, "visits")
    assert all(downloaded for _, downloaded in both), f"one did nothing: {both}"


def a_crawl_that_is_stopped_goes_on_from_its_job_folder(case):
    own = case.own({"JOBDIR": case.folder(), **ONE_BY_ONE})
    case.site.hold("/40")
    first = case.crawl(own)
    case.site.wait_for("/40")
    first.stop()
    first.wait_for_log("SIGTERM")
    case.site.release("/40")
    stopped = first.stats()
    resumed = case.crawl(own).stats()
    check(stopped["finish_reason"], "shutdown", "finish_reason")
    downloaded = [filtered_and_downloaded(stats)[1] for stats in (stopped, resumed)]
    check(sum(downloaded), 100, f"downloaded of {downloaded}")
    assert all(downloaded), f"one did nothing: {downloaded}"
    check(case.site.visits(), PAGES, "visits")


def a_killed_crawl_goes_on_if_requests_do_not_wait_in_its_memory(case):
    case.site.hold("/40")
    first = case.crawl(case.own(ONE_BY_ONE), lazily=True)
    case.site.wait_for("/40")
    first.kill()
    case.site.release("/40")
    stats = case.crawl(case.own(ONE_BY_ONE), lazily=True).stats()
    _, downloaded = filtered_and_downloaded(stats)
    # The page that was under way was requested, and is not requested again.
    check(downloaded, 100 - 41, "downloaded")
    check(case.site.visits(), PAGES, "visits")


def a_crawl_goes_on_when_the_server_is_killed_and_starts_again(case):
    # After /9 comes /0 once more, which only the server remembers: it is not mistaken for one that
    # the server added before it was killed.
    case.site.hold("/9")
    crawl = case.crawl(case.own({"BLOOMSDAY_RECENT": 0, **ONE_BY_ONE}), lazily=True)
    case.site.wait_for("/9")
    case.bloomsday.kill()
    case.bloomsday.start()
    case.site.release("/9")
    stats = crawl.stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")
    check(stats.get("bloomsday/reconnects"), 1, "bloomsday/reconnects")
    check(stats.get("bloomsday/unseen_by_error"), None, "bloomsday/unseen_by_error")


def a_crawl_waits_for_a_server_that_starts_again(case):
    case.site.hold("/40")
    crawl = case.crawl(case.own({"BLOOMSDAY_TIMEOUT": 60, **ONE_BY_ONE}), lazily=True)
    case.site.wait_for("/40")
    case.bloomsday.kill()
    case.site.release("/40")
    crawl.wait_for_log("The crawl waits for up to 60 s")
    case.bloomsday.start()
    check(filtered_and_downloaded(crawl.stats()), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")


def a_server_that_is_gone_ends_the_crawl_with_the_reason(case):
    case.site.hold("/40")
    crawl = case.crawl(case.own({"BLOOMSDAY_TIMEOUT": 0.2, **ONE_BY_ONE}), lazily=True)
    case.site.wait_for("/40")
    case.bloomsday.kill()
    case.site.release("/40")
    stats = crawl.stats()
    check_ended_by_error(stats)
    visits = case.site.visits()
    # The request whose add failed counts as new, and may be made before the spider is closed.
    visits.pop("/41", None)
    check(visits, Counter(f"/{page}" for page in range(41)), "visits")
    remedy = (
        f"Start it with `bloomsday serve --resp 127.0.0.1:{case.bloomsday.port} --data-dir DIR`"
    )
    assert remedy in crawl.log(), crawl.log()


def a_crawl_that_ends_because_the_server_fails_loses_no_link_of_its_job_folder(case):
    # More links of one page than Scrapy works on at once.
    links = 600
    relay = case.close_later(Relay(case.bloomsday.port, loading=range(51, 10_000)))
    own = case.own({"JOBDIR": case.folder()})
    crawl = case.crawl({**own, "BLOOMSDAY_URL": relay.url, "BLOOMSDAY_TIMEOUT": 0.2}, links=links)
    check_ended_by_error(crawl.stats())
    check(crawl.log().count("The spider is closed because its duplicate filter fails"), 1, "lines")
    assert crawl.log().count("Traceback") == 0, crawl.log()
    check(case.crawl(own, links=links).stats()["finish_reason"], "finished", "finish_reason")
    check(set(case.site.visits()), {f"/{page}" for page in range(links + 1)}, "visited")


def a_crawl_that_never_runs_out_of_start_requests_ends_when_the_server_fails(case):
    relay = case.close_later(Relay(case.bloomsday.port, loading=range(51, 10_000)))
    own = case.own({"BLOOMSDAY_URL": relay.url, "BLOOMSDAY_TIMEOUT": 0.2})
    crawl = case.crawl(own, endlessly=True)
    check_ended_by_error(crawl.stats())
    check(crawl.log().count("The spider is closed because its duplicate filter fails"), 1, "lines")


def a_crawl_whose_server_fails_at_its_start_goes_on_from_its_job_folder(case):
    relay = case.close_later(Relay(case.bloomsday.port, loading=range(51, 10_000)))
    own = case.own({"JOBDIR": case.folder()})
    crawl = case.crawl({**own, "BLOOMSDAY_URL": relay.url, "BLOOMSDAY_TIMEOUT": 0.2})
    check_ended_by_error(crawl.stats())
    check(case.crawl(own).stats()["finish_reason"], "finished", "finish_reason")
    visits = case.site.visits()
    check(set(visits), set(PAGES), "visited")
    # Scrapy 2.12 does not say that a request is of the start: it is in the queue, and yielded again.
    assert visits.total() <= 101, visits


def a_server_without_memory_at_the_start_is_gone_on_without(case):
    server = case.close_later(Bloomsday(PROGRAM, ["--live-memory", "40KiB"]))
    server.call("BF.ADD", "other", "x")
    own = case.own({"BLOOMSDAY_URL": server.url})
    crawl = case.crawl(own)
    crawl.stats()
    assert "(remedy: raise --live-memory" in crawl.log(), crawl.log()
    check(case.site.visits(), Counter(), "visits")
    stats = case.crawl({**own, "BLOOMSDAY_ON_ERROR": "unseen"}).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")


def a_server_that_is_gone_from_the_start_is_named(case):
    case.bloomsday.kill()
    crawl = case.crawl(case.own({"BLOOMSDAY_TIMEOUT": 0.2}))
    crawl.stats()
    assert "Unavailable: no answer from Bloomsday at 127.0.0.1:" in crawl.log(), crawl.log()
    check(case.site.visits(), Counter(), "visits")


def without_a_server_unseen_downloads_all_and_filters_the_repeats_of_its_own(case):
    case.bloomsday.kill()
    stats = case.crawl(case.own({"BLOOMSDAY_ON_ERROR": "unseen"})).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    check(stats["bloomsday/unseen_by_error"], 100, "bloomsday/unseen_by_error")
    check(case.site.visits(), PAGES, "visits")


def unseen_uses_the_server_again_when_it_is_back(case):
    case.site.hold("/40")
    case.site.hold("/60")
    own = case.own({"BLOOMSDAY_ON_ERROR": "unseen", **ONE_BY_ONE})
    crawl = case.crawl(own, lazily=True, end_pause_at=60)
    case.site.wait_for("/40")
    case.bloomsday.kill()
    case.site.release("/40")
    case.site.wait_for("/60")
    case.bloomsday.start()
    case.site.release("/60")
    stats = crawl.stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    # From /41 to /60, and those that came before the answer was read, were not added.
    unseen = stats["bloomsday/unseen_by_error"]
    assert stats["pause"] <= 60, f"the pause lasts {stats['pause']} s"
    assert 20 <= unseen <= 25, unseen
    check(
        case.bloomsday.call("BF.CARD", "test:bloomfilter"), b":%d" % (100 - unseen), "in the filter"
    )


def a_lost_reply_loses_no_page(case):
    # The first reply is that to BLOOM.RESERVE.
    relay = case.close_later(Relay(case.bloomsday.port, lost=51))
    stats = case.crawl(case.own({"BLOOMSDAY_URL": relay.url})).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")
    check(stats["bloomsday/unseen_by_error"], 1, "bloomsday/unseen_by_error")


def a_crawl_waits_for_a_server_that_loads(case):
    relay = case.close_later(Relay(case.bloomsday.port, loading=(51, 52, 53)))
    crawl = case.crawl(case.own({"BLOOMSDAY_URL": relay.url, "BLOOMSDAY_TIMEOUT": 60}))
    stats = crawl.stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")
    check(stats.get("bloomsday/unseen_by_error"), None, "bloomsday/unseen_by_error")
    check(crawl.log().count("The crawl waits for up to 60 s"), 1, "lines about the wait")


def a_server_that_goes_on_loading_ends_the_crawl_with_the_reason(case):
    relay = case.close_later(Relay(case.bloomsday.port, loading=range(51, 10_000)))
    own = case.own({"BLOOMSDAY_URL": relay.url, "BLOOMSDAY_TIMEOUT": 0.2})
    crawl = case.crawl(own)
    check_ended_by_error(crawl.stats())
    assert "LOADING" in crawl.log() and "`last_error` in the server's /status" in crawl.log()
    assert relay.replies > 52, f"asked {relay.replies} times"


def while_a_server_loads_unseen_downloads_all(case):
    relay = case.close_later(Relay(case.bloomsday.port, loading=range(51, 10_000)))
    own = case.own({"BLOOMSDAY_URL": relay.url, "BLOOMSDAY_ON_ERROR": "unseen"})
    stats = case.crawl(own).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    assert stats["bloomsday/unseen_by_error"] > 0, stats


def a_lost_reply_is_remembered_while_the_server_loads(case):
    # 1 makes the filter, 2 adds, 3 makes it on the next connection, 4 and 5 add.
    relay = case.close_later(Relay(case.bloomsday.port, lost=2, loading=(4,)))
    connection = bloomsday_scrapy.Connection(relay.url, 60, 60, ["BLOOM.RESERVE", "r"])
    check(connection.call("BF.ADD", "r", "x"), (0, True), "not new, but it may have run")
    check((relay.replies, connection.reconnects), (5, 1), "requests, reconnects")
    connection.close()


def a_server_that_refuses_is_named_with_a_remedy(case):
    for text, remedy in (
        ("READONLY You can't write against a read only replica.", "another server decides"),
        ("LOADING the day's filter", "`last_error`"),
    ):
        assert f"(remedy: {remedy}" in str(bloomsday_scrapy.refusal(text)), text
    config = os.path.join(case.folder(), "bloomsday.toml")
    with open(config, "w") as file:
        file.write("[resp]\ncreate = false\n")
    server = case.close_later(Bloomsday(PROGRAM, ["--config", config]))
    crawl = case.crawl(case.own({"BLOOMSDAY_URL": server.url}))
    crawl.stats()
    assert "(remedy: name the filter in the server's bloomsday.toml)" in crawl.log(), crawl.log()
    check(case.site.visits(), Counter(), "visits")


def a_crawler_with_another_filter_is_told_what_to_set(_):
    crawler = Crawler(type("Pages", (Spider,), {"name": "test"}), {})
    try:
        bloomsday_scrapy.dupefilter_of(crawler)
        raise AssertionError("there is a filter")
    except bloomsday_scrapy.BloomsdayError as error:
        assert "set DUPEFILTER_CLASS" in str(error) and error.__context__ is None, error


def the_filter_for_scrapy_redis_serves_the_own_scheduler(case):
    own = case.own({"DUPEFILTER_CLASS": "bloomsday_scrapy.RedisDupeFilter"})
    check(filtered_and_downloaded(case.crawl(own).stats()), (10, 100), "filtered, downloaded")
    check(filtered_and_downloaded(case.crawl(own).stats()), (110, 0), "filtered, downloaded")


def a_page_that_failed_and_was_forgotten_is_requested_again(case):
    case.site.fail("/50")
    # The spider forgets it each time, and requests it again the first time.
    stats = case.crawl(case.own()).stats()
    check(filtered_and_downloaded(stats), (10, 101), "filtered, downloaded")
    case.site.mend("/50")
    stats = case.crawl(case.own()).stats()
    check(filtered_and_downloaded(stats), (109, 1), "filtered, downloaded")
    check(case.site.visits(), PAGES + Counter(["/50"] * 2), "visits")


def repeats_cost_a_round_trip_only_when_they_are_not_remembered(case):
    # Each relay counts one crawl: one request makes the filter.
    for recent, requests in ((0, 111), (1_000, 101)):
        relay = case.close_later(Relay(case.bloomsday.port))
        own = {
            "BLOOMSDAY_URL": relay.url,
            "BLOOMSDAY_RECENT": recent,
            "BLOOMSDAY_FILTER": f"r{recent}",
        }
        stats = case.crawl(case.own(own)).stats()
        check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
        check(relay.replies, requests, f"requests with BLOOMSDAY_RECENT = {recent}")


def a_password_and_a_database_are_used(case):
    file = os.path.join(case.folder(), "password")
    with open(file, "w") as password:
        password.write("se/cret")
    server = case.close_later(Bloomsday(PROGRAM, ["--live-token-file", file]))
    url = server.url.replace("//", "//:se%2Fcret@") + "/3"
    stats = case.crawl(case.own({"BLOOMSDAY_URL": url})).stats()
    check(filtered_and_downloaded(stats), (10, 100), "filtered, downloaded")
    for url in (server.url, server.url.replace("//", "//:other@")):
        crawl = case.crawl(case.own({"BLOOMSDAY_URL": url}))
        crawl.stats()
        assert "the password" in crawl.log() and "BLOOMSDAY_URL" in crawl.log(), crawl.log()
        assert (
            ":other@" not in crawl.log().split("Overridden settings")[0]
        ), "a password is in the log"


def a_filter_that_a_server_lost_is_made_again_so_that_it_forgets(case):
    reservation = ["BLOOM.RESERVE", "lost"]
    connection = bloomsday_scrapy.Connection(case.bloomsday.url, 5, 5, reservation)
    for number in (1, 2):
        check(connection.call("BF.ADD", "lost", "x"), (1, False), f"added, time {number}")
        check(connection.call("SREM", "lost", "x"), (1, False), f"forgotten, time {number}")
        # As after a restart without its data.
        case.bloomsday.call("DEL", "lost")
        connection.close()
    check(connection.call("BF.ADD", "lost", "y"), (1, False), "added")
    connection.replace_filter("lost")
    check(connection.call("BF.ADD", "lost", "y"), (1, False), "added to the new one")
    check(connection.call("SREM", "lost", "y"), (1, False), "forgotten by the new one")
    connection.close()


def a_filter_that_others_add_to_is_replaced_by_one_that_forgets(case):
    def connected():
        return bloomsday_scrapy.Connection(case.bloomsday.url, 5, 5, ["BLOOM.RESERVE", "busy"])

    is_over = threading.Event()

    def add():
        connection = connected()
        while not is_over.is_set():
            connection.call("BF.ADD", "busy", "x")
        connection.close()

    others = [threading.Thread(target=add) for _ in range(3)]
    for other in others:
        other.start()
    connection = connected()
    try:
        for time in range(300):
            connection.replace_filter("busy")
            connection.call("BF.ADD", "busy", "mine")
            check(connection.call("SREM", "busy", "mine"), (1, False), f"forgotten, time {time}")
    finally:
        is_over.set()
        for other in others:
            other.join()
        connection.close()


def a_crawler_is_not_kept_by_its_filter(case):
    crawler = idle_crawler(case.own())
    seen = bloomsday_scrapy.DupeFilter.from_crawler(crawler)
    assert bloomsday_scrapy.dupefilter_of(crawler) is seen
    seen.open()
    seen.close("finished")
    kept = weakref.ref(crawler)
    del crawler, seen
    gc.collect()
    assert kept() is None, "it is still there"


def a_forget_that_is_refused_leaves_adds_alone(case):
    # Redis clients make filters that take no `forget`.
    case.bloomsday.call("BF.ADD", "plain", "x")
    more = {"BLOOMSDAY_FILTER": "plain", "BLOOMSDAY_ON_ERROR": "unseen", "BLOOMSDAY_RECENT": 0}
    seen = bloomsday_scrapy.DupeFilter.from_crawler(idle_crawler(case.own(more)))
    seen.open()
    page = Request("http://localhost/1")
    check([seen.request_seen(page) for _ in range(2)], [False, True], "seen")
    check(seen.forget(page), False, "forgotten")
    check(seen.request_seen(page), True, "seen after that")
    seen.close("finished")


def wrong_settings_are_named_with_a_remedy(_):
    wrong = {
        "BLOOMSDAY_URL": [
            5,
            ["redis://localhost"],
            "rediss://localhost",
            "localhost:6380",
            "redis://h:port",
            "redis://h/16",
            "redis:",
        ],
        "BLOOMSDAY_ON_ERROR": ["ignore"],
        "BLOOMSDAY_FILTER": ["100%", "%(day)s", "%s", "\ud800"],
        "BLOOMSDAY_TIMEOUT": ["soon", 0, 601],
        "BLOOMSDAY_RECENT": [-1, 10_000_001, 1.5, float("inf")],
        "BLOOMFILTER_BIT": ["thirty", 0, 44],
    }
    settings = [{name: value} for name, values in wrong.items() for value in values]
    for one in [*settings, {"BLOOMFILTER_HASH_NUMBER": 0, "BLOOMFILTER_BIT": 30}]:
        name = next(iter(one))
        try:
            bloomsday_scrapy.DupeFilter.from_crawler(
                Crawler(type("Pages", (Spider,), {"name": "test"}), one)
            )
            raise AssertionError(f"{one} was accepted")
        except bloomsday_scrapy.BadSetting as error:
            assert str(error).startswith(name), f"{one}: {error}"
    try:
        bloomsday_scrapy.DupeFilter.from_spider(Spider("test"))
        raise AssertionError("the filter for Scrapy's own scheduler was made for another")
    except bloomsday_scrapy.BadSetting as error:
        assert "set bloomsday_scrapy.RedisDupeFilter" in str(error), error
    for url in ("redis://:pa/ss@host:6379", "redis://:12/ab@host:6379", "redis://:pa#ss@host"):
        try:
            bloomsday_scrapy.parse_url(url)
            raise AssertionError(f"{url} was accepted")
        except bloomsday_scrapy.BadSetting as error:
            parts = ("pa", "ss@", "ab@")
            assert not any(part in str(error).split(": give")[0] for part in parts), error


def the_settings_of_the_other_filter_set_the_capacity(case):
    own = case.own({"BLOOMFILTER_BIT": 20, "BLOOMFILTER_HASH_NUMBER": 4})
    check(filtered_and_downloaded(case.crawl(own).stats()), (10, 100), "filtered, downloaded")
    # A reply of one number.
    check(
        case.bloomsday.call("BF.INFO", "test:bloomfilter", "CAPACITY", lines=2)[1],
        b":262144",
        "capacity",
    )


def a_filter_of_another_kind_is_refused_with_a_remedy(case):
    case.bloomsday.call("CF.ADD", "test:bloomfilter", "x")
    crawl = case.crawl(case.own())
    check_ended_by_error(crawl.stats())
    assert (
        "WRONGTYPE" in crawl.log() and "choose another BLOOMSDAY_FILTER" in crawl.log()
    ), crawl.log()


def the_package_is_one_module_and_its_version(case):
    folder = case.folder()
    # A build writes into the folder of the sources.
    source = shutil.copytree(PACKAGE, os.path.join(folder, "source"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation"]
    subprocess.run([*build, "--no-deps", "--wheel-dir", folder, source], check=True)
    (wheel,) = (name for name in os.listdir(folder) if name.endswith(".whl"))
    check(wheel, f"bloomsday_scrapy-{bloomsday_scrapy.__version__}-py3-none-any.whl", "wheel")
    with zipfile.ZipFile(os.path.join(folder, wheel)) as files:
        modules = [name for name in files.namelist() if ".dist-info/" not in name]
    check(modules, ["bloomsday_scrapy.py"], "modules")


def redis_one_crawl_is_as_with_the_other_filter(case):
    """With either scheduler, and the same settings but for DUPEFILTER_CLASS."""
    schedulers = [
        "scrapy_redis.scheduler.Scheduler",
        "scrapy_redis_bloomfilter.scheduler.Scheduler",
    ]
    filters = [
        "scrapy_redis_bloomfilter.dupefilter.RFPDupeFilter",
        "bloomsday_scrapy.RedisDupeFilter",
    ]
    results = []
    for scheduler in schedulers:
        for dupefilter in filters:
            settings = {
                "SCHEDULER": scheduler,
                "DUPEFILTER_CLASS": dupefilter,
                "BLOOMFILTER_BIT": 24,
            }
            stats = case.crawl(case.shared(settings)).stats()
            results.append((stats["bloomfilter/filtered"], stats["downloader/response_count"]))
    check(results, [(10, 100)] * 4, "filtered, downloaded")
    # Each was cleared at its end: SCHEDULER_PERSIST is not set.
    check(case.site.visits(), Counter({page: 4 for page in PAGES}), "visits")
    check(case.bloomsday.call("BF.CARD", "test:bloomfilter"), b":0", "requests in the filter")


def redis_two_spiders_share_one_queue(case):
    shared = case.shared({"SCHEDULER_PERSIST": True, "CONCURRENT_REQUESTS": 4})
    for page in range(100):
        case.site.hold(f"/{page}")
    crawls = [case.crawl(shared), case.crawl(shared, reverse=True)]
    for crawl in crawls:
        crawl.wait_for_log("Spider opened")
    # Eight pages are under way: four of each spider.
    case.site.wait_for_sum(8)
    for page in range(100):
        case.site.release(f"/{page}")
    both = [filtered_and_downloaded(crawl.stats()) for crawl in crawls]
    check(tuple(map(sum, zip(*both))), (120, 100), f"filtered, downloaded of {both}")
    check(case.site.visits(), PAGES, "visits")
    assert all(downloaded for _, downloaded in both), f"one did nothing: {both}"


def redis_a_killed_crawl_goes_on(case):
    shared = case.shared({"SCHEDULER_PERSIST": True, **ONE_BY_ONE})
    case.site.hold("/40")
    first = case.crawl(shared)
    case.site.wait_for("/40")
    first.kill()
    case.site.release("/40")
    before = case.site.visits()
    stats = case.crawl(shared).stats()
    _, downloaded = filtered_and_downloaded(stats)
    check(downloaded, 100 - sum(before.values()), "downloaded")
    check(case.site.visits(), PAGES, "visits")


def redis_a_crawl_goes_on_when_the_server_is_killed_and_starts_again(case):
    case.site.hold("/40")
    crawl = case.crawl(case.shared(ONE_BY_ONE))
    case.site.wait_for("/40")
    case.bloomsday.kill()
    case.bloomsday.start()
    case.site.release("/40")
    check(filtered_and_downloaded(crawl.stats()), (10, 100), "filtered, downloaded")
    check(case.site.visits(), PAGES, "visits")


def main():
    cases = {name: function for name, function in globals().items() if is_case(function)}
    if not sys.argv[2:]:
        print("\n".join(cases))
        return
    for name in sys.argv[2:]:
        with ExitStack() as stack:
            cases[name](Scene(stack))
        print("passed", name, flush=True)


def is_case(function):
    """A case is a function of one scene."""
    code = getattr(function, "__code__", None)
    return (
        code is not None
        and code.co_filename == __file__
        and code.co_varnames[:1] in (("case",), ("_",))
    )


main()
