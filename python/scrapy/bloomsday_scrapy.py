"""Duplicate filters for Scrapy that many spiders share and that a restart keeps.

`DupeFilter` is for Scrapy's own scheduler, `RedisDupeFilter` for those of scrapy-redis and
scrapy-redis-bloomfilter. Both keep the fingerprints of requests in a live filter of
`bloomsday serve --resp`, and speak Redis's protocol to it on one socket.
"""

import logging
import selectors
import socket
import time
from collections import OrderedDict
from urllib.parse import unquote, urlsplit

from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.defer import deferred_from_coro

__all__ = [
    "BadSetting",
    "BloomsdayError",
    "DupeFilter",
    "RedisDupeFilter",
    "Refused",
    "Unavailable",
    "dupefilter_of",
]
__version__ = "0.1.0"

logger = logging.getLogger(__name__)

DEFAULT_URL = "redis://127.0.0.1:6380"
DEFAULT_PORT = 6380
# As scrapy-redis-bloomfilter names it.
DEFAULT_FILTER = "%(spider)s:bloomfilter"
DEFAULT_HASH_NUMBER = 6
# A request waits for its answer, and the crawl with it.
DEFAULT_TIMEOUT = 5.0
MAX_TIMEOUT = 600.0
# The bytes that the server takes.
MAX_FINGERPRINT_BYTES = 1024
# How many fingerprints a process remembers, so that repeats cost no round trip.
DEFAULT_RECENT = 100_000
MAX_RECENT = 10_000_000
# 2^BLOOMFILTER_BIT bits, at most: 1 TiB.
MAX_BIT = 43
MAX_HASH_NUMBER = 64
# The longest text of an error that is read.
MAX_LINE_BYTES = 64 * 1024
# The pause between two attempts to connect, and between two requests to a server that loads.
RETRY_PAUSE = 0.05
# How many times a filter is deleted and reserved again while others add to it.
MAX_REPLACEMENTS = 100
# How long BLOOMSDAY_ON_ERROR = "unseen" leaves a server alone that failed: doubled each time.
MIN_PAUSE, MAX_PAUSE = 1.0, 60.0
# The reason with which a spider is closed.
CLOSE_REASON = "bloomsday_error"
# Where a crawler has its filter: both go when nobody has the crawler any more.
FILTER_ATTRIBUTE = "_bloomsday_filter"


class BloomsdayError(Exception):
    """What goes wrong in this module."""


class BadSetting(BloomsdayError):
    """A setting that cannot be used."""


class Unavailable(BloomsdayError):
    """There is no connection, or it broke."""


class Refused(BloomsdayError):
    """The server answered with an error."""


class NotNow(Refused):
    """The server takes no change at present."""


class Loading(NotNow):
    """The server does not know yet what is new: the same request is answered later."""


