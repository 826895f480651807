"""What the program refuses: exit code, the one message that says what, where and what would be right, nothing left."""
import os
import re
import shutil
import struct
import unittest

from support import FIXTURES, Deck, copy_fixture, new_folder, settings, start, write_shard

USAGE, DOES_NOT_FIT = 64, 69
NOISE = ("terminate called", "Abort", "BAD TERMINATION", "Assertion", "rank 0:", "src/")


class RefusalTest(unittest.TestCase):
    def assert_refused(self, outcome, words, code=USAGE, lines=1):
        self.assertEqual(outcome.code, code, outcome)
        for word in words:
            self.assertIn(word, outcome.err, outcome)
        self.assertEqual(outcome.err.count("trainstone: "), 1, f"one message, not one per rank\n{outcome}")
        if lines:
            self.assertEqual(len(outcome.err.splitlines()), lines, outcome)
        for noise in NOISE:
            self.assertNotIn(noise, outcome.err, outcome)
        self.assertEqual(outcome.out, "", outcome)

    def check_all(self, cases):
        """cases: (claim, future, words of the message). All are under way when the first one is looked at."""
        for claim, future, words in list(cases):
            with self.subTest(claim):
                outcome = future.result()
                self.assert_refused(outcome, words)
                self.assertEqual(outcome.left, [], outcome)


def bucket_deck(recipe, bucket):
    """1.3 M parameters, in buckets of `bucket`."""
    return Deck({"model.layers": "6", "model.channels": "128", "precision.recipe": recipe, "parallel.bucket": bucket,
                 "parallel.first_bucket": bucket, "data.steps": "2", "data.validate_every": None,
                 "data.validation_fraction": None})


def with_changes(changes, *words, ranks=1, at=None):
    """A run of the base deck with changes; `at` names the key whose line the message must begin with."""
    deck = Deck(changes)
    place = [deck.line(at)] if at else []
    return start("run", deck.path, ranks=ranks), [*place, *words]


