"""Tiers 1 and 2 of perf/gate.py: what is measured for them, and the tables that they print.

Tier 1 compares two ways to do the same inside one process (perf_ratios), and the ratios with those that are on record for
the machine. Tier 2 compares two programs on one deck, run in turns. Both are decided by gate_statistics.
"""
import functools
import json
import math
import os
import pathlib
import statistics
import tempfile
from typing import NamedTuple

import gate_reference
import gate_statistics
from gate_runs import NotPossible, RunFailed, run_program
from gate_statistics import ALMOST_SURELY, FASTER, NO_REFERENCE, NOISY, PASSED, SLOWER, shows_promised
from shared import set_options

REFERENCE = pathlib.Path(__file__).resolve().parent / "reference" / "ratios.json"
GREEN, RED, INCONCLUSIVE = 0, 1, 77
RANKS = 2
MOST_MEASUREMENTS = 5  # of what is not green at once: nothing is red before that many, nor too noisy
RECORDED_RUNS = MOST_MEASUREMENTS  # a process may be lucky with its memory, and a machine quiet for a while
LEAST_SHARE = 0.2  # of a step, that a phase must have to be compared: shorter ones differ from process to process
PATIENCE = 300  # seconds for one run

DECK = """
model.layers = 2
model.heads = 4
model.channels = 192
model.context = 128
model.vocab = 509
data.source = "synthetic"
data.sequence = 128
data.steps = 44
batch.micro = 1
batch.accumulation = 1
optimizer.lr = 1e-4
optimizer.schedule = "constant"
parallel.bucket = "1 MiB"
bench.warmup_steps = 4
"""


class Row(NamedTuple):
    name: str
    measured: gate_statistics.Estimate
    decision: gate_statistics.Decision
    reference: float  # or None


def table(rows):
    lines = [f"{'ratio':<32}{'found':>8}  {'95 % interval':<17}{'reference':>10}{'limit':>8}"]
    for name, measured, decision, reference in rows:
        against = "none" if reference is None else f"{reference:.3f}"
        interval = f"{measured.low:.3f} ... {measured.high:.3f}"
        lines.append(f"{name:<32}{measured.ratio:8.3f}  {interval:<17}{against:>10}{100 * decision.limit:6.1f} %"
                     f"  {decision.verdict}")
    return "\n".join(lines)


def exit_code(rows):
    verdicts = {row.decision.verdict for row in rows}
    return RED if SLOWER in verdicts else INCONCLUSIVE if NOISY in verdicts else GREEN


def summary(rows):
    count = {verdict: sum(row.decision.verdict == verdict for row in rows)
             for verdict in (PASSED, SLOWER, FASTER, NOISY, NO_REFERENCE)}
    return ", ".join(f"{amount} {verdict}" for verdict, amount in count.items() if amount > 0)


def judge_until_green(samples, measure, join, judge):
    """The rows of these samples, if they are green; else of them and of further measurements, joined."""
    rows = judge(samples)
    for _ in range(MOST_MEASUREMENTS - 1):
        if exit_code(rows) == GREEN:
            break
        samples = join(samples, measure())
        rows = judge(samples)
    return rows


# --- tier 1 --------------------------------------------------------------------------------------------------------


def measure(program, mpiexec, pairs, keys=(), patience=PATIENCE):
    """(about, {name: series}) of one run of perf_ratios. \\throws RunFailed, NotPossible"""
    with tempfile.TemporaryDirectory(prefix="trainstone-gate-") as folder:
        command = [program, "ratios.json", "--pairs", str(pairs), *set_options(keys)]
        run_program(mpiexec, RANKS, command, folder, patience)
        written = json.loads((pathlib.Path(folder) / "ratios.json").read_text())
    about = {**written["about"], "isa": gate_reference.instruction_sets()}
    if about["cores"] < about["ranks"] * about["threads"]:
        raise NotPossible(f"{about['ranks']} ranks of {about['threads']} threads share {about['cores']} cores")
    return about, {series["name"]: series for series in written["series"]}


def join_series(one, other):
    """The samples of two runs."""
    if one.keys() != other.keys():
        raise RunFailed("two runs have measured different ratios")
    return {name: {**series, **{part: series[part] + other[name][part] for part in ("arms", "seconds")}}
            for name, series in one.items()}


def estimate(series):
    return gate_statistics.estimate(gate_statistics.log_ratios(series["arms"], series["seconds"]))


def judge(all_series, references):
    """A row of every ratio. \\param references  {name: gate_reference.Reference}, or None of an unknown machine"""
    rows = []
    for name, series in all_series.items():
        if not series["spread"]:
            continue
        measured, spread = estimate(series), estimate(all_series[series["spread"]])
        reference, reach = (references or {}).get(name, gate_reference.UNKNOWN)
        rows.append(Row(name, measured, gate_statistics.decide(measured, spread, reference, reach), reference))
    return rows


def steady_ratios(runs):
    """{name: Range} of several runs: their median ratio, the lowest and the highest; and the names of those of which later
    runs, judged by as many samples, would not almost surely see what the gate promises: of noise, or as these runs differ."""
    measured = [{row.name: row.measured.ratio for row in judge(series, None)} for series in runs]
    ratios = {}
    for name in measured[0]:
        found = sorted(ratios_of_run[name] for ratios_of_run in measured)
        ratios[name] = gate_reference.Range(statistics.median(found), found[0], found[-1])
    rows = judge(functools.reduce(join_series, runs), {name: found.reference() for name, found in ratios.items()})
    noisy = [row.name for row in rows if not shows_promised(row.measured, row.decision.limit, ALMOST_SURELY)]
    return {name: found for name, found in ratios.items() if name not in noisy}, sorted(noisy)


