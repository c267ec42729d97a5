"""A local site that counts what it serves, and that can hold a page back."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# How long a page is held back or a visit is waited for: long, because machines are slow at times.
DEADLINE = 60


class Site:
    """Serves every path on a free port."""

    def __init__(self):
        self._lock = threading.Condition()
        self._visits = Counter()
        self._held = set()
        self._failing = set()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                status, body = site._visit(self.path), b"a page"
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    # The spider was killed.
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def hold(self, path):
        """Holds a page back until `release`."""
        with self._lock:
            self._held.add(path)

    def release(self, path):
        with self._lock:
            self._held.discard(path)
            self._lock.notify_all()

    def fail(self, path):
        """Answers 500 for a page until `mend`."""
        with self._lock:
            self._failing.add(path)

    def mend(self, path):
        with self._lock:
            self._failing.discard(path)

    def wait_for(self, path, visits=1):
        """Returns when a page was requested so often."""
        with self._lock:
            came = self._lock.wait_for(lambda: self._visits[path] >= visits, DEADLINE)
            assert came, f"{path} was not requested {visits} times in {DEADLINE} s: {self._visits}"

    def wait_for_sum(self, visits):
        """Returns when there were so many requests."""
        with self._lock:
            came = self._lock.wait_for(lambda: self._visits.total() >= visits, DEADLINE)
            assert came, f"there were not {visits} requests in {DEADLINE} s: {self._visits}"

    def visits(self):
        """How often each page was requested."""
        with self._lock:
            return Counter(self._visits)

    def _visit(self, path):
        with self._lock:
            self._visits[path] += 1
            self._lock.notify_all()
            self._lock.wait_for(lambda: path not in self._held, DEADLINE)
            return 500 if path in self._failing else 200

    def close(self):
        self._server.shutdown()
        self._server.server_close()
