#!/usr/bin/env python3
"""perf/study/ on made-up results: which choices a sweep has, and what proves that its results are one sweep.

usage: study_sweep_test.py [unittest options]
"""
import csv
import json
import unittest

# first, as it finds perf
from study_fixture import collect_quietly, InFolder, PARAMETERS, record_of, result_of, seconds_of, TOKENS, work_of
from lib.program import Refused
from study import choices, collection, planning
from study.folder import Study


class Choices(unittest.TestCase):
    def test_combinations_are_the_product_in_the_order_of_the_options(self):
        found = choices.combinations(["a.p=2,4", "a.s=gpipe,inter+a.c=2+a.d=x"])
        self.assertEqual(found, [("a.p=2", "a.s=gpipe"), ("a.p=2", "a.s=inter", "a.c=2", "a.d=x"),
                                 ("a.p=4", "a.s=gpipe"), ("a.p=4", "a.s=inter", "a.c=2", "a.d=x")])
        self.assertEqual(choices.keys_of(found), ["a.p", "a.s", "a.c", "a.d"])

    def test_shapes_of_the_mesh_are_the_divisors_of_the_ranks(self):
        found = choices.combinations(choices.mesh_options(6))
        self.assertEqual(len(found), 16)
        self.assertEqual(found[:2], [("parallel.tensor=1", "parallel.pipeline=1"), ("parallel.tensor=1", "parallel.pipeline=2")])
        self.assertEqual(found[-1], ("parallel.tensor=6", "parallel.pipeline=6"))

    def test_commas_and_plus_signs_in_brackets_and_quotes_belong_to_the_value(self):
        self.assertEqual(choices.combinations(["a.b=[2,1,1,0],even,[[1,2],[3]]+c.d=[4,5]"]),
                         [("a.b=[2,1,1,0]",), ("a.b=even",), ("a.b=[[1,2],[3]]", "c.d=[4,5]")])
        self.assertEqual(choices.combinations(['a.b="x,y+z=1","\\",",\'[,\',{c="1,2", d=3}']),
                         [('a.b="x,y+z=1"',), ('a.b="\\","',), ("a.b='[,'",), ('a.b={c="1,2", d=3}',)])
        self.assertEqual(choices.combinations(["a.b=1e+3,1e-3"]), [("a.b=1e+3",), ("a.b=1e-3",)])

    def test_what_is_no_list_of_values_is_refused_by_its_name(self):
        for option in ("a.b", "a.b=", "a.b=1,", "a.b=,1", "=1", "a b=1", ".b=1", "a.b=1+c", "a.b=1+c.d", "a.b=1+c.d=",
                       "a.b=1\t2"):
            with self.subTest(option), self.assertRaisesRegex(Refused, "--vary .*: must be KEY=VALUE,VALUE"):
                choices.combinations([option])
        for option in ("a.b=[1,2", "a.b=1]", "a.b=[1]]", 'a.b="x', "a.b='x,y"):
            with self.subTest(option), self.assertRaisesRegex(Refused, "every bracket and quote must have its other end"):
                choices.combinations([option])

    def test_a_key_or_a_value_that_is_there_twice_is_refused(self):
        for options, words in ((["a.b=1,1"], "1 is there twice"), (["a.b=1+a.b=2"], "a.b=1 a.b=2 has a key twice"),
                               (["a.b=1,2", "a.b=3"], "a.b in two of them"), (["a.b=1", "c.d=1+a.b=2"], "a.b in two of them"),
                               (["a.b=1+e.f=1", "c.d=1,2+e.f=2"], "e.f in two of them")):
            with self.subTest(words), self.assertRaisesRegex(Refused, words):
                choices.combinations(options)
        self.assertEqual(len(choices.combinations(["a.b=1,1+c.d=2,1+c.d=3"])), 3)

    def test_what_a_study_sets_itself_is_not_varied(self):
        for key in ("batch.global", "batch.accumulation", "comm.expected_ranks", "checkpoint.dir", "checkpoint.every",
                    "model.save", "trace.file"):
            for option in (f"{key}=1", f"a.b=1+{key}=1"):
                with self.subTest(option), self.assertRaisesRegex(Refused, f"{key} is not varied"):
                    choices.combinations([option])

    def test_names_of_cells_are_folders_and_all_different(self):
        found = choices.cell_names(4, choices.combinations(["a.b=2,[2,1,1,0],\"../x y\"", "c.d=gpipe,inter+e.f=2"]))
        self.assertEqual(found, ["n4-2-gpipe", "n4-2-inter-2", "n4-2-1-1-0-gpipe", "n4-2-1-1-0-inter-2", "n4-..-x-y-gpipe",
                                 "n4-..-x-y-inter-2"])
        self.assertEqual(choices.cell_names(2, [("a.b=x y",), ("a.b=x-y",), ("a.b='x y'",), ("a.b=x-y-2",), ('a.b=""',)]),
                         ["n2-x-y", "n2-x-y-2", "n2-x-y-3", "n2-x-y-2-2", "n2"])
        long = choices.cell_names(1, [(f"a.b={'x' * 300}{end}",) for end in "yz"])
        self.assertEqual((len(set(long)), max(map(len, long))), (2, choices.LONGEST_NAME + 2))


