"""Tiers 1 and 2 of the gate: what is slower than on record is red, what is not known or not certain is neither red nor
hidden.

usage: gate_ratios_test.py [unittest options]
Stand-ins for the programs write samples without noise, whose ratios the environment gives.
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

from commands import load  # first, as it finds perf
from gate import inner_ratios, ratio_records
from lib import judgement

ratios, builds, self_test = (load(f"gate/{name}") for name in ("ratios", "builds", "self_test"))

LAUNCHER = '#!/bin/sh\nshift 2\nexec "$@"\n'
RATIOS = f"""#!{sys.executable}
import json, os, pathlib, sys
pairs, overrides = int(sys.argv[sys.argv.index("--pairs") + 1]), sys.argv.count("--set")
if os.environ.get("FAILS"):
    sys.exit("a sum is wrong")
counter = pathlib.Path(__file__).with_name("runs")
run = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(run))
disturbed = 2 if os.environ.get("SLOW_RUN") == str(run) else 1
arms = ("ABBABAAB" * pairs)[:2 * pairs]
ratios = {{"A/A x": 1.0, "x/y": 1.5, "z/y": 0.25, **json.loads(os.environ.get("RATIOS", "{{}}"))}}
noise, luck = float(os.environ.get("NOISE", "0")), float(os.environ.get("LUCK", "0"))
series = [{{"name": name, "spread": "" if name.startswith("A/A") else "A/A x", "arms": arms,
           "seconds": [0.01 * (disturbed if place % 9 == 4 else 1) * (ratio * (1 if name[:3] == "A/A" else 1 + luck * run) if arm == "B" else 1) * (1 + noise * (place * 7919 % 11))
                       for place, arm in enumerate(arms)]}} for name, ratio in ratios.items() if ratio]
about = {{"cpu": "a processor", "cores": int(os.environ.get("CORES", "2")), "kokkos": "5 Serial", "threads": 1,
         "gemm": "onednn", "mpi": "MPI", "ranks": 2, "compiler": "c++", "emulated": overrides > 0}}
written = json.loads(os.environ.get("WRITES", "null")) or {{"about": about, "series": series}}
with open(sys.argv[1], "w") as file:
    json.dump(written, file)
