#!/usr/bin/env python3
"""perf/study: judged on made-up results, and used for a real study of a tiny model on 1 and 2 ranks.

usage: study_test.py PROGRAM MPIEXEC [unittest options]
"""
import contextlib
import copy
import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF = pathlib.Path(__file__).resolve().parent.parent.parent / "perf"
sys.path.insert(0, str(PERF))
import study_collect
import study_model
import study_plan
import study_submit
from study_program import Refused, Study, why_not_usable, write_json

ALPHA, BETA, GAMMA = 2e-6, 3e-10, 5e-12  # s per message, byte and FLOP
PARAMETERS, STEP_FLOPS, TOKENS = 10000, 4e9, 4096
DECK = """model.layers = 2
model.heads = 1
model.channels = 16
model.context = 8
model.vocab = 61
data.source = "synthetic"
data.steps = 12
batch.micro = 1
batch.global = 4
optimizer.schedule = "constant"
"""


def work_of(ranks):
    """Ring all-reduce of all gradients; integers, as counters are."""
    return {"memory_bytes": {"parameters": 4 * PARAMETERS, "data": 7, "total": 4 * PARAMETERS + 7},
            "sent_bytes": 8 * PARAMETERS * (ranks - 1) // ranks, "messages": 20 * (ranks - 1), "flops": int(STEP_FLOPS / ranks),
            "kernel_launches": 11}


def seconds_of(ranks):
    work = work_of(ranks)
    return GAMMA * work["flops"] + ALPHA * work["messages"] + BETA * work["sent_bytes"]


def record_of(ranks, changes=()):
    """What a result and an estimate have in common."""
    values = {"model.layers": 2, "comm.expected_ranks": ranks, "batch.micro": 1, "batch.accumulation": 8 // ranks or 1,
              "batch.global": 8, "optimizer.lr": 0.1, "checkpoint.dir": "", **dict(changes)}
    return {"params": {key: {"value": value, "origin": "default"} for key, value in values.items()},
            "code": {"version": "1", "git": "abc", "dirty": False}, "topology": {"ranks": ranks, "nodes": 1},
            "deck": {"hash": "0" * 16}}


def result_of(ranks, seconds=None, tokens=TOKENS, parameters=PARAMETERS, changes=()):
    seconds = seconds or seconds_of(ranks)
    phases = {name: [seconds / 10] * 3 for name in study_collect.PHASES}
    return {**record_of(ranks, changes), "kind": "run", "status": "UNREFERENCED", "exit_code": 0,
            "machine": {"cpu": "paper", "mpi": "none"}, "predicted": work_of(ranks), "counted": work_of(ranks),
            "energy": None, "wall_seconds": 1.0, "window": {"first_step": 2, "last_step": 3},
            "samples": {"step": [1, 2, 3], "tokens": [tokens] * 3, "phases": phases},
            "ranks": [{"median_own_seconds": 1 + rank} for rank in range(ranks)],
            "straggler": {"rank": ranks - 1, "host": "here"}, "stats": {"step_seconds": {"median": seconds}},
            "fom": {"value": tokens / seconds, "unit": "tokens/s", "ci95": [1.0, 2.0]}, "emulated_rate": None,
            "metrics": {"model_parameters": parameters}}


def collect_quietly(study):
    with contextlib.redirect_stdout(io.StringIO()):
        return study_collect.collect_study(study)


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-study-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def study_of(self, kind, results, repeats=1):
        """A study as planned with the keys of these results (by ranks), each as often as said."""
        points = [{"name": f"n{ranks}-r{repeat}", "ranks": ranks, "nodes": 1, "repeat": repeat, "overrides": [],
                   "predicted": {"step_seconds": None, "memory_bytes": 1}}
                  for repeat in range(1, repeats + 1) for ranks in results]
        estimates = {str(ranks): record_of(ranks, {key: entry["value"] for key, entry in result["params"].items()})
                     for ranks, result in results.items()}
        write_json(self.folder / "study.json", {"schema_version": 1, "kind": kind, "deck": "d", "invariant": "i", "points": points})
        write_json(self.folder / "plan.json", {"estimates": estimates, "limit": 0.1, "deck": "d"})
        study = Study(self.folder)
        for point in points:
            self.write(study, point["name"], results[point["ranks"]])
        return study

    def write(self, study, name, result):
        write_json(study.folder / "runs" / name / "result.json", result)

    def strong(self, repeats=2):
        return self.study_of("strong", {ranks: result_of(ranks) for ranks in (1, 2, 4)}, repeats)

    def tamper(self, study, name, change):
        path = study.folder / "runs" / name / "result.json"
        result = json.loads(path.read_text())
        change(result)
        write_json(path, result)
        return study_collect.collect(study)


