"""GPT-2's loss and its gradients, and AdamW, in float64 with NumPy alone: the part of check_float64.py that does not
depend on decks or data. Written from the published definitions (Language Models are Unsupervised Multitask Learners,
2019; Decoupled Weight Decay Regularization, arXiv:1711.05101); derivatives by hand.

Parameters and gradients are groups of tensors: group 0 holds the two tables and the last norm, group i + 1 is block i.
Weights are (outputs, inputs); activations are (batch x T, channels).
"""
import math

import numpy as np

Array = np.ndarray
Tensors = dict[str, Array]


def layernorm(x: Array, gamma: Array, beta: Array) -> tuple[Array, tuple]:
    centered = x - x.mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
    return centered * rstd * gamma + beta, (centered * rstd, rstd, gamma)


def layernorm_backward(d_y: Array, kept: tuple) -> tuple[Array, Array, Array]:
    normalized, rstd, gamma = kept
    d = d_y * gamma
    d_x = d - d.mean(axis=1, keepdims=True) - normalized * (d * normalized).mean(axis=1, keepdims=True)
    return d_x * rstd, (d_y * normalized).sum(axis=0), d_y.sum(axis=0)


def gelu_tanh(x: Array) -> Array:
    return np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def gelu_backward(x: Array, d_y: Array) -> Array:
    t = gelu_tanh(x)
    return d_y * 0.5 * (1 + t + x * (1 - t**2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2))


def attention(qkv: Array, batch: int, heads: int) -> tuple[Array, tuple]:
    """Causal: a position sees itself and those before it."""
    length = len(qkv) // batch
    q, k, v = qkv.reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)  # each (batch, heads, T, head size)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights /= weights.sum(axis=3, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(len(qkv), -1), (q, k, v, weights)


def attention_backward(d_out: Array, kept: tuple) -> Array:
    q, k, v, weights = kept
    batch, heads, length, size = q.shape
    d_out = d_out.reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    d_weights = d_out @ v.swapaxes(2, 3)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=3, keepdims=True)) / math.sqrt(size)
    d_qkv = np.stack([d_scores @ k, d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_out])
    return d_qkv.transpose(1, 3, 0, 2, 4).reshape(batch * length, -1)


def block_forward(w: Tensors, x: Array, batch: int, heads: int) -> tuple[Array, tuple]:
    ln1, kept_ln1 = layernorm(x, w["ln1w"], w["ln1b"])
    attended, kept_attention = attention(ln1 @ w["qkvw"].T + w["qkvb"], batch, heads)
    middle = x + attended @ w["attprojw"].T + w["attprojb"]
    ln2, kept_ln2 = layernorm(middle, w["ln2w"], w["ln2b"])
    fc = ln2 @ w["fcw"].T + w["fcb"]
    gelu = 0.5 * fc * (1 + gelu_tanh(fc))
    out = middle + gelu @ w["fcprojw"].T + w["fcprojb"]
    return out, (ln1, kept_ln1, attended, kept_attention, ln2, kept_ln2, fc, gelu)


def block_backward(w: Tensors, d: Array, kept: tuple) -> tuple[Array, Tensors]:
    """d is the gradient of the block's output; returns that of its input, and of its parameters."""
    ln1, kept_ln1, attended, kept_attention, ln2, kept_ln2, fc, gelu = kept
    g = {"fcprojw": d.T @ gelu, "fcprojb": d.sum(axis=0)}
    d_fc = gelu_backward(fc, d @ w["fcprojw"])
    g |= {"fcw": d_fc.T @ ln2, "fcb": d_fc.sum(axis=0)}
    d_middle, g["ln2w"], g["ln2b"] = layernorm_backward(d_fc @ w["fcw"], kept_ln2)
    d = d + d_middle
    g |= {"attprojw": d.T @ attended, "attprojb": d.sum(axis=0)}
    d_qkv = attention_backward(d @ w["attprojw"], kept_attention)
    g |= {"qkvw": d_qkv.T @ ln1, "qkvb": d_qkv.sum(axis=0)}
    d_in, g["ln1w"], g["ln1b"] = layernorm_backward(d_qkv @ w["qkvw"], kept_ln1)
    return d + d_in, g


def embed(root: Tensors, inputs: Array) -> Array:
    """Inputs (batch, T) -> (batch x T, channels)."""
    return (root["wte"][inputs] + root["wpe"][: inputs.shape[1]]).reshape(inputs.size, -1)


