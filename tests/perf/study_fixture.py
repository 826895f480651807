"""Made-up studies for tests of perf/study/: results as they would be if the alpha-beta model were true, and their folder."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import commands  # noqa: F401 -- first, as it finds perf
from lib.files import write_json
from study import collection
from study.choices import cell_names
from study.folder import PLAN_VERSION, STUDY_VERSION, Study
from study.planning import Cell, points_of, varied_keys

ALPHA, BETA, GAMMA = 2e-6, 3e-10, 5e-12  # s per message, byte and FLOP
PARAMETERS, STEP_FLOPS, TOKENS = 10000, 4e9, 4096
CODE = {"version": "1", "git": "abc", "dirty": False, "compiler": "g++", "kokkos": "5 Serial"}


def work_of(ranks):
    """Ring all-reduce of all gradients; integers, as counters are."""
    return {"memory_bytes": {"parameters": 4 * PARAMETERS, "data": 7, "total": 4 * PARAMETERS + 7},
            "sent_bytes": 8 * PARAMETERS * (ranks - 1) // ranks, "messages": 20 * (ranks - 1), "flops": int(STEP_FLOPS / ranks),
            "kernel_launches": 11}


def seconds_of(ranks):
    work = work_of(ranks)
    return GAMMA * work["flops"] + ALPHA * work["messages"] + BETA * work["sent_bytes"]


def record_of(ranks, changes=()):
    """What a result and an estimate have in common."""
    values = {"model.layers": 2, "comm.expected_ranks": ranks, "batch.micro": 1, "batch.accumulation": 8 // ranks or 1,
              "batch.global": 8, "optimizer.lr": 0.1, "checkpoint.dir": "", **dict(changes)}
    return {"params": {key: {"value": value, "origin": "default"} for key, value in values.items()},
            "code": dict(CODE), "topology": {"ranks": ranks, "nodes": 1},
            "deck": {"hash": "0" * 16}}


def result_of(ranks, seconds=None, tokens=TOKENS, parameters=PARAMETERS, changes=()):
    seconds = seconds or seconds_of(ranks)
    phases = {name: [seconds / 10] * 3 for name in collection.PHASES}
    return {**record_of(ranks, changes), "kind": "run", "status": "UNREFERENCED", "class": "custom", "exit_code": 0,
            "machine": {"cpu": "paper", "mpi": "none"}, "predicted": work_of(ranks), "counted": work_of(ranks),
            "energy": None, "wall_seconds": 1.0, "window": {"first_step": 2, "last_step": 3},
            "samples": {"step": [1, 2, 3], "tokens": [tokens] * 3, "phases": phases},
            "ranks": [{"median_own_seconds": 1 + rank} for rank in range(ranks)],
            "straggler": {"rank": ranks - 1, "host": "here"}, "stats": {"step_seconds": {"median": seconds}},
            "fom": {"value": tokens / seconds, "unit": "tokens/s", "ci95": [1.0, 2.0]}, "emulated_rate": None,
            "metrics": {"model_parameters": parameters}}


def quietly(command, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return command(*arguments)


def collect_quietly(study):
    return quietly(collection.collect_study, study)


class OnPaper:
    """Instead of the program: the estimate of a run."""

    def __init__(self, code=None):
        self.code = code or CODE

    def estimate(self, _deck, ranks, _nodes, overrides, *_):
        assert f"comm.expected_ranks={ranks}" in overrides
        return {"predicted": work_of(ranks), "code": self.code}


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-study-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def study_of(self, kind, results, repeats=1):
        """A study as planned with the keys of these results (by ranks), each as often as said."""
        return self.planned(kind, {Cell(f"n{ranks}", ranks): result for ranks, result in results.items()}, repeats)

    def sweep_of(self, results, repeats=1):
        """The same of results on 4 ranks by choice, which is a tuple of settings."""
        return self.choices_of("sweep", results, repeats)

    def choices_of(self, kind, results, repeats):
        names = cell_names(4, results)
        return self.planned(kind, {Cell(name, 4, choice): results[choice] for name, choice in zip(names, results)}, repeats)

    def planned(self, kind, results, repeats):
        """\\param results  by Cell"""
        estimates = {cell: {**record_of(cell.ranks, {key: entry["value"] for key, entry in result["params"].items()}),
                            "predicted": work_of(cell.ranks), "compute_seconds": None} for cell, result in results.items()}
        plan = {"schema_version": PLAN_VERSION, "estimates": {cell.name: one for cell, one in estimates.items()}, "limit": 0.1,
                "deck": "d", "settings": [], "micro": 1, "global": 64, "own_ranks": 1, "ranks_per_node": None, "machine": None,
                "device-mem": None, "varied": varied_keys(kind, results)}
        points = points_of("strong", plan, estimates, repeats)  # without layers, whatever the kind is
        write_json(self.folder / "plan.json", plan)
        write_json(self.folder / "study.json", {"schema_version": STUDY_VERSION, "kind": kind, "deck": "d", "invariant": "i",
                                                "points": points})
        study, cells = Study(self.folder), {cell.name: result for cell, result in results.items()}
        for point in points:
            self.write(study, point["name"], cells[point["cell"]])
        return study

    def write(self, study, name, result):
        write_json(study.folder / "runs" / name / "result.json", result)

    def strong(self, repeats=2):
        return self.study_of("strong", {ranks: result_of(ranks) for ranks in (1, 2, 4)}, repeats)

    def tamper(self, study, name, change):
        path = study.folder / "runs" / name / "result.json"
        result = json.loads(path.read_text())
        change(result)
        write_json(path, result)
        return collection.collect(study)