class Connection:
    """One connection to a server, opened when it is needed and again when it was lost.

    Not for several threads: Scrapy looks up every request on the thread of its reactor.
    """

    def __init__(self, url, timeout, patience, reservation):
        """`patience`: for how many seconds connecting is tried again, and so is a request to a
        server that loads. `reservation`: the request that makes the filter, on each connection: a
        server that was restarted may have lost it.
        """
        self.host, self.port, self.database, self._login = parse_url(url)
        self._reservation = reservation
        self.timeout, self.patience = timeout, patience
        self.reconnects = 0
        self._socket = self._file = self._selector = None

    def call(self, *words):
        """Sends one request, a second time when the connection breaks, and again while the server
        loads. Returns the reply, and whether the server may have run the request twice."""
        request = encode(words)
        may_have_run = is_logged = False
        deadline = time.monotonic() + self.patience
        if self._socket is not None and self._selector.select(0):
            # It was closed while nothing was sent, as a restarted server does.
            self.close()
            self.reconnects += 1
        while True:
            self.connect()
            try:
                self._socket.sendall(request)
                return self._reply(), may_have_run
            except OSError as error:
                self.close()
                if may_have_run:
                    raise self._unavailable(error) from error
                self.reconnects += 1
                may_have_run = True
            except Loading as error:
                if time.monotonic() >= deadline:
                    raise
                if not is_logged:
                    self._log_wait(error)
                    is_logged = True
                time.sleep(RETRY_PAUSE)

    def replace_filter(self, key):
        """Deletes the filter and reserves it again. When another spider's add comes in between, it
        makes a filter of another kind, which takes no `forget`: then both are done again.
        """
        # A connection that was idle may be broken.
        self.close()
        self.connect()
        try:
            for _ in range(MAX_REPLACEMENTS):
                self._socket.sendall(encode(("DEL", key)) + encode(self._reservation))
                self._reply()
                if self._reserved():
                    return
        except OSError as error:
            self.close()
            raise self._unavailable(error) from error
        except Refused:
            # A reply that was not read would be taken for that of a later request.
            self.close()
            raise
        raise Refused(f"other spiders make {key!r} again as soon as it is deleted")

    def close(self):
        for part in (self._selector, self._file, self._socket):
            if part is not None:
                part.close()
        self._socket = self._file = self._selector = None

    def connect(self):
        """Connects, logs in and reserves the filter, unless that is done."""
        if self._socket is not None:
            return
        deadline = time.monotonic() + self.patience
        is_logged = False
        while True:
            try:
                self._socket = socket.create_connection((self.host, self.port), self.timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._file = self._socket.makefile("rb")
                self._selector = selectors.DefaultSelector()
                self._selector.register(self._socket, selectors.EVENT_READ)
                for words in self._login:
                    self._socket.sendall(encode(words))
                    self._reply()
                self._socket.sendall(encode(self._reservation))
                self._reserved()
                return
            except OSError as error:
                self.close()
                # A server that restarts is not there for a moment.
                if time.monotonic() >= deadline:
                    raise self._unavailable(error) from error
                if not is_logged:
                    self._log_wait(self._unavailable(error))
                    is_logged = True
                time.sleep(RETRY_PAUSE)
            except Refused:
                self.close()
                raise

    def _reserved(self):
        """Whether the reservation made a filter: false if there was one."""
        try:
            self._reply()
        except Refused as error:
            if "item exists" not in str(error):
                raise
            return False
        return True

    def _log_wait(self, why):
        logger.warning("%s. The crawl waits for up to %g s", why, self.patience)

    def _unavailable(self, error):
        return Unavailable(
            f"no answer from Bloomsday at {self.host}:{self.port}: {error}. Start it with"
            f" `bloomsday serve --resp {self.host}:{self.port} --data-dir DIR`, or correct"
            " BLOOMSDAY_URL"
        )

    def _reply(self):
        line = self._file.readline(MAX_LINE_BYTES)
        kind, text = line[:1], line[1:-2]
        if not line.endswith(b"\r\n"):
            raise ConnectionError("it closed the connection")
        if kind in (b":", b"*") and not text.isdigit():
            raise ConnectionError(f"it answered {line[:40]!r}, which is no number")
        if kind == b":":
            return int(text)
        if kind == b"+":
            return text
        if kind == b"*":
            return [self._reply() for _ in range(int(text))]
        if kind == b"-":
            raise refusal(text.decode("utf-8", "replace"))
        raise ConnectionError(
            f"it answered {line[:40]!r}, which Bloomsday does not: which server is that?"
        )


def encode(words):
    """A request on the wire."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


# What to do about an error of the server, by how it begins.
REMEDIES = {
    "OOM": "raise --live-memory of the server, or delete a filter",
    "ERR Insufficient memory": "raise --live-memory of the server, or delete a filter",
    "ERR there are": "delete a filter",
    "ERR there is no filter of this name": "name the filter in the server's bloomsday.toml",
    "LOADING": "`last_error` in the server's /status says what it waits for",
    "READONLY": "another server decides: name it in BLOOMSDAY_URL",
    "MISCONF": "free or replace the server's disk",
    "NOAUTH": "put the password into BLOOMSDAY_URL: redis://:PASSWORD@HOST:PORT",
    "WRONGPASS": "correct the password in BLOOMSDAY_URL",
    "ERR AUTH": "the server has no password: take it out of BLOOMSDAY_URL",
    "ERR this address speaks TLS": "this package does not: use an address without TLS, or a tunnel",
    "ERR non scaling filter is full": "choose another BLOOMSDAY_FILTER, or delete it",
    "ERR a key has at most": "choose a shorter BLOOMSDAY_FILTER",
    "WRONGTYPE": "other commands made that filter: choose another BLOOMSDAY_FILTER, or delete it",
    "ERR unknown command": "this is not Bloomsday: correct BLOOMSDAY_URL",
}


# How errors begin that end by themselves, or that somebody ends while the crawl goes on.
NOT_NOW = ("OOM", "ERR Insufficient memory", "ERR there are", "MISCONF", "READONLY")


def refusal(text):
    """The exception for an error of the server."""
    remedies = (remedy for start, remedy in REMEDIES.items() if text.startswith(start))
    remedy = next(remedies, None)
    message = f"Bloomsday answered {text}" + (f" (remedy: {remedy})" if remedy else "")
    if text.startswith("LOADING"):
        return Loading(message)
    return NotNow(message) if text.startswith(NOT_NOW) else Refused(message)


def parse_url(url):
    """The host, the port, the database and the requests that a connection begins with."""
    example = "give it as redis://HOST:PORT, with a password as redis://:PASSWORD@HOST:PORT"
    if not isinstance(url, str):
        raise BadSetting(f"BLOOMSDAY_URL = {url!r} is not the address of a server: {example}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
        database = int(parts.path.strip("/") or 0)
    except ValueError:
        # Without the URL, and without the error, which has parts of it: it may have a password.
        raise BadSetting(
            f"BLOOMSDAY_URL cannot be read: {example}; in a password, write / as %2F, # as %23,"
            " ? as %3F and @ as %40"
        ) from None
    if parts.scheme == "rediss":
        raise BadSetting(
            "BLOOMSDAY_URL begins with rediss://, but this package does not speak TLS: use"
            " redis:// on the same machine, or a tunnel"
        )
    if parts.scheme != "redis" or not host or not 0 <= database <= 15:
        raise BadSetting(
            f"BLOOMSDAY_URL is not the address of a server: {example}, database 0 to 15"
        )
    login = []
    if parts.password:
        user = [unquote(parts.username)] if parts.username else []
        login.append(("AUTH", *user, unquote(parts.password)))
    if database:
        login.append(("SELECT", database))
    return host, port, database, login


def number(settings, name, default, least, most, kind=int):
    """A number of the settings, within its limits."""
    given = settings.get(name, default)
    try:
        value = kind(given)
        # Python's int() cuts a fraction off.
        value = None if isinstance(given, float) and value != given else value
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None or not least <= value <= most:
        kinds = {int: "whole number", float: "number"}
        raise BadSetting(f"{name} = {given!r} is not a {kinds[kind]} from {least} to {most}")
    return value


class Recent:
    """The last fingerprints of this process: those beyond a number are forgotten, oldest first."""

    def __init__(self, most):
        self._most = most
        self._known = OrderedDict()

    def __contains__(self, fingerprint):
        return fingerprint in self._known

    def add(self, fingerprint):
        if self._most == 0:
            return
        self._known[fingerprint] = None
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def discard(self, fingerprint):
        self._known.pop(fingerprint, None)

    def clear(self):
        self._known.clear()


def dupefilter_of(crawler):
    """The filter that this crawler uses."""
    found = getattr(crawler, FILTER_ATTRIBUTE, None)
    if found is None:
        raise BloomsdayError(
            "this crawler has no duplicate filter of bloomsday_scrapy: set DUPEFILTER_CLASS"
        )
    return found


class DupeFilter(BaseDupeFilter):
    """A duplicate filter for Scrapy's own scheduler."""

    def __init__(self, crawler, spider_name):
        settings = crawler.settings
        self.crawler = crawler
        self.debug = settings.getbool("DUPEFILTER_DEBUG")
        self.logdupes = True
        self.key = filter_name(settings, spider_name)
        self.capacity = capacity(settings)
        on_error = settings.get("BLOOMSDAY_ON_ERROR", "raise")
        if on_error not in ("raise", "unseen"):
            raise BadSetting(f'BLOOMSDAY_ON_ERROR = {on_error!r} is neither "raise" nor "unseen"')
        self._raises = on_error == "raise"
        timeout = number(settings, "BLOOMSDAY_TIMEOUT", DEFAULT_TIMEOUT, 0.001, MAX_TIMEOUT, float)
        url = settings.get("BLOOMSDAY_URL", DEFAULT_URL)
        # Only a filter that is made so takes `forget`.
        self._reservation = ["BLOOM.RESERVE", self.key]
        if self.capacity:
            self._reservation += ["CAPACITY", self.capacity]
        patience = timeout if self._raises else 0
        self.connection = Connection(url, timeout, patience, self._reservation)
        self.recent = Recent(number(settings, "BLOOMSDAY_RECENT", DEFAULT_RECENT, 0, MAX_RECENT))
        # With "unseen": how long the server is left alone, and until when.
        self._pause, self._paused_until = 0.0, 0.0
        # With "raise": whether the spider is being closed because this filter failed.
        self._is_ending = False
        setattr(crawler, FILTER_ATTRIBUTE, self)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler, crawler.spider.name if crawler.spider else crawler.spidercls.name)

    @classmethod
    def from_spider(cls, spider):
        raise BadSetting(
            f"DUPEFILTER_CLASS is {cls.__name__}, which is for Scrapy's own scheduler: with those of"
            " scrapy-redis, set bloomsday_scrapy.RedisDupeFilter"
        )

    def open(self):
        """Makes the filter if there is none: a wrong address or password ends the crawl here."""
        try:
            self.connection.connect()
        except (Unavailable, NotNow) as error:
            if self._raises:
                raise
            self._note_failure(error)

    def close(self, reason):
        """Closes the connection. The fingerprints stay, for other spiders and the next run."""
        self.connection.close()

    def request_seen(self, request):
        """Whether this request was seen before; from now on it was.

        Of any number of spiders that see a new request, one gets False.
        """
        fingerprint = self._fingerprint(request)
        if fingerprint in self.recent:
            return True
        is_new = self._add(fingerprint, request)
        self.recent.add(fingerprint)
        return not is_new

    def forget(self, request):
        """Takes a request out of the filter, so that it can be made again: for a page that failed.

        Returns whether it was there, or may have been: if the connection broke, the first attempt may
        have taken it out. With BLOOMSDAY_ON_ERROR = "unseen" it stays in the filter while
        the server is away, and counts as `bloomsday/not_forgotten`. Other processes that saw it
        remember it for as long as it is one of their last BLOOMSDAY_RECENT.
        """
        fingerprint = self._fingerprint(request)
        self.recent.discard(fingerprint)
        if self._is_ending or time.monotonic() < self._paused_until:
            self._count("bloomsday/not_forgotten")
            return False
        try:
            deleted, may_have_run = self._call("SREM", self.key, fingerprint)
        except BloomsdayError as error:
            if self._raises:
                raise
            if isinstance(error, Refused):
                # The server is there, and adds go on.
                logger.error("%s is not forgotten: %s", request, error)
            else:
                self._note_failure(error)
            self._count("bloomsday/not_forgotten")
            return False
        return bool(deleted) or may_have_run

    def clear(self):
        """Deletes the filter."""
        self.recent.clear()
        try:
            self.connection.replace_filter(self.key)
        except BloomsdayError as error:
            if self._raises and not self._is_ending:
                raise
            if self._is_ending or isinstance(error, Refused):
                # The error of the end is known; or the server is there, and adds go on.
                logger.error("the filter is not cleared: %s", error)
            else:
                self._note_failure(error)

    def log(self, request, spider):
        """Logs and counts a request that was filtered."""
        if self.debug:
            logger.debug("Filtered duplicate request: %s", request, extra={"spider": spider})
        elif self.logdupes:
            logger.debug(
                "Filtered duplicate request: %s - no more duplicates will be shown"
                " (see DUPEFILTER_DEBUG to show all duplicates)",
                request,
                extra={"spider": spider},
            )
            self.logdupes = False
        # The names of Scrapy and of scrapy-redis-bloomfilter.
        self._count("dupefilter/filtered")
        self._count("bloomfilter/filtered")

    def request_fingerprint(self, request):
        """The bytes or the text by which a request is known: by REQUEST_FINGERPRINTER_CLASS."""
        return self.crawler.request_fingerprinter.fingerprint(request)

    def _fingerprint(self, request):
        fingerprint = self.request_fingerprint(request)
        if isinstance(fingerprint, str):
            fingerprint = fingerprint.encode()
        if not 1 <= len(fingerprint) <= MAX_FINGERPRINT_BYTES:
            raise BloomsdayError(
                f"the fingerprint of {request} has {len(fingerprint)} bytes, not 1 to"
                f" {MAX_FINGERPRINT_BYTES}: correct REQUEST_FINGERPRINTER_CLASS"
            )
        return fingerprint

    def _add(self, fingerprint, request):
        """Whether a fingerprint is new."""
        if self._is_ending and is_start_request(request):
            raise BloomsdayError("the spider is closed because its duplicate filter failed")
        if self._is_ending or time.monotonic() < self._paused_until:
            self._count("bloomsday/unseen_by_error")
            return True
        try:
            is_new, may_have_run = self._call("BF.ADD", self.key, fingerprint)
            self._pause = 0.0
        except BloomsdayError as error:
            if not self._raises:
                self._note_failure(error)
            elif not self._end_crawl(error):
                raise
            self._count("bloomsday/unseen_by_error")
            return True
        if may_have_run and not is_new:
            # Perhaps the first attempt added it. Better a page twice than a page never.
            self._count("bloomsday/unseen_by_error")
            return True
        return bool(is_new)

    def _call(self, *words):
        """As the connection's `call`, and counts how often it was made again."""
        before = self.connection.reconnects
        try:
            return self.connection.call(*words)
        finally:
            for _ in range(self.connection.reconnects - before):
                self._count("bloomsday/reconnects")

    def _note_failure(self, error):
        self._pause = min(max(2 * self._pause, MIN_PAUSE), MAX_PAUSE)
        self._paused_until = time.monotonic() + self._pause
        logger.error(
            "%s. Requests count as unseen (BLOOMSDAY_ON_ERROR); the next attempt is in %d s",
            error,
            self._pause,
        )

    def _end_crawl(self, error):
        """Closes the spider. Returns whether one runs.

        Nothing is raised then: Scrapy would go on, and would lose the request. From now on requests
        count as new without a word to the server, so that what the last pages link to is in the
        queue, which a JOBDIR keeps. Only the next request of `start()` raises: that ends it, and the
        next crawl runs it again.
        """
        engine = self.crawler.engine
        if engine is None or engine.spider is None:
            return False
        self._is_ending = True
        self._count("bloomsday/errors")
        logger.error(
            "%s. The spider is closed because its duplicate filter fails (BLOOMSDAY_ON_ERROR)", error
        )
        call_soon(lambda: close_spider(engine))
        return True

    def _count(self, name):
        self.crawler.stats.inc_value(name)


