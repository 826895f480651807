"""perf/study/collect: the results of a study as one table, after proof that they are one study.

From the result files themselves: what the study keeps the same is the same in all of them, so are all keys of the deck but
those that the study varies, every run has the ranks of its point, and what was counted is what was predicted. A violation is an
error, and no rate is given then. Mixed machines, versions, classes or kinds of rates, and other nodes than planned, are named
and no error.
Writes collected.json and collected.csv. Cells are compared with the first one that has a rate, by medians over repeats. Of
studies over ranks the efficiency is FLOPs per rank and second over those on the fewest ranks; it is the usual one for all three
kinds, as FLOPs per rank fall with 1/N in a strong study. Of a sweep the speed is that of the median step over that of the first
choice; a study to a loss also has what each choice took until then. Few repeats have no 95 % interval: the smallest and largest
value of two repeats is given, and is called so.
"""
import csv
import io
import statistics

from lib.files import write_json, write_text
from lib.judgement import ratio_of_medians
from lib.program import INVALID, measured
from study.folder import CHOOSING, USABLE, different_keys, values_of, why_no_rate

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
    own = [rank["median_own_seconds"] for rank in result["ranks"] if not rank.get("serves")]
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


def pipeline_columns(result):
    """Idle shares of the stages; None unless bench.pipeline measured them."""
    pipeline = result.get("pipeline") or {}
    return {"pipeline_idle_share": pipeline.get("idle_share"),
            "pipeline_simulated_idle_share": pipeline.get("simulated_idle_share")}


def to_loss_columns(result):
    """What the run took until its held-out loss was data.stop_loss; None if it never was."""
    return {f"{what}_to_stop_loss": result["metrics"].get(f"{what}_to_stop_loss") for what in ("steps", "tokens", "seconds", "flops")}


