"""The type stubs are those of the native part, and the Python part has types throughout."""

import pathlib
import subprocess
import sys

import bloomsday

PROGRAM = """
import datetime
import uuid

import bloomsday

seen = bloomsday.Filter.open("rt.bloom")
one: bool = "id" in seen and 7 in seen and uuid.uuid4() in seen
numbers: list[bool] = seen.contains_batch([1, 2])
version: str = bloomsday.__version__
many: list[bool] = seen.contains_batch(["id-1", "id-2"])
day: datetime.date = seen.header.day
with bloomsday.Server("store", {"rt": {"guard": "hold"}}, cache_dir="cache") as server:
    state = server.status()["rt"]["state"]
report = bloomsday.build("store", "rt", day, ["in.parquet"], "id", fpp=0.01)
"""


def run(*words):
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_stubs_are_what_is_there():
    code, output = run("mypy.stubtest", "bloomsday")
    assert code == 0, output


def test_a_typed_program_has_no_error_and_a_wrong_one_has(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    package = pathlib.Path(bloomsday.__file__).parent
    code, output = run("mypy", "--strict", str(program), str(package / "_build.py"))
    assert code == 0, output
    program.write_text(PROGRAM + "None in seen\n")
    code, output = run("mypy", "--strict", str(program))
    assert code == 1 and "operand types" in output, output
    program.write_text(PROGRAM.replace('"hold"', '"nonsense"'))
    code, output = run("mypy", "--strict", str(program))
    assert code == 1 and "nonsense" in output, output
