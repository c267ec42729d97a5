"""Moto's S3, with its arguments. Conditional writes come one after the other.

Moto compares the version and writes in two steps, between which another write may come; S3 has one.
"""

import io
import threading

from moto import server

WRITES = threading.Lock()
CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def with_one_write_at_a_time(app):
    def serve(environ, start_response):
        is_write = environ["REQUEST_METHOD"] in ("PUT", "POST")
        if not is_write or not any(name in environ for name in CONDITIONS):
            return app(environ, start_response)
        # Before the lock: a client may stop in the middle of a body.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        with WRITES:
            return app(environ, start_response)

    return serve


if __name__ == "__main__":
    run_simple = server.run_simple
    server.run_simple = lambda host, port, app, **more: run_simple(
        host, port, with_one_write_at_a_time(app), **more
    )
    server.main()
