"""Translates a DeepSpeed ds_config into keys of a Trainstone deck. Owns what became of every leaf of the configuration: it is
honoured (by a key of the deck, or by what Trainstone always does), or listed with the reason and the nearest thing. Never
reads or writes files. What DeepSpeed does where a key is absent is written into the deck, too, because Trainstone's defaults
are others.

Facts about DeepSpeed are those of its runtime/config.py, zero/config.py, lr_schedules.py, fp16/loss_scaler.py and engine.py.
"""
import difflib
import itertools
import json

from deepspeed.keys import ANY, OFFLOAD_SETTLED, SECTIONS, SETTLED, ZERO_SETTLED
from deepspeed.optimizer import PARAMS, RAMP, SCHEDULES, is_number, map_optimizer, map_scheduler, optimizer_name

ZERO = "zero_optimization."
FP16 = ("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale")
OFFLOAD = ("device", "nvme_path", *OFFLOAD_SETTLED)
OPTIMIZER = ("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov", "maximize", "amsgrad",
             "bias_correction", "adam_w_mode", "torch_adam", "fused", "foreach", "capturable", "differentiable")
SCHEDULER = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps", "warmup_min_ratio",
             "cos_min_ratio", "last_batch_iteration")
KNOWN = ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
         "communication_data_type", "data_types.grad_accum_dtype", "fp16.enabled", "bf16.enabled", "optimizer.type",
         "optimizer.legacy_fusion", "scheduler.type", *SETTLED, *(f"fp16.{name}" for name in FP16),
         *(PARAMS + name for name in OPTIMIZER), *(RAMP + name for name in SCHEDULER),
         *(ZERO + name for name in ("stage", "reduce_scatter", "reduce_bucket_size", "overlap_comm",
                                    "zero_hpz_partition_size", "mics_shard_size", *ZERO_SETTLED)),
         *(f"{ZERO}{part}.{name}" for part in ("offload_param", "offload_optimizer") for name in OFFLOAD)]
RESIDENCES = {"cpu": "host", "nvme": "file"}  # memory.offload_optimizer
LAUNCHER = "decided by the launcher's arguments, which ds2deck does not see"


class Unusable(Exception):
    """A configuration that contradicts itself."""


def leaves_of(config, prefix=""):
    """(dotted key, value) of everything that is no section with something in it."""
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves_of(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def is_whole(value):
    return is_number(value) and value == int(value)


def size_text(number):
    """A number of bytes as decks have it, in the largest unit that says it exactly."""
    for unit, factor in (("GiB", 2**30), ("GB", 10**9), ("MiB", 2**20), ("MB", 10**6), ("KiB", 2**10), ("kB", 10**3)):
        if number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} B"


def with_deepspeeds_names(config):
    """A configuration and the lines that say what of it has another name here: lectures call a section "zero"."""
    if not isinstance(config.get("zero"), dict) or "zero_optimization" in config:
        return config, []
    renamed = {"zero_optimization" if name == "zero" else name: value for name, value in config.items()}
    return renamed, ['READ AS zero_optimization: section "zero", which DeepSpeed itself does not know by this name']


def common_ending(path, other):
    """How many parts of two keys are the same, from the last one on."""
    pairs = zip(reversed(path.split(".")), reversed(other.split(".")))
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