"""
REFERENCES = {"x/y": ratio_records.Reference(1.5, 0.0)}
PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, sys
slow = "slow=1" in sys.argv
if slow and os.environ.get("FAILS"):
    sys.exit("a check failed")
seconds = {{"gemm": 0.006 * (1.1 if slow else 1), "other": 0.003, "adam": 0.0001 * (5 if slow else 1)}}
times = {{name: (4 * [None] if os.environ.get("UNTIMED") else [9.0] + 3 * [time]) for name, time in seconds.items()}}
samples = {{"step": [1, 2, 3, 4], "seconds": [9.0] + 3 * [sum(seconds.values())], "phases": {{**times, "exposed communication": 4 * [1.0]}}}}
result = {{"window": {{"first_step": 2, "last_step": 4}}, "samples": samples}}
(pathlib.Path(sys.argv[sys.argv.index("--out") + 1]) / "result.json").write_text(json.dumps(result))
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainstone-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.reference, self.found = self.folder / "kept" / "ratios.json", self.folder / "out" / "ratios.json"
        for name, text in (("trainstone", PROGRAM), ("perf_ratios", RATIOS), ("launcher", LAUNCHER)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def gate(self, command, *arguments, **variables):
        """Exit code and output."""
        out = io.StringIO()
        words = ["gate", "--mpiexec", str(self.folder / "launcher"), "--pairs", "20", *arguments]
        with mock.patch.object(sys, "argv", words), mock.patch.dict(os.environ, variables), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), self.assertRaises(SystemExit) as end:
            command.main()
        return end.exception.code, out.getvalue()

    def verdicts(self, out):
        """The last word of every row, by name."""
        return {line.split("  ")[0]: line.split(" % ")[-1].strip() for line in out.splitlines() if " ... " in line}


class Tier1(Folder):
    def tier_1(self, *arguments, **variables):
        return self.gate(ratios, "--program", str(self.folder / "trainstone"), "--reference", str(self.reference), "--found",
                         str(self.found), *arguments, **variables)

    def record(self, **variables):
        code, out = self.tier_1("--record", **variables)
        self.assertEqual(code, 0, out)

    def test_what_was_recorded_passes(self):
        self.record()
        code, out = self.tier_1()
        self.assertEqual((code, self.verdicts(out)), (0, {"x/y": "ok", "z/y": "ok"}), out)

    def test_what_is_slower_is_red_and_what_is_faster_is_not(self):
        self.record()
        code, out = self.tier_1(RATIOS='{"x/y": 1.65, "z/y": 0.2}')
        self.assertEqual((code, self.verdicts(out)), (1, {"x/y": "SLOWER", "z/y": "faster"}), out)
        self.assertEqual(self.tier_1(RATIOS='{"x/y": 1.56}')[0], 0)

    def test_a_report_is_never_red(self):
        self.record()
        code, out = self.tier_1("--report", RATIOS='{"x/y": 1.65}')
        self.assertEqual((code, self.verdicts(out)["x/y"]), (0, "SLOWER"), out)
        self.assertEqual(self.tier_1("--report", FAILS="1")[0], 0)

    def test_a_file_that_perf_ratios_does_not_write_is_red_and_no_traceback(self):
        self.record()
        for written in ("[1]", "3", '{"about": 3}', '{"about": {"cores": 2}, "series": []}', '{"about": {}, "series": [{}]}'):
            code, out = self.tier_1(WRITES=written)
            self.assertEqual(code, 1, out)
            self.assertIn("tier 1: ", out)
            self.assertEqual(self.tier_1("--report", WRITES=written)[0], 0)

    def test_an_unknown_machine_is_not_red_and_is_recorded_apart(self):
        self.record()
        before = self.reference.read_text()
        code, out = self.tier_1(CORES="64")
        self.assertEqual((code, self.verdicts(out)), (0, {"x/y": "no reference", "z/y": "no reference"}), out)
        self.assertIn("no reference for this machine: cpu a processor, cores 64, ", out)
        self.assertEqual(self.reference.read_text(), before)
        self.reference.write_text(self.found.read_text())
        self.assertEqual(self.tier_1(CORES="64")[0], 0)
        self.assertEqual(self.tier_1(CORES="64", RATIOS='{"x/y": 1.65}')[0], 1)

    def test_machines_are_recorded_side_by_side(self):
        self.record()
        self.assertEqual(self.tier_1("--record", CORES="64", RATIOS='{"x/y": 3.0}')[0], 0)
        self.assertEqual(self.tier_1()[0], 0)
        self.assertEqual(self.tier_1(CORES="64")[0], 0)
        self.assertEqual(self.tier_1(RATIOS='{"x/y": 3.0}')[0], 1)

    def test_noise_is_inconclusive_and_not_recorded(self):
        self.record()
        code, out = self.tier_1(NOISE="5")
        self.assertEqual((code, self.verdicts(out)), (77, {"x/y": "TOO NOISY", "z/y": "TOO NOISY"}), out)
        code, out = self.tier_1("--record", NOISE="5")
        self.assertEqual(code, 77, out)
        self.assertIn("too noisy to be recorded: x/y, z/y", out)

    def test_runs_that_differ_from_each_other_are_not_recorded(self):
        self.record(LUCK="0.02")  # 1.02, 1.04 ... 1.10 of the ratio
        recorded = json.loads(self.reference.read_text())["machines"][0]["ratios"]["x/y"]
        self.assertEqual(recorded, {"ratio": 1.59, "low": 1.53, "high": 1.65})
        self.reference.unlink()
        code, out = self.tier_1("--record", LUCK="0.05")  # 1.05, 1.10 ... 1.25
        self.assertEqual(code, 77, out)
        self.assertIn("too noisy to be recorded: x/y, z/y", out)

    def test_a_ratio_within_what_the_recorded_runs_differed_by_passes(self):
        self.record()
        machines = json.loads(self.reference.read_text())["machines"]
        machines[0]["ratios"]["x/y"].update(low=1.4, high=1.6)  # 1.5 / 1.4 is 1.071
        ratio_records.write(self.reference, [{**machines[0], "sha256": ratio_records.digest(machines[0])}])
        for ratio, expected in ((1.5 * 1.07, 0), (1.5 * 1.075, 1)):
            code, out = self.tier_1(RATIOS=json.dumps({"x/y": ratio}))
            self.assertEqual(code, expected, out)

    def runs(self):
        return int((self.folder / "runs").read_text())

    def test_what_is_not_green_is_measured_again_and_judged_by_all_samples(self):
        self.record()
        for variables, measurements, code in (({}, 1, 0), ({"RATIOS": '{"x/y": 1.65}'}, 5, 1), ({"NOISE": "5"}, 5, 77),
                                              ({"SLOW_RUN": "1"}, 2, 0)):
            (self.folder / "runs").write_text("0")
            found, out = self.tier_1(**variables)
            self.assertEqual((found, self.runs()), (code, measurements), out)
        (self.folder / "runs").write_text("0")
        self.tier_1("--report", NOISE="5")
        self.assertEqual(self.runs(), 1)

    def test_ranks_that_share_a_core_are_inconclusive(self):
        self.record()
        code, out = self.tier_1(CORES="1")
        self.assertEqual(code, 77, out)
        self.assertIn("2 ranks of 1 threads share 1 cores", out)

    def test_a_ratio_that_is_gone_is_red_and_a_new_one_has_no_reference(self):
        self.record()
        code, out = self.tier_1(RATIOS='{"z/y": 0, "new/y": 2.0}')
        self.assertEqual((code, self.verdicts(out)), (1, {"x/y": "ok", "new/y": "no reference"}), out)
        self.assertIn("z/y: on record, not measured\n", out)

    def test_a_run_that_fails_is_red(self):
        self.record()
        code, out = self.tier_1(FAILS="1")
        self.assertEqual(code, 1)
        self.assertIn("a sum is wrong", out)

    def test_what_is_injected_is_not_recorded(self):
        code, out = self.tier_1("--record", "--set", "faults.slow.kernel=gemm")
        self.assertEqual(code, 1, out)
        self.assertFalse(self.reference.exists())

    def test_a_reference_that_was_tampered_with_or_damaged_is_refused(self):
        self.record()
        text = self.reference.read_text()
        content = json.loads(text)
        forged = json.loads(text)
        forged["machines"][0]["ratios"]["x/y"].update(ratio=9.0)
        forged["machines"][0]["sha256"] = ratio_records.digest(forged["machines"][0])
        damaged = [text.replace("1.5,", "1.6,"), text.replace('"cores": 2', '"cores": 3'), "", "{", "[]", "{}",
                   '{"machines": {}}', '{"machines": [3]}', json.dumps(forged),
                   json.dumps({"machines": 2 * content["machines"]})]
        for bad in [None, *damaged]:
            with self.subTest(bad):
                self.assertNotEqual(bad, text)
                self.reference.unlink() if bad is None else self.reference.write_text(bad)
                code, out = self.tier_1()
                self.assertEqual(code, 1, out)
                self.assertIn(f"{self.reference}: no reference of ratios ", out)

    def test_too_few_pairs_are_refused(self):
        for pairs in ("18", "21"):
            code, out = self.tier_1("--pairs", pairs)
            self.assertEqual(code, 2, out)


class Recorded(unittest.TestCase):
    @staticmethod
    def passes(series):
        row = inner_ratios.judge(series, {"x/y": ratio_records.Reference(1.5, 0.0)})[0]
        return row.decision.verdict == judgement.PASSED

    def test_a_ratio_that_only_just_passes_is_not_recorded(self):
        for noise, passes, recorded in ((0.02, True, True), (0.07, True, False), (0.2, False, False)):
            series = SelfTest.measured(1.5, noise=noise)(())
            self.assertEqual((self.passes(series), bool(inner_ratios.steady_ratios([series])[0])), (passes, recorded))

    def test_runs_are_recorded_by_the_samples_of_all(self):
        runs = [SelfTest.measured(1.5, noise=0.1, seed=seed)(()) for seed in range(inner_ratios.RECORDED_RUNS)]
        self.assertFalse(inner_ratios.steady_ratios(runs[:1])[0])
        self.assertEqual([*inner_ratios.steady_ratios(runs)[0]], ["x/y"])


class Tier2(Folder):
    def tier_2(self, *arguments, **variables):
        program = str(self.folder / "trainstone")
        return self.gate(builds, "--base", program, "--change", program, *arguments, **variables)

    def test_a_program_passes_against_itself(self):
        code, out = self.tier_2()
        self.assertEqual((code, self.verdicts(out)), (0, {"step": "ok", "gemm": "ok", "other": "ok"}), out)

    def test_a_slower_phase_is_red_whatever_share_of_the_step_it_has(self):
        code, out = self.tier_2("--change-set", "slow=1")
        found = self.verdicts(out)
        self.assertEqual((code, found["gemm"], found["other"]), (1, "SLOWER", "ok"), out)
        self.assertNotIn("adam", found)  # too short to be timed

    def test_phases_that_a_device_does_not_time_are_not_compared(self):
        code, out = self.tier_2("--change-set", "slow=1", UNTIMED="1")
        self.assertEqual((code, self.verdicts(out)), (1, {"step": "SLOWER"}), out)

    def test_what_both_are_given_makes_no_difference(self):
        self.assertEqual(self.tier_2("--set", "slow=1")[0], 0)

    def test_a_run_that_fails_is_red(self):
        code, out = self.tier_2("--change-set", "slow=1", FAILS="1")
        self.assertEqual(code, 1)
        self.assertIn("a check failed", out)


class Fingerprint(unittest.TestCase):
    def test_instructions_are_those_of_the_first_processor_that_matter(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("model name : x\nflags\t\t: fpu avx2 avx512_bf16 made_up avx\nflags : amx_tile\n")
            file.flush()
            self.assertEqual(ratio_records.instruction_sets(file.name), "avx avx2 avx512_bf16")
        self.assertEqual(ratio_records.instruction_sets("/nowhere"), "")


class SelfTest(unittest.TestCase):
    """Its own judgement, on samples that are made up."""

    @staticmethod
    def measured(ratio, alike=1.0, noise=0.0, name="x/y", seed=1, **others):
        """\\param others  ratios of other names, without noise"""
        arms = "ABBABAAB" * 10

        def series(spread, of_b, noise=noise):
            source = random.Random(seed)
            seconds = [0.01 * (of_b if arm == "B" else 1) * source.lognormvariate(0, noise) for arm in arms]
            return {"spread": spread, "arms": arms, "seconds": seconds}
        return lambda keys: {"A/A x": series("", alike), name: series("A/A x", ratio),
                             **{other: series("A/A x", found, 0.0) for other, found in others.items()}}

    def codes(self, *arguments, **options):
        with contextlib.redirect_stdout(io.StringIO()):
            return self_test.count_false_alarms(self.measured(*arguments, **options), REFERENCES, 10)

    def test_false_alarms_are_counted(self):
        self.assertEqual(self.codes(1.5), 0)
        self.assertEqual(self.codes(1.65), 1)
        self.assertEqual(self.codes(1.5, alike=1.2), 77)
        self.assertEqual(self.codes(1.5, noise=0.5), 77)

    def test_a_slow_kernel_that_is_not_seen_fails_whatever_else_is_red(self):
        slowed = self_test.SLOWED
        references = {name: ratio_records.Reference(1.5, 0.0) for name in (slowed, "other")}
        for name, ratio, noise, expected in ((slowed, 1.65, 0.0, 0), (slowed, 1.5, 0.0, 1), (slowed, 1.65, 0.5, 77),
                                             ("gone", 1.65, 0.0, 1)):
            for other in (1.5, 1.65):
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    code = self_test.see_slow_kernel(self.measured(ratio, noise=noise, name=name, other=other), references)
                self.assertEqual(code, expected, out.getvalue())

    def test_slow_products_that_are_not_seen_fail_whatever_else_is_red(self):
        arguments = argparse.Namespace(program="trainstone", mpiexec="mpiexec", pairs=20)
        for phase, verdict, expected in (("gemm", "SLOWER", 0), ("step", "SLOWER", 0), ("other", "SLOWER", 1),
                                         ("gemm", "ok", 1), ("gemm", "TOO NOISY", 77)):
            table = f"{phase:<32}   1.102  1.095 ... 1.110       1.000   5.0 %  {verdict}\ntier 2: 1 {verdict}\n"
            outcomes = [(0, ""), ({"SLOWER": 1, "ok": 0, "TOO NOISY": 77}[verdict], table)]
            with mock.patch.object(self_test, "run_gate", side_effect=outcomes), \
                    contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(self_test.see_slow_programs(arguments), [0, expected])

    def test_without_a_reference_that_could_be_red_nothing_is_said(self):
        arguments = argparse.Namespace(tier=None, ratios="perf_ratios", program="trainstone", mpiexec="mpiexec", pairs=20, runs=10)
        for noise, expected in ((0.0, 0), (0.5, 77)):
            source = self.measured(1.5, noise=noise)
            slow = self.measured(1.65, noise=noise)

            def measure(program, mpiexec, pairs, keys, fast=source, slow=slow):
                series = (slow if keys else fast)(keys)
                return {}, {name.replace("x/y", self_test.SLOWED): one for name, one in series.items()}
            with mock.patch.object(self_test, "see_messages", return_value=[0]), \
                    mock.patch.object(inner_ratios, "measure", measure), \
                    contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(self_test.self_test(arguments), expected, out.getvalue())


class Shipped(unittest.TestCase):
    def test_the_reference_is_as_it_was_recorded(self):
        self.assertTrue(ratio_records.read(ratios.REFERENCE))  # and there is one


if __name__ == "__main__":
    unittest.main()
