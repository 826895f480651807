"""perf/study/plan: which runs a study has, and what each would need, before any is started.

What a deck says holds for its own number of ranks: comm.expected_ranks, else the smallest of --ranks. From there
- strong: the global batch stays.
- weak-batch: the batch of a rank stays.
- weak-model: parameters / ranks stay, as near as whole layers allow, and the global batch stays: so does the work per rank.
  Ranks are those that compute: dedicated servers do not count.
- sweep: the number of ranks and the global batch stay, and keys of the deck take several values.
- to-loss: the same of other models, too, and of one held-out loss, at which every run ends (data.stop_loss).
A cell is what the repeats of a run share: a number of ranks, or a choice of a sweep.
Writes study.json (for reports), plan.json (the estimates by cell; how further numbers of ranks are made) and decks/.
"""
import itertools
import pathlib
import tomllib
from typing import NamedTuple

from lib.files import write_json, write_text
from lib.program import DOES_NOT_FIT, USAGE, Impossible, Program, Refused
from study.choices import cell_names, combinations, keys_of, text_of
from study.folder import CHOOSING, PLAN_VERSION, STUDY_VERSION, different_keys

ALWAYS = {"comm.expected_ranks"}
VARIED = {"strong": ALWAYS | {"batch.accumulation"}, "weak-batch": ALWAYS | {"batch.global"},
          "weak-model": ALWAYS | {"batch.accumulation", "model.layers"}, **{kind: ALWAYS | {"batch.accumulation"} for kind in CHOOSING}}
KINDS = tuple(VARIED)
PROBES = 24  # numbers of ranks that are tried on either side of one that is refused


class Cell(NamedTuple):
    name: str
    ranks: int
    choice: tuple = ()  # settings KEY=VALUE of a sweep


def cells_of(arguments):
    """In the order of the study. Raises Refused if the options do not belong to the kind."""
    if arguments.kind not in CHOOSING:
        if arguments.vary:
            raise Refused(f"--vary belongs to {' and '.join(CHOOSING)}: {arguments.kind} varies the number of ranks")
        return [Cell(f"n{ranks}", ranks) for ranks in arguments.ranks]
    if not arguments.vary:
        raise Refused(f"{arguments.kind} needs --vary KEY=VALUE,VALUE,...{' or --layers' if arguments.kind == 'to-loss' else ''}")
    if len(arguments.ranks) > 1:
        raise Refused(f"{arguments.kind} takes one number in --ranks: it varies keys of the deck")
    choices, (ranks,) = combinations(arguments.vary), arguments.ranks
    return [Cell(name, ranks, choice) for name, choice in zip(cell_names(ranks, choices), choices)]


def varied_keys(kind, cells):
    """Keys that differ between cells: those of the kind, and those of the choices."""
    return sorted({*VARIED[kind], *keys_of(cell.choice for cell in cells)})


def computing(plan, ranks):
    """The ranks that compute."""
    return ranks - plan.get("servers", 0)  # older plans have none


def invariant_of(kind, plan, cells):
    if kind == "strong":
        return f"{plan['tokens_per_step']} tokens per step"
    if kind in CHOOSING:
        until = f", until a held-out loss of {plan['stop_loss']:g}" if kind == "to-loss" else ""
        return f"{plan['tokens_per_step']} tokens per step on {cells[0].ranks} rank{'s' if cells[0].ranks > 1 else ''}{until}"
    if kind == "weak-batch":
        return f"{plan['tokens_per_step'] // computing(plan, plan['own_ranks'])} tokens per rank and step"
    return (f"{plan['model_parameters'] / computing(plan, plan['own_ranks']):.6g} parameters per rank within "
            f"{100 * plan['limit']:g} %, {plan['tokens_per_step']} tokens per step")


