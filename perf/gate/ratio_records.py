"""The ratios on record, by machine: perf/gate/reference/ratios.json. Owns what makes two machines the same, and the file."""
import hashlib
import json
import math
from typing import NamedTuple

from lib.files import write_json

IDENTITY = ("cpu", "cores", "isa", "kokkos", "threads", "gemm", "mpi", "ranks")
# instructions that decide which kernels libraries and compilers choose
ISA = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
       "asimd", "sve", "sve2", "bf16", "i8mm")


class NoReference(Exception):
    """A reference file that is not usable; says why."""


class Reference(NamedTuple):
    """What a ratio is compared with."""
    ratio: float  # None: nothing is on record
    reach: float  # how far the runs lie from it, as a share


UNKNOWN = Reference(None, 0.0)


class Range(NamedTuple):
    """Of the ratios of several runs."""
    ratio: float  # the median
    low: float
    high: float

    def reference(self):
        return Reference(self.ratio, max(self.high / self.ratio, self.ratio / self.low) - 1)


def instruction_sets(path="/proc/cpuinfo"):
    """Those of ISA that the first processor has, in one text; empty where nobody says."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition(":")[2] for line in file if line.lower().startswith(("flags", "features"))]
    except OSError:
        lines = []
    has = set(lines[0].split()) if lines else set()
    return " ".join(name for name in ISA if name in has)


def fingerprint(about):
    """\\param about  what perf_ratios says of the machine, and "isa" """
    return {name: about[name] for name in IDENTITY}


def digest(entry):
    content = {name: value for name, value in entry.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_entry(about, ratios):
    """\\param ratios  by name: Range"""
    entry = {"fingerprint": fingerprint(about), "compiler": about["compiler"],
             "ratios": {name: {part: round(value, 6) for part, value in values._asdict().items()}
                        for name, values in ratios.items()}}
    return {**entry, "sha256": digest(entry)}


def check_entry(entry):
    if entry["sha256"] != digest(entry):
        raise ValueError("an entry is not as it was recorded")
    if set(entry["fingerprint"]) != set(IDENTITY):
        raise ValueError("a fingerprint has other parts than it should have")
    for name, values in entry["ratios"].items():
        ratio, low, high = (values[part] for part in ("ratio", "low", "high"))
        if not all(type(value) is float and math.isfinite(value) for value in (ratio, low, high)):
            raise ValueError(f"{name}: not all values are numbers")
        if not 0 < low <= ratio <= high:
            raise ValueError(f"{name}: {ratio} is not between {low} and {high}, above 0")


def read(path):
    """All entries. \\throws NoReference"""
    try:
        entries = json.loads(path.read_text())["machines"]
        if not isinstance(entries, list):
            raise ValueError("machines is no list")
        for entry in entries:
            check_entry(entry)
        machines = [entry["fingerprint"] for entry in entries]
        if any(machine in machines[:place] for place, machine in enumerate(machines)):
            raise ValueError("a machine is there twice")
        return entries
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoReference(f"{path}: no reference of ratios ({type(error).__name__}: {error}); "
                          "--record writes one") from None


def find(entries, about):
    """That machine's references, by name; None if it is unknown."""
    wanted = fingerprint(about)
    found = [entry["ratios"] for entry in entries if entry["fingerprint"] == wanted]
    return {name: Range(**values).reference() for name, values in found[0].items()} if found else None


def write(path, entries):
    write_json(path, {"about": "Ratios by machine; written and compared by perf/gate/ratios", "machines": entries})


def record(path, entry):
    """Takes the place of what was known of that machine. A file that is not there begins."""
    entries = read(path) if path.exists() else []
    write(path, [*(old for old in entries if old["fingerprint"] != entry["fingerprint"]), entry])
