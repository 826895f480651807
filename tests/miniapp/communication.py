"""How communication shows in a run: emulated nodes and networks, staged messages, overlap, and traces of every rank."""
import json
import pathlib
import re
import subprocess
import sys

from support import PATIENCE, Context, Deck, environment, run, settings, start
from training import TrainingTest


class Emulation(TrainingTest):
    """Two ranks on two emulated nodes, behind a network whose messages take 3 ms."""

    LATENCY = 3e-3

    @classmethod
    def setUpClass(cls):
        deck = Deck({"data.validation_fraction": None, "data.validate_every": None})
        nodes = settings("comm.emulated_nodes=2")
        futures = [start("run", deck.path, *nodes, ranks=2),
                   start("run", deck.path, *nodes, *settings("comm.emulated_network.latency=3 ms",
                                                             "comm.emulated_network.bandwidth=1 GB/s"), ranks=2),
                   start("run", deck.path, *nodes, *settings("comm.allreduce=hierarchical"), ranks=2),
                   start("estimate", deck.path, *nodes, *settings("comm.allreduce=hierarchical"), "--ranks", "2"),
                   start("run", deck.path, *nodes, *settings("parallel.tensor=2"), ranks=2),
                   start("run", deck.path, *nodes, *settings("parallel.tensor=2"), ranks=4)]
        (cls.fast, cls.slow, cls.hierarchical, cls.estimate, cls.apart,
         cls.together) = (future.result() for future in futures)

    def test_results_and_counts_are_those_of_the_machines_own_network(self):
        self.assert_ended(self.fast, 0, "| 2 ranks on 2 emulated nodes | deck ")
        self.assert_ended(self.slow, 0, "| 2 ranks on 2 emulated nodes | emulated network | deck ",
                          "\nnote: the network is emulated: a rank sends and receives one message after the other, messages take 3 ms "
                          "and their bytes at 1 GB/s\n")
        self.assertNotIn("the network is emulated", self.fast.out)
        self.assertIn("\nFOM_UNREFERENCED: ", self.fast.out)  # emulated nodes change no time
        self.assertEqual(self.slow.losses, self.fast.losses)
        self.assertEqual(self.slow.result["counted"], self.fast.result["counted"])

    def test_a_rate_on_an_emulated_network_is_no_figure_of_merit(self):
        self.assert_ended(self.slow, 0, "VERIFICATION PASSED", "\nFOM_EMULATED: ",
                          "\nRESULT: EMULATED class=custom exit=0 json=out/result.json\n")
        self.assertNotRegex(self.slow.out, "FOM:|FOM_PER_RANK|VALID|UNREFERENCED")
        result = self.slow.result
        self.assertEqual((result["status"], result["fom"], result["unverified_rate"]), ("EMULATED", None, None))
        self.assertGreater(result["emulated_rate"]["value"], 0)

    def test_a_step_takes_as_long_as_its_messages_at_least(self):
        least = self.slow.result["predicted"]["messages"] * self.LATENCY
        self.assertGreater(least, 0)
        for seconds in self.slow.result["samples"]["seconds"]:
            self.assertGreater(seconds, least, self.slow)

    def test_the_result_file_says_what_is_emulated(self):
        link = {"latency_seconds": 3e-3, "seconds_per_byte": 1e-9}
        for outcome, network in ((self.fast, None), (self.slow, {**link, "inside": link, "node_port": False})):
            topology = outcome.result["topology"]
            self.assertEqual((topology["nodes"], topology["emulated_nodes"]), (2, True))
            self.assertEqual(topology["emulated_network"], network)
        parameter = self.slow.result["params"]["comm.emulated_network.bandwidth"]
        self.assertEqual(parameter, {"value": 1e9, "unit": "bytes/s", "origin": "command line"})

    def test_tensor_ranks_are_neighbours_and_say_whether_they_share_a_node(self):
        self.assert_ended(self.apart, 0, "\ntensor ranks are neighbours: 1 group of 2; note: all span nodes, and what they "
                                         "bring together crosses the network\n")
        self.assert_ended(self.together, 0, "\ntensor ranks are neighbours: 2 groups of 2, each on one node\n")

    def test_an_estimate_knows_emulated_nodes(self):
        predicted = self.hierarchical.result["predicted"]
        sent = [int(line.split(" bytes in ")[0].split()[-1]) for line in self.estimate.out.splitlines()
                if " bytes in " in line]
        self.assertGreater(sent[0], 0)  # gradients, which go through shared memory on one node
        self.assertEqual(sum(sent), predicted["sent_bytes"], self.estimate)