def layers_for(plan, ranks):
    """Layers with the nearest parameters per rank. Raises Refused if that is further away than the limit."""
    computing_ranks = computing(plan, ranks)
    target = plan["model_parameters"] / computing(plan, plan["own_ranks"]) * computing_ranks
    layers = max(1, round((target - plan["parameters_besides_layers"]) / plan["parameters_per_layer"]))
    found = plan["parameters_besides_layers"] + layers * plan["parameters_per_layer"]
    deviation = found / target - 1
    if abs(deviation) > plan["limit"]:
        raise Refused(f"{layers} layers on {ranks} ranks are {found / computing_ranks:.6g} parameters per rank, {100 * deviation:+.1f} % "
                      f"from {target / computing_ranks:.6g}: more than {100 * plan['limit']:g} % (--limit)")
    return layers


def overrides_for(kind, plan, ranks, choice=()):
    """Keys of a run on so many ranks: the user's, then those that the study varies."""
    of_rank = plan["global"] // computing(plan, plan["own_ranks"])
    batch = of_rank * computing(plan, ranks) if kind == "weak-batch" else plan["global"]
    varied = [f"comm.expected_ranks={ranks}", f"batch.micro={plan['micro']}", "batch.accumulation=0", f"batch.global={batch}"]
    if kind == "weak-model":
        varied.append(f"model.layers={layers_for(plan, ranks)}")
    return [*plan["settings"], *varied, *choice]


