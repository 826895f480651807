"""What the program says of collectives without running any: `estimate --lecture` and `commbench --simulate`."""
import json
import re
import unittest

from refusals import RefusalTest
from support import Deck, run, start


def table_rows(text, title, until="  Note"):
    """Rows of one of the lecture's tables: the method, and the words behind it."""
    body = text[text.index(title):]
    lines = body[:body.index(until)].splitlines()[1:]
    return {line[2:19].strip(): line[19:].split() for line in lines if line[2:19].strip()}


def write_machine(folder, curves=("message_intra", "one_way_intra", "reduce", "copy"), largest=1e6):
    """A machine file with invented figures: 3 us + 5 GB/s; the rest takes no time."""
    curve = lambda start, slope: {"from_bytes": 8, "to_bytes": largest, "pieces": [
        {"from_bytes": 0, "start_seconds": start, "seconds_per_byte": slope}]}
    provenance = {"time": "2000-01-01T00:00:00Z", "host": "paper", "cpu": "none", "mpi": "none", "code": "0",
                  "ranks": 2, "nodes": 1}
    machine = {"schema_version": 1, "kind": "machine", "provenance": provenance, "ports": 1,
               "overlap": {"intra": 1},
               "curves": {name: curve(3e-6, 2e-10) if "_in" in name else curve(0, 0) for name in curves}}
    (folder / "peaks.json").write_text(json.dumps(machine))


class Lecture(unittest.TestCase):
    def test_what_is_exact_is_counted_on_any_number_of_ranks(self):
        for ranks, outcome in [(ranks, start("estimate", "--lecture", "collectives", "--ranks", ranks))
                               for ranks in (2, 3, 6, 8, 13)]:
            with self.subTest(ranks=ranks):
                outcome = outcome.result()
                self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
                totals = table_rows(outcome.out, "1. ", until="  Note" if ranks in (2, 8) else f"  {ranks} is no power")
                self.assertEqual(set(totals) - {"method"}, {"main device", "dedicated server", "naive", "ring", "tree",
                                                            "butterfly"})
                for method, words in totals.items():
                    if method != "method":
                        exact, counted = words[-4:-2]
                        self.assertEqual(exact, counted, method)

    def test_size_and_machine_are_taken(self):
        outcome = run("estimate", "--lecture=collectives", "--ranks=4", "--size=1M", "--machine=peaks.json",
                      prepare=write_machine)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertIn("S = 1048576 bytes on N = 4 ranks", outcome.out)
        self.assertIn("machine: peaks.json: 2 ranks on 1 node of paper", outcome.out)
        self.assertIn("alpha = 3.00 us per message, 1/beta = B = 5.00 GB/s, 1/gamma = infinite", outcome.out)
        rows = table_rows(outcome.out, "2a.", until="2b.")
        expected = 6 * 3 + 2 * 1048576 * 0.75 * 2e-10 * 1e6
        self.assertAlmostEqual(float(rows["ring"][-1].lstrip("*")), expected, delta=0.01)


    def test_gathers_of_zero_are_priced_on_the_machine(self):
        outcome = run("estimate", "--lecture=zero", "--ranks=4", "--machine=peaks.json", prepare=write_machine)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertIn("machine: peaks.json: 2 ranks on 1 node of paper", outcome.out)
        # two gathers of 13 groups, 3 rounds of 3 us each, and 3/4 of 124479488 parameters of 2 bytes at 5 GB/s
        expected = 2 * (13 * 3 * 3e-6 + 0.75 * 2 * 124479488 * 2e-10) * 1e3
        [row] = [line.split() for line in outcome.out.splitlines() if line.startswith("  all-gather, ring")]
        self.assertAlmostEqual(float(row[-2]), expected, delta=0.001)

    def test_stages_and_micro_batches_of_a_pipeline_are_taken(self):
        outcome = run("estimate", "--lecture=pipeline", "--stages=4", "--micro-batches=8")
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
        self.assertIn("12 of 44", outcome.out)
        shares = {line.split()[0]: line.split()[4:8] for line in outcome.out.splitlines()
                  if re.match(r"  (naive|gpipe|1f1b) .*%", line)}
        self.assertEqual({name: words[0] for name, words in shares.items()},
                         {"naive": "75.0", "gpipe": "27.3", "1f1b": "27.3"})
        for words in shares.values():
            self.assertEqual(words[0], words[2])

    def test_each_lecture_prints_its_tables_without_a_deck(self):
        words_of = {"collectives": ["as taught", "2 N M", "has 2 S more", "Rabenseifner round by round"],
                               "zero": ["as taught", "7500001280", "is stage 2's formula"],
                               "models": ["gpt3-175b", "174604259328", "as taught"],
                               "capability": ["as taught", "t divides the heads"],
                               "optimizer": ["as taught", "adam, adamw"],
                               "networks": ["as taught", "TorchGPipe"],
                               "published": ["Megatron-LM (SC21)", "145.6B", "Turing NLG 530B", "60.10", "residual"],
                               "matmul": ["as taught", "0.141", "3.000", "Megatron-LM"],
                               "servers": ["as taught", "838.86 us", "1677.72 us", "332211...123", "asynchronous"],
                               "pipeline": ["as taught", "6 of 9 ", "6 of 12 ", "6 of 15 ", "interleaved"],
                               "activations": ["as taught", "430.3", "241.6", "30%~40%"]}
        self.assertEqual(sorted(words_of), sorted(lecture_names()))
        futures = {lecture: start("estimate", "--lecture", lecture) for lecture in words_of}
        for lecture, future in futures.items():
            with self.subTest(lecture=lecture):
                outcome = future.result()
                self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
                for word in words_of[lecture]:
                    self.assertIn(word, outcome.out)