class Clock(TrainingTest):
    """ZeRO-1 gathers the updated parameters after a step: a half of its bytes. The clock charges them to that step, if
    something waits for them there. Else they go on in the next step. The emulated network takes many times as long as all
    else, and a busy machine only adds to it."""

    BANDWIDTH = 5e6
    STEPS = 11

    def start(self, *keys):
        deck = Deck({"data.steps": str(self.STEPS), "data.validate_every": None, "model.channels": "96",
                     "parallel.strategy": '"zero"', "parallel.zero_stage": "1"})
        slow = f"comm.emulated_network.bandwidth={self.BANDWIDTH / 1e6} MB/s"
        return start("run", deck.path, *settings(slow, *keys), ranks=2)

    def in_networks(self, started):
        """The time of every step, in units of what its messages take."""
        result = self.assert_ended(started.result(), 0).result
        network = result["predicted"]["sent_bytes"] / self.BANDWIDTH
        self.assertGreater(network, 0.05)
        samples = result["samples"]["seconds"]
        self.assertEqual(len(samples), self.STEPS)
        return [seconds / network for seconds in samples]

    def test_a_step_is_charged_for_its_gathers_whatever_follows_it(self):
        followed_by = {"a validation": self.start("data.validate_every=1"),
                       "a comparison": self.start("parallel.check_replicas=1"),
                       "a checkpoint": self.start("checkpoint.dir=kept", "checkpoint.every_steps=1")}
        for name, started in followed_by.items():
            with self.subTest(name):
                self.assertGreater(min(samples := self.in_networks(started)), 0.9, samples)

    def test_gathers_that_no_step_follows_are_charged_to_the_last_one(self):
        """The changes of parameters, which are measured after the tenth step, wait for its gathers. So the tenth step has
        its own gathers and those of the ninth, and the last one has its own."""
        samples = self.in_networks(self.start("data.validation_fraction=0"))
        self.assertGreater(samples[9], 1.25, samples)
        self.assertGreater(samples[10], 0.9, samples)
        self.assertGreater(sum(samples), 0.95 * self.STEPS, samples)


class Buffers(TrainingTest):
    def test_staged_messages_change_neither_losses_nor_counts(self):
        deck = Deck({"parallel.strategy": '"zero"', "parallel.zero_stage": "3"})
        futures = [start("run", deck.path, *settings(f"comm.buffers={buffers}"), ranks=2)
                   for buffers in ("host", "staged")]
        host, staged = (self.assert_ended(future.result(), 0, "VERIFICATION PASSED (7/7)") for future in futures)
        self.assertIn(" | buffers staged | ", staged.out, staged)
        self.assertEqual(staged.result["topology"]["buffers"], "staged", staged)
        self.assertEqual(staged.losses, host.losses, staged)
        for kind in ("messages", "sent_bytes"):
            self.assertEqual(staged.result["counted"][kind], host.result["counted"][kind], kind)
        buffers = [outcome.result["counted"]["memory_bytes"]["buffers"] for outcome in (host, staged)]
        self.assertLess(*buffers, staged)


