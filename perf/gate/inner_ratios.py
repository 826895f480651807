"""Ratios inside one run: perf_ratios does the same in two ways in one process, in turns. Owns the run, the series of samples that
it writes, their rows and what of them is steady enough to be put on record."""
import functools
import json
import pathlib
import statistics
import tempfile

from gate import ratio_records
from gate.outcomes import MOST_MEASUREMENTS, PATIENCE, RANKS, Row, run_for_gate
from lib import judgement
from lib.judgement import ALMOST_SURELY, shows_promised
from lib.program import set_options
from lib.sessions import NotPossible, RunFailed

RECORDED_RUNS = MOST_MEASUREMENTS  # a process may be lucky with its memory, and a machine quiet for a while


def measure(program, mpiexec, pairs, keys=(), patience=PATIENCE):
    """(about, {name: series}) of one run of perf_ratios. \\throws RunFailed, NotPossible"""
    with tempfile.TemporaryDirectory(prefix="trainstone-gate-") as folder:
        words = ["ratios.json", "--pairs", str(pairs), *set_options(keys)]
        run_for_gate(mpiexec, RANKS, program, words, folder, patience)
        written = json.loads((pathlib.Path(folder) / "ratios.json").read_text())
    about = {**written["about"], "isa": ratio_records.instruction_sets()}
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
    return judgement.estimate(judgement.log_ratios(series["arms"], series["seconds"]))


def judge(all_series, references):
    """A row of every ratio. \\param references  {name: ratio_records.Reference}, or None of an unknown machine"""
    rows = []
    for name, series in all_series.items():
        if not series["spread"]:
            continue
        measured, spread = estimate(series), estimate(all_series[series["spread"]])
        reference, reach = (references or {}).get(name, ratio_records.UNKNOWN)
        rows.append(Row(name, measured, judgement.decide(measured, spread, reference, reach), reference))
    return rows


def steady_ratios(runs):
    """{name: Range} of several runs: the median ratio, the lowest ratio and the highest ratio. Also the names of ratios that are
    too noisy, or differ too much between the runs: a later run with as many samples would not surely see what the gate promises."""
    measured = [{row.name: row.measured.ratio for row in judge(series, None)} for series in runs]
    ratios = {}
    for name in measured[0]:
        found = sorted(ratios_of_run[name] for ratios_of_run in measured)
        ratios[name] = ratio_records.Range(statistics.median(found), found[0], found[-1])
    rows = judge(functools.reduce(join_series, runs), {name: found.reference() for name, found in ratios.items()})
    noisy = [row.name for row in rows if not shows_promised(row.measured, row.decision.limit, ALMOST_SURELY)]
    return {name: found for name, found in ratios.items() if name not in noisy}, sorted(noisy)
