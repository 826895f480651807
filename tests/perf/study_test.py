#!/usr/bin/env python3
"""perf/study/ on made-up results: what is a study, what counts, what runs.

usage: study_test.py [unittest options]
"""
import copy
import csv
import json
import pathlib
import subprocess
import sys
import unittest
import unittest.mock

# first, as they find perf
from commands import PERF
from study_fixture import CODE, collect_quietly, InFolder, PARAMETERS, record_of, result_of, seconds_of, TOKENS
from lib.files import write_json
from lib.program import Refused
from study import collection, planning, submission
from study.folder import Study, why_not_usable


class Collect(InFolder):
    def test_a_good_study_has_a_row_per_run_and_the_usual_efficiency(self):
        study = self.strong()
        self.assertEqual(collect_quietly(study), 0)
        collected = json.loads((self.folder / "collected.json").read_text())
        self.assertEqual((collected["violations"], collected["mixes"], collected["without_rate"]), ([], [], []))
        for point in collected["points"]:
            self.assertAlmostEqual(point["efficiency"], seconds_of(1) / (point["ranks"] * seconds_of(point["ranks"])))
            self.assertEqual(point["rate_names"], ["FOM_UNREFERENCED"])
        with open(self.folder / "collected.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 6)
        self.assertEqual((rows[2]["name"], rows[2]["straggler"], rows[2]["straggler_ratio"], rows[2]["counted_messages"]),
                         ("n4-r1", "3", "1.6", "60"))

    def test_the_fewest_ranks_are_the_first_in_any_order_of_points(self):
        study = self.study_of("strong", {ranks: result_of(ranks) for ranks in (4, 1, 2)})
        points = collection.collect(study)["points"]
        self.assertEqual([(point["ranks"], point["cell"]) for point in points], [(1, "n1"), (2, "n2"), (4, "n4")])
        self.assertEqual(points[0]["efficiency"], 1)

    def test_efficiency_of_weak_studies_is_the_time_of_the_same_work(self):
        results = {ranks: result_of(ranks, seconds=1 + 0.1 * ranks, tokens=TOKENS * ranks, changes={"batch.global": 8 * ranks,
                                                                                                  "batch.accumulation": 8})
                   for ranks in (1, 4)}
        for result in results.values():
            result["counted"]["flops"] = result["predicted"]["flops"] = 1000
        points = collection.collect(self.study_of("weak-batch", results, 3))["points"]
        self.assertAlmostEqual(points[1]["efficiency"], 1.1 / 1.4)

    def with_factors(self, ranks, factors):
        """The point of those ranks of a study whose runs there took so much longer, as are the base's first and last."""
        study = self.strong(repeats=len(factors))
        for repeat, factor in enumerate(factors, 1):
            self.write(study, f"n{ranks}-r{repeat}", result_of(ranks, seconds_of(ranks) * factor))
        self.write(study, "n1-r1", result_of(1, seconds_of(1) * 1.2))
        self.assertEqual(collection.collect(study)["points"], collection.collect(study)["points"])
        (found,) = (point for point in collection.collect(study)["points"] if point["ranks"] == ranks)
        return found, seconds_of(1) / (ranks * seconds_of(ranks))

    def test_few_repeats_have_a_range_and_no_interval(self):
        for factors, median in (((1.0, 1.3), 1.15), ((1.0, 1.1, 1.3), 1.1), ((1.0, 1.1, 1.1, 1.1, 1.3), 1.1)):
            found, perfect = self.with_factors(4, factors)
            self.assertEqual(found["efficiency_interval"], "min..max")
            self.assertAlmostEqual(found["efficiency_low"], perfect / 1.3)
            self.assertAlmostEqual(found["efficiency_high"], perfect * 1.2)
            if len(factors) > 2:
                self.assertAlmostEqual(found["efficiency"], perfect / median)
        self.assertEqual(collect_quietly(Study(self.folder)), 0)
        columns = (self.folder / "collected.csv").read_text().splitlines()[0].split(",")
        self.assertEqual([name for name in columns if "ci95" in name], ["rate_ci95_of_steps_low", "rate_ci95_of_steps_high"])
        single, _ = self.with_factors(4, (1.3,))
        self.assertEqual([single[f"efficiency_{key}"] for key in ("low", "high", "interval")], [None] * 3)

    def test_six_repeats_have_an_interval_inside_their_range(self):
        found, perfect = self.with_factors(4, (1.0, 1.1, 1.1, 1.1, 1.1, 1.3))
        self.assertEqual(found["efficiency_interval"], "ci95")
        self.assertGreater(found["efficiency_low"], perfect / 1.3)
        self.assertLess(found["efficiency_high"], perfect * 1.2)
        self.assertLessEqual(found["efficiency_low"], found["efficiency"])
        self.assertLessEqual(found["efficiency"], found["efficiency_high"])

    def test_what_a_kind_keeps_the_same_must_be_the_same(self):
        scaled = {"batch.global": 16, "batch.accumulation": 8}
        cases = {
            "strong": (result_of(2, tokens=TOKENS + 1), "tokens per step differ: n1-r1 4096, n2-r1 4097"),
            "weak-batch": (result_of(2, changes=scaled), "tokens per rank and step differ: n1-r1 4096, n2-r1 2048"),
            "weak-model": (result_of(2, parameters=3 * PARAMETERS), "parameters per rank differ by more than the limit"),
        }
        for kind, (second, message) in cases.items():
            with self.subTest(kind=kind):
                study = self.study_of(kind, {1: result_of(1), 2: second})
                self.assertTrue(any(message in line for line in collection.collect(study)["violations"]))
                self.assertEqual(collect_quietly(study), 65)
        near = self.study_of("weak-model", {1: result_of(1), 2: result_of(2, parameters=2.1 * PARAMETERS)})
        self.assertEqual(collection.collect(near)["violations"], [])

    def test_tampered_counters_are_found_and_no_rate_is_left(self):
        def add(key, difference):
            return lambda result: result["counted"].update({key: result["counted"][key] + difference})
        total = 4 * PARAMETERS + 8
        changes = [("sent_bytes", add("sent_bytes", 1)), ("messages", add("messages", -1)), ("flops", add("flops", -1)),
                   ("memory", lambda result: result["counted"]["memory_bytes"].update(data=8)),
                   ("memory", lambda result: result["counted"]["memory_bytes"].update(data=8, total=total))]
        for number, (name, change) in enumerate(changes):
            with self.subTest(name=name, number=number):
                collected = self.tamper(self.strong(), "n2-r2", change)
                self.assertTrue(collected["violations"])
                self.assertTrue(all(line.startswith(f"n2-r2: {name}") for line in collected["violations"]), collected)
                self.assertEqual(({row["rate"] for row in collected["rows"]}, collected["points"]), ({None}, []))

    def test_a_skipped_update_sends_less_and_never_more(self):
        def skipped(change):
            return lambda result: (result["metrics"].update(skipped_steps=1), result["counted"].update(messages=20 + change))
        self.assertEqual(self.tamper(self.strong(), "n2-r1", skipped(-1))["violations"], [])
        self.assertEqual(self.tamper(self.strong(), "n2-r1", skipped(1))["violations"],
                         ["n2-r1: messages counted 21, predicted 20"])

    def test_a_run_of_another_deck_or_of_other_ranks_is_found(self):
        study = self.study_of("strong", {1: result_of(1), 2: result_of(2, changes={"optimizer.lr": 0.2})})
        self.assertEqual(collection.collect(study)["violations"], ["n2-r1: optimizer.lr = 0.2, in n1-r1 0.1"])
        collected = self.tamper(self.strong(), "n1-r1", lambda result: result["params"]["optimizer.lr"].update({"value": 3}))
        self.assertIn("n1-r1: optimizer.lr = 3, planned 0.1", collected["violations"])
        study = self.strong()
        self.write(study, "n4-r2", result_of(2))
        self.assertIn("n4-r2: ran on 2 ranks, must be 4", collection.collect(study)["violations"])

    def test_the_batch_of_a_rank_may_not_change_between_repeats(self):
        collected = self.tamper(self.strong(), "n1-r2", lambda result: result["params"]["batch.accumulation"].update({"value": 4}))
        self.assertIn("n1-r2: batch.accumulation = 4, in n1-r1 8", collected["violations"])

    def test_runs_without_a_rate_are_listed_and_have_none(self):
        study = self.strong()
        self.tamper(study, "n2-r1", lambda result: result.update(status="INVALID", fom=None))
        self.tamper(study, "n2-r2", lambda result: result.update(status="STOPPED", fom=None, window=None))
        (study.folder / "runs/n4-r1/result.json").write_text('{"kind": "ru')
        collected = collection.collect(study)
        self.assertEqual(collected["without_rate"], ["n2-r1 INVALID", "n4-r1 MISSING", "n2-r2 STOPPED"])
        self.assertEqual([point["ranks"] for point in collected["points"]], [1, 4])
        self.assertEqual([row.get("rate") for row in collected["rows"] if row["ranks"] == 2], [None, None])
        self.assertEqual(collected["violations"], [])

    def test_a_usable_status_without_a_measured_step_is_listed_and_has_no_rate(self):
        study = self.strong()
        collected = self.tamper(study, "n2-r1", lambda result: result.update(status="VALID", fom=None, window=None,
                                                                             stats={"step_seconds": None}))
        self.assertEqual(collected["without_rate"], ["n2-r1 VALID without FOM"])
        self.assertEqual([(point["ranks"], point["runs"]) for point in collected["points"]], [(1, 2), (2, 1), (4, 2)])
        (row,) = (row for row in collected["rows"] if row["name"] == "n2-r1")
        self.assertEqual([row[key] for key in ("rate_name", "rate", "step_seconds_median")], [None] * 3)

    def test_mixed_machines_versions_and_rates_are_named(self):
        study = self.strong()
        self.tamper(study, "n2-r1", lambda result: result.update({"status": "VALID", "class": "small",
                                                                  "machine": {"cpu": "other", "device": "NVIDIA H100", "mpi": "none"}}))
        mixes = self.tamper(study, "n4-r1", lambda result: result["code"].update(git="def"))["mixes"]
        self.assertEqual(mixes, ["mixed versions: 1 git abc, 1 git def", "mixed processors: other, paper",
                                 "mixed devices: NVIDIA H100, none", "mixed classes: custom, small", "mixed kinds of rates: FOM, FOM_UNREFERENCED"])

    def test_results_that_are_older_than_classes_and_energy_keep_their_rates(self):
        study = self.strong()
        self.tamper(study, "n2-r1", lambda result: result.update({"class": None}))
        collected = self.tamper(study, "n4-r1", lambda result: [result.pop(key) for key in ("class", "energy")])
        self.assertEqual([point["runs"] for point in collected["points"]], [2, 2, 2])
        self.assertEqual((collected["without_rate"], collected["mixes"]), ([], ["mixed classes: custom, unknown"]))
        self.assertEqual([row["class"] for row in collected["rows"]], ["custom", "unknown", "unknown"] + ["custom"] * 3)
        self.assertIsNone(collected["rows"][2]["host_joules"])
        self.assertEqual(collect_quietly(study), 0)

    def test_a_run_that_is_valid_by_a_golden_file_of_its_own_is_of_no_class(self):
        result = {**result_of(2), "status": "VALID", "class": "tiny"}
        for released, expected in ((True, "tiny"), (False, "custom")):
            golden = {"digest": "0" * 16, "recorded_with": "somebody", "released": released}
            self.assertEqual(collection.class_of({**result, "golden": golden}), expected)
        self.assertEqual(collection.class_of({**result, "golden": None}), "tiny")
        self.assertEqual(collection.class_of(result), "tiny")

    def test_runs_on_other_nodes_than_planned_are_named(self):
        mixes = self.tamper(self.strong(), "n4-r2", lambda result: result["topology"].update(nodes=2))["mixes"]
        self.assertEqual(mixes, ["n4-r2: ran on 2 nodes, planned 1"])


class Plan(unittest.TestCase):
    def lines(self, ranks, ranks_per_node):
        """The table of these numbers of ranks, of a step of 36 s."""
        same = {"fits": None, "compute_seconds": 30, "communication_seconds": 6, "model_parameters": 10, "needed_bytes": 1}
        estimates = {planning.Cell(f"n{one}", one): {**record_of(one, {"data.steps": 100}), **same, "topology": {
            "ranks": one, "nodes": -(-one // (ranks_per_node or one))}} for one in ranks}
        plan = {"model_parameters": 10, "own_ranks": 1, "ranks_per_node": ranks_per_node}
        return planning.table("strong", plan, estimates, 2)

    def test_node_hours_without_ranks_per_node_say_that_they_are_of_one_node(self):
        one_node, several = self.lines((1, 2, 8), None), self.lines((1, 2, 8), 2)
        self.assertIn("all ranks on one node", one_node[-1])
        self.assertIn("--ranks-per-node says otherwise", one_node[-1])
        self.assertEqual(one_node[-2], "sum of 6 runs: 6 node-hours")
        self.assertEqual(several[-1], "sum of 6 runs: 12 node-hours")
        self.assertEqual(self.lines((1,), None)[-1], "sum of 2 runs: 2 node-hours")


class StudyFiles(InFolder):
    """study.json decides which folders are cleared and written."""

    def setUp(self):
        super().setUp()
        self.strong()
        self.good = json.loads((self.folder / "study.json").read_text())

    def refusal(self, **changes):
        """Why the study with a changed first point is refused."""
        study = copy.deepcopy(self.good)
        study["points"][0].update(changes)
        write_json(self.folder / "study.json", study)
        with self.assertRaises(Refused) as refused:
            submission.clear(Study(self.folder), study["points"][0], record_of(1))
        return str(refused.exception)

    def test_a_name_that_leaves_the_folder_of_runs_is_refused_and_nothing_is_removed(self):
        victim = self.folder / "victim"
        victim.mkdir()
        (victim / "data").write_text("mine")
        before = sorted(self.folder.rglob("*"))
        for name in ("../victim", str(victim), "n1/../../victim", "..", ".", "", "a/b", "a\tb", "a\nb", None, 3, ["a"]):
            with self.subTest(name=name):
                self.assertIn("must be the name of a folder", self.refusal(name=name))
        self.assertIn("two points are called", self.refusal(name=self.good["points"][1]["name"]))
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_every_command_refuses_such_a_study(self):
        self.refusal(name="../victim")
        for command in (["submit", self.folder, "local"], ["submit", self.folder, "slurm"], ["collect", self.folder],
                        ["model", self.folder], ["report", self.folder]):
            ended = subprocess.run([sys.executable, PERF / "study" / command[0], *command[1:]],
                                   capture_output=True, text=True, check=False)
            self.assertEqual(ended.returncode, 64, ended)
            self.assertIn('a point is called "../victim"', ended.stderr)

    def test_numbers_that_names_of_scripts_are_made_of_are_numbers(self):
        for ranks in ("../../x", 0, -1, 1.5, True, None):
            self.assertIn("ranks of point n1-r1 must be an integer above 0", self.refusal(ranks=ranks))
        self.assertIn("nodes, repeat of point", self.refusal(nodes="1", repeat=[]))
        for overrides in (None, "a=1", ["a=1\tb=2"], [1]):
            self.assertIn("overrides of point n1-r1 must be", self.refusal(overrides=overrides))

    def test_points_of_a_cell_are_repeats_of_one_run(self):
        for cell in (None, "", "..", "a/b", 3):
            self.assertIn("cell of point n1-r1 must be the name of a folder", self.refusal(cell=cell))
        for change in ({"overrides": ["a=1"]}, {"nodes": 2}, {"ranks": 3}):
            self.assertIn(f"{[*change][0]} of points n1-r1 and n1-r2 of cell n1 differ", self.refusal(**change))
        self.assertIn("estimates of another are missing", self.refusal(cell="another"))
        self.assertIn("choice of point n1-r1 must be a text of one line in sweep and to-loss, and absent", self.refusal(choice="a=1"))

    def test_a_study_of_another_version_or_without_points_is_refused(self):
        for points in ([], {"name": "x"}, None):
            write_json(self.folder / "study.json", {"schema_version": 2, "points": points})
            with self.assertRaisesRegex(Refused, "points must be an array"):
                Study(self.folder)
        for study in ([], {}, {**self.good, "schema_version": 1}):
            write_json(self.folder / "study.json", study)
            with self.assertRaisesRegex(Refused, "study.json: schema_version .*, must be 2; plan the study again"):
                Study(self.folder)
        write_json(self.folder / "study.json", self.good)
        write_json(self.folder / "plan.json", {"schema_version": 1})
        with self.assertRaisesRegex(Refused, "plan.json: schema_version 1, must be 2; plan the study again"):
            Study(self.folder)

    def test_what_cannot_be_set_aside_leaves_all_as_it_was(self):
        study = self.strong()
        before = sorted((self.folder / "runs").rglob("*"))
        self.assertGreater(len(before), 6)
        whole, points = pathlib.Path.rename, [point for point in study.points if point["ranks"] == 1]

        def second_fails(path, target):
            if path.name == points[1]["name"] and path.parent.name == "runs":
                raise OSError(18, "Invalid cross-device link", str(path))
            return whole(path, target)

        with unittest.mock.patch.object(pathlib.Path, "rename", second_fails), self.assertRaisesRegex(Refused, "cross-device"):
            with submission.set_aside(study, points, {"n1": record_of(1, {"batch.micro": 9})}, self.folder / "aside"):
                self.fail("entered")
        self.assertEqual(sorted((self.folder / "runs").rglob("*")), before)
        self.assertFalse((self.folder / "aside").exists())


class WhatRuns(InFolder):
    def test_a_result_counts_only_for_the_same_keys_program_and_ranks(self):
        estimate, good = record_of(2), result_of(2)
        self.assertEqual(why_not_usable(good, estimate), "")
        self.assertEqual(why_not_usable(result_of(2, changes={"checkpoint.dir": "kept"}), estimate), "")
        traced = result_of(2, changes={"trace.file": "runs/n2-r1/trace.json"})
        self.assertEqual(why_not_usable(traced, record_of(2, {"trace.file": "trace.json"})), "")
        self.assertEqual(why_not_usable(traced, record_of(2, {"trace.file": ""})), "other values of trace.file")
        others = {"no result": None, "INVALID": {**good, "status": "INVALID"}, "ran on 1 ranks": result_of(1),
                  "other values of optimizer.lr": result_of(2, changes={"optimizer.lr": 1}),
                  "another program, 1 git new, g++, 5 Serial": {**good, "code": {**CODE, "git": "new"}}}
        for reason, result in others.items():
            self.assertEqual(why_not_usable(result, estimate), reason)

    def test_a_result_without_a_rate_does_not_count(self):
        nan, rate = float("nan"), result_of(2)["fom"]
        rates = [None, {}, *({**rate, "value": value} for value in (0, -1.0, nan, float("inf"), None, True, "2")),
                 {**rate, "ci95": []}, {**rate, "ci95": [1.0, nan]}]
        for status in ("VALID", "UNREFERENCED"):
            name = {"VALID": "FOM", "UNREFERENCED": "FOM_UNREFERENCED"}[status]
            for one in rates:
                with self.subTest(status=status, rate=one):
                    result = {**result_of(2), "status": status, "fom": one}
                    self.assertEqual(why_not_usable(result, record_of(2)), f"{status} without {name}")
        emulated = {**result_of(2), "status": "EMULATED"}
        self.assertEqual(why_not_usable(emulated, record_of(2)), "EMULATED without FOM_EMULATED")
        self.assertEqual(why_not_usable({**emulated, "fom": None, "emulated_rate": rate}, record_of(2)), "")
        self.assertEqual(why_not_usable({**result_of(2), "fom": {**rate, "unit": "steps/s"}}, record_of(2)),
                         "FOM_UNREFERENCED is in steps/s, must be tokens/s")
        self.assertEqual(why_not_usable({**result_of(2), "class": None}, record_of(2)), "")

    def test_repeats_are_interleaved_in_an_order_that_the_seed_decides(self):
        points = [{"name": f"n{ranks}-r{repeat}", "repeat": repeat} for ranks in range(1, 9) for repeat in (1, 2)]
        first, again, other = (submission.order_of(copy.deepcopy(points), seed) for seed in (1, 1, 2))
        self.assertEqual([point["repeat"] for point in first], [1] * 8 + [2] * 8)
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual([point["name"][:2] for point in first[:8]], [point["name"][:2] for point in first[8:]])

    def test_layers_grow_with_ranks_or_are_refused_beyond_the_limit(self):
        plan = {"model_parameters": 1200, "own_ranks": 2, "parameters_besides_layers": 200, "parameters_per_layer": 500,
                "limit": 0.1}
        self.assertEqual([planning.layers_for(plan, ranks) for ranks in (2, 6, 20)], [2, 7, 24])
        with self.assertRaisesRegex(Refused, r"1 layers on 1 ranks are 700 parameters per rank, \+16\.7 % from 600"):
            planning.layers_for(plan, 1)

    def test_dedicated_servers_are_no_ranks_that_a_study_divides_by(self):
        plan = {"model_parameters": 1200, "own_ranks": 3, "servers": 1, "parameters_besides_layers": 200,
                "parameters_per_layer": 500, "limit": 0.1, "global": 8, "micro": 2, "settings": [], "tokens_per_step": 64}
        self.assertEqual([planning.layers_for(plan, ranks) for ranks in (3, 7, 21)], [2, 7, 24])
        self.assertIn("batch.global=16", planning.overrides_for("weak-batch", plan, 5))
        self.assertEqual(planning.invariant_of("weak-batch", plan, []), "32 tokens per rank and step")
        served = result_of(3, tokens=64)
        served["ranks"][2] |= {"serves": True, "median_own_seconds": 9}
        more = result_of(5, tokens=128)
        more["ranks"][4] |= {"serves": True, "median_own_seconds": 9}
        self.assertEqual(collection.broken_invariant("weak-batch", 0.1, {"n3": served, "n5": more}), [])
        self.assertEqual(collection.slowest_rank(served)["straggler_ratio"], 2 / 1.5)


if __name__ == "__main__":
    unittest.main()
