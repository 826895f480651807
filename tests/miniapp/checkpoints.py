"""Checkpoints and ends before the end: restarts on other numbers of ranks, signals, damaged checkpoints, killed ranks."""
import os
import re
import shutil
import signal
import time
import unittest

from support import PATIENCE, Deck, Started, final_hash, run, settings

USAGE, STOPPED = 64, 75
ORDERED = {"parallel.reduction": '"ordered"', "batch.global": "8", "data.validate_every": "2",
           "checkpoint.dir": '"kept"'}
AT_ONCE = ["--max-time", "1ms"]


def kept_in(folder):
    """A folder of checkpoints as the next run finds it."""
    return lambda new: shutil.copytree(folder / "kept", new / "kept")


class CheckpointTest(unittest.TestCase):
    def assert_ended(self, outcome, code, *words):
        self.assertEqual(outcome.code, code, outcome)
        for word in words:
            self.assertIn(word, outcome.out + outcome.err, outcome)
        return outcome


class Restarts(CheckpointTest):
    """One training in one go, and in four pieces on 4, 2, 8 and 1 ranks under four strategies."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck(ORDERED)
        cls.whole = run("run", cls.deck.path, "--record-golden")
        zero3 = settings("parallel.strategy=zero", "parallel.zero_stage=3")
        zero1 = settings("parallel.strategy=zero", "parallel.zero_stage=1")
        hsdp = settings("parallel.strategy=hsdp", "parallel.shard_group=4")
        cls.first = run("run", cls.deck.path, *zero3, *AT_ONCE, ranks=4)
        cls.second = run("run", cls.deck.path, *zero1, *AT_ONCE, ranks=2, prepare=kept_in(cls.first.folder))
        cls.third = run("run", cls.deck.path, *hsdp, *AT_ONCE, ranks=8, prepare=kept_in(cls.second.folder))
        cls.last = run("run", cls.deck.path, prepare=kept_in(cls.third.folder))
        cls.again = run("run", cls.deck.path, ranks=2, prepare=kept_in(cls.last.folder))

    def test_every_piece_stops_with_a_checkpoint_and_without_a_rate(self):
        for number, piece in enumerate([self.first, self.second, self.third], 1):
            self.assert_ended(piece, STOPPED, f"the last one is kept/step-{number:08}\n",
                              "\nRESULT: STOPPED class=custom exit=75 json=out/result.json\n")
            self.assertNotIn("FOM", piece.out)
            self.assertNotIn("VERIFICATION", piece.out)
            self.assertNotIn("RATE", piece.out)
            self.assertIsNone(piece.result["fom"])
            self.assertIsNone(piece.result["unverified_rate"])
            self.assertEqual(piece.result["exit_code"], STOPPED)
            self.assertEqual(piece.result["restart_count"], number - 1)

    def test_the_last_piece_ends_with_the_same_bits_and_follows_the_golden_curve(self):
        self.assert_ended(self.last, 0, "resumed after step 3 from kept/step-00000003, restart 3\n", "(10/10): loss-curve gradient-norms parameter-changes ",
                          "\nFOM: ", "\nRESULT: VALID ")
        self.assertEqual(final_hash(self.last), final_hash(self.whole))
        self.assertEqual(self.last.result["losses_before_restart"] + self.last.losses, self.whole.losses)
        self.assertEqual(self.last.held_out, self.whole.held_out[1:])
        self.assertEqual(self.last.result["restart_count"], 3)
        self.assertEqual(self.last.result["window"], {"first_step": 5, "last_step": 12})

    def test_a_finished_training_that_is_started_again_has_nothing_to_measure(self):
        self.assert_ended(self.again, 0, "resumed after step 12", "no step after the warm-up was measured", "\nRESULT: VALID ")
        self.assertEqual(final_hash(self.again), final_hash(self.whole))
        self.assertNotIn("FOM", self.again.out)
        self.assertIsNone(self.again.result["fom"])
        self.assertIsNone(self.again.result["window"])
        self.assertEqual(self.again.result["losses_before_restart"], self.whole.losses)

    def test_only_the_newest_stay(self):
        self.assertEqual([name for name in self.last.left if re.fullmatch("kept/step[^/]*", name)],
                         ["kept/step-00000003", "kept/step-00000012"])


class Meshes(CheckpointTest):
    """One training in slices, in one go on one rank, and from the checkpoint of another mesh of data, tensor ranks and stages."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({**ORDERED, "model.layers": "4", "model.heads": "8", "model.channels": "64", "batch.global": "8",
                         "data.steps": "3", "data.validate_every": None, "parallel.tensor_blocks": "8"})
        cls.whole = run("run", cls.deck.path)
        cls.first = cls.on(2, 2, 2, "parallel.sequence=true", "parallel.strategy=zero", "parallel.zero_stage=1", stop=True)

    @classmethod
    def on(cls, data, tensor, stages, *keys, after=None, stop=False):
        return run("run", cls.deck.path, *settings(f"parallel.tensor={tensor}", f"parallel.pipeline={stages}", *keys),
                   *(AT_ONCE if stop else []), ranks=data * tensor * stages, prepare=kept_in(after.folder) if after else None)

    def test_every_mesh_continues_the_checkpoint_of_2_2_2_with_the_same_bits(self):
        self.assert_ended(self.first, STOPPED, "the last one is kept/step-00000001\n")
        zero3 = ("parallel.strategy=zero", "parallel.zero_stage=3")
        for mesh in ((8, 1, 1, *zero3), (1, 8, 1), (1, 1, 4), (1, 4, 2, "parallel.sequence=true")):
            with self.subTest(mesh=mesh):
                last = self.assert_ended(self.on(*mesh, after=self.first), 0, "resumed after step 1 from kept/step-00000001")
                self.assertEqual(final_hash(last), final_hash(self.whole))
                self.assertEqual(last.result["losses_before_restart"] + last.losses, self.whole.losses)

    def test_a_mesh_after_another(self):
        second = self.on(1, 8, 1, "parallel.sequence=true", after=self.first, stop=True)
        self.assert_ended(second, STOPPED, "the last one is kept/step-00000002\n")
        last = self.assert_ended(self.on(1, 1, 4, after=second), 0, "restart 2\n")
        self.assertEqual(final_hash(last), final_hash(self.whole))


