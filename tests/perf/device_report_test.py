"""perf/device/device_report: parts have their time and keep what they found, kernels are set beside their bounds, and what is
wrong or not possible is told. Stand-ins take the places of the programs.

usage: device_report_test.py [unittest options]
"""
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

from commands import PERF, load

sys.path.insert(0, str(PERF / "device"))
import correctness_parts as correctness
import part_runner
import roofline
import speed_parts as speed
from part_runner import FAILED, NOT_POSSIBLE, OUT_OF_TIME, PASSED, Part, Table
from report_page import markdown

# Answers as the program would; the test chooses how by variables.
TRAINSTONE = f"""#!{sys.executable}
import json, os, pathlib, sys
def after(option):
    return sys.argv[sys.argv.index(option) + 1]
with open(os.environ["LOG"], "a") as file:
    print(os.environ.get("RANKS", "1"), *sys.argv[1:], file=file)
keys = dict(word.split("=", 1) for option, word in zip(sys.argv, sys.argv[1:]) if option == "--set")
if sys.argv[1] == "estimate":
    asked = keys.get("kernels.attention")
    if asked == "?":
        sys.exit('kernels.attention = "?" is unknown, must be one of auto, flash, tensor_cores, paper')
    if "quickstart" in sys.argv[2] and asked and "--ranks 2" not in " ".join(sys.argv):
        sys.exit("comm.expected_ranks = 2, but the run has 1 rank")
    if "NO_PROVIDERS" in os.environ or asked == "paper" or asked == "tensor_cores" and keys.get("precision.storage") != "bf16":
        sys.exit(64)
    if "--device-mem" in sys.argv:
        needed = {{"none": 90e9, "selective": 60e9, "full": 20e9}}[keys["memory.recompute"]]
        sys.exit(69 if int(after("--device-mem")) < needed else 0)
    if "--json" in sys.argv:
        pathlib.Path(after("--json")).write_text(json.dumps({{"model_parameters": 1000}}))
    sys.exit()
if sys.argv[1] == "verify":
    digest = os.environ.get("HASH_ON_" + os.environ.get("RANKS", "1"), "0123456789abcdef")
    print(f"M  2, fp32 , ddp      {{digest}} same\\nVERIFICATION PASSED: 1 configurations")
    sys.exit()
if "model.save" in keys:
    with open(keys["model.save"], "a") as file:
        file.write(os.urandom(8).hex() if "RANDOM_BITS" in os.environ else "same")
kernels = [{{"label": "trainstone::gemm", "launches": 2, "seconds": 0.75, "flops": 6e14, "bytes": 1e9}},
           {{"label": "trainstone::adamw", "launches": 1, "seconds": 0.25, "flops": 0, "bytes": 5e11}}]
result = {{"status": os.environ.get("STATUS", "VALID"), "samples": {{"loss": [5.0, 4.0], "tokens": [100, 100]}},
          "metrics": {{"step_seconds_median": 0.5, "executed_flops_per_second": 1e12}},
          "energy": json.loads(os.environ.get("ENERGY", "null")),
          "params": {{"precision.recipe": {{"value": "fp32"}}, "memory.recompute": {{"value": "none"}}}},
          "providers": {{"attention": "flash", "gemm": ["onednn", "kokkos"]}}, "topology": {{"buffers": "host"}},
          "counted": {{"kernel_launches": 7}},
          "peaks": {{"gemm_flops_per_second": 1e15, "bandwidth_bytes_per_second": 4e12}}}}
if "bench.kernels" in keys:
    result["kernels"] = kernels
pathlib.Path(after("--out"), "result.json").write_text(json.dumps(result))
sys.exit(int(os.environ.get("CODE", "0")))
"""
LAUNCHER = '#!/bin/sh\nexport RANKS=$2\nshift 2\nexec "$@"\n'
TORCH = """#!/bin/sh
echo a warning
echo '{"torch": "9.9", "cudnn": 9, "device": "paper", "rows": [
 {"shape": "2x64x3x64", "backend": "flash", "forward": 1e-3, "backward": 2e-3},
 {"shape": "2x64x3x64", "backend": "cudnn", "reason": "No available kernel"}]}' | tr -d '\\n'
"""


