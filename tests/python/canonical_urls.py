"""The canonical form of each URL on stdin, one a line, by w3lib."""

import sys

from w3lib.url import canonicalize_url

for line in sys.stdin.buffer.read().decode().split("\n"):
    sys.stdout.write(canonicalize_url(line) + "\n")