class Export(CheckpointTest):
    def test_the_exported_model_is_the_one_that_a_run_would_have_saved(self):
        for keys in (["parallel.strategy=zero", "parallel.zero_stage=3"], ["parallel.tensor=2"],
                     ["parallel.tensor=2", "parallel.tensor_blocks=2", "parallel.strategy=zero", "parallel.zero_stage=3"],
                     ["parallel.tensor_blocks=2"], ["precision.recipe=mixed16"]):
            with self.subTest(keys=keys):
                trained = run("run", Deck(ORDERED).path, *settings("model.save=saved.bin", *keys), ranks=2)
                exported = run("export", trained.folder / "kept" / "step-00000012", "exported.bin")
                self.assert_ended(exported, 0, "model after step 12 written to exported.bin")
                self.assertEqual(exported.left, ["exported.bin"])
                saved = (trained.folder / "saved.bin").read_bytes()
                if keys[0].startswith("precision"):  # the file of a run is in bf16, that of the master copy in fp32
                    self.assertGreater(os.path.getsize(exported.folder / "exported.bin"), 1.9 * len(saved) - 2048)
                else:
                    self.assertEqual((exported.folder / "exported.bin").read_bytes(), saved)

    def test_a_damaged_checkpoint_is_not_exported(self):
        trained = run("run", Deck(ORDERED).path)
        kept = trained.folder / "kept" / "step-00000012"
        with open(kept / "rank-00000", "r+b") as file:
            file.write(b"damage")
        outcome = self.assert_ended(run("export", kept, "exported.bin"), USAGE, "rank-00000 is damaged")
        self.assertEqual(outcome.left, [])
        self.assert_ended(run("export", trained.folder, "exported.bin"), USAGE, "there is no manifest")


