"""Parts of a report, and how they are run: each has its time, and what it has found is kept whatever comes after it.

A Part is a value: a name, the seconds that it needs on a GPU, what it checks and reports, and a generator of tables. run_parts()
runs parts in their order. A Runner starts their programs, ends them when the part's time is up, and notes what they said. It
knows neither what is measured nor how a page looks.
"""
import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Callable, NamedTuple

from lib.program import USAGE, set_options
from lib.sessions import inherited, session

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED, FAILED, OUT_OF_TIME, NOT_POSSIBLE = "passed", "failed", "out of time", "not possible"
EXIT = {PASSED: 0, FAILED: 1, OUT_OF_TIME: 3}


class Part(NamedTuple):
    name: str
    seconds: float  # that it needs on a GPU: its share of the time that there is
    says: str       # what it checks and reports
    tables: Callable  # (Runner) -> tables as they are found


class Table(NamedTuple):
    name: str
    rows: list  # dictionaries
    outcome: str = PASSED
    note: str = ""


class OutOfTime(Exception):
    """Nothing is left of a part's time."""


class Ended(NamedTuple):
    """A process that has ended, or was ended because its time was up."""
    outcome: str
    text: str = ""
    errors: str = ""
    code: int | None = None
    reason: str = ""  # why it failed


def worst(outcomes):
    """Of what consists of these. What is not possible here is not there, unless nothing else is."""
    outcomes = [*outcomes]
    found = next((outcome for outcome in (FAILED, OUT_OF_TIME, PASSED) if outcome in outcomes), None)
    return found or (NOT_POSSIBLE if outcomes else PASSED)


def deadlines(parts, seconds):
    """When each has to have ended, in s from the start: its share of the time, and what those before it have left over."""
    total, needed, ends = sum(part.seconds for part in parts), 0, []
    for part in parts:
        needed += part.seconds
        ends.append(seconds * needed / total)
    return ends


def run_parts(parts, runner, seconds, keep):
    """\\param keep  is called with what there is after every table: {part: {"outcome", "seconds", "tables"}}"""
    start, found = time.monotonic(), {}
    for part, end in zip(parts, deadlines(parts, seconds)):
        runner.end = start + end
        begin = time.monotonic()
        entry = found[part.name] = {"says": part.says, "outcome": PASSED, "seconds": 0, "tables": []}
        for table in tables_of(part, runner):
            entry["tables"].append(table._asdict())
            entry["outcome"] = worst(table["outcome"] for table in entry["tables"])
            entry["seconds"] = round(time.monotonic() - begin, 1)
            keep(found)
    return found


def tables_of(part, runner):
    """A part that breaks is a failure of this part alone."""
    try:
        yield from part.tables(runner)
    except OutOfTime:
        yield Table(part.name, [], OUT_OF_TIME)
    except Exception as problem:  # files of programs are read: whatever is wrong with them
        yield Table(part.name, [], FAILED, f"{type(problem).__name__}: {problem}")


def refused(ended):
    """The program itself says that this cannot be: that is no failure of it."""
    return ended.code == USAGE


def last_line(text):
    return (text.strip().splitlines() or ["no output"])[-1]


class Runner:
    """Runs programs while there is time."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.quick = arguments.quick
        self.end = time.monotonic() + 60 * arguments.minutes  # of the part that runs
        self.log = []

    def left(self):
        """Seconds of the part's time."""
        return self.end - time.monotonic()

    def program(self, name="trainstone"):
        return [*shlex.split(self.arguments.run_by), str(self.path(name))]

    def path(self, name):
        return pathlib.Path(self.arguments.build) / name

    def run(self, command, ranks=1, limit=None, is_question=False, **variables):
        """Never raises for what the command does; out of time also where none is left to start it.
        \\param is_question  the log leaves it out"""
        seconds = min(self.left(), limit or float("inf"))
        if seconds < 1:
            return Ended(OUT_OF_TIME)
        if ranks > 1:
            command = [*shlex.split(self.arguments.mpiexec), "-n", str(ranks), *command]
        command = [*map(str, command)]
        start = time.monotonic()
        try:
            with session(command, signal.SIGTERM, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, errors="replace", env={**inherited(), **variables}) as leader:
                text, errors = leader.communicate(timeout=seconds)
            reason = "" if leader.returncode == 0 else last_line(text + errors)
            ended = Ended(PASSED if leader.returncode == 0 else FAILED, text, errors, leader.returncode, reason)
        except subprocess.TimeoutExpired:
            ended = Ended(OUT_OF_TIME)
        except OSError as error:  # no such program, or launcher
            ended = Ended(FAILED, errors=str(error), reason=str(error))
        if not is_question:
            self.note(command, ended, time.monotonic() - start)
        return ended

    def note(self, command, ended, seconds):
        entry = {"command": shlex.join(command), "outcome": ended.outcome, "exit": ended.code, "seconds": round(seconds, 1)}
        if ended.outcome == FAILED:
            entry["output"] = (ended.text + ended.errors)[-4000:]
        self.log.append(entry)
        print(f"{seconds:7.1f} s  {'' if ended.code is None else f'exit {ended.code}, '}{ended.outcome}  "
              f"{entry['command'][:150]}", flush=True)

    def train(self, deck, keys, ranks=1, **more):
        """(Ended, result.json, which is {} where there is none)."""
        with tempfile.TemporaryDirectory() as folder:
            ended = self.run([*self.program(), "run", deck, *set_options(keys), "--out", folder], ranks, **more)
            path = pathlib.Path(folder) / "result.json"
            if ended.outcome != PASSED:
                return ended, {}
            return (ended, json.loads(path.read_text())) if path.exists() else (ended._replace(outcome=FAILED), {})

    def providers(self, key, deck, keys=(), ranks=1):
        """Those of this build that take the deck: of the names that the key has, those with which it can be estimated."""
        asked = self.estimate(deck, [*keys, f"{key}=?"])
        found = re.search(r"must be one of ([\w, -]+)", asked.text + asked.errors)
        names = [name for name in (found[1].split(", ") if found else []) if name not in ("auto", "measured")]
        return [name for name in names
                if self.estimate(deck, [*keys, f"{key}={name}"], "--ranks", ranks).outcome == PASSED]

    def estimate(self, deck, keys, *options):
        return self.run([*self.program(), "estimate", deck, *set_options(keys), *options], limit=60, is_question=True)


def gpus():
    """What nvidia-smi says of each, by column; [] where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = "name,driver_version,memory.total,clocks.sm,clocks.mem"
    ended = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True,
                           check=False)
    return [dict(zip(query.split(","), map(str.strip, line.split(",")))) for line in ended.stdout.strip().splitlines()]
