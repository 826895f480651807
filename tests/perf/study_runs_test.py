#!/usr/bin/env python3
"""perf/study/ with the program itself: studies of a tiny model on 1 and 2 ranks, here and on a Slurm of two scripts.

usage: study_runs_test.py PROGRAM MPIEXEC [unittest options]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from commands import PERF  # first, as it finds perf
from study import slurm_jobs
from study.folder import Study

DECK = """model.layers = 2
model.heads = 1
model.channels = 16
model.context = 8
model.vocab = 61
data.source = "synthetic"
data.steps = 12
batch.micro = 1
batch.global = 4
optimizer.schedule = "constant"
"""
# the last of them is impossible
STAGES = "parallel.pipeline=1,2+parallel.stages=[1,1],2+parallel.pipeline_schedule=interleaved+parallel.pipeline_chunks=2"


class Runs(unittest.TestCase):
    program = mpiexec = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-study-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def study(self, *words, program=None):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "KOKKOS_DISABLE_WARNINGS": "1"}
        environment.pop("TRAINSTONE_SET", None)
        path = f"{self.folder}:{environment['PATH']}"
        named = [] if words[0] == "collect" or "--program" in words else ["--program", str(program or self.program)]
        return subprocess.run([sys.executable, PERF / "study" / words[0], *map(str, words[1:]), *named], cwd=self.folder, text=True,
                              env={**environment, "PATH": path}, capture_output=True, check=False)

    def plan(self, *more, kind="strong", ranks="1,2"):
        (self.folder / "deck.toml").write_text(DECK)
        return self.study("plan", kind, "deck.toml", "--ranks", ranks, "--out", "s", *more)

    def script(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)
        return path

    def test_impossible_and_too_large_points_are_refused_before_anything_runs(self):
        refused = self.plan(ranks="1,3")
        self.assertEqual(refused.returncode, 64, refused)
        self.assertIn("3 ranks: REFUSED: --set batch.global=4: batch.global = 4 is no multiple of 3", refused.stdout)
        self.assertIn("nearest numbers of ranks that are possible: 2, 4", refused.stdout)
        large = self.plan("--device-mem", "100 kB", "--repeats", "2")
        self.assertEqual(large.returncode, 69, large)
        self.assertIn("DOES NOT FIT", large.stdout)
        grown = self.plan("--limit", "0.001", kind="weak-model")
        self.assertEqual(grown.returncode, 64, grown)
        self.assertIn("more than 0.1 % (--limit)", grown.stdout)
        self.assertFalse((self.folder / "s").exists())

    def test_weak_studies_vary_what_they_say(self):
        self.assertEqual(self.plan(kind="weak-batch", ranks="1,2,4").returncode, 0)
        study = Study(self.folder / "s")
        self.assertEqual([point["overrides"][-1] for point in study.points[:3]],
                         ["batch.global=4", "batch.global=8", "batch.global=16"])
        self.assertEqual(study.study["invariant"], "32 tokens per rank and step")
        grown = self.plan("--limit", "0.2", kind="weak-model", ranks="1,4")
        self.assertEqual(grown.returncode, 0, grown)
        study = Study(self.folder / "s")
        self.assertEqual((study.study["limit"], study.plan["limit"]), (0.2, 0.2))  # of reports, and of collect
        estimates = study.plan["estimates"]
        share = estimates["n4"]["model_parameters"] / 4 / estimates["n1"]["model_parameters"]
        self.assertIn(f"layers: {100 * (share - 1):+.2f} % parameters per rank", grown.stdout)
        self.assertLess(abs(share - 1), 0.2)

    def test_a_sweep_runs_the_choices_that_the_program_takes(self):
        planned = self.plan("--repeats", "2", "--vary", STAGES, kind="sweep", ranks="2")
        self.assertEqual(planned.returncode, 0, planned)
        self.assertRegex(planned.stdout, "(?m)^left out: parallel.pipeline=2 parallel.pipeline_schedule=interleaved "
                                         "parallel.pipeline_chunks=2: .*number of chunks per stage of 2 blocks on 2 stages is 1")
        study, staged = Study(self.folder / "s"), "parallel.pipeline=2 parallel.stages=[1,1]"
        self.assertEqual([(point["name"], point["cell"], point["choice"], point["ranks"]) for point in study.points],
                         [(f"n2-{cell}-r{repeat}", f"n2-{cell}", choice, 2) for repeat in (1, 2)
                          for cell, choice in (("1", "parallel.pipeline=1"), ("2-1-1", staged))])
        self.assertEqual(study.study["invariant"], "32 tokens per step on 2 ranks")
        self.assertEqual(study.plan["varied"],
                         ["batch.accumulation", "comm.expected_ranks", "parallel.pipeline", "parallel.stages"])
        planned = [study.planned(point)["params"] for point in study.points[:2]]
        self.assertEqual([params["batch.accumulation"]["value"] for params in planned], [2, 4])
        self.assertIn('stages = ["1", "1"]', (self.folder / "s/decks/n2-2-1-1.toml").read_text())

        ran = self.study("submit", "s", "local", "--mpiexec", self.mpiexec)
        self.assertEqual((ran.returncode, ran.stdout.count(": UNREFERENCED")), (0, 4), ran)
        self.assertEqual(self.study("submit", "s", "local").stdout.count(": kept"), 4)
        collected = self.study("collect", "s")
        self.assertEqual(collected.returncode, 0, collected)
        self.assertRegex(collected.stdout, r"(?m)^   2 .* 1\.000 .*  parallel\.pipeline=1$")
        self.assertRegex(collected.stdout, r"(?m)^   2 .* \[[\d.]+ [\d.]+\] min\.\.max .*  parallel\.pipeline=2 ")
        modelled = self.study("model", "s")
        self.assertEqual(modelled.returncode, 64, modelled)
        self.assertIn("a sweep study has one number of ranks", modelled.stderr)
        drawn = self.study("report", "s")
        self.assertEqual(drawn.returncode, 0, drawn)
        self.assertFalse((self.folder / "s/model.json").exists())
        report = (self.folder / "s/report/report.md").read_text().replace("\\", "")
        self.assertIn("by these results: 32 tokens per step on 2 ranks.\n", report)
        self.assertRegex(report, r"(?m)^\| 2 \| parallel.pipeline=2 parallel.stages=\[1,1\] \| 2 \| ")

        self.assertEqual(self.study("submit", "s", "slurm", "--again", "--dry-run").returncode, 0)
        lines = (self.folder / "s/jobs/1/n2.tsv").read_text().splitlines()
        self.assertEqual(sorted(line.split("\t")[0] for line in lines), sorted(point["name"] for point in study.points))
        self.assertEqual(sum("\tparallel.stages=[1,1]" in line for line in lines), 2)
        (self.folder / "deck.toml").write_text(DECK + "optimizer.lr = 0.1\n")
        self.assertIn("optimizer.lr changed since the study was planned", self.study("submit", "s", "local").stderr)

    def test_models_run_to_a_loss(self):
        text = self.folder / "text.txt"
        text.write_text("to be or not to be, that is the question. " * 100)
        keys = [word for key in ("data.source=text", f'data.files=["{text}"]', "model.vocab=256", "data.stop_loss=5.5",
                                 "data.validate_every=4", "data.validation_fraction=0.25") for word in ("--set", key)]
        planned = self.plan("--repeats", "1", "--layers", "1,3", *keys, kind="to-loss", ranks="1")
        self.assertEqual(planned.returncode, 0, planned)
        self.assertIn("32 tokens per step on 1 rank, until a held-out loss of 5.5", planned.stdout)
        study = Study(self.folder / "s")
        self.assertEqual([point["choice"] for point in study.points], ["model.layers=1", "model.layers=3"])
        ran = self.study("submit", "s", "local", "--mpiexec", self.mpiexec)
        self.assertEqual((ran.returncode, ran.stdout.count(": UNREFERENCED")), (0, 2), ran)
        collected = self.study("collect", "s")
        self.assertEqual(collected.returncode, 0, collected)
        rows = [line.split() for line in collected.stdout.splitlines() if "model.layers=" in line]
        sizes = [int(words[2]) for words in rows]
        self.assertEqual([words[:2] for words in rows], [["1", "1"]] * 2)
        self.assertEqual(sizes[1] - sizes[0], 2 * (12 * 16**2 + 13 * 16))  # blocks of 16 channels
        self.assertEqual(collected.stdout.count(" * "), 1)
        self.assertEqual(self.study("report", "s").returncode, 0)
        report = (self.folder / "s/report/report.md").read_text().replace("\\", "")
        self.assertRegex(report, rf"(?m)^\| model.layers=3 \| {sizes[1]} \| 1 \| 1 \| ")

    def test_what_is_no_study_to_a_loss_is_refused(self):
        loss = ("--set", "data.stop_loss=4.2")
        for more, options, words in (((), {}, "to-loss needs --vary KEY=VALUE,VALUE,... or --layers"),
                                     (("--layers", "1,2"), {}, "data.stop_loss above 0"),
                                     (("--layers", "1,2", *loss), {"kind": "sweep"}, "--layers belongs to to-loss"),
                                     (("--layers", "1,2", *loss), {"ranks": "1,2"}, "to-loss takes one number")):
            with self.subTest(words):
                refused = self.plan(*more, **{"kind": "to-loss", "ranks": "1", **options})
                self.assertEqual(refused.returncode, 64, refused)
                self.assertIn(words, refused.stdout + refused.stderr)

    def test_what_is_no_sweep_is_refused_before_anything_is_written(self):
        failing = self.script("failing", f'[[ "$*" == *micro=2* ]] && exit 70\nexec {self.program} "$@"\n')
        vary = ("--vary", "parallel.pipeline=1,2")
        cases = [((), {}, 64, "sweep needs --vary"),
                 (vary, {"ranks": "1,2"}, 64, "one number in --ranks"),
                 (vary, {"kind": "strong"}, 64, "--vary belongs to sweep"),
                 (("--vary", "parallel.pipeline"), {}, 64, "must be KEY=VALUE,VALUE"),
                 (("--vary", "parallel.pipeline=3,4"), {}, 64, "no choice is possible"),
                 (("--vary", "model.layers=2,3"), {}, 64, "model.layers=3: 10976 parameters, the deck has 7696"),
                 (("--vary", "data.sequence=8,4"), {}, 64, "data.sequence=4: 16 tokens per step, the deck has 32"),
                 (("--vary", 'parallel.strategy=ddp,"ddp"'), {}, 64, "are the same run"),
                 ((*vary, "--device-mem", "100 kB"), {}, 69, "DOES NOT FIT"),
                 (("--vary", "batch.micro=1,2", "--program", failing), {}, 64, "estimate: exit 70")]
        for more, options, code, words in cases:
            with self.subTest(words):
                refused = self.plan(*more, **{"kind": "sweep", "ranks": "2", **options})
                self.assertEqual(refused.returncode, code, refused)
                self.assertIn(words, refused.stdout + refused.stderr)
                self.assertFalse((self.folder / "s").exists())

    def test_a_study_runs_once_and_again_only_what_changed_and_one_failure_ends_no_other(self):
        planned = self.plan("--repeats", "2")
        self.assertEqual(planned.returncode, 0, planned)
        failing = self.script("failing", f'[[ "$*" == *runs/n1-r1* ]] && exit 70\nexec {self.program} "$@"\n')
        local = ("submit", "s", "local", "--mpiexec", self.mpiexec)
        first = self.study(*local, program=failing)
        self.assertEqual(first.returncode, 1, first)
        self.assertIn("n1-r1: exit 70, see ", first.stdout)
        self.assertEqual(first.stdout.count(": UNREFERENCED"), 3, first)
        second = self.study(*local)
        self.assertEqual(second.returncode, 0, second)
        self.assertEqual((second.stdout.count(": kept"), second.stdout.count(": UNREFERENCED")), (3, 1), second)

        collected = self.study("collect", "s")
        self.assertEqual(collected.returncode, 0, collected)
        found = json.loads((self.folder / "s/collected.json").read_text())
        self.assertEqual([(point["ranks"], point["runs"]) for point in found["points"]], [(1, 2), (2, 2)])
        report = self.script("draws", '[[ $1 == --help ]] && echo "  report ..." && exit\n[[ $1 == report ]] && echo "drawn $*"\n')
        drawn = self.study("report", "s", program=report)
        self.assertEqual(drawn.returncode, 0, drawn)
        self.assertIn(f"drawn report {self.folder}/s --out {self.folder}/s/report", drawn.stdout)
        self.assertIn("not fitted: 2 numbers", json.loads((self.folder / "s/model.json").read_text())["form"])
        unknown = self.study("report", "s", program=self.script("old", "echo nothing"))
        self.assertEqual(unknown.returncode, 64, unknown)
        self.assertIn("has no command `report`", unknown.stdout)

        (self.folder / "deck.toml").write_text(DECK.replace("data.steps = 12", "data.steps = 11"))
        changed = self.study(*local)
        self.assertEqual(changed.returncode, 64, changed)
        self.assertIn("data.steps changed since the study was planned", changed.stderr)
        self.plan("--repeats", "2", "--set", "optimizer.lr=0.1")
        self.assertEqual(self.study("collect", "s").returncode, 65)
        self.assertEqual(self.study(*local, "--dry-run").stdout.count("to run (other values of optimizer.lr)"), 4)

    def test_what_runs_write_is_in_their_own_folders(self):
        (self.folder / "deck.toml").write_text(DECK + 'trace.file = "kept.json"\n')
        planned = self.study("plan", "strong", "deck.toml", "--ranks", "1", "--out", "s", "--repeats", "2", "--set",
                             "checkpoint.dir=kept", "--set", "model.save=kept.bin")
        self.assertEqual(planned.returncode, 0, planned)
        ran = self.study("submit", "s", "local")
        self.assertEqual(ran.returncode, 0, ran)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("kept")], [])
        for name in ("n1-r1", "n1-r2"):
            found = sorted(os.listdir(self.folder / "s/runs" / name))
            self.assertEqual(found, ["checkpoints", "model.bin", "result.json", "run.log", "trace.json"])
            result = json.loads((self.folder / "s/runs" / name / "result.json").read_text())
            self.assertEqual((result["restart_count"], len(result["samples"]["loss"])), (0, 12))
        self.assertEqual(self.study("submit", "s", "local").stdout.count(": kept"), 2)
        self.assertEqual(self.study("collect", "s").returncode, 0)
        written = self.study("submit", "s", "slurm", "--again", "--dry-run")
        self.assertEqual(written.returncode, 0, written)
        for line in (self.folder / "s/jobs/1/n1.tsv").read_text().splitlines():
            name, *settings = line.split("\t")
            keys = dict(one.split("=", 1) for one in settings)  # the last one wins
            for key in ("checkpoint.dir", "model.save", "trace.file"):
                self.assertTrue(keys[key].startswith(f"{self.folder}/s/runs/{name}/"), keys[key])

    def test_a_slurm_gets_an_array_for_every_number_of_ranks(self):
        self.plan("--repeats", "2", "--ranks-per-node", "1")
        self.script("sbatch", f"echo 17\ngrep -h -e --array -e --nodes -e --ntasks -e --account ${{@: -1}} >>{self.folder}/sent\n")
        sent = self.study("submit", "s", "slurm", "--time", "30m", "--line", "#SBATCH --account=me")
        self.assertEqual(sent.returncode, 0, sent)
        self.assertIn("2 ranks: 2 runs, job 17", sent.stdout)
        lines = (self.folder / "sent").read_text().splitlines()
        for ranks in (1, 2):
            self.assertEqual([line for line in lines[5 * ranks - 5:5 * ranks] if not line.startswith("# Made")],
                             [f"#SBATCH --nodes={ranks}", f"#SBATCH --ntasks={ranks}", "#SBATCH --array=0-1",
                              "#SBATCH --account=me"])
        plan = (self.folder / "s/jobs/1/n2.tsv").read_text().splitlines()
        self.assertEqual(sorted(line.split("\t")[0] for line in plan), ["n2-r1", "n2-r2"])
        self.assertIn("\tcomm.expected_ranks=2\t", plan[0])

    def slurm(self, queue, code=0):
        """A Slurm that names the next job and lists a queue: lines "job task state"; returns how to submit to it."""
        self.script("sbatch", f"echo $1 >>{self.folder}/sent; echo $((16 + $(wc -l <{self.folder}/sent)))\n")
        lines = "\n".join("|".join(line.split()) for line in queue)
        self.script("squeue", f"cat <<END\n{lines}\nEND\necho down >&2\nexit {code}\n")
        return "submit", "s", "slurm"

    def test_what_a_job_is_still_to_run_is_left_to_it(self):
        self.plan("--repeats", "2")
        first = self.study(*self.slurm([]))
        self.assertEqual((first.returncode, first.stdout.count("2 runs, job 1")), (0, 2), first)
        runs = {one["job"]: one["runs"] for one in json.loads((self.folder / "s/jobs/submitted.json").read_text())["jobs"]}
        self.assertEqual({job: sorted(names) for job, names in runs.items()}, {17: ["n1-r1", "n1-r2"], 18: ["n2-r1", "n2-r2"]})
        begun = self.folder / "s/runs" / runs[17][1] / "checkpoints"
        begun.mkdir(parents=True)
        plans = {path: path.read_text() for path in (self.folder / "s/jobs").rglob("*.tsv")}

        queue = ["17 0 COMPLETED", "17 1 RUNNING", "18 0 PENDING", "18 1 COMPLETING", "99 0 RUNNING"]
        for command in (self.slurm(queue), ("submit", "s", "local", "--mpiexec", self.mpiexec, "--dry-run")):
            again = self.study(*command)
            self.assertEqual(again.returncode, 0, again)
            for line in (f"{runs[17][1]}: left to job 17_1, RUNNING", f"{runs[18][0]}: left to job 18_0, PENDING",
                         f"{runs[18][1]}: left to job 18_1, COMPLETING", f"{runs[17][0]}: to run (no result)",
                         "jobs of this study are still there"):
                self.assertIn(line, again.stdout)
            self.assertTrue(begun.exists())
        jobs = json.loads((self.folder / "s/jobs/submitted.json").read_text())["jobs"]
        self.assertEqual([(one["job"], one["runs"]) for one in jobs[2:]], [(19, [runs[17][0]])])
        self.assertEqual({path: path.read_text() for path in plans}, plans)  # a task that waits has yet to read its line

        lost = self.study(*self.slurm([], code=1))
        self.assertEqual(lost.returncode, 64, lost)
        self.assertIn("whether jobs 17, 18 of this study are still there cannot be told: squeue: down", lost.stderr)
        self.assertTrue(begun.exists())
        anyway = self.study(*self.slurm(queue), "--anyway")
        self.assertEqual((anyway.stdout.count("2 runs, job 2"), anyway.stdout.count("left to")), (2, 0), anyway)
        self.assertFalse(begun.exists())
        ended = self.study(*self.slurm(["17 1 FAILED", "18 0 TIMEOUT"]), "--dry-run")
        self.assertEqual(ended.stdout.count("to run (no result)"), 4, ended)
        self.assertTrue(all(one["ended"] for one in json.loads((self.folder / "s/jobs/submitted.json").read_text())["jobs"]))
        self.assertEqual(self.study(*self.slurm([], code=1), "--dry-run").returncode, 0)  # nothing is left to ask for

    def test_a_job_that_slurm_refuses_or_has_forgotten(self):
        self.plan("--repeats", "1", ranks="1")
        self.slurm([])
        self.script("sbatch", "echo no such partition >&2; exit 1\n")
        refused = self.study("submit", "s", "slurm")
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn("1 runs, not submitted: sbatch", refused.stdout)
        self.assertIn("no such partition", refused.stdout)
        self.assertEqual(self.study(*self.slurm([])).returncode, 0)
        self.script("squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1\n')
        self.assertIn("to run (no result)", self.study("submit", "s", "slurm", "--dry-run").stdout)

    def test_what_was_there_goes_only_when_sbatch_has_taken_the_job_for_it(self):
        self.plan("--repeats", "3", ranks="1")
        runs, study = self.folder / "s/runs", Study(self.folder / "s")
        stopped = {"kind": "run", "status": "STOPPED", "params": study.plan["estimates"]["n1"]["params"]}
        for name, text in (("n1-r1", "of another run"), ("n1-r2", json.dumps(stopped))):
            (runs / name / "checkpoints").mkdir(parents=True)
            (runs / name / "result.json").write_text(text)
        before = {path: path.is_file() and path.read_text() for path in runs.rglob("*")}
        self.script("sbatch", f"ls {runs} >>{self.folder}/seen; echo no such partition; exit 1\n")
        refused = self.study("submit", "s", "slurm", "--again")
        self.assertEqual((refused.returncode, refused.stdout.count("3 runs, not submitted: ")), (1, 1), refused)
        self.assertEqual((self.folder / "seen").read_text(), "n1-r2\n")
        self.assertEqual({path: path.is_file() and path.read_text() for path in runs.rglob("*")}, before)
        self.assertEqual(self.study(*self.slurm([]), "--again").returncode, 0)
        self.assertEqual(sorted(path.name for path in runs.iterdir()), ["n1-r2"])
        for number in (1, 2):
            self.assertEqual(sorted(os.listdir(self.folder / "s/jobs" / str(number))), ["n1.sh", "n1.tsv"])

    def jobs(self):
        return json.loads((self.folder / "s/jobs/submitted.json").read_text())["jobs"]

    def test_the_jobs_number_is_found_among_what_a_sites_wrapper_says(self):
        self.plan("--repeats", "1", ranks="1")
        for lines, job, cluster in (("Welcome\n17 jobs wait\n18;big\ngood bye", 18, "big"), ("17\n19", 19, None)):
            self.script("sbatch", f"cat <<END\n{lines}\nEND\n")
            sent = self.study("submit", "s", "slurm", "--anyway")
            self.assertEqual((sent.returncode, sent.stdout.count(f"1 ranks: 1 runs, job {job}\n")), (0, 1), sent)
            self.assertEqual([self.jobs()[-1][key] for key in ("job", "cluster", "ended")], [job, cluster, False])

    def test_a_job_without_a_number_keeps_its_runs_until_they_have_a_rate(self):
        self.plan("--repeats", "1", ranks="1")
        self.script("sbatch", f"echo once >>{self.folder}/sent; echo submitted 17 with thanks\n")
        self.script("squeue", "echo not asked >&2; exit 1\n")
        sent = self.study("submit", "s", "slurm")
        self.assertEqual(sent.returncode, 0, sent)
        self.assertIn("1 ranks: 1 runs, submitted, job unknown", sent.stdout)
        begun = self.folder / "s/runs/n1-r1/checkpoints"
        begun.mkdir(parents=True, exist_ok=True)
        for system in ("slurm", "local"):
            again = self.study("submit", "s", system)
            self.assertEqual(again.returncode, 0, again)
            self.assertIn("n1-r1: left to a job that sbatch took and did not name", again.stdout)
            self.assertIn("--anyway runs what they are to run nevertheless", again.stdout)
        self.assertEqual(((self.folder / "sent").read_text(), begun.exists()), ("once\n", True))
        self.assertEqual(self.study("submit", "s", "local", "--anyway").returncode, 0)
        self.assertIn("n1-r1: kept", self.study("submit", "s", "slurm").stdout)
        self.assertEqual([(one["job"], one["ended"]) for one in self.jobs()], [(None, True)])

    def test_one_submit_at_a_time_works_on_a_study(self):
        self.plan("--repeats", "1", ranks="1")
        with slurm_jobs.alone(Study(self.folder / "s")):
            second = self.study("submit", "s", "local")
        self.assertEqual(second.returncode, 64, second)
        self.assertIn("another perf/study/submit is at work on it", second.stderr)
        self.assertFalse((self.folder / "s/runs").exists())


if __name__ == "__main__":
    Runs.program, Runs.mpiexec = (os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1))
    unittest.main()
