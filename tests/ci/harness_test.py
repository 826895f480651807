#!/usr/bin/env python3
"""The harness files of ci/ on logs of every outcome: their patterns find the figure of merit of a VALID run, and nothing of
any other. Patterns are taken from the files themselves; logs are the program's. ReFrame and JUBE are run where they are
installed, on a program that repeats a log.

usage: harness_test.py
"""
import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
CI = TESTS.parent / "ci"
LOGS = {path.stem: path.read_text() for path in (TESTS / "data" / "logs").glob("*.log")}
FAILED = ("unreferenced", "emulated", "invalid", "stopped")
os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # of a virtual environment
VALUE = r"[0-9]\.[0-9]{6}e[+-][0-9]+"

# Repeats the log that the variable names: its output, its exit code, and what of result.json the harnesses read.
REPEAT = """#!/usr/bin/env python3
import json, os, pathlib, re, sys
if sys.argv[1] != "run" or not pathlib.Path(sys.argv[2]).is_file():
    sys.exit(64)
log = pathlib.Path(os.environ["TRAINSTONE_LOG"]).read_text()
print(log, end="")
status, code = re.search(r"(?m)^RESULT: (\\S+) .* exit=(\\d+) ", log).groups()
rate = re.search(r"(?m)^FOM: (\\S+) ", log)
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True)
(out / "result.json").write_text(json.dumps({
    "status": os.environ.get("TRAINSTONE_STATUS", status), "exit_code": int(code), "topology": {"ranks": 2},
    "stats": {"step_seconds": {"median": 0.5}},
    "fom": {"value": float(rate[1]) * (1 + 1e-9) * float(os.environ.get("TRAINSTONE_FACTOR", 1))} if rate else None}))
sys.exit(int(code))
"""


def constants(path):
    """Strings that a Python file binds to names, without running it."""
    return {target.id: node.value.value for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(node.value, ast.Constant) and isinstance(target, ast.Name)}


def ramble_calls():
    """What application.py tells Ramble: figures of merit and success criteria."""
    figures, criteria = {}, {}
    kit = types.ModuleType("ramble.appkit")
    for name in ("tags", "software_spec", "required_package", "executable", "workload", "workload_variable"):
        setattr(kit, name, lambda *arguments, **options: None)
    kit.ExecutableApplication = object
    kit.figure_of_merit = lambda name, **options: figures.update({name: options})
    kit.success_criteria = lambda name, **options: criteria.update({name: options})
    sys.modules |= {"ramble": types.ModuleType("ramble"), "ramble.appkit": kit}
    code = (CI / "ramble" / "applications" / "trainstone" / "application.py").read_text()
    exec(compile(code, "application.py", "exec"), {})  # pylint: disable=exec-used
    return figures, criteria


def shipped_patterns():
    """(harness, name, pattern, group of the rate or None); every harness reads line by line."""
    for harness, path in (("reframe", CI / "reframe" / "trainstone.py"),
                          ("spack", CI / "spack" / "packages" / "trainstone" / "package.py")):
        found = constants(path)
        yield harness, "FOM", found["FOM"], "fom"
        yield harness, "RESULT", found["RESULT"], None
    figures, criteria = ramble_calls()
    for name, options in figures.items():
        yield "ramble", name, options["fom_regex"], options["group_name"]
    for name, options in criteria.items():
        yield "ramble", name, options["match"], None
    jube = (CI / "jube" / "trainstone.yaml").read_text()
    for name, kind, pattern in re.findall(r"- \{name: (\w+), type: (\w+),.* _: '(\^[^']*)'\}", jube):
        yield "jube", name, pattern, 1 if kind == "float" else None


def matches(pattern, log):
    return [match for line in log.splitlines() for match in [re.match(pattern, line)] if match]


