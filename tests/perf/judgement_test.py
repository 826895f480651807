"""Judgement of times finds shifts, and takes neither noise nor drift for one.

usage: judgement_test.py [unittest options]
Series are synthetic and seeded: times of 20 ms with log-normal noise, which may last from sample to sample.
"""
import math
import random
import unittest
from statistics import NormalDist

import commands  # noqa: F401 -- first, as it finds perf
from lib import judgement as statistics

ORDER = "ABBABAAB"
FOURS = 20
NOISE_OF_REACH = math.sqrt(FOURS / 1.19) / 1.96  # of a four; a middle half's mean has 1.19 times the variance of all's


def series(seed, pairs=40, ratio=1.0, noise=0.02, lasting=0.0, drift=0.0, disturbed=0.0):
    """Arms and seconds. lasting: correlation of neighbouring samples; drift: growth over the whole series, as a logarithm;
    disturbed: share of samples that take twice as long."""
    source, state = random.Random(seed), 0.0
    arms = (ORDER * pairs)[:2 * pairs]
    seconds = []
    for place, arm in enumerate(arms):
        state = lasting * state + math.sqrt(1 - lasting * lasting) * source.gauss(0, noise)
        growth = drift * place / len(arms)
        twice = 2 if source.random() < disturbed else 1
        seconds.append(0.02 * twice * (ratio if arm == "B" else 1) * math.exp(state + growth))
    return arms, seconds


def estimate(*arguments, **options):
    return statistics.estimate(statistics.log_ratios(*series(*arguments, **options)))


def verdict(seed, reference=1.0, ratio=1.0, **options):
    """Of a series against another one of arms alike and of the same noise."""
    measured, spread = estimate(seed, ratio=ratio, **options), estimate(seed + 10**6, **options)
    return statistics.decide(measured, spread, reference).verdict


class Estimates(unittest.TestCase):
    def test_a_series_without_noise_gives_its_ratio_exactly(self):
        for pairs in (20, 22, 40):
            found = estimate(1, pairs=pairs, ratio=1.25, noise=0)
            for value in found[:3]:
                self.assertAlmostEqual(value, 1.25, places=12)

    def test_a_known_shift_is_in_its_interval(self):
        inside = 0
        for seed in range(100):
            found = estimate(seed, ratio=1.07)
            inside += found.low <= 1.07 <= found.high
        self.assertGreaterEqual(inside, 85)  # 95 expected; a bootstrap of few blocks has somewhat less

    def test_intervals_widen_where_noise_lasts(self):
        widths = {}
        for lasting in (0.0, 0.9):
            values = []
            for seed in range(40):
                source, state, values_of_seed = random.Random(seed), 0.0, []
                for _ in range(40):
                    state = lasting * state + math.sqrt(1 - lasting * lasting) * source.gauss(0, 0.02)
                    values_of_seed.append(state)
                found = statistics.estimate(values_of_seed)
                values.append(math.log(found.high / found.low))
            widths[lasting] = sum(values) / len(values)
        self.assertGreater(widths[0.9], 1.1 * widths[0.0])  # alone, the smaller variance within a series would narrow them

    def test_a_drift_meets_both_arms_alike(self):
        drifting = estimate(1, noise=0, drift=math.log(2))
        self.assertAlmostEqual(drifting.ratio, 1, places=9)
        self.assertAlmostEqual(drifting.high / drifting.low, 1, places=9)
        self.assertEqual(verdict(1, ratio=1.2, drift=math.log(2)), statistics.SLOWER)

    def test_a_few_disturbed_samples_do_not_move_it(self):
        found = estimate(3, noise=0.005, disturbed=0.05)
        self.assertAlmostEqual(found.ratio, 1, delta=0.01)

    def test_equal_samples_give_equal_intervals(self):
        self.assertEqual(estimate(5), estimate(5))

    def test_samples_that_are_no_fours_of_two_arms_are_refused(self):
        arms, seconds = series(1)
        for bad_arms, bad_seconds in (("", []), (arms[:-1], seconds[:-1]), (arms, seconds[:-4]), ("AB" * 40, seconds),
                                      (arms, [0.0, *seconds[1:]]), (arms, [math.nan, *seconds[1:]]),
                                      (arms, [None, *seconds[1:]]), (arms, [1, *seconds[1:]])):
            with self.subTest(bad_arms[:8]), self.assertRaises(statistics.UnusableSamples):
                statistics.log_ratios(bad_arms, bad_seconds)

    def test_an_arm_against_itself_is_a_series_of_its_own_samples(self):
        arms, seconds = "ABBABAAB" * 2, [float(place) for place in range(1, 17)]
        own_arms, own = statistics.arm_against_itself(arms, seconds)
        self.assertEqual((own_arms, own), ("ABBABAAB", [1.0, 4.0, 6.0, 7.0, 9.0, 12.0, 14.0, 15.0]))
        self.assertEqual(statistics.arm_against_itself(arms, seconds, "B")[1][:2], [2.0, 3.0])