class Model(InFolder):
    def points(self, ranks, times=None):
        return [{"ranks": one, "step_seconds_median": (times or {}).get(one, seconds_of(one)),
                 **{f"counted_{key}": value for key, value in work_of(one).items()}} for one in ranks]

    def test_perfect_alpha_beta_data_give_their_alpha_beta_and_gamma(self):
        for ranks in ((1, 2, 4, 8), (1, 2, 3, 5, 8, 16, 64)):
            model = study_model.fitted_model(self.points(ranks))
            for name, value in {"alpha_seconds_per_message": ALPHA, "beta_seconds_per_byte": BETA,
                                "gamma_seconds_per_flop": GAMMA}.items():
                self.assertAlmostEqual(model["parameters"][name] / value, 1, delta=1e-6)
                self.assertAlmostEqual(model["held_out"]["parameters"][name] / value, 1, delta=1e-6)
            self.assertLess(max(abs(point["residual"]) for point in model["points"]), 1e-9)
            self.assertFalse(any(point["flagged"] for point in model["points"]))

    def test_a_largest_scale_20_percent_above_what_the_others_say_is_flagged_alone(self):
        model = study_model.fitted_model(self.points((1, 2, 4, 8, 16), {16: 1.2 * seconds_of(16)}))
        self.assertEqual([point["ranks"] for point in model["points"] if point["flagged"]], [16])
        self.assertAlmostEqual(model["points"][-1]["residual"], 1 / 1.2 - 1)

    def test_three_numbers_of_ranks_have_two_terms_and_two_are_too_few(self):
        self.assertEqual(study_model.fitted_model(self.points((1, 2, 4)))["form"], "t = gamma flops + beta bytes")
        few = study_model.fitted_model(self.points((1, 2)))
        self.assertEqual((few["parameters"], few["points"]), ({}, []))
        self.assertIn("not fitted: 2 numbers of ranks", few["form"])

    def test_no_coefficient_is_negative_and_the_rest_fit_best(self):
        found = study_model.non_negative_fit([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], [3.0, 2.0, 1.0])
        self.assertEqual(found[1], 0)  # a line through these falls
        times = (3, 2, 1)
        self.assertAlmostEqual(found[0], sum(1 / t for t in times) / sum(1 / t**2 for t in times))

    def test_a_prediction_prices_what_the_program_says_of_those_ranks(self):
        class OnPaper:
            def estimate(self, _deck, ranks, _nodes, overrides, *_):
                assert f"comm.expected_ranks={ranks}" in overrides
                return {"predicted": work_of(ranks)}
        study = self.strong()
        study.plan |= {"settings": [], "micro": 1, "global": 64, "own_ranks": 1, "ranks_per_node": None, "machine": None,
                       "device-mem": None}
        parameters = study_model.fitted_model(self.points((1, 2, 4, 8)))["parameters"]
        for found in study_model.predictions(study, parameters, [16, 32], OnPaper()):
            self.assertAlmostEqual(found["seconds"] / seconds_of(found["ranks"]), 1, delta=1e-6)


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

    def test_efficiency_of_weak_studies_is_the_time_of_the_same_work(self):
        results = {ranks: result_of(ranks, seconds=1 + 0.1 * ranks, tokens=TOKENS * ranks, changes={"batch.global": 8 * ranks,
                                                                                                  "batch.accumulation": 8})
                   for ranks in (1, 4)}
        for result in results.values():
            result["counted"]["flops"] = result["predicted"]["flops"] = 1000
        points = study_collect.collect(self.study_of("weak-batch", results, 3))["points"]
        self.assertAlmostEqual(points[1]["efficiency"], 1.1 / 1.4)

    def test_the_interval_of_efficiency_holds_its_repeats_and_is_the_same_every_time(self):
        study = self.strong(repeats=3)
        for repeat, factor in enumerate((1.0, 1.1, 1.3), 1):
            self.write(study, f"n4-r{repeat}", result_of(4, seconds_of(4) * factor))
        first, second = (study_collect.collect(study)["points"][2] for _ in range(2))
        self.assertEqual(first, second)
        perfect = seconds_of(1) / (4 * seconds_of(4))
        self.assertAlmostEqual(first["efficiency_ci95"][0], perfect / 1.3)
        self.assertAlmostEqual(first["efficiency_ci95"][1], perfect)
        self.assertAlmostEqual(first["efficiency"], perfect / 1.1)

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
                self.assertTrue(any(message in line for line in study_collect.collect(study)["violations"]))
                self.assertEqual(collect_quietly(study), 65)
        near = self.study_of("weak-model", {1: result_of(1), 2: result_of(2, parameters=2.1 * PARAMETERS)})
        self.assertEqual(study_collect.collect(near)["violations"], [])

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
        self.assertEqual(study_collect.collect(study)["violations"], ["n2-r1: optimizer.lr = 0.2, in n1-r1 0.1"])
        collected = self.tamper(self.strong(), "n1-r1", lambda result: result["params"]["optimizer.lr"].update({"value": 3}))
        self.assertIn("n1-r1: optimizer.lr = 3, planned 0.1", collected["violations"])
        study = self.strong()
        self.write(study, "n4-r2", result_of(2))
        self.assertIn("n4-r2: ran on 2 ranks, must be 4", study_collect.collect(study)["violations"])

    def test_the_batch_of_a_rank_may_not_change_between_repeats(self):
        collected = self.tamper(self.strong(), "n1-r2", lambda result: result["params"]["batch.accumulation"].update({"value": 4}))
        self.assertIn("n1-r2: batch.accumulation = 4, in n1-r1 8", collected["violations"])

    def test_runs_without_a_rate_are_listed_and_have_none(self):
        study = self.strong()
        self.tamper(study, "n2-r1", lambda result: result.update(status="INVALID", fom=None))
        self.tamper(study, "n2-r2", lambda result: result.update(status="STOPPED", fom=None, window=None))
        (study.folder / "runs/n4-r1/result.json").write_text('{"kind": "ru')
        collected = study_collect.collect(study)
        self.assertEqual(collected["without_rate"], ["n2-r1 INVALID", "n4-r1 MISSING", "n2-r2 STOPPED"])
        self.assertEqual([point["ranks"] for point in collected["points"]], [1, 4])
        self.assertEqual([row.get("rate") for row in collected["rows"] if row["ranks"] == 2], [None, None])
        self.assertEqual(collected["violations"], [])

    def test_mixed_machines_versions_and_rates_are_named(self):
        study = self.strong()
        self.tamper(study, "n2-r1", lambda result: result.update(status="VALID", machine={"cpu": "other", "mpi": "none"}))
        mixes = self.tamper(study, "n4-r1", lambda result: result["code"].update(git="def"))["mixes"]
        self.assertEqual(mixes, ["mixed versions: 1 git abc, 1 git def", "mixed processors: other, paper",
                                 "mixed kinds of rates: FOM, FOM_UNREFERENCED"])