class WithRunner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("trainstone", TRAINSTONE)
        arguments = types.SimpleNamespace(build=str(self.folder), run_by="", mpiexec=self.write("launcher", LAUNCHER), quick=False,
                                          minutes=5, host_report=None, torch_python="", llmc="")
        self.runner = part_runner.Runner(arguments)
        (self.folder / "log").write_text("")
        self.set("LOG", str(self.folder / "log"))
        silent = contextlib.redirect_stdout(io.StringIO())
        silent.__enter__()
        self.addCleanup(silent.__exit__, None, None, None)
        self.devices([])

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def set(self, name, value):
        patch = mock.patch.dict(os.environ, {name: value})
        patch.start()
        self.addCleanup(patch.stop)

    def devices(self, found):
        patch = mock.patch.object(speed, "gpus", lambda: found)
        patch.start()
        self.addCleanup(patch.stop)

    def log(self):
        return (self.folder / "log").read_text().splitlines()

    def only(self, tables):
        table, = tables
        return table


class Time(WithRunner):
    def test_every_part_has_its_share_and_what_those_before_it_leave(self):
        parts = [Part(name, seconds, "", None) for name, seconds in (("a", 120), ("b", 60), ("c", 20))]
        self.assertEqual(part_runner.deadlines(parts, 400), [240, 360, 400])
        self.assertEqual(part_runner.deadlines(parts[1:], 400), [300, 400])

    def test_the_parts_of_the_report_take_twelve_minutes_and_begin_with_what_is_right(self):
        parts = load("device/device_report").PARTS
        self.assertEqual(sum(part.seconds for part in parts), 12 * 60)
        self.assertEqual([part.name for part in parts], ["tests", "fixtures", "matrix", "golden", "bits", "precision", "kernels",
                                                         "peers", "attention", "collectives", "energy"])

    def test_a_part_that_breaks_or_ends_late_takes_nothing_from_the_others(self):
        kept, ends = [], []

        def breaks(_):
            yield Table("one", [{"a": 1}])
            raise KeyError("no such thing")

        def late(runner):
            ends.append(runner.end)
            yield Table("late", [], runner.run(["sleep", "9"]).outcome)

        def last(runner):
            ends.append(runner.end)
            yield Table("last", [{"b": 2}], note="said")

        parts = [Part("breaks", 1, "x", breaks), Part("late", 1, "y", late), Part("last", 2, "z", last)]
        start = time.monotonic()
        found = part_runner.run_parts(parts, self.runner, 4, lambda found: kept.append(json.loads(json.dumps(found))))
        self.assertLess(time.monotonic() - start, 7)
        self.assertEqual({name: part["outcome"] for name, part in found.items()},
                         {"breaks": FAILED, "late": OUT_OF_TIME, "last": PASSED})
        self.assertEqual([table["note"] for table in found["breaks"]["tables"]], ["", "KeyError: 'no such thing'"])
        self.assertEqual(found["breaks"]["tables"][0]["rows"], [{"a": 1}])
        self.assertEqual([[len(part["tables"]) for part in one.values()] for one in kept], [[1], [2], [2, 1], [2, 1, 1]])
        self.assertEqual([round(end - start) for end in ends], [2, 4])
        page = markdown(["CPU: paper"], found)
        for line in ("| breaks | **failed** |", "## late: out of time", "## last: passed\n\nsaid\n\n| b |\n|---|\n| 2 |"):
            self.assertIn(line, page)

    def test_nothing_is_started_without_time_and_what_runs_is_ended(self):
        self.runner.end = time.monotonic() + 0.5
        self.assertEqual(self.runner.run([self.folder / "trainstone", "verify"]).outcome, OUT_OF_TIME)
        self.assertEqual(self.log(), [])
        self.runner.end = time.monotonic() + 60
        start = time.monotonic()
        child = self.folder / "child"
        ended = self.runner.run(["sh", "-c", f"sleep 60 & echo $! > {child}; wait"], limit=1.2)
        self.assertEqual((ended.outcome, ended.code), (OUT_OF_TIME, None))
        self.assertLess(time.monotonic() - start, 30)
        with self.assertRaises(ProcessLookupError):
            for _ in range(100):
                os.kill(int(child.read_text()), 0)
                time.sleep(0.05)

    def test_a_signal_ends_the_report_and_what_it_runs(self):
        child = self.folder / "child"
        self.write("trainstone", f'#!/bin/sh\n[ "$1" = --version ] && exit 0\necho $$ > {child}.new\nmv {child}.new {child}\n'
                                 'exec sleep 60\n')
        report = subprocess.Popen([sys.executable, PERF / "device/device_report", "--build", self.folder, "--parts", "matrix",
                                   "--out", self.folder / "report", "--mpiexec", self.folder / "launcher"],
                                  stdout=subprocess.DEVNULL)
        for _ in range(600):
            if child.exists():
                break
            time.sleep(0.05)
        report.send_signal(signal.SIGINT)
        self.assertEqual(report.wait(30), 128 + signal.SIGINT)
        with self.assertRaises(ProcessLookupError):
            for _ in range(100):
                os.kill(int(child.read_text()), 0)
                time.sleep(0.05)

    def test_programs_see_no_overrides_of_decks(self):
        self.set("TRAINSTONE_SET", "data.steps=1")
        self.assertEqual(self.runner.run(["sh", "-c", "echo ${TRAINSTONE_SET-none}"]).text, "none\n")

    def test_outcomes_of_what_consists_of_several(self):
        for outcomes, expected in (((PASSED, OUT_OF_TIME, FAILED), FAILED), ((PASSED, OUT_OF_TIME), OUT_OF_TIME),
                                   ((NOT_POSSIBLE, PASSED), PASSED), ((NOT_POSSIBLE,), NOT_POSSIBLE), ((), PASSED)):
            self.assertEqual(part_runner.worst(iter(outcomes)), expected)
        self.assertEqual(self.runner.run(["false"]).reason, "no output")
        self.assertIn("No such file", self.runner.run([self.folder / "none"]).reason)


