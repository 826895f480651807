"""perf/study/collect: the results of a study as one table, after proof that they are one study.

From the result files themselves: what the study keeps the same is the same in all of them, so are all keys of the deck but
those that the kind of study varies, every run has the ranks of its point, and what was counted is what was predicted. A
violation is an error, and no rate is given then. Mixed machines, versions, classes or kinds of rates, and other nodes than
planned, are named and no error.
Writes collected.json and collected.csv. Efficiency is FLOPs per rank and second over those on the fewest ranks, of medians
over repeats; it is the usual one for all three kinds, as FLOPs per rank fall with 1/N in a strong study. Few repeats have no
95 % interval: their smallest and largest efficiency is given, and is called so.
"""
import csv
import io
import statistics

from lib.files import write_json, write_text
from lib.judgement import ratio_of_medians
from lib.program import INVALID, measured
from study.folder import USABLE, different_keys, values_of, why_no_rate

ALWAYS = {"comm.expected_ranks"}
VARIED = {"strong": ALWAYS | {"batch.accumulation"}, "weak-batch": ALWAYS | {"batch.global"},
          "weak-model": ALWAYS | {"batch.accumulation", "model.layers"}}
COUNTED = ("sent_bytes", "messages", "flops", "kernel_launches")
PHASES = {"gemm": "gemm", "attention": "attention", "adam": "adam", "comm": "comm", "other": "other",
          "exposed communication": "exposed_communication"}


def phase_columns(result):
    """Seconds of the median step in every phase; None where kernels were not timed."""
    columns = {}
    for name, column in PHASES.items():
        seconds = measured(result, result["samples"]["phases"][name])
        columns[f"{column}_seconds"] = None if not seconds or None in seconds else statistics.median(seconds)
    return columns


def slowest_rank(result):
    """The straggler, and how much longer than the median rank it computes; None where that was not measured."""
    own = [rank["median_own_seconds"] for rank in result["ranks"]]
    usual = None if None in own else statistics.median(own)
    return {"straggler": result["straggler"]["rank"], "straggler_host": result["straggler"]["host"],
            "straggler_ratio": max(own) / usual if usual else None}


def energy_columns(result):
    energy = result.get("energy") or {}  # files of older programs have none
    return {key: energy.get(key) for key in ("host_joules", "device_joules")}


def class_of(result):
    """Of a run that was VALID by a golden file of the user's own: custom, whatever its deck is."""
    golden = result.get("golden")
    return "custom" if golden and not golden["released"] else result.get("class") or "unknown"


def row_of(point, result):
    """One run as a flat row: plain values and None."""
    row = {"name": point["name"], "ranks": point["ranks"], "nodes": point["nodes"], "repeat": point["repeat"],
           "status": result["status"] if result else "MISSING"}
    if not result:
        return row
    name, where = (None, None) if why_no_rate(result) else USABLE[result["status"]]
    rate = result[where] if where else None
    stats = result["stats"]["step_seconds"]
    row |= {"class": class_of(result), "rate_name": name, "rate": rate["value"] if rate else None,
            "rate_ci95_of_steps_low": rate["ci95"][0] if rate else None,
            "rate_ci95_of_steps_high": rate["ci95"][1] if rate else None,
            "step_seconds_median": stats["median"] if rate else None, **phase_columns(result)}
    for side in ("predicted", "counted"):
        work = result[side]
        row |= {f"{side}_memory_bytes": work["memory_bytes"]["total"], f"{side}_sent_bytes": work["sent_bytes"],
                f"{side}_messages": work["messages"], f"{side}_flops": work["flops"]}
    tokens = result["samples"]["tokens"]
    return row | {"tokens_per_step": tokens[0] if tokens else None, "model_parameters": result["metrics"].get("model_parameters"),
                  **slowest_rank(result), **energy_columns(result), "wall_seconds": result["wall_seconds"],
                  "deck_hash": result["deck"]["hash"], "version": f"{result['code']['version']} git {result['code']['git']}",
                  "cpu": result["machine"]["cpu"], "device": result["machine"].get("device"), "mpi": result["machine"]["mpi"]}


