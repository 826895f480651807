"""What a run gives: losses, verification, golden curves, result files, models, and how it ends when it must."""
import json
import math
import re
import statistics
import struct
import unittest

from support import Deck, run, settings, start, write_shard

FAILED, INTERNAL = 65, 70


class TrainingTest(unittest.TestCase):
    def assert_ended(self, outcome, code, *words):
        self.assertEqual(outcome.code, code, outcome)
        for word in words:
            self.assertIn(word, outcome.out, outcome)
        return outcome

    def assert_close(self, values, expected, relative, outcome):
        self.assertEqual(len(values), len(expected), outcome)
        for step, (value, wanted) in enumerate(zip(values, expected), 1):
            self.assertLess(abs(value / wanted - 1), relative, f"step {step}: {value}, expected {wanted}\n{outcome}")


class Verification(TrainingTest):
    """One deck on 1, 2, 4 and 1 ranks: no golden curve, recording it, passing it, failing a damaged one. The last run
    takes the batch in one piece, and two threads where Kokkos has them."""

    # fp32: the order of the sums differs (6e-8 each), and twelve steps of training amplify it a little
    SAME = 1e-5

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck()
        cls.unreferenced = run("run", cls.deck.path)
        cls.recorded = run("run", cls.deck.path, "--record-golden", ranks=2)
        cls.golden = json.loads(cls.deck.golden.read_text())
        cls.valid = run("run", cls.deck.path, *settings("comm.check_order=true"), ranks=4)
        damaged = json.loads(json.dumps(cls.golden))
        (curve,) = damaged["curves"].values()
        curve["losses"][2] *= 1.01
        cls.deck.golden.write_text(json.dumps(damaged))
        cls.invalid = run("run", cls.deck.path, *settings("batch.micro=4"), variables={"OMP_NUM_THREADS": "2"})
        cls.all = [cls.unreferenced, cls.recorded, cls.valid, cls.invalid]

    def test_without_a_golden_curve_the_rate_is_unreferenced(self):
        outcome = self.assert_ended(self.unreferenced, 0, "VERIFICATION PASSED (7/7)", "\nFOM_UNREFERENCED: ",
                                    "\nRESULT: UNREFERENCED class=custom exit=0 json=out/result.json\n")
        self.assertNotIn("\nFOM:", outcome.out, outcome)
        self.assertEqual(outcome.left, ["out", "out/result.json"], outcome)
        self.assertEqual(outcome.err, "", outcome)

    def test_a_recorded_golden_curve_is_the_runs_own(self):
        outcome = self.assert_ended(self.recorded, 0, str(self.deck.golden), "\nRESULT: UNREFERENCED ")
        (key, curve), = self.golden["curves"].items()
        self.assertEqual(curve["losses"], outcome.losses)
        self.assertEqual(key, outcome.result["deck"]["golden_key"])
        early = outcome.result["early_steps"]
        self.assertEqual(early, {"norms": curve["norms"], "changes": curve["changes"]})
        self.assertEqual(early["norms"], outcome.result["samples"]["norm"][:10])
        self.assertEqual((early["changes"]["after_step"], len(early["changes"]["mean"])), (10, 16))
        self.assertIsNone(outcome.result["golden"])

    def test_a_result_names_the_golden_file_by_its_digest(self):
        golden = self.valid.result["golden"]
        (curve,) = self.golden["curves"].values()
        self.assertEqual((golden["released"], golden["recorded_with"]), (False, curve["recorded_with"]))
        self.assertRegex(golden["digest"], "^[0-9a-f]{16}$")
        self.assertNotEqual(golden["digest"], self.invalid.result["golden"]["digest"])

    def test_norms_and_changes_that_differ_by_little_are_invalid(self):
        for check, change in (("gradient-norms", lambda curve: curve["norms"].__setitem__(4, curve["norms"][4] * 1.0001)),
                              ("parameter-changes", lambda curve: curve["changes"]["mean"].update(lnfb=1e-3))):
            with self.subTest(check):
                damaged = json.loads(json.dumps(self.golden))
                (curve,) = damaged["curves"].values()
                change(curve)
                deck = Deck()
                deck.golden.parent.mkdir()
                deck.golden.write_text(json.dumps(damaged))
                self.assert_ended(run("run", deck.path), FAILED, f"VERIFICATION FAILED (9/10): {check}\n",
                                  "\nRESULT: INVALID class=custom exit=65 ")

    def test_a_run_that_follows_the_golden_curve_is_valid(self):
        outcome = self.assert_ended(self.valid, 0, "VERIFICATION PASSED (10/10): loss-curve gradient-norms parameter-changes ", "\nFOM: ",
                                    "\nFOM_PER_RANK: ", "\nRESULT: VALID class=custom golden=local exit=0 ")
        self.assertEqual(outcome.result["status"], "VALID")
        self.assertNotIn("UNREFERENCED", outcome.out)

    def test_the_order_of_collectives_is_checked_on_demand(self):
        note = "\nnote: the order of collectives is checked"
        self.assertIn(note, self.valid.out)
        self.assertNotIn(note, self.recorded.out)

    def test_a_loss_that_differs_by_one_percent_fails_and_shows_no_figure_of_merit(self):
        outcome = self.assert_ended(self.invalid, FAILED, "VERIFICATION FAILED (9/10): loss-curve\n",
                                    "\nUNVERIFIED_RATE: ", "\nRESULT: INVALID class=custom exit=65 ")
        self.assertNotIn("FOM", outcome.out, outcome)
        self.assertIsNone(outcome.result["fom"])
        self.assertGreater(outcome.result["unverified_rate"]["value"], 0)
        self.assertEqual(outcome.result["exit_code"], FAILED)
        (failed,) = [check for check in outcome.result["verification"] if not check["passed"]]
        self.assertEqual(failed["name"], "loss-curve")
        self.assertAlmostEqual(failed["value"], 0.01, delta=1e-3)

    def test_losses_do_not_depend_on_ranks_accumulation_or_threads(self):
        for outcome in (self.recorded, self.valid, self.invalid):
            self.assert_close(outcome.losses, self.unreferenced.losses, self.SAME, outcome)
            self.assert_close(outcome.held_out, self.unreferenced.held_out, self.SAME, outcome)

    def test_training_starts_at_chance_and_learns(self):
        losses = self.unreferenced.losses
        self.assertAlmostEqual(losses[0], math.log(256), delta=0.2)
        self.assertLess(losses[-1], losses[0] - 0.3)

    def test_the_result_file_has_what_was_predicted_and_counted(self):
        for outcome, ranks in zip(self.all, (1, 2, 4, 1)):
            result = outcome.result
            self.assertEqual(result["predicted"], result["counted"], outcome)
            memory = dict(result["predicted"]["memory_bytes"])
            self.assertEqual(memory.pop("total"), sum(memory.values()))
            self.assertEqual(result["topology"]["ranks"], ranks)
            self.assertEqual(len(result["ranks"]), ranks)
            self.assertEqual(result["samples"]["step"], list(range(1, 13)))
            self.assertEqual(set(map(len, result["samples"]["phases"].values())), {12})
            self.assertEqual([loss is not None for loss in result["samples"]["held_out"]],
                             [step % 4 == 0 for step in range(1, 13)])
            self.assertEqual(result["predicted"]["messages"] > 0, ranks > 1)
            self.assertEqual(result["params"]["batch.micro"]["value"], 4 if outcome is self.invalid else 1)
            self.assertEqual(result["params"]["batch.accumulation"]["value"], {1: 4, 2: 2, 4: 1}[ranks]
                             if outcome is not self.invalid else 1)

    def test_lines_on_a_pipe_are_plain_and_show_the_held_out_loss(self):
        for outcome in self.all:
            self.assertNotRegex(outcome.out, "[\r\x1b]")
            self.assertTrue(outcome.out.startswith("trainstone "), outcome)
            held_out = [line for line in outcome.out.splitlines() if "| held-out " in line]
            self.assertEqual(len(held_out), 3, outcome)
            self.assertIn(f"| held-out {outcome.held_out[-1]:.4f} |", held_out[-1])


