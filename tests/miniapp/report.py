"""What `trainstone report` writes about results, studies and measurements of collectives, and what it refuses."""
import html.parser
import json
import pathlib
import re
import shutil
import unittest
import xml.etree.ElementTree

from commbench import QUICK
from refusals import RefusalTest
from support import Deck, new_folder, run, settings, start

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ["loss", "steps", "phases", "ranks", "memory"]


def coordinates(path):
    """Of a line through points, which begins with M and goes on with L."""
    return [tuple(map(float, pair.split(","))) for pair in re.split("[ML]", path.get("d"))[1:]]


class Report:
    """The files of one report, each of them read as what it is."""

    def __init__(self, outcome, folder="report"):
        self.folder = outcome.folder / folder
        self.markdown = (self.folder / "report.md").read_text()
        self.page_text = (self.folder / "index.html").read_text()
        self.page = xml.etree.ElementTree.fromstring(self.page_text)
        self.pictures = {path.stem: xml.etree.ElementTree.parse(path).getroot() for path in self.folder.glob("*.svg")}

    def texts(self, name):
        return [text.text for text in self.pictures[name].iter(SVG + "text")]

    def lines(self, name, color):
        return [path for path in self.pictures[name].iter(SVG + "path")
                if path.get("stroke") == color and re.fullmatch(r"M[-.\d]+,[-.\d]+(L[-.\d]+,[-.\d]+)+", path.get("d"))]

    def rows(self, first):
        """Cells of the table rows that begin with this cell."""
        rows = [line[2:-2].split(" | ") for line in self.markdown.splitlines() if line.startswith("| ")]
        return [row for row in rows if row[0].strip("*") == first]

    def everything(self):
        return self.markdown + self.page_text + "".join(path.read_text() for path in self.folder.glob("*.svg"))


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deck = Deck()
        cls.unreferenced = run("run", cls.deck.path, "--record-golden", ranks=2)
        golden = json.loads(cls.deck.golden.read_text())
        cls.valid, cls.alone = start("run", cls.deck.path, ranks=2), start("run", cls.deck.path)
        cls.valid, cls.alone = cls.valid.result(), cls.alone.result()
        damaged = json.loads(json.dumps(golden))
        (curve,) = damaged["curves"].values()
        curve["losses"][2] *= 1.01
        cls.deck.golden.write_text(json.dumps(damaged))
        cls.invalid = run("run", cls.deck.path, ranks=2)
        cls.deck.golden.write_text(json.dumps(golden))
        assert [outcome.result["status"] for outcome in (cls.unreferenced, cls.valid, cls.alone, cls.invalid)] == \
            ["UNREFERENCED", "VALID", "VALID", "INVALID"], cls.invalid

    def report_of(self, *arguments, folder="report"):
        outcome = run("report", *arguments)
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        self.assertEqual(sorted(outcome.out.splitlines()), [name for name in outcome.left if name != folder], outcome)
        return Report(outcome, folder)

    def assert_self_contained(self, report):
        """Nothing that a browser would ask somebody for, by attributes of any element."""
        found = []

        class Reader(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                found.extend((tag, name, value) for name, value in attrs
                             if name in ("href", "src", "srcset", "data", "xlink:href", "action") or "url(" in (value or ""))
                if tag in ("script", "link", "iframe", "img", "object"):
                    found.append((tag,))
        reader = Reader()
        reader.feed(report.page_text)
        reader.close()
        self.assertEqual(found, [])
        self.assertNotRegex(report.page_text, r"@import|url\(")
        ids = [element.get("id") for element in report.page.iter() if element.get("id")]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(list(report.page.iter(SVG + "svg"))), len(report.pictures))
        self.assertEqual(sorted(re.findall(r"\]\((.*)\.svg\)", report.markdown)), sorted(report.pictures))


