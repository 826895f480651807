"""Benchmark classes: the decks that are shipped, the run rules, what a run counts as, and first steps of a reference."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import Deck, run, settings, start

FAILED, USAGE = 65, 64
INPUTS = pathlib.Path(__file__).resolve().parents[2] / "inputs"
CHECK_FLOAT64 = INPUTS / "golden" / "check_float64.py"
CLASSES = ("tiny", "small", "reference", "large")


class ShippedDecks(unittest.TestCase):
    def test_a_class_deck_takes_its_values_from_the_class(self):
        futures = {name: start("run", INPUTS / f"{name}.toml", "--print-deck") for name in CLASSES}
        for name, future in futures.items():
            with self.subTest(name=name):
                self.assertRegex(future.result().out, rf'(?m)^class = "{name}" +# deck:\d+$')
                for key in ("steps", "sequence", "global", "lr"):
                    self.assertRegex(future.result().out, rf"(?m)^{key} = \S+ +# class {name}$")

    def test_the_run_rules_name_keys_that_exist_on_one_page(self):
        rules = (INPUTS / "RUN_RULES.md").read_text()
        self.assertLessEqual(len(rules.splitlines()), 60)
        keys = set(re.findall(r"(?m)^  (\w[\w.]+) +(?:an? |true or false)", run("--help-deck").out))
        sections = {key.rpartition(".")[0] for key in keys}
        named = set(re.findall(r"`(\w+(?:\.\w+)*)(?: = [^`]*)?`", rules))
        others = {*CLASSES, "result.json", "README.md", "FOM", "FOM_PER_RANK", "restart_count",
                  "memory-model", "loss-curve", "first-step", "first-update", "gradient-norms", "gradient-sizes",
                  "parameter-changes"}
        self.assertEqual({name for name in named if name not in keys | sections | others}, set())
        self.assertGreater(len(named & keys), 20)
        for name in ("faults.delay", "faults.overflow", "comm.emulated_network"):
            self.assertIn(name, named)


class Judgement(unittest.TestCase):
    def test_a_run_that_departs_from_its_class_is_custom_and_says_why(self):
        outcome = run("run", INPUTS / "tiny.toml",
                      *settings("data.steps=3", "optimizer.warmup=1", "bench.warmup_steps=1", "batch.global=2"))
        self.assertEqual(outcome.code, 0, outcome)
        departures = ["batch.global = 2 instead of 16", "data.steps = 3 instead of 300",
                      "optimizer.warmup = 1 instead of 30", "bench.warmup_steps = 1 instead of at least 10",
                      "2 measured steps instead of at least 145"]
        for note in departures:
            self.assertIn(f"\nnote: class custom, not tiny: {note}\n", outcome.out, outcome)
        self.assertIn("\nRESULT: UNREFERENCED class=custom exit=0 ", outcome.out, outcome)
        self.assertEqual(outcome.result["class"], "custom")
        self.assertCountEqual(outcome.result["class_departures"], departures, outcome)

    def test_ranks_that_share_cores_keep_no_class(self):
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})  # of this thread and what it starts
        outcome = run("run", INPUTS / "tiny.toml",
                      *settings("data.steps=2", "optimizer.warmup=1", "bench.warmup_steps=1", "batch.global=2"), ranks=2)
        sharing = "2 threads of all ranks on this machine share 1 core"
        self.assertIn(f"\nnote: class custom, not tiny: {sharing}\n", outcome.out, outcome)
        self.assertIn(sharing, outcome.result["class_departures"])


class BoundThreads(unittest.TestCase):
    """Two threads of a rank on two cores, which OpenMP gives one each: they share none."""
    SHORT = settings("data.steps=2", "optimizer.warmup=1", "bench.warmup_steps=1", "batch.global=2")

    def setUp(self):
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            self.skipTest("there is one core")
        self.addCleanup(os.sched_setaffinity, 0, cores)
        self.two = sorted(cores)[:2]

    def run_on(self, cores, binding, ranks=1):
        os.sched_setaffinity(0, cores)  # of this thread and what it starts
        outcome = run("run", INPUTS / "tiny.toml", *self.SHORT, ranks=ranks,
                      variables={"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": binding, "OMP_PLACES": "threads"})
        self.assertEqual(outcome.code, 0, outcome)
        if outcome.result["topology"]["threads_per_rank"] == 1:
            self.skipTest("kernels have one thread in this build")
        return outcome

    def assert_shared(self, outcome, sharing):
        self.assertIn(f"\nnote: class custom, not tiny: {sharing}\n", outcome.out, outcome)
        self.assertIn(sharing, outcome.result["class_departures"])
        self.assertIsNone(outcome.result["peaks"]["gemm_flops_per_second"])

    def test_threads_with_a_core_each_keep_class_and_peaks(self):
        for binding in ("close", "spread", "false"):
            with self.subTest(binding):
                outcome = self.run_on(self.two, binding)
                self.assertNotIn(" share ", outcome.out, outcome)
                self.assertNotIn(" share ", str(outcome.result["class_departures"]))
                self.assertGreater(outcome.result["peaks"]["gemm_flops_per_second"], 0)
                self.assertEqual(outcome.result["machine"]["cores"], 2)
                (place,) = outcome.result["topology"]["rank_map"]
                self.assertEqual(sorted(map(int, re.findall(r"\d+", place["cores"]))), self.two)

    def test_threads_on_one_core_share_it_bound_or_not(self):
        for binding in ("close", "false"):
            with self.subTest(binding):
                self.assert_shared(self.run_on(self.two[:1], binding),
                                   "2 threads of all ranks on this machine share 1 core")

    def test_ranks_that_are_bound_to_the_same_cores_share_them(self):
        self.assert_shared(self.run_on(self.two, "close", ranks=2), "4 threads of all ranks on this machine share 2 cores")


class LibraryThreads(unittest.TestCase):
    def test_libraries_of_a_serial_build_have_one_thread(self):
        """OpenMP's default is a thread per core, and every thread of oneDNN wants scratch of its own."""
        deck = Deck({"data.steps": "2"})
        one, default = ([start("estimate", deck.path, variables=variables), start("run", deck.path, variables=variables)]
                        for variables in ({}, {"OMP_NUM_THREADS": None}))
        run_of_one, run_by_default = one[1].result(), default[1].result()
        self.assertEqual(run_by_default.code, 0, run_by_default)
        if " Serial " not in run_by_default.out:
            self.skipTest("kernels have threads in this build")
        self.assertEqual(run_by_default.result["predicted"], run_of_one.result["predicted"])
        self.assertEqual(default[0].result().out, one[0].result().out)


    def test_threads_of_libraries_share_cores_as_those_of_kernels_do(self):
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            self.skipTest("there is one core")
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, sorted(cores)[:2])
        of = lambda provider: run("run", INPUTS / "tiny.toml", *BoundThreads.SHORT, *settings(f"kernels.gemm={provider}"), ranks=2,
                                  variables={"OMP_NUM_THREADS": "2"})
        library, plain = of("onednn"), of("kokkos")
        if " Serial " not in plain.out:
            self.skipTest("kernels have threads in this build")
        if library.code != 0 and "onednn" in library.err:
            self.skipTest("oneDNN is not built")
        sharing = "4 threads of all ranks on this machine share 2 cores"
        self.assertIn(f"\nnote: class custom, not tiny: {sharing}\n", library.out, library)
        self.assertIn(sharing, library.result["class_departures"])
        self.assertIsNone(library.result["peaks"]["gemm_flops_per_second"])
        self.assertEqual(library.result["providers"], {"gemm": ["onednn"], "attention": "materialized"})
        self.assertEqual(plain.result["providers"]["gemm"], ["kokkos"])
        self.assertEqual(library.result["topology"]["threads_per_rank"], 1)
        self.assertEqual(library.result["topology"]["library_threads_per_rank"], 2)
        # the plain product has the kernels' one thread, whatever libraries may use
        self.assertEqual(plain.result["topology"]["library_threads_per_rank"], 0)
        self.assertNotIn(sharing, plain.result["class_departures"])