class Faults(unittest.TestCase):
    def faults(self, **other):
        """Of a sweep of two choices, the second with such an estimate."""
        work = {"tokens_per_step": 64, "model_parameters": 1000}
        plan = {**work, "varied": planning.varied_keys("sweep", self.cells())}
        changes = {"optimizer.lr": 0.2, **other.pop("changes", {})}
        return planning.faults_of(plan, dict(zip(self.cells(), ({**record_of(4), **work},
                                                                {**record_of(4, changes), **work, **other}))))

    @staticmethod
    def cells():
        return [planning.Cell(f"n4-{value}", 4, (f"optimizer.lr={value}",)) for value in ("0.1", "0.2")]

    def test_choices_of_other_work_or_other_keys_or_of_the_same_run_are_no_sweep(self):
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(changes={"batch.accumulation": 1}), [])
        self.assertEqual(self.faults(tokens_per_step=32),
                         ["optimizer.lr=0.2: 32 tokens per step, the deck has 64: a sweep keeps them"])
        self.assertEqual(self.faults(model_parameters=1),
                         ["optimizer.lr=0.2: 1 parameters, the deck has 1000: a sweep keeps them"])
        self.assertEqual(self.faults(changes={"batch.global": 16, "model.layers": 3}),
                         ["optimizer.lr=0.2: also differs from optimizer.lr=0.1 in batch.global, model.layers"])
        self.assertEqual(self.faults(changes={"optimizer.lr": 0.1}),
                         ["optimizer.lr=0.1 and optimizer.lr=0.2 are the same run"])


class ToLoss(InFolder):
    def result(self, layers, steps):
        """Of a model that had the loss after so many steps; None: never."""
        result = result_of(4, parameters=1000 * layers, changes={"model.layers": layers})
        if steps:
            result["metrics"] |= {"steps_to_stop_loss": steps, "tokens_to_stop_loss": TOKENS * steps,
                                  "seconds_to_stop_loss": 0.5 * steps, "flops_to_stop_loss": 1e6 * layers * steps}
        return result

    def test_models_may_differ_and_have_their_costs(self):
        study = self.to_loss_of({("model.layers=2",): self.result(2, 40), ("model.layers=4",): self.result(4, 15),
                                 ("model.layers=8",): self.result(8, None)}, repeats=2)
        self.write(study, "n4-2-r2", self.result(2, 20))
        self.assertEqual(collect_quietly(study), 0)
        collected = json.loads((self.folder / "collected.json").read_text())
        self.assertEqual((collected["kind"], collected["violations"]), ("to-loss", []))
        self.assertEqual([(point["choice"], point["reached"], point["steps_to_stop_loss"], point["flops_to_stop_loss"])
                          for point in collected["points"]],
                         [("model.layers=2", 2, 30, 6e7), ("model.layers=4", 2, 15, 6e7), ("model.layers=8", 0, None, None)])
        self.assertEqual([point["model_parameters"] for point in collected["points"]], [2000, 4000, 8000])

    def test_other_tokens_per_step_are_no_study_to_a_loss(self):
        study = self.to_loss_of({("model.layers=2",): self.result(2, 4), ("model.layers=4",): self.result(4, 4)})
        collected = self.tamper(study, "n4-4-r1", lambda result: result["samples"].update(tokens=[TOKENS + 1] * 3))
        self.assertRegex(" ".join(collected["violations"]), "tokens per step differ")

    def to_loss_of(self, results, repeats=1):
        return self.choices_of("to-loss", results, repeats)

    def test_choices_of_another_loss_are_refused(self):
        cells = [planning.Cell(f"n4-{value}", 4, (f"model.layers={value}",)) for value in (2, 4)]
        plan = {"tokens_per_step": 64, "model_parameters": 1000, "stop_loss": 3.5,
                "varied": planning.varied_keys("to-loss", cells)}
        estimate = lambda layers, loss: {**record_of(4, {"model.layers": layers, "data.stop_loss": loss}),
                                         "tokens_per_step": 64, "model_parameters": 500 * layers}
        self.assertEqual(planning.faults_of(plan, dict(zip(cells, (estimate(2, 3.5), estimate(4, 3.5))))), [])
        self.assertIn("model.layers=4: ends at a loss of 3, the deck at 3.5",
                      planning.faults_of(plan, dict(zip(cells, (estimate(2, 3.5), estimate(4, 3.0))))))


