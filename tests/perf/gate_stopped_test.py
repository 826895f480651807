"""A gate that is stopped, or whose run has no end, leaves nothing running.

usage: gate_stopped_test.py MPIEXEC [unittest options]
Stand-ins for the programs never end. They are started by a stand-in for a launcher, and by MPIEXEC.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from commands import PERF  # first, as it finds perf
from gate import ratio_records

LAUNCHER = '#!/bin/sh\nshift 2\n"$@" &\nwait $!\n'  # one rank, which is another process of its group
PROGRAM = '#!/bin/sh\n: >"${0%/*}/started/$$"\nexec sleep 3600\n'
PATIENCE = 300  # seconds for what takes one


def lives(process):
    """Nobody may have asked how it ended."""
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def holds(condition):
    """Within some seconds."""
    until = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


class Stopped(unittest.TestCase):
    mpiexec = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainstone-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("program", PROGRAM), ("perf_ratios", PROGRAM), ("launcher", LAUNCHER)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        self.launchers = {str(self.folder / "launcher"): 1, self.mpiexec: 2}  # the ranks that run
        self.reference, self.program = self.folder / "reference.json", str(self.folder / "program")
        self.recording = ("--record", "--reference", str(self.reference), "--program", self.program)

    def start(self, launcher, ranks, command, *arguments, **options):
        """A command of the gate; when so many ranks run, if a number is given."""
        started = self.folder / "started"
        for old in started.glob("*"):
            old.unlink()
        started.mkdir(exist_ok=True)
        gate = subprocess.Popen([sys.executable, PERF / "gate" / command, "--mpiexec", launcher, *arguments], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.addCleanup(self.end, gate)
        self.assertTrue(ranks is None or holds(lambda: len(self.ranks()) == ranks), arguments)
        return gate

    def ranks(self):
        return [int(path.name) for path in (self.folder / "started").iterdir()]

    def end(self, gate):
        """What a test that failed has left."""
        gate.kill()
        for rank in filter(lives, self.ranks()):
            os.kill(rank, signal.SIGKILL)

    def assert_ended(self, gate, code, ranks=None):
        out, _ = gate.communicate(timeout=PATIENCE)
        self.assertEqual((gate.returncode, len(self.ranks())), (code, len(self.ranks()) if ranks is None else ranks), out)
        self.assertTrue(holds(lambda: not any(map(lives, self.ranks()))), f"{out}: ranks go on")
        return out

    def test_whatever_runs_ends_with_it_and_nothing_is_begun(self):
        for launcher, ranks in self.launchers.items():
            for arguments, running in ((("counters", *self.recording), 1 + ranks),  # configurations on one rank and on two
                                       (("ratios", *self.recording), ranks),
                                       (("builds", "--base", self.program, "--change", self.program), ranks),
                                       (("self_test", "--program", self.program), 1 + ranks)):  # which starts counters
                with self.subTest(launcher=launcher, arguments=arguments):
                    gate = self.start(launcher, running, *arguments)
                    gate.terminate()
                    self.assert_ended(gate, 143, running)

    def test_signals_are_told_by_its_exit_code(self):
        (launcher, ranks), *_ = self.launchers.items()
        for number in (signal.SIGHUP, signal.SIGINT):
            gate = self.start(launcher, ranks, "ratios", *self.recording,
                              preexec_fn=lambda number=number: signal.signal(number, signal.SIG_DFL))  # whatever ours is
            gate.send_signal(number)
            self.assert_ended(gate, 128 + number, ranks)

    def test_a_signal_that_is_ignored_stays_so(self):
        (launcher, ranks), *_ = self.launchers.items()
        gate = self.start(launcher, ranks, "ratios", *self.recording,
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))  # as nohup does
        gate.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        self.assertTrue(all(map(lives, [gate.pid, *self.ranks()])))
        gate.terminate()
        self.assert_ended(gate, 143, ranks)

    def test_a_run_that_takes_too_long_ends_with_its_ranks(self):
        ratio_records.write(self.reference, [])
        for launcher, ranks in self.launchers.items():
            for patience in (2, 20, 200):  # on a slow machine ranks may start later
                gate = self.start(launcher, None, "ratios", *self.recording[1:], "--patience", str(patience))
                self.assertIn(f"timed out after {patience}.0 seconds", self.assert_ended(gate, 1))
                if len(self.ranks()) == ranks:
                    break
            self.assertEqual(len(self.ranks()), ranks)


if __name__ == "__main__":
    Stopped.mpiexec = sys.argv.pop(1)
    unittest.main()
