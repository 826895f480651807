#!/usr/bin/env python3
"""The scripts that perf/study/make_job writes, run with stand-ins for the batch systems and the program.

usage: make_job_test.py [unittest options]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MAKE_JOB = pathlib.Path(__file__).resolve().parent.parent.parent / "perf/study/make_job"

# Stops twice with a checkpoint, then ends well; notes what it was called with.
PROGRAM = """#!/bin/bash
echo "$*" >>calls
if (($(wc -l <calls) < 3)); then exit 75; fi
"""
STAND_INS = {
    "trainstone": PROGRAM,
    "srun": '#!/bin/bash\nshift\n"$@"\n',  # --kill-on-bad-exit
    "mpiexec": '#!/bin/bash\nshift 2\n"$@"\n',
    "scontrol": '#!/bin/bash\necho "$*" >>requeues\nexit 1\n',  # does not take the job down: the script ends at once
    "qrerun": '#!/bin/bash\necho "$*" >>requeues\nexit 1\n',
}


def make(*arguments):
    return subprocess.run([sys.executable, MAKE_JOB, *arguments], capture_output=True, text=True, check=False)


class MakeJob(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-job-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "bin").mkdir()
        for name, text in STAND_INS.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)

    def run_script(self, *arguments, words=(), **variables):
        made = make(*arguments)
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.folder / "job.sh").write_text(made.stdout)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(["bash", "job.sh", *words], cwd=self.folder, env={**os.environ, "PATH": path, **variables},
                              capture_output=True, text=True, check=False)

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def test_without_a_batch_system_a_stopped_run_is_started_again(self):
        ended = self.run_script("mpiexec", "my deck.toml", "--ranks", "2", "--time", "90s", "--before", "30s", "--set",
                                "data.files=['a b']")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        call = "run my deck.toml --out out --max-time 60s --set checkpoint.dir=out/checkpoints --set data.files=['a b']"
        self.assertEqual(self.lines("calls"), [call] * 3)
        self.assertEqual(len(self.lines("out/attempts.log")), 2)

    def test_slurm_requeues_a_stopped_job_and_no_other(self):
        for attempt, (code, requeues) in enumerate([(75, 1), (75, 2), (0, 2)]):
            ended = self.run_script("slurm", "deck.toml", "--ranks", "4", "--nodes", "2", SLURM_JOB_ID="17",
                                    SLURM_RESTART_COUNT=str(attempt))
            self.assertEqual(ended.returncode, code, ended.stderr)
            self.assertEqual(self.lines("requeues"), ["requeue 17"] * requeues)
            self.assertIn(f"job 17 on {os.uname().nodename}: attempt {attempt + 1}, output in out", ended.stdout)

    def test_slurms_directives(self):
        text = make("slurm", "deck.toml", "--ranks", "4", "--nodes", "2", "--time", "2h", "--before", "90s", "--line",
                    "#SBATCH --account=me", "--setup", "module load mpi").stdout
        for line in ("--nodes=2", "--ntasks=4", "--time=02:00:00", "--signal=USR1@90", "--requeue", "--open-mode=append",
                     "--output=trainstone-%j.log", "--account=me"):
            self.assertIn(f"\n#SBATCH {line}\n", text)
        self.assertLess(text.index("#SBATCH --account=me"), text.index("module load mpi"))
        self.assertIn("--max-time 7110s", text)

    def test_pbs_reruns_a_stopped_job(self):
        ended = self.run_script("pbs", "deck.toml", "--ranks", "3", "--nodes", "2", PBS_JOBID="5.host",
                                PBS_O_WORKDIR=str(self.folder))
        self.assertEqual(ended.returncode, 75, ended.stderr)
        self.assertEqual(self.lines("requeues"), ["5.host"])
        self.assertIn("\n#PBS -l select=2:ncpus=2:mpiprocs=2\n", (self.folder / "job.sh").read_text())

    def test_a_task_of_an_array_runs_its_line_of_the_plan(self):
        (self.folder / "plan.tsv").write_text("a\tx.y=1\nb c\tx.y=2 3\tz.w=[4]\n")
        ended = self.run_script("slurm", "deck.toml", "--ranks", "1", "--plan", str(self.folder / "plan.tsv"), "--set",
                                "u.v=0", SLURM_JOB_ID="1", SLURM_ARRAY_TASK_ID="1")
        self.assertEqual(ended.returncode, 75, ended.stderr)
        self.assertEqual(self.lines("calls"), ["run deck.toml --out out/b c --max-time 3300s --set checkpoint.dir=out/b c"
                                               "/checkpoints --set u.v=0 --set x.y=2 3 --set z.w=[4]"])
        self.assertIn("\n#SBATCH --array=0-1\n", (self.folder / "job.sh").read_text())

    def test_a_time_without_unit_or_too_short_is_refused(self):
        self.assertIn("5 is no time like 90s", make("slurm", "d", "--ranks", "1", "--time", "5").stderr)
        self.assertIn("--before must be less than --time",
                      make("slurm", "d", "--ranks", "1", "--time", "5m").stderr)

    def test_what_a_job_decides_itself_and_a_plan_with_holes_are_refused(self):
        self.assertIn("goes on from the newest one",
                      make("slurm", "d", "--ranks", "1", "--set", "checkpoint.resume=none").stderr)
        self.assertIn("--name must be a word", make("slurm", "d", "--ranks", "1", "--name", "a b").stderr)
        for text in ("", "a\tx=1\n\nb\tx=2\n"):
            (self.folder / "plan.tsv").write_text(text)
            made = make("slurm", "d", "--ranks", "1", "--plan", str(self.folder / "plan.tsv"))
            self.assertIn("must have a line per run, and none that is empty", made.stderr)

    def test_an_argument_with_a_line_break_stays_one(self):
        ended = self.run_script("mpiexec", "d", "--ranks", "1", "--set", "x.y=a\ntouch harm")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertFalse((self.folder / "harm").exists())

    def test_a_launcher_that_loses_the_exit_code_does_not_lose_the_requeue(self):
        (self.folder / "bin" / "srun").write_text('#!/bin/bash\nshift\n"$@"\nmkdir -p out; echo \'"exit_code": 75,\' '
                                                  '>out/result.json\nexit 143\n')
        ended = self.run_script("slurm", "deck.toml", "--ranks", "1", SLURM_JOB_ID="17")
        self.assertEqual(ended.returncode, 75, ended.stderr)
        self.assertEqual(self.lines("requeues"), ["requeue 17"])


if __name__ == "__main__":
    unittest.main()
