"""perf/compare/pytorch times in turns, gives ratios of equal trainings alone, and does without PyTorch in CI.

usage: compare_pytorch_test.py PROGRAM [unittest options]
Stand-ins take the places of PyTorch and of Trainstone; PROGRAM is asked what the shapes are.
"""
import itertools
import os
import pathlib
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

from compare_fixture import LOSSES, PARAMETERS, Comparing

from commands import PERF, load
from compare import comparison

pytorch = load("compare/pytorch")

PROGRAM = None
WORKER = f"""#!{sys.executable}
import json, os, sys
def log(text):
    with open(os.environ["LOG"], "a") as file:
        file.write(text + "\\n")
if "NO_TORCH" in os.environ:
    sys.exit(77)
config = json.loads(sys.argv[2])
log("W " + os.environ["OMP_NUM_THREADS"] + " " + sys.argv[2])
seconds = float(os.environ.get("THEIR_SECONDS", "0.2"))
print(json.dumps({{"seconds": [40.0, seconds, seconds], "losses": json.loads(os.environ.get("THEIR_LOSSES", "{LOSSES}")),
                  "torch": "9.9", "capability": "paper", "parameters": int(os.environ.get("PARAMETERS", "{PARAMETERS}"))}}),
      flush=True)
for line in sys.stdin:
    if "DIES" in os.environ:
        sys.exit("out of luck")
    untimed, timed = map(int, line.split())
    log(f"T {{untimed}} {{timed}}")
    print(json.dumps({{"seconds": [seconds] * timed, "losses": [float(os.environ.get("LATER", "6"))] * timed}}), flush=True)
log("end")
"""
EAGER = ("2x128", "--precision", "fp32", "--modes", "eager")


