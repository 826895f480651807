"""Stand-ins for tests of perf/compare/pytorch and perf/compare/llmc: a program that says what Trainstone would, with
seconds and losses that the test chooses, and a folder with a log of who ran in which order."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import commands  # noqa: F401 -- finds perf

PARAMETERS = 470528
LOSSES = [6.3, 6.2, 6.1]  # ln 512 is 6.24
OURS = f"""#!{sys.executable}
import json, os, pathlib, sys
def log(text):
    with open(os.environ["LOG"], "a") as file:
        file.write(text + "\\n")
def after(option):
    return sys.argv[sys.argv.index(option) + 1]
values = {{"model.layers": 2, "model.heads": 4, "model.channels": 128, "model.context": 64, "model.vocab": 512,
          "model.dropout": 0.0, "data.source": "synthetic", "data.sequence": 64, "data.seed": 1, "batch.global": 8,
          "batch.accumulation": 1, "optimizer.type": "adamw", "optimizer.lr": 3e-4, "optimizer.betas": [0.9, 0.95],
          "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "optimizer.decay": "matrices", "optimizer.clip": 1.0,
          **json.loads(os.environ.get("VALUES", "{{}}"))}}
overrides = dict(word.split("=", 1) for option, word in zip(sys.argv, sys.argv[1:]) if option == "--set")
values.update({{key: int(value) for key, value in overrides.items() if key in ("batch.global", "data.sequence")}})
if sys.argv[1] == "estimate":
    params = {{key: {{"value": value, "origin": "default"}} for key, value in values.items()}}
    pathlib.Path(after("--json")).write_text(json.dumps({{"params": params, "model_parameters": {PARAMETERS}}}))
    sys.exit()
assert "TRAINSTONE_SET" not in os.environ
if "model.save" in overrides:
    pathlib.Path(overrides["model.save"]).write_text("a model")
log(" ".join(["O", "threads", os.environ["OMP_NUM_THREADS"], "ranks", os.environ.get("RANKS", "1"),
              *(f"{{key}}={{value}}" for key, value in overrides.items())]))
steps, warm = int(overrides["data.steps"]), int(overrides["bench.warmup_steps"])
losses = json.loads(os.environ.get("OUR_LOSSES", "{LOSSES}"))
result = {{"status": os.environ.get("STATUS", "UNREFERENCED"),
          "window": {{"first_step": warm + 1, "last_step": steps}},
          "samples": {{"step": [*range(1, steps + 1)], "seconds": [9.0] * warm + [0.1] * (steps - warm), "loss": (losses + [6.0] * steps)[:steps]}},
          "metrics": {{"model_parameters": {PARAMETERS}.0}}, "machine": {{"cpu": "paper", "cores": 2}},
          "code": {{"version": "1", "git": "abc", "dirty": False, "compiler": "g++", "kokkos": "5 Serial"}}}}
pathlib.Path(after("--out"), "result.json").write_text(json.dumps(result))
sys.exit(int(os.environ.get("CODE", "0")))
"""
LAUNCHER = '#!/bin/sh\nexport RANKS=$2\nshift 2\nexec "$@"\n'


class Comparing(unittest.TestCase):
    """A folder with stand-ins, and a tool that runs on them."""
    main = None  # of the tool

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainstone-compare-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.json = self.folder / "compared" / "rows.json"
        self.ours, self.launcher = self.write("trainstone", OURS), self.write("launcher", LAUNCHER)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def tool(self, *arguments, **variables):
        """Exit code and all output."""
        out, code, log = io.StringIO(), 0, self.folder / "log"
        log.write_text("")
        command = ["tool", "--program", self.ours, "--mpiexec", self.launcher, "--json", str(self.json), *arguments]
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), \
                mock.patch.dict(os.environ, {"LOG": str(log), "TRAINSTONE_SET": "model.layers=3", **variables}):
            try:
                type(self).main()
            except SystemExit as end:
                code = end.code
        return code, out.getvalue()

    def rows(self):
        return json.loads(self.json.read_text())["rows"]

    def log(self):
        """Lines, as lists of words."""
        return [line.split() for line in (self.folder / "log").read_text().splitlines()]

    def assert_fails(self, code, words, *arguments, **variables):
        found, out = self.tool(*arguments, **variables)
        self.assertEqual(found, code, out)
        self.assertIn(words, out)
        self.assertFalse(self.json.exists(), "there are figures")