class WhatRuns(InFolder):
    def test_a_result_counts_only_for_the_same_keys_program_and_ranks(self):
        estimate, good = record_of(2), result_of(2)
        self.assertEqual(why_not_usable(good, estimate), "")
        self.assertEqual(why_not_usable(result_of(2, changes={"checkpoint.dir": "kept"}), estimate), "")
        others = {"no result": None, "INVALID": {**good, "status": "INVALID"}, "ran on 1 ranks": result_of(1),
                  "other values of optimizer.lr": result_of(2, changes={"optimizer.lr": 1}),
                  "another program, 1 git new": {**good, "code": {"version": "1", "git": "new", "dirty": False}}}
        for reason, result in others.items():
            self.assertEqual(why_not_usable(result, estimate), reason)

    def test_repeats_are_interleaved_in_an_order_that_the_seed_decides(self):
        points = [{"name": f"n{ranks}-r{repeat}", "repeat": repeat} for ranks in range(1, 9) for repeat in (1, 2)]
        first, again, other = (study_submit.order_of(copy.deepcopy(points), seed) for seed in (1, 1, 2))
        self.assertEqual([point["repeat"] for point in first], [1] * 8 + [2] * 8)
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual([point["name"][:2] for point in first[:8]], [point["name"][:2] for point in first[8:]])

    def test_layers_grow_with_ranks_or_are_refused_beyond_the_limit(self):
        plan = {"model_parameters": 1200, "own_ranks": 2, "parameters_besides_layers": 200, "parameters_per_layer": 500,
                "limit": 0.1}
        self.assertEqual([study_plan.layers_for(plan, ranks) for ranks in (2, 6, 20)], [2, 7, 24])
        with self.assertRaisesRegex(Refused, r"1 layers on 1 ranks are 700 parameters per rank, \+16\.7 % from 600"):
            study_plan.layers_for(plan, 1)


