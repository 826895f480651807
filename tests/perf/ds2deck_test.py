#!/usr/bin/env python3
"""perf/deepspeed/ds2deck on configurations as people have them: what it says of every key, whether the program takes the deck, and
what the deck then means.

usage: ds2deck_test.py PROGRAM
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from concurrent.futures import ThreadPoolExecutor

from commands import PERF, ROOT  # first, as it finds perf
from deepspeed import mapping as ds_mapping
from ds2deck_expected import EXPECTED, OFFLOAD, UNUSABLE

CONFIGS = ROOT / "tests" / "data" / "ds_config"
CONVERTER = PERF / "deepspeed" / "ds2deck"

BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def leaves_of(value, prefix=""):
    if isinstance(value, dict) and value:
        return [leaf for name, inner in value.items() for leaf in leaves_of(inner, f"{prefix}.{name}" if prefix else name)]
    return [prefix]


def read_config(name):
    text = (CONFIGS / f"{name}.json").read_text()
    if name == "decay_with_comments":
        text = re.sub(r",(\s*})", r"\1", re.sub(r"//.*|# .*|/\*.*\*/", "", text))
    return json.loads(text)


def flat(deck, prefix=""):
    keys = {}
    for name, value in deck.items():
        keys |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return keys


def to_number(value):
    """Sizes in bytes, all else as it is."""
    number, _, unit = value.partition(" ") if isinstance(value, str) else ("", "", "")
    return float(number) * BYTES[unit] if unit in BYTES else value


class Converted:
    """What ds2deck makes of a configuration."""

    def __init__(self, path, *arguments):
        command = [sys.executable, "-B", str(CONVERTER), str(path), *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        self.code, self.deck, self.errors = ended.returncode, ended.stdout, ended.stderr
        self.honoured = re.findall(r"(?m)^# honoured (\S+) = ", self.deck)
        self.listed = re.findall(r"(?m)^# NOT HONOURED (\S+) = ", self.deck)

    def resolved(self):
        """Of run --print-deck, which takes the deck."""
        with tempfile.TemporaryDirectory() as folder:
            deck = pathlib.Path(folder) / "deck.toml"
            deck.write_text(self.deck)
            variables = {**os.environ, "OMP_NUM_THREADS": "1", "KOKKOS_DISABLE_WARNINGS": "1"}
            ended = subprocess.run([PROGRAM, "run", str(deck), "--print-deck"], capture_output=True, text=True, check=False,
                                   env=variables)
        assert ended.returncode == 0, f"{self.deck}\nexit {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return flat(tomllib.loads(ended.stdout))


class EveryConfiguration(unittest.TestCase):
    def test_every_file_has_an_expectation(self):
        self.assertEqual(sorted(path.stem for path in CONFIGS.glob("*.json")), sorted([*EXPECTED, *UNUSABLE]))

    def test_every_key_is_honoured_or_listed(self):
        for name, (code, listed, _) in EXPECTED.items():
            with self.subTest(name):
                converted = Converted(CONFIGS / f"{name}.json")
                self.assertEqual(sorted(converted.listed), sorted(listed))
                self.assertEqual(sorted([*converted.listed, *converted.honoured]), sorted(leaves_of(read_config(name))))
                self.assertEqual(converted.code, code, converted.errors)
                errors = [line.removeprefix("# ") for line in converted.deck.splitlines() if "NOT HONOURED" in line]
                self.assertEqual(converted.errors.splitlines(), errors)

    def test_the_program_takes_the_deck_and_it_means_what_the_configuration_says(self):
        with ThreadPoolExecutor(4) as pool:
            resolved = dict(zip(EXPECTED, pool.map(lambda name: Converted(CONFIGS / f"{name}.json").resolved(), EXPECTED)))
        for name, (_, _, expected) in EXPECTED.items():
            for key, value in expected.items():
                with self.subTest(f"{name}: {key}"):
                    self.assertEqual(to_number(resolved[name][key]), value)

    def test_contradictions_end_with_64_and_no_deck(self):
        for name, message in UNUSABLE.items():
            converted = Converted(CONFIGS / f"{name}.json")
            self.assertEqual((converted.code, converted.deck), (64, ""))
            self.assertIn(message, converted.errors)

    def test_misspelt_keys_get_the_key_that_was_meant(self):
        errors = Converted(CONFIGS / "misspelt.json").errors
        for meant in ("gradient_clipping", "zero_optimization.stage", "zero_optimization.reduce_bucket_size",
                      "zero_optimization.overlap_comm", "optimizer.params.weight_decay"):
            self.assertIn(f'did you mean "{meant}"?', errors)
        self.assertRegex(errors, "my_site_note = .*knows\n")
        self.assertNotIn("did you mean", Converted(CONFIGS / "lamb_and_monitors.json").errors)

    def test_switches_that_are_on_are_listed(self):
        """All that switches_off.json has off, but for what a GPT honours either way."""
        def on(value):
            if isinstance(value, dict):
                return {name: on(inner) for name, inner in value.items()}
            return not value if isinstance(value, bool) else value
        config = read_config("switches_off")
        flipped = on(config) | {"fp16": on(config["fp16"]) | {"enabled": True}, "amp": config["amp"]}
        mapping = ds_mapping.Mapping(flipped, {"model.preset": "gpt2", "data.steps": 100})
        switches = {path for path, value in ds_mapping.leaves_of(config) if isinstance(value, bool)}
        honoured = {"prescale_gradients", "fp16.enabled", "amp.enabled", *("zero_optimization." + name for name in (
            "overlap_comm", "elastic_checkpoint", "ignore_unused_parameters", "offload_param.pin_memory",
            "allgather_partitions", "round_robin_gradients"))}  # the last three: not read here
        self.assertEqual(switches & set(mapping.honoured), honoured)

    def test_what_is_offloaded_has_the_configurations_keys_as_origin(self):
        deck = Converted(CONFIGS / "zero3_nvme.json").deck
        section = "zero_optimization.offload_"
        for key, value, origins in (("offload_optimizer", "file", "optimizer.device"), ("offload_param", "file", "param.device"),
                                    ("folder", "/local_nvme", "param.nvme_path")):
            self.assertRegex(deck, rf'(?m)^{key} = "{value}" +# {section}{origins}$')
            self.assertRegex(deck, rf'(?m)^# honoured {section}{origins} = .*: memory.{key}$')
        # each section names the folder, and the same one
        self.assertRegex(deck, rf"(?m)^# honoured {section}optimizer.nvme_path = .*: memory.folder$")
        for path, base, origin in (({}, {}, f"DeepSpeed's default of {section}optimizer.nvme_path"),
                                   ({}, {"memory.folder": "elsewhere"}, "base"),
                                   ({"nvme_path": "here"}, {"memory.folder": "elsewhere"}, f"{section}optimizer.nvme_path")):
            mapping = ds_mapping.Mapping({"train_batch_size": 8, "zero_optimization": {
                "stage": 1, "offload_optimizer": {"device": "nvme", **path}}}, base)
            self.assertEqual(mapping.origin["memory.folder"], origin)
            self.assertEqual(mapping.deck["memory.folder"], path.get("nvme_path", base.get("memory.folder", "")))

    def test_what_offloading_does_otherwise_is_listed(self):
        settled = {"pipeline_read": True, "pipeline_write": True, "pin_memory": True, "fast_init": False, "ratio": 1,
                   "max_in_cpu": 0}
        others = {"pipeline_read": False, "pipeline_write": False, "pin_memory": False, "fast_init": True, "ratio": 0.5,
                  "max_in_cpu": 1e9, "buffer_count": 4, "buffer_size": 1e8}
        of_files = {"pipeline_read", "pipeline_write", "fast_init", "buffer_count", "buffer_size"}
        for device, keys, listed in (("nvme", settled, set()), ("nvme", others, set(others)), ("cpu", settled, set()),
                                     ("cpu", others, set(others) - of_files), ("none", others, set())):
            for part in ("optimizer", "param"):
                mapping = ds_mapping.Mapping({"train_batch_size": 8, "zero_optimization": {
                    "stage": 3, f"offload_{part}": {"device": device, **keys}}}, {})
                with self.subTest(device=device, part=part, keys=keys):
                    self.assertEqual(set(mapping.listed), {f"{OFFLOAD}{part}.{name}" for name in listed})
                    idle = {path.rpartition(".")[2] for path, how in mapping.honoured.items() if "without effect" in how}
                    self.assertEqual(idle, {"nvme": set(), "cpu": of_files & set(keys), "none": {"device", *keys}}[device])

    def test_gradients_of_bf16_are_fp32_without_zero(self):
        for stage, recipe in ((0, "mixed18"), (1, "mixed16"), (2, "mixed16"), (3, "mixed16")):
            config = {"train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
            self.assertEqual(ds_mapping.Mapping(config, {}).deck["precision.recipe"], recipe)


class CommandLine(unittest.TestCase):
    def convert(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(text if isinstance(text, str) else json.dumps(text))
            return Converted(path, *arguments)

    def test_what_is_no_configuration_ends_with_64(self):
        for text in ("", "[1]", "{", '{"train_batch_size": 8, "train_batch_size": 16}', '{"train_batch_size": NaN}', "{}",
                     {"gradient_accumulation_steps": 4}, {"train_batch_size": -8}, {"train_batch_size": 8.5},
                     {"train_batch_size": 8, "zero_optimization": {"stage": 4}}):
            with self.subTest(text):
                converted = self.convert(text)
                self.assertEqual((converted.code, converted.deck), (64, ""), converted.errors)
                self.assertNotIn("Traceback", converted.errors)
        self.assertEqual(Converted("no-such-file.json").code, 64)

    def test_ranks_are_checked_as_deepspeed_does(self):
        batch = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2}
        self.assertEqual(self.convert(batch, "--ranks", 5).code, 64)
        self.assertEqual(self.convert(batch, "--ranks", 4).resolved()["comm.expected_ranks"], 4)
        self.assertEqual(self.convert({**batch, "gradient_accumulation_steps": 3}, "--ranks", 8).code, 64)

    def test_a_secondary_partition_of_all_ranks_is_stage_3(self):
        config = {"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}
        self.assertEqual(self.convert(config, "--ranks", 4).code, 0)
        self.assertEqual(self.convert(config, "--ranks", 8).code, 3)

    def test_auto_values_can_be_given(self):
        config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"}
        converted = self.convert(config, "--set", "batch.micro=4", "--set", "batch.global=16", "--set", "optimizer.clip=0.7")
        self.assertEqual(converted.code, 0, converted.errors)
        resolved = converted.resolved()
        self.assertEqual([resolved[key] for key in ("batch.micro", "batch.global", "batch.accumulation", "optimizer.clip")],
                         [4, 16, 0, 0.7])

    def test_the_section_zero_of_a_lecture_is_read_as_zero_optimization(self):
        for device, of_optimizer in (("[cpu|nvme]", None), ("cpu", "host"), ("nvme", "file")):
            text = """{"zero": {"stage": 3, "offload_optimizer": {"device": "DEVICE"}, "offload_param": {"device": "DEVICE"}}}"""
            text = text.replace("DEVICE", device)
            with self.subTest(device):
                without_batch = self.convert(text)
                self.assertEqual((without_batch.code, without_batch.deck), (64, ""))
                self.assertIn("--set batch.global=", without_batch.errors)
                converted = self.convert(text, "--set", "batch.global=8")
                self.assertEqual(converted.code, 0 if of_optimizer else 3, converted.errors)
                said = 'READ AS zero_optimization: section "zero"'
                self.assertTrue(converted.errors.startswith(said), converted.errors)
                self.assertIn(f"# {said}", converted.deck)
                devices = [OFFLOAD + "optimizer.device", OFFLOAD + "param.device"]
                self.assertEqual(sorted(converted.listed), [] if of_optimizer else devices)
                self.assertEqual(sorted(converted.honoured), [*(devices if of_optimizer else []), "zero_optimization.stage"])
                resolved = converted.resolved()
                for key in ("memory.offload_optimizer", "memory.offload_param"):
                    self.assertEqual(resolved[key], of_optimizer or "none")
                self.assertEqual([resolved["parallel." + key] for key in ("strategy", "zero_stage")], ["zero", 3])

    def test_a_section_zero_beside_zero_optimization_is_unknown_and_hints_compare_the_last_parts_first(self):
        converted = self.convert({"train_batch_size": 8, "zero_optimization": {"stage": 1}, "zero": {
            "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}, "overlap_com": True}})
        self.assertEqual(converted.code, 3)
        self.assertNotIn("READ AS", converted.errors)
        for name, meant in (("offload_optimizer.device", "offload_optimizer.device"),
                            ("offload_param.device", "offload_param.device"), ("overlap_com", "overlap_comm")):
            self.assertRegex(converted.errors, f'NOT HONOURED zero.{name} = .*did you mean "zero_optimization.{meant}"')

    def test_model_and_data_come_from_the_base(self):
        with tempfile.TemporaryDirectory() as folder:
            deck = pathlib.Path(folder) / "deck.toml"
            config = pathlib.Path(folder) / "config.json"
            config.write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}')
            converted = Converted(config, "--base", ROOT / "inputs" / "quickstart.toml", "--steps", 60, "--out", deck)
            self.assertEqual((converted.code, converted.deck), (0, ""), converted.errors)
            keys = flat(tomllib.loads(deck.read_text()))
            (text,) = keys["data.files"]
            self.assertEqual((pathlib.Path(folder) / text).resolve(), ROOT / "inputs" / "data" / "corpus.txt")
        self.assertEqual([keys[key] for key in ("model.channels", "data.steps", "batch.global", "parallel.zero_stage",
                                                "optimizer.lr", "optimizer.schedule")], [160, 60, 8, 2, 2e-3, "cosine"])
        self.assertNotIn("batch.micro", keys)  # the configuration decides the batch

    def test_an_automatic_bucket_is_the_bases(self):
        converted = Converted(CONFIGS / "launcher_auto.json", "--base", ROOT / "inputs" / "quickstart.toml")
        self.assertEqual(converted.code, 3, converted.errors)
        keys = flat(tomllib.loads(converted.deck))
        self.assertEqual([keys["parallel.bucket"], keys["parallel.first_bucket"]], ["256 KiB"] * 2)

    def test_no_value_of_any_key_gets_lost_or_breaks_it(self):
        values = (True, False, 0, 1, 7, -1, 0.5, 1e30, float("inf"), "auto", "text", None, {}, [], [1, 2])
        for path in ds_mapping.KNOWN:
            for value in values:
                config = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "fp16": {"enabled": True},
                          "zero_optimization": {"stage": 3}, "scheduler": {"type": "WarmupCosineLR"}}
                *sections, name = path.split(".")
                place = config
                for section in sections:
                    place = place.setdefault(section, {})
                place[name] = value
                try:
                    mapping = ds_mapping.Mapping(config, {"model.preset": "gpt2", "data.steps": 100})
                except ds_mapping.Unusable:
                    continue
                with self.subTest(f"{path} = {value}"):
                    self.assertEqual(sorted([*mapping.honoured, *mapping.listed]), sorted(leaves_of(config)))
                    self.assertNotIn("auto", [mapping.leaves[path] for path in mapping.keys_of if path in mapping.honoured])


class OfATrainer(unittest.TestCase):
    # as a lecture has them
    ARGUMENTS = {"output_dir": "out/mine", "num_train_epochs": 2, "per_device_train_batch_size": 4,
                 "per_device_eval_batch_size": 4, "deepspeed": "ds.json"}
    AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}}

    def convert(self, arguments, config=None, *more, base="quickstart"):
        with tempfile.TemporaryDirectory() as folder:
            path, deck = pathlib.Path(folder) / "args.json", pathlib.Path(folder) / "deck.toml"
            path.write_text(json.dumps(arguments))
            (path.parent / "ds.json").write_text(json.dumps(self.AUTO if config is None else config))
            command = [sys.executable, "-B", str(CONVERTER), "--training-args", str(path), "--out", str(deck),
                       *(["--base", str(ROOT / "inputs" / f"{base}.toml")] if base else []), *map(str, more)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertNotIn("Traceback", ended.stderr)
            keys = flat(tomllib.loads(deck.read_text())) if deck.exists() else None
            return ended.returncode, ended.stderr, keys

    def test_automatic_values_come_from_the_arguments_and_else_from_the_trainers_defaults(self):
        code, errors, keys = self.convert({**self.ARGUMENTS, "learning_rate": 3e-4, "adam_beta2": 0.95, "bf16": True})
        self.assertEqual((code, "NOT HONOURED" in errors), (0, False), errors)
        expected = {"checkpoint.dir": "out/mine", "data.epochs": 2, "batch.micro": 4, "batch.accumulation": 1,
                    "optimizer.lr": 3e-4, "optimizer.betas": [0.9, 0.95], "optimizer.eps": 1e-8, "optimizer.clip": 1.0,
                    "optimizer.weight_decay": 0, "precision.recipe": "mixed16", "parallel.zero_stage": 2,
                    "parallel.bucket": "50 KiB"}  # 160^2 values of 2 bytes: the Trainer asks for hidden^2
        self.assertEqual({key: keys[key] for key in expected} | {"parallel.bucket": keys["parallel.bucket"]}, expected)
        self.assertNotIn("data.steps", keys)
        self.assertIn('FILLED IN optimizer.params.betas = [0.9, 0.95]: adam_beta1, adam_beta2', errors)

    def test_the_lectures_own_files_belong_together(self):
        code, errors, keys = self.convert(self.ARGUMENTS, {"zero": {"stage": 3}})
        self.assertEqual(code, 0, errors)
        self.assertEqual([keys[key] for key in ("batch.micro", "parallel.zero_stage", "data.epochs")], [4, 3, 2])

    def test_what_has_no_meaning_here_is_listed(self):
        for more, words in (({"per_device_eval_batch_size": 16}, "per_device_eval_batch_size = 16: a rank has 4 samples"),
                            ({"num_train_epochs": 1.5}, "epochs are whole numbers"), ({"push_to_hub": True}, "push_to_hub = true"),
                            ({"warmup_steps": 5}, "warmup_steps = 5: the ds_config has no")):
            with self.subTest(words):
                code, errors, _ = self.convert({**self.ARGUMENTS, **more})
                self.assertEqual((code, errors.count("NOT HONOURED")), (3, 1), errors)
                self.assertIn(words, errors)
        code, errors, keys = self.convert(self.ARGUMENTS, base=None)
        self.assertIn("synthetic data have no epochs", errors)
        self.assertEqual((code, keys["data.steps"]), (3, 100))

    def test_evaluations_have_their_own_batch_size(self):
        for more, passes in (({}, None), ({"per_device_eval_batch_size": 2}, 2),
                             ({"per_device_eval_batch_size": 16, "gradient_accumulation_steps": 4}, 16)):
            with self.subTest(more):
                code, errors, keys = self.convert({**self.ARGUMENTS, **more})
                self.assertEqual((code, keys.get("data.validation_micro")), (0, passes), errors)

    def test_steps_come_before_epochs_and_the_command_line_before_both(self):
        _, _, keys = self.convert({**self.ARGUMENTS, "max_steps": 70})
        self.assertEqual((keys["data.steps"], "data.epochs" in keys), (70, False))
        code, errors, keys = self.convert({**self.ARGUMENTS, "max_steps": 70}, None, "--steps", 90)
        self.assertEqual((code, keys["data.steps"], "data.epochs" in keys), (0, 90, False), errors)

    def test_contradictions_end_with_64(self):
        for arguments, config, words in (
                ({"per_device_train_batch_size": 4}, {"train_micro_batch_size_per_gpu": 2}, "train_micro_batch_size_per_gpu = 2 contradicts"),
                ({"learning_rate": 0}, None, "learning_rate = 0: must be a number above 0"),
                ({"deepspeed": None}, None, "must name a ds_config"), ({"deepspeed": "none.json"}, None, "none.json")):
            with self.subTest(words):
                code, errors, keys = self.convert({**self.ARGUMENTS, **arguments}, config)
                self.assertEqual((code, keys), (64, None), errors)
                self.assertIn(words, errors)
        ended = subprocess.run([sys.executable, "-B", str(CONVERTER)], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 64)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
