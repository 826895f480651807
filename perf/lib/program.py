"""How the tools of perf/ ask the program: its command, its keys, its estimate of a run, and what a result says of the program and
of the measured steps. Trains nothing and judges nothing.
"""
import json
import os
import pathlib
import shlex
import subprocess
import tempfile

USAGE, INVALID, DOES_NOT_FIT = 64, 65, 69  # exit codes, also of the program


class Refused(Exception):
    """What was asked for cannot be; says why, and what would be right."""


class Impossible(Refused):
    """The program itself refuses the deck on so many ranks: its exit code is 64."""


def set_options(keys):
    """\\param keys  KEY=VALUE"""
    return [word for key in keys for word in ("--set", key)]


def command_of(text):
    """Words of a command; a program that is named by a path is found from any folder. Raises Refused if there is no word."""
    words = shlex.split(text)
    if not words:
        raise Refused("a command is empty, must have at least one word")
    return [os.path.abspath(word) if "/" in word and os.path.exists(word) else word for word in words]


class Program:
    def __init__(self, text):
        self.words = command_of(text)

    def ask(self, *arguments):
        """The process that ended. Raises Refused where the program cannot be started."""
        try:
            return subprocess.run([*self.words, *map(str, arguments)], capture_output=True, text=True, check=False)
        except OSError as failure:
            raise Refused(f"{shlex.join(self.words)}: {failure.strerror}; --program names the program") from failure

    def estimate(self, deck, ranks, nodes, overrides, *options):
        """The estimate's file as a dictionary. Raises Refused or Impossible with the program's own message."""
        with tempfile.TemporaryDirectory(prefix="trainstone-estimate-") as folder:
            path = pathlib.Path(folder) / "estimate.json"
            ended = self.ask("estimate", deck, "--ranks", ranks, "--nodes", nodes, *set_options(overrides), *options,
                             "--json", path)
            if ended.returncode not in (0, DOES_NOT_FIT) or not path.exists():
                kind = Impossible if ended.returncode == USAGE else Refused
                raise kind(ended.stderr.strip().removeprefix("trainstone: ") or f"estimate: exit {ended.returncode}")
            return json.loads(path.read_text(encoding="utf-8"))

    def resolved_deck(self, deck, overrides):
        """Text of --print-deck. Raises Refused with the program's own message."""
        ended = self.ask("run", deck, *set_options(overrides), "--print-deck")
        if ended.returncode != 0:
            raise Refused(ended.stderr.strip().removeprefix("trainstone: "))
        return ended.stdout


def program_of(record):
    """What a result or an estimate says of the program that wrote it."""
    code = record["code"]
    return f"{code['version']} git {code['git']}{' and changes' if code['dirty'] else ''}, {code['compiler']}, {code['kokkos']}"


def measured(result, samples):
    """The elements of an array of samples that belong to measured steps: none if no step was measured. A run that went on from a
    checkpoint has samples of its later steps alone."""
    window, steps = result["window"], result["samples"]["step"]
    return [one for step, one in zip(steps, samples) if window["first_step"] <= step <= window["last_step"]] if window else []
