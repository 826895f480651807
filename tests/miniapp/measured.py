"""What a run chooses by trying it: algorithms of collectives, and who computes matrix products. No claim depends on a time."""
import json
import re
import unittest

from refusals import RefusalTest
from support import Deck, Started, copy_fixture, new_folder, run, settings, start
from training import TrainingTest

KEYS = ("comm.allreduce", "comm.reduce_scatter", "comm.all_gather", "comm.reduce", "comm.broadcast")
NOTE = r"(?m)^note: (comm\.\w+) measured with .+ on (\d+) ranks: (\w+) takes "
ZERO3 = ("parallel.strategy=zero", "parallel.zero_stage=3")
OWNERS = ("parallel.strategy=zero", "parallel.zero_stage=1", "parallel.partition=inter_layer")


def measured(*keys):
    return [f"{key}=measured" for key in keys]


class Choice(TrainingTest):
    def assert_chosen(self, outcome, ranks_of):
        """The keys of ranks_of were measured, with so many ranks each, and the training ran what the plan says."""
        self.assert_ended(outcome, 0, "VERIFICATION PASSED (7/7)")  # so bytes, messages and memory are as predicted
        notes = re.findall(NOTE, outcome.out)
        result = outcome.result
        self.assertEqual({key: int(ranks) for key, ranks, _ in notes}, ranks_of, outcome)
        self.assertEqual({key: one["algorithm"] for key, one in result["chosen"].items()},
                         {key: algorithm for key, _, algorithm in notes}, outcome)
        for key, one in result["chosen"].items():
            self.assertEqual(one["ranks"], ranks_of[key], outcome)
            self.assertGreater(one["bytes"], 0, outcome)
            self.assertGreater(len(one["seconds"]), 1, outcome)
            self.assertEqual(one["seconds"][one["algorithm"]], min(one["seconds"].values()), outcome)
            self.assertEqual(result["params"][key]["value"], "measured", "the deck's own value")
        return result

    def test_every_strategy_chooses_for_the_collectives_that_it_uses(self):
        cases = {
            "ddp": (2, (), {"comm.allreduce": 2}),
            "FSDP": (2, ZERO3, {"comm.reduce_scatter": 2, "comm.all_gather": 2}),
            "ZeRO with owners": (2, OWNERS, {"comm.reduce": 2, "comm.broadcast": 2}),
            "naive, in 16 bits": (3, ("parallel.strategy=naive", "precision.recipe=mixed16", "batch.global=6"),
                                  {"comm.reduce": 3, "comm.broadcast": 3}),
            "hsdp": (4, ("parallel.strategy=hsdp", "parallel.shard_group=2"),
                     {"comm.allreduce": 2, "comm.reduce_scatter": 2, "comm.all_gather": 2}),
            "hsdp whose replicas add up fresh gradients": (
                4, ("parallel.strategy=hsdp", "parallel.shard_group=2", "parallel.reduce=each"), {"comm.allreduce": 2}),
            "hsdp whose groups lie on one node and on two": (
                6, ("parallel.strategy=hsdp", "parallel.shard_group=2", "comm.emulated_nodes=4", "batch.global=6"),
                {"comm.reduce_scatter": 2, "comm.allreduce": 3}),
            "an emulated network": (2, ("comm.emulated_network.latency=1 us",), {"comm.allreduce": 2}),
            "staged messages": (2, ("comm.buffers=staged",), {"comm.allreduce": 2})}
        futures = {name: start("run", Deck().path, *settings(*changes, *measured(*ranks_of)), ranks=ranks)
                   for name, (ranks, changes, ranks_of) in cases.items()}
        for name, (_, _, ranks_of) in cases.items():
            with self.subTest(name):
                result = self.assert_chosen(futures[name].result(), ranks_of)
                tried = {algorithm for one in result["chosen"].values() for algorithm in one["seconds"]}
                if name == "staged messages":
                    self.assertIn("shared", tried, "what MPI gets says nothing of what neighbours share")
                if name == "an emulated network":
                    self.assertFalse(tried & {"shared", "shared_copy", "shared_push", "hierarchical"}, "they move data in shared memory")
                if name == "hsdp whose groups lie on one node and on two":
                    self.assertNotIn("shared", tried, "one group could run it, another one could not")
                if name == "hsdp whose replicas add up fresh gradients":
                    self.assertNotIn("shared", result["chosen"]["comm.allreduce"]["seconds"], "a deck could not name it")

    def test_the_plan_is_that_of_the_algorithm_that_was_chosen(self):
        deck = Deck()
        result = self.assert_chosen(run("run", deck.path, *settings(*measured("comm.allreduce")), ranks=2),
                                    {"comm.allreduce": 2})
        chosen = result["chosen"]["comm.allreduce"]["algorithm"]
        named = run("run", deck.path, *settings(f"comm.allreduce={chosen}"), ranks=2).result
        self.assertEqual(named["chosen"], {})
        for of in ("predicted", "counted"):
            self.assertEqual(result[of], named[of])
        self.assertEqual(result["samples"]["loss"], named["samples"]["loss"], "the same sums in the same order")

    def test_nothing_is_measured_where_nothing_is_sent(self):
        unused = Deck({"parallel.strategy": '"zero"', "parallel.zero_stage": "1", "comm.all_gather": '"measured"'})
        for outcome in (run("run", Deck().path, *settings(*measured("comm.allreduce"))),
                        run("run", unused.path, *settings("parallel.strategy=ddp", "parallel.zero_stage=0"), ranks=2)):
            self.assert_ended(outcome, 0, "VERIFICATION PASSED (7/7)")
            self.assertEqual(outcome.result["chosen"], {}, outcome)
            self.assertNotIn(" measured with ", outcome.out, outcome)

    def test_ranks_that_would_measure_different_things_are_named(self):
        one_of_them = 'mkdir once 2>/dev/null && export TRAINSTONE_SET=comm.allreduce=measured; exec "$@"'
        running = Started("run", Deck().path, wrapper=("sh", "-c", one_of_them, "_"))
        self.assertEqual(running.ended(), 64, running.text())
        self.assertRegex(running.text(), "rank 1 would measure .*; rank 0: .*TRAINSTONE_SET")
        self.assertIn("nothing", running.text())

    def test_commands_that_run_no_training_take_auto(self):
        deck, found = Deck(), []
        for value in ("measured", "auto"):
            estimate = run("estimate", deck.path, "--ranks", 2, "--json", "estimate.json",
                           *settings(f"comm.allreduce={value}"))
            self.assertEqual(estimate.code, 0, estimate)
            found.append(json.loads((estimate.folder / "estimate.json").read_text())["predicted"])
        self.assertEqual(*found)
        verify = run("verify", *copy_fixture("gpt_even", new_folder()), *settings(*measured("comm.allreduce")), ranks=2)
        self.assert_ended(verify, 0, "VERIFICATION PASSED")
        self.assertNotIn(" measured with ", verify.out, verify)


