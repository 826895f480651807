"""The files of a study. Owns what a study's folder is called inside, and when two runs are the same run. Trains nothing and
judges no times.
"""
import json
import math
import pathlib

from lib.program import Refused, program_of

STUDY_VERSION = PLAN_VERSION = 2  # schema_version of study.json and plan.json
CHOOSING = ("sweep", "to-loss")  # kinds of studies whose points are choices on one number of ranks
USABLE = {"VALID": ("FOM", "fom"), "UNREFERENCED": ("FOM_UNREFERENCED", "fom"), "EMULATED": ("FOM_EMULATED", "emulated_rate")}
WRITTEN = {"checkpoint.dir": "checkpoints", "model.save": "model.bin", "trace.file": "trace.json"}  # by a run, besides results


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise Refused(f"{path}: {failure}") from failure


def is_count(value):
    return type(value) is int and value > 0


def is_one_line(value):
    """A text without the characters that separate keys and runs in a job's plan."""
    return isinstance(value, str) and not any(ord(letter) < 32 for letter in value)


def is_folder_name(value):
    return is_one_line(value) and value not in ("", ".", "..") and "/" not in value


def check_version(path, record, version):
    found = record.get("schema_version") if isinstance(record, dict) else None
    if found != version:
        raise Refused(f"{path}: schema_version {json.dumps(found)}, must be {version}; plan the study again")


def check_point(path, kind, point):
    """Raises Refused unless the point is such as plan writes it. Its name is a folder of its own below runs/, which is cleared
    before a run: no other folder may be named."""
    name = point.get("name") if isinstance(point, dict) else None
    if not is_folder_name(name):
        raise Refused(f"{path}: a point is called {json.dumps(name)}, must be the name of a folder")
    if not is_folder_name(point.get("cell")):
        raise Refused(f"{path}: cell of point {name} must be the name of a folder")
    if wrong := [key for key in ("ranks", "nodes", "repeat") if not is_count(point.get(key))]:
        raise Refused(f"{path}: {', '.join(wrong)} of point {name} must be an integer above 0")
    overrides = point.get("overrides")
    if not isinstance(overrides, list) or not all(map(is_one_line, overrides)):
        raise Refused(f"{path}: overrides of point {name} must be an array of texts of one line")
    if (kind in CHOOSING) != ("choice" in point) or not is_one_line(point.get("choice", "")):
        raise Refused(f"{path}: choice of point {name} must be a text of one line in {' and '.join(CHOOSING)}, and absent in other studies")


def check_points(path, study):
    """Raises Refused unless the points of study.json are such as plan writes them, and those of a cell are repeats."""
    points = study.get("points")
    if not isinstance(points, list) or not points:
        raise Refused(f"{path}: points must be an array of at least one point")
    names, cells = set(), {}
    for point in points:
        check_point(path, study.get("kind"), point)
        if point["name"] in names:
            raise Refused(f"{path}: two points are called {json.dumps(point['name'])}")
        names.add(point["name"])
        first = cells.setdefault(point["cell"], point)
        if wrong := [key for key in ("choice", "ranks", "nodes", "overrides") if point.get(key) != first.get(key)]:
            raise Refused(f"{path}: {', '.join(wrong)} of points {first['name']} and {point['name']} of cell {point['cell']} "
                          "differ: repeats are of one run")


class Study:
    """A planned study in its folder: `study` is study.json, which reports read, `plan` what else the tools must know. A cell is
    what the repeats of a run share: a number of ranks, or a choice of a sweep."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()
        if not (self.folder / "study.json").exists():
            raise Refused(f"{folder}: there is no study.json; perf/study/plan writes one")
        self.study, self.plan = read_json(self.folder / "study.json"), read_json(self.folder / "plan.json")
        check_version(self.folder / "study.json", self.study, STUDY_VERSION)
        check_version(self.folder / "plan.json", self.plan, PLAN_VERSION)
        check_points(self.folder / "study.json", self.study)
        if missing := {*self.cells} - {*self.plan.get("estimates", {})}:
            raise Refused(f"{self.folder / 'plan.json'}: estimates of {', '.join(sorted(missing))} are missing")

    @property
    def kind(self):
        return self.study["kind"]

    @property
    def points(self):
        return self.study["points"]

    @property
    def cells(self):
        """The first point of every cell, by the cell's name: fewest ranks first, else in the order of the study."""
        found = {}
        for point in sorted(self.points, key=lambda point: point["ranks"]):
            found.setdefault(point["cell"], point)
        return found

    def planned(self, point):
        """The estimate of the point's cell."""
        return self.plan["estimates"][point["cell"]]

    def run_folder(self, point):
        return self.folder / "runs" / point["name"]

    def overrides(self, point, estimate):
        """Of the run: those of its point, and what the deck lets it write is written to its own folder."""
        own = [f"{key}={self.run_folder(point) / name}" for key, name in WRITTEN.items()
               if estimate["params"].get(key, {}).get("value")]
        return [*point["overrides"], *own]

    def result(self, point):
        """result.json of a run; None where there is none, or no whole one."""
        try:
            result = json.loads((self.run_folder(point) / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return result if isinstance(result, dict) and result.get("kind") == "run" else None


def values_of(record):
    """Keys that decide about a run: not where files are written, but whether; a job keeps its checkpoints as it likes."""
    return {key: bool(entry["value"]) if key in WRITTEN else entry["value"] for key, entry in record["params"].items()
            if not key.startswith("checkpoint.")}


def different_keys(one, other):
    """Names of the keys in which two runs (results or estimates) differ, but for checkpoints."""
    first, second = values_of(one), values_of(other)
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))


def why_no_rate(result):
    """Why this result has no rate that may be compared; empty if it has. A usable status alone is none: a run that went on
    from its last checkpoint ends well without a measured step."""
    if result is None:
        return "no result"
    if result["status"] not in USABLE:
        return result["status"]
    name, place = USABLE[result["status"]]
    rate = result.get(place) or {}
    numbers = [rate.get("value"), *rate.get("ci95", [])]
    if len(numbers) != 3 or not all(type(one) in (int, float) and math.isfinite(one) and one > 0 for one in numbers):
        return f"{result['status']} without {name}"
    if rate.get("unit") != "tokens/s":
        return f"{name} is in {rate.get('unit')}, must be tokens/s"
    return ""


def why_not_usable(result, estimate):
    """Why this result is not the run that the estimate speaks of; empty if it is."""
    if reason := why_no_rate(result):
        return reason
    if result["topology"]["ranks"] != estimate["topology"]["ranks"]:
        return f"ran on {result['topology']['ranks']} ranks"
    if keys := different_keys(result, estimate):
        return "other values of " + ", ".join(keys)
    if result["code"] != estimate["code"]:
        return f"another program, {program_of(result)}"
    return ""