def lecture_names():
    """As the program lists them where it refuses another name."""
    outcome = run("estimate", "--lecture", "?")
    return re.search(r"there are: (.+)", outcome.err)[1].split(", ")


def options_of_lectures():
    """Options that change a lecture's shape, and the names of the lectures that take them."""
    sets = [("--ranks", 6), ("--ranks", 7), ("--ranks", 128), ("--stages", 2), ("--stages", 5, "--micro-batches", 1),
            ("--stages", 64, "--micro-batches", 64), ("--micro-batches", 20), ("--machine", "peaks.json"), ("--size", "8MiB")]
    names = lecture_names()
    takers = {flag: [name for name in names if not refuses(name, flag)] for flag in {flag for one in sets for flag in one[::2]}}
    return {options: takers[options[0]] for options in sets}


def refuses(name, flag):
    """Whether the lecture has none of these."""
    values = {"--machine": "no-such-file", "--size": "8MiB", "--ranks": 8, "--stages": 3, "--micro-batches": 2}
    outcome = run("estimate", "--lecture", name, flag, values[flag])
    return outcome.code == 64 and re.search("has none|belongs? to --lecture", outcome.err) is not None


class AllLectures(unittest.TestCase):
    # words for what the program computes itself
    OWN = re.compile(r"\b(exact|counted|simulated|kept here|this program)\b")

    def check_table(self, table):
        title, _, body = table.partition("\n")
        body = body.partition("\n  Note:")[0]
        self.assertRegex(title + body, self.OWN)
        if "not taught" not in title:
            self.assertRegex(body, r"\btaught\b")
        self.assertGreaterEqual(len(body.splitlines()), 3, "a head and rows")

    def check_lecture(self, name, outcome):
        with self.subTest(lecture=name):
            self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
            self.assertIn("as taught", outcome.out)
            self.assertLessEqual(max(map(len, outcome.out.splitlines())), 138)
            self.assertNotRegex(outcome.out, r"[-+]0\.0+ %|\bnan\b|\binf\b")
        tables = re.split(r"(?m)^(?=\d[a-z]?\. )", outcome.out)[1:]
        self.assertGreater(len(tables), 0, name)
        for table in tables:
            with self.subTest(lecture=name, table=table.partition("\n")[0]):
                self.check_table(table)

    def test_each_has_tables_of_what_is_taught_beside_what_is_exact(self):
        names = lecture_names()
        self.assertEqual(len(names), len({*names}))
        futures = {name: start("estimate", "--lecture", name) for name in names}
        for name, future in futures.items():
            self.check_lecture(name, future.result())

    def test_each_has_tables_with_whatever_options_it_takes(self):
        takers = options_of_lectures()
        self.assertEqual(takers["--ranks", 6], ["collectives", "zero", "matmul"])
        self.assertEqual(takers["--machine", "peaks.json"], ["collectives", "zero"])
        self.assertEqual(takers["--stages", 2], ["pipeline"])
        futures = {(name, *options): start("estimate", "--lecture", name, *options, prepare=write_machine)
                   for options, names in takers.items() for name in names}
        for options, future in futures.items():
            outcome = future.result()
            outcome.left[:] = [one for one in outcome.left if one != "peaks.json"]
            self.check_lecture(options, outcome)
            if "--machine" in options:
                self.assertNotIn("assumed", outcome.out, options)

    def test_help_and_messages_name_all_of_them(self):
        names = lecture_names()
        for outcome, separator in ((run("estimate", "--help"), ","), (run("estimate"), "|")):
            words = re.sub(r"\s+", "", outcome.out + outcome.err)
            self.assertIn(separator.join(names), words)

    def test_other_names_are_refused(self):
        names = lecture_names()
        for name in [*(name + "s" for name in names), *(name[:-1] for name in names), names[0].upper(), ",".join(names)]:
            with self.subTest(name=name):
                outcome = run("estimate", "--lecture", name)
                self.assertEqual((outcome.code, outcome.out), (64, ""), outcome)
                self.assertIn(f'"{name}"', outcome.err)


