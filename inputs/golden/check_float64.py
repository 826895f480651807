#!/usr/bin/env python3
"""Recomputes the first steps of a deck's training in float64, with NumPy alone, and compares them with the deck's golden
curve or with a run: losses, norms of gradients, and how far the parameters of each kind have changed; and with a golden first
step, if there is one, the loss of the first sample and what one update did. It shares no code with the program: everything
from the random numbers to the update is written anew from the definitions, so that an error in one of the two shows as a
difference.

usage: check_float64.py DECK.toml [--steps N] [--bound B] [--set KEY=VALUE] [--key KEY | --result result.json]
       check_float64.py DECK.toml --record-update [--scratch FOLDER] [--key KEY] [--set KEY=VALUE]

A run of server.mode async or bounded (--result) is repeated push by push, in the order that it has noted.
Parameters start with the values that the program stores, rounded to fp32; all else is float64. A deck that it cannot
follow is refused. data.xxhash is not checked: the program does that.
Exit status: 0 all steps agree, 1 one does not, 2 there is nothing to compare with or the deck is refused.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys
import time
import tomllib
from collections.abc import Callable, Iterator

sys.dont_write_bytecode = True  # no __pycache__ beside the decks
from float64_data import Samples, initial_group, initial_parameters
from float64_first_step import FirstUpdate, first_update
from float64_model import AdamW, Array, MeanSizes, Tensors, loss_and_gradients
from float64_servers import steps_of_pushes
from golden_file import FirstStep, Refused, expected_values, golden_path, record_update, require

# Relative, on the loss. A sum of 200 products in fp32 is off by about sqrt(200) x 6e-8 = 1e-6 of its terms, with random
# signs over the positions that the loss averages: 1e-8 to 1e-7 for equal parameters. Measured over the first 12 steps
# of the quickstart: 5e-8; where a gradient's norm jumps fifty-fold: 7e-7. Ten steps without weight decay, or with ten
# times the epsilon, differ by 1e-5 to 3e-5, so a much looser bound would miss them.
BOUND = 2e-6

# Relative, on the norm of a step's gradient and on the mean change of a kind of parameter: the bounds by which a run is
# compared with a golden curve (src/result/golden_checks.cpp tells what they see). Measured over the first 10 steps of tiny
# and of the quickstart: MEASURED_NORMS and MEASURED_CHANGES.
NORM_BOUND = 2e-6
CHANGE_BOUND = 2e-5

# The same of a first step, which comes from float64, too, and from the same rounded values: a sum of some 10^4 terms is
# off by 1e-14 of them, and an initial value whose last bit in fp32 is another one changes the loss by less than 1e-12.
FIRST_STEP_BOUND = 1e-10

PRESETS = {"gpt2": (12, 12, 768, 1024, 50257), "gpt2-medium": (24, 16, 1024, 1024, 50257),
           "gpt2-large": (36, 20, 1280, 1024, 50257), "gpt2-xl": (48, 25, 1600, 1024, 50257),
           "gpt3-6.7b": (32, 32, 4096, 2048, 50257)}
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
""", "reference": """
model = { layers = 24, heads = 16, channels = 2048, context = 2048, vocab = 50257 }
data = { source = "synthetic", sequence = 2048, steps = 20 }
batch = { global = 512 }
optimizer = { lr = 2e-4, schedule = "constant", warmup = 5 }
""", "large": """
model = { preset = "gpt3-6.7b" }
data = { source = "synthetic", sequence = 2048, steps = 10 }
batch = { global = 1024 }
optimizer = { lr = 1.2e-4, schedule = "constant", warmup = 5 }
"""}

DEFAULTS = {
    "model": {"preset": "", "load": "", "save": "", "attention": "plain"} | dict.fromkeys(SHAPE, 0),
    "data": {"source": "text", "files": [], "sequence": 0, "seed": 1, "xxhash": "", "validation_files": [],
             "validation_fraction": 0.0, "validate_every": 0, "validation_batches": 0, "steps": 0, "epochs": 0,
             "stop_loss": 0.0},
    "batch": {"micro": 0, "accumulation": 0, "global": 0},
    "precision": {"recipe": "fp32"},
    "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                  "decay": "matrices", "clip": 1.0, "schedule": "cosine", "warmup": 0, "final_lr_fraction": 0.1},
}
NO_EFFECT = ("parallel", "server", "memory", "comm", "kernels", "bench")  # sections that do not change what is learned
NO_EFFECT_OF_FAULTS = ("pace", "straggler")  # time alone


