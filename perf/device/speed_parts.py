"""Parts of a device report that measure: generators of tables, each by programs that a Runner starts."""
import json
import pathlib
import shlex
import statistics
import sys
import tempfile

import roofline
from decks import BF16, DECK, models
from lib.program import set_options
from part_runner import FAILED, NOT_POSSIBLE, PASSED, ROOT, Table, gpus, refused, worst

DOES_NOT_FIT = 69
RECOMPUTE = ("none", "selective", "full")  # the first one that fits
ROOM = 4e9  # bytes of a device that programs take besides what is planned: contexts, libraries, workspaces
THEIR_BYTES = 12  # per parameter, that PyTorch keeps while ours runs: fp32 weights and moments
SHAPES = ("16x1024x12x64", "16x1024x12x128", "64x1024x12x64")  # batch x sequence x heads x channels of a head
QUICK_SHAPES = ("2x64x3x64",)
BUFFERS = ("shared", "private", "staged", "device")  # of commbench


def device():
    """Where PyTorch computes."""
    return "cuda" if gpus() else "cpu"


def fitting(runner, keys, others=0):
    """Keys with as much recomputation as a device of this machine needs. \\param others  bytes that are taken"""
    total = next((float(device["memory.total"].split()[0]) * 2**20 for device in gpus()), None)
    for again in RECOMPUTE if total else RECOMPUTE[:1]:
        found = [*keys, f"memory.recompute={again}"]
        if total is None:
            break
        ended = runner.estimate(DECK, [*found, *BF16], "--device-mem", f"{int(total - ROOM - others)}")
        if ended.code != DOES_NOT_FIT:
            break
    return found


def steps_of(runner, count):
    return ["data.steps=4", "bench.warmup_steps=2"] if runner.quick else [f"data.steps={count + 3}", "bench.warmup_steps=3"]


def kernels(runner):
    """Steps of models, and every kernel of a step beside its bound. A step with timed kernels waits after each, so its own time
    comes from another run."""
    rows = []
    for name, keys in models(runner).items():
        keys = [*fitting(runner, keys), *BF16, *steps_of(runner, 10)]
        ended, result = runner.train(DECK, keys)
        rows.append({"model": name, "outcome": ended.outcome, "reason": ended.reason, **step_row(result)})
        ended, timed = runner.train(DECK, [*keys, "bench.kernels=true"])
        peaks = timed.get("peaks", {})
        found = [*roofline.kernel_rows(timed.get("kernels", []), peaks.get("gemm_flops_per_second"),
                                       peaks.get("bandwidth_bytes_per_second"))]
        yield Table(f"kernels of {name}", found, ended.outcome,
                    f"{roofline.summary(found)} {peaks_text(peaks)}" if timed else ended.reason)
    yield Table("models", rows, worst(row["outcome"] for row in rows))


def peaks_text(peaks):
    gemm, copy = (peaks.get(key) for key in ("gemm_flops_per_second", "bandwidth_bytes_per_second"))
    return f"Peaks of this run: {1e-12 * gemm:.4g} TFLOP/s, {1e-9 * copy:.4g} GB/s." if gemm and copy else ""


def step_row(result):
    if not result:
        return {}
    tokens, seconds = result["samples"]["tokens"][-1], result["metrics"]["step_seconds_median"]
    return {"status": result["status"], "attention": result["providers"]["attention"],
            "gemm": ", ".join(result["providers"]["gemm"]), "recompute": result["params"]["memory.recompute"]["value"],
            "tokens per step": tokens, "step, ms": 1e3 * seconds, "tokens/s": tokens / seconds,
            "executed TFLOP/s": 1e-12 * result["metrics"]["executed_flops_per_second"],
            "kernels per step": result["counted"]["kernel_launches"]}