class Simulation(unittest.TestCase):
    def test_every_algorithm_is_priced_at_every_size_and_the_quickest_is_picked(self):
        outcome = run("commbench", "--simulate", "ranks=12,nodes=3", "-b", "8", "-e", "8K", "-f", "32",
                      "--collectives", "all_reduce,broadcast")
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
        rows = re.findall(r"(?m)^(all_reduce|broadcast) +(\d+)  (\S+) +([\d.]+) +[\d.]+ +[\d.]+(  \*)?$", outcome.out)
        sizes = {size for _, size, *_ in rows}
        self.assertEqual(sizes, {"8", "256", "8192"})
        for collective, count in (("all_reduce", 10), ("broadcast", 2)):
            for size in sizes:
                times = [(float(us), marked) for name, bytes_, _, us, marked in rows
                         if (name, bytes_) == (collective, size)]
                self.assertGreaterEqual(len(times), count)
                self.assertEqual([us for us, marked in times if marked], [min(times)[0]])
        self.assertRegex(outcome.out, r"(?m)^all_reduce\n +from B +to B +auto picks")

    def test_the_assumed_machine_says_what_ranks_of_a_node_share(self):
        for nodes, shares in ((1, False), (2, True)):
            outcome = run("commbench", "--simulate", f"ranks=4,nodes={nodes}", "-b", "8", "-e", "8", "--collectives",
                          "all_reduce")
            self.assertEqual(outcome.code, 0, outcome)
            self.assertIn("machine: assumed, typical figures (no --machine)", outcome.out)
            self.assertEqual("a rank has 1/8 of its node's port of 25 GB/s" in outcome.out, shares)

    def test_sizes_that_the_machine_was_not_measured_for_are_marked(self):
        outcome = run("commbench", "--simulate", "ranks=4", "-b", "64KiB", "-e", "1M", "-f", "16", "--algorithms", "ring",
                      "--collectives", "all_reduce", "--machine", "peaks.json", prepare=write_machine)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, r"(?m)^all_reduce +65536  ring [^~]*$")
        self.assertRegex(outcome.out, r"(?m)^all_reduce +1048576  ring .*~$")

    def test_65536_ranks_are_possible(self):
        # 20 s at most; an algorithm that has lost its symmetry would take hours, which run() does not wait
        outcome = run("commbench", "--simulate", "ranks=65536,nodes=8192", "-b", "1M", "-e", "64M", "-f", "64",
                      "--collectives", "all_reduce", "--algorithms",
                      "ring,tree,butterfly,rabenseifner,circulant,hierarchical")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(len(re.findall(r"(?m)^all_reduce +\d+  ", outcome.out)), 12)


