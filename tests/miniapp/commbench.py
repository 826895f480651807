"""Measurements of collectives: `commbench` and `calibrate`. What they print and write, what they refuse; no rates."""
import json
import os
import pathlib
import re
import signal
import unittest

from refusals import RefusalTest
from support import Started, run, start

# as few calls as possible: several programs share the cores
QUICK = ("-n", "1", "-w", "1", "--samples", "2")
COLUMNS = ("bytes", "count", "type", "operation", "root", "algorithm")


def table(outcome):
    """Per collective and type, its rows as tuples of COLUMNS and the words that follow."""
    tables, title = {}, None
    for line in outcome.out.splitlines():
        heading = re.fullmatch(r"# (\w+) (float32|float64|int32|int64|bfloat16|float16)", line)
        if heading:
            title = heading.groups()
            tables[title] = []
        row = re.fullmatch(r" +(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)  (\w+(?: \(\S+\))?) +(.*)", line)
        if row and title:
            size, count, kind, operation, root, algorithm, rest = row.groups()
            tables[title].append(((int(size), int(count), kind, operation, int(root), algorithm), rest.split()))
    return tables


def algorithms(rows):
    return {row[5].split(" ")[0] for row, _ in rows}


def loaded_transports(process):
    """The libraries of transports in the process' memory, without their versions."""
    maps = pathlib.Path(f"/proc/{process}/maps").read_text()
    return sorted(set(re.findall(r"/((?:libuct_|libfabric|libxpmem|libibverbs)[^./]*)\.[^/\n]*$", maps, re.MULTILINE)))


def without_times(machine):
    """The machine file with all predicted times zero."""
    for curve in machine["curves"].values():
        curve |= {"pieces": [{"from_bytes": 0, "start_seconds": 0, "seconds_per_byte": 0}], "samples": []}
    return machine | {"node_barrier_seconds": 0}


def strict_json(path):
    def refuse(token):
        raise AssertionError(f"{token} in {path}")
    return json.loads(path.read_text(), parse_constant=refuse)


