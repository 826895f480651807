"""Judgement of times: a ratio of two programs or of two ways in one program, with its 95 % interval, and what follows from it.

- The gate's samples come in fours of two arms, A B B A or B A A B, so that a drift meets both arms alike: log_ratios(), decide().
- Comparisons with other programs take turns in pairs: log_ratios_of_pairs().
- Studies repeat runs that are no pairs: ratio_of_medians().

A four or a pair gives one logarithm of B / A. The ratio is the mean of the middle half of the logarithms, so a few disturbed
samples do not move it. Its interval comes from a bootstrap over blocks of neighbours, because noise of machines lasts. Seeds are
fixed, so equal samples give equal intervals. Few samples have no interval. The module knows neither programs nor files.
"""
import math
import random
import statistics
from typing import NamedTuple

LEAST_PAIRS = 20
MARGIN = 0.05  # no slowdown below this is red, however quiet the machine is
PROMISED = 0.10  # green is decided only where a slowdown of this size, with the same noise, would have been red
HALF_THE_TIME, ALMOST_SURELY = 1, 2  # how many times the interval's half a slowdown of that size reaches over the limit
SPREADS = 3  # of the A/A series, that a slowdown must exceed
RESAMPLES = 1000
LEAST_FOR_INTERVAL = 6  # the whole range of n samples holds their median with probability 1 - 2^(1-n): of 5 that is 94 %
DRAWS = 2000  # of the bootstrap of medians
CI95, RANGE = "ci95", "min..max"

PASSED, SLOWER, FASTER, NOISY, NO_REFERENCE = "ok", "SLOWER", "faster", "TOO NOISY", "no reference"


class UnusableSamples(Exception):
    """Says what is wrong with them."""


class Estimate(NamedTuple):
    ratio: float
    low: float
    high: float
    deviation: float  # of the ratio's logarithm: of the bootstrap

    def reach(self):
        """How far from 1 two arms alike seem to be, as a share."""
        return math.expm1(max(abs(math.log(self.ratio)), self.deviation))


class Decision(NamedTuple):
    verdict: str
    limit: float  # share above the reference that is allowed


def log_ratios(arms, seconds):
    """Of every four: how much longer B takes."""
    if len(arms) != len(seconds) or len(arms) % 4 != 0 or not arms:
        raise UnusableSamples(f"{len(arms)} arms and {len(seconds)} samples are no fours")
    if not all(isinstance(time, float) and math.isfinite(time) and time > 0 for time in seconds):
        raise UnusableSamples("not all samples are times")
    values = []
    for first in range(0, len(arms), 4):
        four = arms[first:first + 4]
        if four not in ("ABBA", "BAAB"):
            raise UnusableSamples(f"samples {first} to {first + 3} are of arms {four}, neither ABBA nor BAAB")
        signs = (1 if arm == "B" else -1 for arm in four)
        values.append(sum(sign * math.log(time) for sign, time in zip(signs, seconds[first:first + 4])) / 2)
    return values


def arm_against_itself(arms, seconds, arm="A"):
    """The samples of one arm as a series of two arms alike, interleaved in the same way, half as long."""
    own = [time for name, time in zip(arms, seconds) if name == arm]
    own = own[:len(own) // 8 * 8]
    return "ABBABAAB" * (len(own) // 8), own


def middle_mean(values):
    ordered = sorted(values)
    cut = len(ordered) // 4
    middle = ordered[cut:len(ordered) - cut]
    return sum(middle) / len(middle)


def log_ratios_of_pairs(arms, seconds):
    """Of every pair of neighbours, A B or B A: how much longer B takes. Which of them comes first should alternate."""
    if len(arms) != len(seconds) or len(arms) % 2 != 0 or not arms:
        raise UnusableSamples(f"{len(arms)} arms and {len(seconds)} samples are no pairs")
    values = []
    for first in range(0, len(arms), 2):
        if arms[first:first + 2] not in ("AB", "BA"):
            raise UnusableSamples(f"samples {first} and {first + 1} are of arms {arms[first:first + 2]}, neither AB nor BA")
        sign = 1 if arms[first] == "B" else -1
        values.append(sign * (math.log(seconds[first]) - math.log(seconds[first + 1])))
    return values


def middle_95(drawn):
    """(low, high) of what a bootstrap has drawn: as many lie below as above."""
    ordered, count = sorted(drawn), len(drawn)
    return ordered[count * 25 // 1000], ordered[count - 1 - count * 25 // 1000]


def estimate(values, seed=1):
    """\\param values  logarithms of ratios, in the order of measurement"""
    source, count = random.Random(seed), len(values)
    block = max(1, round(count ** (1 / 3)))
    blocks = -(-count // block)
    around = values + values[:block]
    # a bootstrap of few blocks is too narrow by this
    widen = math.sqrt(blocks / (blocks - 1)) if blocks > 1 else 1
    centre = middle_mean(values)
    found = []
    for _ in range(RESAMPLES):
        drawn = []
        for _ in range(blocks):
            start = source.randrange(count)
            drawn += around[start:start + block]
        found.append(centre + widen * (middle_mean(drawn[:count]) - centre))
    low, high = middle_95(found)
    mean = sum(found) / RESAMPLES
    deviation = math.sqrt(sum((one - mean) ** 2 for one in found) / RESAMPLES)
    return Estimate(math.exp(centre), math.exp(low), math.exp(high), deviation)


def shows_promised(measured, limit, often):
    """Whether a slowdown of just the promised size is red with such noise. \\param often  HALF_THE_TIME or ALMOST_SURELY"""
    return (1 + PROMISED) * (measured.low / measured.ratio) ** often > 1 + limit


def decide(measured, spread, reference, reference_reach=0.0):
    """\\param measured  Estimate   \\param spread  Estimate of two arms alike   \\param reference  ratio, or None
    \\param reference_reach  how far the runs lie from the reference that it was taken from, as a share

    Red only if the whole interval lies above the reference by more than the limit: so it is in noise, too, which hides
    small slowdowns and not large ones. What is not red is green only where these samples, with a slowdown as large as the
    gate promises to see, would have been red; else nothing is decided. Other samples have other noise: such a slowdown is
    red in half of all measurements where the interval reaches as far down as this allows (4.5 % with a limit of 5 %), and
    in 99.6 % of them, by the normal approximation, where it reaches 2 %.
    """
    limit = max(MARGIN, SPREADS * spread.reach(), reference_reach)
    if reference is None:
        return Decision(NO_REFERENCE, limit)
    if measured.low > reference * (1 + limit):
        return Decision(SLOWER, limit)
    if not shows_promised(measured, limit, HALF_THE_TIME):
        return Decision(NOISY, limit)
    if measured.high < reference / (1 + limit):
        return Decision(FASTER, limit)
    return Decision(PASSED, limit)


def ratio_of_medians(values, base, seed):
    """How far median(values) / median(base) may be off: (low, high, kind). The kind is CI95 where both have enough repeats: a
    bootstrap over them. Else it is RANGE: the smallest and the largest ratio of a pair of repeats. (None, None, None) where one
    has a single value."""
    fewest = min(len(values), len(base))
    if fewest < 2:
        return None, None, None
    if fewest < LEAST_FOR_INTERVAL:
        return min(values) / max(base), max(values) / min(base), RANGE
    source = random.Random(seed)
    drawn = [statistics.median(source.choices(values, k=len(values))) / statistics.median(source.choices(base, k=len(base)))
             for _ in range(DRAWS)]
    return *middle_95(drawn), CI95
