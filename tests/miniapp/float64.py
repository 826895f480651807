"""The program's own first steps against inputs/golden/check_float64.py, which shares no code with it. Wants NumPy."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

from support import Deck, run, settings, start

CHECK_FLOAT64 = pathlib.Path(__file__).resolve().parents[2] / "inputs" / "golden" / "check_float64.py"


class FirstSteps(unittest.TestCase):
    """Losses, norms and changes of twelve steps of an odd model."""
    DECK = {"model.layers": "2", "model.heads": "3", "model.channels": "24", "model.context": "11", "optimizer.lr": "2e-3",
            "optimizer.warmup": "4", "optimizer.schedule": '"cosine"'}
    RUNS = {"1 rank": ([], 1), "3 ranks, zero 3": (["batch.global=6", "parallel.strategy=zero", "parallel.zero_stage=3"], 3),
            "2 ranks, flash": (["model.attention=flash", "parallel.overlap=false"], 2)}
    MISTAKES = ("optimizer.lr=1.99e-3", "optimizer.eps=1e-7", "optimizer.weight_decay=0.09", "optimizer.clip=0.9", "data.seed=2")

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("numpy") is None:
            raise unittest.SkipTest("no NumPy")
        cls.deck = Deck(cls.DECK)

    def compared(self, outcome, *changes):
        self.assertEqual(outcome.code, 0, outcome)
        return subprocess.run([sys.executable, CHECK_FLOAT64, self.deck.path, "--steps", "12", "--result",
                               outcome.folder / "out" / "result.json", *settings(*changes)],
                              text=True, capture_output=True, check=False)

    def test_runs_agree_with_float64(self):
        futures = {name: start("run", self.deck.path, *settings(*keys), ranks=ranks) for name, (keys, ranks) in self.RUNS.items()}
        for name, future in futures.items():
            with self.subTest(name):
                compared = self.compared(future.result(), *(key for key in self.RUNS[name][0] if key.startswith("batch")))
                self.assertEqual(compared.returncode, 0, compared)
                self.assertRegex(compared.stdout, r"\nagree: at most \S+ over 12 steps, .*; norms \S+ over 10, ")
                self.assertIn("\nchanges after step 10: agree, ", compared.stdout)

    def test_a_run_of_other_values_differs(self):
        futures = {mistake: start("run", self.deck.path, *settings(mistake)) for mistake in self.MISTAKES}
        for mistake, future in futures.items():
            with self.subTest(mistake):
                compared = self.compared(future.result())
                self.assertEqual(compared.returncode, 1, compared)
                self.assertIn("DIFFER", compared.stdout)


class Pushes(unittest.TestCase):
    """20 pushes of two workers that do not wait for each other, in the order of a run."""
    KEYS = ("parallel.strategy=parameter_server", "faults.pace.forward=2ms", "faults.straggler.sigma=0.5", "server.lr_scale=0.7")

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("numpy") is None:
            raise unittest.SkipTest("no NumPy")
        cls.deck = Deck({**FirstSteps.DECK, "data.steps": "10", "data.validate_every": "5"})
        modes = {"async": ["server.mode=async", "server.order=arrival"], "bounded": ["server.mode=bounded", "server.staleness=1"]}
        futures = {name: start("run", cls.deck.path, *settings(*cls.KEYS, *keys), ranks=3) for name, keys in modes.items()}
        cls.runs = {name: future.result() for name, future in futures.items()}

    def compared(self, result, *changes):
        return subprocess.run([sys.executable, CHECK_FLOAT64, self.deck.path, "--steps", "10", "--bound", "1e-6", "--result", result,
                               *settings("server.lr_scale=0.7", *changes)], text=True, capture_output=True, check=False)

    def test_runs_agree_with_float64(self):
        for name, outcome in self.runs.items():
            with self.subTest(name):
                self.assertEqual(outcome.code, 0, outcome)
                compared = self.compared(outcome.folder / "out" / "result.json")
                self.assertEqual(compared.returncode, 0, compared)
                self.assertRegex(compared.stdout, r"\nagree: at most \S+ over 10 steps")

    def test_another_order_or_another_rate_differs(self):
        result = self.runs["async"].result
        acts = result["servers"]["acts"]
        place = next(i for i in range(len(acts) - 1) if acts[i] % 2 == 1 and acts[i + 1] % 2 == 0 and acts[i] // 2 != acts[i + 1] // 2)
        acts[place], acts[place + 1] = acts[place + 1], acts[place]
        changed = self.runs["async"].folder / "changed.json"
        changed.write_text(json.dumps(result))
        for compared in (self.compared(changed), self.compared(self.runs["async"].folder / "out" / "result.json", "server.lr_scale=0.69")):
            self.assertEqual(compared.returncode, 1, compared)
            self.assertIn("DIFFER", compared.stdout)


class FirstUpdate(unittest.TestCase):
    """One update in float64, recorded for a deck without a curve; runs that agree, and golden files that do not."""
    DECK = {"data.steps": "3", "model.context": "12", "batch.global": "6", "optimizer.lr": "1e-3"}
    CHECKS = "first-step first-update gradient-norms gradient-sizes parameter-changes"

    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("numpy") is None:
            raise unittest.SkipTest("no NumPy")
        cls.deck = Deck(cls.DECK)
        cls.computed = run("verify", "--first-step", cls.deck.path, "--positions", "8")
        cls.recorded = cls.float64(cls.deck, "--record-update")
        cls.golden = json.loads(cls.deck.golden.read_text())

    @staticmethod
    def float64(deck, *arguments):
        return subprocess.run([sys.executable, CHECK_FLOAT64, deck.path, *arguments], text=True, capture_output=True, check=False)

    def changed(self, change):
        """A deck of its own whose golden first step is changed."""
        deck, golden = Deck(self.DECK), json.loads(json.dumps(self.golden))
        (entry,) = golden["first_steps"].values()
        change(entry)
        deck.golden.parent.mkdir()
        deck.golden.write_text(json.dumps(golden))
        return deck

    def test_the_update_is_recorded_beside_the_loss_and_recomputed(self):
        self.assertEqual(self.recorded.returncode, 0, self.recorded)
        (entry,) = self.golden["first_steps"].values()
        self.assertEqual(set(entry["update"]), {"recorded_with", "norm", "loss_after", "gradients", "changes"})
        self.assertIn(f"loss of the first 8 positions before any update: {entry['loss']:.12f}", self.computed.out)
        again = self.float64(self.deck)
        self.assertEqual(again.returncode, 0, again)
        self.assertRegex(again.stdout, r"\nfirst step, 8 positions: .*: agree, ")

    def test_runs_agree_with_it(self):
        runs = {"1 rank": ([], 1), "2 ranks, zero 3": (["parallel.strategy=zero", "parallel.zero_stage=3"], 2),
                "3 ranks, naive": (["parallel.strategy=naive"], 3)}
        futures = {name: start("run", self.deck.path, *settings(*keys), ranks=ranks) for name, (keys, ranks) in runs.items()}
        for name, future in futures.items():
            with self.subTest(name):
                outcome = future.result()
                self.assertEqual(outcome.code, 0, outcome)
                self.assertIn(f"VERIFICATION PASSED (12/12): {self.CHECKS} replicas-agree ", outcome.out)
                self.assertIn("\nnote: only the first step has a golden update, which makes no run of class custom VALID\n",
                              outcome.out)

    def test_another_update_is_invalid(self):
        def of(*place):
            def change(entry):
                inner = entry["update"]
                for name in place[:-1]:
                    inner = inner[name]
                inner[place[-1]] *= 1.001
            return change
        for change, failed in ((of("norm"), "gradient-norms"), (of("loss_after"), "first-update"),
                               (of("gradients", "qkvb"), "gradient-sizes"), (of("changes", "wpe"), "parameter-changes")):
            with self.subTest(failed):
                deck = self.changed(change)
                outcome = run("run", deck.path)
                self.assertEqual(outcome.code, 65, outcome)
                self.assertIn(f"\nnote: check {failed} fails before the training: ", outcome.out)
                self.assertIn(f"VERIFICATION FAILED (11/12): {failed}\n", outcome.out)
                self.assertEqual(self.float64(deck).returncode, 1)

    def test_fewer_positions_than_samples_are_refused(self):
        outcome = run("run", self.changed(lambda entry: entry.update(positions=5)).path)
        self.assertEqual(outcome.code, 64, outcome)
        self.assertIn(" is of 5 positions, fewer than batch.global = 6", outcome.err)
        refused = self.float64(self.changed(lambda entry: entry.update(positions=5)), "--record-update")
        self.assertEqual(refused.returncode, 2, refused)

    def test_a_recorded_update_is_not_overwritten(self):
        text = self.deck.golden.read_text()
        same = run("verify", "--first-step", self.deck.path, "--positions", "8")
        self.assertEqual(same.code, 0, same)
        self.assertIn("\nagrees with the loss in ", same.out)
        other = run("verify", "--first-step", self.deck.path, "--positions", "9")
        self.assertEqual(other.code, 64, other)
        self.assertIn("has an update, of 8 positions", other.err)
        self.assertEqual(self.deck.golden.read_text(), text)

    def test_an_update_of_all_positions_is_refused(self):
        deck = Deck({**self.DECK, "model.context": "8", "data.sequence": "8"})
        run("verify", "--first-step", deck.path)
        refused = self.float64(deck, "--record-update")
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("does not show weight decay", refused.stderr)

    def test_a_restarted_run_makes_the_update_too(self):
        kept = settings(f"checkpoint.dir={self.deck.folder / 'kept'}", "checkpoint.every_steps=1", "parallel.strategy=naive")
        stopped = run("run", self.deck.path, *kept, "--max-time", "1ms", ranks=2)
        self.assertEqual(stopped.code, 75, stopped)
        last = run("run", self.deck.path, *kept, ranks=2)
        self.assertIn("resumed after step ", last.out)
        self.assertIn(f"(12/12): {self.CHECKS} ", last.out, last)
        whole = run("run", self.deck.path, *settings("parallel.strategy=naive"), ranks=2)
        self.assertEqual(last.losses, whole.losses[-len(last.losses):])

    def test_a_wrong_loss_gets_no_update_and_disagrees(self):
        deck = self.changed(lambda entry: (entry.pop("update"), entry.update(loss=entry["loss"] * (1 + 1e-9))))
        text = deck.golden.read_text()
        self.assertEqual(self.float64(deck, "--record-update").returncode, 1)
        outcome = run("verify", "--first-step", deck.path, "--positions", "8")
        self.assertEqual(outcome.code, 65, outcome)
        self.assertIn("\nDISAGREES with the loss in ", outcome.out)
        self.assertEqual(deck.golden.read_text(), text)
