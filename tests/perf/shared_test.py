#!/usr/bin/env python3
"""What the tools of perf/ have in common: a write that fails halfway leaves the file as it was.

usage: shared_test.py [unittest options]
"""
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

PERF = pathlib.Path(__file__).resolve().parent.parent.parent / "perf"
sys.path.insert(0, str(PERF))
import gate_reference
import shared


class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-shared-test-")
        self.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name) / "new" / "file.json"

    def test_a_write_that_fails_halfway_leaves_the_file_as_it_was(self):
        writers = {"json": lambda value: shared.write_json(self.path, {"value": value}),
                   "text": lambda value: shared.write_text(self.path, f"some text with {value}"),
                   "reference": lambda value: gate_reference.write(self.path, [value])}
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
                shared.write_text(self.path, "of the second one")
            whole(one, other)

        with unittest.mock.patch.object(os, "replace", meanwhile):
            shared.write_text(self.path, "of the first one")
        self.assertEqual(self.path.read_text(encoding="utf-8"), "of the first one")
        self.assertEqual(list(self.path.parent.iterdir()), [self.path])

    def test_file_and_folder_are_on_the_medium_when_a_write_returns(self):
        brought, whole = [], os.fsync

        def note(descriptor):
            brought.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            whole(descriptor)

        with unittest.mock.patch.object(os, "fsync", note):
            shared.write_text(self.path, "text")
        file, folder = brought
        self.assertRegex(file, r"/new/file\.json\.[0-9a-f]{16}\.tmp$")
        self.assertEqual(folder, str(self.path.parent.resolve()))

    def test_what_json_has_not_is_refused(self):
        shared.write_json(self.path, {"value": 1})
        with self.assertRaises(ValueError):
            shared.write_json(self.path, {"value": float("nan")})
        self.assertEqual(self.path.read_text(encoding="utf-8"), '{\n "value": 1\n}\n')

    def test_options_of_keys(self):
        self.assertEqual(shared.set_options(["a=1", "b=x y"]), ["--set", "a=1", "--set", "b=x y"])
        self.assertEqual(shared.set_options([]), [])


if __name__ == "__main__":
    unittest.main()