class Compared(Comparing):
    main = staticmethod(pytorch.main)

    def setUp(self):
        super().setUp()
        self.worker = self.write("python", WORKER)
        for name, value in (("IDLE_POLL", 0.01), ("IDLE_PATIENCE", 300.0)):
            patch = mock.patch.object(pytorch, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.processor("fpu avx512f avx512_bf16")

    def processor(self, flags, key="flags"):
        """This machine's, as the system describes it."""
        described = self.write("cpuinfo", f"processor\t: 0\nmodel name\t: paper\n{key}\t\t: {flags}\n\nprocessor\t: 1\n")
        patch = mock.patch.object(pytorch, "CPUINFO", pathlib.Path(described))
        patch.start()
        self.addCleanup(patch.stop)

    def tool(self, *arguments, **variables):
        return super().tool("--python", self.worker, *arguments, **variables)

    def test_turns_alternate_and_their_ratio_is_told(self):
        code, out = self.tool(*EAGER, "--pairs", "6", "--steps", "3")
        self.assertEqual(code, 0, out)
        first, *turns = [words[0] for words in self.log() if words[0] in "TO"]
        self.assertEqual((first, "".join(turns)), ("O", "TOOTOTTOTOOT"))
        row, = self.rows()
        self.assertEqual((row["turns"], row["their_steps"], row["our_steps"]), ("TOOTOTTOTOOT", 18, 18))
        for name, value in (("their_ms", 200), ("our_ms", 100), ("ratio", 2), ("parameters", PARAMETERS)):
            self.assertAlmostEqual(row[name], value, 9, name)
        self.assertEqual([round(bound, 9) for bound in row["ci95"]], [2, 2])
        self.assertIn("2x128           fp32  eager           200.00    100.00   2.000  2.000 ... 2.000     18/18\n", out)
        self.assertIn("paper, 2 cores, 2 threads, ours on 1 ranks; PyTorch 9.9 (paper); trainstone 1 git abc, ", out)

    def test_every_mode_and_precision_has_ours_of_the_same_precision(self):
        code, out = self.tool("2x128", "--pairs", "1")
        self.assertEqual(code, 0, out)
        self.assertEqual([(row["mode"], row["precision"]) for row in self.rows()],
                         [("eager", "fp32"), ("compiled", "fp32"), ("eager", "bf16"), ("compiled", "bf16")])
        recipes = [word for words in self.log() if words[0] == "O" for word in words if "recipe" in word]
        self.assertEqual(recipes, ["precision.recipe=fp32"] * 4 + ["precision.recipe=mixed16"] * 4)

    def test_a_fallback_without_instructions_for_bf16_has_times_and_no_ratio(self):
        reason = pytorch.NO_BF16
        for flags, key, has_ratio in (("fpu avx512f avx512_bf16", "flags", True), ("fpu amx_tile amx_bf16", "flags", True),
                                      ("fp asimd bf16 sve", "Features", True), ("fp asimd svebf16", "Features", True),
                                      ("fpu avx2 avx512f avx512_fp16", "flags", False), ("fp asimd sve", "Features", False)):
            with self.subTest(flags=flags):
                self.processor(flags, key)
                code, out = self.tool("2x128", "--modes", "eager", "--pairs", "6", "--steps", "1")
                self.assertEqual(code, 0, out)
                single, half = self.rows()
                self.assertAlmostEqual(single["ratio"], 2, 9)
                self.assertIsNone(single["no_ratio"])
                self.assertAlmostEqual(half["their_ms"], 200, 9)
                self.assertEqual(half["ratio"] is not None, has_ratio)
                self.assertEqual((half["ci95"] is None, half["no_ratio"] == reason), (not has_ratio, not has_ratio))
                self.assertEqual(reason in out, not has_ratio)
                self.assertEqual(sum("2.000" in line for line in out.splitlines()), 2 if has_ratio else 1)

    def test_a_gpu_needs_no_instructions_of_the_processor(self):
        self.processor("fpu avx2")
        code, out = self.tool("2x128", "--modes", "eager", "--precision", "bf16", "--pairs", "1", "--device", "cuda")
        self.assertEqual(code, 0, out)
        self.assertAlmostEqual(self.rows()[0]["ratio"], 2, 9)
        self.assertIn('"device": "cuda"', " ".join(next(words for words in self.log() if words[0] == "W")))

    def test_a_ratio_that_is_not_told_has_no_threshold(self):
        self.processor("fpu avx2")
        self.assert_fails(64, "--at-least eager-bf16: " + pytorch.NO_BF16, "2x128", "--modes", "eager", "--at-least",
                          "eager-bf16=1")

    def test_a_processor_that_the_system_does_not_describe_has_no_ratio_in_bf16(self):
        with mock.patch.object(pytorch, "CPUINFO", self.folder / "none"):
            self.assertEqual(self.tool("2x128", "--modes", "eager", "--precision", "bf16", "--pairs", "1")[0], 0)
        self.assertIsNone(self.rows()[0]["ratio"])

    def test_the_worker_is_told_what_the_deck_says(self):
        self.tool(*EAGER, "--pairs", "1", VALUES='{"model.layers": 5, "optimizer.clip": 0.5}')
        worker = next(words for words in self.log() if words[0] == "W")
        text = " ".join(worker)
        for part in ('"layers": 5', '"heads": 4', '"channels": 128', '"context": 64', '"vocab": 512', '"sequence": 64',
                     '"batch": 8', '"lr": 0.0003', '"betas": [0.9, 0.95]', '"clip": 0.5', '"weight_decay": 0.1'):
            self.assertIn(part, text)

    def test_ours_has_equal_steps_of_the_shape_on_the_same_threads(self):
        code, out = self.tool(*EAGER, "--pairs", "1", "--threads", "6", "--ranks", "3", "--set", "model.attention=flash")
        self.assertEqual(code, 0, out)
        ours = [words for words in self.log() if words[0] == "O"]
        for words in ours:
            self.assertEqual(words[1:5], ["threads", "2", "ranks", "3"])
            for key in ("model.layers=2", "model.vocab=512", "batch.global=8", "model.attention=flash",
                        "optimizer.schedule=constant", "optimizer.warmup=0", "bench.warmup_steps=2"):
                self.assertIn(key, words)
        self.assertEqual([words[1] for words in self.log() if words[0] == "W"], ["6"])

    def test_slow_steps_are_few_and_at_least_one(self):
        for their_seconds, request in (("5", ["0", "1"]), ("0.5", ["1", "4"]), ("0.001", ["1", "7"])):
            self.tool(*EAGER, "--pairs", "1", "--steps", "7", "--turn-seconds", "2", THEIR_SECONDS=their_seconds)
            self.assertEqual([words[1:] for words in self.log() if words[0] == "T"], [request])

    def test_a_comparison_without_time_has_one_pair_and_no_interval(self):
        code, out = self.tool(*EAGER, "--seconds", "0", "--steps", "1")
        self.assertEqual(code, 0, out)
        row, = self.rows()
        self.assertEqual((row["turns"], row["ci95"], row["their_steps"]), ("TO", None, 1))
        self.assertIn("too few turns", out)

    def test_a_run_of_ours_that_is_not_valid_has_no_rate(self):
        self.assert_fails(1, "exit 65: ", *EAGER, CODE="65", STATUS="INVALID")
        for status in ("INVALID", "EMULATED", "STOPPED"):
            self.assert_fails(1, f"our run is {status}: it has no rate", *EAGER, STATUS=status)

    def test_other_models_and_trainings_are_refused(self):
        self.assert_fails(1, "PyTorch's model has 470527 parameters, ours 470528", *EAGER, PARAMETERS="470527")
        self.assert_fails(1, "loss of step 1: theirs 6.30000, ours 7.30000: an untrained", *EAGER, OUR_LOSSES="[7.3, 7.2]")
        self.assert_fails(1, "loss of step 2: theirs 6.20000, ours 5.90000: they differ", *EAGER, OUR_LOSSES="[6.3, 5.9]")
        self.assert_fails(1, "loss of step 1: theirs nan", *EAGER, THEIR_LOSSES="[NaN, 6.2]")
        self.assert_fails(1, "a turn has losses [nan", *EAGER, "--pairs", "1", LATER="nan")

    def test_a_ratio_below_its_threshold_is_red(self):
        arguments = (*EAGER, "--pairs", "2", "--at-least")
        self.assertEqual(self.tool(*arguments, "eager-fp32=1.99")[0], 0)
        code, out = self.tool(*arguments, "eager-fp32=2.01")
        self.assertEqual((code, out.splitlines()[-1]), (1, "2x128 eager-fp32: ratio 2.000 is below 2.01"))
        self.json.unlink()
        self.assert_fails(64, "--at-least eager-fp16: nothing of that name is measured", *arguments, "eager-fp16=1")

    def test_bad_questions_are_usage_errors(self):
        self.assert_fails(64, "none.toml is neither a deck nor one of gpt2-124m, 6x384, 2x128", "none.toml")
        self.assert_fails(64, "2 ranks cannot share 3 threads evenly", *EAGER, "--ranks", "2", "--threads", "3")
        for values in ('{"data.source": "text"}', '{"model.dropout": 0.1}', '{"optimizer.type": "sgd"}',
                       '{"batch.accumulation": 2}'):
            self.assert_fails(64, "must be", *EAGER, VALUES=values)
        for arguments in (("--modes", "lazy"), ("--precision", "fp8"), ("--pairs", "0"), ("--at-least", "eager")):
            self.assertEqual(self.tool("2x128", *arguments)[0], 64)

    def test_a_worker_that_ends_says_why(self):
        self.assert_fails(1, "PyTorch ended\nout of luck", *EAGER, DIES="yes")
        self.assert_fails(1, "No such file", *EAGER, "--python", str(self.folder / "none"))

    def test_threads_that_spin_are_an_error(self):
        with (mock.patch.object(pytorch, "IDLE_PATIENCE", 0.5),
              mock.patch.object(pytorch, "processor_ticks", side_effect=itertools.count())):
            self.assert_fails(1, "takes processor time 0.5 seconds after its turn", *EAGER)

    def test_processor_time_is_seen(self):
        before, enough = pytorch.processor_ticks(os.getpid()), time.process_time() + 0.1
        while time.process_time() < enough:
            pass
        self.assertGreater(pytorch.processor_ticks(os.getpid()), before)
        self.assertIsNone(pytorch.processor_ticks(2**30))  # nobody has that number

    def test_without_pytorch_it_says_how_to_get_it(self):
        self.assert_fails(77, "`pip install torch`, and name the interpreter that has it by --python", *EAGER, NO_TORCH="yes")
        (self.folder / "torch.py").write_text("raise ImportError('not for you')\n")
        ended = subprocess.run([sys.executable, PERF / "compare/pytorch_step.py", "{}"], capture_output=True, text=True,
                               check=False, env={**os.environ, "PYTHONPATH": str(self.folder)})
        self.assertEqual((ended.returncode, ended.stderr), (77, f"{sys.executable} has no PyTorch (not for you)\n"))


class Ratios(unittest.TestCase):
    def turns(self, letters, times):
        return [comparison.Turn([time], [1.0]) for _, time in zip(letters, times, strict=True)]

    def test_it_is_theirs_by_ours_in_whatever_order(self):
        for letters, times in (("TO", (3, 2)), ("OT", (2, 3)), ("TOOTOTTO", (3, 2, 2, 3, 2, 3, 3, 2))):
            ratio, interval = comparison.ratio_of(letters, self.turns(letters, times))
            self.assertAlmostEqual(ratio, 1.5, 12)
            self.assertIsNone(interval)

    def test_a_drift_meets_both_alike(self):
        letters = "TOOTOTTO" * 4
        turns = self.turns(letters, [(1.5 if letter == "T" else 1) * 1.01**index for index, letter in enumerate(letters)])
        ratio, (low, high) = comparison.ratio_of(letters, turns)
        self.assertAlmostEqual(ratio, 1.5, delta=1e-6)
        self.assertTrue(1.48 < low <= ratio <= high < 1.52, (low, high))

    def test_the_median_of_a_turn_counts(self):
        turns = [comparison.Turn([1.0, 3.0, 99.0], [1.0]), comparison.Turn([2.0, 2.0, 50.0], [1.0])]
        self.assertAlmostEqual(comparison.ratio_of("TO", turns)[0], 1.5, 12)


class Shipped(unittest.TestCase):
    def test_the_shapes_are_what_their_names_say(self):
        arguments = types.SimpleNamespace(program=PROGRAM, ranks=1)
        expected = {"gpt2-124m": (12, 768, 50257, 4, 64), "6x384": (6, 384, 8192, 4, 256), "2x128": (2, 128, 512, 8, 64)}
        for name in comparison.SHAPES:
            for precision in comparison.PRECISIONS.values():
                estimate = comparison.Ours(arguments, *comparison.deck_and_keys(name, precision)).describe()
                values = comparison.values_of(estimate)
                found = tuple(values[key] for key in ("model.layers", "model.channels", "model.vocab", "batch.global",
                                                      "data.sequence"))
                self.assertEqual(found, expected[name])
                pytorch.check_deck(values)
                layers, channels, vocab = found[:3]
                self.assertEqual(estimate["model_parameters"], (vocab + values["model.context"] + 2) * channels +
                                 layers * (12 * channels**2 + 13 * channels), name)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
