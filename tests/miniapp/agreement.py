"""How a run ends when its ranks do not do the same, or are not as many as were started, and what it takes to look."""
from support import Deck, run, settings, start
from training import FAILED, INTERNAL, TrainingTest

WITHOUT_VALIDATION = {"data.validation_fraction": None, "data.validate_every": None}
STRATEGIES = {
    "ddp": ["parallel.strategy=ddp"],
    "zero 3": ["parallel.strategy=zero", "parallel.zero_stage=3"],
}


class Launch(TrainingTest):
    def test_without_a_launcher_the_launch_is_unknown_and_not_counted(self):
        none = {"SLURM_STEP_NUM_TASKS": None, "PMI_SIZE": None, "OMPI_COMM_WORLD_SIZE": None}
        deck = Deck()
        outcome = run("run", deck.path, variables=none)
        self.assert_ended(outcome, 0, "VERIFICATION PASSED (6/6): replicas-agree ", "\n  launch: unknown: ")
        (check,) = [check for check in outcome.result["verification"] if check["name"] == "launch"]
        self.assertEqual((check["passed"], check["value"], check["limit"]), (None, 1, None))
        wrong = run("run", deck.path, variables={"SLURM_STEP_NUM_TASKS": "2"})
        self.assert_ended(wrong, FAILED, "VERIFICATION FAILED (6/7): launch\n")


class OrderFaults(TrainingTest):
    def test_a_rank_that_calls_another_collective_ends_the_run_with_both_names(self):
        for ranks, rank, others in ((2, 1, "rank 0"), (3, 0, "ranks 1, 2")):
            for strategy, keys in STRATEGIES.items():
                with self.subTest(ranks=ranks, strategy=strategy):
                    deck = Deck({**WITHOUT_VALIDATION, "batch.global": str(2 * ranks)})
                    fault = settings("comm.check_order=true", "faults.order.step=3", f"faults.order.rank={rank}", *keys)
                    outcome = run("run", deck.path, *fault, ranks=ranks)  # which ends a run that hangs, with another code
                    self.assert_ended(outcome, INTERNAL, "step     2/12")
                    self.assertNotIn("step     3/12", outcome.out)
                    self.assertIn("ranks call different collectives", outcome.err)
                    self.assertIn(f"rank {rank}: barrier", outcome.err)
                    self.assertIn(f"{others}: all_reduce ring sum float64", outcome.err)
                    self.assertNotIn("FOM", outcome.out)


class Replicas(TrainingTest):
    def test_a_comparison_of_replicas_is_predicted_and_changes_nothing(self):
        deck = Deck()
        for strategy, keys in STRATEGIES.items():
            with self.subTest(strategy):
                every = settings("parallel.check_replicas=5", *keys)
                futures = [start("run", deck.path, *settings(*keys), ranks=2),
                           start("run", deck.path, *every, ranks=2),
                           start("estimate", deck.path, *every, "--ranks", 2)]
                plain, compared, estimate = (future.result() for future in futures)
                self.assert_ended(compared, 0, "VERIFICATION PASSED (7/7)")
                self.assertEqual(compared.losses, plain.losses)
                self.assertEqual(compared.result["counted"], plain.result["counted"])
                self.assertEqual(compared.result["predicted"], compared.result["counted"])
                self.assertIn("every 5 steps", estimate.out)
                # control traffic of the whole run, as predicted: two more of the twelve steps' messages
                self.assertNotEqual(*(self.messages_of(outcome) for outcome in (plain, compared)))

    @staticmethod
    def messages_of(outcome):
        (check,) = [check for check in outcome.result["verification"] if check["name"] == "comm-volume"]
        return check["detail"]
