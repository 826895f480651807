"""One update of a training from its initial parameters, in float64: loss, gradients, AdamW, and the loss that follows. For
models that do not fit into memory: parameters are made anew, block by block, whenever they are needed, and gradients wait in a
folder (8 bytes per parameter). Work: about five forward passes. Memory: some blocks, and the activations between blocks.
"""
import dataclasses
import math
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np

from float64_model import (Array, MeanSizes, Tensors, adamw, block_backward, block_forward, clip_factor, embed, embed_backward,
                           head)


@dataclasses.dataclass
class FirstUpdate:
    loss: float                   # before the update
    norm: float                   # of the gradient, before it is clipped
    gradients: dict[str, float]   # mean |gradient| of each kind of tensor
    changes: dict[str, float]     # mean |change| of each kind of tensor by the update
    loss_after: float             # of the same positions


class Scratch:
    """Gradients of groups of tensors in a folder."""

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)

    def path(self, index: int, name: str) -> pathlib.Path:
        return self.folder / f"{index}-{name}.npy"

    def keep(self, index: int, gradients: Tensors) -> None:
        for name, values in gradients.items():
            np.save(self.path(index, name), values)

    def take(self, index: int, name: str) -> Array:
        return np.load(self.path(index, name))


def first_update(initial: Callable[[int], Tensors], layers: int, heads: int, optimizer: dict, inputs: Array, targets: Array,
                 check_loss: Callable[[float], None], folder: str | None = None) -> FirstUpdate:
    """initial(i) makes group i: 0 is the root, i + 1 is block i. The learning rate is optimizer["lr"], without warm-up.
    check_loss is called as soon as the loss is known, and may raise. The gradients need a folder with 8 bytes per parameter
    (default: the system's for temporary files)."""
    start = time.perf_counter()
    say = lambda text: print(f"  {time.perf_counter() - start:7.1f} s  {text}", flush=True)
    root, streams = initial(0), []
    x = embed(root, inputs)
    for block in range(layers):
        streams.append(x)
        x = block_forward(initial(block + 1), x, len(inputs), heads)[0]
    say("forward")
    sizes, changes, squares = MeanSizes(), MeanSizes(), 0.0
    with tempfile.TemporaryDirectory(dir=folder) as scratch_folder:
        scratch = Scratch(scratch_folder)

        def keep(index: int, gradients: Tensors) -> None:
            nonlocal squares
            squares += sum(float(np.vdot(g, g)) for g in gradients.values())
            for name, values in gradients.items():
                sizes.add(name, values)
            scratch.keep(index, gradients)

        def updated(index: int, group: Tensors) -> Tensors:
            for name, p in group.items():
                g, before = scratch.take(index, name) * factor, p.copy()
                adamw(optimizer, p, g, np.zeros_like(p), np.zeros_like(p), optimizer["lr"], 0)
                changes.add(name, p - before)
            return group

        loss, d, d_root = head(root, x, targets)
        check_loss(loss)
        del root
        for block in reversed(range(layers)):
            group = initial(block + 1)
            kept = block_forward(group, streams.pop(), len(inputs), heads)[1]
            d, gradients = block_backward(group, d, kept)
            keep(block + 1, gradients)
        embed_backward(d, inputs, d_root)
        keep(0, d_root)
        del group, kept, gradients, d_root
        norm = math.sqrt(squares)
        factor = clip_factor(optimizer, norm)
        say(f"backward: loss {loss:.12f}, norm {norm:.8f}")
        root = updated(0, initial(0))
        x = embed(root, inputs)
        for block in range(layers):
            x = block_forward(updated(block + 1, initial(block + 1)), x, len(inputs), heads)[0]
        loss_after = head(root, x, targets)[0]
        say(f"loss after the update {loss_after:.12f}")
    return FirstUpdate(loss, norm, sizes.means(), changes.means(), loss_after)