class Whole(InFolder):
    """With the program itself."""
    program = mpiexec = None

    def study(self, *words, program=None):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "KOKKOS_DISABLE_WARNINGS": "1"}
        environment.pop("TRAINSTONE_SET", None)
        path = f"{self.folder}:{environment['PATH']}"
        named = [] if words[0] == "collect" else ["--program", str(program or self.program)]
        return subprocess.run([sys.executable, PERF / "study", *map(str, words), *named], cwd=self.folder, text=True,
                              env={**environment, "PATH": path}, capture_output=True, check=False)

    def plan(self, *more, kind="strong", ranks="1,2"):
        (self.folder / "deck.toml").write_text(DECK)
        return self.study("plan", kind, "deck.toml", "--ranks", ranks, "--out", "s", *more)

    def script(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)
        return path

    def test_impossible_and_too_large_points_are_refused_before_anything_runs(self):
        refused = self.plan(ranks="1,3")
        self.assertEqual(refused.returncode, 64, refused)
        self.assertIn("3 ranks: REFUSED: --set batch.global=4: batch.global = 4 is no multiple of 3", refused.stdout)
        self.assertIn("nearest numbers of ranks that are possible: 2, 4", refused.stdout)
        large = self.plan("--device-mem", "100 kB", "--repeats", "2")
        self.assertEqual(large.returncode, 69, large)
        self.assertIn("DOES NOT FIT", large.stdout)
        grown = self.plan("--limit", "0.001", kind="weak-model")
        self.assertEqual(grown.returncode, 64, grown)
        self.assertIn("more than 0.1 % (--limit)", grown.stdout)
        self.assertFalse((self.folder / "s").exists())

    def test_node_hours_say_that_all_ranks_were_taken_to_be_on_one_node(self):
        assumption = ", all ranks taken to be on one node: give --ranks-per-node"
        for ranks, more, assumed in (("1,2", (), True), ("1", (), False), ("1,2", ("--ranks-per-node", "2"), False)):
            planned = self.plan(*more, ranks=ranks)
            self.assertEqual(planned.returncode, 0, planned)
            self.assertEqual(assumption in planned.stdout, assumed, planned)
            plan = Study(self.folder / "s").plan
            self.assertIs(plan["assumes_one_node"], assumed)
            self.assertIsNone(plan["node_hours"])  # without --machine

    def test_weak_studies_vary_what_they_say(self):
        self.assertEqual(self.plan(kind="weak-batch", ranks="1,2,4").returncode, 0)
        study = Study(self.folder / "s")
        self.assertEqual([point["overrides"][-1] for point in study.points[:3]],
                         ["batch.global=4", "batch.global=8", "batch.global=16"])
        self.assertEqual(study.study["invariant"], "32 tokens per rank and step")
        grown = self.plan("--limit", "0.2", kind="weak-model", ranks="1,4")
        self.assertEqual(grown.returncode, 0, grown)
        estimates = Study(self.folder / "s").plan["estimates"]
        share = estimates["4"]["model_parameters"] / 4 / estimates["1"]["model_parameters"]
        self.assertIn(f"layers: {100 * (share - 1):+.2f} % parameters per rank", grown.stdout)
        self.assertLess(abs(share - 1), 0.2)

    def test_a_study_runs_once_and_again_only_what_changed_and_one_failure_ends_no_other(self):
        planned = self.plan("--repeats", "2")
        self.assertEqual(planned.returncode, 0, planned)
        failing = self.script("failing", f'[[ "$*" == *runs/n1-r1* ]] && exit 70\nexec {self.program} "$@"\n')
        local = ("submit", "s", "local", "--mpiexec", self.mpiexec)
        first = self.study(*local, program=failing)
        self.assertEqual(first.returncode, 1, first)
        self.assertIn("n1-r1: exit 70, see ", first.stdout)
        self.assertEqual(first.stdout.count(": UNREFERENCED"), 3, first)
        second = self.study(*local)
        self.assertEqual(second.returncode, 0, second)
        self.assertEqual((second.stdout.count(": kept"), second.stdout.count(": UNREFERENCED")), (3, 1), second)

        collected = self.study("collect", "s")
        self.assertEqual(collected.returncode, 0, collected)
        found = json.loads((self.folder / "s/collected.json").read_text())
        self.assertEqual([(point["ranks"], point["runs"]) for point in found["points"]], [(1, 2), (2, 2)])
        report = self.script("draws", '[[ $1 == --help ]] && echo "  report ..." && exit\n[[ $1 == report ]] && echo "drawn $*"\n')
        drawn = self.study("report", "s", program=report)
        self.assertEqual(drawn.returncode, 0, drawn)
        self.assertIn(f"drawn report {self.folder}/s --out {self.folder}/s/report", drawn.stdout)
        self.assertIn("not fitted: 2 numbers", json.loads((self.folder / "s/model.json").read_text())["form"])
        unknown = self.study("report", "s", program=self.script("old", "echo nothing"))
        self.assertEqual(unknown.returncode, 64, unknown)
        self.assertIn("has no command `report`", unknown.stdout)

        (self.folder / "deck.toml").write_text(DECK.replace("data.steps = 12", "data.steps = 11"))
        changed = self.study(*local)
        self.assertEqual(changed.returncode, 64, changed)
        self.assertIn("data.steps changed since the study was planned", changed.stderr)
        self.plan("--repeats", "2", "--set", "optimizer.lr=0.1")
        self.assertEqual(self.study("collect", "s").returncode, 65)
        self.assertEqual(self.study(*local, "--dry-run").stdout.count("to run (other values of optimizer.lr)"), 4)

    def test_a_slurm_gets_an_array_for_every_number_of_ranks(self):
        self.plan("--repeats", "2", "--ranks-per-node", "1")
        self.script("sbatch", f"echo 17\ngrep -h -e --array -e --nodes -e --ntasks -e --account ${{@: -1}} >>{self.folder}/sent\n")
        sent = self.study("submit", "s", "slurm", "--time", "30m", "--line", "#SBATCH --account=me")
        self.assertEqual(sent.returncode, 0, sent)
        self.assertIn("2 ranks: 2 runs, job 17", sent.stdout)
        lines = (self.folder / "sent").read_text().splitlines()
        for ranks in (1, 2):
            self.assertEqual([line for line in lines[5 * ranks - 5:5 * ranks] if not line.startswith("# Made")],
                             [f"#SBATCH --nodes={ranks}", f"#SBATCH --ntasks={ranks}", "#SBATCH --array=0-1",
                              "#SBATCH --account=me"])
        plan = (self.folder / "s/jobs/n2.tsv").read_text().splitlines()
        self.assertEqual(sorted(line.split("\t")[0] for line in plan), ["n2-r1", "n2-r2"])
        self.assertIn("\tcomm.expected_ranks=2\t", plan[0])


if __name__ == "__main__":
    Whole.program, Whole.mpiexec = (os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1))
    unittest.main()
