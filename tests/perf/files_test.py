#!/usr/bin/env python3
"""What the tools of perf/ have in common: a write that fails halfway leaves the file as it was; keys of a deck; measured steps.

usage: files_test.py [unittest options]
"""
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import commands  # noqa: F401 -- first, as it finds perf
from gate import ratio_records
from lib import files, program


class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-files-test-")
        self.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name) / "new" / "file.json"

    def test_a_write_that_fails_halfway_leaves_the_file_as_it_was(self):
        writers = {"json": lambda value: files.write_json(self.path, {"value": value}),
                   "text": lambda value: files.write_text(self.path, f"some text with {value}"),
                   "reference": lambda value: ratio_records.write(self.path, [value])}
        for name, write in writers.items():
            with self.subTest(name):
                write("old")
                before = self.path.read_text(encoding="utf-8")
                for function in ("fsync", "replace"):  # the text is not on the medium; or has not its name
                    failure = unittest.mock.Mock(side_effect=OSError("no space left on device"))
                    with unittest.mock.patch.object(os, function, failure), self.assertRaises(OSError):
                        write("new")
                    failure.assert_called_once()
                    self.assertEqual(self.path.read_text(encoding="utf-8"), before)
                    self.assertEqual(list(self.path.parent.iterdir()), [self.path])
                write("new")
                self.assertNotEqual(self.path.read_text(encoding="utf-8"), before)
                self.assertEqual(list(self.path.parent.iterdir()), [self.path])

    def test_two_that_write_at_a_time_do_not_mix(self):
        whole = os.replace

        def meanwhile(one, other):
            with unittest.mock.patch.object(os, "replace", whole):
                files.write_text(self.path, "of the second one")
            whole(one, other)

        with unittest.mock.patch.object(os, "replace", meanwhile):
            files.write_text(self.path, "of the first one")
        self.assertEqual(self.path.read_text(encoding="utf-8"), "of the first one")
        self.assertEqual(list(self.path.parent.iterdir()), [self.path])

    def test_file_and_folder_are_on_the_medium_when_a_write_returns(self):
        brought, whole = [], os.fsync

        def note(descriptor):
            brought.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            whole(descriptor)

        with unittest.mock.patch.object(os, "fsync", note):
            files.write_text(self.path, "text")
        file, folder = brought
        self.assertRegex(file, r"/new/file\.json\.[0-9a-f]{16}\.tmp$")
        self.assertEqual(folder, str(self.path.parent.resolve()))

    def test_what_json_has_not_is_refused(self):
        files.write_json(self.path, {"value": 1})
        with self.assertRaises(ValueError):
            files.write_json(self.path, {"value": float("nan")})
        self.assertEqual(self.path.read_text(encoding="utf-8"), '{\n "value": 1\n}\n')

    def test_options_of_keys(self):
        self.assertEqual(program.set_options(["a=1", "b=x y"]), ["--set", "a=1", "--set", "b=x y"])
        self.assertEqual(program.set_options([]), [])

    def test_measured_samples_are_those_of_the_window_also_of_a_run_that_went_on(self):
        for steps, expected in (([1, 2, 3, 4], "bc"), ([2, 3, 4, 5], "ab"), ([4, 5, 6, 7], "")):
            result = {"window": {"first_step": 2, "last_step": 3}, "samples": {"step": steps}}
            self.assertEqual("".join(program.measured(result, "abcd")), expected)
        self.assertEqual(program.measured({"window": None, "samples": {"step": [1]}}, [0.5]), [])

    def test_a_command_that_is_a_path_is_found_from_any_folder(self):
        self.assertEqual(program.command_of("sh -c 'a b' no/such"), ["sh", "-c", "a b", "no/such"])
        here = os.path.relpath(__file__)
        self.assertEqual(program.command_of(f"env {here}"), ["env", os.path.abspath(__file__)] if "/" in here else ["env", here])
        with self.assertRaisesRegex(program.Refused, "at least one word"):
            program.command_of(" ")


if __name__ == "__main__":
    unittest.main()
