#!/usr/bin/env python3
"""Recomputes the first steps of a deck's training in float64, with NumPy alone, and compares them with the deck's golden
curve or with a run: losses, norms of gradients, and how far the parameters of each kind have changed; and with a golden first
step, if there is one, the loss of the first sample. It shares no code with the program: everything from the random numbers
to the update is written anew from the definitions, so that an error in one of the two shows as a difference.

usage: check_float64.py DECK.toml [--steps N] [--bound B] [--set KEY=VALUE] [--key KEY | --result result.json]

Parameters start with the values that the program stores, rounded to fp32; all else is float64. A deck that it cannot
follow is refused. data.xxhash is not checked: the program does that.
Exit status: 0 all steps agree, 1 one does not, 2 there is nothing to compare with or the deck is refused.
"""
import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time
import tomllib

import numpy as np

sys.dont_write_bytecode = True  # no __pycache__ beside the decks
from float64_model import AdamW, Array, Tensors, loss_and_gradients

# Relative, on the loss. A sum of 200 products in fp32 is off by about sqrt(200) x 6e-8 = 1e-6 of its terms, with random
# signs over the positions that the loss averages: 1e-8 to 1e-7 for equal parameters. Measured over the first 12 steps
# of the quickstart: 5e-8; where a gradient's norm jumps fifty-fold: 7e-7. Ten steps without weight decay, or with ten
# times the epsilon, differ by 1e-5 to 3e-5, so a much looser bound would miss them.
BOUND = 2e-6

# Relative, on the norm of a step's gradient and on the mean change of a kind of parameter: the bounds by which a run is
# compared with a golden curve (src/report/golden_checks.cpp tells what they see). Measured over the first 10 steps of tiny
# and of the quickstart: MEASURED_NORMS and MEASURED_CHANGES.
NORM_BOUND = 2e-6
CHANGE_BOUND = 2e-5

# The same of a first step, which comes from float64, too, and from the same rounded values: a sum of some 10^4 terms is
# off by 1e-14 of them, and an initial value whose last bit in fp32 is another one changes the loss by less than 1e-12.
FIRST_STEP_BOUND = 1e-10

PRESETS = {"gpt2": (12, 12, 768, 1024, 50257), "gpt2-medium": (24, 16, 1024, 1024, 50257),
           "gpt2-large": (36, 20, 1280, 1024, 50257), "gpt2-xl": (48, 25, 1600, 1024, 50257)}
SHAPE = ("layers", "heads", "channels", "context", "vocab")

# What a benchmark class says of a deck, written anew like everything here; of those with a golden curve or first step.
CLASSES = {"tiny": """
model = { layers = 4, heads = 4, channels = 128, context = 128, vocab = 256 }
data = { source = "text", files = ["data/corpus.txt"], sequence = 128, validation_fraction = 0.05, steps = 300 }
batch = { global = 16 }
optimizer = { lr = 2e-3, warmup = 30 }
""", "small": """
model = { preset = "gpt2" }
data = { source = "synthetic", sequence = 256, steps = 20 }
batch = { global = 16 }
optimizer = { lr = 3e-4, schedule = "constant", warmup = 5 }
"""}

DEFAULTS = {
    "model": {"preset": "", "load": "", "save": ""} | dict.fromkeys(SHAPE, 0),
    "data": {"source": "text", "files": [], "sequence": 0, "seed": 1, "xxhash": "", "validation_files": [],
             "validation_fraction": 0.0, "validate_every": 0, "validation_batches": 0, "steps": 0, "epochs": 0,
             "stop_loss": 0.0},
    "batch": {"micro": 0, "accumulation": 0, "global": 0},
    "precision": {"recipe": "fp32"},
    "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                  "decay": "matrices", "clip": 1.0, "schedule": "cosine", "warmup": 0, "final_lr_fraction": 0.1},
}
NO_EFFECT = ("parallel", "comm", "kernels", "bench")  # sections that do not change what is learned


