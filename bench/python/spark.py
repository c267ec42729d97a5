"""Spark's own Bloom filter as a contestant: it does what the lines on standard input say, and prints
one line of numbers for each.

    python3 spark.py FOLDER COLUMN ROWS FPP THREADS
      build           builds a filter from the folder's Parquet   -> NANOS
      check SAMPLE    looks up IDs of the folder, and others      -> LOOKUPS LOST WRONG BITS
"""

import sys
import time

from pyspark.sql import SparkSession

# Spark would make a filter of no more bits than these, whatever the size, and fill it up.
ANY_NUMBER = str(2**36)


def session(threads):
    """Spark with as many threads as the others, on this machine."""
    return (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.driver.memory", "6g")
        .config("spark.driver.maxResultSize", "0")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.optimizer.runtime.bloomFilter.maxNumBits", ANY_NUMBER)
        .config("spark.sql.optimizer.runtime.bloomFilter.maxNumItems", ANY_NUMBER)
        .getOrCreate()
    )


def main():
    folder, column, rows, fpp, threads = sys.argv[1:]
    spark = session(threads)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(folder)
    # Python has no name for it; the work is the virtual machine's either way.
    stat = frame._jdf.stat()
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "build":
            start = time.perf_counter_ns()
            made = stat.bloomFilter(column, int(rows), float(fpp))
            answer = [time.perf_counter_ns() - start]
        else:
            sample = int(numbers[0])
            known = [row[0] for row in frame.select(column).limit(sample).collect()]
            lost = sum(not made.mightContainString(text) for text in known)
            wrong = sum(made.mightContainString(f"absent-{i}") for i in range(sample))
            answer = [sample, lost, wrong, made.bitSize()]
        print(*answer, flush=True)


if __name__ == "__main__":
    main()
