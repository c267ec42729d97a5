"""What crawls need, each started for one test: Bloomsday, Redis, a relay that is no help."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

DEADLINE = 60


class Bloomsday:
    """`bloomsday serve --resp` on a free port, with its data in a folder of its own."""

    def __init__(self, program, more=()):
        self._program, self._more = program, list(more)
        self._folder = tempfile.mkdtemp()
        self._address = "127.0.0.1:0"
        self._process = None
        self.start()

    def start(self):
        """Starts it where it was before."""
        words = [
            "serve",
            "--json",
            "--resp",
            self._address,
            "--data-dir",
            self._folder,
            *self._more,
        ]
        self._process = subprocess.Popen([self._program, *words], stdout=subprocess.PIPE)
        line = self._process.stdout.readline()
        assert line, "the server ended before it listened"
        self._address = json.loads(line)["resp"]

    @property
    def port(self):
        return int(self._address.rsplit(":", 1)[1])

    @property
    def url(self):
        return f"redis://{self._address}"

    def kill(self):
        self._process.kill()
        self._process.wait()

    def call(self, *words, lines=None):
        """One request; the reply's first line, or its first lines."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE) as stream:
            words = [str(word).encode() for word in words]
            request = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
            stream.sendall(b"*%d\r\n%b" % (len(words), request))
            reply = stream.makefile("rb")
            if lines is None:
                return reply.readline().rstrip()
            return [reply.readline().rstrip() for _ in range(lines)]

    def close(self):
        self.kill()
        shutil.rmtree(self._folder)


class Redis:
    """A real Redis on a free port, which keeps nothing on the disk."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = tempfile.mkdtemp()
        words = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            self._folder,
        ]
        self._process = subprocess.Popen(["redis-server", *words], stdout=subprocess.PIPE)
        ready = any(b"Ready to accept connections" in line for line in self._process.stdout)
        assert ready, f"redis-server did not start on port {self.port}"
        threading.Thread(target=lambda: list(self._process.stdout), daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def close(self):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)


# What a server says before the day's filter is loaded.
LOADING = b"-LOADING the day's filter and its live IDs are not loaded yet\r\n"


class Relay:
    """Passes requests on to a server. Closes the connection in place of the reply number `lost`,
    and answers `LOADING` by itself to the requests whose numbers are in `loading`."""

    def __init__(self, port, lost=None, loading=()):
        self._to, self._lost, self._loading, self.replies = port, lost, loading, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        # One request of this client has one reply, and both come in one piece.
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            while request := client.recv(65_536):
                self.replies += 1
                if self.replies in self._loading:
                    client.sendall(LOADING)
                    continue
                server.sendall(request)
                reply = server.recv(65_536)
                if self.replies == self._lost:
                    return
                client.sendall(reply)

    def close(self):
        self._listener.close()


class Crawl:
    """A crawl in a process of its own: spider.py with the Python that runs this."""

    def __init__(self, python, site, settings, **arguments):
        here = os.path.dirname(os.path.abspath(__file__))
        package = os.path.join(here, "../../../python/scrapy")
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, os.path.join(here, "spider.py"), json.dumps([site, settings, arguments])],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def stats(self):
        """Scrapy's numbers at its end."""
        output, _ = self._process.communicate(timeout=DEADLINE)
        assert self._process.returncode == 0, f"{output}\n{self.log()}"
        return json.loads(output.splitlines()[-1])

    def log(self):
        """All that it logged; empty lines of a traceback included."""
        self._log.seek(0)
        return self._log.read()

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        """As an operator does: Scrapy finishes what it downloads and keeps its queue."""
        self._process.send_signal(signal.SIGTERM)

    def wait_for_log(self, text):
        """Returns when it has logged this."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.log():
            assert self._process.poll() is None, f"it ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{text!r} was not logged:\n{self.log()}"
            time.sleep(0.01)
