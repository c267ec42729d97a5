"""DuckDB as a peer of a build: it scans the same column and hashes each ID, and keeps nothing.

It does what the lines on standard input say, and prints one line of numbers for each:

    python3 duck.py FOLDER COLUMN THREADS
      scan            reads and hashes every ID of the folder's Parquet   -> NANOS ROWS
"""

import sys
import time

import duckdb


def main():
    folder, column, threads = sys.argv[1:]
    connection = duckdb.connect(config={"threads": int(threads)})
    # The sum of the hashes uses every one of them.
    query = f'SELECT count(*), bit_xor(hash("{column}")) FROM read_parquet(?)'
    for line in sys.stdin:
        assert line.strip() == "scan", line
        start = time.perf_counter_ns()
        rows, _ = connection.execute(query, [f"{folder}/*.parquet"]).fetchone()
        print(time.perf_counter_ns() - start, rows, flush=True)


main()