class Data(TrainingTest):
    @classmethod
    def setUpClass(cls):
        text = Deck({"data.steps": None, "data.epochs": "1"})
        cls.tokens = (text.folder / "text.txt").read_bytes()
        synthetic = {"data.source": '"synthetic"', "data.files": None, "data.validation_fraction": None,
                     "data.validate_every": None, "model.vocab": "16", "data.steps": "300"}
        stop = {"data.validate_every": "1", "data.steps": "200", "data.stop_loss": "4.5"}
        warm_up = {"data.validate_every": "1", "data.stop_loss": "100.0", "bench.warmup_steps": "2"}
        decks = [text, cls.shards(), cls.shards(magic=20240801, version=7, letter="I"),
                 *map(Deck, (synthetic, stop, warm_up))]
        futures = [start("run", deck.path) for deck in decks]
        cls.epoch, cls.short, cls.wide, cls.synthetic, cls.stopped, cls.stopped_in_warm_up = (
            future.result() for future in futures)

    @classmethod
    def shards(cls, **form):
        """The deck with its text as two token shards."""
        deck = Deck({"data.source": '"tokens"', "data.files": '["one.bin", "two.bin"]'})
        write_shard(deck.folder / "one.bin", cls.tokens[:1001], **form)
        write_shard(deck.folder / "two.bin", cls.tokens[1001:], **form)
        return deck

    def test_an_epoch_shows_every_training_sample_once(self):
        self.assert_ended(self.epoch, 0)
        samples = (len(self.tokens) - 1) // 8
        training = samples - samples // 10  # a tenth is held out
        self.assertEqual(len(self.epoch.losses), math.ceil(training / 4), self.epoch)

    def test_token_shards_give_the_losses_of_the_text_that_they_hold(self):
        for outcome in (self.short, self.wide):
            self.assert_ended(outcome, 0)
            self.assertEqual(outcome.losses, self.epoch.losses[:12], outcome)
            self.assertEqual(outcome.held_out, self.epoch.held_out[:3], outcome)

    def test_synthetic_data_is_learned(self):
        outcome = self.assert_ended(self.synthetic, 0)
        self.assertAlmostEqual(outcome.losses[0], math.log(16), delta=0.2)
        self.assertLess(sum(outcome.losses[-20:]) / 20, 0.6 * math.log(16), outcome)

    def test_stop_loss_ends_the_training_early(self):
        outcome = self.assert_ended(self.stopped, 0, "\nRESULT: UNREFERENCED ")
        self.assertLess(len(outcome.losses), 200, outcome)
        self.assertEqual(len(outcome.held_out), len(outcome.losses))
        self.assertLessEqual(outcome.held_out[-1], 4.5)
        self.assertGreater(min(outcome.held_out[:-1]), 4.5)
        self.assertEqual(outcome.result["window"]["last_step"], len(outcome.losses))
        metrics, samples = outcome.result["metrics"], outcome.result["samples"]
        self.assertEqual(metrics["steps_to_stop_loss"], len(outcome.losses))
        self.assertEqual(metrics["tokens_to_stop_loss"], sum(samples["tokens"]))
        self.assertAlmostEqual(metrics["seconds_to_stop_loss"], sum(samples["seconds"]))
        self.assertEqual(metrics["flops_to_stop_loss"], len(outcome.losses) * outcome.result["counted"]["flops"])

    def test_stop_loss_during_the_warm_up_still_measures_a_step(self):
        outcome = self.assert_ended(self.stopped_in_warm_up, 0)
        self.assertEqual(outcome.result["window"], {"first_step": 3, "last_step": 3})


