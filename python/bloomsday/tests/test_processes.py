"""Threads, forks and other processes."""

import concurrent.futures
import multiprocessing
import os
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import bloomsday

MANY = 2_000_000


@pytest.fixture(scope="module")
def many():
    return [f"{number:032x}" for number in range(MANY)]


@pytest.mark.parametrize("kind", ["arrow", "numpy", "list"])
def test_a_batch_releases_the_interpreters_lock(seen, many, kind):
    ids = {"arrow": pa.array, "numpy": lambda ids: np.array(ids, dtype="S"), "list": list}[kind](many)
    started, finished = threading.Event(), threading.Event()

    def look():
        started.set()
        seen.contains_batch(ids)
        finished.set()

    # Without a switch by force, this thread goes on only when the other one lets it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        thread = threading.Thread(target=look)
        thread.start()
        started.wait()
        went_on = not finished.is_set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert went_on


def test_threads_share_a_filter_and_a_list_that_changes(seen, published):
    wrong = []

    def look():
        for _ in range(20):
            if seen.contains_batch(published.ids) != published.answers:
                wrong.append("list")

    ids = list(published.ids)

    def look_at_what_changes():
        for _ in range(200):
            answers = seen.contains_batch(ids)
            if not answers[0]:
                wrong.append("changing list")

    threads = [threading.Thread(target=look) for _ in range(4)]
    threads += [threading.Thread(target=look_at_what_changes)]
    for thread in threads:
        thread.start()
    while threads[-1].is_alive():
        del ids[1:]
        ids.extend(published.ids)
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_answers(seen, published):
    seen.contains_batch(published.ids)
    child = os.fork()
    if child == 0:
        right = seen.contains_batch(published.ids) == published.answers
        right &= seen.contains_batch(pa.array([published.ids[0]])).to_pylist() == [True]
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def count_hits(seen: bloomsday.Filter, ids: list[bytes]) -> int:
    return sum(seen.contains_batch(ids))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_get_the_filter(seen, published, method):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        counts = list(pool.map(count_hits, [seen] * 4, [published.ids] * 4))
    assert counts == [sum(published.answers)] * 4