def peers(runner):
    """Steps in turns with those of other programs, T O O T and O T T O."""
    arguments = runner.arguments
    programs = {"llm.c": (["perf/compare/llmc", "gpt2-124m"], "--llmc", arguments.llmc, "--llmc PATH/train_gpt2cu", 0),
                "PyTorch compiled": (["perf/compare/pytorch", "gpt2-124m", "--precision", "bf16", "--modes", "compiled"],
                                     "--python", arguments.torch_python, "--torch-python PYTHON", THEIR_BYTES)}
    left = len(models(runner)) * sum(1 for _, _, value, _, _ in programs.values() if value)
    for name, keys in models(runner).items():
        rows = []
        for theirs, (command, option, value, missing, kept) in programs.items():
            row = {"theirs": theirs, "outcome": NOT_POSSIBLE, "reason": f"{missing} is not given"}
            if value:
                fit = fitting(runner, keys, kept * parameters_of(runner, keys) if kept else 0)
                row.update(comparison(runner, [*command, option, value], fit, runner.left() / left))
                left -= 1
            rows.append(row)
        yield Table(f"peers of {name}", rows, worst(row["outcome"] for row in rows), "A ratio is their time by ours.")


def parameters_of(runner, keys):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "estimate.json"
        runner.estimate(DECK, keys, "--json", path)
        return json.loads(path.read_text())["model_parameters"] if path.exists() else 0


def comparison(runner, command, keys, seconds):
    """A row of one that perf/compare makes in so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        ended = runner.run([sys.executable, *command, "--device", device(), "--program", shlex.join(runner.program()),
                            "--pairs", "2", "--steps", "10", "--turn-seconds", "2", "--seconds", int(max(1, seconds / 4)),
                            "--json", path, *set_options(keys)], limit=seconds)
        found = json.loads(path.read_text()) if path.exists() else {"rows": []}
    row = {"outcome": NOT_POSSIBLE if ended.code == 77 else ended.outcome, "reason": ended.reason}
    for one in found["rows"]:
        tokens = tokens_of(keys)
        row.update({"by": found["theirs"], "turns": one["turns"], "theirs, ms": one["their_ms"], "ours, ms": one["our_ms"],
                    "ratio": one["ratio"], "their tokens/s": 1e3 * tokens / one["their_ms"],
                    "our tokens/s": 1e3 * tokens / one["our_ms"],
                    "recompute": next((key.partition("=")[2] for key in keys if key.startswith("memory.recompute")), "")})
    return row


def tokens_of(keys):
    of = dict(key.split("=", 1) for key in keys)
    return int(of["batch.micro"]) * int(of["data.sequence"])


def attention(runner):
    """Every provider of this build, and PyTorch's, in TFLOP/s of the causal half."""
    shapes = QUICK_SHAPES if runner.quick else SHAPES
    ours, ended = our_attention(runner, shapes)
    theirs, of_theirs, note = torch_attention(runner, shapes)
    rows = []
    for shape in shapes:
        extents = [int(one) for one in shape.split("x")]
        for by, times in [*ours.get(shape, {}).items(), *theirs.get(shape, {}).items()]:
            row = {"batch x sequence x heads x size": shape, "by": by}
            for way in ("forward", "backward"):
                if seconds := times.get(way):
                    row[f"{way}, ms"] = 1e3 * seconds
                    row[f"{way}, TFLOP/s"] = 1e-12 * roofline.causal_flops(*extents, backward=way == "backward") / seconds
            rows.append({**row, "reason": times.get("reason", "")})
    yield Table("attention alone", rows, worst([ended, of_theirs]), note)


def our_attention(runner, shapes):
    """({shape: {provider: {"forward": s, "backward": s}}}, outcome)"""
    if not runner.path("perf_kernels").exists():
        return {}, NOT_POSSIBLE
    pattern = f"flash_attention_(forward|backward)/({'|'.join(shapes)})/bf16/[^p]"  # not the plain form
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernels.json"
        ended = runner.run([*runner.program("perf_kernels"), f"--benchmark_filter={pattern}", "--benchmark_repetitions=3",
                            "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.05s",
                            f"--benchmark_out={path}", "--benchmark_out_format=json"])
        found = benchmarks_in(path) # also where one provider is wrong
    return times_of(found), FAILED if ended.outcome == PASSED and not found else ended.outcome


