#!/usr/bin/env python3
"""What decks and inputs/README.md say of memory and work is what the program says.

usage: inputs_test.py PROGRAM [unittest options]
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

INPUTS = pathlib.Path(__file__).resolve().parent.parent.parent / "inputs"
DECKS = sorted(INPUTS.glob("*.toml"))
UNITS = {"MiB": 2**20, "GiB": 2**30}
SIZE = r"(?P<size>[\d.]+) (?P<unit>MiB|GiB)"
# Scratch of matrix products depends on libraries and processor. Decks say what oneDNN 3.12 needs with AVX2, which is known
# by one of them; elsewhere that may be anything up to this, as copies of matrices differ: 24 MiB where models are small.
SCRATCH_OF_QUICKSTART = 1690624
MOST_SCRATCH = {2**20: 24 * 2**20, 2**30: 512 * 2**20}


@functools.cache
def scratch_is_known():
    return (estimate("quickstart.toml", 2)[1] == SCRATCH_OF_QUICKSTART and
            "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))


@functools.cache
def estimate(deck, ranks):
    """Bytes per rank, those that are scratch of matrix products, and FLOP per step of all ranks as decks say them: 8.8e16."""
    with tempfile.NamedTemporaryFile(prefix="trainstone-inputs-", suffix=".json") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # each has scratch of its own
        ended = subprocess.run([Said.program, "estimate", INPUTS / deck, "--ranks", str(ranks), "--json", file.name],
                               check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found = json.loads(pathlib.Path(file.name).read_text(encoding="utf-8"))["predicted"]
    scratch, *_ = re.findall(r"(?m)^ +GEMM scratch +(\d+)$", ended.stdout)  # of the rank that needs most, which comes first
    return found["memory_bytes"]["total"], int(scratch), f"{found['flops'] * ranks:.1e}".replace("e+", "e")


def memory_in_header(text):
    (line,) = re.findall(r"(?m)^# memory +(.*)$", text)
    if found := [(int(ranks), size, unit) for size, unit, ranks in re.findall(rf"{SIZE} on (\d+)", line)]:
        return found
    match = re.search(rf"{SIZE} per rank .*--ranks (\d+)\)", line)
    return [(int(match[3]), match["size"], match["unit"])] if match else []


def readme_rows():
    """(deck, ranks, size, unit, FLOP or "")"""
    for line in (INPUTS / "README.md").read_text(encoding="utf-8").splitlines():
        if not (deck := re.match(r"\| `([\w-]+\.toml)` \|", line)):
            continue
        of_class = re.search(rf"\| (\d+): {SIZE} \| ([\d.e]+) \|", line)
        if of_class:
            yield deck[1], int(of_class[1]), of_class["size"], of_class["unit"], of_class[4]
            continue
        ranks, sizes = [cell.strip() for cell in line.split("|")[3:5]]
        for one, (size, unit) in zip(re.findall(r"\d+", ranks), re.findall(SIZE, sizes), strict=True):
            yield deck[1], int(one), size, unit, ""


class Said(unittest.TestCase):
    program = None

    def agree(self, said, unit, found, scratch):
        """To the digit after the point; what is not scratch is the same everywhere."""
        self.assertRegex(said, r"^\d+\.\d$")
        least, most = found, found
        if not scratch_is_known():
            least, most = found - scratch, found - scratch + MOST_SCRATCH[unit]
        self.assertTrue(least / unit - 0.051 < float(said) < most / unit + 0.051, f"{said} said, {found / unit} found")

    def test_memory_and_work_in_the_heads_of_decks(self):
        for path in DECKS:
            text = path.read_text(encoding="utf-8")
            memory = memory_in_header(text)
            self.assertTrue(memory, path)
            for ranks, size, unit in memory:
                with self.subTest(deck=path.name, ranks=ranks):
                    self.agree(size, UNITS[unit], *estimate(path.name, ranks)[:2])
            for flop in re.findall(r"([\d.]+e\d+) FLOP per step of all ranks", text):
                with self.subTest(deck=path.name):
                    self.assertEqual(flop, estimate(path.name, memory[0][0])[2])

    def test_memory_and_work_in_the_tables_of_the_readme(self):
        rows = list(readme_rows())
        self.assertEqual({deck for deck, *_ in rows}, {path.name for path in DECKS})
        for deck, ranks, size, unit, flop in rows:
            with self.subTest(deck=deck, ranks=ranks):
                self.agree(size, UNITS[unit], *estimate(deck, ranks)[:2])
                self.assertIn(flop, ("", estimate(deck, ranks)[2]))


if __name__ == "__main__":
    Said.program = sys.argv.pop(1)
    unittest.main()
