"""What `trainstone explain` prints and draws, and what it refuses."""
import json
import unittest
import xml.etree.ElementTree

from refusals import RefusalTest
from support import run, start

SVG = "{http://www.w3.org/2000/svg}"


def check_words(test, cases, *subject):
    """Runs explain with each case's arguments behind the subject, and looks for the case's words in what it prints."""
    futures = {arguments: start("explain", *subject, *arguments) for arguments in cases}
    for arguments, words in cases.items():
        with test.subTest(arguments=arguments):
            outcome = futures[arguments].result()
            test.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
            for word in words:
                test.assertIn(word, outcome.out)


class Explain(unittest.TestCase):
    def test_the_ring_ends_with_everything_everywhere(self):
        outcome = run("explain", "all_reduce", "ring", "--ranks", 4)
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
        self.assertIn("all_reduce ring on 4 ranks, 1 node, 8 elements", outcome.out)
        tables = outcome.out.split("after round ")
        self.assertEqual(len(tables), 1 + 6)
        last = [line.split() for line in tables[-1].splitlines() if line.startswith("  rank ")]
        self.assertEqual([[word.rstrip("*") for word in line[2:]] for line in last], [["all"] * 4] * 4)
        self.assertIn("busiest rank: 6 messages, 12 elements sent, 6 added", outcome.out)

    def test_every_flag_is_taken(self):
        cases = {
            ("reduce", "binomial", "--ranks", 5, "--root", 3, "--elements", 7): ["7 elements", "rank 3 ends with"],
            ("server_push", "direct", "--ranks", 5, "--servers", 2): ["rank 4, server 1", "block 1"],
            ("all_reduce", "hierarchical", "--ranks", 6, "--nodes", 2, "--shared"): ["rank 5, node 1", "node barrier"],
            ("all_reduce", "shared", "--ranks", 2, "--shared"): ["combine of data"],
            ("all_reduce", "segmented_ring", "--ranks", 2, "--elements", 8, "--segment", 1): ["8 messages"],
            ("barrier", "dissemination", "--ranks", 3): ["has heard of"],
            ("send_receive", "direct", "--ranks", 3, "--elements", 6): [
                "that of rank (r + 1) mod 3", "received", "rank 1 -> rank 0: data [0, 3) to data [3, 6)"],
            ("send", "direct", "--ranks", 3, "--root", 1): ["Rank 1 holds data; rank 0 ends with it.", "rank 1 -> rank 0"],
            ("copy", "direct", "--ranks", 2): ["copies its first half", "rank 1: copy"],
            ("signal_wait", "direct", "--ranks", 3): ["does not end before", "has heard of", "rank 0 -> rank 2\n"],
            ("signal_wait", "shared", "--ranks", 2, "--shared"): ["ranks 0, 1: node barrier"],
            ("all_to_all", "pairwise", "--ranks", 1): ["0>0"],
        }
        check_words(self, cases)

    def test_the_picture_is_a_whole_svg_file(self):
        outcome = run("explain", "all_reduce", "tree", "--ranks", 3, "--svg", "tree.svg")
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", ["tree.svg"]), outcome)
        root = xml.etree.ElementTree.parse(outcome.folder / "tree.svg").getroot()
        self.assertEqual(root.tag, SVG + "svg")
        self.assertEqual(sum(path.get("class") == "arrow" for path in root.iter(SVG + "path")), 4)
        texts = [text.text for text in root.iter(SVG + "text")]
        self.assertIn("after round 4", texts)
        self.assertEqual([text for text in root.iter() if "href" in str(text.attrib)], [], "nothing from elsewhere")