class Choices(CheckpointTest):
    """Which checkpoint is used, and which is refused."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({**ORDERED, "checkpoint.every_steps": "5", "checkpoint.keep": "3"})
        cls.whole = run("run", cls.deck.path, ranks=2)
        for name in ("step-00000010", "step-00000012"):
            assert f"kept/{name}/manifest" in cls.whole.left, cls.whole

    def resumed(self, damage, *arguments):
        def prepare(folder):
            kept_in(self.whole.folder)(folder)
            damage(folder / "kept")
        return run("run", self.deck.path, *arguments, prepare=prepare)

    @staticmethod
    def damage_newest(kept):
        (kept / "step-00000012" / "rank-00001").write_bytes(b"")

    def test_a_damaged_one_is_named_and_the_one_before_it_used(self):
        outcome = self.assert_ended(self.resumed(self.damage_newest), 0, "note: not used: checkpoint kept/step-00000012: "
                                    "rank-00001 has 0 bytes", "resumed after step 10 from kept/step-00000010, restart 1")
        self.assertEqual(final_hash(outcome), final_hash(self.whole))
        self.assertIn("kept/step-00000012.2/manifest", outcome.left)

    def test_one_whose_manifest_is_no_file_is_named_and_the_one_before_it_used(self):
        def replace_by_a_folder(kept):
            (kept / "step-00000012" / "manifest").unlink()
            (kept / "step-00000012" / "manifest").mkdir()

        outcome = self.resumed(replace_by_a_folder)
        self.assert_ended(outcome, 0, "note: not used: checkpoint kept/step-00000012: its manifest is no file",
                          "resumed after step 10 from kept/step-00000010, restart 1")

    def test_a_damaged_one_that_was_asked_for_ends_the_run(self):
        outcome = self.resumed(self.damage_newest, *settings("checkpoint.resume=kept/step-00000012"))
        self.assert_ended(outcome, USAGE, "checkpoint kept/step-00000012: rank-00001 has 0 bytes")
        self.assertNotIn("step ", outcome.out)

    def test_an_older_one_can_be_asked_for(self):
        outcome = self.resumed(lambda kept: None, *settings("checkpoint.resume=kept/step-00000005", "checkpoint.dir=other"))
        self.assert_ended(outcome, 0, "resumed after step 5 from kept/step-00000005")
        self.assertEqual(final_hash(outcome), final_hash(self.whole))

    def test_a_run_that_would_be_followed_by_later_checkpoints_is_refused(self):
        for resume in ("none", "kept/step-00000005"):
            outcome = self.resumed(lambda kept: None, *settings(f"checkpoint.resume={resume}"))
            self.assert_ended(outcome, USAGE, "has step-00000012 of this training", "name another folder")
            self.assertNotIn("step  ", outcome.out)

    def test_none_begins_anew_in_a_folder_of_its_own(self):
        outcome = self.resumed(lambda kept: None, *settings("checkpoint.resume=none", "checkpoint.dir=other"))
        self.assert_ended(outcome, 0)
        self.assertNotIn("resumed", outcome.out)
        self.assertEqual(outcome.losses, self.whole.losses)

    def test_another_trainings_are_not_used_and_named_with_what_differs(self):
        outcome = self.resumed(lambda kept: None, *settings("data.seed=2"))
        self.assert_ended(outcome, 0, "checkpoint kept/step-00000012: it belongs to another training: data.seed is 1 there "
                          "and 2 here\n", "checkpoint kept/step-00000005: it belongs")
        self.assertNotIn("resumed", outcome.out)
        again = run("run", self.deck.path, *settings("data.seed=2"), prepare=kept_in(outcome.folder))
        self.assert_ended(again, 0, "resumed after step 12 from kept/step-00000012.2")
        for name in ("step-00000005", "step-00000010", "step-00000012"):  # of the other training: left alone
            self.assertIn(f"kept/{name}/manifest", again.left)

    def test_a_training_that_ended_by_its_held_out_loss_does_not_go_on(self):
        deck = Deck({**ORDERED, "data.stop_loss": "5.2", "bench.warmup_steps": "3"})
        whole = run("run", deck.path)
        steps = len(whole.losses)
        self.assertLess(steps, 12)
        self.assertIn(f"kept/step-{steps:08}/manifest", whole.left)
        first = run("run", deck.path, *AT_ONCE)
        rest = run("run", deck.path, prepare=kept_in(first.folder))
        self.assertEqual(rest.result["losses_before_restart"] + rest.losses, whole.losses)
        again = run("run", deck.path, prepare=kept_in(rest.folder))
        self.assert_ended(again, 0, f"resumed after step {steps}", "no step after the warm-up")
        self.assertEqual(again.losses, [])


class Refusals(CheckpointTest):
    def test_a_time_limit_needs_a_folder_for_the_checkpoint(self):
        self.assert_ended(run("run", Deck().path, "--max-time", "5m"), USAGE, "--max-time stops a run with a checkpoint: "
                          "give checkpoint.dir")

    def test_a_time_limit_is_a_time(self):
        for text in ("5", "0s", "soon", "-1h", "nan"):
            self.assert_ended(run("run", Deck(ORDERED).path, "--max-time", text), USAGE,
                              f"{text} is no time above 0, like 90s, 55m or 2h")

    def test_keys_of_checkpoints_need_their_folder(self):
        for key in ("every=1 min", "every_steps=3", "keep=4", "on_signal=false"):
            self.assert_ended(run("run", Deck().path, *settings(f"checkpoint.{key}")), USAGE, "checkpoint.dir")

    def test_a_folder_that_cannot_be_written_is_refused_before_the_run(self):
        outcome = run("run", Deck({"checkpoint.dir": '"/proc/kept"'}).path)
        self.assert_ended(outcome, USAGE, "/proc")
        self.assertNotIn("step ", outcome.out)


class Signals(CheckpointTest):
    LONG = {**ORDERED, "data.steps": "100000", "data.validate_every": "0"}

    def test_a_signal_to_any_rank_stops_all_of_them_with_a_checkpoint(self):
        deck = Deck(self.LONG)
        for number, name in enumerate((signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)):
            with self.subTest(signal=name):
                running = Started("run", deck.path)
                running.wait_for("step     1/")
                os.kill(running.ranks()[number % 2], name)
                self.assertEqual(running.ended(), STOPPED, running.text())
                self.assertIn("RESULT: STOPPED class=custom exit=75", running.text())
                (kept,) = (running.folder / "kept").glob("step-*")
                self.assertIn(f"the last one is kept/{kept.name}", running.text())

    def test_a_folder_that_another_run_works_in_is_refused(self):
        running = Started("run", Deck(self.LONG).path)
        running.wait_for("step     1/")
        second = run("run", Deck(self.LONG).path, *settings(f"checkpoint.dir={running.folder / 'kept'}"))
        self.assert_ended(second, USAGE, "another run works in it")
        os.kill(running.ranks()[0], signal.SIGTERM)
        self.assertEqual(running.ended(), STOPPED, running.text())

    def test_a_signal_to_the_launcher_reaches_the_ranks(self):
        running = Started("run", Deck(self.LONG).path)
        running.wait_for("step     1/")
        os.kill(running.process.pid, signal.SIGUSR1)
        self.assertEqual(running.ended(), STOPPED, running.text())

    def test_a_run_that_does_not_handle_signals_is_ended_by_them(self):
        running = Started("run", Deck({**self.LONG, "checkpoint.on_signal": "false"}).path)
        running.wait_for("step     1/")
        os.kill(running.ranks()[0], signal.SIGTERM)  # some MPI libraries keep SIGUSR1 for themselves
        self.assertNotIn(running.ended(), (0, STOPPED), running.text())
        self.assertNotIn("RESULT", running.text())

    def test_a_killed_rank_ends_the_others(self):
        running = Started("run", Deck(self.LONG).path, ranks=4)
        running.wait_for("step     1/")
        ranks = running.ranks()
        self.assertEqual(len(ranks), 4)
        os.kill(ranks[1], signal.SIGKILL)
        self.assertNotEqual(running.ended(), 0)
        # the launcher names one of those that ended: the one that was killed, or another whose MPI missed it
        self.assertRegex(running.text(), "(?i)bad termination|killed|signal 9")
        for rank in ranks:
            self.assertFalse(os.path.exists(f"/proc/{rank}"))

    def test_checkpoints_are_written_by_the_clock(self):
        running = Started("run", Deck({**self.LONG, "checkpoint.every": '"100 ms"', "checkpoint.keep": "3"}).path)
        end = time.monotonic() + PATIENCE
        while len(list((running.folder / "kept").glob("step-*"))) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(running.ranks()[0], signal.SIGUSR2)
        self.assertEqual(running.ended(), STOPPED, running.text())
        self.assertEqual(len(list((running.folder / "kept").glob("step-*"))), 3)
