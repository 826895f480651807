"""What perf/compare/pytorch and perf/compare/llmc have in common: a training step of Trainstone is timed in turns with
that of another program, which runs on the same cores, and the ratio of the two is told with its interval.

Owns our arm, the turns, the check that both train alike, and the tables. Our arm is `trainstone run`, a process for every
turn; the other program is an object with turn(count), which times so many steps, and wait_until_idle(). Statistics are
lib.judgement's. A run of ours that is not VALID or UNREFERENCED ends the comparison: it has no rate.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from lib import judgement
from lib.files import write_json
from lib.program import USAGE, Program, Refused, command_of, measured, program_of, set_options
from lib.sessions import RunFailed, ended_by_signals, environment, run_ranks

BASE = pathlib.Path(__file__).resolve().parents[2] / "inputs" / "gpt2-124m.toml"
SHAPES = {  # keys besides those of BASE
    "gpt2-124m": (),
    "6x384": ("model.layers=6", "model.heads=6", "model.channels=384", "model.vocab=8192", "model.context=256",
              "data.sequence=256"),
    "2x128": ("model.layers=2", "model.heads=4", "model.channels=128", "model.vocab=512", "model.context=64", "batch.global=8"),
}
PRECISIONS = {"fp32": ("precision.recipe=fp32",), "bf16": ("precision.recipe=mixed16", "precision.storage=bf16")}
# so that lengths of runs are ours to choose, and every step is an equal one
SAME_STEPS = ("data.epochs=0", "data.validate_every=0", "bench.window=0", "optimizer.schedule=constant", "optimizer.warmup=0")
WARM_UP = 2  # steps of every run of ours that are not measured
UNTRAINED_BOUND = 0.5  # nats that the first loss may differ from ln(vocabulary)
OK, BELOW = 0, 1


class Turn(NamedTuple):
    seconds: list  # of the timed steps
    losses: list  # of all steps


class Row(NamedTuple):
    """A line of the table; times are medians over all timed steps."""
    shape: str
    precision: str
    mode: str
    their_ms: float
    our_ms: float
    ratio: float  # theirs / ours; or None
    ci95: list  # or None
    no_ratio: str  # why the ratio is None
    their_steps: int
    our_steps: int
    turns: str  # T theirs, O ours
    parameters: int
    their_first_losses: list
    our_first_losses: list

    def name(self):
        return f"{self.mode}-{self.precision}"


class Ours:
    """`trainstone run` of a deck."""

    def __init__(self, arguments, deck, keys):
        self.arguments, self.deck, self.keys = arguments, deck, [*keys, *SAME_STEPS]
        self.result = None  # of the latest run

    def describe(self):
        """The estimate of its run: resolved keys and number of parameters. Raises Refused."""
        return Program(self.arguments.program).estimate(self.deck, self.arguments.ranks, 1, [*self.keys, "data.steps=3"])

    def turn(self, count):
        with tempfile.TemporaryDirectory(prefix="trainstone-compare-") as folder:
            keys = [*self.keys, f"data.steps={WARM_UP + count}", f"bench.warmup_steps={WARM_UP}"]
            self.run(keys, folder)
            self.result = json.loads((pathlib.Path(folder) / "result.json").read_text(encoding="utf-8"))
        if self.result["status"] not in ("VALID", "UNREFERENCED"):
            raise RunFailed(f"our run is {self.result['status']}: it has no rate")
        samples = self.result["samples"]
        return Turn(measured(self.result, samples["seconds"]), samples["loss"])

    def run(self, keys, folder):
        """\\throws RunFailed"""
        command = [*command_of(self.arguments.program), "run", str(self.deck), *set_options(keys), "--out", folder]
        ranks = self.arguments.ranks
        run_ranks(self.arguments.mpiexec, ranks, command, folder, self.arguments.patience,
                  environment(self.arguments.threads // ranks))


def deck_and_keys(name, keys):
    """Of a shape, or of a deck that is given by its path. Raises Refused."""
    if name in SHAPES:
        return BASE, [*SHAPES[name], *keys]
    if not pathlib.Path(name).is_file():
        raise Refused(f"{name} is neither a deck nor one of {', '.join(SHAPES)}")
    return pathlib.Path(name).resolve(), list(keys)


def values_of(estimate):
    return {key: entry["value"] for key, entry in estimate["params"].items()}


def check_same_training(theirs, ours, vocab, bound):
    """Both begin untrained, and their losses stay together as far as both have steps. \\throws RunFailed"""
    expected = math.log(vocab)
    for step, (their, our) in enumerate(zip(theirs, ours), start=1):
        seen = f"loss of step {step}: theirs {their:.5f}, ours {our:.5f}"
        if step == 1 and not max(abs(their - expected), abs(our - expected)) <= UNTRAINED_BOUND:
            raise RunFailed(f"{seen}: an untrained model has {expected:.3f}, within {UNTRAINED_BOUND}")
        if not abs(their - our) <= bound:
            raise RunFailed(f"{seen}: they differ by more than {bound}, so the trainings are not the same")


def steps_of_turn(step_seconds, arguments, most):
    return max(1, min(most, int(arguments.turn_seconds / step_seconds)))


def take_turns(theirs, ours, their_count, our_count, arguments):
    """Letters and turns, T O O T and O T T O. Ends early, after a pair, where the time allows no other; never before one."""
    letters, turns, start = "", [], time.monotonic()
    plan = "".join("TOOT" if four % 2 == 0 else "OTTO" for four in range(math.ceil(arguments.pairs / 2)))[:2 * arguments.pairs]
    for pair in range(arguments.pairs):
        elapsed = time.monotonic() - start
        if pair > 0 and elapsed * (pair + 1) / pair > arguments.seconds:
            break
        for letter in plan[2 * pair:2 * pair + 2]:
            theirs.wait_until_idle()
            turns.append(theirs.turn(their_count) if letter == "T" else ours.turn(our_count))
            letters += letter
    for turn in turns:
        if not all(map(math.isfinite, turn.losses)) or not all(one > 0 for one in turn.seconds) or not turn.seconds:
            raise RunFailed(f"a turn has losses {turn.losses} and seconds {turn.seconds}")
    return letters, turns


def ratio_of(letters, turns):
    """Theirs / ours with its interval, which is None for few turns. Every pair of turns gives one ratio, that of their median
    steps; which of them comes first alternates, so that a drift meets both alike."""
    arms = letters.translate(str.maketrans("OT", "AB"))
    values = judgement.log_ratios_of_pairs(arms, [statistics.median(turn.seconds) for turn in turns])
    found = judgement.estimate(values)
    return found.ratio, [found.low, found.high] if len(values) >= judgement.LEAST_FOR_INTERVAL else None


def make_row(shape, precision, mode, letters, turns, parameters, first_losses, no_ratio=None):
    """\\param no_ratio  why the two times are not to be compared: the row then has no ratio"""
    theirs, ours = ([second for kind, turn in zip(letters, turns) if kind == letter for second in turn.seconds]
                    for letter in "TO")
    ratio, interval = (None, None) if no_ratio else ratio_of(letters, turns)
    return Row(shape, precision, mode, 1e3 * statistics.median(theirs), 1e3 * statistics.median(ours), ratio, interval, no_ratio,
               len(theirs), len(ours), letters, parameters, *first_losses)


def heading(program):
    return (f"{'shape':<16}{'':<6}{'mode':<10}{program + ' ms':>12}{'ours ms':>10}{'ratio':>8}  {'95 % interval':<16}"
            f"{'steps':>9}")


def line_of(row):
    steps = f"{row.their_steps}/{row.our_steps}"
    times = f"{row.shape:<16}{row.precision:<6}{row.mode:<10}{row.their_ms:12.2f}{row.our_ms:10.2f}"
    if row.no_ratio:
        return f"{times}{'-':>8}  {'-':<16}{steps:>9}  no ratio: {row.no_ratio}"
    interval = "too few turns" if row.ci95 is None else f"{row.ci95[0]:.3f} ... {row.ci95[1]:.3f}"
    return f"{times}{row.ratio:8.3f}  {interval:<16}{steps:>9}"


def threshold(text):
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no NAME=RATIO like eager-fp32=1.15") from None


def above(least, kind):
    def convert(text):
        value = kind(text)
        if not value >= least:
            raise ValueError
        return value

    convert.__name__ = f"number of at least {least}"
    return convert


def add_arguments(parser):
    parser.add_argument("--program", default="trainstone", help="command of ours")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--threads", type=above(1, int), default=2, help="of either program, in all")
    parser.add_argument("--ranks", type=above(1, int), default=1, help="of ours, which share the threads")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the deck, for both")
    parser.add_argument("--pairs", type=above(1, int), default=10, help="of turns, one of each program")
    parser.add_argument("--steps", type=above(1, int), default=20, help="at most, of a turn")
    parser.add_argument("--turn-seconds", type=above(0, float), default=4.0, help="that the steps of a turn shall take")
    parser.add_argument("--seconds", type=above(0, float), default=180.0, help="of a comparison, after the warm-up")
    parser.add_argument("--patience", type=above(0, float), default=1800.0, help="seconds for one run or answer")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--at-least", type=threshold, nargs="+", action="extend", default=[], metavar="NAME=RATIO",
                        help="exit 1 if a ratio of that name (MODE-PRECISION) is below")


def check_arguments(arguments, names, no_ratio=None):
    """\\param names  that rows will have   \\param no_ratio  reasons by name, of those that will have no ratio. Raises Refused."""
    if arguments.threads % arguments.ranks != 0:
        raise Refused(f"{arguments.ranks} ranks cannot share {arguments.threads} threads evenly")
    for name, _ in arguments.at_least:
        if name not in names:
            raise Refused(f"--at-least {name}: nothing of that name is measured, there are {', '.join(names)}")
        if no_ratio and no_ratio.get(name):
            raise Refused(f"--at-least {name}: {no_ratio[name]}")


def below(rows, thresholds):
    """A sentence for every ratio that is."""
    return [f"{row.shape} {name}: ratio {row.ratio:.3f} is below {least}"
            for name, least in thresholds for row in rows
            if row.name() == name and row.ratio is not None and not row.ratio >= least]


def report(rows, arguments, ours, theirs):
    """Says on what and by what was measured, writes the file. \\param ours  a result   \\return exit code"""
    machine = ours["machine"]
    about = {"cpu": machine["cpu"], "cores": machine["cores"], "threads": arguments.threads, "ranks": arguments.ranks,
             "theirs": theirs, "ours": f"trainstone {program_of(ours)}"}
    print(f"{about['cpu']}, {about['cores']} cores, {arguments.threads} threads, ours on {arguments.ranks} ranks; "
          f"{theirs}; {about['ours']}")
    if arguments.json:
        write_json(arguments.json, {"kind": "comparison", **about, "rows": [row._asdict() for row in rows]})
    complaints = below(rows, arguments.at_least)
    print("\n".join(complaints), end="\n" if complaints else "")
    return BELOW if complaints else OK


def run_tool(command, parser):
    """Ends this program with the exit code of command(arguments)."""
    arguments = parser.parse_args()
    with ended_by_signals():
        try:
            code = command(arguments)
        except Refused as problem:
            print(f"{parser.prog}: {problem}", file=sys.stderr)
            code = USAGE
        except (RunFailed, judgement.UnusableSamples) as problem:
            print(f"{parser.prog}: {problem}", file=sys.stderr)
            code = BELOW
    sys.exit(code)