class Collect(InFolder):
    def results(self, *factors):
        """By choice of a rate: times of a step are so many times what they would be."""
        return {(f"optimizer.lr={number}", "batch.micro=1"):
                result_of(4, seconds_of(4) * factor, changes={"optimizer.lr": number}) for number, factor in enumerate(factors)}

    def test_choices_have_speeds_beside_the_first_in_the_order_of_the_study(self):
        study = self.sweep_of(self.results(1.0, 2.0, 0.5), repeats=2)
        self.write(study, "n4-1-1-r2", result_of(4, seconds_of(4) * 3, changes={"optimizer.lr": 1}))
        self.assertEqual(collect_quietly(study), 0)
        collected = json.loads((self.folder / "collected.json").read_text())
        self.assertEqual((collected["kind"], collected["violations"], collected["mixes"]), ("sweep", [], []))
        points = collected["points"]
        self.assertEqual([(point["cell"], point["choice"], point["runs"]) for point in points],
                         [(f"n4-{number}-1", f"optimizer.lr={number} batch.micro=1", 2) for number in range(3)])
        for point, speed in zip(points, (1.0, (1 / 2 + 1 / 3) / 2, 2.0)):
            self.assertAlmostEqual(point["speed"], speed)
            self.assertEqual(point["largest_memory_bytes"], work_of(4)["memory_bytes"]["total"])
        self.assertEqual([point["speed_interval"] for point in points], [None, "min..max", "min..max"])
        self.assertAlmostEqual(points[1]["speed_low"], 1 / 3)
        self.assertAlmostEqual(points[1]["speed_high"], 1 / 2)
        with open(self.folder / "collected.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        cells = [(f"n4-{number}-1", f"optimizer.lr={number} batch.micro=1") for number in range(3)]
        self.assertEqual([(row["name"], row["cell"], row["choice"]) for row in rows[:3]],
                         [(f"{cell}-r1", cell, choice) for cell, choice in cells])

    def test_workers_that_do_not_wait_for_each_other_have_the_speed_of_the_mean_step(self):
        results = self.results(1.0, 0.25)
        apart = list(results.values())[1]
        apart["servers"] = {"order": "arrival"}
        apart["fom"]["value"] /= 2  # the mean step is twice the median
        study = self.sweep_of(results)
        self.assertEqual(collect_quietly(study), 0)
        points = json.loads((self.folder / "collected.json").read_text())["points"]
        self.assertAlmostEqual(points[1]["speed"], 2.0)

    def test_idle_shares_are_given_where_all_runs_have_them(self):
        results = self.results(1.0, 1.0)
        for number, result in enumerate(results.values()):
            result["pipeline"] = {"idle_share": 0.25 + number / 2, "simulated_idle_share": 0.125}
        study = self.sweep_of(results, repeats=2)
        points = collection.collect(study)["points"]
        self.assertEqual([(point["pipeline_idle_share"], point["pipeline_simulated_idle_share"]) for point in points],
                         [(0.25, 0.125), (0.75, 0.125)])
        collected = self.tamper(study, "n4-1-1-r2", lambda result: result.pop("pipeline"))
        self.assertEqual([point["pipeline_idle_share"] for point in collected["points"]], [0.25, None])
        self.assertEqual([row["pipeline_idle_share"] for row in collected["rows"]], [0.25, 0.75, 0.25, None])

    def test_the_first_choice_with_a_rate_is_compared_with(self):
        study = self.sweep_of(self.results(1.0, 2.0, 1.0))
        collected = self.tamper(study, "n4-0-1-r1", lambda result: result.update(status="INVALID", fom=None))
        self.assertEqual([(point["cell"], point["speed"]) for point in collected["points"]], [("n4-1-1", 1.0), ("n4-2-1", 2.0)])
        self.assertEqual(collected["without_rate"], ["n4-0-1-r1 INVALID"])

    def test_other_work_of_rank_0_changes_no_speed(self):
        results = self.results(1.0, 1.0)
        for result, flops in zip(results.values(), (1000, 3000)):  # as where its stage has other blocks
            for side in ("predicted", "counted"):
                result[side] = {**work_of(4), "flops": flops, "messages": flops}
        self.assertEqual([point["speed"] for point in collection.collect(self.sweep_of(results))["points"]], [1.0, 1.0])

    def test_six_repeats_have_an_interval(self):
        point = collection.collect(self.sweep_of(self.results(1.0, 2.0), repeats=6))["points"][1]
        self.assertEqual([point[f"speed{key}"] for key in ("", "_low", "_high", "_interval")], [0.5, 0.5, 0.5, "ci95"])

    def changed(self, name, **params):
        """The violations of a sweep of two choices and two repeats with one run that has other keys."""
        study = self.sweep_of(self.results(1.0, 2.0), repeats=2)
        collected = self.tamper(study, name, lambda result: [result["params"][key].update(value=value)
                                                             for key, value in params.items()])
        self.assertEqual((collected["points"], {row["rate"] for row in collected["rows"]}), ([], {None}))
        return collected["violations"]

    def test_a_run_with_another_key_changed_is_a_violation(self):
        self.assertEqual(self.changed("n4-1-1-r1", **{"model.layers": 3}),
                         ["n4-1-1-r1: model.layers = 3, in n4-0-1-r1 2", "n4-1-1-r1: model.layers = 3, planned 2"])
        # of a choice that the study does not have, and of another choice than its own
        self.assertEqual(self.changed("n4-1-1-r1", **{"optimizer.lr": 7}), ["n4-1-1-r1: optimizer.lr = 7, planned 1"])
        self.assertEqual(self.changed("n4-1-1-r2", **{"optimizer.lr": 0}), ["n4-1-1-r2: optimizer.lr = 0, planned 1"])
        # repeats differ in nothing, not in what follows either
        self.assertEqual(self.changed("n4-0-1-r2", **{"batch.accumulation": 1}),
                         ["n4-0-1-r2: batch.accumulation = 1, in n4-0-1-r1 2", "n4-0-1-r2: batch.accumulation = 1, planned 2"])

    def test_ranks_tokens_and_parameters_are_the_same_in_all_runs(self):
        changes, varied = {"optimizer.lr": 1}, "n4-1-1-r1"
        cases = {"tokens per step differ: n4-0-1-r1 4096, n4-1-1-r1 4097": result_of(4, tokens=TOKENS + 1, changes=changes),
                 "parameters per rank differ: n4-0-1-r1 2500, n4-1-1-r1 2500.25":
                 result_of(4, parameters=PARAMETERS + 1, changes=changes),
                 "a result does not say how many parameters its model has": result_of(4, parameters=0, changes=changes),
                 "n4-1-1-r1: ran on 2 ranks, must be 4": result_of(2, changes=changes)}
        for message, result in cases.items():
            with self.subTest(message):
                study = self.sweep_of(self.results(1.0, 1.0))
                self.write(study, varied, result)
                self.assertIn(message, collection.collect(study)["violations"])
                self.assertEqual(collect_quietly(study), 65)

    def test_tampered_counters_are_found(self):
        study = self.sweep_of(self.results(1.0, 1.0))
        collected = self.tamper(study, "n4-1-1-r1", lambda result: result["counted"].update(messages=61))
        self.assertEqual(collected["violations"], ["n4-1-1-r1: messages counted 61, predicted 60"])

    def test_a_sweeps_file_has_a_choice_for_every_point(self):
        study = self.sweep_of(self.results(1.0, 1.0)).study
        for change, words in (({"choice": None}, "must be a text of one line in sweep and to-loss"), ({"choice": "a\tb"}, "of one line")):
            path = self.folder / "study.json"
            path.write_text(json.dumps({**study, "points": [{**study["points"][0], **change}, study["points"][1]]}))
            with self.subTest(words), self.assertRaisesRegex(Refused, words):
                Study(self.folder)


if __name__ == "__main__":
    unittest.main()