def toml_of(override: str) -> dict[str, dict]:
    """Strings may go without quotes, as the program takes them."""
    key, equals, value = override.partition("=")
    try:
        return tomllib.loads(override)
    except tomllib.TOMLDecodeError:
        require(bool(equals), f"--set {override}: KEY=VALUE is expected")
        return tomllib.loads(f"{key}={json.dumps(value.strip())}")


# --- deck -------------------------------------------------------------------------------------------------------------


def read_deck(path: pathlib.Path, overrides: list[str]) -> dict[str, dict]:
    """The deck with its defaults filled in; an override is one line of TOML: data.steps=12."""
    deck = {section: dict(keys) for section, keys in DEFAULTS.items()}
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    name = own.get("class", "custom")
    require(name in CLASSES or name == "custom", f"class = {name!r} is not recomputed here")
    for given in [tomllib.loads(CLASSES.get(name, "")), own, *map(toml_of, overrides)]:
        for section, keys in given.items():
            if section == "class":
                continue
            if section in NO_EFFECT or (section == "faults" and set(keys) <= set(NO_EFFECT_OF_FAULTS)):
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


# --- training ---------------------------------------------------------------------------------------------------------


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


def difference(value: float, reference: float) -> float:
    """Relative; infinite where one is no number."""
    relative = abs(value - reference) / abs(value) if value != reference else 0.0
    return relative if math.isfinite(relative) else math.inf


def mean_changes(parameters: list[Tensors], initial: list[Tensors]) -> dict[str, float]:
    sizes = MeanSizes()
    for group, begun in zip(parameters, initial):
        for name, values in group.items():
            sizes.add(name, values - begun[name])
    return sizes.means()


def changes_agree(found: dict[str, float], expected: dict) -> bool:
    """Prints the kind that differs most."""
    require(found.keys() == expected["mean"].keys(), "the changes have other kinds than the model has tensors")
    differences = {name: difference(found[name], expected["mean"][name]) for name in found}
    worst = max(differences, key=lambda name: differences[name])
    agrees = differences[worst] <= CHANGE_BOUND
    print(f"changes after step {expected['after_step']}: {'agree' if agrees else 'DIFFER'}, at most {differences[worst]:.1e} "
          f"({worst}), bound {CHANGE_BOUND:.1e}", flush=True)
    return agrees


class WrongLoss(Exception):
    """What the file tells is not what this program computes."""


def first_positions(first: FirstStep, samples: Samples) -> tuple[Array, Array]:
    """Of the first step's first sample: inputs and targets (1, positions)."""
    inputs, targets = (array[:1, : first.positions] for array in samples.batch(0))
    require(inputs.size == first.positions, f"the first step has {first.positions} positions, a sample fewer")
    return inputs, targets


def update_at_first(first: FirstStep, deck: dict[str, dict], samples: Samples, scratch: str | None) -> FirstUpdate:
    """What one update does, if the loss before it is the file's: raises WrongLoss if not."""
    def check_loss(loss: float) -> None:
        if difference(loss, first.loss) > FIRST_STEP_BOUND:
            raise WrongLoss(f"the loss of the first step is {loss:.12f} in float64, and {first.loss:.12f} in the file")

    model = deck["model"]
    return first_update(lambda index: initial_group(model, samples.seed, index), model["layers"], model["heads"],
                        deck["optimizer"], *first_positions(first, samples), check_loss, scratch)


