"""perf/gate/counters shows every counter that differs, and takes nothing else for equal.

usage: gate_counters_test.py [unittest options]
A stand-in for the program counts what its overrides say.
"""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from commands import load

counters = load("gate/counters")

CONFIGURATIONS = {"ddp, 1 rank": (1, ("parallel.strategy=ddp",)), "ddp, 2 ranks": (2, ("parallel.strategy=ddp",)),
                  "naive, 4 ranks": (4, ("parallel.strategy=naive", "model.dropout=0.1"))}
LAUNCHER = '#!/bin/sh\nranks=$2\nshift 2\nRANKS=$ranks exec "$@"\n'
PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, sys
overrides = [word for option, word in zip(sys.argv, sys.argv[1:]) if option == "--set"]
ranks = int(os.environ.get("RANKS", "1"))
if os.environ.get("FAILS") in overrides:
    sys.exit("a check failed")
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir()
memory = {{"parameters": 4096 // ranks, "data": 7, "total": 4096 // ranks + 7}}
counted = {{"memory_bytes": memory, "sent_bytes": 8 * (ranks - 1), "messages": ranks - 1,
           "flops": sum(map(len, overrides)), "kernel_launches": 3 + ("TRAINSTONE_SET" in os.environ)}}
(out / "result.json").write_text(json.dumps({{"counted": counted}}))
"""


class Gate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainstone-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        few = mock.patch.dict(counters.CONFIGURATIONS, CONFIGURATIONS, clear=True)
        few.start()
        self.addCleanup(few.stop)
        self.reference = self.folder / "kept" / "counters.json"
        for name, text in (("program", PROGRAM), ("launcher", LAUNCHER)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def gate(self, *arguments, **variables):
        """Exit code and output."""
        out, code = io.StringIO(), 0
        command = ["counters", "--program", str(self.folder / "program"), "--mpiexec", str(self.folder / "launcher"),
                   "--reference", str(self.reference), *arguments]
        with mock.patch.object(sys, "argv", command), mock.patch.dict(os.environ, variables), \
                contextlib.redirect_stdout(out):
            try:
                counters.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1  # as Python does with a message
                out.write(f"{end.code}\n")
        return code, out.getvalue()

    def recorded(self):
        code, out = self.gate("--record")
        self.assertEqual(code, 0, out)
        return json.loads(self.reference.read_text())

    def assert_red(self, reference, *rows):
        """The gate fails on that reference, and its table has these rows and no others."""
        self.reference.write_text(reference if isinstance(reference, str) else json.dumps(reference))
        code, out = self.gate()
        self.assertEqual(code, 1, out)
        found = [" ".join(line.split()) for line in out.splitlines()]
        self.assertEqual(found[1:-1], [*rows], out)
        return out

    def test_what_was_recorded_passes_whatever_overrides_surround_it(self):
        self.recorded()
        expected = (0, "18 counters of 3 configurations: all as on record\n")
        self.assertEqual(self.gate(), expected)
        self.assertEqual(self.gate(TRAINSTONE_SET="model.layers=3"), expected)

    def test_every_counter_that_differs_is_shown(self):
        reference = self.recorded()
        reference["configurations"]["naive, 4 ranks"]["messages"] -= 1
        reference["configurations"]["ddp, 1 rank"]["memory_bytes.data"] += 1000
        out = self.assert_red(reference, "ddp, 1 rank memory_bytes.data 1007 7 -1000", "naive, 4 ranks messages 2 3 +1")
        self.assertTrue(out.splitlines()[-1].startswith("2 of 18 counters of 3 configurations differ. "), out)

    def test_a_counter_that_is_new_or_gone_differs(self):
        reference = self.recorded()
        del reference["configurations"]["ddp, 2 ranks"]["sent_bytes"]
        reference["configurations"]["ddp, 2 ranks"]["copies"] = 5
        self.assert_red(reference, "ddp, 2 ranks sent_bytes none 8", "ddp, 2 ranks copies 5 none")

    def test_a_configuration_that_is_new_or_gone_differs(self):
        reference = self.recorded()
        configurations = reference["configurations"]
        configurations["ddp, 3 ranks"] = configurations.pop("ddp, 2 ranks")
        self.assert_red(reference, "ddp, 2 ranks all not on record counted", "ddp, 3 ranks all on record not run")

    def test_a_damaged_reference_file_is_named(self):
        damaged = ["", "{", "[]", "{}", '{"configurations": []}', '{"configurations": {"ddp, 1 rank": 3}}',
                   '{"configurations": {"ddp, 1 rank": {"messages": 3.0}}}',
                   '{"configurations": {"ddp, 1 rank": {"messages": true}}}']
        self.reference.parent.mkdir()
        for text in [None, *damaged]:
            with self.subTest(text):
                if text is not None:
                    self.reference.write_text(text)
                code, out = self.gate()
                self.assertEqual(code, 1)
                self.assertTrue(out.startswith(f"{self.reference}: no reference of counters "), out)

    def test_a_run_that_fails_is_red_and_nothing_is_recorded(self):
        self.recorded()
        before = self.reference.read_text()
        for arguments in ((), ("--record",)):
            code, out = self.gate(*arguments, FAILS="model.dropout=0.1")
            self.assertEqual(code, 1)
            self.assertIn("naive, 4 ranks: exit 1: ", out)
            self.assertIn("\na check failed\n", out)
            self.assertTrue(out.endswith("\n1 of 3 runs failed: nothing was compared\n"), out)
        self.assertEqual(self.reference.read_text(), before)

    def test_a_program_that_is_not_there_is_red(self):
        self.recorded()
        (self.folder / "program").unlink()
        code, out = self.gate()
        self.assertEqual(code, 1)
        self.assertIn("No such file", out)


class Shipped(unittest.TestCase):
    def test_the_reference_has_the_configurations_of_the_table(self):
        self.assertEqual([*counters.read_reference(counters.REFERENCE)], [*counters.CONFIGURATIONS])


if __name__ == "__main__":
    unittest.main()