class Decks(RefusalTest):
    def test_too_many_buckets_are_refused_with_a_size_in_the_gradients_own_bytes(self):
        for recipe, bucket, bytes_ in (('"fp32"', '"1 KiB"', 4), ('"mixed16"', '"512 B"', 2), ('"mixed18"', '"1 KiB"', 4)):
            with self.subTest(recipe):
                outcome = start("run", bucket_deck(recipe, bucket).path).result()
                self.assert_refused(outcome, ["into ", " buckets, more than 4096; nearest legal value: parallel.bucket"])
                buckets = int(re.search(r"into (\d+) buckets", outcome.err)[1])
                least = buckets * 256 * bytes_ * 2 / 4096 / 1024  # every bucket has 256 elements, but for the last of a group
                kib = int(re.search(r'parallel.bucket = "(\d+) KiB"', outcome.err)[1])
                self.assertLessEqual(abs(kib - least), 1, outcome)
                self.assertEqual(start("run", bucket_deck(recipe, f'"{kib} KiB"').path).result().code, 0)

    def test_a_key_that_is_wrong_is_refused_with_its_line_and_what_would_be_right(self):
        cases = {
            "unknown key": with_changes({"batch.mikro": "3"}, 'did you mean "batch.micro"?', at="batch.mikro"),
            "unknown key, on 2 ranks": with_changes({"batch.mikro": "3"}, 'did you mean "batch.micro"?',
                                                    at="batch.mikro", ranks=2),
            "unknown section": with_changes({"modle.layers": "3"}, 'did you mean "model"?', at="modle.layers"),
            "wrong type": with_changes({"batch.micro": '"two"'}, "is a string, must be an integer", at="batch.micro"),
            "fraction for an integer": with_changes({"batch.micro": "1.5"}, "must be an integer", at="batch.micro"),
            "out of range": with_changes({"data.validation_fraction": "0.7"}, "0.7 is out of range, must be 0 to 0.5",
                                         at="data.validation_fraction"),
            "a rate of 1": with_changes({"model.dropout": "1.0"}, "1 is out of range, must be 0 to below 1",
                                        at="model.dropout"),
            "masks of no dropout": with_changes({"model.dropout_masks": '"stored"'},
                                                "not read with model.dropout = 0, only with model.dropout above 0: leave it out",
                                                at="model.dropout_masks"),
            "graphs of kernels with masks of their own": with_changes(
                {"kernels.graphs": "true", "model.dropout": 0.1}, "model.dropout", at="kernels.graphs"),
            "who computes attention that keeps probabilities": with_changes(
                {"kernels.attention": '"flash"'}, 'only with model.attention = "flash": leave it out', at="kernels.attention"),
            "attention on tensor cores in fp32 and heads of 4 channels": with_changes(
                {"model.attention": '"flash"', "kernels.attention": '"tensor_cores"'}, "attention", "tensor_cores", ranks=2),
            "attention by cuDNN in fp32 and heads of 4 channels": with_changes(
                {"model.attention": '"flash"', "kernels.attention": '"cudnn"'}, "attention", "cudnn"),
            "attention by products of warpgroups in fp32 and heads of 4 channels": with_changes(
                {"model.attention": '"flash"', "kernels.attention": '"wgmma"'}, "attention", "wgmma"),
            "unknown choice": with_changes({"comm.allreduce": '"bush"'}, "must be one of auto, naive", at="comm.allreduce"),
            "syntax": with_changes({"optimizer.lr": "= 3"}, at="optimizer.lr"),
            "key given twice": with_changes({"batch.micro": "1\nbatch.micro = 2"}, "deck.toml:11: ", "batch.micro"),
            "no length": with_changes({"data.steps": None}, "data.steps or data.epochs"),
            "no model": with_changes({"model.layers": None}, "model.layers = 0", "model.preset"),
            "heads do not divide channels": with_changes({"model.heads": "3"}, "heads = 3 does not divide",
                                                         "heads 2 or 4", at="model.heads"),
            "sequence exceeds context": with_changes({"data.sequence": "9"}, "nearest legal value: 8",
                                                     at="data.sequence"),
            "unknown part": with_changes({"faults.nan.step": "2", "faults.nan.unit": '"mlp 1"'},
                                         "embed, attention 0, mlp 0 to mlp 0, head", at="faults.nan.unit"),
            "fault after the end": with_changes({"faults.nan.step": "13", "faults.nan.unit": '"head"'},
                                                "exceeds data.steps = 12", at="faults.nan.step"),
            "fault after the end of the epochs": with_changes(
                {"data.steps": None, "data.epochs": "1", "faults.nan.step": "1000", "faults.nan.unit": '"head"'},
                "nearest legal value: 59", at="faults.nan.step"),
            "nothing to measure": with_changes({"bench.warmup_steps": "12"}, "nearest legal value: 11",
                                               at="bench.warmup_steps"),
            "stop_loss without held-out data": with_changes(
                {"data.validation_fraction": None, "data.validate_every": None, "data.stop_loss": "2.0"},
                "validation_files or data.validation_fraction", at="data.stop_loss"),
            "too large to be counted": with_changes({"model.context": "1000000000"}, "counted in 64 bits"),
            "other number of ranks than expected": with_changes({"comm.expected_ranks": "2"}, "the run has 1 rank",
                                                                at="comm.expected_ranks"),
            "more emulated nodes than ranks": with_changes({"comm.emulated_nodes": "3"}, "nearest legal value: 2",
                                                           at="comm.emulated_nodes", ranks=2),
            "a time without its unit": with_changes({"comm.emulated_network.latency": '"50"'}, 'is "50", must be a time',
                                                    at="comm.emulated_network.latency"),
            "shared memory on an emulated network": with_changes(
                {"comm.emulated_network.latency": '"50 us"', "comm.allreduce": '"shared"'}, "must be one of auto, naive",
                at="comm.allreduce"),
            "device memory where kernels run on the host": with_changes(
                {"comm.buffers": '"device"'}, 'comm.buffers = "device"', "legal values: auto, staged, host",
                at="comm.buffers"),
            "neither checked nor not": with_changes({"comm.check_order": "1"}, "must be true or false",
                                                    at="comm.check_order"),
            "batch does not divide by 3 ranks": with_changes({}, "no multiple of 3", "nearest legal values: 3 or 6",
                                                             at="batch.global", ranks=3),
            "batch contradicts itself on 2 ranks": with_changes(
                {"batch.accumulation": "3"}, "batch.global = 4 contradicts", "the legal value is 6", at="batch.global",
                ranks=2),
            "one of three batch numbers": with_changes({"batch.global": None}, "give two of", at="batch.micro"),
        }
        self.check_all((claim, *case) for claim, case in cases.items())

    def test_overrides_are_as_strict_as_decks_and_named_as_given(self):
        def override(assignment, *words):
            return start("run", Deck().path, *settings(assignment)), [f"--set {assignment}: ", *words]

        cases = {
            "unknown key": override("batch.mikro=3", 'did you mean "batch.micro"?'),
            "wrong type": override("batch.micro=two", "must be an integer"),
            "no assignment": override("batch.micro", "section.key=value"),
            "environment": (start("run", Deck().path, variables={"TRAINSTONE_SET": "batch.micro=-1"}),
                            ["TRAINSTONE_SET batch.micro=-1: ", "out of range"]),
            "what verify takes from files": (
                start("verify", *copy_fixture("gpt_odd", new_folder()), *settings("optimizer.lr=3")),
                ["--set optimizer.lr=3: ", "only keys of kernels"]),
        }
        self.check_all((claim, *case) for claim, case in cases.items())

    def test_the_command_line_is_checked(self):
        deck = Deck().path
        cases = {
            "unknown command": (start("rum", deck), ["not expected: rum", "--help"]),
            "unknown flag": (start("run", deck, "--frob"), ["not expected: --frob", "--help"]),
            "unknown flag, on 2 ranks": (start("run", deck, "--frob", ranks=2), ["not expected: --frob"]),
            "no deck": (start("run"), ["DECK is required"]),
            "missing deck": (start("run", "missing.toml", ranks=2), ["missing.toml: ", "No such file"]),
            "a name that is too long": (start("run", "x" * 300), ["File name too long"]),
            "folder for a deck": (start("run", deck.parent), ["is a folder"]),
            "no ranks": (start("estimate", deck, "--ranks", 0), ["--ranks", "not in range"]),
            "size without meaning": (start("estimate", deck, "--device-mem", "80 XB"), ["--device-mem", "no size"]),
            "no state": (start("verify", "--reference-model", "m.bin"), ["requires --reference-state"]),
            "first step and matrix": (start("verify", "--first-step", "deck.toml", "--matrix"), ["excludes"]),
            "matrix and more": (start("verify", "--matrix", "--set", "comm.allreduce=ring"), ["the matrix' own"]),
            "reference with dropout": (start("verify", "--reference-model", FIXTURES / "gpt_odd.model.bin",
                                             "--reference-state", FIXTURES / "gpt_odd.state.bin",
                                             "--set", "model.dropout=0.1"), ["model.dropout comes from the reference"]),
        }
        self.check_all((claim, *case) for claim, case in cases.items())


