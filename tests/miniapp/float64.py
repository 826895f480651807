"""The program's own first steps against inputs/golden/check_float64.py, which shares no code with it. Wants NumPy."""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

from support import Deck, settings, start

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