class RedisDupeFilter(DupeFilter):
    """A duplicate filter for the schedulers of scrapy-redis and scrapy-redis-bloomfilter.

    They make it by `from_spider`, and clear it at the end unless SCHEDULER_PERSIST is set. Scrapy's
    own scheduler makes it by `from_crawler`, and then it is a `DupeFilter`.
    """

    @classmethod
    def from_spider(cls, spider):
        made = cls(spider.crawler, spider.name)
        # These schedulers do not call it.
        made.open()
        return made


def is_start_request(request):
    """Whether `start()` yielded this request. Scrapy 2.12 does not say so, and needs not to know."""
    # What a page or a redirect leads to may have the `meta` of that request.
    is_later = "depth" in request.meta or "redirect_times" in request.meta
    return bool(request.meta.get("is_start_request")) and not is_later


def call_soon(call):
    """Calls something when what runs now has ended: that may be the engine, which is in use."""
    try:
        from scrapy.utils.asyncio import call_later
    except ImportError:
        # Of Scrapy 2.12.
        from twisted.internet import reactor

        reactor.callLater(0, call)
    else:
        call_later(0, call)


def close_spider(engine):
    if engine.spider is None:
        # Something else has closed it.
        return
    if hasattr(engine, "close_spider_async"):
        deferred_from_coro(engine.close_spider_async(reason=CLOSE_REASON))
    else:
        engine.close_spider(engine.spider, CLOSE_REASON)


