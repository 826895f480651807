#!/usr/bin/env python3
"""What the tools of perf/ have in common: a write that fails halfway leaves the file as it was.

usage: shared_test.py [unittest options]
"""
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
        whole = pathlib.Path.write_text

        def half(path, text, **options):
            whole(path, text[:len(text) // 2], **options)
            raise OSError("no space left on device")

        writers = {"json": lambda value: shared.write_json(self.path, {"value": value}),
                   "text": lambda value: shared.write_text(self.path, f"some text with {value}"),
                   "reference": lambda value: gate_reference.write(self.path, [value])}
        for name, write in writers.items():
            with self.subTest(name):
                write("old")
                before = self.path.read_text(encoding="utf-8")
                with unittest.mock.patch.object(pathlib.Path, "write_text", half), self.assertRaises(OSError):
                    write("new")
                self.assertEqual(self.path.read_text(encoding="utf-8"), before)
                write("new")
                self.assertNotEqual(self.path.read_text(encoding="utf-8"), before)
                self.assertEqual(list(self.path.parent.iterdir()), [self.path])

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
