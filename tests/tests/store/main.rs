//! What is in a store and who writes it: formats, pointers, races, prune; and every kind of store.

mod azure;
mod format;
mod gcs;
mod guava;
mod hdfs;
mod http;
mod pointers;
mod policies;
mod promises;
mod prune;
mod races;
mod redis;
mod spark_files;