class Results(ReportTest):
    def test_a_valid_result_is_shown_with_everything_that_its_file_has(self):
        report = self.report_of(self.valid.folder / "out", "--golden", self.deck.golden)
        self.assert_self_contained(report)
        self.assertEqual(sorted(report.pictures), sorted(f"out-{kind}" for kind in KINDS))
        result = self.valid.result
        for text in (report.markdown.replace("\\", ""), "".join(report.page.itertext())):
            self.assertIn("RESULT: VALID", text)
            self.assertIn("VERIFICATION PASSED (10/10): loss-curve ", text)
            self.assertIn(f"FOM: {result['fom']['value']:.6e} tokens/s  ci95 ", text)
            self.assertIn(f"FOM_PER_RANK: {result['fom']['value'] / 2:.6e} tokens/s", text)
            for word in (result["time"], result["deck"]["name"], result["deck"]["golden_key"], result["code"]["compiler"],
                         result["machine"]["mpi"], result["machine"]["cpu"], "2 ranks on 1 node, 1 thread each"):
                self.assertIn(word, text)

    def test_every_count_of_the_file_stands_in_a_table(self):
        report, result = self.report_of(self.valid.folder / "out"), self.valid.result
        for name, key in (("bytes sent", "sent_bytes"), ("messages", "messages"), ("kernels started", "kernel_launches"),
                          ("FLOP of matrix products and attention", "flops")):
            self.assertEqual(report.rows(name),
                             [[name, str(result["predicted"][key]), str(result["counted"][key]), "none"]])
        memory = result["counted"]["memory_bytes"]
        for name, bytes_ in memory.items():
            self.assertEqual(report.rows(name)[0], [name, str(result["predicted"]["memory_bytes"][name]), str(bytes_), "none"])
        self.assertEqual(report.rows("device"), [["device", result["machine"]["device"] or "none, kernels run on the host"]])
        for check in result["verification"]:
            row, = report.rows(check["name"])
            self.assertEqual(row[1], "**passed**" if check["passed"] else "**unknown**")
            self.assertAlmostEqual(float(row[2]), check["value"], delta=1e-5 * abs(check["value"]))
            self.assertEqual(row[4].replace("\\", ""), check["detail"])

    def test_plots_are_drawn_from_the_samples_of_the_file(self):
        report, samples = self.report_of(self.valid.folder / "out", "--golden", self.deck.golden), self.valid.result["samples"]
        name = next(name for name in report.pictures if name.endswith("-loss"))
        self.assertIn("golden curve", report.texts(name))
        training, golden = (coordinates(report.lines(name, color)[0]) for color in ("#0072b2", "#000000"))
        held_out = coordinates(report.lines(name, "#d55e00")[0])
        recorded, = json.loads(self.deck.golden.read_text())["curves"].values()
        drawn = [*zip(samples["loss"], training), *zip(recorded["losses"], golden), *zip(self.valid.held_out, held_out)]
        self.assertEqual((len(training), len(golden), len(held_out)), (12, 12, 3))
        self.assert_on_one_scale([(loss, point[1]) for loss, point in drawn])
        self.assertGreater(max(point[1] for _, point in drawn) - min(point[1] for _, point in drawn), 200)
        self.assert_on_one_scale([(step, point[0]) for step, point in zip(samples["step"], training)])
        circles = [path for path in report.pictures[name.replace("loss", "steps")].iter(SVG + "path")
                   if "a3.5,3.5" in path.get("d")][:12]
        heights = [float(re.match(r"M[-.\d]+,([-.\d]+)", path.get("d"))[1]) for path in circles]
        self.assert_on_one_scale(list(zip(samples["seconds"], heights)))
        self.assertIn("warm-up, not measured", report.texts(name.replace("loss", "steps")))

    def assert_on_one_scale(self, pairs):
        """Pixels are proportional to values, as far as they are written: a tenth of a pixel."""
        low, high = min(pairs), max(pairs)
        slope = (high[1] - low[1]) / (high[0] - low[0])
        for value, pixel in pairs:
            self.assertAlmostEqual(pixel, low[1] + slope * (value - low[0]), delta=0.2)

    def test_an_invalid_run_is_red_and_its_rate_has_no_good_name(self):
        report = self.report_of(self.invalid.folder / "out" / "result.json")
        self.assertNotIn("FOM", report.everything())
        bad = "".join(text for element in report.page.iter() if element.get("class") == "bad" for text in element.itertext())
        for words in ("RESULT: INVALID", "VERIFICATION FAILED (9/10): loss-curve", "UNVERIFIED_RATE: ", "FAILED"):
            self.assertIn(words, bad)
        self.assertEqual(report.rows("loss-curve")[0][1], "**FAILED**")

    def test_rates_of_several_results_are_compared_without_the_invalid_one(self):
        report = self.report_of(*(one.folder / "out" for one in (self.alone, self.valid, self.invalid)), "--out", "all", folder="all")
        self.assert_self_contained(report)
        self.assertEqual(len(report.pictures), 4 + 3 * len(KINDS) + 1)  # and one of all held-out losses
        self.assertIn("Held-out loss over time", report.markdown)
        self.assertIn("Left out of the plots: out-3 (INVALID)", report.markdown.replace("\\", ""))
        self.assertIn("strong scaling: 32 tokens per step", report.markdown)
        rates = [outcome.result["fom"]["value"] for outcome in (self.alone, self.valid)]
        points, = (coordinates(path) for path in report.lines("scaling-efficiency", "#0072b2"))
        ideal, = (coordinates(path) for path in report.lines("scaling-efficiency", "#000000"))
        self.assertEqual(len(points), 2)
        self.assertAlmostEqual(points[0][1], ideal[0][1], delta=0.1)
        height = next(float(line.get("y1")) for line in report.pictures["scaling-efficiency"].iter(SVG + "line"))
        self.assertAlmostEqual((height - points[1][1]) / (height - ideal[1][1]), rates[1] / rates[0] / 2, delta=0.01)
        self.assertEqual(len(report.rows("out-3")), 1)
        self.assertIn("**INVALID**", report.rows("out-3")[0])

    def test_results_of_different_strategies_are_no_repeats_of_one_another(self):
        sharded = run("run", self.deck.path, *settings("parallel.strategy=zero", "parallel.zero_stage=3"), ranks=2)
        report = self.report_of(*(one.folder / "out" for one in (self.alone, self.valid, sharded)))
        names = " ".join(filter(None, report.texts("scaling-times")))
        self.assertIn('parallel.strategy="zero"', names)
        self.assertIn('parallel.strategy="ddp"', names)

    def test_runs_on_other_cores_are_no_repeats_of_one_another(self):
        other = json.loads(json.dumps(self.valid.result))
        other["machine"]["cores"] += 2
        folder = new_folder()
        (folder / "result.json").write_text(json.dumps(other))
        report = self.report_of(folder, *(one.folder / "out" for one in (self.alone, self.valid)))
        self.assertIn(f"deck.toml, FOM, {other['machine']['cores']} cores for a process", report.texts("scaling-rates"))

    def test_a_deck_of_any_name_makes_a_page(self):
        result = json.loads(json.dumps(self.alone.result))
        name = "a]![b](c.png) & _d_ |e| `f` <script>'g'\"#h.toml"
        result["deck"]["name"] = f"{name}#9f3e"
        folder = new_folder() / "<i> & (x)](y)_z"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(result))
        report = self.report_of(folder, self.valid.folder / "out")
        self.assert_self_contained(report)
        for text in (report.markdown.replace("\\", ""), "".join(report.page.itertext())):
            self.assertIn(f"{name}#9f3e on 1 rank", text)
        self.assertIn(f"{name}, FOM", report.texts("scaling-rates"))
        self.assertIn("-i-----x---y--z-loss", report.pictures)
        unescaped = re.sub(r"\\.", "", report.markdown)
        self.assertNotRegex(unescaped, r"[<>&`_~]|\]\(c")

    def test_a_page_has_the_class_of_its_result(self):
        result = {**self.alone.result, "class": "custom", "class_departures": ["data.steps = 9 instead of 300"]}
        folder = new_folder()
        (folder / "result.json").write_text(json.dumps(result))
        report = self.report_of(folder)
        self.assertEqual(report.rows("benchmark class"),
                         [["benchmark class", "custom, not as the deck says: data.steps = 9 instead of 300"]])
        self.assertEqual(self.report_of(self.valid.folder / "out").rows("benchmark class"), [["benchmark class", "custom"]])

    def test_a_report_needs_no_launcher_and_one_rank_of_a_launch_writes_it(self):
        outcome = run("report", self.valid.folder / "out", ranks=2)
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        self.assertEqual(outcome.out.count("report/index.html\n"), 1)