class Decisions(unittest.TestCase):
    def test_false_alarms_are_rare_also_where_noise_lasts(self):
        for noise, lasting in ((0.01, 0.0), (0.02, 0.7), (0.05, 0.9)):
            red = sum(verdict(seed, pairs=20, noise=noise, lasting=lasting) == statistics.SLOWER for seed in range(200))
            self.assertLessEqual(red, 8, (noise, lasting))

    def test_a_tenth_is_found_on_a_quiet_machine(self):
        found = sum(verdict(seed, pairs=20, ratio=1.1, noise=0.01) == statistics.SLOWER for seed in range(50))
        self.assertGreaterEqual(found, 48)

    def test_less_than_the_margin_is_never_red(self):
        for seed in range(50):
            self.assertEqual(verdict(seed, ratio=1.04, noise=0.002), statistics.PASSED)

    def test_the_reference_moves_the_decision(self):
        self.assertEqual(verdict(1, ratio=1.8, reference=1.8, noise=0.005), statistics.PASSED)
        self.assertEqual(verdict(1, ratio=1.8, reference=1.6, noise=0.005), statistics.SLOWER)
        self.assertEqual(verdict(1, ratio=1.8, reference=2.0, noise=0.005), statistics.FASTER)

    def test_nothing_is_decided_where_noise_hides_what_is_promised(self):
        for seed in range(20):
            for ratio in (1.0, 1.1):
                self.assertEqual(verdict(seed, ratio=ratio, noise=0.3), statistics.NOISY)

    def test_noise_does_not_hide_a_large_slowdown(self):
        for seed in range(20):
            self.assertEqual(verdict(seed, ratio=4.0, noise=0.3), statistics.SLOWER)

    def test_green_is_only_what_would_have_been_red_with_a_tenth_more(self):
        exact, source = statistics.Estimate(1.0, 1.0, 1.0, 0.0), random.Random(1)
        seen = set()
        for _ in range(2000):
            ratio, half, away = source.uniform(0.9, 1.1), source.uniform(0, 0.08), source.uniform(0, 0.04)
            measured = statistics.Estimate(ratio, ratio * (1 - half), ratio * (1 + half), 0.0)
            spread = exact._replace(deviation=math.log1p(away))
            decision = statistics.decide(measured, spread, 1.0)
            tenth = 1.1 / ratio  # what would have been found at 1.1 times the reference
            slower = statistics.Estimate(*(value * tenth for value in measured[:3]), 0.0)
            seen.add(decision.verdict)
            if decision.verdict in (statistics.PASSED, statistics.FASTER):
                self.assertEqual(statistics.decide(slower, spread, 1.0).verdict, statistics.SLOWER, (measured, spread))
            if decision.verdict == statistics.NOISY:
                self.assertEqual(statistics.decide(slower, spread, 1.0).verdict, statistics.NOISY, (measured, spread))
        self.assertEqual(seen, {statistics.PASSED, statistics.FASTER, statistics.NOISY, statistics.SLOWER})

    def test_how_often_a_slowdown_of_what_is_promised_is_seen(self):
        exact, promised = statistics.Estimate(1.0, 1.0, 1.0, 0.0), math.log1p(statistics.PROMISED)
        edge = promised - math.log1p(statistics.MARGIN)  # the longest reach of an interval that a green ratio may have
        self.assertAlmostEqual(math.expm1(-edge), -0.045, delta=0.001)
        for reach, expected, least in ((math.log(1.02), 0.996, 96), (edge, 0.5, 35)):
            normal = NormalDist().cdf((edge - reach) / (reach / 1.96))  # the interval begins above the limit
            self.assertAlmostEqual(normal, expected, places=3)
            reaches, red = [], 0
            for seed in range(100):
                source = random.Random(seed)
                found = statistics.estimate([promised + source.gauss(0, NOISE_OF_REACH * reach) for _ in range(FOURS)], seed)
                reaches.append(math.log(found.high / found.low) / 2)
                red += statistics.decide(found, exact, 1.0).verdict == statistics.SLOWER
            self.assertAlmostEqual(sum(reaches) / len(reaches) / reach, 1, delta=0.05)
            self.assertTrue(least <= red <= least + 30, red)

    def test_how_far_the_recorded_runs_differ_widens_the_limit(self):
        exact = statistics.Estimate(1.0, 1.0, 1.0, 0.0)
        at_8 = exact._replace(ratio=1.08, low=1.08, high=1.08)
        self.assertEqual(statistics.decide(at_8, exact, 1.0).verdict, statistics.SLOWER)
        self.assertEqual(statistics.decide(at_8, exact, 1.0, 0.09), (statistics.PASSED, 0.09))
        self.assertEqual(statistics.decide(at_8, exact, 1.0, 0.11), (statistics.NOISY, 0.11))

    def test_the_limit_is_three_times_the_spread_where_that_is_more_than_the_margin(self):
        exact = statistics.Estimate(1.0, 1.0, 1.0, 0.0)
        self.assertEqual(statistics.decide(exact, exact, 1.0).limit, statistics.MARGIN)
        for spread in (statistics.Estimate(1.03, 1.0, 1.0, 0.0), statistics.Estimate(1 / 1.03, 1.0, 1.0, 0.0),
                       statistics.Estimate(1.0, 1.0, 1.0, math.log(1.03))):
            self.assertAlmostEqual(statistics.decide(exact, spread, 1.0).limit, 0.09, places=12)

    def test_red_is_an_interval_that_lies_beyond_the_limit_with_both_ends(self):
        exact = statistics.Estimate(1.0, 1.0, 1.0, 0.0)
        for low, high, expected in ((1.04, 1.12, statistics.PASSED), (1.051, 1.12, statistics.SLOWER),
                                    (0.92, 0.96, statistics.PASSED), (0.92, 0.95, statistics.FASTER)):
            measured = statistics.Estimate((low + high) / 2, low, high, 0.0)
            self.assertEqual(statistics.decide(measured, exact, 1.0).verdict, expected)

    def test_without_a_reference_nothing_is_decided(self):
        exact = statistics.Estimate(9.0, 9.0, 9.0, 0.0)
        self.assertEqual(statistics.decide(exact, exact, None).verdict, statistics.NO_REFERENCE)


