"""A server in Python follows the store that the program writes."""

import collections
import gc
import os
import pathlib
import signal
import sys
import threading
import time
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_build import TODAY, YESTERDAY, program, users  # noqa: F401 (a fixture)

import bloomsday


@pytest.fixture
def store(users, tmp_path):  # noqa: F811
    """A store in which yesterday has the users 0 to 4,999."""
    place = tmp_path / "store"
    bloomsday.build(place, "rt", YESTERDAY, users(0, 5_000), "id", fpp=1e-6)
    return place


def test_a_server_follows_the_store(users, store, tmp_path):  # noqa: F811
    config = {"store": str(store), "filters": ["rt"], "cache_dir": tmp_path / "cache"}
    with bloomsday.Server(**config) as server:
        seen = server.filter("rt")
        assert seen.is_loaded() and server.is_ready() and seen.name == "rt"
        assert "user-7" in seen and "user-6000" not in seen
        ids = [f"user-{n}" for n in range(4_000, 6_000)]
        assert seen.contains_batch(ids) == [True] * 1_000 + [False] * 1_000
        assert seen.contains_batch(pa.array(ids)).to_pylist() == [True] * 1_000 + [False] * 1_000
        status = server.status()["rt"]
        assert (status["state"], status["day"]) == ("ok", YESTERDAY.isoformat())
        assert status["hits"] >= 2_001 and seen.status()["digest"] == status["digest"]

        assert server.reload()[0]["outcome"] == "unchanged"
        words = ["--day", TODAY, "--input", users(0, 6_000), "--column", "id", "--fpp", "1e-6"]
        program("build", "rt", "--store", store, *words)
        [reloaded] = server.reload("rt")
        assert (reloaded["outcome"], reloaded["old"]) == ("swapped", status["digest"])
        assert "user-5999" in seen and server.status()["rt"]["day"] == TODAY.isoformat()

        # A rollback by the program arrives, too.
        program("repoint", "rt", TODAY, "--to", YESTERDAY, "--store", store)
        assert server.reload()[0]["new"] == status["digest"] and "user-5999" not in seen
    assert "user-7" in seen and "user-5999" not in seen
    with pytest.raises(bloomsday.ServerError, match="not started"):
        server.reload()
    assert (tmp_path / "cache").is_dir() and not server.is_ready()


def reloaded(server):
    """The outcome of a reload. On a busy machine a thread may be stopped in a lookup and keep the filter before
    the last one: then no third is loaded, and a later reload succeeds."""
    deadline = time.monotonic() + 60
    while True:
        (report,) = server.reload()
        if report["outcome"] != "failed":
            return report["outcome"]
        assert "still kept by readers" in report["reason"] and time.monotonic() < deadline, report


def test_lookups_go_on_while_filters_are_swapped(users, store):  # noqa: F811
    for first, last in [(0, 5_100), (0, 5_200)]:
        bloomsday.build(store, "rt", TODAY, users(first, last), "id", fpp=1e-6)
    blobs = sorted(blob.name for blob in (store / "rt/blobs").glob(f"{TODAY}-*"))
    wrong, done = [], threading.Event()
    with bloomsday.Server(str(store), "rt") as server:
        seen = server.filter("rt")
        ids = pa.array([f"user-{n}" for n in range(5_000)])

        def look():
            while not done.is_set():
                if not all(seen.contains_batch(ids).to_pylist()) or "user-4999" not in seen:
                    wrong.append(server.status())

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        swapped = 0
        for turn in range(20):
            (store / f"rt/pointers/{TODAY}").write_text(f"rt/blobs/{blobs[turn % 2]}\n")
            swapped += reloaded(server) == "swapped"
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == [] and swapped >= 19


def test_a_server_without_a_filter_says_so(tmp_path):
    (tmp_path / "empty").mkdir()
    server = bloomsday.Server(tmp_path / "empty", ["rt"], start_deadline=0.3)
    with pytest.raises(bloomsday.NotReadyError, match="rt") as error:
        server.start()
    assert error.value.is_transient and isinstance(error.value, TimeoutError)
    with pytest.raises(bloomsday.UsageError, match="needs wait=False"):
        server.start(answer_until_loaded=True)
    server.start(wait=False, answer_until_loaded=True)
    assert "anybody" in server.filter("rt") and not server.is_ready()
    assert server.filter("rt").contains_batch(["a", "b"]) == [True, True]
    with pytest.raises(bloomsday.ServerError, match="already"):
        server.start()
    with pytest.raises(bloomsday.NotFoundError, match="nope"):
        server.filter("nope")
    with pytest.raises(bloomsday.IdTypeError):
        None in server.filter("rt")
    server.close()
    server.close()


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_of_two_starts_at_once_one_is_refused(store, users):  # noqa: F811
    server = bloomsday.Server(store, "rt", poll_interval=0.2)
    barrier, handles, errors = threading.Barrier(4), [], []

    def start():
        barrier.wait()
        try:
            handles.append(server.start().filter("rt"))
        except bloomsday.ServerError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(handles) == 1 and errors == ["this server is started already"] * 3
    bloomsday.build(store, "rt", TODAY, users(0, 6_000), "id", fpp=1e-6)
    until(lambda: "user-5999" in handles[0])
    server.close()