class Refused(Exception):
    """There is nothing to compare, or the deck asks for something that is not recomputed here."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


# --- deck -------------------------------------------------------------------------------------------------------------


def read_deck(path: pathlib.Path, overrides: list[str]) -> dict[str, dict]:
    """The deck with its defaults filled in; an override is one line of TOML: data.steps=12."""
    deck = {section: dict(keys) for section, keys in DEFAULTS.items()}
    texts = [path.read_text(encoding="utf-8"), *overrides]
    name = tomllib.loads(texts[0]).get("class", "custom")
    require(name in CLASSES or name == "custom", f"class = {name!r} is not recomputed here")
    for text in [CLASSES.get(name, ""), *texts]:
        for section, keys in tomllib.loads(text).items():
            if section == "class":
                continue
            if section in NO_EFFECT:
                deck.setdefault(section, {}).update(keys)
                continue
            require(section in DEFAULTS, f"[{section}] is not recomputed here")
            for key, value in keys.items():
                require(key in DEFAULTS[section], f"{section}.{key} is not recomputed here")
                deck[section][key] = value
    model, data, batch = deck["model"], deck["data"], deck["batch"]
    for key, value in zip(SHAPE, PRESETS.get(model["preset"], (0,) * 5)):
        model[key] = model[key] or value
        require(model[key] > 0, f"model.{key} is missing")
    data["sequence"] = data["sequence"] or model["context"]
    require(data["sequence"] <= model["context"], "data.sequence exceeds model.context")
    if batch["global"] == 0:
        batch["global"] = batch["micro"] * batch["accumulation"] * deck.get("comm", {}).get("expected_ranks", 0)
    require(batch["global"] > 0, "batch.global does not follow from the deck: give it, or comm.expected_ranks")
    require(model["load"] == "", "model.load is not recomputed here: the training must start from the deck's seed")
    require(deck["precision"]["recipe"] == "fp32", "precision.recipe must be fp32")
    require(deck["optimizer"]["type"] == "adamw", "optimizer.type must be adamw")
    require(deck["optimizer"]["schedule"] in ("constant", "cosine"), "optimizer.schedule must be constant or cosine")
    require(deck["optimizer"]["decay"] in ("matrices", "all"), "optimizer.decay must be matrices or all")
    require((data["steps"] > 0) != (data["epochs"] > 0), "give one of data.steps and data.epochs")
    return deck


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


# --- training ---


def initial_parameters(model: dict, seed: int) -> list[Tensors]:
    """Groups of tensors: the root, then the blocks. Element i of all parameters, in this order, has counter i."""
    c = model["channels"]
    root = {"wte": (model["vocab"], c), "wpe": (model["context"], c), "lnfw": (c,), "lnfb": (c,)}
    block = {"ln1w": (c,), "ln1b": (c,), "qkvw": (3 * c, c), "qkvb": (3 * c,), "attprojw": (c, c), "attprojb": (c,),
             "ln2w": (c,), "ln2b": (c,), "fcw": (4 * c, c), "fcb": (4 * c,), "fcprojw": (c, 4 * c), "fcprojb": (c,)}
    counter, groups = 0, []
    for shapes in [root] + [block] * model["layers"]:
        group = {}
        for name, shape in shapes.items():
            size = math.prod(shape)
            if len(shape) == 2:
                deviation = 0.02 / math.sqrt(2 * model["layers"]) if name in ("attprojw", "fcprojw") else 0.02
                values = deviation * normal(seed, counter, size)
                group[name] = values.astype(np.float32).astype(np.float64).reshape(shape)
            else:
                group[name] = np.full(shape, 1.0 if name in ("ln1w", "ln2w", "lnfw") else 0.0)
            counter += size
        groups.append(group)
    return groups


def learning_rate(optimizer: dict, steps: int, step: int) -> float:
    """Of a step counted from 0: linear warm-up, then constant or half a cosine down to a fraction of the peak."""
    peak, warmup = optimizer["lr"], optimizer["warmup"]
    if step < warmup:
        return peak * (step + 1) / warmup
    if optimizer["schedule"] == "constant":
        return peak
    low = optimizer["final_lr_fraction"] * peak
    progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
    return low + (peak - low) * (1 + math.cos(math.pi * progress)) / 2


# --- comparison -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Expected:
    """What a golden curve or a run tells of a training's first steps."""
    losses: list[float]
    norms: list[float]
    changes: dict | None  # {"after_step": 10, "mean": {"wte": 1e-3, ...}}
    first_step: dict | None = None