def agrees_at_first(first: FirstStep, deck: dict[str, dict], samples: Samples, scratch: str | None) -> bool:
    """The loss of the first positions of the first sample before any update; and what one update did, if the file tells."""
    if first.update is None:
        parameters = initial_parameters(deck["model"], samples.seed)
        loss = loss_and_gradients(parameters, deck["model"]["heads"], *first_positions(first, samples))[0]
        differences = {"loss": difference(loss, first.loss)}
    else:
        update, expected = update_at_first(first, deck, samples, scratch), first.update
        loss = update.loss
        differences = {"loss": difference(loss, first.loss), "norm": difference(update.norm, expected["norm"]),
                       "loss after the update": difference(update.loss_after, expected["loss_after"])}
        for which, found in (("gradients", update.gradients), ("changes", update.changes)):
            require(found.keys() == expected[which].keys(), f"the {which} have other kinds than the model has tensors")
            differences |= {f"{which} of {name}": difference(found[name], expected[which][name]) for name in found}
    worst = max(differences, key=lambda name: differences[name])
    agrees = differences[worst] <= FIRST_STEP_BOUND
    print(f"first step, {first.positions} positions: {loss:.12f}, golden {first.loss:.12f}: {'agree' if agrees else 'DIFFER'}, "
          f"{differences[worst]:.1e} ({worst}), bound {FIRST_STEP_BOUND:.1e}", flush=True)
    return agrees


def record_first_update(arguments: argparse.Namespace, first: FirstStep | None, deck: dict[str, dict], samples: Samples) -> None:
    require(first is not None, "there is no first step whose update could be recorded")
    require(first.positions >= samples.rows, f"an update wants a position for each of the {samples.rows} samples of a step")
    require(first.positions < deck["model"]["context"] or deck["optimizer"]["weight_decay"] == 0,
            "an update of all positions does not show weight decay: record fewer of them")
    update = update_at_first(first, deck, samples, arguments.scratch)
    record_update(arguments.deck, first, {"recorded_with": "check_float64.py", "norm": update.norm,
                                          "loss_after": update.loss_after, "gradients": update.gradients,
                                          "changes": update.changes})
    print(f"update of first step {first.key} recorded in {golden_path(arguments.deck)}")


def steps_of_training(deck: dict[str, dict], samples: Samples, parameters: list[Tensors],
                      rate: Callable[[int], float]) -> Iterator[tuple[float, float]]:
    """Loss and norm of each step. \\param rate  of a step counted from 0"""
    adamw = AdamW(deck["optimizer"], parameters)
    for step in itertools.count():
        loss, gradients = loss_and_gradients(parameters, deck["model"]["heads"], *samples.batch(step))
        yield loss, adamw.update(gradients, rate(step), step)


def run(arguments: argparse.Namespace) -> bool:
    """Prints a line per step; true if all are within the bound."""
    deck = read_deck(arguments.deck, arguments.set)
    samples = Samples(deck, arguments.deck.parent)
    steps = deck["data"]["steps"] or -(-deck["data"]["epochs"] * samples.count // samples.rows)
    require(arguments.steps >= 1, f"--steps {arguments.steps} must be at least 1")
    expected = expected_values(arguments, steps)
    if arguments.record_update:
        record_first_update(arguments, expected.first_step, deck, samples)
        return True
    agrees = expected.first_step is None or agrees_at_first(expected.first_step, deck, samples, arguments.scratch)
    if not expected.losses:
        return agrees
    parameters = initial_parameters(deck["model"], samples.seed)
    changed_after = expected.changes["after_step"] if expected.changes else 0
    initial = [{name: values.copy() for name, values in group.items()} for group in parameters] if changed_after else []
    def rate(step: int) -> float:
        return learning_rate(deck["optimizer"], steps, step)

    trained = (steps_of_pushes(deck, samples, parameters, expected.servers, rate) if expected.servers
               else steps_of_training(deck, samples, parameters, rate))
    worst = worst_norm = 0.0
    print(f"{'step':>4}  {'float64 loss':>14}  {'fp32 loss':>14}  {'difference':>10}  {'norm':>9}  {'difference':>10}  seconds")
    for step, reference in enumerate(expected.losses[: arguments.steps]):
        start = time.perf_counter()
        loss, norm = next(trained)
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
    parser.add_argument("--record-update", action="store_true",
                        help="computes what one update does and records it with the golden first step, whose loss must agree")
    parser.add_argument("--scratch", metavar="FOLDER",
                        help="for the gradients of an update, 8 bytes per parameter (default: the system's temporary folder)")
    parser.add_argument("--result", type=pathlib.Path, help="result.json of a run, instead of the golden curve")
    try:
        return 0 if run(parser.parse_args()) else 1
    except WrongLoss as difference_found:
        print(f"DIFFER: {difference_found}")
        return 1
    except (Refused, OSError, ValueError) as problem:
        print(f"check_float64: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