class Overlap(TrainingTest):
    def test_the_overlap_of_a_deck_is_measured_and_can_be_demanded(self):
        deck = Deck({"data.validation_fraction": None, "data.validate_every": None})
        script = pathlib.Path(__file__).resolve().parents[2] / "perf" / "kernels" / "overlap"
        command = [sys.executable, script, "--repeat", "1", "--mpiexec", Context.mpiexec, Context.program, deck.path,
                   "--set", "comm.emulated_network.latency=200 us"]
        for least, code in ((-1000, 0), (2, 1)):  # nothing hides twice what there is
            ended = subprocess.run([*map(str, command), "--least", str(least)], capture_output=True, text=True,
                                   env=environment(), check=False, timeout=PATIENCE)
            self.assertEqual(ended.returncode, code, ended)
            self.assertRegex(ended.stdout, r"(?m)^exposed without overlap [0-9.]+ ms, with [0-9.]+ ms: overlap hides -?\d+ %$")
            self.assertEqual(len(re.findall(r"(?m)^overlap (?:true |false)  exposed +[0-9.]+ ms", ended.stdout)), 4)


class Traces(TrainingTest):
    def test_a_trace_has_the_parts_collectives_and_waits_of_every_rank(self):
        deck = Deck({"data.validation_fraction": None, "data.validate_every": None})
        traced = self.assert_ended(run("run", deck.path, *settings("trace.file=traces/trace.json"), ranks=2), 0,
                                   "\ntrace written to traces/trace.json\n")
        events = json.loads((traced.folder / "traces" / "trace.json").read_text())
        for rank in (0, 1):
            mine = [event for event in events if event["pid"] == rank]
            begun = {event["id"]: event["ts"] for event in mine if event["ph"] == "b"}
            ended = {event["id"]: event["ts"] for event in mine if event["ph"] == "e"}
            self.assertEqual(begun.keys(), ended.keys())
            self.assertGreaterEqual(len(begun), 2 * 12)  # gradients and the loss of twelve steps
            self.assertTrue(all(ended[one] >= begun[one] for one in begun))
            for lane in ("compute", "wait"):
                self.assert_nested([event for event in mine if event["ph"] == "X" and event["cat"] == lane])
            names = [event["name"] for event in mine]
            for part in ("embed", "attention 0", "mlp 0", "head"):
                for way in ("forward", "backward"):
                    self.assertEqual(names.count(f"trainstone::model::{way} {part}"), 12 * (4 // 2), part)
            self.assertTrue(any(event["cat"] == "wait" and "all_reduce" in event["name"] for event in mine
                                if event["ph"] == "X"))

    def test_by_priority_a_forward_begins_while_gradients_of_other_blocks_are_on_their_way(self):
        deck = Deck({"data.validation_fraction": None, "data.validate_every": None, "model.layers": 4, "data.steps": 3, "batch.global": 1})
        slow = ("parallel.strategy=parameter_server", "optimizer.clip=0", "comm.emulated_network.latency=1ms",
                "comm.emulated_network.bandwidth=200kB/s", "trace.file=trace.json")
        under_way = {}
        for schedule in ("fifo", "priority"):
            slices = ("server.slice=4kB",) if schedule == "priority" else ()
            traced = self.assert_ended(run("run", deck.path, *settings(*slow, f"server.schedule={schedule}", *slices), ranks=2), 0)
            mine = [event for event in json.loads((traced.folder / "trace.json").read_text()) if event["pid"] == 0]
            begins = [event["ts"] for event in mine if event["name"] == "trainstone::model::forward embed"]
            ends = {event["id"]: event["ts"] for event in mine if event["ph"] == "e"}
            for kind in ("server_push", "server_pull"):
                spans = [(event["ts"], ends[event["id"]]) for event in mine if event["ph"] == "b" and kind in event["name"]]
                under_way[schedule, kind] = any(begin < one < end for one in begins for begin, end in spans)
        self.assertEqual(under_way, {("fifo", "server_push"): False, ("fifo", "server_pull"): True,
                                     ("priority", "server_push"): True, ("priority", "server_pull"): True})

    def assert_nested(self, events):
        """Two events of a lane are apart, or one is inside of the other."""
        around = []
        for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
            begin, end = event["ts"], event["ts"] + event["dur"]
            while around and around[-1] <= begin + 1e-6:
                around.pop()
            self.assertLessEqual(end, (around or [end])[-1] + 1e-3, event)
            around.append(end)