def numbers(values: list) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]  # a result's null: not finite


def expected_values(arguments: argparse.Namespace, steps: int) -> Expected:
    """Of the run's result.json, or of the deck's golden curve and golden first step. Without a curve of the deck's length
    there must be a first step."""
    path = arguments.result or arguments.deck.parent / "golden" / f"{arguments.deck.stem}.json"
    require(path.exists(), f"{path}: there is no such file: record a golden curve, or give --result")
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        if arguments.result:
            early = content["early_steps"]
            curves, first_steps = {"run": {"losses": content["samples"]["loss"], **early}}, {}
        else:
            curves = {key: curve for key, curve in content["curves"].items() if arguments.key in ("", key)}
            first_steps = {key: {"loss": float(entry["loss"]), "positions": int(entry["positions"])}
                           for key, entry in content.get("first_steps", {}).items() if arguments.key in ("", key)}
        found = {key: Expected(numbers(curve["losses"]), numbers(curve.get("norms", [])), curve.get("changes"),
                               first_steps.get(key)) for key, curve in curves.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Refused(f"{path}: has no losses where they are expected") from None
    fitting = [expected for expected in found.values() if len(expected.losses) == steps]
    if not fitting and len(first_steps) == 1:
        return Expected([], [], None, next(iter(first_steps.values())))
    lengths = ", ".join(f"{key}: {len(expected.losses)}" for key, expected in found.items())
    require(len(fitting) == 1, f"{path}: one curve must have the deck's {steps} steps, or one first step be there; first "
                               f"steps: {len(first_steps)}, steps of each curve: {lengths or 'none'}")
    return fitting[0]


def difference(value: float, reference: float) -> float:
    """Relative; infinite where one is no number."""
    relative = abs(value - reference) / abs(value) if value != reference else 0.0
    return relative if math.isfinite(relative) else math.inf


def mean_changes(parameters: list[Tensors], initial: list[Tensors]) -> dict[str, float]:
    """Mean |change| of each kind. Of qkvb without the bias of keys, which changes by rounding alone: softmax does not see
    what is added to all scores of a row."""
    sums: dict[str, list[float]] = {}
    for group, begun in zip(parameters, initial):
        for name, values in group.items():
            change = np.abs(values - begun[name])
            if name == "qkvb":
                third = len(change) // 3
                change = np.concatenate([change[:third], change[2 * third:]])
            sums.setdefault(name, [0.0, 0.0])
            sums[name][0] += float(change.sum())
            sums[name][1] += change.size
    return {name: total / count for name, (total, count) in sums.items()}


def changes_agree(found: dict[str, float], expected: dict) -> bool:
    """Prints the kind that differs most."""
    require(found.keys() == expected["mean"].keys(), "the changes have other kinds than the model has tensors")
    differences = {name: difference(found[name], expected["mean"][name]) for name in found}
    worst = max(differences, key=lambda name: differences[name])
    agrees = differences[worst] <= CHANGE_BOUND
    print(f"changes after step {expected['after_step']}: {'agree' if agrees else 'DIFFER'}, at most {differences[worst]:.1e} "
          f"({worst}), bound {CHANGE_BOUND:.1e}", flush=True)
    return agrees


def agrees_at_first(first_step: dict, parameters: list[Tensors], heads: int, samples: Samples) -> bool:
    """Of the first positions of the first sample, before any update."""
    inputs, targets = (array[:1, : first_step["positions"]] for array in samples.batch(0))
    require(inputs.size == first_step["positions"], f"the first step has {first_step['positions']} positions, a sample fewer")
    loss = loss_and_gradients(parameters, heads, inputs, targets)[0]
    difference = abs(loss - first_step["loss"]) / abs(loss)
    agrees = difference <= FIRST_STEP_BOUND  # not if it is not a number
    print(f"first step, {inputs.size} positions: {loss:.12f}, golden {first_step['loss']:.12f}: "
          f"{'agree' if agrees else 'DIFFER'}, {difference:.1e}, bound {FIRST_STEP_BOUND:.1e}", flush=True)
    return agrees


def run(arguments: argparse.Namespace) -> bool:
    """Prints a line per step; true if all are within the bound."""
    deck = read_deck(arguments.deck, arguments.set)
    samples = Samples(deck, arguments.deck.parent)
    steps = deck["data"]["steps"] or -(-deck["data"]["epochs"] * samples.count // samples.rows)
    require(arguments.steps >= 1, f"--steps {arguments.steps} must be at least 1")
    expected = expected_values(arguments, steps)
    parameters = initial_parameters(deck["model"], samples.seed)
    agrees = expected.first_step is None or agrees_at_first(expected.first_step, parameters, deck["model"]["heads"], samples)
    if not expected.losses:
        return agrees
    changed_after = expected.changes["after_step"] if expected.changes else 0
    initial = [{name: values.copy() for name, values in group.items()} for group in parameters] if changed_after else []
    adamw = AdamW(deck["optimizer"], parameters)
    worst = worst_norm = 0.0
    print(f"{'step':>4}  {'float64 loss':>14}  {'fp32 loss':>14}  {'difference':>10}  {'norm':>9}  {'difference':>10}  seconds")
    for step, reference in enumerate(expected.losses[: arguments.steps]):
        start = time.perf_counter()
        loss, gradients = loss_and_gradients(parameters, deck["model"]["heads"], *samples.batch(step))
        norm = adamw.update(gradients, learning_rate(deck["optimizer"], steps, step), step)
        of_loss = difference(loss, reference)
        of_norm = difference(norm, expected.norms[step]) if step < len(expected.norms) else None
        worst, worst_norm = max(worst, of_loss), max(worst_norm, of_norm or 0.0)
        print(f"{step + 1:4}  {loss:14.10f}  {reference:14.10f}  {of_loss:10.1e}  {norm:9.5f}  "
              f"{'-' if of_norm is None else format(of_norm, '.1e'):>10}  {time.perf_counter() - start:7.2f}", flush=True)
        if step + 1 == changed_after:
            agrees = changes_agree(mean_changes(parameters, initial), expected.changes) and agrees
    passed = worst <= arguments.bound and worst_norm <= NORM_BOUND
    count = min(arguments.steps, len(expected.losses))
    print(f"{'agree' if passed else 'DIFFER'}: at most {worst:.1e} over {count} steps, bound {arguments.bound:.1e}; norms "
          f"{worst_norm:.1e} over {min(count, len(expected.norms))}, bound {NORM_BOUND:.1e}")
    return passed and agrees


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("deck", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=10, help="how many of the first steps (default %(default)s)")
    parser.add_argument("--bound", type=float, default=BOUND, help="largest relative difference (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="replaces a value of the deck; TOML, so a string has quotes")
    parser.add_argument("--key", default="", help="of the golden curve, where several have the deck's length")
    parser.add_argument("--result", type=pathlib.Path, help="result.json of a run, instead of the golden curve")
    try:
        return 0 if run(parser.parse_args()) else 1
    except (Refused, OSError, ValueError) as problem:
        print(f"check_float64: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