def benchmarks_in(path):
    try:
        return json.loads(path.read_text())["benchmarks"]
    except (OSError, json.JSONDecodeError): # the program was ended before
        return []


def times_of(benchmarks):
    """\\param benchmarks  of Google Benchmark's file, without its own means"""
    samples = {}
    for one in benchmarks:
        if one["run_type"] == "iteration" and not one.get("error_occurred"):
            kernel, shape, _, by = one["name"].split("/")[:4]
            way = kernel.rpartition("_")[2]
            by = "flash" if by == "ours" else by
            seconds = one["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[one["time_unit"]]
            samples.setdefault(shape, {}).setdefault(by, {}).setdefault(way, []).append(seconds)
    return {shape: {by: {way: statistics.median(times) for way, times in ways.items()} for by, ways in of.items()}
            for shape, of in samples.items()}


def torch_attention(runner, shapes):
    """The same of PyTorch, its outcome, and a note."""
    if not runner.arguments.torch_python:
        return {}, NOT_POSSIBLE, "Without PyTorch: --torch-python PYTHON is not given."
    ended = runner.run([*shlex.split(runner.arguments.torch_python), ROOT / "perf" / "device" / "torch_attention.py",
                        device(), *shapes])
    if ended.outcome != PASSED:
        return {}, NOT_POSSIBLE if ended.code == 77 else ended.outcome, f"PyTorch: {ended.reason or ended.outcome}"
    found, times = json.loads(ended.text.strip().splitlines()[-1]), {}
    for row in found["rows"]:
        times.setdefault(row["shape"], {})[f"{row['backend']} by PyTorch"] = row
    return times, PASSED, f"PyTorch {found['torch']}, cuDNN {found['cudnn']}, {found['device']}."


def collectives(runner):
    """All-reduce between two ranks by every kind of buffers that this build has here."""
    rows, outcomes = [], []
    sizes = ["-b", "64K", "-e", "256K", "-f", "4"] if runner.quick else ["-b", "64K", "-e", "32M", "-f", "8"]
    for buffers in BUFFERS[::3] if runner.quick else BUFFERS:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "collectives.json"
            ended = runner.run([*runner.program(), "commbench", *sizes, "--collectives", "all_reduce", "--algorithms",
                                "auto,ring,ordered,mpi", "--buffers", buffers, "--json", path], ranks=2)
            found = json.loads(path.read_text()) if path.exists() else None
        outcomes.append(NOT_POSSIBLE if refused(ended) else ended.outcome)
        if not found:
            rows.append({"buffers": buffers, "reason": ended.reason or ended.outcome})
            continue
        for row in found["rows"]:
            rows.append({"buffers": found["header"]["buffers"], "algorithm": row["algorithm"], "bytes": row["bytes"],
                         "wrong": row["wrong"], "us": row["seconds"] and 1e6 * row["seconds"]["p50"],
                         "bus GB/s": row["bus_bytes_per_second"] and 1e-9 * row["bus_bytes_per_second"]})
    yield Table("collectives", rows, worst(outcomes))


def energy(runner):
    """Of the measured steps of each model, by the meters that a run may read."""
    rows = []
    for name, keys in models(runner).items():
        ended, result = runner.train(DECK, [*fitting(runner, keys), *BF16, *steps_of(runner, 60 if "124" in name else 10)])
        rows.append({"model": name, "outcome": ended.outcome, "reason": ended.reason, **energy_row(result)})
    yield Table("energy", rows, worst(row["outcome"] for row in rows))


def energy_row(result):
    if not result:
        return {}
    if not result["energy"]:
        return {"outcome": NOT_POSSIBLE, "reason": "no meter can be read"}
    found, row = result["energy"], {}
    steps = found["tokens"] / result["samples"]["tokens"][-1]
    for what in ("host", "device"):
        joules = found[f"{what}_joules"]
        if joules is not None:
            row.update({f"{what}, J per step": joules / steps, f"{what}, mJ per token": 1e3 * joules / found["tokens"],
                        f"{what}, W": joules / found["seconds"]})
    return {**row, "seconds": found["seconds"]}
