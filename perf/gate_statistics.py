"""Statistics of perf/gate.py's tiers 1 and 2: a ratio of two times with its 95 % interval, and what follows from it.

Samples come in fours of two arms, A B B A or B A A B, so that a drift meets both arms alike. A four gives one logarithm of
B / A; the ratio is the mean of the middle half of them, which what disturbs a few samples does not move. Its interval is a
bootstrap's over blocks of neighbouring fours, because noise of machines lasts; the seed is fixed, so that equal samples
give equal intervals. Knows neither programs nor files.
"""
import math
import random
from typing import NamedTuple

LEAST_PAIRS = 20
MARGIN = 0.05  # no slowdown below this is red, however quiet the machine is
PROMISED = 0.10  # green is decided only where a slowdown of this size, with the same noise, would have been red
HALF_THE_TIME, ALMOST_SURELY = 1, 2  # how many times the interval's half a slowdown of that size reaches over the limit
SPREADS = 3  # of the A/A series, that a slowdown must exceed
RESAMPLES = 1000

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
    found.sort()
    low, high = found[RESAMPLES * 25 // 1000], found[RESAMPLES * 975 // 1000 - 1]
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
