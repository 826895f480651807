"""verify: passes against an independent float64 program, and notices one element that differs."""
import json
import re
import struct
import unittest

from support import FIXTURES, copy_fixture, new_folder, reference_arguments, settings, start

FAILED = 65
HEADER = 1024


class Shape:
    """Sizes and places of llm.c's files, from the fixture's JSON."""

    def __init__(self, name):
        self.json = json.loads((FIXTURES / f"{name}.losses.json").read_text())
        shape = self.json["shape"]
        self.layers, self.channels, self.vocab = shape["L"], shape["C"], shape["V"]
        rows = shape["B"] * shape["T"]
        l, c = self.layers, self.channels
        extents = {"wte": shape["Vp"] * c, "wpe": shape["T"] * c, "ln1w": l * c, "ln1b": l * c, "qkvw": l * 3 * c * c,
                   "qkvb": l * 3 * c, "attprojw": l * c * c, "attprojb": l * c, "ln2w": l * c, "ln2b": l * c,
                   "fcw": l * 4 * c * c, "fcb": l * 4 * c, "fcprojw": l * 4 * c * c, "fcprojb": l * c, "lnfw": c,
                   "lnfb": c}
        self.places = {"logits": (HEADER + 8 * rows, rows * self.vocab)}  # first byte, elements
        first, count = self.places["logits"]
        self.places["loss"] = (first + 4 * count, 1)
        first += 4 * count + 4
        for name, extent in extents.items():
            self.places[f"gradient {name}"] = (first, extent)
            first += 4 * extent
        self.state_bytes = first


def nudge(path, first, count, index, share):
    """Changes one of `count` floats at byte `first` by a share of the largest of them."""
    data = bytearray(path.read_bytes())
    values = struct.unpack_from(f"<{count}f", data, first)
    struct.pack_into("<f", data, first + 4 * index, values[index] + share * max(map(abs, values)))
    path.write_bytes(data)


def failures(outcome):
    return re.findall(r"^(\S.*?\S)  .* FAIL$", outcome.out, re.MULTILINE)


class ReferenceTest(unittest.TestCase):
    def test_every_fixture_passes_on_every_number_of_ranks_that_divides_its_batch(self):
        flash = "model.attention=flash"
        cases = [("gpt_odd", 1, []), ("gpt_odd", 5, []), ("gpt_even", 1, []), ("gpt_even", 2, []), ("gpt_batch16", 1, []),
                 ("gpt_batch16", 2, []), ("gpt_odd", 1, [flash]), ("gpt_even", 2, [flash]), ("gpt_batch16", 2, [flash])]
        futures = [start("verify", *reference_arguments(FIXTURES / name), *settings(*keys), ranks=ranks)
                   for name, ranks, keys in cases]
        for (name, ranks, keys), future in zip(cases, futures):
            with self.subTest(name, ranks=ranks, keys=keys):
                outcome = future.result()
                self.assertEqual(outcome.code, 0, outcome)
                self.assertTrue(outcome.out.endswith("VERIFICATION PASSED\n"), outcome)
                self.assertEqual(outcome.out.count(" PASS\n"), 2 + 16 + 4, "logits, loss, gradients, two recipes")
                self.assertEqual(failures(outcome), [], outcome)
                self.assertEqual(outcome.left, [], outcome)

    def assert_fails_with(self, cases):
        """cases: (names of the rows that must fail, future)."""
        for names, future in list(cases):
            with self.subTest(names):
                outcome = future.result()
                self.assertEqual(outcome.code, FAILED, outcome)
                self.assertTrue(outcome.out.endswith("VERIFICATION FAILED\n"), outcome)
                self.assertEqual(failures(outcome), names, outcome)

    def test_one_changed_element_of_the_state_fails_and_names_the_tensor(self):
        shape = Shape("gpt_batch16")
        self.assertEqual((FIXTURES / "gpt_batch16.state.bin").stat().st_size, shape.state_bytes)

        def verify(place, index):
            folder = new_folder()
            arguments = copy_fixture("gpt_batch16", folder)[:2]  # without the losses: they are not in question
            first, count = shape.places[place]
            nudge(folder / "gpt_batch16.state.bin", first, count, index, 1e-4)
            return start("verify", *arguments)

        # an element of the last layer's slice, whose place tells whether layers are taken apart rightly
        cases = [([place], verify(place, count * 6 // 7)) for place, (_, count) in shape.places.items()]
        padding = shape.places["gradient wte"][1] - 1
        cases.append((["gradient wte"], verify("gradient wte", padding)))  # rows that no token has
        self.assert_fails_with(cases)

    def test_a_nan_in_the_reference_hides_nothing_that_follows(self):
        folder = new_folder()
        arguments = copy_fixture("gpt_batch16", folder)[:2]
        path = folder / "gpt_batch16.state.bin"
        data = bytearray(path.read_bytes())
        for place in ("logits", "gradient wte"):
            struct.pack_into("<f", data, Shape("gpt_batch16").places[place][0], float("nan"))
        path.write_bytes(data)
        self.assert_fails_with([(["logits", "gradient wte"], start("verify", *arguments))])

    def test_one_changed_loss_or_norm_fails_and_names_the_recipe(self):
        def verify(recipe, quantity):
            folder = new_folder()
            arguments = copy_fixture("gpt_batch16", folder)
            path = folder / "gpt_batch16.losses.json"
            content = json.loads(path.read_text())
            content["recipes"][recipe][quantity][-1] *= 1 + 1e-5
            path.write_text(json.dumps(content))
            return start("verify", *arguments)

        self.assert_fails_with((([f"{row} {recipe}"], verify(recipe, quantity)) for recipe, row, quantity in
                                [("decay_all", "losses", "losses"), ("decay_matrices_clip", "norms", "grad_norms")]))

    def test_one_changed_parameter_of_the_model_fails(self):
        folder = new_folder()
        arguments = copy_fixture("gpt_batch16", folder)
        first, count = Shape("gpt_batch16").places["gradient qkvw"]
        offset = first - Shape("gpt_batch16").places["gradient wte"][0]  # the model has the same order
        nudge(folder / "gpt_batch16.model.bin", HEADER + offset, count, count // 2, 0.1)
        outcome = start("verify", *arguments, ranks=2).result()
        self.assertEqual(outcome.code, FAILED, outcome)
        self.assertLessEqual({"logits", "gradient qkvw", "losses decay_all"}, set(failures(outcome)), outcome)


class NothingNamed(unittest.TestCase):
    def test_verify_alone_runs_the_quick_matrix(self):
        outcome = start("verify").result()
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, r"\nVERIFICATION PASSED: \d+ configurations after 5 steps, 0 different\n$")