def wrong_counts(name, result):
    """Counters that are not as predicted, of one run. A step whose update is skipped, as loss scaling does, sends and starts
    less: then the mean of a step may be below what is predicted."""
    skips = result["metrics"].get("skipped_steps", 0) > 0
    found = [f"{name}: {key} counted {found}, predicted {expected}" for key in COUNTED
             for found, expected in [(result["counted"][key], result["predicted"][key])]
             if found > expected or (found < expected and (key == "flops" or not skips))]
    counted, predicted = result["counted"]["memory_bytes"], result["predicted"]["memory_bytes"]
    if counted != predicted:
        found.append(f"{name}: memory counted {counted['total']} bytes, predicted {predicted['total']}")
    if sum(size for kind, size in counted.items() if kind != "total") != counted["total"]:
        found.append(f"{name}: memory counted is no sum of its parts")
    return found


def wrong_keys(kind, first, other):
    """Keys in which two runs differ that the kind of study does not vary; at the same number of ranks none may."""
    may = VARIED[kind] if first["topology"]["ranks"] != other["topology"]["ranks"] else set()
    return [key for key in different_keys(first, other) if key not in may]


def broken_invariant(kind, limit, results):
    """What should be the same in all runs and is not; \\p results: by name."""
    found, tokens, parameters = [], {}, {}
    for name, result in results.items():
        ranks = result["topology"]["ranks"]
        of_steps = set(result["samples"]["tokens"])
        if len(of_steps) != 1:
            found.append(f"{name}: steps have {sorted(of_steps)} tokens, must have one number")
            continue
        step = of_steps.pop()
        tokens[name] = step / ranks if kind == "weak-batch" else step
        parameters[name] = result["metrics"].get("model_parameters", 0) / ranks
    unit = "tokens per rank and step" if kind == "weak-batch" else "tokens per step"
    if len(set(tokens.values())) > 1:
        found.append(f"{unit} differ: " + ", ".join(f"{name} {count:g}" for name, count in tokens.items()))
    if kind == "weak-model" and parameters:
        if not all(parameters.values()):
            return [*found, "a result does not say how many parameters its model has"]
        low, high = min(parameters.values()), max(parameters.values())
        if high > low * (1 + limit) / (1 - limit):  # each within the limit of one target
            found.append("parameters per rank differ by more than the limit: "
                         + ", ".join(f"{name} {count:.6g}" for name, count in parameters.items()))
    return found


def violations_of(study, results):
    """All that makes these results no study; \\p results: usable ones, by name."""
    kind, found = study.study["kind"], []
    for point in study.points:
        if (result := results.get(point["name"])) is None:
            continue
        if result["topology"]["ranks"] != point["ranks"]:
            found.append(f"{point['name']}: ran on {result['topology']['ranks']} ranks, must be {point['ranks']}")
        found += wrong_counts(point["name"], result)
    named = list(results.items())
    for name, result in named[1:]:
        for key in wrong_keys(kind, named[0][1], result):
            found.append(f"{name}: {key} = {values_of(result).get(key)}, in {named[0][0]} {values_of(named[0][1]).get(key)}")
    for point in study.points:
        if point["name"] in results:
            planned = study.plan["estimates"][str(point["ranks"])]
            for key in different_keys(results[point["name"]], planned):
                found.append(f"{point['name']}: {key} = {values_of(results[point['name']]).get(key)}, "
                             f"planned {values_of(planned).get(key)}")
    return found + broken_invariant(kind, study.plan["limit"], results)


def mixes_of(rows):
    """What runs that are compared should have in common; lines that name what they have instead."""
    names = {"version": "versions", "cpu": "processors", "device": "devices", "mpi": "MPI libraries", "class": "classes",
             "rate_name": "kinds of rates"}
    found = []
    for column, name in names.items():
        values = sorted({row[column] or "none" for row in rows if row.get("rate") is not None})
        if len(values) > 1:
            found.append(f"mixed {name}: {', '.join(values)}")
    return found


