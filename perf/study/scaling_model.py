"""perf/study/model: how the time of a step grows with ranks, fitted to the results and tried where it was not fitted.

    t(N) = gamma FLOPs(N) + alpha messages(N) + beta bytes(N)

with what the busiest rank does in a step, as it is what a step waits for: gamma is in seconds per FLOP, alpha in seconds per
message and beta in seconds per byte. These counts are the plan's, as results have those of rank 0 alone. Every run proves that
it counts what its own program predicts, on all ranks; so nothing is fitted unless all runs have the plan's keys, program and
number of nodes, and nothing predicted by another program. Not seen is what changed since the commit of a dirty build, and
another spread of the ranks over as many nodes. It is the alpha-beta model of a message (R. W. Hockney, The communication
challenge for MPP, Parallel Computing 20, 1994), with collectives as sums of messages (R. Thakur, R. Rabenseifner, W. Gropp,
Optimization of collective communication operations in MPICH, IJHPCA 19, 2005). It has no term for what neither shrinks nor
communicates, as the update of replicated parameters, and no overlap: alpha and beta are those of time that is not hidden.

Least squares of relative residuals of the median of each number of ranks, coefficients not negative. The largest number of
ranks is held out: a fit to all others predicts it, and a residual beyond 15 % is flagged, of any point. Predictions come
from the fit to all points. As many terms as there are numbers of ranks besides the one held out, without alpha where there
are two; with fewer there is nothing to test, and it says so.
"""
import itertools

from lib.files import write_json
from lib.program import INVALID, Program, Refused, program_of
from study.collection import collect
from study.folder import CHOOSING, why_no_rate
from study.planning import estimate_for, overrides_for

FLAGGED = 0.15
TERMS = {"gamma_seconds_per_flop": "flops", "beta_seconds_per_byte": "sent_bytes",
         "alpha_seconds_per_message": "messages"}


def solve(matrix, right):
    """x of matrix x = right by elimination with pivots; None if it is singular to the last digits."""
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for column in range(len(rows)):
        pivot = max(range(column, len(rows)), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) < 1e-12:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for i, row in enumerate(rows):
            if i != column:
                factor = row[column] / rows[column][column]
                rows[i] = [a - factor * b for a, b in zip(row, rows[column])]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def non_negative_fit(columns, times):
    """Coefficients >= 0 with the least sum of squares of relative residuals: the best of all choices of terms, of which there
    are few. `columns`: one list per term, one element per point."""
    scaled = [[value / time for value, time in zip(column, times)] for column in columns]
    sizes = [max(column) or 1.0 for column in scaled]
    scaled = [[value / size for value in column] for column, size in zip(scaled, sizes)]
    best, least = [0.0] * len(columns), float(len(times))  # nothing: every residual is 1
    for count in range(1, len(columns) + 1):
        for chosen in itertools.combinations(range(len(columns)), count):
            normal = [[sum(a * b for a, b in zip(scaled[i], scaled[j])) for j in chosen] for i in chosen]
            found = solve(normal, [sum(scaled[i]) for i in chosen])
            if found is None or min(found) < 0:
                continue
            sums = [sum(x * scaled[i][k] for x, i in zip(found, chosen)) for k in range(len(times))]
            residual = sum((one - 1) ** 2 for one in sums)
            if residual < least * (1 - 1e-9):
                least, best = residual, [0.0] * len(columns)
                for x, i in zip(found, chosen):
                    best[i] = x / sizes[i]
    return best


def seconds_of(parameters, work):
    return sum(value * work[TERMS[name]] for name, value in parameters.items())


def fit(points, names):
    """Parameters by name."""
    columns = [[point[TERMS[name]] for point in points] for name in names]
    return dict(zip(names, non_negative_fit(columns, [point["step_seconds_median"] for point in points])))


def with_work(study, points):
    """Points of collected.json with what the busiest rank does there: rank 0, whose counts results have, may do less."""
    return [{**point, **study.planned(point)["predicted"]} for point in points]