def row_of(point, result):
    """One run as a flat row: plain values and None."""
    row = {"name": point["name"], "cell": point["cell"], "choice": point.get("choice"), "ranks": point["ranks"],
           "nodes": point["nodes"], "repeat": point["repeat"], "status": result["status"] if result else "MISSING"}
    if not result:
        return row
    name, where = (None, None) if why_no_rate(result) else USABLE[result["status"]]
    rate = result[where] if where else None
    stats = result["stats"]["step_seconds"]
    row |= {"class": class_of(result), "rate_name": name, "rate": rate["value"] if rate else None,
            "rate_ci95_of_steps_low": rate["ci95"][0] if rate else None,
            "rate_ci95_of_steps_high": rate["ci95"][1] if rate else None,
            "step_seconds_median": stats["median"] if rate else None, **phase_columns(result)}
    if rate:  # workers that do not wait for each other make no step together: a mean is all there is
        row["step_seconds_of_speed"] = result["samples"]["tokens"][0] / rate["value"] if result.get("servers") else stats["median"]
    for side in ("predicted", "counted"):
        work = result[side]
        row |= {f"{side}_memory_bytes": work["memory_bytes"]["total"], f"{side}_sent_bytes": work["sent_bytes"],
                f"{side}_messages": work["messages"], f"{side}_flops": work["flops"]}
    tokens = result["samples"]["tokens"]
    return row | {"tokens_per_step": tokens[0] if tokens else None, "model_parameters": result["metrics"].get("model_parameters"),
                  **slowest_rank(result), **pipeline_columns(result), **energy_columns(result), **to_loss_columns(result),
                  "wall_seconds": result["wall_seconds"], "deck_hash": result["deck"]["hash"],
                  "version": f"{result['code']['version']} git {result['code']['git']}",
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


def broken_invariant(kind, limit, results):
    """What should be the same in all runs and is not; \\p results: by name."""
    found, tokens, parameters = [], {}, {}
    for name, result in results.items():
        ranks = sum(not rank.get("serves") for rank in result["ranks"])
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
    within = {"weak-model": limit, "sweep": 0}.get(kind)
    if within is not None and parameters:
        if not all(parameters.values()):
            return [*found, "a result does not say how many parameters its model has"]
        low, high = min(parameters.values()), max(parameters.values())
        if high > low * (1 + within) / (1 - within):  # each within the limit of one target
            found.append(f"parameters per rank differ{' by more than the limit' if within else ''}: "
                         + ", ".join(f"{name} {count:.6g}" for name, count in parameters.items()))
    return found


def wrong_keys(study, results):
    """Keys in which runs differ from the first one, though the study does not vary them (repeats may differ in none), and those
    that are not as planned; \\p results: by name."""
    found, points, first = [], {point["name"]: point for point in study.points}, next(iter(results), None)
    for name, result in results.items():
        may = set() if points[name]["cell"] == points[first]["cell"] else set(study.plan["varied"])
        for where, other, allowed in ((f"in {first}", results[first], may), ("planned", study.planned(points[name]), set())):
            found += [f"{name}: {key} = {values_of(result).get(key)}, {where} {values_of(other).get(key)}"
                      for key in different_keys(other, result) if key not in allowed]
    return found


def violations_of(study, results):
    """All that makes these results no study; \\p results: usable ones, by name."""
    found = []
    for point in study.points:
        if (result := results.get(point["name"])) is None:
            continue
        if result["topology"]["ranks"] != point["ranks"]:
            found.append(f"{point['name']}: ran on {result['topology']['ranks']} ranks, must be {point['ranks']}")
        found += wrong_counts(point["name"], result)
    return found + wrong_keys(study, results) + broken_invariant(study.kind, study.plan["limit"], results)


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


def idle_shares(rows):
    """Medians over repeats of what pipeline_columns() has; None if a run has none."""
    shares = {column: [row[column] for row in rows] for column in ("pipeline_idle_share", "pipeline_simulated_idle_share")}
    return {column: None if None in values else statistics.median(values) for column, values in shares.items()}


def costs_to_loss(rows):
    """Medians over repeats, and how many of them reached the loss; None if none has."""
    reached = [row for row in rows if row["flops_to_stop_loss"] is not None]
    costs = {column: statistics.median(row[column] for row in reached) if reached else None
             for column in rows[0] if column.endswith("_to_stop_loss")}
    return {"model_parameters": rows[0]["model_parameters"], "reached": len(reached), **costs}


def summary_of(study, rows):
    """One entry per cell: medians over repeats, and what it is of the first one, with the spread over repeats."""
    figure, work = ("speed", "tokens_per_step") if study.kind in CHOOSING else ("efficiency", "counted_flops")
    runs = {cell: [row for row in rows if row["cell"] == cell and row.get("rate") is not None] for cell in study.cells}
    speeds = {cell: [row[work] / row["step_seconds_of_speed"] for row in some] for cell, some in runs.items() if some}
    summary, base = [], next(iter(speeds), None)
    for cell in speeds:
        point, some = study.cells[cell], runs[cell]
        low, high, kind = (None, None, None) if cell == base else ratio_of_medians(speeds[cell], speeds[base], cell)
        middle = {key: statistics.median(row[key] for row in some)
                  for key in ("step_seconds_median", "rate", "counted_flops", "counted_messages", "counted_sent_bytes")}
        summary.append({"cell": cell, "choice": point.get("choice"), "ranks": point["ranks"], "runs": len(some),
                        "rate_names": sorted({row["rate_name"] for row in some}), **middle,
                        figure: statistics.median(speeds[cell]) / statistics.median(speeds[base]),
                        f"{figure}_low": low, f"{figure}_high": high, f"{figure}_interval": kind,
                        "largest_memory_bytes": study.planned(point)["predicted"]["memory_bytes"]["total"],
                        **idle_shares(some), **(costs_to_loss(some) if study.kind == "to-loss" else {})})
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
    return {"schema_version": 1, "kind": study.kind, "invariant": study.study["invariant"],
            "violations": violations, "mixes": mixes_of(rows) + other_nodes(study, usable),
            "without_rate": [f"{name} {reason if found[name] else 'MISSING'}" for name, reason in reasons.items() if reason],
            "points": [] if violations else summary_of(study, rows), "rows": rows}


def with_spread(point, figure):
    """0.605 [0.581 0.854] min..max"""
    text = f"{point[figure]:.3f}"
    if kind := point[f"{figure}_interval"]:
        text += f" [{point[f'{figure}_low']:.3f} {point[f'{figure}_high']:.3f}] {kind}"
    return text


def print_ranks(points):
    print(f"{'ranks':>6} {'runs':>4} {'step ms':>9} {'tokens/s':>10}  {'efficiency':<29} rate")
    for point in points:
        print(f"{point['ranks']:>6} {point['runs']:>4} {1e3 * point['step_seconds_median']:>9.2f} {point['rate']:>10.4g}  "
              f"{with_spread(point, 'efficiency'):<29} {', '.join(point['rate_names'])}")


def print_choices(points):
    """With the idle shares of pipelines if all runs have them."""
    shares = {"idle": "pipeline_idle_share", "simulated": "pipeline_simulated_idle_share"}
    if any(point[key] is None for point in points for key in shares.values()):
        shares = {}
    print(f"{'runs':>4} {'step ms':>9} {'tokens/s':>10}  {'speed':<29} {'MiB per rank':>12}"
          f"{''.join(f' {name:>9}' for name in shares)}  {'rate':<16}  choice")
    for point in points:
        idle = "".join(f" {point[key]:>9.4f}" for key in shares.values())
        print(f"{point['runs']:>4} {1e3 * point['step_seconds_median']:>9.2f} {point['rate']:>10.4g}  "
              f"{with_spread(point, 'speed'):<29} {point['largest_memory_bytes'] / 2**20:>12.1f}{idle}  "
              f"{', '.join(point['rate_names']):<16}  {point['choice']}")


def print_to_loss(points):
    """What each choice took until it had the loss, the fewest operations marked."""
    least = min((point["flops_to_stop_loss"] for point in points if point["reached"]), default=None)
    print(f"{'runs':>4} {'reached':>7} {'parameters':>12} {'steps':>7} {'tokens':>10} {'seconds':>9} {'FLOP':>10}   choice")
    for point in points:
        costs = f"{'-':>7} {'-':>10} {'-':>9} {'-':>10}  "
        if point["reached"]:
            costs = (f"{point['steps_to_stop_loss']:>7.0f} {point['tokens_to_stop_loss']:>10.0f} "
                     f"{point['seconds_to_stop_loss']:>9.3f} {point['flops_to_stop_loss']:>10.4g}"
                     f"{' *' if point['flops_to_stop_loss'] == least else '  '}")
        print(f"{point['runs']:>4} {point['reached']:>7} {point['model_parameters']:>12.0f} {costs} {point['choice']}")


def print_summary(collected):
    print(f"{collected['kind']} study: {collected['invariant']}")
    print_points = {"sweep": print_choices, "to-loss": print_to_loss}.get(collected["kind"], print_ranks)
    print_points(collected["points"])
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
