"""perf/study/plan: which runs a study has, and what each would need, before any is started.

What a deck says holds for its own number of ranks: comm.expected_ranks, else the smallest of --ranks. From there
- strong: the global batch stays.
- weak-batch: the batch of a rank stays.
- weak-model: parameters / ranks stay, as near as whole layers allow, and the global batch stays: so does the work per rank.
Writes study.json (for reports), plan.json (the estimates; how further numbers of ranks are made) and decks/.
"""
import pathlib
import tomllib

from lib.files import write_json, write_text
from lib.program import DOES_NOT_FIT, USAGE, Program, Refused

KINDS = ("strong", "weak-batch", "weak-model")
PROBES = 24  # numbers of ranks that are tried on either side of one that is refused


def invariant_of(kind, plan):
    if kind == "strong":
        return f"{plan['tokens_per_step']} tokens per step"
    if kind == "weak-batch":
        return f"{plan['tokens_per_step'] // plan['own_ranks']} tokens per rank and step"
    return (f"{plan['model_parameters'] / plan['own_ranks']:.6g} parameters per rank within {100 * plan['limit']:g} %, "
            f"{plan['tokens_per_step']} tokens per step")


def layers_for(plan, ranks):
    """Layers with the nearest parameters per rank. Raises Refused if that is further away than the limit."""
    target = plan["model_parameters"] / plan["own_ranks"] * ranks
    layers = max(1, round((target - plan["parameters_besides_layers"]) / plan["parameters_per_layer"]))
    found = plan["parameters_besides_layers"] + layers * plan["parameters_per_layer"]
    deviation = found / target - 1
    if abs(deviation) > plan["limit"]:
        raise Refused(f"{layers} layers on {ranks} ranks are {found / ranks:.6g} parameters per rank, {100 * deviation:+.1f} % "
                      f"from {target / ranks:.6g}: more than {100 * plan['limit']:g} % (--limit)")
    return layers


def overrides_for(kind, plan, ranks):
    """Keys of a run on so many ranks: the user's, then those that the study varies."""
    batch = plan["global"] // plan["own_ranks"] * ranks if kind == "weak-batch" else plan["global"]
    varied = [f"comm.expected_ranks={ranks}", f"batch.micro={plan['micro']}", "batch.accumulation=0", f"batch.global={batch}"]
    if kind == "weak-model":
        varied.append(f"model.layers={layers_for(plan, ranks)}")
    return [*plan["settings"], *varied]


