#!/usr/bin/env python3
"""How long does a training step take in llm.c's CPU trainer, and how long here?

usage: perf/compare_llmc.py --llmc PATH/train_gpt2 [SHAPE...] [--threads 2] [--ranks 1] [--program COMMAND]
                            [--at-least llmc-fp32=1.5] [--json FILE] [--set KEY=VALUE]...
SHAPE is gpt2-124m (default), 6x384, 2x128 or a deck; batch 4 and sequence 64 are compiled into llm.c, and ours are the same.

Both start from one model file, which our program writes, train on the same tokens with the same optimizer on the same cores,
in turns, and the ratio is llm.c's time by ours: above 1 we are faster. The first losses must agree. Example:
    perf/compare_llmc.py --llmc llm.c/train_gpt2 --program "ci/env --variant openmp build/openmp/trainstone"
Exit 0; 1: a ratio is below what --at-least says, a run failed or the trainings are not the same; 64: usage.
"""
import argparse
import array
import os
import pathlib
import pty
import random
import re
import select
import shutil
import sys
import tempfile
import time

import compare
from compare import Turn
from lib.program import Refused
from lib.sessions import RunFailed, environment, session

MODE, PRECISION = "llmc", "fp32"
BATCH, SEQUENCE = 4, 64
MOST_STEPS = 9  # it validates at step 10, and writes text at step 20
MODEL, DATA = "gpt2_124M.bin", "dev/data/tinyshakespeare"
TOKENS_MAGIC, TOKENS_VERSION, HEADER_WORDS = 20240520, 1, 256
BATCHES = 64  # of a file of tokens; five are validated
MOST_VOCAB = 1 << 16  # of tokens of 16 bits
# what llm.c's trainer does: a constant rate, no decay, no clipping
OPTIMIZER = ("optimizer.type=adamw", "optimizer.lr=1e-4", "optimizer.betas=[0.9, 0.999]", "optimizer.eps=1e-8",
             "optimizer.weight_decay=0", "optimizer.clip=0")
UNCHANGED = ("optimizer.lr=1e-30", "data.steps=1", "bench.warmup_steps=0")  # the step of the run that writes the model
LOSS_BOUND = 0.001  # nats: the same computation in fp32, in another order
STEP_LINE = re.compile(r"step (\d+): train loss (\S+) \(took (\S+) ms\)")


class Llmc:
    """llm.c's program in a folder with its files; a process for every turn."""

    def __init__(self, program, folder, arguments):
        self.program, self.folder, self.arguments = program, folder, arguments

    def turn(self, count):
        """Its step 0 is not timed: it allocates."""
        steps = self.first_steps(count + 1)
        return Turn([seconds for _, seconds in steps[1:]], [loss for loss, _ in steps])

    def first_steps(self, count):
        """Losses and seconds. It is ended when it has told them. \\throws RunFailed"""
        master, terminal = pty.openpty()  # to a pipe it would write all its lines at its end
        try:
            with session([self.program], stdout=terminal, stderr=terminal, cwd=self.folder,
                         env=environment(self.arguments.threads)):
                os.close(terminal)
                return read_steps(master, count, self.arguments.patience)
        except OSError as problem:
            raise RunFailed(str(problem)) from None
        finally:
            os.close(master)

    def wait_until_idle(self):
        """It has ended."""


def read_steps(terminal, count, patience):
    text, until = "", time.monotonic() + patience
    while True:
        steps = [(float(loss), float(milliseconds) / 1e3) for _, loss, milliseconds in STEP_LINE.findall(text)]
        if len(steps) >= count:
            return steps[:count]
        ready, _, _ = select.select([terminal], [], [], max(0, until - time.monotonic()))
        if not ready:
            raise RunFailed(f"llm.c has not made {count} steps in {patience} seconds\n{text}")
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # so a terminal tells that nobody writes any more
            more = b""
        if not more:
            raise RunFailed(f"llm.c ended after {len(steps)} of {count} steps\n{text}".rstrip())
        text += more.decode(errors="replace")


