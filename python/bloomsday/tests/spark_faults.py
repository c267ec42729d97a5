"""What goes wrong in executors, for the tests of `bloomsday.spark`. Executors import this by name."""

import os
import pathlib
import resource
import signal

from bloomsday import errors, parts


def once(marker: str) -> bool:
    """Whether this is the first task of all that gets here."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def executor() -> int:
    """The process of the virtual machine that this Python works for."""
    pid = os.getpid()
    while b"java" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid


def refuse(batches, *, step, **given):
    """An exception with everything that it can have."""
    yield from ()
    raise errors.StoreError("the first line\nthe \"second\" one", remedy="wait an hour", is_transient=True)


def kill_executor(batches, *, step, marker, **given):
    """One of the functions of `bloomsday.parts`, whose first task ends its executor with kill -9 in the middle."""
    batches = iter(batches)
    first = next(batches, None)
    if first is not None and once(marker):
        os.kill(executor(), signal.SIGKILL)
        signal.pause()
    yield from getattr(parts, step)((batch for part in ([first], batches) for batch in part if batch), **given)


def fail_once(batches, *, step, marker, **given):
    """As `kill_executor`, but an exception after the first batch that it returned."""
    made = getattr(parts, step)(batches, **given)
    for batch in made:
        yield batch
        if once(marker):
            raise OSError("the first attempt of this task fails")


def measured(batches, *, step, folder, **given):
    """Writes the most memory that this process ever had, in KiB."""
    yield from getattr(parts, step)(batches, **given)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pathlib.Path(folder, f"{step}-{os.getpid()}-{most}").touch()