class Studies(ReportTest):
    def study(self, results, choices=None, **changes):
        """\\param choices  of a sweep, by cell"""
        folder = new_folder()
        points = []
        for name, ranks, outcome in results:
            cell = name.rpartition("-r")[0] or name
            points.append({"name": name, "cell": cell, "ranks": ranks, "nodes": 1, "repeat": 1,
                           "overrides": ["comm.expected_ranks=0"], **({"choice": choices[cell]} if choices else {}),
                           "predicted": {"step_seconds": 0.001 * ranks, "memory_bytes": 3 << 20}})
            if outcome:
                place = folder / "runs" / name
                place.mkdir(parents=True)
                shutil.copy(outcome.folder / "out" / "result.json", place)
        study = {"schema_version": 2, "kind": "sweep" if choices else "strong", "deck": str(self.deck.path),
                 "invariant": "32 tokens per step", "points": points, **changes}
        (folder / "study.json").write_text(json.dumps(study))
        return folder

    def test_a_study_has_its_points_missing_ones_model_and_collectives(self):
        folder = self.study([("n1-r1", 1, self.alone), ("n2-r1", 2, self.valid), ("n2-r2", 2, self.valid),
                             ("n2-r3", 2, self.invalid), ("n4-r1", 4, None)])
        (folder / "model.json").write_text(json.dumps(
            {"form": "a + b / ranks", "parameters": {"a": 0.001, "b": 0.002},
             "points": [{"ranks": 2, "measured_seconds": 0.004, "fitted_seconds": 0.003, "residual": 0.25, "flagged": True}],
             "predictions": [{"ranks": 16, "seconds": 0.0125}]}))
        bench = run("commbench", "-b", "64", "-e", "1K", "-f", "4", "--collectives=all_reduce", "--algorithms=ring,auto,mpi",
                    "--json=bench.json", *QUICK, ranks=2)
        found = json.loads((bench.folder / "bench.json").read_text())
        found["rows"] += [{**row, "algorithm": "nccl", "seconds": {**row["seconds"], "p50": 1e-9}} for row in found["rows"]
                          if row["algorithm"] == "mpi"]
        (folder / "commbench.json").write_text(json.dumps(found))
        report = self.report_of(folder)
        self.assert_self_contained(report)
        self.assertIn("Missing: n4-r1", report.markdown)
        self.assertIn("MISSING", report.rows("n4-r1")[0][5])
        self.assertIn(["2 ms", "3.0 MiB"], [row[-2:] for row in report.rows("n2-r1")])
        self.assertEqual(report.rows("16"), [["16", "not run", "12.5 ms", "", "prediction"]])
        self.assertEqual(report.rows("2"), [["2", "4 ms", "3 ms", "+25.0 %", "**beyond the limit**"]])
        self.assertIn("n2-r3 (INVALID)", report.markdown)
        times = f"{folder.name}-times"
        for words in ("measured", "predicted before the runs", "fitted model", "model beyond the fit", "16"):
            self.assertIn(words, report.texts(times))
        self.assertIn("golden curve", report.texts("n1-r1-loss"))  # of the study's deck
        for words in ("ring", "mpi", "auto"):
            self.assertIn(words, report.texts("commbench-all-reduce-float32-rates"))
        rows = json.loads((folder / "commbench.json").read_text())["rows"]
        ring = next(row for row in rows if row["algorithm"] == "ring" and row["bytes"] == 1024)
        of_size = report.rows("1024 B")[0]
        self.assertAlmostEqual(float(of_size[3]), ring["bus_bytes_per_second"] / 1e9, delta=1e-3)
        self.assertEqual((len(of_size), of_size[1]), (10, "ring"))  # NCCL is faster, and none of ours
        self.assertAlmostEqual(float(of_size[9]), 1e-9 / ring["seconds"]["p50"], delta=0.01)

    def test_what_a_study_holds_the_same_is_counted_from_its_results(self):
        report = self.report_of(self.study([("n1-r1", 1, self.alone), ("n2-r1", 2, self.valid)], invariant="the plan"))
        self.assertIn("says study.json: the plan\n", report.markdown)
        self.assertIn("by these results: strong scaling: 32 tokens per step on any number of ranks.\n", report.markdown)
        report = self.report_of(self.study([("n1-r1", 1, self.alone), ("n2-r1", 2, self.valid)], kind="weak-batch"))
        self.assertIn("**Held the same in deck.toml, FOM, by these results: strong scaling: 32 tokens per step on any number of "
                      "ranks; this is no weak-batch study.**", report.markdown)
        report = self.report_of(self.study([("n1-r1", 1, self.alone), ("n2-r1", 2, self.invalid)]))
        self.assertIn("No line has results on several numbers of ranks to prove it by.", report.markdown)
        self.assertNotIn("by these results", report.markdown)

    def test_in_a_study_a_run_without_a_golden_curve_is_compared_with_those_that_have_one(self):
        folder = self.study([("n1-r1", 1, self.alone), ("n2-r1", 2, self.unreferenced)])
        report = self.report_of(folder)
        self.assertIn("Held the same in deck.toml, FOM and FOM_UNREFERENCED, by these results: strong scaling",
                      report.markdown.replace("\\", ""))
        points, = (coordinates(path) for path in report.lines(f"{folder.name}-efficiency", "#0072b2"))
        self.assertEqual(len(points), 2)

    def test_a_sweep_has_its_choices_and_no_scaling(self):
        sharded = run("run", self.deck.path, *settings("parallel.strategy=zero", "parallel.zero_stage=3"), ranks=2)
        folder = self.study([("n2-ddp-r1", 2, self.valid), ("n2-zero-3-r1", 2, sharded), ("n2-ddp-r2", 2, self.valid),
                             ("n2-zero-3-r2", 2, self.invalid), ("n2-naive-r1", 2, None)],
                            {"n2-ddp": "parallel.strategy=ddp", "n2-naive": "parallel.strategy=naive",
                             "n2-zero-3": "parallel.strategy=zero parallel.zero_stage=3"})
        (folder / "model.json").write_text("{}")  # of an earlier study in this folder
        report = self.report_of(folder)
        self.assert_self_contained(report)
        self.assertIn(f"## Study {folder.name}: sweep of ", report.markdown)
        self.assertIn("Missing: n2-naive-r1", report.markdown)
        self.assertIn("parallel.strategy=zero parallel.zero_stage=3",
                      [row[1].replace("\\", "") for row in report.rows("n2-zero-3-r1")])
        self.assertIn("by these results: 32 tokens per step on 2 ranks.\n", report.markdown)
        steps = [outcome.result["stats"]["step_seconds"]["median"] for outcome in (self.valid, sharded)]
        (first,), (second,) = report.rows("1"), report.rows("2")
        self.assertEqual((first[1:3], first[5:]), (["parallel.strategy=ddp", "2"], ["1.000", "2 ms"]))
        self.assertEqual(second[1].replace("\\", ""), "parallel.strategy=zero parallel.zero_stage=3")
        self.assertAlmostEqual(float(second[5]), steps[0] / steps[1], delta=1e-3)
        self.assertEqual([name for name in report.pictures if name.startswith(folder.name)], [f"{folder.name}-choices"])
        self.assertIn("2: parallel.strategy=zero parallel.zero_stage=3", report.texts(f"{folder.name}-choices"))

    def test_a_study_without_any_result_lists_its_points(self):
        report = self.report_of(self.study([("n1-r1", 1, None), ("n2-r1", 2, None)]))
        self.assertIn("Missing: n1-r1, n2-r1", report.markdown)
        self.assertEqual(report.pictures, {})

    def test_a_damaged_study_is_refused(self):
        cases = {
            "another form": (self.study([("n1", 1, None)], schema_version=1), ["study.json: schema_version 1, must be 2"]),
            "another kind": (self.study([("n1", 1, None)], kind="weak"), ['/kind is "weak"', "weak-batch", "sweep"]),
            "no choice": (self.study([("n1", 1, None)], kind="sweep"), ["/points/0/choice"]),
            "an empty choice": (self.study([("n1", 1, None)], {"n1": ""}), ["/points/0/choice is empty, must be KEY=VALUE"]),
            "a choice in another kind": (self.study([("n1", 1, None)], {"n1": "a=1"}, kind="strong"),
                                         ["/points/0/choice belongs to sweep and to-loss"]),
            "two cells of a choice": (self.study([("a", 1, None), ("b", 1, None)], {"a": "x=1", "b": "x=1"}),
                                      ['cells "a" and "b" have the same choice']),
            "a sweep over ranks": (self.study([("a", 1, None), ("b", 2, None)], {"a": "x=1", "b": "x=2"}),
                                   ["points a and b of a sweep have 1 and 2 ranks"]),
            "no repeats": (self.study([("n1-r1", 1, None), ("n1-r2", 2, None)]),
                           ['points n1-r1 and n1-r2 of cell "n1" are no repeats']),
            "no points": (self.study([]), ["/points"]),
            "too wide a limit": (self.study([("n1", 1, None)], limit=1), ["study.json: /limit is 1, must be below 1"]),
            "two of a name": (self.study([("n1", 1, None), ("n1", 2, None)]), ['two points are called "n1"']),
            "other ranks": (self.study([("n1", 1, self.valid)]), ["runs/n1/result.json: ran on 2 ranks, study.json says 1"]),
        }
        for claim, (folder, words) in cases.items():
            with self.subTest(claim):
                outcome = run("report", folder)
                self.assertEqual((outcome.code, outcome.out, outcome.left), (64, "", []), outcome)
                for word in words:
                    self.assertIn(word, outcome.err)


