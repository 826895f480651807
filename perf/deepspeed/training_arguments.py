"""TrainingArguments of a Hugging Face Trainer beside a ds_config: they fill in what the ds_config leaves to them ("auto"), and
say how long the training is and where its checkpoints go. Owns what became of every argument. Never reads files.

Facts are those of transformers' training_args.py and integrations/deepspeed.py.
"""
import copy
import json

from deepspeed.mapping import Unusable, is_whole
from deepspeed.optimizer import is_number

PREFIX = "TrainingArguments."
# argument: (default, whether a value is legal, what is legal)
ARGUMENTS = {
    "per_device_train_batch_size": (8, lambda value: is_whole(value) and value >= 1, "a whole number of at least 1"),
    "gradient_accumulation_steps": (1, lambda value: is_whole(value) and value >= 1, "a whole number of at least 1"),
    "learning_rate": (5e-5, lambda value: is_number(value) and value > 0, "a number above 0"),
    "weight_decay": (0.0, lambda value: is_number(value) and value >= 0, "a number of at least 0"),
    "adam_beta1": (0.9, lambda value: is_number(value) and 0 <= value < 1, "in [0, 1)"),
    "adam_beta2": (0.999, lambda value: is_number(value) and 0 <= value < 1, "in [0, 1)"),
    "adam_epsilon": (1e-8, lambda value: is_number(value) and value > 0, "a number above 0"),
    "max_grad_norm": (1.0, lambda value: is_number(value) and value >= 0, "a number of at least 0"),
    "warmup_steps": (0, lambda value: is_whole(value) and value >= 0, "a whole number of at least 0"),
    "fp16": (False, lambda value: isinstance(value, bool), "true or false"),
    "bf16": (False, lambda value: isinstance(value, bool), "true or false"),
    "max_steps": (-1, is_whole, "a whole number"),
    "num_train_epochs": (3, lambda value: is_number(value) and value > 0, "a number above 0"),
    "seed": (42, lambda value: is_whole(value) and value >= 0, "a whole number of at least 0"),
    "output_dir": ("trainer_output", lambda value: isinstance(value, str), "the name of a folder"),
    "per_device_eval_batch_size": (8, lambda value: is_whole(value) and value >= 1, "a whole number of at least 1"),
}
# key of the ds_config: the arguments that decide it where it is "auto"
FILLED = {"train_micro_batch_size_per_gpu": ("per_device_train_batch_size",),
          "gradient_accumulation_steps": ("gradient_accumulation_steps",),
          "gradient_clipping": ("max_grad_norm",), "fp16.enabled": ("fp16",), "bf16.enabled": ("bf16",),
          "optimizer.params.lr": ("learning_rate",), "optimizer.params.betas": ("adam_beta1", "adam_beta2"),
          "optimizer.params.eps": ("adam_epsilon",), "optimizer.params.weight_decay": ("weight_decay",),
          "scheduler.params.warmup_max_lr": ("learning_rate",), "scheduler.params.warmup_num_steps": ("warmup_steps",)}
BATCH = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def place_of(config, path):
    """The section that has the key, and the key's name there; None without such a section."""
    *sections, name = path.split(".")
    for section in sections:
        config = config.get(section) if isinstance(config, dict) else None
    return (config, name) if isinstance(config, dict) else None