def why_not_planned(study):
    """Why the plan's counts are not those of all runs with a rate; empty if they are. Keys are proved before, by collect."""
    for point in study.points:
        result, planned = study.result(point), study.planned(point)
        if why_no_rate(result):
            continue
        if result["code"] != planned["code"]:
            return (f"{point['name']} ran {program_of(result)}, planned was {program_of(planned)}; plan again with the program "
                    "that ran")
        nodes, expected = result["topology"]["nodes"], planned["topology"]["nodes"]
        if nodes != expected:
            return f"{point['name']} ran on {nodes} nodes, planned were {expected}; plan again with --ranks-per-node"
    return ""


def not_fitted(reason):
    return {"form": f"not fitted: {reason}", "parameters": {}, "points": [], "predictions": []}


def fitted_model(points):
    """The model, without predictions. \\param points  with_work: one per number of ranks, ascending"""
    if len(points) < 3:
        return not_fitted(f"{len(points)} numbers of ranks with a rate; two are needed for computation and bytes, and a third "
                          "one to test them")
    names = list(TERMS)[:2 if len(points) == 3 else 3]
    form = "t = " + " + ".join(f"{name.split('_', maxsplit=1)[0]} {column.replace('sent_', '')}"
                               for name, column in TERMS.items() if name in names)
    held_out, rows = fit(points[:-1], names), []
    for point in points:
        time, fitted = point["step_seconds_median"], seconds_of(held_out, point)
        residual = fitted / time - 1
        rows.append({"ranks": point["ranks"], "measured_seconds": time, "fitted_seconds": fitted, "residual": residual,
                     "flagged": abs(residual) > FLAGGED})
    return {"form": form, "parameters": fit(points, names), "points": rows, "predictions": [],
            "held_out": {"ranks": points[-1]["ranks"], "parameters": held_out}}


def predictions(study, parameters, ranks, program):
    """Seconds of a step on numbers of ranks that were not measured, from what the planned program says that they send."""
    found, planned = [], next(iter(study.plan["estimates"].values()))
    for one in ranks:
        estimate = estimate_for(study.plan, program, one, overrides_for(study.kind, study.plan, one))
        if estimate["code"] != planned["code"]:
            raise Refused(f"--program is {program_of(estimate)}, planned was {program_of(planned)}: --predict needs that one")
        found.append({"ranks": one, "seconds": seconds_of(parameters, estimate["predicted"])})
    return found


def print_model(model):
    print(model["form"])
    for name, value in model["parameters"].items():
        print(f"  {name} {value:.4g}")
    if model["points"]:
        print(f"{'ranks':>6} {'measured ms':>12} {'fitted ms':>10} {'residual':>9}")
    for point in model["points"]:
        held = "  held out" if point["ranks"] == model["held_out"]["ranks"] else ""
        flag = f"  FLAGGED: more than {100 * FLAGGED:.0f} %" if point["flagged"] else ""
        print(f"{point['ranks']:>6} {1e3 * point['measured_seconds']:>12.2f} {1e3 * point['fitted_seconds']:>10.2f} "
              f"{100 * point['residual']:>+8.1f} %{held}{flag}")
    for point in model["predictions"]:
        print(f"{point['ranks']:>6} {'-':>12} {1e3 * point['seconds']:>10.2f}  predicted")


def model_study(study, arguments):
    """Writes model.json. Exit code: 0, 65 if the results are no study. Raises Refused for a sweep."""
    if study.kind in CHOOSING:
        raise Refused(f"{study.folder}: a {study.kind} study has one number of ranks: a model is fitted to the studies that vary it")
    collected = collect(study)
    if collected["violations"]:
        print("\n".join(f"VIOLATION: {line}" for line in collected["violations"]))
        return INVALID
    reason = why_not_planned(study)
    model = not_fitted(reason) if reason else fitted_model(with_work(study, collected["points"]))
    if model["parameters"] and arguments.predict:
        model["predictions"] = predictions(study, model["parameters"], arguments.predict, Program(arguments.program))
    write_json(study.folder / "model.json", model)
    print_model(model)
    return 0