class Refusals(RefusalTest):
    def test_what_is_no_lecture_and_no_machine_is_refused(self):
        lecture, simulate = ("estimate", "--lecture", "collectives"), ("commbench", "--simulate")
        cases = {
            "unknown lecture": (start("estimate", "--lecture", "colectives"), ["there are: collectives, zero, models, capability, optimizer, networks, pipeline, activations, servers, published, matmul"]),
            "one rank": (start(*lecture, "--ranks", 1), ["--ranks 1", "2 to 512"]),
            "too many ranks": (start(*lecture, "--ranks", 513), ["--ranks 513", "commbench --simulate"]),
            "uneven blocks": (start(*lecture, "--ranks", 6, "--size", "1000"), ["960 and 1008"]),
            "size without meaning": (start(*lecture, "--size", "many"), ["--size"]),
            "a deck for a lecture": (start(*lecture, Deck().path), ["--lecture takes --ranks, --size, --machine, --stages"]),
            "no deck": (start("estimate"), ["DECK", "--lecture collectives|zero|models|capability|optimizer|networks|pipeline|activations|servers|published|matmul"]),
            "a file for a lecture": (start(*lecture, "--json", "x.json"), ["--json", "without it"]),
            "size for a deck": (start("estimate", Deck().path, "--size", "8kB"), ["--lecture"]),
            "ranks for models": (start("estimate", "--lecture", "models", "--ranks", 8), ["--ranks", "models"]),
            "a machine for models": (start("estimate", "--lecture", "models", "--machine", "peaks.json"),
                                     ["--machine", "models"]),
            "ranks for networks": (start("estimate", "--lecture", "networks", "--ranks", 8), ["--ranks", "networks"]),
            "ranks for a pipeline": (start("estimate", "--lecture", "pipeline", "--ranks", 8), ["--ranks", "pipeline"]),
            "one stage": (start("estimate", "--lecture", "pipeline", "--stages", 1), ["--stages 1", "2 to 64"]),
            "no micro-batches": (start("estimate", "--lecture", "pipeline", "--micro-batches", 0),
                                 ["--micro-batches 0", "1 to 1024"]),
            "stages for activations": (start("estimate", "--lecture", "activations", "--stages", 3),
                                       ["--stages", "--lecture pipeline"]),
            "micro-batches for a deck": (start("estimate", Deck().path, "--micro-batches", 3), ["--lecture pipeline"]),
            "a machine where nothing is priced": (start("estimate", "--lecture", "zero", "--ranks", 65, "--machine", "peaks.json"),
                                                  ["--machine", "up to 64 ranks", "--ranks is 65"]),
            "size for zero": (start("estimate", "--lecture", "zero", "--size", "8kB"), ["--lecture collectives"]),
            "one rank for zero": (start("estimate", "--lecture", "zero", "--ranks", 1), ["2 to 65536"]),
            "no machine file": (start(*lecture, "--machine", "peaks.json"),
                                ["peaks.json: cannot be read", "calibrate"]),
            "no ranks": (start(*simulate, "ranks=0"), ["ranks 0", "1 to"]),
            "more nodes than ranks": (start(*simulate, "ranks=2,nodes=3"), ["at most one per rank"]),
            "unknown word": (start(*simulate, "rank=2"), ["ranks=N,nodes=M"]),
            "unknown algorithm": (start(*simulate, "ranks=2", "--collectives", "all_reduce", "--algorithms", "bush"),
                                  ["bush", "ring", "tree"]),
            "needs shared memory": (start(*simulate, "ranks=2", "--collectives", "all_reduce",
                                          "--algorithms", "shared"), ["shared memory"]),
        }
        self.check_all((claim, future, words) for claim, (future, words) in cases.items())

    def test_a_machine_that_lacks_what_the_ranks_need_is_refused(self):
        outcome = run("commbench", "--simulate", "ranks=4,nodes=2", "--machine", "peaks.json", prepare=write_machine)
        self.assert_refused(outcome, ["peaks.json", "messages between nodes", "--emulated-nodes"])
