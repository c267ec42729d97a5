"""A driver that builds a day from files and does nothing else, for tests that kill it: FILES STORE DAY."""

import sys

from pyspark.sql import SparkSession

import bloomsday.spark

if __name__ == "__main__":
    files, store, day = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    bloomsday.spark.build(input=files, column="id", spark=spark, filter="rt", day=day, store=store, ranges=4)
