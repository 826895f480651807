"""The jobs of a study on a Slurm: which were submitted, for which runs, and which of them are still there.

jobs/submitted.json has a line for every array job, written as soon as sbatch has taken it. A run whose job squeue still lists
is nobody else's: its folder is neither cleared nor used again. A job that sbatch took without a number, as where a site's
wrapper hides it, keeps each of its runs until that has a rate. Scripts and plans of every submission have a folder of their
own, as a job that waits or is requeued reads its plan when it starts. What others submitted by hand is not known here.
"""
import fcntl
import os
import re
import subprocess
from contextlib import contextmanager

from lib.files import write_json
from lib.program import Refused
from study.folder import read_json, why_no_rate

# Any other state is that of a job that runs, will run or cleans up.
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
         "TIMEOUT"}


@contextmanager
def alone(study):
    """One submit at a time works on a study, as far as its file system has locks."""
    with open(study.folder / "submit.lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            raise Refused(f"{study.folder}: another perf/study/submit is at work on it") from failure
        except OSError:
            pass
        yield


def new_folder(study):
    """For scripts and plans: jobs/1, jobs/2, ..."""
    folder = study.folder / "jobs"
    folder.mkdir(exist_ok=True)
    number = 1 + max((int(one.name) for one in folder.iterdir() if one.name.isdecimal()), default=0)
    (folder / str(number)).mkdir()
    return folder / str(number)


def submitted(study):
    """Jobs in the order of submission: {"job" or null, "cluster" or null, "ended", "runs"}; task i of the array is runs[i]."""
    path = study.folder / "jobs" / "submitted.json"
    return read_json(path)["jobs"] if path.exists() else []


def keep(study, jobs):
    write_json(study.folder / "jobs" / "submitted.json", {"schema_version": 1, "jobs": jobs})


def submit(study, script, points):
    """The job of a script whose task i is points[i]; None if sbatch took it and gave no number. Raises Refused if there is none."""
    try:
        sent = subprocess.run(["sbatch", "--parsable", script], cwd=script.parent, capture_output=True, text=True, check=False)
    except OSError as failure:
        raise Refused(f"sbatch: {failure.strerror}") from failure
    if sent.returncode != 0:
        raise Refused(f"sbatch {script}: exit {sent.returncode}: {sent.stdout}{sent.stderr}".strip())
    found = re.findall(r"(?m)^(\d+)(?:;(\S+))?\s*$", sent.stdout)  # a site's wrapper may say more, before it or after
    job, cluster = (int(found[-1][0]), found[-1][1] or None) if found else (None, None)
    keep(study, [*submitted(study), {"job": job, "cluster": cluster, "ended": False, "runs": [point["name"] for point in points]}])
    return job


def states_of(jobs, cluster):
    """State by (job, task) of what the queue of that cluster knows of these jobs."""
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%F|%K|%T", "--jobs=" + ",".join(map(str, jobs)),
               *([f"--clusters={cluster}"] if cluster else [])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    try:
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        said = asked.stderr.strip()
    except OSError as failure:
        asked, said = None, failure.strerror
    if asked and "Invalid job id" in said:  # what Slurm says of a single job that it has forgotten
        return {}
    if not asked or asked.returncode != 0:
        raise Refused(f"whether jobs {', '.join(map(str, jobs))} of this study are still there cannot be told: squeue: {said}; "
                      "--anyway submits nevertheless")
    lines = [line.strip().split("|") for line in asked.stdout.splitlines() if line.count("|") == 2]
    return {(int(job), int(task)): state for job, task, state in lines if job.isdecimal() and task.isdecimal()}


def still_there(study):
    """What runs are left to, by name: "job 17_1, RUNNING". Notes which jobs have ended. Raises Refused if no queue answers."""
    jobs, found = submitted(study), {}
    going_on = [one for one in jobs if not one["ended"]]
    for one in going_on:
        if one["job"] is None:
            alive = [name for name in one["runs"] if why_no_rate(study.result({"name": name}))]
            found |= {name: "a job that sbatch took and did not name" for name in alive}
            one["ended"] = not alive
    for cluster in {one["cluster"] for one in going_on if one["job"]}:
        of_cluster = [one for one in going_on if one["job"] and one["cluster"] == cluster]
        states = states_of([one["job"] for one in of_cluster], cluster)
        for one in of_cluster:
            alive = {name: state for task, name in enumerate(one["runs"])
                     for state in [states.get((one["job"], task), "COMPLETED")] if state not in ENDED}
            found |= {name: f"job {one['job']}_{one['runs'].index(name)}, {state}" for name, state in alive.items()}
            one["ended"] = not alive
    if jobs:
        keep(study, jobs)
    return found
