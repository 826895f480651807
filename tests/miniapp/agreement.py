"""How a run ends when its ranks do not do the same, and what it takes to look."""
import time

from support import Deck, run, settings, start
from training import INTERNAL, TrainingTest

WITHOUT_VALIDATION = {"data.validation_fraction": None, "data.validate_every": None}
STRATEGIES = {
    "ddp": ["parallel.strategy=ddp"],
    "zero 3": ["parallel.strategy=zero", "parallel.zero_stage=3"],
}


class OrderFaults(TrainingTest):
    SECONDS = 30  # such a run takes two; a hang would be ended after two minutes

    def test_a_rank_that_calls_another_collective_ends_the_run_with_both_names(self):
        for ranks, rank, others in ((2, 1, "rank 0"), (3, 0, "ranks 1, 2")):
            for strategy, keys in STRATEGIES.items():
                with self.subTest(ranks=ranks, strategy=strategy):
                    deck = Deck({**WITHOUT_VALIDATION, "batch.global": str(2 * ranks)})
                    fault = settings("comm.check_order=true", "faults.order.step=3", f"faults.order.rank={rank}", *keys)
                    begin = time.monotonic()
                    outcome = run("run", deck.path, *fault, ranks=ranks)
                    self.assertLess(time.monotonic() - begin, self.SECONDS, outcome)
                    self.assert_ended(outcome, INTERNAL, "step     2/12")
                    self.assertNotIn("step     3/12", outcome.out)
                    self.assertIn("ranks call different collectives", outcome.err)
                    self.assertIn(f"rank {rank}: barrier", outcome.err)
                    self.assertIn(f"{others}: all_reduce ring sum float64", outcome.err)
                    self.assertNotIn("FOM", outcome.out)
