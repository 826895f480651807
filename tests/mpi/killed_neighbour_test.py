"""A rank that is killed ends the other ranks of its node, whatever the launcher does.

usage: killed_neighbour_test.py PROGRAM MPIEXEC ALGORITHM...    of comm.allreduce; every one is a training
Trains on 4 ranks, each below a process that lives until all ranks have ended, so that the launcher learns nothing. Kills
one of them. The others must end with exit code 70 and name it. Prints how long that took.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

RANKS, VICTIM, INTERNAL = 4, 2, 70
PATIENCE = 300  # seconds; 4 where cores are idle
SAID = re.compile(r"trainstone: rank (\d+): rank (\d+) \(process (\d+) on \S+\) has ended without a word")
DECK = """
model = {layers = 1, heads = 2, channels = 16, context = 8, vocab = 256}
data = {files = ["text.txt"], steps = 100000000, validate_every = 0}
batch = {micro = 1, global = 4}
"""


def be_rank(folder, command):
    """Below the launcher: starts a rank, and says which process it is and how it has ended."""
    with subprocess.Popen(command, close_fds=False) as process:  # the launcher may talk to it through any file
        (folder / f"process.{process.pid}").touch()
        code = process.wait()
    (folder / f"code.{process.pid}").write_text(str(code))
    while not (folder / "all have ended").exists():
        time.sleep(0.05)


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"after {PATIENCE} s not: {what}")
        time.sleep(0.02)


def numbers(folder, kind):
    """Process numbers that files of that kind have in their names."""
    return [int(path.suffix[1:]) for path in folder.glob(f"{kind}.*")]


def codes(folder):
    """By process number."""
    texts = {number: (folder / f"code.{number}").read_text() for number in numbers(folder, "code")}
    return {number: int(text) for number, text in texts.items() if text}


def check(folder, algorithm, program, mpiexec):
    """Returns what is wrong."""
    (folder / "text.txt").write_text("the cat sat on a mat. " * 100)
    (folder / "deck.toml").write_text(DECK)
    output = folder / "output"
    rank = [sys.executable, __file__, "--rank", str(folder), program, "run", str(folder / "deck.toml"), "--set",
            f"comm.allreduce={algorithm}"]
    with open(output, "wb") as to:
        launcher = subprocess.Popen([mpiexec, "-n", str(RANKS), *rank], cwd=folder, stdin=subprocess.DEVNULL, stdout=to,
                                    stderr=subprocess.STDOUT)
    victim = None
    try:
        wait_until("4 ranks train", lambda: b"\nstep " in output.read_bytes() or launcher.poll() is not None)
        if launcher.poll() is not None:
            return [f"the training ended before a rank was killed:\n{output.read_text()}"]
        wait_until("4 ranks are known", lambda: len(numbers(folder, "process")) == RANKS)
        victim = sorted(numbers(folder, "process"))[VICTIM]
        os.kill(victim, signal.SIGKILL)
        begin = time.monotonic()
        wait_until("all ranks have ended", lambda: len(codes(folder)) == RANKS)
        print(f"{algorithm}: the others ended {time.monotonic() - begin:.1f} s after a rank was killed")
    finally:
        for number in set(numbers(folder, "process")) - set(numbers(folder, "code")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        (folder / "all have ended").touch()
        launcher.wait(timeout=PATIENCE)
    return problems(victim, codes(folder), output.read_text(errors="replace"))


def problems(victim, ended, text):
    """Of an ended run."""
    wrong = [f"process {number} ended with {code}" for number, code in ended.items()
             if code != (-signal.SIGKILL if number == victim else INTERNAL)]
    told = [tuple(map(int, words)) for words in SAID.findall(text)]
    named = {(rank, process) for _, rank, process in told}
    if len(named) != 1 or next(iter(named))[1] != victim:
        wrong.append(f"process {victim} was killed, but rank and process were named: {sorted(named)}")
    elif sorted(teller for teller, _, _ in told) != [rank for rank in range(RANKS) if rank != next(iter(named))[0]]:
        wrong.append("not each of the others, and they alone, have said once why they end")
    return [*wrong, text] if wrong else []


def main():
    if sys.argv[1] == "--rank":
        return be_rank(pathlib.Path(sys.argv[2]), sys.argv[3:])
    program, mpiexec, *algorithms = sys.argv[1:]
    wrong = []
    for algorithm in algorithms:
        with tempfile.TemporaryDirectory(prefix="trainstone-test-") as folder:
            wrong += check(pathlib.Path(folder), algorithm, os.path.abspath(program), mpiexec)
    return "\n".join(wrong) or None


sys.exit(main())
