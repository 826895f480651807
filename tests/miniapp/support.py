"""Starts the program and looks at what it left. Owns decks, data files and the folders that runs happen in: every run
gets an empty folder of its own as working directory, so that whatever it leaves is seen.

Several runs go on at once: most of a short run's time is spent in the start of its libraries.
"""
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "data"
PATIENCE = 600  # seconds for one run; they take one or two, and those that hang have no end

BASE_DECK = {
    "model.layers": "1",
    "model.heads": "2",
    "model.channels": "16",
    "model.context": "8",
    "model.vocab": "256",
    "data.files": '["text.txt"]',
    "data.steps": "12",
    "data.validation_fraction": "0.1",
    "data.validate_every": "4",
    "batch.micro": "1",
    "batch.global": "4",
    "optimizer.lr": "1e-2",
    "optimizer.schedule": '"constant"',
}


class Context:
    """What all tests share; set_up() fills it."""
    program = mpiexec = folder = pool = None
    numbers = itertools.count(1)


@contextlib.contextmanager
def set_up(program, mpiexec):
    Context.program, Context.mpiexec = os.path.abspath(program), mpiexec
    with tempfile.TemporaryDirectory(prefix="trainstone-test-") as folder, ThreadPoolExecutor(4) as pool:
        Context.folder, Context.pool = pathlib.Path(folder), pool
        yield


def new_folder():
    folder = Context.folder / f"{next(Context.numbers):03}"
    folder.mkdir()
    return folder


def sample_text():
    words = random.Random(1)
    return " ".join(words.choice(["the", "cat", "sat", "on", "a", "mat"]) for _ in range(600)).encode()


def write_shard(path, tokens, magic=20240520, version=1, announced=None, letter="H"):
    """A token shard in llm.c's format; uint16 is magic 20240520 and letter H, uint32 20240801, version 7 and I."""
    header = struct.pack("<3i", magic, version, len(tokens) if announced is None else announced)
    path.write_bytes(header.ljust(1024, b"\0") + struct.pack(f"<{len(tokens)}{letter}", *tokens))
    return path


class Deck:
    """A deck in a folder of its own, beside text.txt: BASE_DECK with `changes` (a key with value None is left out)."""

    def __init__(self, changes=None):
        values = {**BASE_DECK, **(changes or {})}
        self.keys = [key for key, value in values.items() if value is not None]
        self.folder = new_folder()
        self.path = self.folder / "deck.toml"
        self.path.write_text("".join(f"{key} = {values[key]}\n" for key in self.keys))
        (self.folder / "text.txt").write_bytes(sample_text())

    def line(self, key):
        """Where the key stands, as messages name it."""
        return f"{self.path}:{self.keys.index(key) + 1}: "

    @property
    def golden(self):
        return self.folder / "golden" / "deck.json"


class RunFolder:
    """What a run leaves in its folder."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def result(self):
        """result.json, read strictly: NaN and Infinity are no JSON."""
        def refuse(token):
            raise AssertionError(f"{token} in result.json")
        return json.loads((self.folder / "out" / "result.json").read_text(), parse_constant=refuse)

    @property
    def losses(self):
        return self.result["samples"]["loss"]

    @property
    def held_out(self):
        return [loss for loss in self.result["samples"]["held_out"] if loss is not None]


class Outcome(RunFolder):
    """What came of a run: code, out, err, peak_bytes (of the largest process), folder, left (files and folders)."""

    def __init__(self, command, process, peak_bytes, folder):
        super().__init__(folder)
        self.command, self.code, self.peak_bytes = command, process.returncode, peak_bytes
        self.out = (folder / "stdout").read_text(errors="replace")
        self.err = (folder / "stderr").read_text(errors="replace")
        self.left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                           if path.name not in ("stdout", "stderr"))

    def __str__(self):
        return f"{' '.join(map(str, self.command))}\nexit {self.code}\n{self.out}{self.err}left: {self.left}"


def environment(variables=None):
    """Of a run: this process's, without overrides, and with `variables`, of which None takes one away. Several runs share
    few cores, so that threads must not spin, and Kokkos need not warn."""
    ours = {name: value for name, value in os.environ.items() if name != "TRAINSTONE_SET"}
    ours |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "KOKKOS_DISABLE_WARNINGS": "1", **(variables or {})}
    return {name: value for name, value in ours.items() if value is not None}


def run(*arguments, ranks=1, variables=None, prepare=None, wrapper=()):
    """Runs the program and waits. One rank starts without a launcher, as if Slurm had started it. `prepare` may fill the
    working directory, `wrapper` has words before the command of a rank."""
    folder = new_folder()
    if prepare:
        prepare(folder)
    launcher = [Context.mpiexec, "-n", str(ranks)] if ranks > 1 else []
    if not launcher:
        variables = {"SLURM_STEP_NUM_TASKS": "1", **(variables or {})}
    command = [*launcher, *wrapper, Context.program, *map(str, arguments)]
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=environment(variables), stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=err)
        patience = threading.Timer(PATIENCE, process.kill)
        patience.start()
        _, status, usage = os.wait4(process.pid, 0)
        patience.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(command, process, usage.ru_maxrss * 1024, folder)


def start(*arguments, **options):
    """The same without waiting: a future."""
    return Context.pool.submit(run, *arguments, **options)


class Started(RunFolder):
    """A run in the background, to be interrupted; `folder` is where it works, `wrapper` words before the command of a rank."""

    def __init__(self, *arguments, ranks=2, folder=None, wrapper=()):
        super().__init__(folder or new_folder())
        self.out = self.folder / "stdout"
        command = [Context.mpiexec, "-n", str(ranks), *wrapper, Context.program, *map(str, arguments)]
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(command, cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=subprocess.STDOUT)

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.text():
            assert time.monotonic() < end and self.process.poll() is None, self.text()
            time.sleep(0.01)

    def text(self):
        return self.out.read_text(errors="replace")

    def ranks(self):
        """Process numbers of the program's ranks that are alive."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found, descendants, last = [], set(), {self.process.pid}
        while last:
            descendants |= last
            last = {number for number, parent in parents.items() if parent in last}
        for number in sorted(descendants):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{number}/exe") == os.path.realpath(Context.program):
                    found.append(number)
        return found

    def ended(self):
        return self.process.wait(timeout=PATIENCE)


def settings(*assignments):
    """--set for each."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def final_hash(outcome):
    """Of all parameters, as the check of replicas names it."""
    (check,) = [check for check in outcome.result["verification"] if check["name"] == "replicas-agree"]
    return re.search(r"[0-9a-f]{16}", check["detail"])[0]


def copy_fixture(name, folder):
    """Copies the three files of a fixture; returns the arguments of verify that name them."""
    for kind in ("model.bin", "state.bin", "losses.json"):
        shutil.copy(FIXTURES / f"{name}.{kind}", folder)
    return reference_arguments(folder / name)


def reference_arguments(stem):
    return [f"--reference-model={stem}.model.bin", f"--reference-state={stem}.state.bin",
            f"--reference-losses={stem}.losses.json"]