class ExplainPipelines(unittest.TestCase):
    def test_the_cells_of_lectures_are_counted(self):
        futures = {m: start("explain", "pipeline", "gpipe", "--stages", 3, "--micro-batches", m, "--backward", 1)
                   for m in (1, 2, 3)}
        for micro_batches, cells in {1: 9, 2: 12, 3: 15}.items():
            with self.subTest(micro_batches=micro_batches):
                outcome = futures[micro_batches].result()
                self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
                for direction in ("forward", "backward"):
                    self.assertIn(f"  {direction}: 6 of {cells} cells of a micro-batch", outcome.out)
                self.assertEqual(outcome.out.count("wait "), 12 - sum(line.endswith("wait") for line in outcome.out.splitlines()))

    def test_every_flag_is_taken(self):
        cases = {
            ("1f1b",): ["on 4 stages, 8 micro-batches: forward 1, backward 2", "waiting: 36 of 132 cells (27.3 %)", "gap 0 %"],
            ("interleaved", "--chunks", 2, "--message", "0.01"): ["time 28.64; no order takes less than 28.5", "hides 0.14"],
            ("zb-h1",): ["forward 1, backward 1, weights 1", "time 27;"],
            ("naive", "--stages", 2, "--micro-batches", 1, "--head", 2.5): ["head 2.5", "time 8.5;"],
            ("1f1b", "--forward", "1,2,1,1", "--micro-batches", 6, "--search", "--slots", 3):
                ["search on 4 stages", "at most 3 slots takes 33", "1f1b takes 31 with 4 slots"],
            ("gpipe", "--stages", "2:4", "--micro-batches", "4:5"): ["not hidden", "4       5 "],
        }
        check_words(self, cases, "pipeline")

    def test_the_picture_and_json_hold_every_operation(self):
        outcome = run("explain", "pipeline", "1f1b", "--stages", 3, "--micro-batches", 4, "--json", "--svg", "pipe.svg")
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", ["pipe.svg"]), outcome)
        root = xml.etree.ElementTree.parse(outcome.folder / "pipe.svg").getroot()
        self.assertEqual(sum(bar.get("class") == "forward" for bar in root.iter(SVG + "rect")), 3 * 4 + 1)  # and the key
        explained = json.loads(outcome.out)
        acts = [one["act"] for program in explained["programs"] for one in program["instructions"]]
        self.assertEqual([acts.count(act) for act in ("forward", "backward", "send", "receive")], [12, 12, 16, 16])


class ExplainStrategies(unittest.TestCase):
    def test_every_strategy_is_walked_through_to_its_sum(self):
        cases = {
            ("naive",): "= 4 (N-1)/N Psi",  # of rank 0, which sends its sum to N-1 ranks
            ("ddp",): "= 2 (N-1)/N Psi",
            ("zero1",): "= 2 (N-1)/N Psi",
            ("zero2",): "= 2 (N-1)/N Psi",
            ("zero3",): "= 3 (N-1)/N Psi",
            ("fsdp", "--prefetch", 0): "= 3 (N-1)/N Psi",
            ("fsdp", "--layers", 5, "--unit", 2): "all_gather ring of parameters of blocks 2 to 3",
            ("hsdp", "--shard-group", 2, "--nodes", 2): "= 2 (R-1)/R Psi/F",
            ("parameter_server", "--servers", 2): "= W/K Psi",
            ("zero3", "--partition", "inter_layer", "--layers", 3): "broadcast binomial of parameters of block 0 from rank 1",
            ("zero1", "--gradient-reduction", "all_reduce"): "= 3 (N-1)/N Psi",
            ("zero2", "--recipe", "mixed20"): "optimizer state 16 x 1280 (fp32: master copy, 2 moments, copy of the gradients)",
            ("ddp", "--granularity", "tensor"): "all_reduce ring of gradient of block 1 fcprojb",
            ("ddp", "--granularity", "step", "--layers", 16): "with 16 blocks",
        }
        futures = {arguments: start("explain", *arguments, "--ranks", 4) for arguments in cases}
        for arguments, words in cases.items():
            with self.subTest(arguments=arguments):
                outcome = futures[arguments].result()
                self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
                self.assertRegex(outcome.out, rf"\A{arguments[0]}(, .+)? on 4 ranks")
                self.assertIn("\nforward embed\n", outcome.out)
                self.assertIn("\nupdate\n", outcome.out)
                self.assertIn(words, outcome.out)

    def test_servers_schedule_shows_both_orders_of_three_layers(self):
        outcome = run("explain", "parameter_server", "--schedule", "priority")
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        for words in ("compute 332211.....123   ends at 14", "link    ..333222111...",
                      "compute 332211...123   ends at 12", "link    ..332211123."):
            self.assertIn(words, outcome.out)

    def test_tensor_ranks_bring_together_what_they_have_of_sums(self):
        cases = {
            (): ["4 tensor ranks share every layer", "6 sums = 4 L + 2 for L = 1 block"],
            ("--ranks", 1): ["1 tensor rank has all of every layer", "nothing is brought together"],
            ("--ranks", 64): ["64 tensor ranks", "rank 63  [504, 512)"],
            ("--sequence",): ["Outside of them a rank has 2 rows.", "10 per block", "together: rows, 64 values"],
            ("--sequence", "--ranks", 3): ["Outside of them a rank has 3 rows."],
            ("--sequence", "--ranks", 1): ["nothing is brought together"],
        }
        check_words(self, cases, "tensor")

    def test_the_picture_of_a_strategy_is_a_whole_svg_file(self):
        outcome = run("explain", "zero3", "--ranks", 3, "--svg", "zero3.svg")
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", ["zero3.svg"]), outcome)
        root = xml.etree.ElementTree.parse(outcome.folder / "zero3.svg").getroot()
        self.assertEqual(root.tag, SVG + "svg")
        self.assertIn("backward head", [text.text for text in root.iter(SVG + "text")])

    def test_tables_of_many_blocks_are_folded(self):
        outcome = run("explain", "zero1", "--layers", 16)
        self.assertEqual(outcome.code, 0, outcome)
        rows = [line for line in outcome.out.splitlines() if ":" not in line]
        self.assertLessEqual(max(map(len, rows)), 132)
        heads = [line.split() for line in outcome.out.splitlines() if line.endswith("block 15")]
        self.assertGreater(len(heads), 10)
        self.assertNotIn("root", {word for head in heads for word in head})  # which is in the first piece

    def test_the_only_algorithm_of_a_collective_need_not_be_named(self):
        futures = {subject: [start("explain", subject, *named) for named in ([], [only])]
                   for subject, only in (("send", "direct"), ("all_to_all", "pairwise"), ("barrier", "dissemination"))}
        for subject, (short, long) in futures.items():
            self.assertEqual(short.result().code, 0, short.result())
            self.assertEqual(short.result().out, long.result().out, subject)


