#!/usr/bin/env python3
"""The gate for changes that cost: by counters (tier 0), by ratios inside one run (1), by two builds in turns (2).

usage: perf/gate.py --program PROGRAM [--reference perf/reference/counters.json] [--record]
       perf/gate.py --tier 1 --program PROGRAM [--reference perf/reference/ratios.json] [--record] [--report]
       perf/gate.py --tier 2 --base PROGRAM --change PROGRAM [--deck DECK]
       perf/gate.py --self-test [--tier 2] --program PROGRAM [--runs 50]
all: [--mpiexec mpiexec] [--set KEY=VALUE]...; tiers 1 and 2: [--pairs 40]

Tier 0 trains a tiny model in each of the configurations below and compares the counters of result.json with the reference
file, each of them exactly. Nothing is timed: the counters are the same on every machine whose kernels run on the host.
--record writes the reference file instead: in the commit that means to change a counter, which says why.
Tier 1 compares ratios of times with those on record for this machine; it runs perf_ratios, which lies beside PROGRAM.
Tier 2 runs two programs on one deck in turns. The self-test injects what the tiers must see.
Exit 0: all as on record; 1: something differs or is slower (a table shows what), a run failed, or there is no usable
reference file; 77: times are too noisy to say; 130, 143, 129: SIGINT, SIGTERM or SIGHUP came, and what ran was ended.
"""
import argparse
import json
import pathlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import gate_ratios
import gate_self_test
from gate_runs import RunFailed, ended_by_signals, run_program
from gate_statistics import LEAST_PAIRS
from shared import set_options, write_json

REFERENCE = pathlib.Path(__file__).resolve().parent / "reference" / "counters.json"
AT_ONCE = 2  # most of a short run's time is spent in the start of its libraries
PATIENCE = 120  # seconds for one run; they take one or two

# What depends on the machine is fixed: scratch and kernels of a matrix product are the library's, which looks at the
# processor, and where messages lie depends on where kernels run. Nor does a configuration name an algorithm in shared
# memory, which takes whole pages. Gradients fill several buckets.
DECK = """
model.layers = 2
model.heads = 2
model.channels = 32
model.context = 16
model.vocab = 61
data.source = "synthetic"
data.steps = 3
batch.micro = 1
batch.global = 8
optimizer.lr = 1e-3
optimizer.schedule = "constant"
kernels.gemm = "kokkos"
comm.buffers = "host"
parallel.bucket = "24 KiB"
parallel.first_bucket = "8 KiB"
"""


def zero(stage, *more):
    return ("parallel.strategy=zero", f"parallel.zero_stage={stage}", *more)


DDP, NAIVE = ("parallel.strategy=ddp",), ("parallel.strategy=naive",)
HSDP = ("parallel.strategy=hsdp", "parallel.shard_group=2")
BF16 = ("precision.recipe=mixed16",)
FP16 = (*BF16, "precision.storage=fp16", "precision.loss_scale=dynamic", "precision.initial_loss_scale=1024")
FLASH, DROPOUT = ("model.attention=flash",), ("model.dropout=0.1",)

CONFIGURATIONS = {  # name: ranks, keys
    "ddp, 1 rank": (1, DDP),
    "ddp, 2 ranks": (2, DDP),
    "ddp, 4 ranks": (4, DDP),
    "ddp by tensor, 2 ranks": (2, (*DDP, "parallel.granularity=tensor")),
    "ddp by step, 4 ranks": (4, (*DDP, "parallel.granularity=step")),
    "ddp, bf16, flash, 4 ranks": (4, (*DDP, *BF16, *FLASH)),
    "ddp, dropout, stored masks, 1 rank": (1, (*DDP, *DROPOUT, "model.dropout_masks=stored")),
    "ddp, staged messages, 2 ranks": (2, (*DDP, "comm.buffers=staged")),
    "zero 1, 2 ranks": (2, zero(1)),
    "zero 1, bf16, 4 ranks": (4, zero(1, *BF16)),
    "zero 1 by all-reduce, 4 ranks": (4, zero(1, "parallel.gradient_reduction=all_reduce")),
    "zero 2, 2 ranks": (2, zero(2)),
    "zero 2 by all-reduce, 4 ranks": (4, zero(2, "parallel.gradient_reduction=all_reduce")),
    "zero 2, ordered, 2 ranks": (2, zero(2, "parallel.reduction=ordered")),
    "zero 2, inter-layer, 4 ranks": (4, zero(2, "parallel.partition=inter_layer")),
    "zero 3, 1 rank": (1, zero(3)),
    "zero 3, 4 ranks": (4, zero(3)),
    "zero 3, bf16, flash, dropout, 4 ranks": (4, zero(3, *BF16, *FLASH, *DROPOUT)),
    "zero 3, fp16, 4 ranks": (4, zero(3, *FP16)),
    "hsdp, 4 ranks": (4, HSDP),
    "hsdp, bf16, flash, 4 ranks": (4, (*HSDP, *BF16, *FLASH)),
    "naive, 2 ranks": (2, NAIVE),
    "naive, bf16, 4 ranks": (4, (*NAIVE, *BF16)),
    "naive, rank 0 updates, 2 ranks": (2, (*NAIVE, "parallel.naive_update=main")),
    "naive, rank 0 updates, bf16, 4 ranks": (4, (*NAIVE, "parallel.naive_update=main", *BF16)),
}


class NoCounters(Exception):
    """A run, or a reference file, without usable counters; says why."""


def counters_of(result):
    """Of rank 0, per step, and before the first one: by name, in one level."""
    counted = dict(result["counted"])
    memory = counted.pop("memory_bytes")
    return {**counted, **{f"memory_bytes.{name}": amount for name, amount in memory.items() if name != "total"}}


