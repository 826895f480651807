"""perf/study/submit: starts the runs of a study that are not there yet, here or on a Slurm.

Here one after the other: repeat 1 of all points, then repeat 2, each in an order of its own drawn from --seed, so that a
machine that gets warmer or busier does so for all points alike. On a Slurm an array job for each number of ranks, whose
scripts perf/study/make_job writes; its queue decides about the order. What a job of an earlier submit still works on, or waits
to, is left to it.
"""
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager

from lib.files import write_text
from lib.program import Program, Refused, set_options
from study import slurm_jobs
from study.folder import different_keys, why_no_rate, why_not_usable
from study.planning import estimate_for

MAKE_JOB = pathlib.Path(__file__).resolve().parent / "make_job"


def fresh_estimates(study, program):
    """What this program says of the deck today, by cell. Raises Refused if the deck is another than the planned one."""
    found = {}
    for cell, point in study.cells.items():
        found[cell] = estimate_for(study.plan, program, point["ranks"], point["overrides"])
        if changed := different_keys(found[cell], study.planned(point)):
            raise Refused(f"{study.plan['deck']}: {', '.join(changed)} changed since the study was planned; plan it again")
    return found


def order_of(points, seed):
    """Repeat by repeat, shuffled within each."""
    ordered = []
    for repeat in sorted({point["repeat"] for point in points}):
        some = [point for point in points if point["repeat"] == repeat]
        random.Random(f"{seed}/{repeat}").shuffle(some)
        ordered += some
    return ordered


def runs_to_do(study, estimates, left, again, seed):
    """Points whose result is not there, or is another run's, but for those in left; says of all what is done with them."""
    todo = []
    for point in order_of(study.points, seed):
        if point["name"] in left:
            print(f"{point['name']}: left to {left[point['name']]}", flush=True)
            continue
        reason = "--again" if again else why_not_usable(study.result(point), estimates[point["cell"]])
        print(f"{point['name']}: {f'to run ({reason})' if reason else 'kept'}", flush=True)
        if reason:
            todo.append(point)
    return todo


def goes_on(study, point, estimate):
    """Whether the point's folder has checkpoints of this run, from which it goes on; all else there is another run's."""
    result = study.result(point)
    return result and result["status"] == "STOPPED" and not different_keys(result, estimate)


def clear(study, point, estimate):
    if not goes_on(study, point, estimate):
        shutil.rmtree(study.run_folder(point), ignore_errors=True)
    study.run_folder(point).mkdir(parents=True, exist_ok=True)


def put_back(study, folder):
    """The folders of runs that were set aside there."""
    for one in list(folder.iterdir()):
        there = study.run_folder({"name": one.name})
        shutil.rmtree(there, ignore_errors=True)
        one.rename(there)
    folder.rmdir()


@contextmanager
def set_aside(study, points, estimates, folder):
    """Within it the points' folders are clear. What was there before is deleted afterwards, and put back if Refused is raised:
    results may not go for a job that there never is. After any other error it stays in `folder`, as a job may be there."""
    folder.mkdir()
    try:
        for point in points:
            if study.run_folder(point).exists() and not goes_on(study, point, estimates[point["cell"]]):
                study.run_folder(point).rename(folder / point["name"])
    except OSError as failure:
        put_back(study, folder)
        raise Refused(f"{failure.filename}: cannot be set aside: {failure.strerror}") from failure
    try:
        yield
    except Refused:
        put_back(study, folder)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def run_here(study, program, mpiexec, point, estimate):
    """The exit code; the output goes to run.log."""
    launcher = [*shlex.split(mpiexec), "-n", str(point["ranks"])] if point["ranks"] > 1 else []
    folder = study.run_folder(point)
    command = [*launcher, *program.words, "run", study.plan["deck"], *set_options(study.overrides(point, estimate)),
               "--out", str(folder)]
    with open(folder / "run.log", "w", encoding="utf-8") as log:
        print(shlex.join(command), file=log, flush=True)
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        except OSError as failure:
            raise Refused(f"{command[0]}: {failure.strerror}; --mpiexec names the launcher") from failure


def submit_here(study, program, arguments, todo, estimates):
    failed = []
    for number, point in enumerate(todo, 1):
        estimate = estimates[point["cell"]]
        clear(study, point, estimate)
        code = run_here(study, program, arguments.mpiexec, point, estimate)
        result = study.result(point)
        reason = why_no_rate(result) if result else f"exit {code}, see {study.run_folder(point) / 'run.log'}"
        print(f"{number}/{len(todo)} {point['name']}: {reason or result['status']}", flush=True)
        if reason:
            failed.append(point["name"])
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def job_script(study, program, folder, points, estimates, options):
    """Writes nN.tsv and nN.sh of points on N ranks. Returns the script's path."""
    ranks = points[0]["ranks"]
    plan, script = folder / f"n{ranks}.tsv", folder / f"n{ranks}.sh"
    lines = ["\t".join([point["name"], *study.overrides(point, estimates[point["cell"]])]) + "\n" for point in points]
    write_text(plan, "".join(lines))
    made = subprocess.run([sys.executable, MAKE_JOB, "slurm", study.plan["deck"], "--ranks", str(ranks), "--nodes",
                           str(points[0]["nodes"]), "--name", f"study-n{ranks}", "--program", shlex.join(program.words),
                           "--out", study.folder / "runs", "--plan", plan, *options], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Refused(made.stderr.strip())
    write_text(script, made.stdout)
    return script


def submit_slurm(study, program, arguments, todo, estimates):
    failed, folder = False, slurm_jobs.new_folder(study) if todo else None
    for ranks in sorted({point["ranks"] for point in todo}):
        points = [point for point in todo if point["ranks"] == ranks]
        script = job_script(study, program, folder, points, estimates, arguments.job)
        if arguments.dry_run:
            print(f"{script}: {len(points)} runs on {ranks} ranks")
            continue
        try:
            with set_aside(study, points, estimates, folder / f"n{ranks}.before"):
                job = slurm_jobs.submit(study, script, points)
            outcome = f"job {job}" if job else "submitted, job unknown: sbatch gave no number"
        except Refused as reason:
            failed, outcome = True, f"not submitted: {reason}"
        print(f"{ranks} ranks: {len(points)} runs, {outcome}", flush=True)
    return 1 if failed else 0


def submit_study(study, arguments):
    """Exit code: 0 if all was started (here: and gave a result that counts), else 1."""
    program = Program(arguments.program)
    if arguments.system == "local" and arguments.job:
        raise Refused(f"{' '.join(arguments.job)}: options of perf/study/make_job belong to slurm")
    with slurm_jobs.alone(study):
        estimates = fresh_estimates(study, program)
        left = {} if arguments.anyway else slurm_jobs.still_there(study)
        todo = runs_to_do(study, estimates, left, arguments.again, arguments.seed)
        if left:
            print("jobs of this study are still there: scancel ends them, --anyway runs what they are to run nevertheless")
        if arguments.system == "slurm":
            return submit_slurm(study, program, arguments, todo, estimates)
        return 0 if arguments.dry_run else submit_here(study, program, arguments, todo, estimates)