def nodes_for(plan, ranks):
    return -(-ranks // plan["ranks_per_node"]) if plan["ranks_per_node"] else 1


def estimate_for(plan, program, ranks, overrides):
    """Of a run with these keys. Raises Refused with the program's own message."""
    options = [word for name in ("machine", "device-mem") if plan[name] for word in (f"--{name}", plan[name])]
    return program.estimate(plan["deck"], ranks, nodes_for(plan, ranks), overrides, *options)


def nearest_legal(kind, plan, program, ranks):
    """The nearest numbers of ranks below and above that the program takes."""
    found = []
    for towards in (-1, 1):
        for other in range(ranks + towards, ranks + towards * (PROBES + 1), towards):
            if computing(plan, other) < 1 or (kind != "weak-batch" and plan["global"] % (plan["micro"] * computing(plan, other)) != 0):
                continue
            try:
                estimate_for(plan, program, other, overrides_for(kind, plan, other))
            except Refused:
                continue
            found.append(other)
            break
    return found


def begin(arguments, program):
    """What the deck says on its own number of ranks."""
    settings = [*arguments.set, *([f"data.steps={arguments.steps}"] if arguments.steps else [])]
    if any("\t" in one or "\n" in one for one in settings):
        raise Refused("--set: no tabs and line breaks; they separate the keys of a job's plan")
    deck = str(pathlib.Path(arguments.deck).absolute())
    resolved = tomllib.loads(program.resolved_deck(deck, settings))
    own = resolved["comm"]["expected_ranks"] or min(arguments.ranks)
    base = program.estimate(deck, own, 1, settings)
    value = {key: entry["value"] for key, entry in base["params"].items()}
    dedicated = value["parallel.strategy"] == "parameter_server" and not value["server.colocated"]
    plan = {"schema_version": PLAN_VERSION, "deck": deck, "settings": settings, "own_ranks": own,
            "servers": value["server.count"] if dedicated else 0, "global": value["batch.global"],
            "micro": value["batch.micro"], "tokens_per_step": base["tokens_per_step"],
            "model_parameters": base["model_parameters"], "limit": arguments.limit,
            "machine": arguments.machine and str(pathlib.Path(arguments.machine).absolute()),
            "device-mem": arguments.device_mem, "ranks_per_node": arguments.ranks_per_node}
    if arguments.kind == "to-loss":
        plan["stop_loss"] = value["data.stop_loss"]
        if not plan["stop_loss"]:
            raise Refused("to-loss needs a held-out loss at which runs end: data.stop_loss above 0")
    if arguments.kind == "weak-model":
        layers = value["model.layers"]
        more = program.estimate(deck, own, 1, [*settings, f"model.layers={layers + 1}"])
        plan["parameters_per_layer"] = more["model_parameters"] - base["model_parameters"]
        plan["parameters_besides_layers"] = base["model_parameters"] - layers * plan["parameters_per_layer"]
    return plan


def node_hours(estimate, repeats):
    """None where no time was predicted, or the deck's length is in epochs."""
    steps = estimate["params"]["data.steps"]["value"]
    if estimate["compute_seconds"] is None or not steps:
        return None
    seconds = estimate["compute_seconds"] + estimate["communication_seconds"]
    return estimate["topology"]["nodes"] * seconds * steps * repeats / 3600


def table(kind, plan, planned, repeats):
    """Lines; the last ones are the sum and what is assumed. \\param planned  estimates by Cell"""
    lines = [f"{'ranks':>6} {'nodes':>6} {'batch':>7} {'parameters':>12} {'MiB per rank':>12}  {'fits':<12} {'step s':>9} "
             f"{'node-hours':>10}{'  choice' if kind in CHOOSING else ''}"]
    reference = plan["model_parameters"] / computing(plan, plan["own_ranks"])
    hours = [node_hours(one, repeats) for one in planned.values()]
    for (cell, one), time in zip(planned.items(), hours):
        fits = {None: "-", True: "FITS", False: "DOES NOT FIT"}[one["fits"]]
        step = "-" if one["compute_seconds"] is None else f"{one['compute_seconds'] + one['communication_seconds']:.4g}"
        line = (f"{cell.ranks:>6} {one['topology']['nodes']:>6} {one['params']['batch.global']['value']:>7} "
                f"{one['model_parameters']:>12} {one['needed_bytes'] / 2**20:>12.1f}  {fits:<12} {step:>9} "
                f"{'-' if time is None else f'{time:.3g}':>10}")
        if kind == "weak-model":
            layers, near = one["params"]["model.layers"]["value"], one["model_parameters"] / computing(plan, cell.ranks) / reference - 1
            line += f"  {layers} layers: {100 * near:+.2f} % parameters per rank"
        lines.append(f"{line}  {text_of(cell.choice)}".rstrip())
    total = "unknown" if None in hours else f"{sum(hours):.3g}"
    return [*lines, f"sum of {len(planned) * repeats} runs: {total} node-hours", *assumed(plan, planned.values())]


def assumed(plan, estimates):
    """What the table takes for granted because nobody said it."""
    places = [one["topology"] for one in estimates]
    if plan["ranks_per_node"] or not any(place["ranks"] > 1 and place["nodes"] == 1 for place in places):
        return []
    return ["node-hours, times and jobs are those of runs with all ranks on one node; --ranks-per-node says otherwise"]


def faults_of(plan, planned):
    """Why these choices are no study, in lines. \\param planned  estimates by Cell"""
    (first, base), *_ = planned.items()
    found, to_loss = [], "stop_loss" in plan
    for cell, one in planned.items():
        for key, unit in (("tokens_per_step", "tokens per step"), ("model_parameters", "parameters"))[:1 if to_loss else 2]:
            if one[key] != plan[key]:
                found.append(f"{text_of(cell.choice)}: {one[key]} {unit}, the deck has {plan[key]}: "
                             f"a {'to-loss study' if to_loss else 'sweep'} keeps them")
        if to_loss and (loss := one["params"]["data.stop_loss"]["value"]) != plan["stop_loss"]:
            found.append(f"{text_of(cell.choice)}: ends at a loss of {loss:g}, the deck at {plan['stop_loss']:g}")
        if others := [key for key in different_keys(base, one) if key not in plan["varied"]]:
            found.append(f"{text_of(cell.choice)}: also differs from {text_of(first.choice)} in {', '.join(others)}")
    return found + [f"{text_of(one.choice)} and {text_of(other.choice)} are the same run"
                    for one, other in itertools.combinations(planned, 2) if not different_keys(planned[one], planned[other])]


def points_of(kind, plan, planned, repeats):
    """Of study.json: repeat by repeat. \\param planned  estimates by Cell"""
    points = []
    for repeat, (cell, one) in itertools.product(range(1, repeats + 1), planned.items()):
        compute = one["compute_seconds"]
        step = None if compute is None else compute + one["communication_seconds"]
        points.append({"name": f"{cell.name}-r{repeat}", "cell": cell.name,
                       **({"choice": text_of(cell.choice)} if cell.choice else {}),
                       "ranks": cell.ranks, "nodes": one["topology"]["nodes"], "repeat": repeat,
                       "overrides": overrides_for(kind, plan, cell.ranks, cell.choice),
                       "predicted": {"step_seconds": step, "memory_bytes": one["predicted"]["memory_bytes"]["total"]}})
    return points


def write(arguments, plan, planned, program):
    folder, kind = pathlib.Path(arguments.out).absolute(), arguments.kind
    plan["estimates"] = {cell.name: one for cell, one in planned.items()}
    for cell in planned:
        text = program.resolved_deck(plan["deck"], overrides_for(kind, plan, cell.ranks, cell.choice))
        write_text(folder / "decks" / f"{cell.name}.toml", text)
    write_json(folder / "plan.json", plan)
    write_json(folder / "study.json", {"schema_version": STUDY_VERSION, "kind": kind, "deck": plan["deck"],
                                       "invariant": invariant_of(kind, plan, [*planned]), "limit": plan["limit"],
                                       "points": points_of(kind, plan, planned, arguments.repeats)})


def say_refused(kind, plan, program, cell, reason):
    """Choices that the program does not take are left out; any other failure is raised again."""
    if kind in CHOOSING:
        if not isinstance(reason, Impossible):
            raise reason
        print(f"left out: {text_of(cell.choice)}: {reason}")
        return
    legal = nearest_legal(kind, plan, program, cell.ranks)
    print(f"{cell.ranks} ranks: REFUSED: {reason}\n  nearest numbers of ranks that are possible: "
          f"{', '.join(map(str, legal)) or 'none near'}")


def why_not_written(kind, plan, cells, planned):
    """Exit code and reason; 0 and none if all is well."""
    if not planned or (kind not in CHOOSING and len(planned) < len(cells)):
        return USAGE, "no choice is possible" if kind in CHOOSING else "a point is impossible"
    if kind in CHOOSING and (faults := faults_of(plan, planned)):
        return USAGE, "\n  ".join([f"this is no {'sweep' if kind == 'sweep' else 'to-loss study'}", *faults])
    if any(one["fits"] is False for one in planned.values()):
        return DOES_NOT_FIT, "a point does not fit"
    return 0, ""


def plan_study(arguments):
    """Exit code: 0, 64 if a point is impossible (of a sweep: all are), 69 if one does not fit; then nothing is written."""
    kind, cells, program, planned = arguments.kind, cells_of(arguments), Program(arguments.program), {}
    plan = begin(arguments, program)
    for cell in cells:
        try:
            overrides = overrides_for(kind, plan, cell.ranks, cell.choice)
            planned[cell] = estimate_for(plan, program, cell.ranks, overrides)
        except Refused as reason:
            say_refused(kind, plan, program, cell, reason)
    plan["varied"] = varied_keys(kind, planned)
    print(f"{kind} study of {arguments.deck}: {invariant_of(kind, plan, cells)}")
    if planned:
        print("\n".join(table(kind, plan, planned, arguments.repeats)))
    code, reason = why_not_written(kind, plan, cells, planned)
    if code:
        print(f"nothing was written: {reason}")
        return code
    write(arguments, plan, planned, program)
    print(f"planned: {arguments.out}/study.json")
    return 0