def filter_name(settings, spider_name):
    """The name of the filter on the server."""
    given = (
        settings.get("BLOOMSDAY_FILTER")
        or settings.get("SCHEDULER_DUPEFILTER_KEY")
        or DEFAULT_FILTER
    )
    if not isinstance(given, str):
        raise BadSetting(f"BLOOMSDAY_FILTER = {given!r} is no name: write it in quotes")
    if any("\ud800" <= character <= "\udfff" for character in given + spider_name):
        raise BadSetting(f"BLOOMSDAY_FILTER = {given!r} is no name: it is not of Unicode characters")
    if "%" in given.replace("%%", "").replace("%(spider)s", ""):
        raise BadSetting(
            f"BLOOMSDAY_FILTER = {given!r} is no name: only %(spider)s is replaced, and a percent"
            " sign is written %%"
        )
    return given % {"spider": spider_name}


def capacity(settings):
    """How many requests the filter is made for, or None: it grows by itself.

    From the two settings of scrapy-redis-bloomfilter, whose filter is full at 2^bit / hash_number.
    """
    if settings.get("BLOOMFILTER_BIT") is None:
        return None
    bit = number(settings, "BLOOMFILTER_BIT", None, 1, MAX_BIT)
    hash_number = number(
        settings, "BLOOMFILTER_HASH_NUMBER", DEFAULT_HASH_NUMBER, 1, MAX_HASH_NUMBER
    )
    return max(2**bit // hash_number, 1)
