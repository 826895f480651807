"""perf/gate.py --self-test: does the gate see what it promises to see, and nothing else?

Red must be: tier 0 with a message per step that no plan knows, and with a layer more, which plans know; tier 1 with matrix
products that take a tenth longer. Green must be: all but a few of many runs of tier 1 against what was recorded just before.
With --tier 2, of that tier alone: red with such products, green with nothing injected.
"""
import pathlib
import re
import signal
import sys
import time

import gate_ratios
import gate_statistics
from gate_ratios import GREEN, INCONCLUSIVE, RED
from gate_runs import NotPossible, RunFailed, run_session

SLOWER = ("faults.slow.kernel=gemm", "faults.slow.factor=1.1")
SLOWED = "gemm/peak"  # by these keys, in tier 1
SLOWED_PHASES = "gemm|step"  # and in tier 2: a device's phases are not timed
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
    return run_session(command, ending=signal.SIGTERM)  # which it passes on to its runs


def see_messages(arguments, gate):
    codes = []
    for what, (key, named) in MORE_MESSAGES.items():
        code, out = run_gate(arguments, gate, "--program", arguments.program, "--set", key)
        codes.append(outcome_of(f"tier 0, {what}", RED, code if named in out else GREEN))
    return codes


def see_slow_programs(arguments, gate):
    codes = []
    slower = rf"(?m)^({SLOWED_PHASES}) .* {gate_statistics.SLOWER}$"  # a false alarm of another phase is no proof
    for what, expected, keys, row in (("nothing injected", GREEN, (), ""),
                                      ("products take a tenth longer", RED, SLOWER, slower)):
        options = [word for key in keys for word in ("--change-set", key)]
        code, out = run_gate(arguments, gate, "--tier", "2", "--base", arguments.program, "--change", arguments.program,
                             "--pairs", str(arguments.pairs), *options)
        print(out.rstrip())
        codes.append(outcome_of(f"tier 2, {what}", expected, code if code != RED or re.search(row, out) else GREEN))
    return codes


def judge_run(measure, references, keys=()):
    """The rows of one run of tier 1."""
    return gate_ratios.judge_until_green(measure(keys), lambda: measure(keys), gate_ratios.join_series,
                                         lambda series: gate_ratios.judge(series, references))


def see_slow_kernel(measure, references):
    rows = judge_run(measure, references, SLOWER)
    print(gate_ratios.table(rows))
    slowed = [row for row in rows if row.name == SLOWED]  # a false alarm of another ratio is no proof
    return outcome_of("tier 1, products take a tenth longer", RED, gate_ratios.exit_code(slowed))


def count_false_alarms(measure, references, runs):
    """Many runs with nothing injected. \\return exit code"""
    codes = []
    for run in range(runs):
        rows = judge_run(measure, references)
        codes.append(gate_ratios.exit_code(rows))
        said = [f"{row.name} {row.measured.ratio:.3f} ({row.measured.low:.3f} ... {row.measured.high:.3f}), limit "
                f"{100 * row.decision.limit:.1f} %: {row.decision.verdict}"
                for row in rows if row.decision.verdict in (gate_statistics.SLOWER, gate_statistics.NOISY)]
        say("; ".join([f"run {run + 1} of {runs}: {OUTCOMES[codes[-1]]}", *said]))
    red, noisy = codes.count(RED), codes.count(INCONCLUSIVE)
    say(f"tier 1, nothing injected: {runs - red - noisy} of {runs} green, {red} red, {noisy} too noisy")
    allowed = ALLOWED_RED * runs
    return RED if red > allowed else INCONCLUSIVE if red + noisy > allowed else GREEN


def see_ratios(arguments):
    program = arguments.ratios or str(pathlib.Path(arguments.program).with_name("perf_ratios"))

    def measure(keys):
        nonlocal measured
        measured += 1
        return gate_ratios.measure(program, arguments.mpiexec, arguments.pairs, keys)[1]

    measured = 0
    recorded = [measure(()) for _ in range(gate_ratios.RECORDED_RUNS)]
    ratios, noisy = gate_ratios.steady_ratios(recorded)
    say(f"tier 1: {len(ratios)} ratios recorded, too noisy: {', '.join(noisy) or 'none'}")
    if SLOWED not in ratios:  # what has no reference is never red
        raise NotPossible(f"the machine is too noisy: {SLOWED} has no reference")
    references = {name: found.reference() for name, found in ratios.items()}
    codes = [see_slow_kernel(measure, references), count_false_alarms(measure, references, arguments.runs)]
    say(f"tier 1: {measured} measurements of {arguments.pairs} pairs")
    return codes


def self_test(arguments, gate):
    """\\param gate  path of perf/gate.py   \\return exit code"""
    try:
        codes = (see_slow_programs(arguments, gate) if arguments.tier == 2 else
                 [*see_messages(arguments, gate), *see_ratios(arguments)])
    except (RunFailed, NotPossible) as problem:
        say(str(problem))
        return RED if isinstance(problem, RunFailed) else INCONCLUSIVE
    code = RED if RED in codes else INCONCLUSIVE if INCONCLUSIVE in codes else GREEN
    say(f"self-test: {'passed' if code == GREEN else 'FAILED' if code == RED else 'too noisy to say'}")
    return code
