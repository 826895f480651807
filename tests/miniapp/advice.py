"""What `estimate` says beyond one deck: the largest that fits, rows over numbers of ranks, and the best way on N ranks."""
import json
import re
import shlex
import unittest

from lecture import write_machine
from refusals import RefusalTest
from support import Context, Deck, run, settings, start

USAGE, FAILED, DOES_NOT_FIT = 64, 65, 69
MODEL = {"model.layers": "4", "model.heads": "4", "model.channels": "64", "model.context": "32", "data.steps": "3",
         "batch.global": "8", "data.validation_fraction": None, "data.validate_every": None}


def loaded(outcome, name="a.json"):
    return json.loads((outcome.folder / name).read_text())


class LargestTest(unittest.TestCase):
    def test_the_largest_of_each_fits_exactly_and_the_next_one_does_not(self):
        deck = Deck({**MODEL, "batch.global": None, "batch.accumulation": "2"}).path
        found = run("estimate", deck, "--ranks", 2, "--device-mem", "8 MiB", "--json", "a.json")
        self.assertEqual(found.code, 0, found)
        largest = loaded(found)["largest"]
        self.assertEqual(list(largest), ["batch.micro", "model.layers", "model.channels"])
        for key, one in largest.items():
            with self.subTest(key=key):
                def estimate(memory, *keys):
                    return run("estimate", deck, "--ranks", 2, "--device-mem", f"{memory} B", *settings(*keys))
                self.assertEqual(estimate(8 << 20, *one["set"]).code, 0)
                self.assertEqual(estimate(one["needed_bytes"], *one["set"]).code, 0)
                self.assertEqual(estimate(one["needed_bytes"] - 1, *one["set"]).code, DOES_NOT_FIT)
                beyond = {"batch.micro": [f"batch.micro={one['next']}", f"batch.global={4 * one['next']}"],
                          "model.layers": [f"model.layers={one['next']}"],
                          "model.channels": [f"model.channels={one['next']}", f"model.heads={one['next'] // 16}"]}[key]
                self.assertEqual(estimate(8 << 20, *beyond).code, DOES_NOT_FIT)

    def test_the_largest_micro_batch_runs_in_the_memory_it_was_asked_for_and_one_more_does_not(self):
        """On every deck: in exactly what it needs, and not in a byte less."""
        decks = {"ddp": {},
                 "zero 3 with recomputation": {"parallel.strategy": '"zero"', "parallel.zero_stage": "3",
                                               "memory.recompute": '"full"'},
                 "stages of tensor ranks": {"parallel.tensor": "2", "parallel.pipeline": "2", "batch.accumulation": "3"}}
        for name, keys in decks.items():
            deck, ranks = Deck({**MODEL, "batch.global": None, "batch.accumulation": "1", **keys}).path, 4
            asked = run("estimate", deck, "--ranks", ranks, "--device-mem", "8 MiB", "--json", "a.json")
            one = loaded(asked)["largest"]["batch.micro"]
            samples = loaded(asked)["tokens_per_step"] // 32  # of micro-batches of 1
            def started(memory, micro):
                return start("run", deck, *settings(f"batch.micro={micro}", f"batch.global={micro * samples}"),
                             "--device-mem", f"{memory} B", ranks=ranks)
            largest, exact, tight, beyond = (started(*case) for case in (
                (8 << 20, one["value"]), (one["needed_bytes"], one["value"]), (one["needed_bytes"] - 1, one["value"]),
                (8 << 20, one["next"])))
            with self.subTest(deck=name):
                self.assertEqual(one["next"], one["value"] + 1)
                self.assertGreater(one["value"], 1)
                for ran in (largest.result(), exact.result()):
                    self.assertEqual(ran.code, 0, ran)
                    self.assertRegex(ran.out, "VERIFICATION PASSED .* memory-model ")
                    self.assertEqual(ran.result["counted"]["memory_bytes"]["total"], one["needed_bytes"])
                for refused in (tight.result(), beyond.result()):
                    self.assertEqual(refused.code, DOES_NOT_FIT, refused)
                    self.assertIn("does not fit: 1 rank under --device-mem needs", refused.err)