def embed_backward(d: Array, inputs: Array, d_root: Tensors) -> None:
    """Adds to the gradient of the token table, and sets that of the position table."""
    np.add.at(d_root["wte"], inputs.reshape(-1), d)
    d_root["wpe"][: inputs.shape[1]] = d.reshape(*inputs.shape, -1).sum(axis=0)


def head(root: Tensors, x: Array, targets: Array) -> tuple[float, Array, Tensors]:
    """Mean cross-entropy of all positions; its gradient by x; its gradients by the root's tensors, without the embedding's
    part."""
    rows, targets = np.arange(targets.size), targets.reshape(-1)
    lnf, kept_lnf = layernorm(x, root["lnfw"], root["lnfb"])
    logits = lnf @ root["wte"].T
    logits -= logits.max(axis=1, keepdims=True)
    d_logits = np.exp(logits)
    sums = d_logits.sum(axis=1, keepdims=True)
    loss = float((np.log(sums[:, 0]) - logits[rows, targets]).mean())

    d_logits /= sums
    d_logits[rows, targets] -= 1.0
    d_logits /= targets.size
    d_root = {"wte": d_logits.T @ lnf, "wpe": np.zeros_like(root["wpe"])}
    d, d_root["lnfw"], d_root["lnfb"] = layernorm_backward(d_logits @ root["wte"], kept_lnf)
    return loss, d, d_root


def loss_and_gradients(
    parameters: list[Tensors], heads: int, inputs: Array, targets: Array
) -> tuple[float, list[Tensors]]:
    """Mean cross-entropy over all positions of the batch, and its gradients in the order of the parameters."""
    root, blocks = parameters[0], parameters[1:]
    x = embed(root, inputs)
    kept_blocks = []
    for block in blocks:
        x, kept = block_forward(block, x, len(inputs), heads)
        kept_blocks.append(kept)
    loss, d, d_root = head(root, x, targets)
    d_blocks = []
    for block, kept in zip(reversed(blocks), reversed(kept_blocks)):
        d, d_block = block_backward(block, d, kept)
        d_blocks.insert(0, d_block)
    embed_backward(d, inputs, d_root)
    return loss, [d_root, *d_blocks]


def clip_factor(optimizer: dict, norm: float) -> float:
    return min(1.0, optimizer["clip"] / (norm + 1e-6)) if optimizer["clip"] > 0 else 1.0


def adamw(optimizer: dict, p: Array, g: Array, m: Array, v: Array, rate: float, step: int) -> None:
    """Updates a tensor and its moments in place by its gradient, which is clipped already. Step counts from 0."""
    beta1, beta2 = optimizer["betas"]
    m += (1 - beta1) * (g - m)
    v += (1 - beta2) * (g * g - v)
    decay = optimizer["weight_decay"] if p.ndim == 2 or optimizer["decay"] == "all" else 0.0
    direction = m / (1 - beta1 ** (step + 1)) / (np.sqrt(v / (1 - beta2 ** (step + 1))) + optimizer["eps"])
    p -= rate * (direction + decay * p)


class AdamW:
    """Adam with bias correction, clipping by the norm of all gradients and decoupled weight decay."""

    def __init__(self, optimizer: dict, parameters: list[Tensors]):
        self.optimizer, self.parameters = optimizer, parameters
        self.moments = [{k: [np.zeros_like(p), np.zeros_like(p)] for k, p in group.items()} for group in parameters]

    def update(self, gradients: list[Tensors], rate: float, step: int) -> float:
        """Step counts from 0. Returns the norm of the gradients."""
        norm = math.sqrt(sum(float((g * g).sum()) for group in gradients for g in group.values()))
        scale = clip_factor(self.optimizer, norm)
        for group, moments, group_gradients in zip(self.parameters, self.moments, gradients):
            for name, p in group.items():
                adamw(self.optimizer, p, group_gradients[name] * scale, *moments[name], rate, step)
        return norm


class MeanSizes:
    """Mean |value| of each kind of tensor. Of qkvb without the bias of keys: its gradient is 0 but for rounding, since softmax
    does not see what is added to all scores of a row."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def add(self, name: str, values: Array) -> None:
        if name == "qkvb":
            third = len(values) // 3
            values = np.concatenate([values[:third], values[2 * third:]])
        total = self.sums.setdefault(name, [0.0, 0.0])
        total[0] += float(np.abs(values).sum())
        total[1] += values.size

    def means(self) -> dict[str, float]:
        return {name: total / count for name, (total, count) in self.sums.items()}