def run(arguments, ranks, keys):
    """The counters of a run that ended well: what it counted was then what it predicted, on all ranks."""
    with tempfile.TemporaryDirectory(prefix="trainstone-gate-") as folder:
        (pathlib.Path(folder) / "deck.toml").write_text(DECK)
        options = set_options([*keys, *arguments.set])
        command = [arguments.program, "run", "deck.toml", *options, "--out", "out"]
        try:
            run_program(arguments.mpiexec, ranks, command, folder, PATIENCE)
        except RunFailed as failure:
            raise NoCounters(str(failure)) from None
        return counters_of(json.loads((pathlib.Path(folder) / "out" / "result.json").read_text()))


def run_all(arguments):
    """The counters of every configuration; ends the program if there is one without."""
    found, failures = {}, []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {name: pool.submit(run, arguments, ranks, keys) for name, (ranks, keys) in CONFIGURATIONS.items()}
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except NoCounters as failure:
                failures.append(f"{name}: {failure}")
    if failures:
        sys.exit("\n".join([*failures, f"{len(failures)} of {len(CONFIGURATIONS)} runs failed: nothing was compared"]))
    return found


def read_reference(path):
    try:
        configurations = json.loads(path.read_text())["configurations"]
        for name, counters in configurations.items():
            for counter, amount in counters.items():
                if type(amount) is not int:
                    raise NoCounters(f"{name}, {counter}: {amount!r} is no whole number")
        return configurations
    except (OSError, ValueError, KeyError, TypeError, AttributeError, NoCounters) as error:
        raise NoCounters(f"{path}: no reference of counters ({type(error).__name__}: {error}); --record writes one") from None


def write_reference(path, found):
    write_json(path, {"about": "Counters of a step of rank 0; written and compared by perf/gate.py", "configurations": found})


def differences(expected, found):
    """(configuration, counter, expected, found) of whatever is not the same in both."""
    rows = []
    for name in [*found, *(name for name in expected if name not in found)]:
        if name not in expected:
            rows.append((name, "all", "not on record", "counted"))
        elif name not in found:
            rows.append((name, "all", "on record", "not run"))
        else:
            counters = dict.fromkeys([*found[name], *expected[name]])
            amounts = [(counter, expected[name].get(counter, "none"), found[name].get(counter, "none")) for counter in counters]
            rows += [(name, *row) for row in amounts if row[1] != row[2]]
    return rows


def with_change(row):
    expected, found = row[2:]
    numbers = isinstance(expected, int) and isinstance(found, int)
    return (*map(str, row), f"{found - expected:+}" if numbers else "")


def table(rows):
    cells = [("configuration", "counter", "expected", "found", "change"), *map(with_change, rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    aligned = (str.ljust, str.ljust, str.rjust, str.rjust, str.rjust)
    return "\n".join("  ".join(align(*cell) for align, cell in zip(aligned, zip(row, widths))).rstrip() for row in cells)


def tier_0(arguments):
    """Ends the program unless all is as on record."""
    try:
        expected = {} if arguments.record else read_reference(arguments.reference)
    except NoCounters as problem:
        sys.exit(str(problem))
    found = run_all(arguments)
    amount = f"{sum(map(len, found.values()))} counters of {len(found)} configurations"
    if arguments.record:
        write_reference(arguments.reference, found)
        print(f"{arguments.reference}: {amount} recorded")
        return
    rows = differences(expected, found)
    if rows:
        print(table(rows), flush=True)
        sys.exit(f"{len(rows)} of {amount} differ. If that is meant: perf/gate.py --record, and the reason, in the same commit")
    print(f"{amount}: all as on record")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", type=int, choices=(0, 1, 2), default=0)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--program")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all runs")
    parser.add_argument("--reference", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--pairs", type=int, default=40, help=f"of samples of each ratio; at least {LEAST_PAIRS}")
    parser.add_argument("--ratios", help="tier 1: perf_ratios, where it does not lie beside --program")
    parser.add_argument("--found", type=pathlib.Path, default=pathlib.Path("out/ratios.json"),
                        help="tier 1: where the ratios of an unknown machine go")
    parser.add_argument("--report", action="store_true", help="tier 1: print, and end with 0 whatever is found")
    parser.add_argument("--patience", type=float, default=gate_ratios.PATIENCE, metavar="SECONDS",
                        help="tier 1: the longest that a run may take")
    parser.add_argument("--base", help="tier 2: the program that the other one is compared with")
    parser.add_argument("--change", help="tier 2: that one")
    parser.add_argument("--change-set", action="append", default=[], metavar="KEY=VALUE", help="tier 2: of its runs alone")
    parser.add_argument("--deck", type=pathlib.Path, help="tier 2: for 2 ranks; default: a small model")
    parser.add_argument("--runs", type=int, default=50, help="self-test: with nothing injected")
    arguments = parser.parse_args()
    needed = ("base", "change") if arguments.tier == 2 and not arguments.self_test else ("program",)
    for name in needed:
        if getattr(arguments, name) is None:
            parser.error(f"--{name} is needed")
    if arguments.pairs < LEAST_PAIRS or arguments.pairs % 2 != 0:
        parser.error(f"--pairs {arguments.pairs}: an even number from {LEAST_PAIRS} on")
    if arguments.reference is None:
        arguments.reference = gate_ratios.REFERENCE if arguments.tier == 1 else REFERENCE
    return arguments


def main():
    arguments = read_arguments()
    with ended_by_signals():
        if arguments.self_test:
            sys.exit(gate_self_test.self_test(arguments, pathlib.Path(__file__)))
        if arguments.tier == 0:
            tier_0(arguments)
        else:
            sys.exit((gate_ratios.tier_1 if arguments.tier == 1 else gate_ratios.tier_2)(arguments))


if __name__ == "__main__":
    main()