class Bfloat16(unittest.TestCase):
    BF16 = settings("precision.recipe=mixed16")

    def test_a_released_deck_is_valid_by_its_curve_of_fp32(self):
        outcome = run("run", INPUTS / "tiny.toml", *self.BF16, ranks=2)
        self.assertIn("\nRESULT: VALID class=custom exit=0 ", outcome.out, outcome)
        (key,) = json.loads((INPUTS / "golden" / "tiny.json").read_text())["curves"]
        golden = outcome.result["golden"]
        self.assertEqual((golden["key"], golden["released"]), (key, True))
        self.assertNotEqual(outcome.result["deck"]["golden_key"], key)

    def test_a_curve_of_ones_own_is_of_one_precision(self):
        deck = Deck()
        self.assertEqual(run("run", deck.path, "--record-golden").code, 0)
        self.assertIn("\nRESULT: VALID class=custom golden=local ", run("run", deck.path).out)
        outcome = run("run", deck.path, *self.BF16)
        self.assertIn("\nRESULT: UNREFERENCED ", outcome.out, outcome)
        self.assertIsNone(outcome.result["golden"])


class FirstStep(unittest.TestCase):
    """One deck without a curve: its first step computed, passed on 1 and 2 ranks, in other strategies and after a restart,
    and failed where the golden loss is off by little. It makes no run of class custom VALID."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({"data.steps": "6"})
        cls.computed = run("verify", "--first-step", cls.deck.path)
        cls.golden = json.loads(cls.deck.golden.read_text())
        cls.alone = run("run", cls.deck.path)
        cls.shared = run("run", cls.deck.path, *settings("parallel.strategy=zero", "parallel.zero_stage=3"), ranks=2)
        (cls.entry,) = cls.golden["first_steps"].values()

    def test_the_reference_tells_loss_time_and_bound_and_keeps_the_loss(self):
        self.assertEqual(self.computed.code, 0, self.computed)
        self.assertRegex(self.computed.out, r" FLOP in float64 and .* initial values on \d+ threads, about \d+ s\n")
        self.assertIn(f"loss of the first 8 positions before any update: {self.entry['loss']:.12f}", self.computed.out)
        self.assertEqual(self.golden["curves"], {})
        self.assertEqual(self.entry["positions"], 8)

    def test_a_run_that_begins_with_the_loss_passes_by_first_step_and_stays_unreferenced(self):
        for outcome in (self.alone, self.shared):
            self.assertEqual(outcome.code, 0, outcome)
            self.assertIn("VERIFICATION PASSED (8/8): first-step replicas-agree ", outcome.out)
            self.assertIn("\nnote: only the first step has a golden loss, which makes no run of class custom VALID\n",
                          outcome.out)
            self.assertIn("\nRESULT: UNREFERENCED class=custom exit=0 ", outcome.out)
            self.assertNotIn("\nFOM:", outcome.out)
            self.assertNotIn("loss-curve", outcome.out)
            (check,) = [check for check in outcome.result["verification"] if check["name"] == "first-step"]
            self.assertLess(check["value"], check["limit"])
            self.assertLess(check["limit"], 1e-6)

    def test_the_float64_program_recomputes_the_first_step(self):
        if importlib.util.find_spec("numpy") is None:
            self.skipTest("no NumPy")
        deck = Deck({"data.steps": "6"})
        deck.golden.parent.mkdir()

        def checked(first_steps, curves=()):
            golden = {"schema_version": 1, "curves": {key: {"losses": losses} for key, losses in curves},
                      "first_steps": dict(enumerate(first_steps))}
            deck.golden.write_text(json.dumps(golden))
            return subprocess.run([sys.executable, CHECK_FLOAT64, deck.path], text=True, capture_output=True, check=False)

        passed = checked([self.entry])
        self.assertEqual(passed.returncode, 0, passed)
        self.assertRegex(passed.stdout, rf"^first step, 8 positions: .*, golden {self.entry['loss']:.12f}: agree, ")
        self.assertEqual(checked([{**self.entry, "loss": self.entry["loss"] * (1 + 1e-9)}]).returncode, 1)
        self.assertEqual(checked([{**self.entry, "positions": 7}]).returncode, 1)
        for refused in (checked([{**self.entry, "positions": 9}]), checked([]), checked([self.entry] * 2)):
            self.assertEqual(refused.returncode, 2, refused)
        both = checked([self.entry], [("0", self.alone.losses)])
        self.assertEqual(both.returncode, 0, both)
        self.assertIn("over 6 steps", both.stdout)
        wrong = {**self.entry, "loss": 5.0}
        self.assertEqual(checked([wrong], [("0", self.alone.losses)]).returncode, 1)
        self.assertEqual(checked([wrong], [("another", self.alone.losses)]).returncode, 0)

    def test_a_loss_beyond_the_bound_is_invalid_and_no_figure_of_merit(self):
        deck = Deck({"data.steps": "6"})
        run("verify", "--first-step", deck.path, "--positions", "5")
        golden = json.loads(deck.golden.read_text())
        (entry,) = golden["first_steps"].values()
        self.assertEqual(entry["positions"], 5)
        self.assertNotEqual(entry["loss"], self.entry["loss"])
        entry["loss"] *= 1 + 2e-6
        deck.golden.write_text(json.dumps(golden))
        outcome = run("run", deck.path)
        self.assertEqual(outcome.code, FAILED, outcome)
        self.assertIn("VERIFICATION FAILED (7/8): first-step\n", outcome.out)
        self.assertNotIn("FOM", outcome.out)

    def test_a_first_step_of_more_positions_than_a_sample_has_is_refused(self):
        deck = Deck({"data.steps": "6"})
        deck.golden.parent.mkdir()
        golden = json.loads(json.dumps(self.golden))
        (entry,) = golden["first_steps"].values()
        entry["positions"] = 9
        deck.golden.write_text(json.dumps(golden))
        outcome = run("run", deck.path)
        self.assertEqual(outcome.code, USAGE, outcome)
        self.assertIn(" is of 9 positions, more than data.sequence = 8", outcome.err)

    def test_other_values_than_the_recorded_ones_are_unreferenced(self):
        self.assertIn("\nRESULT: UNREFERENCED ", run("run", self.deck.path, *settings("data.seed=2")).out)

    def test_a_restarted_run_is_checked_from_initial_values_too(self):
        kept = settings(f"checkpoint.dir={self.deck.folder / 'kept'}", "checkpoint.every_steps=2")
        stopped = run("run", self.deck.path, *kept, "--max-time", "1ms")
        self.assertEqual(stopped.code, 75, stopped)
        last = run("run", self.deck.path, *kept)
        self.assertIn("resumed after step ", last.out)
        self.assertIn("(8/8): first-step ", last.out, last)

    def test_what_the_reference_does_not_compute_is_refused(self):
        for change, key in (("precision.recipe=mixed16", "precision.recipe"), ("model.dropout=0.1", "model.dropout"),
                            ("model.load=m.bin", "model.load")):
            outcome = run("verify", "--first-step", self.deck.path, *settings(change))
            self.assertEqual(outcome.code, USAGE, outcome)
            self.assertIn(f"{key} must be ", outcome.err)
        outcome = run("verify", "--first-step", self.deck.path, "--positions", "9")
        self.assertIn("--positions 9 exceeds data.sequence = 8", outcome.err, outcome)
        self.assertEqual(run("verify", "--positions", "9").code, USAGE)