def write_tokens(path, vocab, seed):
    """A file whose samples are all alike, so that both programs see the same batch in whatever order they take them."""
    source = random.Random(seed)
    sample = [source.randrange(vocab) for _ in range(SEQUENCE)]
    count = BATCHES * BATCH * SEQUENCE + 1
    header = array.array("i", [TOKENS_MAGIC, TOKENS_VERSION, count] + [0] * (HEADER_WORDS - 3))
    tokens = array.array("H", (sample * (BATCHES * BATCH + 1))[:count])
    if sys.byteorder == "big":
        header.byteswap()
        tokens.byteswap()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def make_files(folder, arguments, deck, keys, values):
    """The tokens and the model that both programs start from; returns the keys by which ours reads them. A step
    with a vanishing rate leaves initial values as they are: so no checkpoint of three times the size is written."""
    tokens = [folder / DATA / f"tiny_shakespeare_{part}.bin" for part in ("train", "val")]
    write_tokens(tokens[0], values["model.vocab"], values["data.seed"])
    shutil.copyfile(*tokens)
    files = [*keys, "data.source=tokens", f'data.files=["{tokens[0]}"]']
    with tempfile.TemporaryDirectory(dir=folder) as out:
        compare.Ours(arguments, deck, files).run([*files, *compare.SAME_STEPS, *UNCHANGED, f"model.save={folder / MODEL}"], out)
    return [*files, f"model.load={folder / MODEL}"]


def deck_of(shape, arguments):
    """(deck, keys, the resolved values). Raises Refused."""
    same = [f"batch.global={BATCH}", "batch.micro=0", "batch.accumulation=1", f"data.sequence={SEQUENCE}"]
    deck, keys = compare.deck_and_keys(shape, [*arguments.set, *same, *OPTIMIZER, *compare.PRECISIONS[PRECISION]])
    values = compare.values_of(compare.Ours(arguments, deck, keys).describe())
    if values["model.vocab"] > MOST_VOCAB:
        raise Refused(f"model.vocab is {values['model.vocab']}, must be at most {MOST_VOCAB}: llm.c's tokens have 16 bits")
    if values["model.dropout"] != 0:
        raise Refused(f"model.dropout is {values['model.dropout']}, must be 0: llm.c has none")
    return deck, keys, values


def compare_one(shape, arguments):
    """(row, a result of ours)"""
    deck, keys, values = deck_of(shape, arguments)
    with tempfile.TemporaryDirectory(prefix="trainstone-llmc-") as name:
        folder = pathlib.Path(name)
        ours = compare.Ours(arguments, deck, make_files(folder, arguments, deck, keys, values))
        theirs = Llmc(os.path.abspath(arguments.llmc), folder, arguments)
        their_first, our_first = theirs.turn(2), ours.turn(1)
        compare.check_same_training(their_first.losses, our_first.losses, values["model.vocab"], LOSS_BOUND)
        counts = (compare.steps_of_turn(first.seconds[-1], arguments, min(arguments.steps, MOST_STEPS))
                  for first in (their_first, our_first))
        letters, turns = compare.take_turns(theirs, ours, *counts, arguments)
    parameters = int(ours.result["metrics"]["model_parameters"])
    row = compare.make_row(os.path.basename(shape), PRECISION, MODE, letters, turns, parameters,
                           (their_first.losses, our_first.losses))
    return row, ours.result


def compare_all(arguments):
    compare.check_arguments(arguments, [f"{MODE}-{PRECISION}"])
    if not os.access(arguments.llmc, os.X_OK):
        raise Refused(f"--llmc {arguments.llmc} is no program; `make train_gpt2` in llm.c's folder builds one")
    rows = []
    print(compare.heading("llm.c"), flush=True)
    for shape in arguments.shapes or ["gpt2-124m"]:
        row, result = compare_one(shape, arguments)
        print(compare.line_of(row), flush=True)
        rows.append(row)
    return compare.report(rows, arguments, result, "llm.c")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE")
    parser.add_argument("--llmc", required=True, help="its train_gpt2, built with OpenMP")
    compare.add_arguments(parser)
    compare.run_tool(compare_all, parser)


if __name__ == "__main__":
    main()