class SweepTest(unittest.TestCase):
    def test_rows_are_what_estimates_of_these_ranks_say(self):
        deck = Deck({**MODEL, "batch.global": "16", "comm.expected_ranks": "4"}).path
        found = run("estimate", deck, "--sweep", "ranks=2..16", "--json", "a.json")
        self.assertEqual(found.code, 0, found)
        rows = loaded(found)["rows"]
        self.assertEqual([row["ranks"] for row in rows], [2, 4, 8, 16])
        self.assertEqual([row["samples_per_step"] for row in rows], [16, 32, 64, 128])
        self.assertEqual(rows[0]["efficiency"], 1)
        for row in rows:
            alone = run("estimate", deck, "--ranks", row["ranks"], *settings(*row["set"]), "--json", "b.json")
            predicted = loaded(alone, "b.json")
            self.assertEqual(row["needed_bytes"], predicted["needed_bytes"])
            self.assertEqual((row["sent_bytes"], row["messages"]),
                             (predicted["predicted"]["sent_bytes"], predicted["predicted"]["messages"]))
        strong = loaded(run("estimate", deck, "--sweep", "ranks=2..16", "--strong", "--json", "a.json"))["rows"]
        self.assertEqual([row["samples_per_step"] for row in strong], [16] * 4)


    def test_a_report_draws_sweeps(self):
        deck = Deck({**MODEL, "batch.global": "64"}).path
        sweeps = [loaded(run("estimate", deck, "--sweep", "ranks=2..64", *strong, "--json", "a.json"))
                  for strong in ((), ("--strong",))]
        def write(folder):
            for sweep in sweeps:
                (folder / f"{sweep['scaling']}.json").write_text(json.dumps(sweep))
        report = run("report", "weak.json", "strong.json", prepare=write)
        self.assertEqual(report.code, 0, report)
        pages = report.folder / "report"
        self.assertEqual({path.name for path in pages.glob("*.svg")},
                         {"weak-steps.svg", "strong-steps.svg", "sweeps-efficiency.svg"})
        text = (pages / "report.md").read_text()
        self.assertIn("# Trainstone report: 2 predicted sweeps", text)
        for sweep in sweeps:
            for row in sweep["rows"]:
                self.assertRegex(text, rf"\| {row['ranks']} \| .* \| {row['samples_per_step']} \| .* \| {row['efficiency']:.3f} \|")
        damages = {"/scaling": {"scaling": "half"}, "/rows": {"rows": []}, "efficiency": {"rows": [
            {**sweeps[0]["rows"][0]}, {**sweeps[0]["rows"][1], "efficiency": 0.5}]}, "ascend": {"rows": sweeps[0]["rows"][::-1]}}
        for word, damage in damages.items():
            with self.subTest(damage=word):
                refused = run("report", "a.json", prepare=lambda folder: (folder / "a.json").write_text(
                    json.dumps({**sweeps[0], **damage})))
                self.assertEqual(refused.code, USAGE, refused)
                self.assertIn(word, refused.err)

    def test_a_network_that_is_tapered_makes_steps_longer_and_a_full_one_does_not(self):
        deck = Deck({**MODEL, "batch.global": None, "batch.accumulation": "1"}).path
        def sweep(network):
            def write(folder):
                write_machine(folder, curves=("message_intra", "one_way_intra", "message_inter", "one_way_inter", "reduce", "copy",
                                              "combine_to_own", "combine_to_all", "fetch"))
                machine = json.loads((folder / "peaks.json").read_text())
                machine["peaks"] = {"gemm_flops_per_second": 1e12, "bandwidth_bytes_per_second": 1e11}
                machine["overlap"]["inter"] = 1
                machine["node_barrier_seconds"] = 0
                machine |= {"network": network} if network else {}
                (folder / "peaks.json").write_text(json.dumps(machine))
            return run("estimate", deck, "--sweep", "ranks=4..16", "--nodes", 4, "--machine", "peaks.json", "--json", "a.json",
                       "--set", "comm.allreduce=rabenseifner", prepare=write)
        def tree(taper):  # a node sends at 5 GB/s
            return {"shape": "fat_tree", "node_bytes_per_second": 5e9, "levels": [{"nodes": 4, "taper": taper}]}
        def steps(network):
            outcome = sweep(network)
            self.assertEqual(outcome.code, 0, outcome)
            return [row["step_seconds"] for row in loaded(outcome)["rows"]], outcome.out
        (free, _), (full, out), (tapered, _) = steps(None), steps(tree(1)), steps(tree(4))
        self.assertEqual(full, free)
        self.assertIn("fat tree of nodes of 5 GB/s, pods of 4 (taper 1)", out)
        self.assertEqual(tapered[0], free[0])  # one pod
        self.assertGreater(tapered[1], free[1])
        self.assertGreater(tapered[2], free[2])
        for words, network in ((["torus 2 x 2", "4 nodes, there are 8"],
                                {"shape": "torus", "dimensions": [2, 2], "link_bytes_per_second": 5e9}),
                               (["/network/shape", "fat_tree, dragonfly or torus"], {"shape": "ring"}),
                               (["/network/levels/0/taper", "at least 1"], tree(0.5))):
            refused = sweep(network)
            self.assertEqual(refused.code, USAGE, refused)
            for word in words:
                self.assertIn(word, refused.err)


