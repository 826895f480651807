"""What a training begins with, made anew from the definitions: random numbers, samples and their order, and initial parameters.
Parameters have the values that the program stores, rounded to fp32.
"""
import concurrent.futures
import math
import os
import pathlib

import numpy as np

from float64_model import Array, Tensors
from golden_file import require

# --- random numbers ---------------------------------------------------------------------------------------------------

INITIAL_VALUES, DATA_ORDER, SYNTHETIC_DATA = 1, 2, 3
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(seed: int, stream: int, index: Array | int) -> tuple[Array, Array, Array, Array]:
    """Philox4x32-10 with key (seed) and counter (index, stream), 64 and 32 bits: four words of 32 bits per index.
    Source: Parallel Random Numbers: As Easy as 1, 2, 3 (SC11)."""
    index = np.atleast_1d(np.asarray(index, np.uint64))
    a, b = index & LOW, index >> HALF
    c, d = np.full_like(index, stream), np.zeros_like(index)
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> HALF) ^ b ^ np.uint64(key[0]), second & LOW, \
                     (first >> HALF) ^ d ^ np.uint64(key[1]), first & LOW
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return a, b, c, d


def uniform(words: Array) -> Array:
    """In (0, 1]."""
    return (words.astype(np.float64) + 1.0) * 2.0**-32


def normal(seed: int, first: int, count: int) -> Array:
    """Standard normal numbers first .. first + count, four per index, by the Box-Muller transform: words 0 and 1 give
    numbers 0 (cosine) and 1 (sine), words 2 and 3 the others."""
    index = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    words = [uniform(word) for word in philox(seed, INITIAL_VALUES, index)]
    numbers = []
    for radius, angle in (words[:2], words[2:]):
        radius, angle = np.sqrt(-2.0 * np.log(radius)), 2.0 * np.pi * angle
        numbers += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.stack(numbers, axis=1).reshape(-1)[first % 4 :][:count]


# --- data -------------------------------------------------------------------------------------------------------------


def order_word(key: int, index: int) -> int:
    words = philox(key, DATA_ORDER, index)
    return int(words[0][0]) | int(words[1][0]) << 32


def permuted(seed: int, epoch: int, n: int, i: int) -> int:
    """The place of i in the order of an epoch: a Feistel network of eight rounds, walked until it falls below n.
    Source: Ciphers with Arbitrary Finite Domains (CT-RSA 2002)."""
    bits = ((n - 1).bit_length() + 1) // 2
    mask = (1 << bits) - 1
    key = order_word(seed, epoch)
    while True:
        left, right = i >> bits, i & mask
        for turn in range(8):
            left, right = right, left ^ (order_word(key, turn << 32 | right) & mask)
        i = left << bits | right
        if i < n:
            return i


class Samples:
    """Sample i is the tokens [i T, i T + T]; the training goes through them in a new order every epoch."""

    def __init__(self, deck: dict[str, dict], folder: pathlib.Path):
        data = deck["data"]
        self.seed, self.length, self.rows = data["seed"], data["sequence"], deck["batch"]["global"]
        self.vocab = deck["model"]["vocab"]
        require(data["source"] in ("text", "synthetic"), f"data.source = {data['source']!r} is not recomputed here")
        self.text = None
        if data["source"] == "text":
            self.text = np.frombuffer(b"".join((folder / name).read_bytes() for name in data["files"]), np.uint8)
        total = ((2**24 if self.text is None else len(self.text)) - 1) // self.length
        self.count = total - math.floor(data["validation_fraction"] * total)
        require(self.count > 0, "the data has no training sample")

    def read(self, begin: int, end: int) -> list[int]:
        return self.synthetic(begin, end) if self.text is None else self.text[begin:end].tolist()

    def synthetic(self, begin: int, end: int) -> list[int]:
        """After a token comes, with probability 0.9, its affine successor; each 64 tokens start afresh."""
        rule = philox(self.seed, SYNTHETIC_DATA, 2**64 - 1)
        shift, factor = int(rule[0][0]) % self.vocab, int(rule[1][0]) % self.vocab
        while math.gcd(factor, self.vocab) != 1:
            factor = (factor + 1) % self.vocab
        start, tokens = begin // 64 * 64, []
        words = philox(self.seed, SYNTHETIC_DATA, np.arange(start, end, dtype=np.uint64))
        for i, (chance, word) in enumerate(zip(uniform(words[0]), words[1].tolist())):
            follows = i % 64 != 0 and chance <= 0.9
            tokens.append((factor * tokens[-1] + shift) % self.vocab if follows else word * self.vocab >> 32)
        return tokens[begin - start:]

    def batch(self, step: int) -> tuple[Array, Array]:
        """Inputs and targets (rows, T) of a step, counted from 0."""
        places = range(step * self.rows, (step + 1) * self.rows)
        first = [permuted(self.seed, g // self.count, self.count, g % self.count) * self.length for g in places]
        tokens = np.array([self.read(begin, begin + self.length + 1) for begin in first])
        return tokens[:, :-1], tokens[:, 1:]


# --- initial parameters -----------------------------------------------------------------------------------------------


def initial_values(seed: int, first: int, count: int, deviation: float) -> Array:
    """Normal numbers first .. first + count, rounded to fp32, in float64; some at a time, on all cores."""
    values = np.empty(count)

    def fill(begin: int) -> None:
        end = min(begin + 2**20, count)
        values[begin:end] = (deviation * normal(seed, first + begin, end - begin)).astype(np.float32)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(0, count, 2**20)))
    return values


def initial_group(model: dict, seed: int, index: int) -> Tensors:
    """Group 0 is the root, group i + 1 is block i. Element i of all parameters, in this order, has counter i."""
    c = model["channels"]
    root = {"wte": (model["vocab"], c), "wpe": (model["context"], c), "lnfw": (c,), "lnfb": (c,)}
    block = {"ln1w": (c,), "ln1b": (c,), "qkvw": (3 * c, c), "qkvb": (3 * c,), "attprojw": (c, c), "attprojb": (c,),
             "ln2w": (c,), "ln2b": (c,), "fcw": (4 * c, c), "fcb": (4 * c,), "fcprojw": (c, 4 * c), "fcprojb": (c,)}
    size_of = lambda shapes: sum(math.prod(shape) for shape in shapes.values())
    counter = size_of(root) + (index - 1) * size_of(block) if index else 0
    group = {}
    for name, shape in (block if index else root).items():
        size = math.prod(shape)
        if len(shape) == 2:
            deviation = 0.02 / math.sqrt(2 * model["layers"]) if name in ("attprojw", "fcprojw") else 0.02
            group[name] = initial_values(seed, counter, size, deviation).reshape(shape)
        else:
            group[name] = np.full(shape, 1.0 if name in ("ln1w", "ln2w", "lnfw") else 0.0)
        counter += size
    return group


def initial_parameters(model: dict, seed: int) -> list[Tensors]:
    return [initial_group(model, seed, index) for index in range(model["layers"] + 1)]
