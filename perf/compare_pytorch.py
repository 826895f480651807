#!/usr/bin/env python3
"""How long does a training step take in PyTorch, and how long here?

usage: perf/compare_pytorch.py SHAPE... [--python PYTHON] [--precision fp32,bf16] [--modes eager,compiled] [--threads 2]
                               [--ranks 1] [--program COMMAND] [--at-least eager-fp32=1.15 ...] [--json FILE] [--set KEY=VALUE]...
SHAPE is gpt2-124m, 6x384, 2x128, or a deck with data.source = "synthetic".

Both train the same model on batches of the same size on the same cores, in turns, and the ratio is PyTorch's time by ours:
above 1 we are faster. PYTHON is one that has PyTorch (default: this one). Example:
    perf/compare_pytorch.py 2x128 6x384 --python venv/bin/python --program "ci/env --variant openmp build/openmp/trainstone"
A row in bf16 has no ratio where the processor has no instructions that multiply bf16: PyTorch then runs a fallback that nobody
would choose. Exit 0; 1: a ratio is below what --at-least says, a run failed or the trainings are not the same; 64: usage; 77: no PyTorch.
"""
import argparse
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

import compare
from compare import Turn
from lib.program import Refused, command_of
from lib.sessions import RunFailed, environment, session

STEP = pathlib.Path(__file__).resolve().parent / "pytorch_step.py"
MODES = ("eager", "compiled")
LOSS_BOUND = 0.25  # nats: initial values and tokens are of the same kind, and not the same
NO_PYTORCH = 77
CPUINFO = pathlib.Path("/proc/cpuinfo")
BF16_PRODUCTS = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}  # as Linux names them, of x86 and of Arm
NO_BF16 = "this processor has no instructions that multiply bf16, so PyTorch runs a fallback"
IDLE_POLL, IDLE_POLLS, IDLE_PATIENCE = 0.1, 2, 10.0  # seconds; threads spin for a moment after their work


class NoPyTorch(Exception):
    """Says how to get it."""


class PyTorch:
    """A process that is warm, and waits between turns."""

    def __init__(self, leader, errors, patience):
        self.leader, self.errors, self.patience = leader, errors, patience
        self.first = self.answer()
        self.untimed = 1  # after others had the caches

    def turn(self, count):
        try:
            self.leader.stdin.write(f"{self.untimed} {count}\n")
            self.leader.stdin.flush()
        except OSError:
            self.fail("ended")
        answer = self.answer()
        return Turn(answer["seconds"], answer["losses"])

    def answer(self):
        """The worker answers with one line, so that nothing stays in a buffer, which select() does not see."""
        ready, _, _ = select.select([self.leader.stdout], [], [], self.patience)
        line = self.leader.stdout.readline() if ready else ""
        if not line:
            self.fail("ended" if ready else f"gave no answer within {self.patience} seconds")
        return json.loads(line)

    def fail(self, what):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.leader.wait(timeout=10 if what == "ended" else 0)
        self.errors.seek(0)
        said = self.errors.read().strip()
        if self.leader.returncode == NO_PYTORCH:
            raise NoPyTorch(f"{said}: `pip install torch`, and name the interpreter that has it by --python")
        raise RunFailed(f"PyTorch {what}\n{said}".rstrip())

    def wait_until_idle(self):
        """Waits until its threads take no processor time. \\throws RunFailed if they go on"""
        until, idle, before = time.monotonic() + IDLE_PATIENCE, 0, processor_ticks(self.leader.pid)
        while idle < IDLE_POLLS:
            if time.monotonic() > until:
                self.fail(f"takes processor time {IDLE_PATIENCE} seconds after its turn")
            time.sleep(IDLE_POLL)
            now = processor_ticks(self.leader.pid)
            idle, before = (idle + 1 if now == before else 0), now


