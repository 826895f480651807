"""How perf/gate.py and its parts run programs: the same environment for all, and why a run failed."""
import os
import shlex
import subprocess


class RunFailed(Exception):
    """Of a program; says which one, and why."""


class NotPossible(Exception):
    """On this machine; says why."""


def environment():
    """Of a run: this process's without overrides of the deck. Ranks share few cores, so that threads must not spin."""
    ours = {name: value for name, value in os.environ.items() if name != "TRAINSTONE_SET"}
    return {**ours, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "KOKKOS_DISABLE_WARNINGS": "1",
            "UCX_MEM_EVENTS": "n"}


def run_program(mpiexec, ranks, command, folder, patience):
    """Runs it in that folder. \\throws RunFailed unless it ends with exit code 0 within so many seconds"""
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, os.path.abspath(command[0]), *command[1:]]
    try:
        ended = subprocess.run(command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, timeout=patience, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(str(error)) from None
    if ended.returncode != 0:
        raise RunFailed(f"exit {ended.returncode}: {shlex.join(command)}\n{ended.stdout}{ended.stderr}".rstrip())
