"""perf/gate.py --self-test: does the gate see what it promises to see, and nothing else?

Red must be: tier 0 with a message per step that no plan knows, and with a layer more, which plans know; tiers 1 and 2 with
matrix products that take a tenth longer. Green must be: all but a few of many runs with nothing injected, of tier 1 against
what was recorded just before, and of trainings against trainings alike, decided as tier 2 decides.
"""
import pathlib
import subprocess
import sys
import time

import gate_ratios
from gate_ratios import GREEN, INCONCLUSIVE, RED
from gate_runs import NotPossible, RunFailed
from gate_statistics import LEAST_PAIRS

SLOWER = ("faults.slow.kernel=gemm", "faults.slow.factor=1.1")
MORE_MESSAGES = {"a message that no plan knows": ("faults.extra_message=true", "comm-volume"),
                 "a layer more, which plans know": ("model.layers=3", "configurations differ")}
ALLOWED_RED = 0.04  # of the runs with nothing injected
BEGIN = time.monotonic()
OUTCOMES = {GREEN: "green", RED: "RED", INCONCLUSIVE: "too noisy"}


def say(text):
    print(f"{time.monotonic() - BEGIN:6.0f} s  {text}", flush=True)


def outcome_of(part, expected, code):
    """Prints it. \\return GREEN if it is as expected"""
    say(f"{part}: {OUTCOMES.get(code, f'exit {code}')}, expected {OUTCOMES[expected]}")
    return GREEN if code == expected else INCONCLUSIVE if code == INCONCLUSIVE else RED


def run_gate(arguments, gate, *options):
    """Exit code and output of the gate's own command."""
    command = [sys.executable, str(gate), "--mpiexec", arguments.mpiexec, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def see_messages(arguments, gate):
    codes = []
    for what, (key, named) in MORE_MESSAGES.items():
        code, out = run_gate(arguments, gate, "--program", arguments.program, "--set", key)
        codes.append(outcome_of(f"tier 0, {what}", RED, code if named in out else GREEN))
    return codes


def see_slow_programs(arguments, gate):
    codes = []
    for what, expected, keys in (("nothing injected", GREEN, ()), ("products take a tenth longer", RED, SLOWER)):
        options = [word for key in keys for word in ("--change-set", key)]
        code, out = run_gate(arguments, gate, "--tier", "2", "--base", arguments.program, "--change", arguments.program,
                             "--pairs", str(LEAST_PAIRS), *options)
        print(out.rstrip())
        codes.append(outcome_of(f"tier 2, {what}", expected, code))
    return codes


def judge_alike(series):
    """The rows of arms alike, as tier 2 decides."""
    return [gate_ratios.compare_arms(name, one["arms"], one["seconds"]) for name, one in series.items() if not one["spread"]]


def see_slow_kernel(measure, references, pairs):
    rows = gate_ratios.judge(measure(pairs, SLOWER)[1], references)
    print(gate_ratios.table(rows))
    return outcome_of("tier 1, products take a tenth longer", RED, gate_ratios.exit_code(rows))


def count_false_alarms(measure, references, runs):
    """Many runs with nothing injected. \\return codes of tier 1 and of arms alike"""
    found = {"tier 1": [], "arms alike": []}
    for run in range(runs):
        _, series = measure(LEAST_PAIRS, ())
        for kind, rows in (("tier 1", gate_ratios.judge(series, references)), ("arms alike", judge_alike(series))):
            code = gate_ratios.exit_code(rows)
            found[kind].append(code)
            said = [f"{row.name} {row.measured.ratio:.3f} {row.decision.verdict}" for row in rows
                    if code != GREEN and row.decision.verdict in ("SLOWER", "TOO NOISY")]
            say(f"run {run + 1} of {runs}, {kind}: {OUTCOMES[code]}{': ' if said else ''}{', '.join(said)}")
    codes = []
    for kind, outcomes in found.items():
        red, noisy = outcomes.count(RED), outcomes.count(INCONCLUSIVE)
        say(f"{kind}, nothing injected: {runs - red - noisy} of {runs} green, {red} red, {noisy} too noisy")
        codes.append(RED if red > ALLOWED_RED * runs else INCONCLUSIVE if red + noisy > ALLOWED_RED * runs else GREEN)
    return codes


def see_ratios(arguments):
    program = arguments.ratios or str(pathlib.Path(arguments.program).with_name("perf_ratios"))

    def measure(pairs, keys):
        return gate_ratios.measure(program, arguments.mpiexec, pairs, keys)

    recorded = [measure(arguments.pairs, ())[1] for _ in range(gate_ratios.RECORDED_RUNS)]
    ratios, noisy = gate_ratios.steady_ratios(recorded)
    say(f"tier 1: {len(ratios)} ratios recorded, too noisy: {', '.join(noisy) or 'none'}")
    references = {name: values[0] for name, values in ratios.items()}
    return [see_slow_kernel(measure, references, arguments.pairs), *count_false_alarms(measure, references, arguments.runs)]


def self_test(arguments, gate):
    """\\param gate  path of perf/gate.py   \\return exit code"""
    try:
        codes = [*see_messages(arguments, gate), *see_slow_programs(arguments, gate), *see_ratios(arguments)]
    except (RunFailed, NotPossible) as problem:
        say(str(problem))
        return RED if isinstance(problem, RunFailed) else INCONCLUSIVE
    code = RED if RED in codes else INCONCLUSIVE if INCONCLUSIVE in codes else GREEN
    say(f"self-test: {'passed' if code == GREEN else 'FAILED' if code == RED else 'too noisy to say'}")
    return code
