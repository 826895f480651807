#!/usr/bin/env python3
"""perf/study/ on made-up results: what is fitted and predicted.

usage: study_model_test.py [unittest options]
"""
import argparse
import json
import unittest
import unittest.mock

# first, as it finds perf
from study_fixture import ALPHA, BETA, CODE, GAMMA, InFolder, OnPaper, quietly, result_of, seconds_of, work_of
from lib.program import Refused
from study import scaling_model


class Model(InFolder):
    def points(self, ranks, times=None):
        return [{"ranks": one, "step_seconds_median": (times or {}).get(one, seconds_of(one)), **work_of(one)} for one in ranks]

    def test_perfect_alpha_beta_data_give_their_alpha_beta_and_gamma(self):
        for ranks in ((1, 2, 4, 8), (1, 2, 3, 5, 8, 16, 64)):
            model = scaling_model.fitted_model(self.points(ranks))
            for name, value in {"alpha_seconds_per_message": ALPHA, "beta_seconds_per_byte": BETA,
                                "gamma_seconds_per_flop": GAMMA}.items():
                self.assertAlmostEqual(model["parameters"][name] / value, 1, delta=1e-6)
                self.assertAlmostEqual(model["held_out"]["parameters"][name] / value, 1, delta=1e-6)
            self.assertLess(max(abs(point["residual"]) for point in model["points"]), 1e-9)
            self.assertFalse(any(point["flagged"] for point in model["points"]))

    def test_a_largest_scale_20_percent_above_what_the_others_say_is_flagged_alone(self):
        model = scaling_model.fitted_model(self.points((1, 2, 4, 8, 16), {16: 1.2 * seconds_of(16)}))
        self.assertEqual([point["ranks"] for point in model["points"] if point["flagged"]], [16])
        self.assertAlmostEqual(model["points"][-1]["residual"], 1 / 1.2 - 1)

    def test_three_numbers_of_ranks_have_two_terms_and_two_are_too_few(self):
        self.assertEqual(scaling_model.fitted_model(self.points((1, 2, 4)))["form"], "t = gamma flops + beta bytes")
        few = scaling_model.fitted_model(self.points((1, 2)))
        self.assertEqual((few["parameters"], few["points"]), ({}, []))
        self.assertIn("not fitted: 2 numbers of ranks", few["form"])

    def test_no_coefficient_is_negative_and_the_rest_fit_best(self):
        found = scaling_model.non_negative_fit([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], [3.0, 2.0, 1.0])
        self.assertEqual(found[1], 0)  # a line through these falls
        times = (3, 2, 1)
        self.assertAlmostEqual(found[0], sum(1 / t for t in times) / sum(1 / t**2 for t in times))

    def test_a_prediction_prices_what_the_program_says_of_those_ranks(self):
        study = self.strong()
        parameters = scaling_model.fitted_model(self.points((1, 2, 4, 8)))["parameters"]
        for found in scaling_model.predictions(study, parameters, [16, 32], OnPaper()):
            self.assertAlmostEqual(found["seconds"] / seconds_of(found["ranks"]), 1, delta=1e-6)

    def model_of(self, study, program=CODE, predict=(16,)):
        """model.json, made where the program at hand is that one."""
        with unittest.mock.patch.object(scaling_model, "Program", lambda _: OnPaper(program)):
            self.assertEqual(quietly(scaling_model.model_study, study, argparse.Namespace(program="", predict=predict)), 0)
        return json.loads((self.folder / "model.json").read_text())

    def test_the_fit_and_its_predictions_are_of_the_busiest_rank(self):
        results = {ranks: result_of(ranks) for ranks in (1, 2, 4, 8)}
        for ranks, result in results.items():  # rank 0 sends less than the one that steps wait for
            for side in ("predicted", "counted"):
                result[side] = {**work_of(ranks), "sent_bytes": 100 * (ranks - 1), "messages": ranks - 1}
        model = self.model_of(self.study_of("strong", results))
        self.assertAlmostEqual(model["parameters"]["alpha_seconds_per_message"] / ALPHA, 1, delta=1e-6)
        self.assertAlmostEqual(model["parameters"]["beta_seconds_per_byte"] / BETA, 1, delta=1e-6)
        self.assertAlmostEqual(model["predictions"][0]["seconds"] / seconds_of(16), 1, delta=1e-6)

    def test_times_of_another_program_or_of_other_nodes_are_not_fitted_to_the_plans_counts(self):
        planned = "planned was 1 git abc, g++, 5 Serial; "
        cases = {f"n2-r2 ran 1 git def, g++, 5 Serial, {planned}": lambda one: one["code"].update(git="def"),
                 "n2-r2 ran 1 git abc and changes, g++, 5 Serial, planned was": lambda one: one["code"].update(dirty=True),
                 "n2-r2 ran 1 git abc, other, 5 Serial, planned was": lambda one: one["code"].update(compiler="other"),
                 "n2-r2 ran on 2 nodes, planned were 1; ": lambda one: one["topology"].update(nodes=2)}
        for message, change in cases.items():
            with self.subTest(message=message):
                study = self.strong()
                self.assertTrue(self.model_of(study)["parameters"])
                self.assertEqual(self.tamper(study, "n2-r2", change)["violations"], [])
                model = self.model_of(study)
                self.assertTrue(model["form"].startswith(f"not fitted: {message}"), model["form"])
                self.assertEqual([model[key] for key in ("parameters", "points", "predictions")], [{}, [], []])
                self.tamper(study, "n2-r2", lambda one: one.update(status="INVALID", fom=None))  # nothing of it is fitted
                self.assertTrue(self.model_of(study)["parameters"])

    def test_another_program_than_the_planned_one_predicts_nothing(self):
        other = {**CODE, "git": "def"}
        self.assertEqual(self.model_of(self.strong(), other, predict=())["predictions"], [])
        with self.assertRaisesRegex(Refused, "--program is 1 git def, .*, planned was 1 git abc, .*--predict needs that one"):
            self.model_of(self.strong(), other)

    def test_a_sweep_has_no_model(self):
        study = self.sweep_of({("a.b=1",): result_of(4, changes={"a.b": 1}), ("a.b=2",): result_of(4, changes={"a.b": 2})})
        with self.assertRaisesRegex(Refused, "a sweep study has one number of ranks"):
            scaling_model.model_study(study, argparse.Namespace(program="", predict=()))
        self.assertFalse((self.folder / "model.json").exists())


if __name__ == "__main__":
    unittest.main()