class Roofline(unittest.TestCase):
    """By hand: 1000 TFLOP/s and 4 TB/s."""

    def rows(self, *kernels, peaks=(1e15, 4e12)):
        made = [{"label": f"trainstone::{name}", "launches": 1, "seconds": seconds, "flops": flops, "bytes": nbytes}
                for name, seconds, flops, nbytes in kernels]
        return [*roofline.kernel_rows(made, *peaks)]

    def test_bounds(self):
        self.assertEqual(roofline.bound(3e12, 4e9, 1e15, 4e12), (3e-3, "gemm"))
        self.assertEqual(roofline.bound(3e12, 16e9, 1e15, 4e12), (4e-3, "bandwidth"))

    def test_kernels_beside_their_bounds(self):
        # of 100 ms: a product of 60 TFLOP in 80 ms; 56 GB in 17.5 ms, of which 14 ms are needed; 3 ms that should take 1
        norm, adamw, rest = self.rows(("adamw", 17.5e-3, 1e9, 56e9), ("gemm", 79.5e-3, 60e12, 8e9), ("rest", 3e-3, 0, 4e9))
        self.assertEqual([row["kernel"] for row in (norm, adamw, rest)], ["gemm", "adamw", "rest"])
        for name, value in (("ms", 79.5), ("share, %", 79.5), ("TFLOP/s", 60 / 0.0795), ("GB/s", 8 / 0.0795),
                            ("of bound, %", 6000 / 79.5)):
            self.assertAlmostEqual(norm[name], value, 6, name)
        self.assertEqual((norm["bound"], adamw["bound"]), ("gemm", "bandwidth"))
        self.assertAlmostEqual(adamw["of bound, %"], 80)
        self.assertAlmostEqual(rest["of bound, %"], 100 / 3)
        self.assertEqual([row["marked"] for row in (norm, adamw, rest)], [None, None, None])  # 3 % are not more than 3 %

    def test_what_takes_long_and_is_slow_is_marked(self):
        rows = self.rows(("fast", 50e-3, 35e12, 0), ("slow", 50e-3, 34e12, 0), ("short", 1e-3, 0, 1e6))
        self.assertEqual({row["kernel"]: row["marked"] for row in rows}, {"fast": None, "slow": "below 70%", "short": None})
        self.assertEqual(roofline.summary(rows),
                         "Kernels take 101 ms, and their bounds are 69 ms: 68%. With more than 3% of that time and below 70% of "
                         "their bound: slow.")

    def test_without_peaks_there_are_no_bounds(self):
        row, = self.rows(("a", 0.5, 1e12, 1e9), ("never", 0, 0, 0), peaks=(None, None))
        self.assertEqual((row["bound"], row["of bound, %"], row["marked"], row["GB/s"]), (None, None, None, 2))
        self.assertEqual(roofline.summary([row]), "The peaks of this machine were not measured.")

    def test_flops_of_the_causal_half(self):
        # 16 samples, 12 heads, 1024 x 1024 / 2 pairs: two products of 2 x 64
        self.assertEqual(roofline.causal_flops(16, 1024, 12, 64), 25_769_803_776)
        self.assertEqual(roofline.causal_flops(16, 1024, 12, 64, backward=True), 64_424_509_440)
        self.assertEqual(roofline.causal_flops(1, 2, 1, 3), 24)