def nodes_for(plan, ranks):
    return -(-ranks // plan["ranks_per_node"]) if plan["ranks_per_node"] else 1


def estimate_for(kind, plan, program, ranks):
    options = [word for name in ("machine", "device-mem") if plan[name] for word in (f"--{name}", plan[name])]
    return program.estimate(plan["deck"], ranks, nodes_for(plan, ranks), overrides_for(kind, plan, ranks), *options)


def nearest_legal(kind, plan, program, ranks):
    """The nearest numbers of ranks below and above that the program takes."""
    found = []
    for towards in (-1, 1):
        for other in range(ranks + towards, ranks + towards * (PROBES + 1), towards):
            if other < 1 or (kind != "weak-batch" and plan["global"] % (plan["micro"] * other) != 0):
                continue
            try:
                estimate_for(kind, plan, program, other)
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
    plan = {"schema_version": 1, "deck": deck, "settings": settings, "own_ranks": own, "global": value["batch.global"],
            "micro": value["batch.micro"], "tokens_per_step": base["tokens_per_step"],
            "model_parameters": base["model_parameters"], "limit": arguments.limit,
            "machine": arguments.machine and str(pathlib.Path(arguments.machine).absolute()),
            "device-mem": arguments.device_mem, "ranks_per_node": arguments.ranks_per_node}
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


def table(kind, plan, estimates, repeats):
    """Lines; the last one is the sum."""
    lines = [f"{'ranks':>6} {'nodes':>6} {'batch':>7} {'parameters':>12} {'MiB per rank':>12}  {'fits':<12} {'step s':>9} "
             f"{'node-hours':>10}"]
    reference = plan["model_parameters"] / plan["own_ranks"]
    hours = [node_hours(one, repeats) for one in estimates]
    for one, time in zip(estimates, hours):
        ranks = one["topology"]["ranks"]
        fits = {None: "-", True: "FITS", False: "DOES NOT FIT"}[one["fits"]]
        step = "-" if one["compute_seconds"] is None else f"{one['compute_seconds'] + one['communication_seconds']:.4g}"
        line = (f"{ranks:>6} {one['topology']['nodes']:>6} {one['params']['batch.global']['value']:>7} "
                f"{one['model_parameters']:>12} {one['needed_bytes'] / 2**20:>12.1f}  {fits:<12} {step:>9} "
                f"{'-' if time is None else f'{time:.3g}':>10}")
        if kind == "weak-model":
            layers, near = one["params"]["model.layers"]["value"], one["model_parameters"] / ranks / reference - 1
            line += f"  {layers} layers: {100 * near:+.2f} % parameters per rank"
        lines.append(line)
    total = "unknown" if None in hours else f"{sum(hours):.3g}"
    return [*lines, f"sum of {len(estimates) * repeats} runs: {total} node-hours", *assumed(plan, estimates)]


def assumed(plan, estimates):
    """What the table takes for granted because nobody said it."""
    places = [one["topology"] for one in estimates]
    if plan["ranks_per_node"] or not any(place["ranks"] > 1 and place["nodes"] == 1 for place in places):
        return []
    return ["node-hours, times and jobs are those of runs with all ranks on one node; --ranks-per-node says otherwise"]


def write(arguments, plan, estimates, program):
    folder = pathlib.Path(arguments.out).absolute()
    points = []
    for repeat in range(1, arguments.repeats + 1):
        for one in estimates:
            ranks, compute = one["topology"]["ranks"], one["compute_seconds"]
            step = None if compute is None else compute + one["communication_seconds"]
            points.append({"name": f"n{ranks}-r{repeat}", "ranks": ranks, "nodes": one["topology"]["nodes"], "repeat": repeat,
                           "overrides": overrides_for(arguments.kind, plan, ranks),
                           "predicted": {"step_seconds": step, "memory_bytes": one["predicted"]["memory_bytes"]["total"]}})
    plan["estimates"] = {str(one["topology"]["ranks"]): one for one in estimates}
    for ranks in arguments.ranks:
        text = program.resolved_deck(plan["deck"], overrides_for(arguments.kind, plan, ranks))
        write_text(folder / "decks" / f"n{ranks}.toml", text)
    write_json(folder / "plan.json", plan)
    write_json(folder / "study.json", {"schema_version": 1, "kind": arguments.kind, "deck": plan["deck"],
                                       "invariant": invariant_of(arguments.kind, plan), "limit": plan["limit"],
                                       "points": points})


def plan_study(arguments):
    """Exit code: 0, 64 if a point is impossible, 69 if one does not fit; then nothing is written."""
    program = Program(arguments.program)
    kind, plan, estimates, refused = arguments.kind, begin(arguments, program), [], 0
    for ranks in arguments.ranks:
        try:
            estimates.append(estimate_for(kind, plan, program, ranks))
        except Refused as reason:
            refused += 1
            legal = nearest_legal(kind, plan, program, ranks)
            print(f"{ranks} ranks: REFUSED: {reason}\n  nearest numbers of ranks that are possible: "
                  f"{', '.join(map(str, legal)) or 'none near'}")
    print(f"{kind} study of {arguments.deck}: {invariant_of(kind, plan)}")
    print("\n".join(table(kind, plan, estimates, arguments.repeats)))
    if refused:
        print("nothing was written: a point is impossible")
        return USAGE
    if any(one["fits"] is False for one in estimates):
        print("nothing was written: a point does not fit")
        return DOES_NOT_FIT
    write(arguments, plan, estimates, program)
    print(f"planned: {arguments.out}/study.json")
    return 0