class Models(TrainingTest):
    def test_a_saved_model_is_an_llmc_file_from_which_training_goes_on(self):
        deck = Deck()
        saved = self.assert_ended(run("run", deck.path, *settings("model.save=models/model.bin"), ranks=2), 0)
        self.assertEqual(saved.left, ["models", "models/model.bin", "out", "out/result.json"], saved)
        path = saved.folder / "models" / "model.bin"
        magic, version, *shape = struct.unpack_from("<8i", path.read_bytes())
        self.assertEqual((magic, version), (20240326, 3))
        self.assertEqual(shape, [8, 256, 1, 2, 16, 256])  # context, vocab, layers, heads, channels, padded vocab
        block = 12 * 16 * 16 + 13 * 16
        self.assertEqual(path.stat().st_size, 1024 + 4 * ((256 + 8) * 16 + block + 2 * 16))
        # a learning rate that changes nothing: the held-out loss is that of the loaded model
        frozen = settings(f"model.load={path}", "optimizer.lr=1e-30")
        loaded = self.assert_ended(run("run", deck.path, *frozen), 0)
        self.assert_close(loaded.held_out, 3 * saved.held_out[-1:], 1e-6, loaded)
        self.assertLess(loaded.losses[0], saved.losses[0] - 0.3)


class Options(TrainingTest):
    def test_attention_and_dropout_may_be_computed_in_any_way_on_any_ranks(self):
        deck = Deck({"model.layers": "2"})
        drops, flash, stored = "model.dropout=0.2", "model.attention=flash", "model.dropout_masks=stored"
        runs = {"plain": ([], 1), "flash": ([flash], 2), "drops": ([drops], 1), "drops, 4 ranks": ([drops], 4),
                "stored": ([drops, stored], 2), "flash drops": ([drops, flash], 2),
                "flash drops, stored": ([drops, flash, stored], 1)}
        futures = {name: start("run", deck.path, *settings(*keys), ranks=ranks) for name, (keys, ranks) in runs.items()}
        outcomes = {name: self.assert_ended(future.result(), 0, "VERIFICATION PASSED (7/7)")
                    for name, future in futures.items()}
        for name, outcome in outcomes.items():
            expected = outcomes["drops" if "drops" in name or name == "stored" else "plain"]
            self.assert_close(outcome.losses, expected.losses, Verification.SAME, outcome)
            self.assert_close(outcome.held_out, expected.held_out, Verification.SAME, outcome)
        self.assertGreater(outcomes["drops"].losses[-1], outcomes["plain"].losses[-1])
        activations = {name: outcome.result["counted"]["memory_bytes"]["activations"] for name, outcome in outcomes.items()}
        self.assertEqual(activations["drops"], activations["plain"])
        self.assertGreater(activations["stored"], activations["drops"])