class TrainingArguments:
    """`lines`: what was filled in. \\p values: what the file has; Unusable if a value has no meaning."""

    def __init__(self, values, ranks=None):
        self.values, self.ranks, self.lines, self.fills = dict(values), ranks, [], {}
        for name, (_, is_legal, legal) in ARGUMENTS.items():
            if name in self.values and not is_legal(self.values[name]):
                raise Unusable(f"{PREFIX}{name} = {json.dumps(self.values[name])}: must be {legal}")

    def value(self, name):
        return self.values.get(name, ARGUMENTS[name][0])

    def fill(self, config, hidden=None):
        """The configuration with values instead of "auto". Unusable where it contradicts the arguments, as the Trainer refuses it.
        \\param hidden  hidden dimension of the model, if it is known"""
        config = copy.deepcopy(config)
        for path in BATCH:
            config.setdefault(path, "auto")
        for path, names in FILLED.items():
            found = [self.value(name) for name in names]
            self.put(config, path, found[0] if len(found) == 1 else found, names)
        steps = self.value("max_steps")
        if steps > 0:
            self.put(config, "scheduler.params.total_num_steps", steps, ("max_steps",))
        self.put(config, "scheduler.params.warmup_min_lr", 0, ())
        if hidden:
            for name, value in (("reduce_bucket_size", hidden**2), ("stage3_prefetch_bucket_size", int(0.9 * hidden**2)),
                                ("stage3_param_persistence_threshold", 10 * hidden)):
                self.put(config, f"zero_optimization.{name}", value, ())
        if config.get("train_batch_size") == "auto":
            del config["train_batch_size"]  # it follows from the ranks
            self.lines.append("FILLED IN train_batch_size: micro x accumulation x ranks")
        return config

    def put(self, config, path, value, names):
        place = place_of(config, path)
        if not place or place[1] not in place[0]:
            return
        section, name = place
        if section[name] == "auto":
            section[name] = value
            self.lines.append(f"FILLED IN {path} = {json.dumps(value)}: {', '.join(names) or 'as the Trainer does'}")
        elif any(one in self.values for one in names) and section[name] != value:
            raise Unusable(f"{path} = {json.dumps(section[name])} contradicts {', '.join(PREFIX + one for one in names)} = "
                           f"{json.dumps(value)}")
        for one in names:
            self.fills.setdefault(one, []).append(path)

    def settings(self, base, given):
        """Keys of the deck that no ds_config decides. \\param given  keys that the user set"""
        keys = {}
        if "output_dir" in self.values:
            keys["checkpoint.dir"] = self.value("output_dir")
        if "seed" in self.values:
            keys["data.seed"] = self.value("seed")
        epochs = self.value("num_train_epochs")
        if self.value("max_steps") > 0:
            keys["data.steps"] = self.value("max_steps")
        elif "num_train_epochs" in self.values and is_whole(epochs) and base.get("data.source") != "synthetic":
            keys["data.epochs"] = int(epochs)
        if {"data.steps", "data.epochs"} & {*given}:
            keys = {key: value for key, value in keys.items() if key not in ("data.steps", "data.epochs")}
        return keys

    def tell(self, mapping, settings):
        """Enters what became of every argument."""
        keys = {"output_dir": "checkpoint.dir", "seed": "data.seed", "max_steps": "data.steps", "num_train_epochs": "data.epochs"}
        for name, value in self.values.items():
            path = PREFIX + name
            mapping.leaves[path] = value
            if name == "deepspeed":
                mapping.honoured[path] = "names the ds_config"
            elif name not in ARGUMENTS:
                mapping.refuse(path, "no argument that ds2deck knows", "none")
            elif keys.get(name) in settings:
                mapping.honoured[path] = keys[name]
            elif name in self.fills:
                mapping.honoured[path] = ", ".join(self.fills[name])
            else:
                self.tell_idle(mapping, name, value)

    def tell_idle(self, mapping, name, value):
        path = PREFIX + name
        if name == "max_steps" and value <= 0:
            mapping.honoured[path] = "without effect: num_train_epochs decides"
        elif name in ("max_steps", "num_train_epochs") and {"data.steps", "data.epochs"} & {*mapping.given}:
            mapping.honoured[path] = "without effect: the command line decides"
        elif name == "num_train_epochs" and self.value("max_steps") > 0:
            mapping.honoured[path] = "without effect: max_steps decides"
        elif name == "num_train_epochs":
            mapping.refuse(path, "synthetic data have no epochs" if is_whole(value) else "epochs are whole numbers",
                           "data.steps, or --base of a deck with data" if is_whole(value) else "data.steps")
        elif name == "per_device_eval_batch_size":
            self.tell_evaluation(mapping, path, value)
        elif value == ARGUMENTS[name][0] and not isinstance(value, str):
            mapping.honoured[path] = "the default, which the ds_config does not ask for"
        else:
            mapping.refuse(path, 'the ds_config has no "auto" that it would fill in', "an \"auto\" in the ds_config")

    def tell_evaluation(self, mapping, path, value):
        """A validation takes the samples of a global batch, in passes of this size."""
        deck = mapping.deck
        samples = deck.get("batch.micro", 0) * deck.get("batch.accumulation", 0)  # 0: the ranks are not known
        if deck.get("batch.micro") == value:
            mapping.honoured[path] = "validations have the micro-batches of the training"
        elif not (deck.get("data.validation_fraction") or deck.get("data.validation_files")):
            mapping.honoured[path] = "without effect: the deck holds out no data"
        elif samples and samples % value:
            mapping.refuse(path, f"a rank has {samples} samples of a global batch, which {value} does not divide",
                           "data.validation_micro")
        else:
            deck["data.validation_micro"], mapping.origin["data.validation_micro"] = value, "TrainingArguments"
            mapping.honoured[path] = "data.validation_micro"
