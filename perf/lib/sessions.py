"""How tools of perf/ run programs: with an end whatever happens, and why one failed.

Programs lead sessions of their own, so that what they leave running can be ended. Signals to a tool's group do not reach
them: ended_by_signals() passes their end on.
"""
import contextlib
import os
import shlex
import signal
import subprocess

from lib.program import Refused, command_of


class RunFailed(Exception):
    """Of a program; says which one, and why."""


class NotPossible(Exception):
    """On this machine; says why."""


GRACE = 5  # seconds in which a process may end by itself when its signal has come
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_running = {}  # process that leads a session: the signal that ends it
_signals = []  # those of ENDING that have come


@contextlib.contextmanager
def ended_by_signals():
    """Within it a signal ends all that runs, then this program, with 128 + its number. Those that are ignored stay so.

    The handler raises nothing: a program that is being started at that moment would be left, and the threads that run
    others would go on. Nobody starts one or leaves this context after a signal."""
    def end(number, _frame):
        _signals.append(number)
        for leader, ending in list(_running.items()):
            send(leader, ending)

    before = {number: signal.signal(number, end) for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        leave_after_signal()


def leave_after_signal():
    if _signals:
        raise SystemExit(128 + _signals[0])


def inherited():
    """This process's environment without overrides of the deck."""
    return {name: value for name, value in os.environ.items() if name != "TRAINSTONE_SET"}


def environment(threads, **more):
    """Of a run: what it inherits, with so many threads of a rank."""
    return {**inherited(), "OMP_NUM_THREADS": str(threads), "KOKKOS_DISABLE_WARNINGS": "1", "UCX_MEM_EVENTS": "n", **more}


def run_ranks(mpiexec, ranks, command, folder, patience, variables):
    """Runs the command in that folder, by the launcher if there are several ranks; its ranks end with it.
    \\param variables  environment()   \\throws RunFailed unless it ends with code 0 within so many seconds"""
    try:
        launcher = [*command_of(mpiexec), "-n", str(ranks)] if ranks > 1 else []
        command = [*launcher, *command]
        code, out = run_session(command, timeout=patience, cwd=folder, env=variables)
    except (OSError, subprocess.TimeoutExpired, Refused) as error:
        raise RunFailed(str(error)) from None
    if code != 0:
        raise RunFailed(f"exit {code}: {shlex.join(command)}\n{out}".rstrip())


def run_session(command, ending=signal.SIGKILL, timeout=None, **options):
    """Exit code and output. \\param ending  what its group is sent when it is over, or is to be
    \\throws OSError, subprocess.TimeoutExpired"""
    with session(command, ending, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 **options) as leader:
        out, _ = leader.communicate(timeout=timeout)
    return leader.returncode, out


@contextlib.contextmanager
def session(command, ending=signal.SIGKILL, **options):
    """The process, which leads a session of its own and ends with this context, by SIGKILL if `ending` does not end it in time.
    \\throws OSError"""
    leave_after_signal()
    leader = subprocess.Popen(command, text=True, start_new_session=True, **options)
    _running[leader] = ending
    try:
        leave_after_signal()  # one that came while it started has not ended it
        yield leader
    finally:
        send(leader, ending)
        try:
            leader.wait(GRACE)
        except subprocess.TimeoutExpired:
            send(leader, signal.SIGKILL)
            leader.wait()
        del _running[leader]
    leave_after_signal()


def send(leader, number):
    """To its group. MPICH's launcher gives its proxies and ranks sessions of their own, which this does not reach: a proxy
    ends its ranks when its connection to the launcher closes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, number)