class Patterns(unittest.TestCase):
    def test_every_harness_has_a_rate_and_a_verdict(self):
        found = {(harness, group is not None) for harness, _, _, group in shipped_patterns()}
        self.assertEqual(found, {(harness, rate) for harness in ("reframe", "spack", "ramble", "jube")
                                 for rate in (True, False)})

    def test_ramble_finds_no_variables_in_patterns(self):
        for harness, _, pattern, _ in shipped_patterns():
            self.assertFalse(harness == "ramble" and re.search("[{}]", pattern), pattern)

    def test_there_is_a_log_of_every_outcome(self):
        self.assertEqual(sorted(LOGS), sorted(["valid", *FAILED]))
        for outcome, log in LOGS.items():
            self.assertRegex(log, rf"(?m)^RESULT: {outcome.upper()} class=\S+ exit=\d+ json=\S+$")

    def test_a_valid_run_has_one_rate_and_one_verdict(self):
        rate = float(re.search(rf"(?m)^FOM: ({VALUE}) tokens/s", LOGS["valid"])[1])
        for harness, name, pattern, group in shipped_patterns():
            with self.subTest(f"{harness} {name}"):
                (match,) = matches(pattern, LOGS["valid"])
                if group in (1, "fom"):
                    share = 0.5 if "per rank" in name else 1  # of 2 ranks, rounded
                    self.assertAlmostEqual(float(match[group]) / rate, share, places=6)

    def test_a_golden_file_of_ones_own_is_enough_for_no_class(self):
        line = "RESULT: VALID class=custom golden=local exit=0 json=out/result.json"
        for harness, name, pattern, group in shipped_patterns():
            if group is None:
                with self.subTest(f"{harness} {name}"):
                    self.assertTrue(re.match(pattern, line))
                    self.assertIsNone(re.match(pattern, line.replace("custom", "tiny")))

    def test_no_other_run_has_any(self):
        for harness, name, pattern, _ in shipped_patterns():
            for outcome in FAILED:
                with self.subTest(f"{harness} {name} {outcome}"):
                    self.assertEqual(matches(pattern, LOGS[outcome]), [])
                    self.assertIsNone(re.search(pattern.removeprefix("(?m)"), LOGS[outcome], re.M))

    def test_rates_of_any_size_keep_all_digits(self):
        for value in (1e-300, 1.5e-7, 0.1, 1.0, 9.931313e3, 123456789.0, 9.999999e15, 1.234567e100, 1.7e308):
            line = f"FOM: {value:.6e} tokens/s  ci95 {value / 2:.2e} {value:.2e}"
            for harness, name, pattern, group in shipped_patterns():
                if group in (1, "fom") and "per rank" not in name:
                    with self.subTest(f"{harness} {name} {line}"):
                        self.assertEqual(re.match(pattern, line)[group], f"{value:.6e}")

    def test_what_looks_like_a_rate_is_none(self):
        rate = "9.931313e+03 tokens/s  ci95 9.91e+03 9.96e+03"
        for line in (f"FOM_UNREFERENCED: {rate}", f"FOM_EMULATED: {rate}", f"UNVERIFIED_RATE: {rate}", f" FOM: {rate}",
                     "FOM_UNREFERENCED: 9.931313e+03 tokens/s", f"note: FOM: {rate}",
                     "FOM: nan tokens/s  ci95 nan nan", "FOM: inf tokens/s  ci95 inf inf",
                     "FOM: -9.931313e+03 tokens/s  ci95 0 0", "FOM: 9931.3 tokens/s  ci95 0 0",
                     "FOM: 9.931313e+03 steps/s  ci95 0 0", "RESULT: INVALID class=custom exit=65 json=out/result.json",
                     "RESULT: VALID class=custom exit=65 json=out/result.json", "RESULT: VALIDATED class=a exit=0 json=b",
                     "RESULT: VALID class=tiny golden=local exit=0 json=out/result.json",
                     "RESULT: UNREFERENCED class=custom exit=0 json=out/result.json"):
            for harness, name, pattern, _ in shipped_patterns():
                with self.subTest(f"{harness} {name} {line}"):
                    self.assertIsNone(re.search(pattern, line))  # as those do that do not read line by line


class Tools(unittest.TestCase):
    """The harnesses themselves, on a program that repeats a log."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="trainstone-harness-")))
        self.program = self.folder / "repeat"
        self.program.write_text(REPEAT)
        launcher = self.folder / "mpiexec"  # one process stands for all ranks
        launcher.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        for path in (self.program, launcher):
            path.chmod(0o755)

    def run_tool(self, *command, outcome="valid", **variables):
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "TRAINSTONE": str(self.program),
                       "TRAINSTONE_LOG": str(TESTS / "data" / "logs" / f"{outcome}.log"), **variables}
        return subprocess.run([*map(str, command)], cwd=self.folder, env=environment, capture_output=True, text=True,
                              timeout=100, check=False)

    def reframe(self, **options):
        shutil.rmtree(self.folder / "stage", ignore_errors=True)
        report = self.folder / "report.json"
        ended = self.run_tool("reframe", "-C", CI / "reframe" / "settings.py", "-c", CI / "reframe" / "trainstone.py",
                              "--prefix", self.folder, "--report-file", report, "-S", f"program={self.program}", "-r",
                              **options)
        (case,) = json.loads(report.read_text())["runs"][0]["testcases"]
        return ended, case

    @unittest.skipUnless(shutil.which("reframe"), "ReFrame is not installed: pip install ReFrame-HPC")
    def test_reframe_passes_a_valid_run_alone(self):
        ended, case = self.reframe()
        self.assertEqual((ended.returncode, case["result"]), (0, "pass"), ended.stdout)
        rate = float(re.search(rf"(?m)^FOM: ({VALUE}) ", LOGS["valid"])[1])
        self.assertAlmostEqual(float(re.search(r"fom: ([0-9.e+]+) tokens/s", ended.stdout)[1]) / rate, 1, places=5)
        for outcome in FAILED:
            ended, case = self.reframe(outcome=outcome)
            self.assertEqual((ended.returncode, case["result"], case["fail_phase"]), (1, "fail", "sanity"), ended.stdout)

    @unittest.skipUnless(shutil.which("reframe"), "ReFrame is not installed: pip install ReFrame-HPC")
    def test_reframe_compares_output_and_result_file(self):
        for variables in ({"TRAINSTONE_STATUS": "INVALID"}, {"TRAINSTONE_FACTOR": "1.001"}):
            self.assertEqual(self.reframe(**variables)[1]["fail_phase"], "sanity")

    @unittest.skipUnless(shutil.which("jube"), "JUBE is not installed: apt-get install jube")
    def test_jube_has_rates_of_valid_runs_alone(self):
        rate = re.search(rf"(?m)^FOM: ({VALUE}) ", LOGS["valid"])[1]
        for outcome in ("valid", *FAILED):
            shutil.rmtree(self.folder / "results", ignore_errors=True)
            ended = self.run_tool("jube", "run", "--hide-animation", "-r", "-o", self.folder / "results",
                                  CI / "jube" / "trainstone.yaml", outcome=outcome)
            done = int(outcome not in ("invalid", "stopped"))
            self.assertRegex(ended.stdout, rf"\| +train \| +1 \| +0 \| +0 \| +{1 - done} \| +{done} \|")
            rates = re.findall(r"\| +VALID +\| +(\S+) +\|", ended.stdout)
            self.assertEqual([float(one) for one in rates], [float(rate)] if outcome == "valid" else [], ended.stdout)


if __name__ == "__main__":
    unittest.main()