def record_ratios(arguments, program):
    """Measures several times and writes what was steady. \\return exit code"""
    if arguments.set:
        raise RunFailed("what is on record is taken without --set")
    runs = [measure(program, arguments.mpiexec, arguments.pairs) for _ in range(RECORDED_RUNS)]
    ratios, noisy = steady_ratios([series for _, series in runs])
    gate_reference.record(arguments.reference, gate_reference.make_entry(runs[0][0], ratios))
    print(f"{arguments.reference}: {len(ratios)} ratios of this machine recorded")
    if noisy:
        print(f"too noisy to be recorded: {', '.join(noisy)}")
    return INCONCLUSIVE if noisy else GREEN


def compare_with_record(arguments, program):
    """Prints the table of tier 1. \\return exit code"""
    def run():
        return measure(program, arguments.mpiexec, arguments.pairs, arguments.set, arguments.patience)

    entries = gate_reference.read(arguments.reference)
    about, series = run()
    references = gate_reference.find(entries, about)
    if arguments.report:
        rows = judge(series, references)
    else:
        rows = judge_until_green(series, lambda: run()[1], join_series, lambda samples: judge(samples, references))
    gone = [name for name in references or () if name not in {row.name for row in rows}]
    print(table(rows))
    for name in gone:
        print(f"{name}: on record, not measured")
    print(f"tier 1: {summary(rows)}")
    if references is None:
        machine = ", ".join(f"{name} {value}" for name, value in gate_reference.fingerprint(about).items())
        print(f"no reference for this machine: {machine}")
        if not about["emulated"]:
            gate_reference.write(arguments.found, [gate_reference.make_entry(about, steady_ratios([series])[0])])
            print(f"what was found is in {arguments.found}; perf/gate.py --tier 1 --record adds it to {arguments.reference}")
    return RED if gone else exit_code(rows)


def tier_1(arguments):
    program = arguments.ratios or os.path.join(os.path.dirname(arguments.program), "perf_ratios")
    try:
        code = record_ratios(arguments, program) if arguments.record else compare_with_record(arguments, program)
    except (RunFailed, gate_reference.NoReference, gate_statistics.UnusableSamples) as problem:
        print(f"tier 1: {problem}")
        code = RED
    except (OSError, ValueError, KeyError, TypeError) as problem:  # what was written is not what perf_ratios writes
        print(f"tier 1: {type(problem).__name__}: {problem}")
        code = RED
    except NotPossible as problem:
        print(f"tier 1: {problem}")
        code = INCONCLUSIVE
    return GREEN if arguments.report else code


# --- tier 2 --------------------------------------------------------------------------------------------------------


def times_of_run(program, mpiexec, deck, keys):
    """Seconds of the median step and of its phases, by name. \\throws RunFailed"""
    with tempfile.TemporaryDirectory(prefix="trainstone-gate-") as folder:
        command = [program, "run", str(deck), *set_options(keys), "--out", folder]
        run_program(mpiexec, RANKS, command, deck.parent, PATIENCE)
        result = json.loads((pathlib.Path(folder) / "result.json").read_text())
    window, samples = result["window"], result["samples"]
    measured = slice(window["first_step"] - 1, window["last_step"])
    timed = {"step": samples["seconds"]}
    for name, values in samples["phases"].items():
        if name != "exposed communication" and None not in values[measured]:  # devices time phases on request alone
            timed[name] = values
    return {name: statistics.median(values[measured]) for name, values in timed.items()}


def own_spread(arms, seconds):
    """Of either program with itself."""
    return gate_statistics.estimate([value for arm in "AB" for value in gate_statistics.log_ratios(
        *gate_statistics.arm_against_itself(arms, seconds, arm))])


def compare_arms(name, arms, seconds):
    measured = gate_statistics.estimate(gate_statistics.log_ratios(arms, seconds))
    return Row(name, measured, gate_statistics.decide(measured, own_spread(arms, seconds), 1.0), 1.0)


def judge_programs(arms, runs):
    """\\param runs  what times_of_run() gave, in the order of `arms`"""
    steps = statistics.median(run["step"] for run in runs)
    names = [name for name in runs[0]
             if name == "step" or statistics.median(run[name] for run in runs) >= LEAST_SHARE * steps]
    return [compare_arms(name, arms, [run[name] for run in runs]) for name in names]


def join_runs(one, other):
    return one[0] + other[0], one[1] + other[1]


def run_in_turns(arguments):
    """(arms, runs) of the two programs."""
    arms = "".join("ABBA" if four % 2 == 0 else "BAAB" for four in range(math.ceil(arguments.pairs / 2)))
    programs = {"A": (arguments.base, arguments.set), "B": (arguments.change, [*arguments.set, *arguments.change_set])}
    with tempfile.TemporaryDirectory(prefix="trainstone-gate-") as folder:
        deck = arguments.deck
        if deck is None:
            deck = pathlib.Path(folder) / "deck.toml"
            deck.write_text(DECK)
        return arms, [times_of_run(programs[arm][0], arguments.mpiexec, deck.resolve(), programs[arm][1]) for arm in arms]


def tier_2(arguments):
    try:
        rows = judge_until_green(run_in_turns(arguments), lambda: run_in_turns(arguments), join_runs,
                                 lambda samples: judge_programs(*samples))
    except (RunFailed, gate_statistics.UnusableSamples) as problem:
        print(f"tier 2: {problem}")
        return RED
    print(table(rows))
    print(f"tier 2: {summary(rows)}")
    return exit_code(rows)