class Files(RefusalTest):
    def test_data_files_are_checked_to_the_byte_before_the_run(self):
        def data(name, write, *words, ranks=1, **changes):
            """The deck with one data file; the message must begin with its path."""
            keys = {key.replace("_", ".", 1): value for key, value in changes.items()}
            deck = Deck({"data.files": f'["{name}"]', **keys})
            write(deck.folder / name)
            return start("run", deck.path, ranks=ranks), [f"{deck.folder / name}: ", *words]

        def shard(*words, tokens=range(100), **header):
            return data("data.bin", lambda path: write_shard(path, tokens, **header), *words, data_source='"tokens"')

        empty = lambda path: path.write_bytes(b"")
        half = lambda path: path.write_bytes(write_shard(path, range(100)).read_bytes()[:1101])
        cases = {
            "missing": data("text", lambda path: None, "No such file"),
            "empty": data("text", empty, "byte 0: the file is empty"),
            "empty, on 2 ranks": data("text", empty, "byte 0: the file is empty", ranks=2),
            "folder": data("text", lambda path: path.mkdir(), "is a directory"),
            "wrong magic": shard("byte 0: magic number 20240521", magic=20240521),
            "wrong version": shard("byte 4: version 2", "must be 1", version=2),
            "a file of text for a shard": data("text", lambda path: path.write_bytes(b"ab" * 1000),
                                               "byte 0: magic number", data_source='"tokens"'),
            "header cut": data("data.bin", lambda path: path.write_bytes(b"abc"), "byte 3: ", data_source='"tokens"'),
            "tokens cut": data("data.bin", half, "byte 1101: the file ends", "100 tokens", data_source='"tokens"'),
            "tokens left over": shard("byte 1222: 2 bytes follow", announced=99),
            "token outside of the vocabulary": shard("byte 1034: token 256 is outside the vocabulary of 256",
                                                     tokens=[0, 255, 3, 4, 5, 256, *range(100)]),
            "32-bit token outside of the vocabulary": shard(
                "byte 1028: token 4294967295", tokens=[0, 2**32 - 1, *range(100)], magic=20240801, version=7,
                letter="I"),
        }
        # these are about the data as a whole: no one place
        for claim, changes, words in (
                ("other content", {"data.xxhash": '"0123456789abcdef"'}, ['data.xxhash is "0123456789abcdef"']),
                ("not enough for one sample", {"data.files": '["deck.toml"]', "model.context": "1000"}, ["1001"])):
            cases[claim] = with_changes(changes, *words)
        self.check_all((claim, *case) for claim, case in cases.items())

    def test_a_model_to_load_is_checked_before_the_run(self):
        def model(write, *words):
            deck = Deck({"model.load": '"model.bin"'})
            write(deck.folder / "model.bin")
            return start("run", deck.path), ["model.bin", *words]

        fixture = (FIXTURES / "gpt_batch16.model.bin").read_bytes()
        cases = {
            "missing": model(lambda path: None, "No such file"),
            "a state": model(lambda path: shutil.copy(FIXTURES / "gpt_odd.state.bin", path),
                             "byte 0: magic number 20240327 (an llm.c debug state)"),
            "fp32 that says bf16": model(
                lambda path: path.write_bytes(fixture[:4] + struct.pack("<i", 5) + fixture[8:]), "in bf16 ends here"),
            "cut": model(lambda path: path.write_bytes(fixture[:-1]), f"byte {len(fixture) - 1}: the file ends here"),
            "other shape": model(lambda path: path.write_bytes(fixture), "deck.toml:", "layers 2 instead of 1",
                                 "vocab 61 instead of 256"),
        }
        self.check_all((claim, *case) for claim, case in cases.items())

    def test_what_cannot_be_written_is_refused_before_the_run(self):
        def beside_a_file(folder):
            (folder / "file").write_text("not a folder")

        def blocked(*arguments, ranks=1):
            return start("run", Deck().path, *arguments, ranks=ranks, prepare=beside_a_file)

        golden = Deck()
        (golden.folder / "golden").write_text("not a folder")
        cases = {
            "output folder below a file": (blocked("--out", "file/out"), ["--out file/out: cannot write"]),
            "output folder, on 2 ranks": (blocked("--out", "file/out", ranks=2), ["--out file/out: cannot write"]),
            "output folder is a file": (blocked("--out", "file"), ["--out file: cannot write"]),
            "model to save": (blocked(*settings("model.save=file/model.bin")), ["file/model.bin: cannot write"]),
            "model to save is a folder": (blocked(*settings("model.save=.")), [".: is a folder"]),
            "golden curve": (start("run", golden.path, "--record-golden", prepare=beside_a_file),
                             ["golden/deck.json: "]),
        }
        for claim, (future, words) in cases.items():
            with self.subTest(claim):
                outcome = future.result()
                self.assert_refused(outcome, words)
                self.assertEqual(outcome.left, ["file"], outcome)

    def test_a_damaged_golden_file_is_refused(self):
        deck = Deck()
        deck.golden.parent.mkdir()
        deck.golden.write_text('{"schema_version": 1, "curves": ')
        self.check_all([("cut JSON", start("run", deck.path), [f"{deck.golden}: ", "no golden curves"])])

    def test_reference_files_of_verify_are_checked(self):
        def damaged(kind, change, *words, ranks=1):
            folder = new_folder()
            arguments = copy_fixture("gpt_odd", folder)
            path = folder / f"gpt_odd.{kind}"
            change(path)
            return start("verify", *arguments, ranks=ranks), [f"{path}: ", *words]

        def overwrite(offset, *numbers):
            def change(path):
                data = bytearray(path.read_bytes())
                struct.pack_into(f"<{len(numbers)}i", data, offset, *numbers)
                path.write_bytes(data)
            return change

        cut = lambda path: path.write_bytes(path.read_bytes()[:-4])
        size = {kind: (FIXTURES / f"gpt_odd.{kind}").stat().st_size for kind in ("model.bin", "state.bin")}
        cases = {
            "model missing": damaged("model.bin", lambda path: path.unlink(), "No such file"),
            "model cut": damaged("model.bin", cut, f"byte {size['model.bin'] - 4}: the file ends here"),
            "model magic": damaged("model.bin", overwrite(0, 7), "byte 0: magic number 7"),
            "model with no layers": damaged("model.bin", overwrite(16, 0), "byte 16: "),
            "state cut": damaged("state.bin", cut, f"byte {size['state.bin'] - 4}: the file ends here"),
            "state cut, on 5 ranks": damaged("state.bin", cut, "the file ends here", ranks=5),
            "state magic": damaged("state.bin", overwrite(0, 7), "byte 0: magic number 7"),
            "token outside of the vocabulary": damaged("state.bin", overwrite(1024 + 4 * 3, 97), "byte 1036: token 97"),
            "losses cut": damaged("losses.json", cut, "parse error"),
            "losses without recipes": damaged("losses.json", lambda path: path.write_text("{}"), "recipes"),
            "batch does not divide": damaged("state.bin", lambda path: None, "batch of 5", "2 data ranks", ranks=2),
        }
        self.check_all((claim, *case) for claim, case in cases.items())


