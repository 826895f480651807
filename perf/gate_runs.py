"""How perf/gate.py and its parts run programs: the same environment for all, and why a run failed."""
import contextlib
import os
import shlex
import signal
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
    """Runs it in that folder; its ranks end with it. \\throws RunFailed unless it ends with code 0 within so many seconds"""
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, os.path.abspath(command[0]), *command[1:]]
    try:
        running = subprocess.Popen(command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        raise RunFailed(str(error)) from None
    try:
        out, _ = running.communicate(timeout=patience)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(str(error)) from None
    finally:
        end_session(running)
    if running.returncode != 0:
        raise RunFailed(f"exit {running.returncode}: {shlex.join(command)}\n{out}".rstrip())


def end_session(leader):
    """Whatever it has started and left running: a launcher that is killed does not end its ranks."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