def processor_ticks(process):
    """Of all its threads."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # it is gone: the next turn tells
    return int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def started(arguments, config):
    """A PyTorch. \\throws NoPyTorch, RunFailed"""
    variables = {**environment(arguments.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # else processes stay
    with tempfile.TemporaryFile("w+") as errors:
        command = [*command_of(arguments.python), str(STEP), json.dumps(config)]
        try:
            with session(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=variables) as leader:
                yield PyTorch(leader, errors, arguments.patience)
        except OSError as problem:
            raise RunFailed(str(problem)) from None


def multiplies_bf16():
    """Whether the system says so of the first processor."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    keys = (line.partition(":") for line in lines)
    features = next((words for key, _, words in keys if key.strip() in ("flags", "Features")), "")
    return not BF16_PRODUCTS.isdisjoint(features.split())


def no_ratio_in(precision):
    """Why times in this precision are not compared; None if they are."""
    return NO_BF16 if precision == "bf16" and not multiplies_bf16() else None


def check_deck(values):
    """PyTorch's step is that of such decks alone. Raises Refused."""
    same = {"data.source": "synthetic", "model.dropout": 0, "optimizer.type": "adamw", "batch.accumulation": 1}
    for key, needed in same.items():
        if values[key] != needed:
            raise Refused(f"{key} is {values[key]}, must be {needed}: that is what PyTorch's step does")


def config_of(values, mode, precision, arguments):
    """What the worker must know, from the resolved keys of the deck."""
    shape = {name: values[f"model.{name}"] for name in ("layers", "heads", "channels", "context", "vocab")}
    optimizer = {name: values[f"optimizer.{name}"] for name in ("lr", "betas", "eps", "weight_decay", "decay", "clip")}
    return {**shape, **optimizer, "sequence": values["data.sequence"], "batch": values["batch.global"],
            "seed": values["data.seed"], "mode": mode, "precision": precision, "threads": arguments.threads,
            "warm_up_seconds": arguments.seconds / 2}


def compare_one(shape, precision, mode, arguments):
    """(row, a result of ours, PyTorch's version)"""
    deck, keys = compare.deck_and_keys(shape, [*arguments.set, *compare.PRECISIONS[precision]])
    ours = compare.Ours(arguments, deck, keys)
    estimate = ours.describe()
    values = compare.values_of(estimate)
    check_deck(values)
    with started(arguments, config_of(values, mode, precision, arguments)) as theirs:
        theirs.wait_until_idle()
        probe = ours.turn(1)
        if theirs.first["parameters"] != estimate["model_parameters"]:
            raise RunFailed(f"PyTorch's model has {theirs.first['parameters']} parameters, ours {estimate['model_parameters']}")
        compare.check_same_training(theirs.first["losses"], probe.losses, values["model.vocab"], LOSS_BOUND)
        step = theirs.first["seconds"][-1]
        theirs.untimed = 1 if step < arguments.turn_seconds else 0
        counts = (compare.steps_of_turn(one, arguments, arguments.steps) for one in (step, probe.seconds[-1]))
        letters, turns = compare.take_turns(theirs, ours, *counts, arguments)
    row = compare.make_row(os.path.basename(shape), precision, mode, letters, turns, estimate["model_parameters"],
                           (theirs.first["losses"], probe.losses), no_ratio_in(precision))
    return row, ours.result, f"PyTorch {theirs.first['torch']} ({theirs.first['capability']})"


def compare_all(arguments):
    names = [f"{mode}-{precision}" for precision in arguments.precision for mode in arguments.modes]
    compare.check_arguments(arguments, names, {name: no_ratio_in(name.partition("-")[2]) for name in names})
    rows = []
    print(compare.heading("PyTorch"), flush=True)
    for shape in arguments.shapes:
        for name in names:
            mode, precision = name.split("-")
            try:
                row, result, version = compare_one(shape, precision, mode, arguments)
            except NoPyTorch as problem:
                print(problem)
                return NO_PYTORCH
            print(compare.line_of(row), flush=True)
            rows.append(row)
    return compare.report(rows, arguments, result, version)


def some_of(allowed):
    def convert(text):
        words = text.split(",")
        if not set(words) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{text} is no list of {', '.join(allowed)}")
        return words

    return convert


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", metavar="SHAPE")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--precision", type=some_of(compare.PRECISIONS), default=list(compare.PRECISIONS))
    parser.add_argument("--modes", type=some_of(MODES), default=list(MODES))
    compare.add_arguments(parser)
    compare.run_tool(compare_all, parser)


if __name__ == "__main__":
    main()
