"""perf/result.schema.json: the results of every kind of run are as it says, and what is not so is refused."""
import copy
import json
import pathlib
import sys
import unittest

from checkpoints import kept_in
from support import Deck, run, settings, start

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "perf" / "result.schema.json"
WITH_OTHER_KEYS = {("metrics",), ("machine", "environment")}
ABSENT = object()  # in place of a value
OPTIONAL = {("kernels",), ("params", "model.context", "unit")}


def parts(value, path=()):
    """Path and value of all that a result consists of, itself first; of an array the first element only."""
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, child in children:
        yield from parts(child, (*path, key))


def changed(result, path, value):
    """A copy with that value at the path's end, or without the key there."""
    result = copy.deepcopy(result)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if value is ABSENT:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return result


class ResultSchema(unittest.TestCase):
    """One training: recorded, repeated, stopped, started again when it is complete, in 16 bits behind an emulated network
    with a step that is skipped, and against a damaged golden curve."""

    @classmethod
    def setUpClass(cls):
        if Draft202012Validator is None:
            reason = "No jsonschema for this Python: results are not compared with perf/result.schema.json"
            print(reason, file=sys.stderr)
            raise unittest.SkipTest(reason)
        deck, kept = Deck(), settings("checkpoint.dir=kept")
        recorded = run("run", deck.path, "--record-golden", *kept, ranks=2)
        sixteen_bits = ("precision.recipe=mixed16", "precision.storage=fp16", "precision.loss_scale=dynamic",
                        "precision.initial_loss_scale=1024", "faults.overflow.step=5", "comm.allreduce=measured",
                        "model.attention=flash", "kernels.attention=flash")
        futures = {
            "VALID": start("run", deck.path, *settings("bench.kernels=true", "parallel.strategy=naive"), ranks=2),
            "EMULATED": start("run", deck.path, *settings(*sixteen_bits, "comm.emulated_network.latency=1 us"), ranks=2),
            "STOPPED": start("run", deck.path, *kept, "--max-time", "1ms"),
            "pipeline": start("run", deck.path, *settings("parallel.pipeline=2", "bench.pipeline=true",
                                                          "faults.pace.forward=1 ms"), ranks=2),
            "servers": start("run", deck.path, *settings("parallel.strategy=parameter_server", "server.mode=bounded",
                                                         "faults.pace.forward=1 ms"), ranks=3),
            "files": start("run", deck.path, *settings("memory.offload_optimizer=file", "faults.pace.forward=1 ms"), ranks=2),
            "complete": start("run", deck.path, *kept, prepare=kept_in(recorded.folder)),
        }
        cls.outcomes = {"UNREFERENCED": recorded, **{name: future.result() for name, future in futures.items()}}
        cls.pipeline, cls.servers, cls.files = (cls.outcomes.pop(name) for name in ("pipeline", "servers", "files"))
        golden = json.loads(deck.golden.read_text())
        for curve in golden["curves"].values():
            curve["losses"][0] *= 2
        deck.golden.write_text(json.dumps(golden))
        cls.outcomes["INVALID"] = run("run", deck.path)
        cls.results = {name: outcome.result for name, outcome in cls.outcomes.items()}
        schema = json.loads(SCHEMA.read_text())
        Draft202012Validator.check_schema(schema)
        cls.validator = Draft202012Validator(schema)

    def errors(self, result):
        return [f"{error.json_path}: {error.message[:200]}" for error in self.validator.iter_errors(result)]

    def short(self):
        """The VALID result with two of its parameters, one of them with a unit."""
        result = copy.deepcopy(self.results["VALID"])
        result["params"] = {key: result["params"][key] for key in ("model.layers", "model.context")}
        self.assertEqual(self.errors(result), [])
        return result

    def assert_refused(self, name, path, value):
        with self.subTest(name=name, path=path, value=value):
            self.assertFalse(self.validator.is_valid(changed(self.results[name], path, value)))

    def test_every_kind_of_run_writes_what_the_schema_says(self):
        for name, result in self.results.items():
            with self.subTest(name):
                self.assertEqual(result["status"], "VALID" if name == "complete" else name, self.outcomes[name])
                self.assertEqual(result["exit_code"], self.outcomes[name].code)
                self.assertEqual(self.errors(result), [])
                on_hosts = [place["device"] is None for place in result["topology"]["rank_map"]]
                self.assertEqual({result["machine"]["device"] is None}, set(on_hosts))
        self.assertIsNone(self.results["complete"]["window"])
        self.assertTrue(any(self.results["EMULATED"]["samples"]["skipped"]))
        self.assertEqual(list(self.results["EMULATED"]["chosen"]), ["comm.allreduce"])
        self.assertEqual({name: result["providers"]["attention"] for name, result in self.results.items()},
                         {name: "flash" if name == "EMULATED" else "materialized" for name in self.results})

    def test_workers_that_do_not_wait_have_a_record(self):
        result = self.servers.result
        self.assertEqual((result["status"], self.errors(result)), ("EMULATED", []), self.servers)
        self.assertEqual(len(result["servers"]["acts"]), 2 * 24)
        for key in result["servers"]:
            self.assertFalse(self.validator.is_valid(changed(result, ("servers", key), ABSENT)), key)

    def test_files_of_state_have_a_part(self):
        result = self.files.result
        self.assertEqual((result["status"], self.errors(result)), ("EMULATED", []), self.files)
        for key in result["state_files"]:
            self.assertFalse(self.validator.is_valid(changed(result, ("state_files", key), ABSENT)), key)

    def test_the_terms_of_a_measured_pipeline_add_up(self):
        result = self.pipeline.result
        self.assertEqual(result["status"], "EMULATED", self.pipeline)
        self.assertEqual(self.errors(result), [])
        measured = result["pipeline"]
        terms = dict(measured["time_parts"])
        self.assertAlmostEqual(terms.pop("time"), sum(terms.values()), places=9)
        self.assertAlmostEqual(measured["stages"] * measured["seconds"] * (1 - measured["idle_share"]),
                               sum(measured["busy_seconds"]), places=9)
        self.assertIn("  idle share ", self.pipeline.out)

    def test_a_value_has_the_origins_that_a_deck_prints(self):
        path = ("params", "model.layers", "origin")
        for origin in ("default", "class tiny", "preset gpt2", "deck:3", "environment", "command line", "derived"):
            self.assertEqual(self.errors(changed(self.short(), path, origin)), [])
        for origin in ("", "tiny", "class ", "deck", "deck:0", "standard"):
            self.assertNotEqual(self.errors(changed(self.short(), path, origin)), [], origin)

    def test_the_arrays_of_samples_have_an_element_per_step(self):
        for name, result in self.results.items():
            samples = dict(result["samples"])
            arrays = [*samples.pop("phases").values(), *samples.values()]
            expected = {"STOPPED": 1, "complete": 0}.get(name, 12)
            self.assertEqual({len(array) for array in arrays}, {expected}, name)

    def test_a_key_that_is_missing_is_refused(self):
        result = self.short()
        for path, _ in parts(result):
            keys = path and isinstance(path[-1], str) and path[:-1] not in (*WITH_OTHER_KEYS, ("params",))
            if keys and path not in OPTIONAL:
                self.assertFalse(self.validator.is_valid(changed(result, path, ABSENT)), path)

    def test_a_key_that_is_unknown_is_refused(self):
        result = self.short()
        for path, value in parts(result):
            if isinstance(value, dict) and path not in WITH_OTHER_KEYS:
                self.assertFalse(self.validator.is_valid(changed(result, (*path, "unknown"), 1)), path)

    def test_a_value_of_another_type_is_refused_and_so_is_the_text_nan(self):
        result = self.short()
        for path, value in parts(result):
            if path:
                self.assertFalse(self.validator.is_valid(changed(result, path, {"another": ["type"]})), path)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and path[0] != "params":
                self.assertFalse(self.validator.is_valid(changed(result, path, "NaN")), path)

    def test_a_device_has_a_name_or_is_none(self):
        path = ("machine", "device")
        self.assertEqual(self.errors(changed(self.short(), path, "NVIDIA H100 80GB HBM3")), [])
        self.assertEqual(self.errors(changed(self.short(), path, None)), [])
        self.assertNotEqual(self.errors(changed(self.short(), path, "")), [])

    def test_a_rate_belongs_to_the_status(self):
        rate = self.results["VALID"]["fom"]
        for name in ("EMULATED", "INVALID", "STOPPED", "complete"):
            self.assert_refused(name, ("fom",), rate)
        for name in ("VALID", "UNREFERENCED", "INVALID", "STOPPED", "complete"):
            self.assert_refused(name, ("emulated_rate",), rate)
        for name in ("VALID", "UNREFERENCED", "EMULATED", "STOPPED", "complete"):
            self.assert_refused(name, ("unverified_rate",), rate)
        for name, key in (("VALID", "fom"), ("UNREFERENCED", "fom"), ("EMULATED", "emulated_rate"),
                          ("INVALID", "unverified_rate")):
            self.assert_refused(name, (key,), None)
        self.assert_refused("VALID", ("fom", "ci95"), [rate["value"]])
        link = {"latency_seconds": 1e-3, "seconds_per_byte": 0}
        self.assert_refused("VALID", ("topology", "emulated_network"), {**link, "inside": link, "node_port": False})

    def test_exit_code_and_checks_belong_to_the_status(self):
        for name, code in (("VALID", 65), ("UNREFERENCED", 65), ("EMULATED", 75), ("INVALID", 0), ("STOPPED", 0)):
            self.assert_refused(name, ("exit_code",), code)
        checks = self.results["VALID"]["verification"]
        failed = [*checks[:-1], {**checks[-1], "passed": False}]
        for name in ("VALID", "UNREFERENCED", "EMULATED", "STOPPED"):
            self.assert_refused(name, ("verification",), failed)
        for name in ("VALID", "UNREFERENCED", "EMULATED", "INVALID"):
            self.assert_refused(name, ("verification",), [])
        self.assert_refused("INVALID", ("verification",), checks)  # all of them passed
        self.assert_refused("UNREFERENCED", ("verification",), checks)  # a loss curve is among them
        self.assert_refused("VALID", ("verification",), [check for check in checks if check["name"] != "loss-curve"])
        for of_first in ("first-step", "first-update"):  # what a first step and a first update alone make of a run
            first = [{**check, "name": check["name"].replace("loss-curve", of_first)} for check in checks]
            for name in ("tiny", "small", "reference", "large", "custom"):
                proves = of_first == "first-update" and name in ("reference", "large")
                for status in ("VALID", "UNREFERENCED"):
                    errors = self.errors({**self.results[status], "class": name, "verification": first})
                    self.assertEqual(errors == [], (status == "VALID") == proves, (of_first, name, status, errors))

    def test_only_what_a_launcher_did_not_tell_is_unknown(self):
        checks = [check for check in self.results["VALID"]["verification"] if check["name"] != "launch"]
        unknown = {"name": "launch", "passed": None, "value": 2, "limit": None, "detail": "no launcher told"}
        of = lambda *checks: self.errors({**self.results["VALID"], "verification": [*checks]})
        self.assertEqual(of(*checks, unknown), [])
        self.assertEqual(of(*checks, {**unknown, "passed": True, "limit": 2}), [])
        self.assertNotEqual(of(*checks, {**unknown, "limit": 2}), [])
        self.assertNotEqual(of(*checks, {**unknown, "passed": True}), [])
        for number, check in enumerate(checks):
            self.assertNotEqual(of(*checks[:number], {**check, "passed": None, "limit": None}, *checks[number + 1:]), [])
        unreferenced = {**self.results["UNREFERENCED"], "verification": [unknown]}
        self.assertNotEqual(self.errors(unreferenced), [])  # no check was made

    def test_what_departs_from_a_class_is_custom(self):
        departed = {**self.results["VALID"], "class": "tiny", "class_departures": ["data.steps = 9 instead of 300"]}
        self.assertNotEqual(self.errors(departed), [])
        self.assertEqual(self.errors({**departed, "class": "custom"}), [])
        self.assertEqual(self.errors({**departed, "class_departures": []}), [])
        self.assertNotEqual(self.errors({**departed, "class": "huge", "class_departures": []}), [])

    def test_checkpoints_belong_to_restarts(self):
        self.assert_refused("STOPPED", ("checkpoints", "written"), 0)
        self.assert_refused("STOPPED", ("checkpoints", "last"), None)
        self.assert_refused("complete", ("restart_count",), 0)
        self.assert_refused("complete", ("losses_before_restart",), [])
        self.assert_refused("VALID", ("losses_before_restart",), [1.0])
        self.assert_refused("VALID", ("checkpoints", "resumed_step"), 1)
        self.assert_refused("VALID", ("checkpoints", "bytes_read"), 1)
        self.assert_refused("complete", ("checkpoints", "bytes_read"), 0)

    def test_amounts_have_bounds_and_counts_are_whole(self):
        for path, value in ((("counted", "messages"), 1.5), (("counted", "memory_bytes", "data"), -1), (("topology", "ranks"), 0),
                            (("wall_seconds",), 0), (("samples", "step"), [0]), (("status",), "PASSED"),
                            (("deck", "hash"), "short"), (("schema_version",), 2)):
            self.assert_refused("VALID", path, value)
