"""Repeats in float64 a training whose workers do not wait for each other, push by push, in the order that the servers of a run
have noted (result.json, servers.acts). Part of check_float64.py."""
import copy
from collections.abc import Callable, Iterator

from float64_data import Samples
from float64_model import AdamW, Tensors, loss_and_gradients


def steps_of_pushes(deck: dict[str, dict], samples: Samples, parameters: list[Tensors], servers: dict,
                    rate: Callable[[int], float]) -> Iterator[tuple[float, float]]:
    """Mean loss and mean norm of each step, which is as many pushes as there are workers. A worker computes from the
    parameters of its last answer, with its share of the samples of the global batch that its own clock names. An update
    counts as a step of the optimizer. \\param rate  of a step counted from 0"""
    workers = len(servers["workers"])
    scale = deck.get("server", {}).get("lr_scale", 0) or 1 / workers
    own, heads = samples.rows // workers, deck["model"]["heads"]
    adamw, answered, clocks, applied = AdamW(deck["optimizer"], parameters), [None] * workers, [0] * workers, 0
    losses, norms = [], []
    for act in servers["acts"]:
        worker, answers = divmod(act, 2)
        if answers:
            answered[worker] = copy.deepcopy(parameters)
            continue
        inputs, targets = (rows[worker * own:(worker + 1) * own] for rows in samples.batch(clocks[worker]))
        loss, gradients = loss_and_gradients(answered[worker], heads, inputs, targets)
        norms.append(adamw.update(gradients, scale * rate(applied // workers), applied))
        losses.append(loss)
        clocks[worker] += 1
        applied += 1
        if applied % workers == 0:
            yield sum(losses[-workers:]) / workers, sum(norms[-workers:]) / workers
