"""What a whole run promises under particular strategies: naive data parallelism in its two forms."""
import json
import re

from checkpoints import kept_in
from support import Deck, final_hash, run, settings, start
from training import TrainingTest

NAIVE = "parallel.strategy=naive"
MAIN = (NAIVE, "parallel.naive_update=main")
START = "state at the start, broadcast linear across replicas"


def start_of(amounts):
    return amounts.get("start_sent_bytes"), amounts.get("start_messages")


class Naive(TrainingTest):
    """One training on one rank, which is on record, and the same on two ranks in both forms."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({"data.validate_every": "4"})
        cls.recorded = run("run", cls.deck.path, "--record-golden")
        futures = [start("run", cls.deck.path, *settings(NAIVE), ranks=2),
                   start("run", cls.deck.path, *settings(*MAIN), ranks=2),
                   start("estimate", cls.deck.path, *settings(NAIVE), "--ranks", 2, "--json", "e.json"),
                   start("estimate", cls.deck.path, *settings(*MAIN), "--ranks", 2)]
        cls.each, cls.main, cls.estimate, cls.estimate_main = (future.result() for future in futures)

    def test_both_forms_follow_the_golden_curve(self):
        for outcome in (self.each, self.main):
            self.assert_ended(outcome, 0, "VERIFICATION PASSED (10/10)", "\nRESULT: VALID ")
            self.assertEqual(outcome.result["predicted"], outcome.result["counted"])

    def test_every_rank_has_optimizer_state_or_rank_0_alone(self):
        states = [re.search(r"optimizer ([0-9.]+)", outcome.out)[1] for outcome in (self.each, self.main)]
        self.assertEqual(*states)  # of the rank that needs most
        for outcome, gathered in ((self.each, "gradients, broadcast linear"), (self.main, "parameters, broadcast linear")):
            estimate = self.estimate if outcome is self.each else self.estimate_main
            self.assertIn("gradients, reduce linear", estimate.out)
            self.assertIn(gathered, estimate.out)

    def test_what_rank_0_sends_at_the_start_is_predicted_counted_and_shown(self):
        parameters = self.each.result["counted"]["memory_bytes"]["parameters"]
        sent = start_of(self.each.result["counted"])
        self.assertEqual(sent[0], 3 * parameters)  # and two moments, to one other rank
        self.assertEqual(start_of(self.each.result["predicted"]), sent)
        row = re.search(rf"(?m)^  {START} +(\d+) bytes in (\d+) messages, once$", self.estimate.out)
        self.assertEqual(tuple(map(int, row.groups())), sent, self.estimate.out)
        self.assertEqual(start_of(json.loads((self.estimate.folder / "e.json").read_text())["predicted"]), sent)
        (check,) = [check for check in self.each.result["verification"] if check["name"] == "comm-volume"]
        self.assertIn(f"at the start predicted {sent[0]} {sent[1]}, sent {sent[0]} {sent[1]}", check["detail"])
        self.assertEqual(start_of(self.main.result["counted"]), (None, None))
        self.assertNotIn(START, self.estimate_main.out)

    def test_state_from_a_model_file_is_sent_once_more(self):
        saved = run("run", self.deck.path, *settings("model.save=saved.bin"))
        loaded = self.assert_ended(run("run", self.deck.path, *settings(NAIVE, f"model.load={saved.folder}/saved.bin"), ranks=2),
                                   0, "VERIFICATION PASSED")
        self.assertEqual(start_of(loaded.result["counted"])[0], 2 * start_of(self.each.result["counted"])[0])

    def test_a_restart_goes_on_to_the_same_bits_and_sends_the_state_that_it_read(self):
        deck = Deck({"parallel.reduction": '"ordered"', "batch.global": "8", "checkpoint.dir": '"kept"'})
        whole = run("run", deck.path)
        for forms in (((NAIVE,), MAIN), (MAIN, (NAIVE,))):
            with self.subTest(forms):
                first = run("run", deck.path, *settings(*forms[0]), "--max-time", "1ms", ranks=4)
                last = run("run", deck.path, *settings(*forms[1]), ranks=2, prepare=kept_in(first.folder))
                self.assert_ended(last, 0, "resumed after step 1", "VERIFICATION PASSED")
                self.assertEqual(final_hash(last), final_hash(whole))
                self.assertEqual(last.result["predicted"], last.result["counted"])
                once = 3 * last.result["counted"]["memory_bytes"]["parameters"]
                self.assertEqual(start_of(last.result["counted"])[0], 2 * once if forms[1] == (NAIVE,) else None)

    def test_skipped_updates_are_known_to_both_forms(self):
        keys = ("precision.recipe=mixed16", "precision.storage=fp16", "precision.loss_scale=dynamic",
                "precision.initial_loss_scale=1024", "faults.overflow.step=5", "faults.overflow.rank=1")
        for form in ((NAIVE,), MAIN):
            with self.subTest(form):
                outcome = run("run", self.deck.path, *settings(*form, *keys), ranks=2)
                self.assert_ended(outcome, 0, "SKIPPED", "VERIFICATION PASSED (7/7)")


SERVERS = "parallel.strategy=parameter_server"


class Servers(TrainingTest):
    """One training on one rank, which is on record, and the same by 2 workers with 1 and 2 servers, and with colocated ones."""

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({"parallel.reduction": '"ordered"', "data.validate_every": "4", "checkpoint.dir": '"kept"'})
        cls.whole = run("run", cls.deck.path, "--record-golden")
        futures = [start("run", cls.deck.path, *settings(SERVERS), ranks=3),
                   start("run", cls.deck.path, *settings(SERVERS, "server.count=2"), ranks=4),
                   start("run", cls.deck.path, *settings(SERVERS, "server.colocated=true"), ranks=2)]
        cls.runs = [future.result() for future in futures]

    def test_any_number_of_servers_follows_the_golden_curve_to_the_same_bits(self):
        for outcome in self.runs:
            with self.subTest(outcome.command):
                self.assert_ended(outcome, 0, "VERIFICATION PASSED (10/10)", "\nRESULT: VALID ")
                self.assertEqual(outcome.losses, self.whole.losses)
                self.assertEqual(outcome.held_out, self.whole.held_out)
                self.assertEqual(final_hash(outcome), final_hash(self.whole))
                self.assertEqual(outcome.result["predicted"], outcome.result["counted"])

    def test_priority_changes_neither_bits_nor_bytes(self):
        base = (SERVERS, "optimizer.clip=0")
        fifo, priority, slices = (run("run", self.deck.path, *settings(*base, *keys), ranks=3) for keys in (
            (), ("server.schedule=priority",), ("server.schedule=priority", "server.slice=2kB", "comm.check_order=true")))
        norm = 8 * (16 + 1 + 1 + 13)  # the ring of squared sums by blocks of 256: table, positions, last norm, block
        for outcome in (priority, slices):
            self.assert_ended(outcome, 0, "VERIFICATION PASSED (7/7)", "| norm - |")
            self.assertEqual((outcome.losses, outcome.held_out), (fifo.losses, fifo.held_out))
            self.assertEqual(final_hash(outcome), final_hash(fifo))
            self.assertEqual(outcome.result["predicted"], outcome.result["counted"])
            self.assertEqual(outcome.result["counted"]["sent_bytes"], fifo.result["counted"]["sent_bytes"] - norm)
            self.assertIsNone(outcome.result["samples"]["norm"][0])
        self.assertGreater(slices.result["counted"]["messages"], fifo.result["counted"]["messages"])

    def test_priority_changes_no_bits_of_other_recipes_buffers_and_lengths(self):
        base = (SERVERS, "optimizer.clip=0", "data.steps=4")
        for keys in (("precision.recipe=mixed16",), ("precision.recipe=mixed20", "batch.accumulation=2", "batch.micro=1"),
                     ("comm.buffers=staged",), ("memory.recompute=full",)):
            with self.subTest(keys=keys):
                fifo, priority = (run("run", self.deck.path, *settings(*base, *keys, *more), ranks=3)
                                  for more in ((), ("server.schedule=priority", "server.slice=2kB")))
                self.assert_ended(fifo, 0, "VERIFICATION PASSED")
                self.assert_ended(priority, 0, "VERIFICATION PASSED")
                self.assertEqual(priority.losses, fifo.losses)
                self.assertEqual(final_hash(priority), final_hash(fifo))

    def test_by_priority_a_loss_that_is_no_number_ends_all_ranks(self):
        slow = ("comm.emulated_network.latency=1ms", "comm.emulated_network.bandwidth=200kB/s", "server.slice=4kB")
        deck = Deck({"model.layers": "4", "batch.global": "2"})  # pushes of upper blocks are still to be sent
        outcome = run("run", deck.path, *settings(SERVERS, "optimizer.clip=0", "server.schedule=priority", *slow,
                                                       "faults.nan.step=2", "faults.nan.unit=mlp 0"), ranks=3)
        self.assertEqual(outcome.code, 70, outcome)
        self.assertIn("step 2: loss nan", outcome.err)

    def test_a_result_says_who_serves_and_takes_no_server_for_the_straggler(self):
        for outcome, servers in zip(self.runs, ([2], [2, 3], [])):
            with self.subTest(outcome.command):
                ranks = outcome.result["ranks"]
                self.assertEqual([rank["rank"] for rank in ranks if rank["serves"]], servers)
                workers = [rank for rank in ranks if not rank["serves"]]
                slowest = max(workers, key=lambda rank: rank["median_own_seconds"])
                self.assertEqual(outcome.result["straggler"]["rank"], slowest["rank"])

    def test_a_restart_changes_the_number_of_servers_or_does_without(self):
        forms = {"1 server": ((SERVERS,), 3), "2 servers": ((SERVERS, "server.count=2"), 4), "ddp": ((), 2)}
        for before, after in (("1 server", "2 servers"), ("2 servers", "ddp"), ("ddp", "1 server")):
            with self.subTest(before=before, after=after):
                (keys, ranks), (other_keys, other_ranks) = forms[before], forms[after]
                first = run("run", self.deck.path, *settings(*keys), "--max-time", "1ms", ranks=ranks)
                last = run("run", self.deck.path, *settings(*other_keys), ranks=other_ranks, prepare=kept_in(first.folder))
                self.assert_ended(last, 0, "resumed after step 1", "VERIFICATION PASSED")
                self.assertEqual(final_hash(last), final_hash(self.whole))


class Asynchronous(TrainingTest):
    """Workers that do not wait for each other, on times that faults give them."""

    ASYNC = (SERVERS, "server.mode=async", "faults.pace.forward=5ms", "faults.straggler.sigma=0.5")

    @classmethod
    def setUpClass(cls):
        cls.deck = Deck({"data.validate_every": "4"})
        bounded = (*cls.ASYNC, "server.mode=bounded", "server.staleness=1")
        futures = {"planned": start("run", cls.deck.path, *settings(*cls.ASYNC), ranks=3),
                   "2 servers": start("run", cls.deck.path, *settings(*cls.ASYNC, "server.count=2"), ranks=4),
                   "arrival": start("run", cls.deck.path, *settings(*cls.ASYNC, "server.order=arrival"), ranks=3),
                   "bounded": start("run", cls.deck.path, *settings(*bounded), ranks=3),
                   "paced otherwise": start("run", cls.deck.path, *settings(*cls.ASYNC, "faults.pace.forward=1ms"), ranks=3)}
        cls.runs = {name: future.result() for name, future in futures.items()}

    def test_every_push_is_applied_once_and_what_is_counted_is_predicted(self):
        for name, outcome in self.runs.items():
            with self.subTest(name):
                self.assert_ended(outcome, 0, "\nVERIFICATION PASSED", "\nRESULT: EMULATED", "pushes-applied", "\nservers: ")
                servers = outcome.result["servers"]
                self.assertEqual(sum(worker["pushes"] for worker in servers["workers"]), 2 * 12)
                self.assertEqual(sum(servers["pushes_by_staleness"]), 2 * 12)
                self.assertEqual(outcome.result["counted"], outcome.result["predicted"])
                self.assertEqual(len(outcome.result["samples"]["loss"]), 12)
                self.assertEqual(len(outcome.held_out), 3)
                checks = [check["name"] for check in outcome.result["verification"]]
                self.assertEqual("clock-gap" in checks, name == "bounded")

    def test_a_planned_order_gives_the_same_bits_for_any_number_of_servers_and_any_delays(self):
        planned = self.runs["planned"].result["servers"]
        for name in ("2 servers", "paced otherwise"):
            other = self.runs[name].result["servers"]
            self.assertEqual((other["acts"], other["parameter_hash"]), (planned["acts"], planned["parameter_hash"]), name)
            self.assertEqual(self.runs[name].losses, self.runs["planned"].losses)
        self.assertNotEqual(self.runs["bounded"].result["servers"]["acts"], planned["acts"])

    def test_every_order_repeats_to_the_bit_and_another_one_does_not(self):
        def repeat(outcome, change=None):
            result = outcome.result
            if change:
                change(result["servers"]["acts"])
            def prepare(folder):
                (folder / "text.txt").write_bytes((self.deck.folder / "text.txt").read_bytes())
                (folder / "result.json").write_text(json.dumps(result))
            return run("verify", "--replay", "." if change is None else "result.json", prepare=prepare)

        def answer_later(acts):
            place = next(i for i in range(len(acts) - 1) if acts[i] % 2 == 1 and acts[i + 1] % 2 == 0
                         and acts[i] // 2 != acts[i + 1] // 2)
            acts[place], acts[place + 1] = acts[place + 1], acts[place]

        for name, outcome in self.runs.items():
            with self.subTest(name):
                self.assert_ended(repeat(outcome), 0, "24 pushes of 2 workers", "VERIFICATION PASSED")
        self.assert_ended(repeat(self.runs["arrival"], answer_later), 65, "VERIFICATION FAILED")

    def test_the_straggler_is_the_worker_that_is_slower(self):
        slower = ("faults.straggler.sigma=0.0", "faults.straggler.rank=1", "faults.straggler.factor=3")
        result = run("run", self.deck.path, *settings(*self.ASYNC, *slower, "faults.pace.forward=20ms"), ranks=3).result
        self.assertEqual(result["straggler"]["rank"], 1)
        pace = [rank["median_own_seconds"] for rank in result["ranks"] if not rank["serves"]]
        self.assertGreaterEqual(pace[1], 3 * 0.02)
        self.assertGreater(pace[1], pace[0])

    def test_a_training_goes_on_from_a_pause_and_can_be_repeated_as_a_whole(self):
        def replays(outcome):
            def prepare(folder):
                (folder / "text.txt").write_bytes((self.deck.folder / "text.txt").read_bytes())
                (folder / "result.json").write_text(json.dumps(outcome.result))
            self.assert_ended(run("verify", "--replay", "result.json", prepare=prepare), 0, "24 pushes of 2 workers",
                              "VERIFICATION PASSED")

        kept = (*self.ASYNC, "checkpoint.dir=kept", "checkpoint.every_steps=2")
        for keys, ranks in ((("server.count=2",), 4), (("server.order=arrival",), 3)):
            with self.subTest(keys=keys):
                first = run("run", self.deck.path, *settings(*kept, *keys), "--max-time", "1ms", ranks=ranks)
                self.assert_ended(first, 75, "checkpoint")
                last = run("run", self.deck.path, *settings(*kept, *keys, "model.save=saved.bin"), ranks=ranks,
                           prepare=kept_in(first.folder))
                self.assert_ended(last, 0, "resumed after step 2", "VERIFICATION PASSED", "model written to saved.bin")
                replays(last)
                exported = run("export", last.folder / "kept" / "step-00000012", "exported.bin")
                self.assertEqual((exported.folder / "exported.bin").read_bytes(), (last.folder / "saved.bin").read_bytes())
                again = run("run", self.deck.path, *settings(*kept, *keys), ranks=ranks, prepare=kept_in(last.folder))
                self.assert_ended(again, 0, "resumed after step 12")
                self.assertEqual(again.result["servers"]["parameter_hash"], last.result["servers"]["parameter_hash"])
                other = run("run", self.deck.path, *settings(*self.ASYNC, *keys, "checkpoint.resume=kept/step-00000002"),
                            ranks=ranks, prepare=kept_in(first.folder))
                self.assertEqual(other.code, 64, other)  # with other pauses
                self.assertIn("pushes between pauses", other.err)
        whole = run("run", self.deck.path, *settings(*kept), ranks=3)
        planned = run("run", self.deck.path, *settings(*kept, "server.count=2"), "--max-time", "1ms", ranks=4)
        ended = run("run", self.deck.path, *settings(*kept), ranks=3, prepare=kept_in(planned.folder))
        self.assert_ended(ended, 0, "resumed after step 2", "VERIFICATION PASSED")
        self.assertEqual(final_hash(ended), final_hash(whole))
        self.assertEqual(ended.result["servers"]["acts"], whole.result["servers"]["acts"])

    def test_a_loss_that_is_no_number_ends_all_ranks_and_names_its_part(self):
        outcome = run("run", self.deck.path, *settings(*self.ASYNC, "faults.nan.step=3", "faults.nan.unit=mlp 0"), ranks=5)
        self.assertEqual(outcome.code, 70, outcome)
        self.assertIn('the first output that is not finite is that of part "mlp 0"', outcome.err)
        for line in outcome.err.splitlines():
            if line.startswith("trainstone: rank 4:"): # the server, if it came so far
                self.assertRegex(line, r"push \d+, of worker \d: loss nan")

    def test_what_such_a_run_cannot_have_is_refused(self):
        for key, words in (("server.colocated=true", "server.colocated"),
                           ("parallel.check_replicas=2", "parallel.check_replicas")):
            outcome = run("run", self.deck.path, *settings(*self.ASYNC, key), ranks=3)
            self.assertEqual(outcome.code, 64, outcome)
            self.assertIn(words, outcome.err)
        refused = run("run", self.deck.path, *settings(*self.ASYNC), "--record-golden", ranks=3)
        self.assertEqual(refused.code, 64, refused)
        by_priority = settings("parallel.strategy=parameter_server", "server.schedule=priority", "optimizer.clip=0")
        refused = run("run", self.deck.path, *by_priority, "--record-golden", ranks=3)
        self.assertEqual(refused.code, 64, refused)
        self.assertIn("legal value: fifo", refused.err)
        refused = run("explain", "parameter_server", "--ranks", 3, "--deck", self.deck.path, "--machine", self.deck.path,
                      *settings("server.mode=async"))
        self.assertEqual(refused.code, 64, refused)
        self.assertIn("server.mode", refused.err)
        refused = run("verify", "--replay", self.runs["planned"].folder / "out" / "result.json", ranks=2)
        self.assertEqual(refused.code, 64, refused)
