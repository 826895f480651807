#!/usr/bin/env python3
"""What ci/test ends with names everything that did not run: nothing that was skipped looks passed."""
import pathlib
import subprocess
import tempfile
import unittest

SUMMARIZE = pathlib.Path(__file__).resolve().parents[2] / "ci/summarize"
CATCH2 = """
-------------------------------------------------------------------------------
a claim that
  needs a device
-------------------------------------------------------------------------------
some_test.cpp:3
...............................................................................

some_test.cpp:5: SKIPPED:
explicitly with message:
  kernels run on the host

===============================================================================
test cases:   3 |   2 passed | 1 skipped
"""
REPORT = """<?xml version="1.0"?>
<testsuite>
  <testcase name="passed" time="1" status="run"><system-out>All tests passed (5 assertions in 4 test cases)</system-out></testcase>
  <testcase name="catch" time="2" status="run"><system-out>{catch}</system-out></testcase>
  <testcase name="python" time="3" status="run"><system-out>Ran 5 tests in 0.1s

OK (skipped=2)</system-out></testcase>
  <testcase name="partly" time="3" status="fail"><system-out>FAILED (failures=1, skipped=3)</system-out></testcase>
  <testcase name="whole" time="3" status="run"><system-out>OK</system-out></testcase>
  <testcase name="without" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
  <testcase name="explained" time="0" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>skipped: no NumPy
</system-out></testcase>
  <testcase name="switched off" time="0" status="disabled"></testcase>
</testsuite>
"""


class Summary(unittest.TestCase):
    def test_all_that_did_not_run_is_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "times").write_text("12 0 build\t\n3 77 slurm\tno Slurm here\n")
            (folder / "release").mkdir()
            (folder / "release/ctest.xml").write_text(REPORT.format(catch=CATCH2))
            out = subprocess.run([SUMMARIZE, folder / "times", folder / "release/ctest.xml"], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        counts, _, impossible = out.partition("not possible here, so not tested:\n")
        self.assertIn("release: 4 tests of ctest passed, 1 failed; 6 test cases of Catch2 passed", counts)
        self.assertEqual(sorted(line.strip() for line in impossible.splitlines()), [
            "release: catch: a claim that: kernels run on the host",
            "release: explained: skipped: no NumPy",
            "release: partly: 3 skipped by Python's unittest, which names them with -v",
            "release: python: 2 skipped by Python's unittest, which names them with -v",
            "release: switched off: disabled",
            "release: without: notrun",
            "slurm: no Slurm here",
        ])


if __name__ == "__main__":
    unittest.main()