class Pairs(unittest.TestCase):
    def test_a_pair_gives_how_much_longer_b_takes_whoever_comes_first(self):
        for arms, seconds in (("ABBA", [2.0, 3.0, 6.0, 4.0]), ("BAAB", [3.0, 2.0, 4.0, 6.0])):
            for value in statistics.log_ratios_of_pairs(arms, seconds):
                self.assertAlmostEqual(value, math.log(1.5))

    def test_what_is_no_series_of_pairs_is_refused(self):
        for arms, seconds in (("", []), ("ABA", [1.0] * 3), ("AB", [1.0]), ("AABB", [1.0] * 4), ("AC", [1.0] * 2)):
            with self.subTest(arms), self.assertRaises(statistics.UnusableSamples):
                statistics.log_ratios_of_pairs(arms, seconds)


class Medians(unittest.TestCase):
    def test_an_interval_leaves_out_as_many_below_as_above(self):
        for count in (1000, 2000):
            low, high = statistics.middle_95(list(range(count, 0, -1)))
            self.assertEqual((low - 1, count - high), (count // 40, count // 40))

    def test_few_repeats_have_their_range_and_one_has_nothing(self):
        self.assertEqual(statistics.ratio_of_medians([3.0, 4.0], [1.0, 2.0], 1), (1.5, 4.0, statistics.RANGE))
        self.assertEqual(statistics.ratio_of_medians([3.0] * 5, [1.0, 2.0] * 5, 1)[2], statistics.RANGE)
        self.assertEqual(statistics.ratio_of_medians([3.0], [1.0] * 9, 1), (None, None, None))

    def test_the_interval_of_many_repeats_has_the_ratio_nearly_always(self):
        found = 0
        for seed in range(40):
            source = random.Random(seed)
            values, base = ([scale * source.lognormvariate(0, 0.1) for _ in range(12)] for scale in (0.8, 1.0))
            low, high, kind = statistics.ratio_of_medians(values, base, seed)
            self.assertEqual((low, high, kind), statistics.ratio_of_medians(values, base, seed))
            self.assertEqual(kind, statistics.CI95)
            found += low <= 0.8 <= high
        # 40 trials that each succeed with 0.95: fewer than 33 happen once in 700 series (binomial)
        self.assertGreaterEqual(found, 33)


if __name__ == "__main__":
    unittest.main()