class Mapping:
    """`deck` and `origin` (by key of the deck), `honoured` and `listed` (by key of the configuration), `renamed` (lines). `base`:
    keys of a deck that says what a ds_config does not; `given`: those that the user set beside it."""

    def __init__(self, config, base, given=None, ranks=None):
        config, self.renamed = with_deepspeeds_names(config)
        self.leaves = dict(leaves_of(config))
        self.base, self.given, self.ranks = base, given or {}, ranks
        self.deck, self.origin, self.honoured, self.listed, self.keys_of = {}, {}, {}, {}, {}
        for key, value in base.items():
            if key.partition(".")[0] not in ("batch", "precision", "optimizer", "parallel"):
                self.put(key, value, "base")
        for key in ("parallel.reduction", "parallel.check_replicas"):
            if key in base:
                self.put(key, base[key], "base")
        self.list_unknown()
        self.map_sections()
        stage = self.map_stage()
        self.map_batch()
        gradient_bytes = self.map_precision(stage)
        self.map_zero(stage, gradient_bytes)
        map_optimizer(self)
        map_scheduler(self)
        self.put("optimizer.clip", self.number("gradient_clipping", "optimizer.clip", 0.0), "gradient_clipping")
        self.map_settled(SETTLED, "")
        for key, value in self.given.items():
            self.deck[key], self.origin[key] = value, "command line"
        for path in self.leaves:
            if path not in self.honoured and path not in self.listed:
                self.refuse(path, "nothing in the program reads it", "none")

    def add_training_arguments(self, training, settings):
        """Of a Hugging Face Trainer. \\param settings  keys of the deck that they decide"""
        self.renamed += training.lines
        for key, value in settings.items():
            self.deck[key], self.origin[key] = value, "TrainingArguments"
        training.tell(self, settings)

    # --- what became of a key --------------------------------------------------------------------------------------

    def keep(self, path, how):
        if path in self.leaves and path not in self.listed:
            self.honoured[path] = how

    def refuse(self, path, reason, nearest):
        if path in self.leaves:
            self.honoured.pop(path, None)
            self.listed.setdefault(path, (reason, nearest))

    def put(self, key, value, path):
        """Into the deck, because of that key of the configuration, or because of what DeepSpeed does without it."""
        self.deck[key] = value
        source = path if path == "base" or path in self.honoured else f"DeepSpeed's default of {path}"
        self.origin[key] = source if path not in self.listed else f"not {path}, see above"
        if path in self.honoured:
            self.keys_of.setdefault(path, []).append(key)
            self.honoured[path] = ", ".join(self.keys_of[path])

    def below(self, prefix):
        return [path for path in self.leaves if path == prefix or path.startswith(prefix + ".")]

    def idle(self, paths, why):
        for path in paths:
            self.keep(path, f"without effect: {why}")

    def read(self, path, key, default, is_legal, legal):
        """The value, if it is legal; else it is listed, and the default holds (of "auto": the base deck's, if it has one)."""
        if path not in self.leaves or path in self.listed:
            return default
        value = self.leaves[path]
        if value == "auto":
            if key in self.given:
                self.honoured[path] = f"--set {key}"
                return default
            self.refuse(path, LAUNCHER, f"--set {key}=..." if key else "none")
            return self.base.get(key, default)
        if not is_legal(value):
            self.refuse(path, f"must be {legal}", key or "none")
            return default
        self.honoured[path] = key or "what the program does"
        return value

    def whole(self, path, key, default, least):
        return int(self.read(path, key, default, lambda value: is_whole(value) and value >= least,
                             f"a whole number of at least {least}"))

    def number(self, path, key, default, is_legal=lambda value: value >= 0, legal="a number of at least 0"):
        return float(self.read(path, key, default, lambda value: is_number(value) and is_legal(value), legal))

    def switch(self, path, default, key=""):
        return self.read(path, key, default, lambda value: isinstance(value, bool), "true or false")

    # --- keys that decide nothing ----------------------------------------------------------------------------------

    def list_unknown(self):
        foreign = [] if optimizer_name(self) else ["optimizer"]  # its parameters are unknown here, not wrong
        foreign += [] if self.leaves.get("scheduler.type") in SCHEDULES else ["scheduler"]
        for path, value in self.leaves.items():
            parent, _, name = path.rpartition(".")
            if name.startswith(("_", "//", "#")) or name.endswith("comment"):
                self.keep(path, "a comment")
            elif path in KNOWN or any(path == one or path.startswith(one + ".") for one in (*SECTIONS, "aio", *foreign)):
                continue
            elif value in ({}, None) and any(known.startswith(path + ".") for known in KNOWN):
                self.keep(path, "an empty section")
            elif path != "zero_optimization" or not isinstance(value, bool):
                same_name = sorted((known for known in KNOWN if known.rpartition(".")[2] == name),
                                   key=lambda known, path=path: -common_ending(path, known))
                siblings = [known for known in KNOWN if known.rpartition(".")[0] == parent]
                meant = [*difflib.get_close_matches(path, siblings, 1), *same_name, *difflib.get_close_matches(path, KNOWN, 1)]
                self.refuse(path, "no key of DeepSpeed that ds2deck knows", f'did you mean "{meant[0]}"?' if meant else "none")

    def map_sections(self):
        for section, (has_switch, why, nearest) in SECTIONS.items():
            off = has_switch and self.leaves.get(section + ".enabled", False) is False
            for path in self.below(section):
                if off or self.leaves[path] in ({}, None):
                    self.idle([path], "not enabled")
                else:
                    self.refuse(path, why, nearest)
        offloads = [self.leaves.get(f"{ZERO}offload_{what}.device") for what in ("param", "optimizer")]
        for path in self.below("aio"):
            if "nvme" in offloads:
                self.refuse(path, "a chunk is read or written in pieces of 1 MiB, 16 at a time", "memory.offload_chunk, memory.io_engine")
            else:
                self.idle([path], "nothing is offloaded to NVMe")

    def map_settled(self, rows, prefix):
        for name, (values, why, nearest, *_) in rows.items():
            path = prefix + name
            if path not in self.leaves or path in self.listed or path in self.honoured:
                continue
            if values is ANY or self.leaves[path] in values:
                self.honoured[path] = why
            elif self.leaves[path] == "auto":
                self.refuse(path, LAUNCHER, nearest)
            else:
                self.refuse(path, why, nearest)

    # --- batch, precision, ZeRO ------------------------------------------------------------------------------------

    def map_stage(self):
        old = self.leaves.get("zero_optimization")  # true was stage 1 before there were more
        if isinstance(old, bool):
            self.honoured["zero_optimization"] = "parallel.zero_stage"
        stage = self.whole(ZERO + "stage", "parallel.zero_stage", int(old is True), 0)
        if stage > 3 or (ZERO + "stage" in self.listed and self.leaves[ZERO + "stage"] != "auto"):
            raise Unusable(f"{ZERO}stage = {json.dumps(self.leaves[ZERO + 'stage'])}: the stages are 0 to 3")
        return stage

    def map_batch(self):
        """batch = micro x accumulation x ranks; DeepSpeed takes 1 for an accumulation that nothing else decides."""
        names = {"batch.global": "train_batch_size", "batch.micro": "train_micro_batch_size_per_gpu",
                 "batch.accumulation": "gradient_accumulation_steps"}
        found = {key: self.whole(path, key, 0, 1) for key, path in names.items()}
        found |= {key: value for key, value in self.given.items() if key in names}
        for key, path in names.items():
            if path in self.listed and self.leaves[path] != "auto":
                raise Unusable(f"{path} = {json.dumps(self.leaves[path])} {self.listed[path][0]}")
        whole, micro, turns = found.values()
        decided = sum(1 for value in found.values() if value > 0)
        if decided == 3:
            ranks, rest = divmod(whole, micro * turns)
            if rest or (self.ranks and ranks != self.ranks):
                raise Unusable(f"train_batch_size = {whole} contradicts micro {micro} x accumulation {turns} x "
                               + (f"{self.ranks} ranks" if self.ranks else "any number of ranks"))
            self.put("comm.expected_ranks", ranks, "train_batch_size")
        elif decided == 2 and self.ranks and whole % ((micro or turns) * self.ranks):
            raise Unusable(f"train_batch_size = {whole} is no multiple of {micro or turns} x {self.ranks} ranks")
        elif decided == 1 and not turns:
            found["batch.accumulation"] = 1
        elif decided < 2:
            autos = [path for path in names.values() if self.leaves.get(path) == "auto"]
            if not autos and not any(key in self.given for key in names):
                raise Unusable("there is no batch: DeepSpeed needs train_batch_size or train_micro_batch_size_per_gpu; "
                               "--set batch.global=N gives one here")
            for key in names:
                found[key] = found[key] or self.base.get(key, 0 if key == "batch.global" else 1)
        if self.ranks:
            self.put("comm.expected_ranks", self.ranks, "base")
            self.origin["comm.expected_ranks"] = "--ranks"
        for key, path in names.items():
            if found[key]:
                self.put(key, found[key], path)

    def map_precision(self, stage):
        """Returns the bytes of a gradient."""
        types = [name for name in ("fp16", "bf16") if self.switch(f"{name}.enabled", False, "precision.recipe")]
        if len(types) == 2 or (types and self.leaves.get("amp.enabled") is True):
            raise Unusable("more than one of fp16, bf16 and amp is enabled")
        for name in {"fp16", "bf16"} - set(types):
            self.idle([path for path in self.below(name) if path not in self.honoured], f"{name} is not enabled")
        if not types and "auto" in (self.leaves.get("fp16.enabled"), self.leaves.get("bf16.enabled")):
            for key, value in self.base.items():
                if key.startswith("precision."):
                    self.put(key, value, "base")
            self.deck.setdefault("precision.recipe", "fp32")
            self.origin.setdefault("precision.recipe", "not fp16.enabled or bf16.enabled, see above")
            return 4 if self.deck["precision.recipe"] in ("fp32", "mixed18") else 2
        storage = types[0] if types else "fp32"
        default = "fp32" if storage == "fp32" or (storage == "bf16" and stage == 0) else storage
        gradient = self.read("data_types.grad_accum_dtype", "precision.recipe", None,
                             lambda value: value in (None, "fp32", storage), f'null, "fp32" or "{storage}" here') or default
        recipe = "fp32" if not types else "mixed18" if gradient == "fp32" else "mixed16"
        path = "data_types.grad_accum_dtype" if "data_types.grad_accum_dtype" in self.honoured else f"{storage}.enabled"
        self.put("precision.recipe", recipe, path if types else "fp16.enabled")
        self.read("communication_data_type", "precision.recipe", None, lambda value: value in (None, gradient),
                  f'"{gradient}", the type that gradients are stored in')
        if types:
            self.put("precision.storage", storage, f"{storage}.enabled")
        if storage == "fp16":
            self.map_loss_scale()
        return 4 if gradient == "fp32" else 2

    def map_loss_scale(self):
        scale = self.number("fp16.loss_scale", "precision.loss_scale", 0)
        power = self.whole("fp16.initial_scale_power", "precision.initial_loss_scale", 16, 0)
        initial = 2.0**min(power, 40)
        if power > 40:
            self.refuse("fp16.initial_scale_power", "the loss scale is at most 2^40", "precision.initial_loss_scale = 2^40")
        if scale > 0:
            self.refuse("fp16.loss_scale", "fp16 has a dynamic loss scale only", 'precision.loss_scale = "dynamic"')
        self.put("precision.loss_scale", "dynamic", "fp16.loss_scale")
        self.put("precision.initial_loss_scale", initial, "fp16.initial_scale_power")
        self.put("precision.growth_interval", self.whole("fp16.loss_scale_window", "precision.growth_interval", 1000, 1),
                 "fp16.loss_scale_window")
        self.map_settled({"hysteresis": ((1,), "the scale halves at the first overflow", "precision.most_skipped"),
                          "consecutive_hysteresis": ((False,), "the scale halves at the first overflow", "none"),
                          "min_loss_scale": ((1,), "the least loss scale is 1", "none")}, "fp16.")

    def map_offload(self, section, key, is_read):
        """Where a part of the state lies. DeepSpeed reads offload_optimizer from stage 1 on, offload_param in stage 3."""
        section = ZERO + section
        device = self.leaves.get(section + ".device", "none")
        if device == "none" or not is_read:
            return self.idle(self.below(section), "nothing is offloaded")
        if not isinstance(device, str) or device not in RESIDENCES:
            for path in self.below(section):
                self.refuse(path, f"device is one of none, {', '.join(RESIDENCES)}", key)
            return
        self.keep(section + ".device", key)
        self.put(key, RESIDENCES[device], section + ".device")
        path = section + ".nvme_path"
        folder = str(self.leaves.get(path))
        if device != "nvme":
            self.idle([path], "nothing is in files")
        elif path not in self.leaves:
            if "memory.folder" not in self.deck:
                self.put("memory.folder", "", path)
        elif self.origin.get("memory.folder", "base") == "base" or self.deck["memory.folder"] == folder:
            self.keep(path, "memory.folder")
            self.put("memory.folder", folder, path)
        else:
            self.refuse(path, "all files of state lie in one folder", "memory.folder")
        for name, (*_, devices) in OFFLOAD_SETTLED.items():
            if device not in devices:
                self.idle([f"{section}.{name}"], "nothing is in files")
        self.map_settled(OFFLOAD_SETTLED, section + ".")

    def map_zero(self, stage, gradient_bytes):
        self.map_offload("offload_optimizer", "memory.offload_optimizer", stage >= 1)
        self.map_offload("offload_param", "memory.offload_param", stage == 3)
        if stage == 0:
            self.put("parallel.strategy", "ddp", ZERO + "stage")
            self.put("parallel.overlap", False, ZERO + "overlap_comm")
            self.idle([path for path in self.below("zero_optimization") if path not in self.honoured], "stage 0")
        else:
            self.map_sharding(stage)
            self.put("parallel.overlap", self.switch(ZERO + "overlap_comm", stage == 3, "parallel.overlap"),
                     ZERO + "overlap_comm")
        self.map_bucket(stage, gradient_bytes)
        for name, (*_, stages) in ZERO_SETTLED.items():
            if stage not in stages:
                self.idle([ZERO + name] if ZERO + name not in self.honoured else [], f"stage {stage} does not read it")
        if self.leaves.get(ZERO + "param_persistence_threshold",
                           self.leaves.get(ZERO + "stage3_param_persistence_threshold")) == 0:
            self.idle([ZERO + "model_persistence_threshold", ZERO + "stage3_model_persistence_threshold"], "nothing persists")
        prefetch = [path for path in (ZERO + "prefetch_bucket_size", ZERO + "stage3_prefetch_bucket_size")
                    if path in self.leaves]
        if stage == 3 and prefetch and self.leaves[prefetch[0]] == 0:
            self.keep(prefetch[0], "parallel.prefetch")
            self.put("parallel.prefetch", 0, prefetch[0])
        self.map_settled(ZERO_SETTLED, ZERO)

    def map_bucket(self, stage, gradient_bytes):
        """In bytes, which a base deck has as text."""
        path, keys = ZERO + "reduce_bucket_size", ("parallel.bucket", "parallel.first_bucket")
        if stage and self.leaves.get(path) == "auto" and keys[0] in self.base and keys[0] not in self.given:
            self.refuse(path, LAUNCHER, f"--set {keys[0]}=...")
            for key in keys:
                self.put(key, self.base.get(key, self.base[keys[0]]), path)
            return
        elements = self.whole(path, keys[0], 500_000_000, 1) if stage else 500_000_000
        for key in keys:
            self.put(key, size_text(elements * gradient_bytes), path)

    def map_sharding(self, stage):
        group = self.whole(ZERO + "mics_shard_size", "parallel.shard_group", -1, -1)
        hierarchical = self.whole(ZERO + "zero_hpz_partition_size", "", 1, 0)
        if stage == 3 and group > 0:  # MiCS shares parameters, gradients and optimizer state out in groups
            if self.ranks and self.ranks % group:
                raise Unusable(f"{ZERO}mics_shard_size = {group} does not divide {self.ranks} ranks")
            self.keep(ZERO + "stage", "parallel.strategy")
            self.put("parallel.strategy", "hsdp", ZERO + "mics_shard_size")
            self.put("parallel.shard_group", group, ZERO + "mics_shard_size")
        else:
            self.put("parallel.strategy", "zero", ZERO + "stage")
            self.put("parallel.zero_stage", stage, ZERO + "stage")
            self.idle([ZERO + "mics_shard_size"], "MiCS is off" if stage == 3 else "stage 3 reads it")
        if stage < 3 or hierarchical <= 1:
            self.idle([ZERO + "zero_hpz_partition_size"], "no second copy of parameters")
        elif hierarchical == self.ranks:
            self.keep(ZERO + "zero_hpz_partition_size", "the group is all ranks, which is stage 3")
        else:
            self.refuse(ZERO + "zero_hpz_partition_size",
                        f"a second copy of the parameters in groups of {hierarchical} ranks, with gradients and optimizer "
                        "state shared out over all: hsdp shares out all three in a group",
                        f'parallel.strategy = "hsdp", parallel.shard_group = {hierarchical}')
        if not self.switch(ZERO + "reduce_scatter", True, "parallel.gradient_reduction"):
            if stage in (1, 2):
                self.put("parallel.gradient_reduction", "all_reduce", ZERO + "reduce_scatter")
            else:
                self.refuse(ZERO + "reduce_scatter", f"stage {stage} adds up gradients by reduce-scatters",
                            'parallel.zero_stage = 1 or 2 with parallel.gradient_reduction = "all_reduce"')
