"""What the commands of the gate that judge times have in common: rows of their tables, when they measure again, exit codes,
and how a program is run for them."""
import argparse
import os
import sys
from typing import NamedTuple

from lib import judgement
from lib.judgement import FASTER, LEAST_PAIRS, NO_REFERENCE, NOISY, PASSED, SLOWER
from lib.sessions import environment, run_ranks

GREEN, RED, INCONCLUSIVE = 0, 1, 77
RANKS = 2
MOST_MEASUREMENTS = 5  # of what is not green at once: nothing is red before that many, nor too noisy
PATIENCE = 300  # seconds for one run


class Row(NamedTuple):
    name: str
    measured: judgement.Estimate
    decision: judgement.Decision
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


def run_for_gate(mpiexec, ranks, program, words, folder, patience):
    """Ranks share few cores, so that threads must not spin. \\throws RunFailed"""
    run_ranks(mpiexec, ranks, [os.path.abspath(program), *words], folder, patience, environment(1, OMP_WAIT_POLICY="passive"))


def number_of_pairs(text):
    pairs = int(text)
    if pairs < LEAST_PAIRS or pairs % 2 != 0:
        raise argparse.ArgumentTypeError(f"{text}: an even number from {LEAST_PAIRS} on")
    return pairs


def parser_of(text, pairs=True):
    """With the options of all commands of the gate. \\param text  of --help   \\param pairs  whether times are measured"""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog=f"perf/gate/{os.path.basename(sys.argv[0])}")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all runs")
    if pairs:
        parser.add_argument("--pairs", type=number_of_pairs, default=40,
                            help=f"of samples of each ratio; an even number from {LEAST_PAIRS} on")
    return parser
