"""The optimizer and the schedule of a ds_config in keys of a Trainstone deck. Part of mapping.py, whose Mapping these
functions fill."""
import json
import math

from deepspeed.keys import ANY

PARAMS = "optimizer.params."
RAMP = "scheduler.params."
OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
SCHEDULE_KEYS = ("optimizer.schedule", "optimizer.warmup", "optimizer.final_lr_fraction")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


POSITIVE = (lambda value: value > 0, "a number above 0")
AT_LEAST_0 = (lambda value: value >= 0, "a number of at least 0")
BELOW_1 = (lambda value: 0 <= value < 1, "in [0, 1)")
UP_TO_1 = (lambda value: 0 <= value <= 1, "in [0, 1]")

# As in keys.py.
SETTLED_PARAMS = {
    "bias_correction": ((True,), "the bias of moments is corrected", "none"),
    "amsgrad": ((False,), "there is no AMSGrad", 'optimizer.type = "adamw"'),
    "dampening": ((0,), "there is no dampening", "optimizer.momentum"),
    "nesterov": ((False,), "there is no Nesterov momentum", "optimizer.momentum"),
    "maximize": ((False,), "losses are minimised", "none"),
    "fused": (ANY, "an update is one kernel", ""),
    "foreach": (ANY, "an update is one kernel", ""),
    "capturable": (ANY, "an update is one kernel", ""),
    "differentiable": ((False,), "updates have no gradient", "none"),
}


def put_number(mapping, key, path, default, legal=AT_LEAST_0):
    mapping.put(key, mapping.number(path, key, default, *legal), path)


def are_betas(value):
    return isinstance(value, list) and len(value) == 2 and all(is_number(one) and 0 <= one < 1 for one in value)


def optimizer_name(mapping):
    """As DeepSpeed looks it up; "" of an optimizer that the program does not have."""
    kind = mapping.leaves.get("optimizer.type")
    return kind.lower() if isinstance(kind, str) and kind.lower() in OPTIMIZERS else ""


def map_optimizer(mapping):
    kind, name = mapping.leaves.get("optimizer.type"), optimizer_name(mapping)
    if not name:
        for path in mapping.below("optimizer"):
            if path not in mapping.honoured:  # an empty section, a comment
                mapping.refuse(path, f"there is no optimizer {json.dumps(kind)}", 'optimizer.type = "adamw"')
        for key, value in mapping.base.items():
            if key.startswith("optimizer.") and key not in (*SCHEDULE_KEYS, "optimizer.clip"):
                mapping.put(key, value, "base")
        return
    mapping.honoured["optimizer.type"] = "optimizer.type"
    of_torch = mapping.switch(PARAMS + "torch_adam", False)
    decoupled = mapping.switch(PARAMS + "adam_w_mode", True) or name == "adamw"  # DeepSpeed's Adam is AdamW, too
    ours = "sgd" if name == "sgd" else "adamw" if decoupled else "adam"
    mapping.put("optimizer.type", ours, "optimizer.type")
    put_number(mapping, "optimizer.lr", PARAMS + "lr", 1e-3, POSITIVE)
    put_number(mapping, "optimizer.weight_decay", PARAMS + "weight_decay", 0.01 if of_torch and ours == "adamw" else 0.0)
    mapping.put("optimizer.decay", "all", PARAMS + "weight_decay")
    if ours == "sgd":
        put_number(mapping, "optimizer.momentum", PARAMS + "momentum", 0.0, BELOW_1)
    else:
        betas = mapping.read(PARAMS + "betas", "optimizer.betas", [0.9, 0.999], are_betas, "two numbers in [0, 1)")
        mapping.put("optimizer.betas", [float(beta) for beta in betas], PARAMS + "betas")
        put_number(mapping, "optimizer.eps", PARAMS + "eps", 1e-8, POSITIVE)
    mapping.map_settled(SETTLED_PARAMS, PARAMS)
    mapping.map_settled({"optimizer.legacy_fusion": ((False,), "there is one way to update", "none")}, "")