class Correctness(WithRunner):
    def test_providers_are_those_with_which_the_deck_can_be_estimated(self):
        self.assertEqual(self.runner.providers("kernels.attention", "deck"), ["flash"])
        self.assertEqual(self.runner.providers("kernels.attention", "deck", ["precision.storage=bf16"]), ["flash", "tensor_cores"])

    def test_curves_are_run_by_every_provider_and_unreferenced_ones_prove_nothing(self):
        tables = [*correctness.golden(self.runner)]
        self.assertEqual([(table.name, [row["attention"] for row in table.rows], table.outcome) for table in tables],
                         [(name, ["materialized", "flash", "tensor_cores"], PASSED)
                          for name in ("small on 1 rank", "quickstart on 2 ranks")])
        runs = [line for line in self.log() if " run " in line]
        self.assertEqual([line[0] for line in runs], ["1"] * 3 + ["2"] * 3)
        self.assertEqual(["precision.storage=bf16" in line for line in runs], [False, False, True] * 2)
        self.set("NO_PROVIDERS", "1")
        with self.assertRaisesRegex(RuntimeError, "no provider of attention takes inputs/small.toml"):
            next(correctness.golden(self.runner))
        del os.environ["NO_PROVIDERS"]
        self.set("STATUS", "UNREFERENCED")
        self.assertEqual(next(correctness.golden(self.runner)).outcome, FAILED)

    def test_a_part_whose_time_is_up_has_not_failed(self):
        self.runner.end = time.monotonic()
        for tables in (correctness.golden, correctness.same_bits, correctness.matrix, correctness.fixtures, speed.kernels,
                       speed.collectives, speed.energy):
            found = [*part_runner.tables_of(Part("a", 1, "", tables), self.runner)]
            self.assertEqual({table.outcome for table in found}, {OUT_OF_TIME}, tables)

    def test_what_the_program_refuses_is_not_possible_and_what_breaks_has_failed(self):
        self.set("CODE", "64")
        self.assertEqual(next(correctness.golden(self.runner)).outcome, NOT_POSSIBLE)
        self.set("CODE", "65")
        self.assertEqual(next(correctness.golden(self.runner)).outcome, FAILED)

    def test_hashes_of_1_and_2_ranks_are_compared(self):
        table = self.only(correctness.matrix(self.runner))
        self.assertEqual((table.outcome, [row["hashes"] for row in table.rows]), (PASSED, [1] * 4))
        self.set("HASH_ON_2", "0123456789abcdee")
        table = self.only(correctness.matrix(self.runner))
        self.assertEqual([row["outcome"] for row in table.rows], [PASSED, FAILED] * 2)
        self.assertEqual(table.rows[1]["other than on 1 rank"], "M  2, fp32")

    def test_files_of_two_runs_are_compared(self):
        table = self.only(correctness.same_bits(self.runner))
        self.assertEqual((table.outcome, [row["same file"] for row in table.rows]), (PASSED, [True] * 3))
        self.set("RANDOM_BITS", "1")
        table = self.only(correctness.same_bits(self.runner))
        self.assertEqual((table.outcome, [row["same file"] for row in table.rows]), (FAILED, [False] * 3))