class Refusals(RefusalTest):
    def test_what_is_no_collective_to_explain_is_refused(self):
        ring = ("explain", "all_reduce", "ring")
        cases = {
            "a timeline without a machine": (start("explain", "ddp", "--deck", "deck.toml"), ["--deck", "--machine"]),
            "a collective of a deck": (start(*ring, "--deck", "deck.toml"), ["--deck", "leave it out"]),
            "nothing": (start("explain"), ["SUBJECT"]),
            "a collective without algorithm": (start("explain", "all_reduce"), ["all_reduce needs an ALGORITHM", "ring"]),
            "an algorithm of a strategy": (start("explain", "zero3", "ring"), ["ALGORITHM", "zero3 has none"]),
            "elements of a strategy": (start("explain", "ddp", "--elements", 8), ["--elements", "ddp has none"]),
            "an algorithm of tensor ranks": (start("explain", "tensor", "ring"), ["ALGORITHM", "tensor has none"]),
            "a picture of tensor ranks": (start("explain", "tensor", "--svg", "t.svg"), ["--svg", "tensor has none"]),
            "positions of a strategy": (start("explain", "ddp", "--sequence"), ["--sequence", "ddp has none"]),
            "positions of stages": (start("explain", "pipeline", "1f1b", "--sequence"), ["--sequence", "pipeline has none"]),
            "stages of tensor ranks": (start("explain", "tensor", "--stages", 2), ["--stages", "tensor has none"]),
            "too many tensor ranks": (start("explain", "tensor", "--ranks", 65), ["--ranks", "1 to 64"]),
            "a shard group of zero3": (start("explain", "zero3", "--shard-group", 2), ["--shard-group", "has none"]),
            "units of ddp": (start("explain", "ddp", "--unit", 2), ["--unit", "ddp has none"]),
            "more blocks than there are": (start("explain", "fsdp", "--unit", 3), ["--unit", "1 to 2"]),
            "a shard group of a collective": (start(*ring, "--shard-group", 2), ["--shard-group", "has none"]),
            "owners of ddp": (start("explain", "ddp", "--partition", "inter_layer"), ["parallel.partition", 'belongs to parallel.strategy = "zero"']),
            "unknown partition": (start("explain", "zero3", "--partition", "layers"), ["--partition", "intra_layer"]),
            "rungs of zero": (start("explain", "zero1", "--granularity", "step"), ["parallel.granularity", 'belongs to parallel.strategy = "ddp"']),
            "all-reduces of stage 3": (start("explain", "zero3", "--gradient-reduction", "all_reduce"), ["gradient_reduction"]),
            "unknown recipe": (start("explain", "ddp", "--recipe", "fp8"), ["--recipe fp8", "mixed20"]),
            "too many layers": (start("explain", "ddp", "--layers", 65), ["--layers", "1 to 64"]),
            "rungs of naive": (start("explain", "naive", "--granularity", "step"), ["--granularity", "naive has none"]),
            "types of a collective": (start(*ring, "--recipe", "mixed16"), ["--recipe", "leave it out"]),
            "no shard group": (start("explain", "hsdp"), ["--shard-group", "divisor of 4"]),
            "a shard group that divides nothing": (start("explain", "hsdp", "--shard-group", 3), ["divide", "2 or 4"]),
            "unknown schedule": (start("explain", "pipeline", "2f1b"), ['"2f1b"', "naive, gpipe, 1f1b"]),
            "ranks of a pipeline": (start("explain", "pipeline", "1f1b", "--ranks", 4), ["--ranks", "pipeline has none"]),
            "stages of a strategy": (start("explain", "ddp", "--stages", 4), ["--stages", "ddp has none"]),
            "micro-batches that stages do not divide": (start("explain", "pipeline", "interleaved", "--micro-batches", 10),
                                                        ["no multiple of 4", "8 and 12"]),
            "chunks of 1f1b": (start("explain", "pipeline", "1f1b", "--chunks", 2), ["1 chunk per stage, not 2"]),
            "a time that is none": (start("explain", "pipeline", "1f1b", "--forward", "x"), ["--forward x", "like 2.5"]),
            "times of too few stages": (start("explain", "pipeline", "1f1b", "--forward", "1,2"), ["1, or 4"]),
            "slots without a search": (start("explain", "pipeline", "1f1b", "--slots", 2), ["--slots", "add --search"]),
            "a search of chunks": (start("explain", "pipeline", "interleaved", "--search"), ["--search", "1 chunk per stage"]),
            "pictures of many pipelines": (start("explain", "pipeline", "1f1b", "--stages", "2:3", "--svg", "p.svg"),
                                           ["--svg", "one pipeline"]),
            "unknown collective": (start("explain", "allreduce", "ring"), ['"allreduce"', "all_reduce, reduce_scatter", "zero3"]),
            "unknown algorithm": (start("explain", "all_reduce", "rings"), ['"rings"', "ring", "butterfly"]),
            "no ranks": (start(*ring, "--ranks", 0), ["--ranks", "1 to 64"]),
            "too many ranks": (start(*ring, "--ranks", 65), ["--ranks", "1 to 64"]),
            "ranks of another kind": (start(*ring, "--ranks", "four"), ["--ranks", "four"]),
            "more nodes than ranks": (start(*ring, "--ranks", 2, "--nodes", 3), ["--nodes", "1 to 2"]),
            "a root where there is none": (start(*ring, "--root", 1), ["--root", "all_reduce has none"]),
            "a root that is no rank": (start("explain", "gather", "linear", "--root", 4), ["--root", "0 to 3"]),
            "servers alone": (start("explain", "server_push", "direct", "--ranks", 2, "--servers", 2),
                              ["--servers", "1 to 1"]),
            "a schedule of no servers": (start("explain", "ddp", "--schedule", "fifo"), ["--schedule", "ddp has none"]),
            "no schedule": (start("explain", "parameter_server", "--schedule", "lifo"), ["lifo", "fifo and priority"]),
            "ranks of the lecture's layers": (start("explain", "parameter_server", "--schedule", "fifo", "--ranks", 4),
                                              ["--ranks", "without --deck has none"]),
            "elements of a barrier": (start("explain", "barrier", "dissemination", "--elements", 1), ["--elements"]),
            "no shared memory": (start("explain", "all_reduce", "shared"), ["shared memory", "--shared"]),
            "shared memory across nodes": (start("explain", "all_reduce", "shared", "--shared", "--nodes", 2),
                                           ["works inside one node"]),
            "too long": (start("explain", "all_reduce", "segmented_ring", "--elements", 4000, "--segment", 1),
                         ["rounds", "longer segments"]),
            "nowhere to draw": (start(*ring, "--svg", "/proc/nothing/x.svg"), ["x.svg"]),
        }
        self.check_all((claim, future, words) for claim, (future, words) in cases.items())