class AdviceTest(unittest.TestCase):
    def test_every_way_of_the_list_is_accepted_and_needs_what_is_said(self):
        deck = Deck({**MODEL, "comm.expected_ranks": "2"}).path
        found = run("estimate", deck, "--advise", "--ranks", 8, "--nodes", 2, "--top", 20, "--device-mem", "3 MB", "--json", "a.json")
        self.assertEqual(found.code, 0, found)
        advice = loaded(found)
        played = [way for way in advice["ranked"] if way["played"]]
        self.assertEqual(played, advice["ranked"][:len(played)])
        times = [way["step_seconds"] for way in played]
        self.assertEqual(times, sorted(times))
        self.assertGreater(len({(way["tensor"], way["pipeline"]) for way in played}), 4, found)
        for way, estimate in [(way, start("estimate", deck, "--ranks", 8, "--nodes", 2, *settings(*way["set"]),
                                          "--json", "b.json")) for way in played]:
            self.assertEqual(estimate.result().code, 0, estimate.result())
            self.assertEqual(loaded(estimate.result(), "b.json")["needed_bytes"], way["needed_bytes"])
            self.assertLessEqual(way["needed_bytes"], 3_000_000)
        fastest = shlex.split(re.search(r"(?m)^the fastest: (.*)$", found.out)[1])
        self.assertEqual(fastest, [word for key in played[0]["set"] for word in ("--set", key)])

    def test_the_rule_asks_its_questions_and_answers_with_keys_that_fit(self):
        deck = Deck(MODEL).path
        for memory, answer in (("10 MB", "data"), ("1200 kB", "pipeline"), ("300 kB", "tensor")):
            with self.subTest(answer=answer):
                found = run("estimate", deck, "--advise", "--ranks", 8, "--device-mem", memory, "--json", "a.json")
                rule = loaded(found)["rule"]
                self.assertEqual(rule["answer"], answer, found)
                self.assertIn("1. Can one rank hold the largest single operation?", found.out)
                self.assertIn("2. Can one rank hold the whole model?", found.out)
                if "way" in rule:
                    fits = run("estimate", deck, "--ranks", rule["way"]["ranks"], "--device-mem", memory,
                               *settings(*rule["way"]["set"]))
                    self.assertEqual(fits.code, 0, fits)
                else:
                    self.assertIn("no combination of tensor ranks and stages fits", found.out)

    def test_where_nothing_fits_it_says_from_how_many_ranks_on_something_does(self):
        deck = Deck(MODEL).path
        found = run("estimate", deck, "--advise", "--ranks", 1, "--device-mem", "1300 kB", "--json", "a.json")
        self.assertEqual(found.code, DOES_NOT_FIT, found)
        needed = int(re.search(r"NOTHING FITS on 1 rank; something fits from (\d+) ranks on", found.out)[1])
        self.assertEqual(loaded(found)["ranks_needed"], needed)
        self.assertEqual(run("estimate", deck, "--advise", "--ranks", needed, "--device-mem", "1300 kB").code, 0)
        never = run("estimate", deck, "--advise", "--ranks", 1, "--device-mem", "1 kB")
        self.assertEqual(never.code, DOES_NOT_FIT, never)
        self.assertIn("NOTHING FITS on 1 rank, nor on more", never.out)

    def test_a_check_runs_ways_and_compares_their_order(self):
        paced = settings("faults.pace.forward=10 ms", "faults.pace.backward=20 ms", "data.steps=4")
        deck = Deck({**MODEL, "data.validation_fraction": None}).path
        found = run("estimate", deck, *paced, "--advise", "--ranks", 4, "--check", 4, "--launcher", Context.mpiexec,
                    "--json", "a.json")
        check = loaded(found)["check"]
        self.assertEqual(len(check["ways"]), 4)
        self.assertEqual(found.code, 0 if check["tau"] >= 0.7 else FAILED, found)
        self.assertGreater(check["ways"][-1]["measured_seconds"], check["ways"][0]["measured_seconds"], found)
        self.assertRegex(found.out, r"Kendall's tau \S+ of 4 ways, .* worst residual \S+ %: tensor ")
        self.assertEqual(found.left, ["a.json"])

    def test_a_run_that_cannot_be_started_is_named(self):
        found = run("estimate", Deck(MODEL).path, "--advise", "--ranks", 2, "--check", 2, "--launcher", "no-such-launcher")
        self.assertEqual(found.code, USAGE, found)
        self.assertIn("--launcher no-such-launcher", found.err)