class Kernels(TrainingTest):
    def test_a_table_of_kernels_has_every_launch_of_a_step(self):
        deck = Deck({"data.validate_every": "1"})
        timed, plain = (start("run", deck.path, *settings(f"bench.kernels={value}"), ranks=2) for value in ("true", "false"))
        timed = self.assert_ended(timed.result(), 0, "VERIFICATION PASSED (7/7)", "kernels of a step, each timed on its own")
        rows = timed.result["kernels"]
        self.assertIn("trainstone::comm::reduce", [row["label"] for row in rows])
        self.assertAlmostEqual(sum(row["launches"] for row in rows), timed.result["counted"]["kernel_launches"])
        self.assertAlmostEqual(sum(row["flops"] for row in rows if "gemm" in row["label"] or "attention" in row["label"]),
                               timed.result["counted"]["flops"])
        self.assertGreater(min(row["seconds"] for row in rows), 0)
        self.assertNotIn("kernels", self.assert_ended(plain.result(), 0).result)


class Precision(TrainingTest):
    RECIPES = {"fp32": [], "mixed16 bf16": ["precision.recipe=mixed16"],
               "mixed16 fp16": ["precision.recipe=mixed16", "precision.storage=fp16", "precision.loss_scale=dynamic"],
               "mixed18 bf16": ["precision.recipe=mixed18", "parallel.strategy=zero", "parallel.zero_stage=1"],
               "mixed20 fp16": ["precision.recipe=mixed20", "precision.storage=fp16", "precision.loss_scale=dynamic",
                                "parallel.strategy=zero", "parallel.zero_stage=3"]}

    def test_sixteen_bits_learn_like_fp32(self):
        deck = Deck({"data.steps": "60"})
        futures = {name: start("run", deck.path, *settings(*keys), ranks=2) for name, keys in self.RECIPES.items()}
        outcomes = {name: self.assert_ended(future.result(), 0, "VERIFICATION PASSED (7/7)")
                    for name, future in futures.items()}
        expected = outcomes["fp32"].held_out[-1:]
        self.assertLess(expected[0], outcomes["fp32"].losses[0] - 1)
        for outcome in outcomes.values():
            self.assert_close(outcome.held_out[-1:], expected, 0.02, outcome)
        self.assertRegex(outcomes["mixed16 bf16"].out, r"\nnote: precision mixed16 in bf16, gemm .*, attention materialized\n")

    def test_an_overflow_on_one_rank_skips_the_step_on_all_and_training_goes_on(self):
        keys = [*self.RECIPES["mixed16 fp16"], "precision.initial_loss_scale=1024", "faults.overflow.step=5",
                "faults.overflow.rank=1", "parallel.strategy=zero", "parallel.zero_stage=2"]
        outcome = self.assert_ended(run("run", Deck().path, *settings(*keys), ranks=2), 0, "VERIFICATION PASSED (7/7)")
        skipped = re.findall(r"(?m)^step +(\d+)/12 .* scale 1024 \| SKIPPED: gradients overflow, the scale halves",
                             outcome.out)
        self.assertEqual(skipped, ["5"], outcome)
        samples = outcome.result["samples"]
        self.assertEqual([step for step, flag in zip(samples["step"], samples["skipped"]) if flag], [5])
        self.assertEqual(samples["loss_scale"], 5 * [1024] + 7 * [512])
        self.assertIsNone(samples["norm"][4])
        self.assertEqual(outcome.result["metrics"]["skipped_steps"], 1)
        window, steps = outcome.result["window"], list(zip(samples["step"], samples["tokens"], samples["seconds"]))
        measured = [step for step in steps if window["first_step"] <= step[0] <= window["last_step"]]
        tokens = sum(tokens for step, tokens, _ in measured if step != 5)
        self.assertEqual(len(measured) * measured[0][1] - tokens, measured[0][1])  # the skipped step was measured
        self.assertAlmostEqual(outcome.result["emulated_rate"]["value"] * sum(step[2] for step in measured) / tokens, 1, places=9)
        self.assertLess(outcome.losses[-1], outcome.losses[0])

    def test_too_many_skipped_steps_end_the_run(self):
        keys = [*self.RECIPES["mixed16 fp16"], "precision.initial_loss_scale=1099511627776", "precision.most_skipped=2"]
        outcome = self.assert_ended(run("run", Deck().path, *settings(*keys), ranks=2), INTERNAL)
        self.assertRegex(outcome.err, r"^trainstone: step 3: gradients overflow in the last 3 steps, now at a loss scale")
        self.assertNotIn("RESULT", outcome.out)

    def test_a_model_in_bf16_is_saved_in_bf16(self):
        deck = Deck()
        keys = [*self.RECIPES["mixed16 bf16"], "model.save=model.bin"]
        saved = self.assert_ended(run("run", deck.path, *settings(*keys), ranks=2), 0)
        path = saved.folder / "model.bin"
        self.assertEqual(struct.unpack_from("<2i", path.read_bytes()), (20240326, 5))
        frozen = settings(f"model.load={path}", "optimizer.lr=1e-30", *self.RECIPES["mixed16 bf16"])
        loaded = self.assert_ended(run("run", deck.path, *frozen), 0)
        self.assert_close(loaded.held_out, 3 * saved.held_out[-1:], 1e-6, loaded)