class Speed(WithRunner):
    def test_recomputation_is_as_much_as_the_device_needs(self):
        fitting = lambda taken=0: speed.fitting(self.runner, ("a=b",), taken)[-1]
        self.assertEqual(fitting(), "memory.recompute=none")
        self.devices([{"memory.total": "95367 MiB"}])  # 100.0 GB, of which 4 are left
        self.assertEqual([fitting(), fitting(10e9), fitting(50e9), fitting(90e9)],
                         [f"memory.recompute={word}" for word in ("none", "selective", "full", "full")])

    def test_steps_and_kernels(self):
        first, second, models = speed.kernels(self.runner)
        self.assertEqual([first.name, second.name], ["kernels of GPT-2 124 M", "kernels of GPT-2 XL"])
        # 0.75 s for 0.6 PFLOP: 80 % of 1000 TFLOP/s; 0.25 s for 0.5 TB, half of 4 TB/s
        self.assertEqual([(row["kernel"], round(row["of bound, %"], 6), row["marked"]) for row in first.rows],
                         [("gemm", 80, None), ("adamw", 50, "below 70%")])
        self.assertIn("1000 TFLOP/s, 4000 GB/s", first.note)
        self.assertEqual([row["tokens/s"] for row in models.rows], [200, 200])
        runs = [line for line in self.log() if " run " in line]
        self.assertEqual(["bench.kernels=true" in line for line in runs], [False, True] * 2)
        for line, micro in zip(runs, (64, 64, 16, 16)):
            self.assertIn(f"batch.micro={micro} ", line)
            self.assertIn("data.sequence=1024 ", line)

    def test_peers_that_are_not_named_are_not_possible(self):
        tables = [*speed.peers(self.runner)]
        self.assertEqual([table.outcome for table in tables], [NOT_POSSIBLE] * 2)
        self.assertEqual([row["reason"] for row in tables[0].rows],
                         ["--llmc PATH/train_gpt2cu is not given", "--torch-python PYTHON is not given"])

    def test_peers_are_asked_for_the_same_shape_and_told_in_tokens(self):
        row = {"turns": "TOOT", "their_ms": 250.0, "our_ms": 200.0, "ratio": 1.25}
        seen = []

        def run(command, limit, **_):
            seen.append([*map(str, command)])
            self.assertEqual(limit, 400)
            pathlib.Path(command[command.index("--json") + 1]).write_text(json.dumps({"theirs": "PyTorch 9", "rows": [row]}))
            return part_runner.Ended(PASSED, code=0)

        with mock.patch.object(self.runner, "run", run):
            found = speed.comparison(self.runner, ["perf/compare/pytorch"], ["batch.micro=16", "data.sequence=1024"], 400)
        self.assertEqual((found["by"], found["ratio"], found["turns"], found["outcome"]), ("PyTorch 9", 1.25, "TOOT", PASSED))
        self.assertEqual((found["their tokens/s"], found["our tokens/s"]), (65536, 81920))
        self.assertEqual(seen[0][seen[0].index("--seconds") + 1], "100")  # in each of four turns
        self.assertEqual(seen[0][-4:], ["--set", "batch.micro=16", "--set", "data.sequence=1024"])

    def test_attention_alone_is_told_in_the_products_of_the_causal_half(self):
        run = lambda name, time, unit="us", kind="iteration": {"name": f"flash_attention_{name}/manual_time", "run_type": kind,
                                                               "real_time": time, "time_unit": unit}
        made = [run("forward/2x64x3x64/bf16/ours", time) for time in (3.0, 1.0, 2.0)]
        made += [run("forward/2x64x3x64/bf16/ours", 99.0, kind="aggregate"), run("backward/2x64x3x64/bf16/tensor_cores", 5, "ms")]
        made.append({**run("forward/2x64x3x64/bf16/wgmma", 1.0), "error_occurred": True})
        found = speed.times_of(made)
        self.assertEqual(found, {"2x64x3x64": {"flash": {"forward": 2e-6}, "tensor_cores": {"backward": 5e-3}}})
        result = json.dumps({"benchmarks": made})
        self.write("perf_kernels", f"#!{sys.executable}\nimport sys\npath = next(word for word in sys.argv if '_out=' in word)\n"
                                   f"open(path.partition('=')[2], 'w').write({result!r})\n")
        self.runner.quick, self.runner.arguments.torch_python = True, self.write("python", TORCH)
        table = self.only(speed.attention(self.runner))
        self.assertEqual((table.outcome, table.note), (PASSED, "PyTorch 9.9, cuDNN 9, paper."))
        rows = {row["by"]: row for row in table.rows}
        self.assertAlmostEqual(rows["flash"]["forward, TFLOP/s"], 2 * 2 * 3 * 64 * 64 * 64 / 2e-6 / 1e12)
        self.assertAlmostEqual(rows["flash by PyTorch"]["backward, TFLOP/s"], 5 * 2 * 3 * 64 * 64 * 64 / 2e-3 / 1e12)
        self.assertEqual(rows["cudnn by PyTorch"]["reason"], "No available kernel")
        self.write("python", "#!/bin/sh\necho none here >&2; exit 77\n")
        table = self.only(speed.attention(self.runner))
        self.assertEqual((table.outcome, table.note), (PASSED, "PyTorch: none here"))
        self.write("perf_kernels", "#!/bin/sh\nexit 0\n")
        self.assertEqual(self.only(speed.attention(self.runner)).outcome, FAILED)

    def test_energy_of_a_step_and_of_a_token(self):
        self.assertEqual(self.only(speed.energy(self.runner)).outcome, NOT_POSSIBLE)
        # 10 steps of 100 tokens in 4 s
        self.set("ENERGY", json.dumps({"host_joules": None, "device_joules": 2000.0, "seconds": 4.0, "tokens": 1000}))
        row = self.only(speed.energy(self.runner)).rows[0]
        self.assertLessEqual({"device, J per step": 200, "device, mJ per token": 2000, "device, W": 500, "seconds": 4}.items(),
                             row.items())
        self.assertNotIn("host, W", row)


class Command(WithRunner):
    def test_an_unknown_part_is_a_usage_error(self):
        report = load("device/device_report")
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as end:
            report.chosen_parts(["kernels", "none"])
        self.assertEqual(end.exception.code, 64)
        self.assertIn("--parts: there is no part none; there are tests, fixtures,", errors.getvalue())
        self.assertEqual([part.name for part in report.chosen_parts(["energy", "kernels"])], ["kernels", "energy"])


if __name__ == "__main__":
    unittest.main()