class Memory(RefusalTest):
    def test_errors_come_before_any_large_allocation(self):
        # 4 blocks of 2048 channels: 3 GiB of parameters, gradients and optimizer state
        deck = Deck({"model.layers": "4", "model.channels": "2048", "data.files": '["empty"]'})
        (deck.folder / "empty").write_bytes(b"")
        outcome = start("run", deck.path).result()
        self.assert_refused(outcome, ["the file is empty"])
        self.assertLess(outcome.peak_bytes, 300e6, outcome)

    def test_a_model_that_cannot_fit_is_refused_with_the_items(self):
        huge = settings("model.layers=1000", "model.channels=100000")
        for ranks in (1, 2):
            outcome = start("run", Deck().path, *huge, ranks=ranks).result()
            items = ["parameters", "gradients", "optimizer", "activations", "buffers", "data"]
            self.assert_refused(outcome, ["does not fit", *items], DOES_NOT_FIT, lines=1 + len(items))
            self.assertEqual(outcome.left, [], outcome)
            self.assertLess(outcome.peak_bytes, 300e6, outcome)

    def test_ranks_on_emulated_nodes_share_the_memory_of_their_machine(self):
        # a vocabulary that takes 0.6 of the machine's memory per rank, 16 bytes per parameter
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        deck = Deck({"data.source": '"synthetic"', "data.files": None, "data.validation_fraction": None,
                     "data.validate_every": None, "model.channels": "1024",
                     "model.vocab": str(int(0.6 * memory / (16 * 1024)))})
        outcome = start("run", deck.path, *settings("comm.emulated_nodes=2"), ranks=2).result()
        self.assert_refused(outcome, ["does not fit: 2 ranks on this machine need"], DOES_NOT_FIT, lines=7)
        self.assertLess(outcome.peak_bytes, 300e6, outcome)