class Peaks(unittest.TestCase):
    def test_the_kernels_of_a_worker_are_listed_also_where_a_server_sends_most(self):
        deck = Deck(MODEL).path
        peaks = ("--peaks", 790, 4260)
        launches, flops = {}, {}
        for name, options in {"ddp": ("--ranks", 2),
                              "a server": ("--ranks", 3, *settings("parallel.strategy=parameter_server", "server.count=1"))}.items():
            found = run("estimate", deck, *options, *peaks, "--json", "a.json")
            self.assertEqual(found.code, 0, found)
            flops[name] = json.loads((found.folder / "a.json").read_text())["predicted"]["flops"]
            launches[name] = dict(re.findall(r"^  (\w+ (?:forward|backward|gradient|weight gradient|input gradient)) +(\d+) ",
                                             found.out, re.MULTILINE))
        self.assertEqual(launches["ddp"]["qkv forward"], str(4 * 8 // 2 // int(self.micro(deck))))
        self.assertEqual(launches["a server"], launches["ddp"], "two workers have the same share of the batch")
        self.assertGreater(flops["ddp"], 0)
        self.assertEqual(flops["a server"], flops["ddp"])

    def micro(self, deck):
        return re.search(r"micro-batch (\d+) x", run("estimate", deck, "--ranks", 2).out)[1]


class Refusals(RefusalTest):
    def test_wrong_options_are_refused(self):
        deck = Deck(MODEL).path
        cases = {
            "advice without ranks": (start("estimate", deck, "--advise"), ["--advise", "--ranks"]),
            "more nodes than ranks": (start("estimate", deck, "--advise", "--ranks", 2, "--nodes", 3), ["--nodes 3", "1 to 2"]),
            "check without advice": (start("estimate", deck, "--check", 3), ["--check", "--advise"]),
            "check of one": (start("estimate", deck, "--advise", "--ranks", 2, "--check", 1), ["--check"]),
            "no ways": (start("estimate", deck, "--advise", "--ranks", 2, "--top", 0), ["--top 0", "at least 1"]),
            "a batch for no mesh": (start("estimate", deck, *settings("batch.micro=3", "batch.global=8"), "--advise",
                                          "--ranks", 4), ["batch.global = 8"]),
            "sweep of something else": (start("estimate", deck, "--sweep", "nodes=1..4"), ["ranks=FIRST..LAST"]),
            "sweep backwards": (start("estimate", deck, "--sweep", "ranks=8..4"), ["ranks=8..4", "ranks=FIRST..LAST"]),
            "sweep and ranks": (start("estimate", deck, "--sweep", "ranks=1..4", "--ranks", 2), ["--ranks"]),
            "sweep and advice": (start("estimate", deck, "--sweep", "ranks=1..4", "--advise"), ["--advise", "--sweep"]),
            "one peak": (start("estimate", deck, "--peaks", 790), ["--peaks", "2"]),
            "a peak of nothing": (start("estimate", deck, "--peaks", 790, 0), ["--peaks: 0 is no rate", "--peaks 790 4260"]),
            "peaks and sweep": (start("estimate", deck, "--sweep", "ranks=1..4", "--peaks", 790, 4260), ["--peaks", "--sweep"]),
            "strong without sweep": (start("estimate", deck, "--strong"), ["--strong", "--sweep"]),
        }
        self.check_all((claim, *case) for claim, case in cases.items())