class Faults(TrainingTest):
    """Of times: on a busy machine something else may take as long as a fault, but not as long as all of ever longer ones."""

    DECK = {"data.validation_fraction": None, "data.validate_every": None}

    def assert_slower_training(self, outcome, undisturbed, note):
        self.assert_ended(outcome, 0, note, "\nRESULT: EMULATED ")
        self.assertEqual(outcome.losses, undisturbed.losses, outcome)
        self.assertEqual(outcome.result["counted"], undisturbed.result["counted"])

    def test_delays_change_times_and_nothing_else(self):
        deck = Deck(self.DECK)
        futures = [start("run", deck.path, *keys, ranks=2)
                   for keys in ((), settings("faults.delay.where=send", "faults.delay.time=3 ms"))]
        none, send = (self.assert_ended(future.result(), 0) for future in futures)
        self.assert_slower_training(send, none, "\nnote: a delay is injected: ")
        for seconds in send.result["samples"]["seconds"]:
            self.assertGreater(seconds, 3e-3 * send.result["predicted"]["messages"] / 2)  # busiest rank's; all send
        for time in ("1 ms", "10 ms", "100 ms"):
            kernel = run("run", deck.path, *settings("faults.delay.where=kernel", f"faults.delay.time={time}",
                                                     "faults.delay.rank=1", "faults.delay.every=3"), ranks=2)
            self.assert_slower_training(kernel, none, "\nnote: a delay is injected: ")
            phases = kernel.result["samples"]["phases"]  # rank 0's, who waits for rank 1: that is not exposed communication
            waits = sum(phases["comm"]) - sum(phases["exposed communication"])
            if kernel.result["straggler"]["rank"] == 1 and waits > 0:
                break
        self.assertEqual(kernel.result["straggler"]["rank"], 1, kernel)
        self.assertGreater(waits, 0, kernel)

    def test_a_slowed_kernel_changes_times_and_nothing_else(self):
        deck = Deck(self.DECK)
        none = self.assert_ended(run("run", deck.path, ranks=2), 0)
        for factor in (50, 500, 5000):
            slow = run("run", deck.path, *settings("faults.slow.kernel=gemm", f"faults.slow.factor={factor}"), ranks=2)
            self.assert_slower_training(slow, none, f"\nnote: kernels are slowed down: gemm takes {factor} times as long\n")
            gemm, other = (statistics.median(slow.result["samples"]["phases"][name]) /
                           statistics.median(none.result["samples"]["phases"][name]) for name in ("gemm", "attention"))
            if gemm > 5 * other:
                break
        self.assertGreater(gemm, 5 * other, slow)

    def test_a_message_that_no_plan_knows_fails_the_comparison(self):
        deck = Deck({"data.validation_fraction": None, "data.validate_every": None})
        outcome = self.assert_ended(run("run", deck.path, *settings("faults.extra_message=true"), ranks=2), FAILED)
        self.assertRegex(outcome.out, r"\nVERIFICATION FAILED \(./7\): .*comm-volume")
        self.assertEqual(outcome.result["counted"]["messages"], outcome.result["predicted"]["messages"] + 1, outcome)

    def test_a_value_that_is_not_a_number_is_traced_to_step_and_part(self):
        deck = Deck({"model.layers": "2"})
        faults = [(part, ranks) for part in ("embed", "attention 1", "mlp 1", "head") for ranks in (1, 2)]
        futures = [start("run", deck.path, *settings("faults.nan.step=2", f"faults.nan.unit={part}"), ranks=ranks)
                   for part, ranks in faults]
        for (part, ranks), future in zip(faults, futures):
            with self.subTest(part=part, ranks=ranks):
                outcome = self.assert_ended(future.result(), INTERNAL, "step     1/12")
                self.assertRegex(outcome.err, f'^trainstone: step 2: .* part "{part}"\n$')
                self.assertNotIn("FOM", outcome.out)
                self.assertNotIn("RESULT", outcome.out)
                self.assertNotIn("out/result.json", outcome.left)
