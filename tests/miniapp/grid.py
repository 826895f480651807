"""Tensor ranks that form a grid: runs that count what is predicted, the bits of [t, 1, 1], checkpoints that other meshes read, and
what is refused."""
from checkpoints import AT_ONCE, STOPPED, USAGE
from support import Deck, final_hash, new_folder, run, settings, start
from training import TrainingTest

MODEL = {"model.heads": "4", "model.channels": "24"}


def grid(x, y, z):
    return f"parallel.tensor_grid=[{x}, {y}, {z}]"


class Trained(TrainingTest):
    def test_runs_pass_their_checks_and_end_with_nearly_the_same_losses(self):
        deck = Deck(MODEL)
        futures = {shape: start("run", deck.path, *settings(grid(*shape)), ranks=shape[0] * shape[1] * shape[2])
                   for shape in ((2, 2, 1), (1, 2, 1), (2, 1, 2), (2, 2, 2))}
        alone = self.assert_ended(run("run", deck.path), 0, "finite")
        for shape, future in futures.items():
            with self.subTest(shape=shape):
                one = self.assert_ended(future.result(), 0, "comm-volume")
                self.assertIn("replicas-agree", one.out)
                self.assertEqual(one.result["predicted"], one.result["counted"])
                self.assertEqual(len(one.losses), len(alone.losses))
                for ours, theirs in zip(one.losses, alone.losses):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)

    def test_one_axis_has_the_bits_of_tensor_ranks(self):
        deck = Deck(MODEL)
        runs = [self.assert_ended(run("run", deck.path, *settings(key), ranks=4), 0, "finite")
                for key in ("parallel.tensor=4", grid(4, 1, 1))]
        self.assertEqual(final_hash(runs[0]), final_hash(runs[1]))
        self.assertEqual(runs[0].losses, runs[1].losses)

    def test_a_checkpoint_of_any_mesh_is_read_by_any_grid(self):
        deck = Deck(MODEL)
        whole = self.assert_ended(run("run", deck.path), 0, "finite")
        kept = new_folder() / "kept"
        meshes = [(4, [grid(2, 2, 1)]), (2, ["parallel.tensor=2"]), (4, [grid(1, 2, 2)]), (1, [])]
        for ranks, keys in meshes:
            is_last = (ranks, keys) == meshes[-1]
            one = run("run", deck.path, *settings(*keys, f"checkpoint.dir={kept}"), *([] if is_last else AT_ONCE), ranks=ranks)
            self.assert_ended(one, 0 if is_last else STOPPED, "finite" if is_last else "checkpoint")
        losses = one.result["losses_before_restart"] + one.losses
        self.assertEqual(len(one.result["losses_before_restart"]), 3)
        for ours, theirs in zip(losses, whole.losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)


class Told(TrainingTest):
    def test_estimate_names_what_is_sent_over_both_axes(self):
        text = run("estimate", Deck(MODEL).path, *settings(grid(2, 2, 1)), "--ranks", 4).out
        for words in ("2 share slices, 2 share the features", "queries, keys and values, all_reduce", "hidden layer, all_reduce",
                      "heads, all_reduce", "logits, all_reduce", "sums of a norm, all_reduce", "sum over slices, all_reduce"):
            self.assertIn(words, text)

    def test_contradictions_are_refused(self):
        cases = {("parallel.tensor=2", grid(4, 1, 1)): "contradicts parallel.tensor_grid",
                 (grid(2, 2, 1), "parallel.reduction=ordered"): "ordered",
                 (grid(2, 2, 1), "parallel.sequence=true"): "shares positions",
                 (grid(2, 1, 2), "parallel.strategy=ddp"): "whose z ranks share the state",
                 (grid(1, 5, 1),): "does not divide the 4 ranks",
                 (grid(2, 1.5, 1),): "must be whole numbers",
                 (grid(2, 2, 1), "comm.tensor_allreduce=shared"): "share"}
        for keys, words in cases.items():
            with self.subTest(keys=keys):
                refused = run("run", Deck(MODEL).path, *settings(*keys), ranks=4)
                self.assertEqual(refused.code, USAGE, refused)
                self.assertIn(words, refused.err)