class MeasuredProducts(TrainingTest):
    """kernels.gemm = "measured": the first run finds who is fastest and keeps it, later ones take it over."""

    NOTE = r"(?m)^note: gemm measured, (\d+) products: ([a-z#\d -]+ \d+(?:, [a-z#\d -]+ \d+)*) \((.*)\)$"

    def setUp(self):
        self.cache = new_folder()
        self.table = self.cache / "trainstone" / "gemm.json"

    def train(self, *changes, ranks=1):
        outcome = run("run", Deck().path, *settings("kernels.gemm=measured", *changes), ranks=ranks,
                      variables={"XDG_CACHE_HOME": str(self.cache)})
        self.assert_ended(outcome, 0, "VERIFICATION PASSED (7/7)")  # so memory and launches are as predicted
        return outcome, re.search(self.NOTE, outcome.out)

    def test_the_table_is_measured_once_kept_and_printed(self):
        outcome, note = self.train(ranks=2)
        self.assertTrue(note, outcome)
        products, counts, state = note.groups()
        self.assertEqual(sum(int(part.split()[-1]) for part in counts.split(", ")), int(products), outcome)
        self.assertEqual(state, f"kept in {self.table}")
        (first,) = json.loads(self.table.read_text()).values()
        self.assertEqual(len(first), int(products))
        again, note = self.train(ranks=2)
        self.assertEqual(note.groups(), (products, counts, f"as kept in {self.table}"), again)
        alone, note = self.train()  # other conditions: measured, and kept beside
        self.assertEqual(note.group(3), f"kept in {self.table}", alone)
        self.assertEqual(len(json.loads(self.table.read_text())), 2)

    def test_what_is_kept_computes_if_it_was_built(self):
        self.train()
        ((key, table),) = json.loads(self.table.read_text()).items()
        built = [provider.split("=")[0] for provider in key.split(", ")[-1].split()]  # some with a version
        for name in (name for name in built if name != "cublaslt-tf32"):
            self.table.write_text(json.dumps({key: dict.fromkeys(table, name)}))
            outcome, note = self.train("bench.kernels=true")
            self.assertEqual(note.group(2), f"{name} {len(table)}", outcome)
            self.assertEqual(len(re.findall(r"(?m)^trainstone::gemm\S* ", outcome.out)), 1, outcome)
        for name in ("no such", "kokkos#1"):  # a variant that the provider does not have
            self.table.write_text(json.dumps({key: dict.fromkeys(table, name)}))
            outcome, note = self.train()
            self.assertEqual(note.group(3), f"kept in {self.table}", "measured anew")
            self.assertNotIn(name, note.group(2))

    def test_another_version_of_a_library_measures_anew(self):
        self.train()
        ((key, table),) = json.loads(self.table.read_text()).items()
        old = re.sub(r"(\w+=)[\w.]+( |$)", r"\g<1>0\2", key)
        if old == key:
            self.skipTest("no provider of this build tells a version")
        self.table.write_text(json.dumps({old: table}))
        outcome, note = self.train()
        self.assertEqual(note.group(3), f"kept in {self.table}", outcome)
        self.assertEqual(set(json.loads(self.table.read_text())), {old, key})

    def test_a_table_that_is_damaged_is_measured_anew(self):
        self.table.parent.mkdir()
        for text in ("", "{", "[]", '{"a": 1}'):
            self.table.write_text(text)
            outcome, note = self.train()
            self.assertEqual(note.group(3), f"kept in {self.table}", outcome)
            self.assertEqual(len(json.loads(self.table.read_text())), 1)

    def test_a_table_that_cannot_be_kept_stops_nothing(self):
        (self.cache / "trainstone").write_text("no folder")
        outcome, note = self.train("precision.recipe=mixed16")
        self.assertIn("kept nowhere: ", note.group(3), outcome)


class TooLarge(unittest.TestCase):
    def test_a_message_that_no_machine_holds_is_not_tried(self):
        deck = Deck({"comm.allreduce": '"measured"', "parallel.granularity": '"step"', "model.channels": "524288"})
        outcome = run("run", deck.path, ranks=2)
        self.assertEqual(outcome.code, 69, outcome)
        self.assertIn("does not fit: comm.allreduce = \"measured\" tries algorithms in ", outcome.err)


class Ordered(RefusalTest):
    def test_ordered_mode_refuses_choices_by_time(self):
        def case(key, *changes):
            value = f"{key}=measured"
            return (start("run", Deck().path, *settings("parallel.reduction=ordered", *changes, value), ranks=2),
                    [f"--set {value}: ", f'{key} = "measured" may choose another algorithm', 'takes "auto" or an algorithm'])

        cases = {"comm.allreduce": (), "comm.reduce_scatter": ZERO3, "comm.all_gather": ZERO3, "comm.reduce": OWNERS,
                 "comm.broadcast": OWNERS}
        self.assertEqual(set(cases), set(KEYS))
        self.check_all((key, *case(key, *changes)) for key, changes in cases.items())