def test_a_server_that_is_closed_while_it_starts_does_not_run(tmp_path):
    (tmp_path / "empty").mkdir()
    server = bloomsday.Server(tmp_path / "empty", "rt", start_deadline=600)
    errors = []

    def start():
        try:
            server.start()
        except bloomsday.ServerError as error:
            errors.append(str(error))

    before = polling_threads()
    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: polling_threads() - before)
    server.close()
    # It waits for no day, and not for its deadline.
    thread.join(60)
    assert errors == ["this server was closed while it was started"] and not server.is_ready()
    with pytest.raises(bloomsday.ServerError, match="not started"):
        server.filter("rt")
    # It can be started again.
    bloomsday.build(tmp_path / "empty", "rt", TODAY, [one_row(tmp_path)], "id")
    with server:
        assert "user-0" in server.filter("rt")


def polling_threads():
    """The threads that servers of this process have made."""
    found = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            found |= {task.name} if (task / "comm").read_text().startswith("bloomsday-pyt") else set()
        except OSError:
            pass  # it has ended
    return found


def one_row(folder):
    pq.write_table(pa.table({"id": ["user-0"]}), folder / "one.parquet")
    return folder / "one.parquet"


def test_threads_that_start_and_look_wait_for_no_other(store):
    """An error is raised by Python, which may let another thread go on."""
    server = bloomsday.Server(store, "rt").start()
    done = threading.Event()

    def start():
        while not done.is_set():
            with pytest.raises(bloomsday.ServerError, match="already"):
                server.start()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=start, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert all(server.is_ready() for _ in range(20_000))
        done.set()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    finally:
        sys.setswitchinterval(interval)
    server.close()


def test_a_handle_keeps_its_server_running(store, users):  # noqa: F811
    seen = bloomsday.Server(store, "rt", poll_interval=0.2).start().filter("rt")
    gc.collect()
    bloomsday.build(store, "rt", TODAY, users(0, 6_000), "id", fpp=1e-6)
    until(lambda: "user-5999" in seen)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"filters": []}, "(?i)filter"),
        ({"filters": ["RT"]}, "RT"),
        ({"filters": {"rt": {"guard": "maybe"}}}, "off, warn or hold"),
        ({"filters": {"rt": {"colour": 1}}}, "max_age_days"),
        ({"filters": {"rt": {"max_age_days": 100_000}}}, "max_age_days"),
        ({"filters": "rt", "poll_interval": -1}, "poll_interval"),
        ({"filters": "rt", "poll_interval": 1e9}, "poll_interval"),
        ({"filters": "rt", "load_deadline": float("nan")}, "load_deadline"),
        ({"filters": "rt", "store": "gopher://nowhere"}, "gopher"),
    ],
)
def test_a_bad_setting_is_a_named_error(store, config, says):
    with pytest.raises(bloomsday.UsageError, match=says):
        bloomsday.Server(**({"store": str(store)} | config)).start()
    with pytest.raises(bloomsday.NotFoundError, match="no-such"):
        bloomsday.Server(f"{store}/no-such", "rt").start()


@pytest.mark.parametrize(
    ("filters", "error", "says"),
    [
        ([5], TypeError, "^filters: "),
        (None, TypeError, "^filters: "),
        ({"rt": None}, TypeError, "^filters.rt is a mapping"),
        ({"rt": {"max_age_days": -1}}, OverflowError, "^filters.rt.max_age_days: "),
        ({"rt": {"guard": 1}}, TypeError, "^filters.rt.guard: "),
        ({"rt": {"id": "x"}}, bloomsday.UsageError, "^filters.rt.id cannot be x: "),
    ],
)
def test_an_error_names_the_setting(store, filters, error, says):
    with pytest.raises(error, match=says):
        bloomsday.Server(store, filters)


@pytest.mark.parametrize("mapping", [dict, types.MappingProxyType, collections.UserDict])
def test_settings_of_a_filter_reach_the_server(store, mapping):
    settings = {"guard": "hold", "guard_max_hold": 60, "max_age_days": 7}
    filters = mapping({"rt": mapping(settings)})
    with bloomsday.Server(store, filters) as server:
        assert server.status()["rt"]["guard"] == "hold"
    with pytest.raises(bloomsday.UsageError, match="max_age_days"):
        bloomsday.Server(store, mapping({"rt": mapping({"max_age": 7})}))
    with pytest.raises(TypeError, match="a mapping of settings"):
        bloomsday.Server(store, mapping({"rt": 7}))


def test_a_forked_child_looks_up_and_has_a_named_error_for_the_rest(store):
    server = bloomsday.Server(store, "rt").start()
    seen = server.filter("rt")
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # instead of a hang
        right = "user-7" in seen and seen.contains_batch(["user-8", "x"]) == [True, False]
        right &= not server.is_ready()
        statuses = (server.status, seen.status, server.filter("rt").status)
        for call in (server.reload, server.start, server.__enter__, *statuses):
            try:
                call()
                right = False
            except bloomsday.ServerError as error:
                right &= f"process {os.getppid()} started" in str(error)
        server.close()
        try:
            seen.status()
            right = False
        except bloomsday.ServerError as error:
            right &= "started this server" in str(error)
        # A server of its own works, and the parent's ends without a wait.
        with bloomsday.Server(store, "rt") as own:
            right &= own.reload()[0]["outcome"] == "unchanged" and "user-7" in own.filter("rt")
        del server, seen
        gc.collect()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.is_ready() and "user-7" in seen
    server.close()