class Refusals(RefusalTest):
    @classmethod
    def setUpClass(cls):
        cls.whole = run("run", Deck().path).result

    def changed(self, **changes):
        folder = new_folder()
        (folder / "result.json").write_text(json.dumps({**self.whole, **changes}))
        return folder / "result.json"

    def written(self, text, name="file.json"):
        path = pathlib.Path(new_folder()) / name
        path.write_text(text)
        return path

    def test_what_is_no_result_is_refused_with_its_name_and_its_fault(self):
        samples = {**self.whole["samples"], "loss": self.whole["samples"]["loss"][1:]}
        cases = {
            "nothing": ((), ["PATH"]),
            "no file": (("none.json",), ["none.json: cannot be read", "commbench --json"]),
            "an empty folder": ((new_folder(),), ["neither result.json nor study.json"]),
            "a text": ((self.written("text"),), ["file.json: no JSON"]),
            "a machine file": ((self.written('{"kind": "machine"}'),), ['/kind is "machine"', '"commbench", "sweep" or "matmul"']),
            "JSON of another kind": ((self.written("[1, 2]"),), ["/kind is missing"]),
            "another form": ((self.changed(schema_version=2),), ["result.json: schema_version 2, must be 1"]),
            "an unknown status": ((self.changed(status="GOOD"),), ['/status is "GOOD"', "UNREFERENCED"]),
            "a status that contradicts the checks": ((self.changed(status="INVALID", fom=None),), ["/status is INVALID"]),
            "a rate that is not the status'": ((self.changed(status="EMULATED"),), ["/fom must be null", "EMULATED"]),
            "arrays of different length": ((self.changed(samples=samples),), ["/samples/loss has 11 elements", "12"]),
            "no samples": ((self.changed(samples={}),), ["/samples/step is missing"]),
            "no checks": ((self.changed(status="VALID", verification=[]),), ["/status is VALID", "/verification has no check"]),
            "VALID without a loss curve": ((self.changed(status="VALID"),), ["/status is VALID", "has no loss-curve"]),
            "an emulated network": ((self.changed(topology={**self.whole["topology"], "emulated_network": {
                "latency_seconds": 1e-3, "seconds_per_byte": 0}}),), ["/topology/emulated_network is not null"]),
            "a rate of other steps": ((self.changed(fom={**self.whole["fom"], "value": 1}),), ["its rate is 1, the steps of"]),
            "an odd key": ((self.changed(metrics={"~": "text"}),), ['/metrics/~0 is "text"']),
            "a negative time": ((self.changed(samples={**self.whole["samples"], "phases": {
                **self.whole["samples"]["phases"], "comm": [-1] * 12}}),), ["/samples/phases/comm/0 is -1"]),
            "too large a number": ((self.changed(losses_before_restart=[1e300]),), ["/losses_before_restart/0 is 1e+300"]),
            "collectives of another form": ((self.written('{"kind": "commbench", "schema_version": 7}'),),
                                            ["schema_version 7, must be 1"]),
            "no golden curves": ((self.changed(), "--golden", "none.json"), ["none.json: there are no golden curves"]),
            "nowhere to write": ((self.changed(), "--out", "/proc/nothing"), ["--out /proc/nothing: cannot make"]),
        }
        self.check_all((claim, start("report", *arguments), words) for claim, (arguments, words) in cases.items())