def map_scheduler(mapping):
    kind = mapping.leaves.get("scheduler.type")
    if kind not in SCHEDULES:
        for path in mapping.below("scheduler"):
            if path not in mapping.honoured:
                mapping.refuse(path, f"there is no schedule {json.dumps(kind)}", "optimizer.schedule, optimizer.warmup")
        mapping.put("optimizer.schedule", "constant", "scheduler.type")
        for key in SCHEDULE_KEYS:
            if key in mapping.base:
                mapping.put(key, mapping.base[key], "base")
        return
    mapping.honoured["scheduler.type"] = "optimizer.schedule"
    if kind != "WarmupLR":
        map_length(mapping)
    low, high = map_peak(mapping, kind)
    if kind == "WarmupLR" and low == high:
        mapping.put("optimizer.schedule", "constant", "scheduler.type")
        mapping.idle([path for path in mapping.below("scheduler.params") if path not in mapping.honoured],
                     "the learning rate stays where it is")
        return
    map_ramp(mapping, low)
    if kind == "WarmupDecayLR":
        mapping.refuse("scheduler.type", "after the warm-up the rate falls linearly to 0; the deck has a cosine to 0",
                       'optimizer.schedule = "cosine"')
    mapping.put("optimizer.schedule", "constant" if kind == "WarmupLR" else "cosine", "scheduler.type")
    if kind == "WarmupDecayLR":
        mapping.put("optimizer.final_lr_fraction", 0.0, "scheduler.type")
    if kind == "WarmupCosineLR":
        put_number(mapping, "optimizer.final_lr_fraction", RAMP + "cos_min_ratio", 1e-4, UP_TO_1)


def map_length(mapping):
    """A schedule ends where the training ends."""
    path = RAMP + "total_num_steps"
    steps = mapping.whole(path, "data.steps", 0, 1)
    if steps and mapping.given.get("data.steps", steps) != steps:
        mapping.refuse(path, "the schedule ends with the training, which --steps ends elsewhere", "data.steps")
    elif steps:
        mapping.deck.pop("data.epochs", None)
        mapping.put("data.steps", steps, path)


def map_peak(mapping, kind):
    """Lowest and highest learning rate; the scheduler's takes the place of the optimizer's."""
    peak = mapping.deck.get("optimizer.lr", 3e-4)
    if kind == "WarmupCosineLR":
        return mapping.number(RAMP + "warmup_min_ratio", "", 0) * peak, peak
    high = mapping.number(RAMP + "warmup_max_lr", "optimizer.lr", 1e-3 if kind == "WarmupDecayLR" else peak, *POSITIVE)
    if high != peak and PARAMS + "lr" in mapping.honoured:
        mapping.honoured[PARAMS + "lr"] = "without effect: the scheduler has a rate of its own"
    mapping.put("optimizer.lr", high, RAMP + "warmup_max_lr")
    return mapping.number(RAMP + "warmup_min_lr", "", 0), high


def map_ramp(mapping, low):
    """Both ramps are linear, but not the same: DeepSpeed's is two steps behind, and its default is a logarithm."""
    path = RAMP + "warmup_num_steps"
    wanted = max(2, mapping.whole(path, "optimizer.warmup", 1000, 0))
    steps = mapping.given.get("data.steps", mapping.deck.get("data.steps"))
    blamed = path if path in mapping.leaves else "scheduler.type"
    length = wanted if steps is None or wanted <= steps else 0
    ramp = f"step s, from 0, has the share (s - 1) / {wanted} of the rate, here (s + 1) / {wanted}"
    mapping.refuse(blamed, ramp if length else f"longer than the training of {steps} steps: the deck has no warm-up",
                   f"optimizer.warmup = {wanted}" + ("" if length else " with more --steps"))
    mapping.put("optimizer.warmup", length, blamed)
    shape = RAMP + "warmup_type"
    grows = mapping.read(shape, "optimizer.warmup", "log", lambda value: value == "linear",
                         '"linear": there is no logarithmic warm-up, and the deck has a linear one')
    if grows == "log" and mapping.leaves.get(path) != "auto":
        reason, nearest = mapping.listed[blamed]
        mapping.listed[blamed] = (reason + "; and it grows with a logarithm", nearest)
    if low:
        for name in ("warmup_min_lr", "warmup_min_ratio"):
            mapping.refuse(RAMP + name, "a warm-up begins at 0", "optimizer.warmup")
    mapping.map_settled({"last_batch_iteration": ((-1,), "a training begins at its first step", "checkpoint.resume")}, RAMP)
