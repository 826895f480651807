"""A run whose ranks are killed leaves no shared memory behind.

usage: killed_run_test.py TEST_MPI MPIEXEC
Starts ranks that wait for ever in a shared segment, kills them and looks for what has a name.
"""

import os
import pathlib
import signal
import subprocess
import sys

SHARED_MEMORY = pathlib.Path("/dev/shm")


def names(ranks):
    """What these processes have made; others may run tests meanwhile."""
    if not SHARED_MEMORY.is_dir():
        return set()
    prefixes = tuple(f"trainstone-{rank}-" for rank in ranks)
    return {entry.name for entry in SHARED_MEMORY.iterdir() if entry.name.startswith(prefixes)}


def processes_that_wait(run):
    """The ranks' process numbers, when all of them wait."""
    found = []
    for line in run.stdout:
        words = line.split()
        if words[:1] == ["process"]:
            found.append(int(words[1]))
        if words == ["waiting"]:
            return found
    sys.exit(f"the ranks ended before they waited, exit status {run.wait()}")


def main():
    program, mpiexec = sys.argv[1:]
    command = [mpiexec, "-n", "3", program, "[.killed]"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        ranks = processes_that_wait(run)
        if len(ranks) != 3:
            sys.exit(f"3 ranks were started, {len(ranks)} wait")
        while_running = names(ranks)
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)
        status = run.wait(timeout=600)
    if status == 0:
        sys.exit("the run ended well although its ranks were killed")
    left = while_running | names(ranks)
    if left:
        sys.exit(f"shared memory has names: {', '.join(sorted(left))}")
    print("nothing is left of 3 killed ranks")


main()