def other_nodes(study, results):
    """Runs on other nodes than planned: node-hours and predicted times are those of the plan."""
    return [f"{point['name']}: ran on {results[point['name']]['topology']['nodes']} nodes, planned {point['nodes']}"
            for point in study.points
            if point["name"] in results and results[point["name"]]["topology"]["nodes"] != point["nodes"]]


def summary_of(rows):
    """One entry per number of ranks: medians over repeats, and efficiency with its spread over them."""
    by_ranks = {}
    for row in rows:
        if row.get("rate") is not None:
            by_ranks.setdefault(row["ranks"], []).append(row)
    speeds = {ranks: [row["counted_flops"] / row["step_seconds_median"] for row in some] for ranks, some in by_ranks.items()}
    summary, base = [], min(by_ranks, default=0)
    for ranks, some in sorted(by_ranks.items()):
        low, high, kind = (None, None, None) if ranks == base else ratio_of_medians(speeds[ranks], speeds[base], ranks)
        middle = {key: statistics.median(row[key] for row in some)
                  for key in ("step_seconds_median", "rate", "counted_flops", "counted_messages", "counted_sent_bytes")}
        summary.append({"ranks": ranks, "runs": len(some), "rate_names": sorted({row["rate_name"] for row in some}), **middle,
                        "efficiency": statistics.median(speeds[ranks]) / statistics.median(speeds[base]),
                        "efficiency_low": low, "efficiency_high": high, "efficiency_interval": kind})
    return summary


def collect(study):
    """Everything that is known of the study, as written to collected.json."""
    found = {point["name"]: study.result(point) for point in study.points}
    reasons = {name: why_no_rate(result) for name, result in found.items()}
    usable = {name: found[name] for name, reason in reasons.items() if not reason}
    rows = [row_of(point, found[point["name"]]) for point in study.points]
    violations = violations_of(study, usable)
    if violations:
        for row in rows:
            row |= {key: None for key in row if key.startswith("rate")}
    return {"schema_version": 1, "kind": study.study["kind"], "invariant": study.study["invariant"],
            "violations": violations, "mixes": mixes_of(rows) + other_nodes(study, usable),
            "without_rate": [f"{name} {reason if found[name] else 'MISSING'}" for name, reason in reasons.items() if reason],
            "points": [] if violations else summary_of(rows), "rows": rows}


def print_summary(collected):
    print(f"{collected['kind']} study: {collected['invariant']}")
    print(f"{'ranks':>6} {'runs':>4} {'step ms':>9} {'tokens/s':>10}  {'efficiency':<29} rate")
    for point in collected["points"]:
        efficiency = f"{point['efficiency']:.3f}"
        if kind := point["efficiency_interval"]:
            efficiency += f" [{point['efficiency_low']:.3f} {point['efficiency_high']:.3f}] {kind}"
        print(f"{point['ranks']:>6} {point['runs']:>4} {1e3 * point['step_seconds_median']:>9.2f} {point['rate']:>10.4g}  "
              f"{efficiency:<29} {', '.join(point['rate_names'])}")
    for title, lines in (("no rate", collected["without_rate"]), ("note", collected["mixes"]),
                         ("VIOLATION", collected["violations"])):
        for line in lines:
            print(f"{title}: {line}")


def collect_study(study):
    """Writes both files. Exit code: 0, 65 if the results are no study, 1 if no run has a rate."""
    collected = collect(study)
    write_json(study.folder / "collected.json", collected)
    columns = list(dict.fromkeys(column for row in collected["rows"] for column in row))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, columns)
    writer.writeheader()
    writer.writerows(collected["rows"])
    write_text(study.folder / "collected.csv", table.getvalue())
    print_summary(collected)
    if collected["violations"]:
        print("these results are not the study that was planned: no rates")
        return INVALID
    return 0 if collected["points"] else 1
