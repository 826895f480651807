"""What golden files and results tell of a training's first steps, for check_float64.py."""
import argparse
import dataclasses
import json
import math
import os
import pathlib


class Refused(Exception):
    """There is nothing to compare, or the deck asks for something that is not recomputed here."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


@dataclasses.dataclass
class FirstStep:
    """The loss of the first positions of the first sample before any update, and what one update did, if that is known."""
    key: str
    loss: float
    positions: int
    update: dict | None  # {"norm": 1.5, "gradients": {"wte": 1e-5, ...}, "changes": {"wte": 1e-3, ...}, "loss_after": 9.8}


@dataclasses.dataclass
class Expected:
    """What a golden curve or a run tells of a training's first steps."""
    losses: list[float]
    norms: list[float]
    changes: dict | None  # {"after_step": 10, "mean": {"wte": 1e-3, ...}}
    first_step: FirstStep | None = None
    servers: dict | None = None  # of a run whose workers do not wait for each other


def golden_path(deck: pathlib.Path) -> pathlib.Path:
    return deck.parent / "golden" / f"{deck.stem}.json"


def numbers(values: list) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]  # a result's null: not finite


def expected_values(arguments: argparse.Namespace, steps: int) -> Expected:
    """Of the run's result.json, or of the deck's golden curve and golden first step. Without a curve of the deck's length
    there must be a first step."""
    path = arguments.result or golden_path(arguments.deck)
    require(path.exists(), f"{path}: there is no such file: record a golden curve, or give --result")
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        if arguments.result:
            early = content["early_steps"]
            curves, first_steps = {"run": {"losses": content["samples"]["loss"], **early}}, {}
        else:
            curves = {key: curve for key, curve in content["curves"].items() if arguments.key in ("", key)}
            first_steps = {key: FirstStep(key, float(entry["loss"]), int(entry["positions"]), entry.get("update"))
                           for key, entry in content.get("first_steps", {}).items() if arguments.key in ("", key)}
        found = {key: Expected(numbers(curve["losses"]), numbers(curve.get("norms", [])), curve.get("changes"),
                               first_steps.get(key), content.get("servers")) for key, curve in curves.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Refused(f"{path}: has no losses where they are expected") from None
    fitting = [expected for expected in found.values() if len(expected.losses) == steps]
    if not fitting and len(first_steps) == 1:
        return Expected([], [], None, next(iter(first_steps.values())))
    lengths = ", ".join(f"{key}: {len(expected.losses)}" for key, expected in found.items())
    require(len(fitting) == 1, f"{path}: one curve must have the deck's {steps} steps, or one first step be there; first "
                               f"steps: {len(first_steps)}, steps of each curve: {lengths or 'none'}")
    return fitting[0]


def record_update(deck: pathlib.Path, first: FirstStep, update: dict) -> None:
    """Adds the update to the golden first step. The file is replaced as a whole."""
    path = golden_path(deck)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["first_steps"][first.key]["update"] = update
    temporary = path.with_suffix(f".json.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