class Measurements(unittest.TestCase):
    def assert_ok(self, outcome, left=()):
        self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", list(left)), outcome)
        self.assertTrue(outcome.out.endswith("RESULT: ALL EXACT\n"), outcome)

    def test_every_collective_by_every_algorithm_is_exact_and_predicted(self):
        many, three = start("commbench", "-b", "8", "-e", "8K", "-f", "32", *QUICK, ranks=2), start(
            "commbench", "-b", "1000", "-e", "1000", "--check-order", *QUICK, ranks=3)
        for ranks, outcome in ((2, many.result()), (3, three.result())):
            self.assert_ok(outcome)
            tables = table(outcome)
            self.assertEqual({name for name, _ in tables}, {
                "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all",
                "barrier", "server_push", "server_pull", "send_receive", "send", "copy", "signal_wait"})
            self.assertIn(f"# {ranks} ranks on 1 node | buffers shared\n", outcome.out)
            self.assertEqual("exchange that checks the order of calls" in outcome.out, ranks == 3)
            for (name, _), rows in tables.items():
                with self.subTest(collective=name, ranks=ranks):
                    self.assertIn("auto", algorithms(rows))
                    self.assertEqual("mpi" in algorithms(rows), not name.startswith("server"))
                    for row, (p50, p05, p95, _algbw, _busbw, wrong, predicted, residual) in rows:
                        self.assertLessEqual(float(p05), float(p50))
                        self.assertLessEqual(float(p50), float(p95))
                        self.assertEqual(wrong, "0")
                        self.assertEqual(predicted == "-", row[5] == "mpi")
                        self.assertEqual(residual == "-", row[5] == "mpi")
        sizes = {row[0] for row, _ in table(many.result())[("all_reduce", "float32")]}
        self.assertEqual(sizes, {8, 256, 8192})
        self.assertIn("ring", algorithms(table(many.result())[("all_reduce", "float32")]))
        self.assertIn("shared", algorithms(table(many.result())[("all_reduce", "float32")]))
        for when in ("before", "after"):
            self.assertRegex(many.result().out,
                             rf"(?m)^# {when} the measurements, measured / predicted: message_intra [\d.]+ one_way_intra ")
        self.assertIn("# time of mpi / time of ours", many.result().out)
        self.assertIn("auto picks", many.result().out)

    def test_types_operations_roots_and_steps_are_taken(self):
        outcome = run("commbench", "-d", "all", "-o", "max", "-r", "1", "-b", "24", "-e", "72", "-i", "24",
                      "--collectives=all_reduce,broadcast", "--algorithms=ring,binomial,mpi", *QUICK, ranks=2)
        self.assert_ok(outcome)
        tables = table(outcome)
        self.assertEqual({kind for _, kind in tables}, {"float32", "float64", "int32", "int64", "bfloat16", "float16"})
        self.assertEqual([row[:6] for row, _ in tables["broadcast", "float16"]],
                         [(size, size // 2, "float16", "none", 1, name) for size in (24, 48, 72)
                          for name in ("binomial", "mpi")])
        self.assertEqual([row[:6] for row, _ in tables["all_reduce", "int64"]],
                         [(size, size // 8, "int64", "max", -1, name) for size in (24, 48, 72)
                          for name in ("ring", "mpi")])
        # MPI cannot add these up
        self.assertEqual(algorithms(tables["all_reduce", "bfloat16"]), {"ring"})
        self.assertIn("# left out: MPI has no standard 16-bit floating-point type, so no all_reduce of bfloat16\n",
                      outcome.out)

    def test_messages_of_pairs_are_counted_as_nccl_tests_count_them(self):
        both, alone = (start("commbench", "-b", "64", "-e", "4K", "-f", "64", "--collectives=send_receive,send,copy,signal_wait",
                             "--json=pairs.json", *QUICK, ranks=ranks) for ranks in (3, 1))
        for outcome in (both.result(), alone.result()):
            self.assert_ok(outcome, ["pairs.json"])
            for (name, _), rows in table(outcome).items():
                sizes = {row[:2] for row, _ in rows}
                self.assertEqual(sizes, {(0, 0)} if name == "signal_wait" else {(64, 16), (4096, 1024)}, name)
            for row in strict_json(outcome.folder / "pairs.json")["rows"]:
                self.assertEqual(row["wrong"], 0)
                if row["bytes"] > 0:  # a bus factor of 1
                    self.assertEqual(row["bus_bytes_per_second"], row["algorithm_bytes_per_second"])
        self.assertEqual({name: algorithms(rows) for (name, _), rows in table(both.result()).items()}, {
            "send_receive": {"direct", "shared_copy", "auto", "mpi"}, "send": {"direct", "auto", "mpi"},
            "copy": {"direct", "auto", "mpi"}, "signal_wait": {"direct", "shared", "auto", "mpi"}})

    def test_staged_messages_are_exact_in_every_type_and_told(self):
        alike, long, nodes = (start("commbench", "--buffers=staged", *flags, *QUICK, ranks=ranks) for ranks, flags in (
            (2, ("-d", "all", "-b", "1000", "-e", "1000")),
            (2, ("-b", "3M", "-e", "3M", "--collectives=all_reduce,reduce_scatter,all_to_all", "--json=long.json")),
            (2, ("-b", "64", "-e", "64", "--emulated-nodes=2", "--collectives=all_reduce"))))
        self.assert_ok(alike.result())
        self.assertIn("# 2 ranks on 1 node | buffers staged\n", alike.result().out)
        self.assertIn("# left out: all_reduce shared needs buffers in the node's shared memory\n", alike.result().out)
        tables = table(alike.result())
        self.assertEqual(len(tables), 13 * 6 + 2)  # a barrier and a signal have no type
        for (name, kind), rows in tables.items():
            with self.subTest(collective=name, type=kind):
                self.assertIn("auto", algorithms(rows))
                sums = name in ("all_reduce", "reduce_scatter", "reduce") and kind in ("bfloat16", "float16")
                self.assertEqual("mpi" in algorithms(rows), not name.startswith("server") and not sums)
                self.assertFalse({"shared", "shared_copy", "shared_mailbox", "shared_push"} & algorithms(rows))
        self.assert_ok(long.result(), ["long.json"])
        self.assertEqual(strict_json(long.result().folder / "long.json")["header"]["buffers"], "staged")
        self.assert_ok(nodes.result())
        self.assertIn("# 2 ranks on 2 emulated nodes | buffers staged\n", nodes.result().out)
        self.assertIn("measured / predicted: message_inter ", nodes.result().out)
        for outcome in (alike.result(), nodes.result()):
            self.assertNotRegex(outcome.out, "measured / predicted:.*(combine|fetch|push|node_barrier)")

    def test_one_rank_and_emulated_nodes(self):
        alone, nodes = start("commbench", "-b", "64", "-e", "64", *QUICK), start(
            "commbench", "-b", "64", "-e", "64", "--emulated-nodes", "2", "--collectives", "all_reduce", *QUICK,
            ranks=4)
        self.assert_ok(alone.result())
        self.assertNotIn(("server_push", "float32"), table(alone.result()))
        self.assert_ok(nodes.result())
        self.assertIn("# 4 ranks on 2 emulated nodes | buffers private\n", nodes.result().out)
        self.assertNotIn("shared", algorithms(table(nodes.result())[("all_reduce", "float32")]))

    def test_a_measurement_that_is_killed_has_kept_what_it_had(self):
        measuring = Started("commbench", "-b", "8", "-e", "4M", "--collectives=all_reduce", "--algorithms=ring,mpi",
                            "--json=kept/bench.json", "-n", "1", "-w", "1", "--samples", "200")
        measuring.wait_for(" 131072 ")
        first, *_ = measuring.ranks()
        transports = loaded_transports(first)
        for rank in measuring.ranks():
            os.kill(rank, signal.SIGKILL)
        measuring.ended()
        self.assertIn(f" | transports loaded: {' '.join(transports) or 'none seen'}\n", measuring.text())
        file = strict_json(measuring.folder / "kept" / "bench.json")
        self.assertEqual(file["header"]["transports"], transports)
        self.assertEqual((file["status"], file["finished"]), ("RIGHT", False))
        rows = [(row["bytes"], row["algorithm"]) for row in file["rows"]]
        self.assertEqual(rows[:28], [(8 << power, name) for power in range(14) for name in ("ring", "mpi")])
        shown = run("report", measuring.folder / "kept" / "bench.json", "--out", "shown")
        self.assertEqual(shown.code, 0, shown)
        self.assertIn("UNFINISHED: the measurement was cut off", (shown.folder / "shown" / "report.md").read_text())

    def test_the_json_file_has_every_sample_and_the_summaries(self):
        outcome = run("commbench", "-b", "64", "-e", "128", "--collectives=all_reduce", "--algorithms=ring,auto,mpi",
                      "--json=bench.json", *QUICK, ranks=2)
        self.assert_ok(outcome, ["bench.json"])
        file = strict_json(outcome.folder / "bench.json")
        self.assertEqual((file["schema_version"], file["kind"], file["status"]), (1, "commbench", "RIGHT"))
        self.assertTrue(file["finished"])
        header = file["header"]
        self.assertEqual((header["ranks"], header["nodes"], header["buffers"]), (2, 1, "shared"))
        self.assertEqual([(row["bytes"], row["algorithm"]) for row in file["rows"]],
                         [(size, name) for size in (64, 128) for name in ("ring", "auto", "mpi")])
        for row in file["rows"]:
            self.assertEqual(row["wrong"], 0)
            seconds = row["seconds"]
            self.assertEqual((len(seconds["samples"]), seconds["calls_per_sample"]), (2, 1))
            self.assertAlmostEqual(row["algorithm_bytes_per_second"], row["bytes"] / seconds["p50"], delta=1)
            self.assertAlmostEqual(row["bus_bytes_per_second"], row["algorithm_bytes_per_second"])  # 2 ranks: factor 1
            if row["algorithm"] != "mpi":
                self.assertAlmostEqual(row["residual"], row["predicted_seconds"] / seconds["p50"] - 1)
            if row["algorithm"] == "mpi":
                self.assertIn(row["picked"], ("in place", "two buffers"))
            else:
                self.assertEqual(row["picked"] is None, row["algorithm"] != "auto")
        summary, = file["summaries"]
        self.assertEqual([line["algorithm"] for line in summary["ratios_to_mpi"]], ["ring", "auto"])
        self.assertEqual(summary["crossovers"], [])  # of one algorithm there is no choice
        self.assertEqual([(line["algorithm"], line["sizes"]) for line in summary["predictions"]["scores"]],
                         [("ring", 2)])

    def test_without_checks_nothing_is_called_exact(self):
        outcome = run("commbench", "-b", "8", "-e", "8", "-c", "0", "--collectives", "barrier,all_reduce", "--fresh=0",
                      *QUICK, ranks=2)
        self.assertIn("one call's result is the next one's data\n", outcome.out)
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        self.assertTrue(outcome.out.endswith("RESULT: UNCHECKED\n"), outcome)
        for row, words in table(outcome)["all_reduce", "float32"]:
            self.assertEqual(words[5], "-")

    def test_a_calibration_becomes_a_file_that_commbench_and_simulations_take(self):
        calibration = run("calibrate", "-e", "4K", "--all-sizes", ranks=2)
        self.assertEqual((calibration.code, calibration.err, calibration.left), (0, "", ["peaks.json"]), calibration)
        for text in ("# message_intra", "# one_way_intra", "# reduce", "# copy", "# combine_to_own", "# combine_to_all",
                     "# fetch", "# push", "# node barrier", "# messages intra hide ",
                     "held out: |error| median", "  held out\n"):
            self.assertIn(text, calibration.out)
        self.assertNotIn("message_inter", calibration.out)
        peaks = calibration.folder / "peaks.json"
        self.assertEqual(strict_json(peaks)["provenance"]["ranks"], 2)
        rates = strict_json(peaks)["peaks"].values()
        if os.cpu_count() >= 2:
            self.assertTrue(all(0 < rate < 1e15 for rate in rates), rates)
            self.assertIn(" GFLOP/s in matrix products of fp32 and moves ", calibration.out)
        else:
            self.assertEqual(list(rates), [None, None])
        alike = calibration.folder / "alike.json"
        alike.write_text(json.dumps(without_times(strict_json(peaks))))
        tried = start("commbench", "--machine", alike, "-b", "8", "-e", "512K", "-f", "256", "--json=bench.json", *QUICK, ranks=2)
        measured = start("commbench", "--machine", peaks, "-b", "8", "-e", "8", "--collectives=all_reduce", *QUICK,
                         ranks=2)
        simulated = start("commbench", "--machine", peaks, "--simulate", "ranks=8", "-e", "4K",
                          "--collectives=all_reduce")
        elsewhere = start("commbench", "--machine", peaks, "--emulated-nodes", "2", *QUICK, ranks=2)
        self.assert_ok(measured.result())
        self.assertRegex(measured.result().out, r"# predictions: \S+peaks.json: 2 ranks on 1 node")
        self.assertEqual(simulated.result().code, 0, simulated.result())
        self.assertEqual(elsewhere.result().code, 64, elsewhere.result())
        self.assertIn("no times of messages between nodes", elsewhere.result().err)
        self.assert_tries(tried.result())

    def assert_tries(self, outcome):
        """Where predictions call all algorithms equal, auto without trying them would always take the first one."""
        self.assert_ok(outcome, ["bench.json"])
        contests = {}
        for row in strict_json(outcome.folder / "bench.json")["rows"]:
            contests.setdefault((row["collective"], row["bytes"]), []).append(row)
        picks = {name: [row["picked"].split("/")[0] for row in rows if row["algorithm"] == "auto"]
                 for name, rows in contests.items()}
        self.assertNotEqual(picks, {name: [rows[0]["algorithm"]] for name, rows in contests.items()})

    def test_a_calibration_of_staged_messages_predicts_no_others(self):
        calibration = run("calibrate", "-e", "4K", "--buffers=staged", ranks=2)
        self.assertEqual((calibration.code, calibration.err, calibration.left), (0, "", ["peaks.json"]), calibration)
        self.assertNotRegex(calibration.out, "# (combine|fetch|push|node barrier)")
        self.assertIn(", buffers staged, ", calibration.out)
        peaks = calibration.folder / "peaks.json"
        self.assertEqual(strict_json(peaks)["provenance"]["buffers"], "staged")
        few = ("--machine", peaks, "-b", "8", "-e", "8", "--collectives=all_reduce", *QUICK)
        staged, private = (start("commbench", f"--buffers={buffers}", *few, ranks=2) for buffers in ("staged", "private"))
        simulated = start("commbench", "--machine", peaks, "--simulate=ranks=4", "-e", "4K", "--collectives=all_reduce")
        self.assert_ok(staged.result())
        self.assertRegex(staged.result().out, r"# predictions: \S+peaks.json: 2 ranks .*, buffers staged, ")
        self.assertEqual((private.result().code, private.result().out), (64, ""), private.result())
        self.assertIn("measured with buffers staged, here they have buffers host", private.result().err)
        self.assertIn("`trainstone calibrate --buffers private`", private.result().err)
        self.assertEqual(simulated.result().code, 0, simulated.result())
        self.assertRegex(simulated.result().out, "# machine: .*, buffers staged, ")


class Refusals(RefusalTest):
    def test_what_cannot_be_measured_is_refused_before_anything_is(self):
        def refused(*words, flags, ranks=2, command="commbench"):
            return start(command, *flags, ranks=ranks), words

        cases = {
            "unknown collective": refused("no collective \"all_redduce\"; there is: all_reduce, reduce_scatter",
                                          flags=["--collectives", "all_redduce"]),
            "NCCL where a build has none": refused("no algorithm \"nccl\" of all_reduce; there is: naive,", "auto, mpi",
                                                   flags=["--collectives=all_reduce", "--algorithms=nccl"]),
            "unknown algorithm": refused("no algorithm \"rign\" of all_reduce; there is: naive,", "auto, mpi",
                                         flags=["--collectives=all_reduce", "--algorithms=ring,rign"]),
            "algorithm of another collective": refused("no algorithm \"pairwise\" of all_reduce",
                                                       flags=["--collectives=all_reduce", "--algorithms=pairwise"]),
            "unknown type": refused("no type \"fp32\"; there is: float, double", flags=["-d", "fp32"]),
            "unknown operation": refused("no operation \"avg\"; there is: sum, max, min", flags=["-o", "avg"]),
            "size zero": refused("-b 0 is no size", "1 to 1099511627776 bytes", flags=["-b", "0"]),
            "negative size": refused("-e -8 is no size", flags=["--maxbytes=-8"]),
            "more than can be": refused("-e 2T is no size", flags=["-e", "2T"]),
            "size without meaning": refused("-b 8X is no size", flags=["-b", "8X"]),
            "sizes the wrong way round": refused("-e 4 is below -b 8", flags=["-b", "8", "-e", "4"]),
            "less than an element": refused("less than one element of 8 bytes", flags=["-b", "4", "-d", "double"]),
            "factor one": refused("-f 1 is out of range", flags=["-f", "1"]),
            "no such root": refused("-r 2 is out of range; it must be 0 to 1", flags=["-r", "2"]),
            "odd samples": refused("--samples 3 is odd", flags=["--samples", "3"]),
            "unknown buffers": refused("no \"pinned\"; there is: shared, private, staged", flags=["--buffers", "pinned"]),
            "device buffers on a host": refused("--buffers device: kernels work on the host's memory",
                                                "there is: shared, private, staged", flags=["--buffers", "device"]),
            "calibration of device buffers on a host": refused("there is: shared, private, staged", command="calibrate",
                                                               flags=["--buffers", "device"]),
            "shared algorithm on staged buffers": refused(
                "all_reduce shared needs buffers in the node's shared memory",
                flags=["--collectives=all_reduce", "--algorithms=shared", "--buffers=staged"]),
            "shared on two nodes": refused("2 nodes, which share no memory; use private",
                                           flags=["--buffers=shared", "--emulated-nodes=2"]),
            "shared algorithm on private buffers": refused(
                "all_reduce shared needs buffers in the node's shared memory",
                flags=["--collectives=all_reduce", "--algorithms=shared", "--buffers=private"]),
            "more nodes than ranks": refused("3", flags=["--emulated-nodes", "3"]),
            "servers alone": refused("needs at least 2 ranks", flags=["--collectives=server_push"], ranks=1),
            "servers without workers": refused("--servers 2 is out of range; it must be 1 to 1",
                                               flags=["--collectives=server_push", "--servers=2"]),
            "nothing left": refused("MPI has no collective with parameter servers",
                                    flags=["--collectives=server_push", "--algorithms=mpi"]),
            "no machine file": refused("missing.json", flags=["--machine", "missing.json"]),
            "nowhere to write": refused("x.json", flags=["--json", "/proc/x.json"]),
            "neither fresh nor not": refused("--fresh 2 is out of range; it must be 0 to 1", flags=["--fresh", "2"]),
            "unknown flag": refused("not expected: --frob", flags=["--frob"]),
            "calibration of nothing": refused("too little for a fit", flags=["-e", "8"], command="calibrate"),
        }
        self.check_all((claim, *case) for claim, case in cases.items())
