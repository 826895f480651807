"""Parts of a device report that check: generators of tables, each by programs that a Runner starts."""
import filecmp
import json
import pathlib
import re
import tempfile

from decks import BF16, DECK, QUICKSTART, attention_keys, of_layers, one_model
from lib.program import set_options
from part_runner import FAILED, NOT_POSSIBLE, OUT_OF_TIME, PASSED, ROOT, Table, last_line, refused, worst

# What changes most comes first, by itself; then all of a program.
NEWEST = ("attention by every provider*", "[tensor_cores]", "[wgmma]", "lanes that hold a row*", "a row lies in chunks*")
TESTS = (("kernels", 1, ",".join(NEWEST)), ("kernels", 1, ""), ("model", 1, ""), ("mpi", 2, "[trainer],[reference],[execution]"),
         ("train", 1, ""), ("parallel", 1, ""), ("comm", 1, ""), ("core", 1, ""), ("report", 1, ""), ("mpi_threads", 2, ""))
QUICK_TESTS = (("kernels", 1, f"{NEWEST[0]},{NEWEST[3]}"), ("kernels", 1, "*norm*"), ("core", 1, ""))
WITH_NUMERICS = ("kernels", "model")
FIXTURES = ("gpt_even", "gpt_odd", "gpt_batch16")
MATRIX_ROW = re.compile(r"(?m)^(M +\d+, \w+) *, .* ([0-9a-f]{16}) (same|DIFFERENT)$")
MOST_DIFFERENCE = 0.01  # of the losses of bf16 from those of fp32


def tests(runner):
    """The tests, and what they wrote of their errors."""
    rows, numerics, of_numerics = [], [], []
    for name, ranks, words in QUICK_TESTS if runner.quick else TESTS:
        program = f"test_{name}"
        row = {"program": program, "tests": words or "all", "ranks": ranks}
        rows.append(row)
        if not runner.path(program).exists():
            row.update(outcome=NOT_POSSIBLE, result="it is not built")
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "numerics.json"
            wanted = {"TRAINSTONE_NUMERICS": str(path)} if name in WITH_NUMERICS and NEWEST[0] not in words else {}
            ended = runner.run([*runner.program(program), *([words] if words else [])], ranks, limit=120,
                               TRAINSTONE_TEST_DATA=str(ROOT / "tests" / "data"), **wanted)
            if wanted:
                numerics += json.loads(path.read_text()) if path.exists() else []
                of_numerics.append(ended.outcome if path.exists() or ended.outcome == OUT_OF_TIME else FAILED)
        row.update(outcome=ended.outcome, result="" if ended.outcome == OUT_OF_TIME else last_line(ended.text or ended.errors))
    yield Table("tests", rows, worst(row["outcome"] for row in rows))
    yield Table("numerics", beside_host(numerics, runner.arguments.host_report), worst(of_numerics))


def beside_host(rows, host_report):
    """Largest error of every test case that compares with a reference, and its share of the bound that was derived for it."""
    if host_report:
        tables = json.loads(pathlib.Path(host_report).read_text())["parts"]["tests"]["tables"]
        known = {row["test"]: row["largest error"] for table in tables if table["name"] == "numerics" for row in table["rows"]}
        for row in rows:
            row["largest error on the host"] = known.get(row["test"])
    return rows


def fixtures(runner):
    providers = runner.providers("kernels.gemm", DECK) or ["auto"]
    left_out = [name for name in providers if name.endswith("-tf32")]
    rows = []
    for name in FIXTURES[:1] if runner.quick else FIXTURES:
        base = f"tests/data/{name}"
        for attention in ("materialized", "flash"):
            for provider in (one for one in providers if one not in left_out):
                ended = runner.run([*runner.program(), "verify", "--reference-model", f"{base}.model.bin", "--reference-state",
                                    f"{base}.state.bin", "--reference-losses", f"{base}.losses.json",
                                    *set_options([f"model.attention={attention}", f"kernels.gemm={provider}"])], limit=60)
                buffers = re.search(r", buffers (\w+)", ended.text)
                rows.append({"fixture": name, "attention": attention, "gemm": provider, "outcome": ended.outcome,
                             "buffers": buffers and buffers[1], "rows that pass": ended.text.count(" PASS\n"),
                             "that fail": ended.text.count(" FAIL\n"), "reason": ended.reason})
    note = f"Without {', '.join(left_out)}: the bounds are those of fp32." if left_out else ""
    yield Table("fixtures", rows, worst(row["outcome"] for row in rows), note)


def matrix(runner):
    """Every recipe and number of micro-batches has one hash, whatever the strategy and the number of ranks. Providers of attention
    are those of "auto", because the matrix has recipes of 16 and of 32 bits."""
    rows = []
    for attention in ("flash",) if runner.quick else ("materialized", "flash"):
        known = {}
        for ranks in (1, 2):
            keys = set_options([f"model.attention={attention}"])
            ended = runner.run([*runner.program(), "verify", "--matrix", "--quick", *keys], ranks)
            found = MATRIX_ROW.findall(ended.text)
            other = [kind for kind, digest, _ in found if known.setdefault(kind, digest) != digest]
            outcome = FAILED if ended.outcome == PASSED and (other or not found) else ended.outcome
            rows.append({"attention": attention, "ranks": ranks, "outcome": outcome, "configurations": len(found),
                         "hashes": len({digest for _, digest, _ in found}), "other than on 1 rank": ", ".join(other),
                         "reason": ended.reason})
    yield Table("matrix", rows, worst(row["outcome"] for row in rows))


def golden(runner):
    """Decks with a recorded loss curve, by every way to compute attention. Short runs have no curve."""
    decks, short = (("inputs/small.toml", 1), (QUICKSTART, 2)), []
    if runner.quick:
        decks, short = ((QUICKSTART, 2),), ["data.steps=20", "optimizer.warmup=5", "data.validate_every=0"]
    for deck, ranks in decks:
        rows = []
        for name, keys in attention_keys(runner, deck, ranks=ranks).items():
            ended, result = runner.train(deck, [*keys, *short], ranks)
            rows.append({"attention": name, **training_row(ended, result)})
            if result and result["status"] != ("UNREFERENCED" if short else "VALID"):
                rows[-1]["outcome"] = FAILED
        name = f"{pathlib.Path(deck).stem} on {ranks} rank{'s' if ranks > 1 else ''}"
        yield Table(name, rows, worst(row["outcome"] for row in rows))


def training_row(ended, result):
    row = {"outcome": NOT_POSSIBLE if refused(ended) else ended.outcome, "status": None, "last loss": None, "reason": ended.reason}
    if result:
        row.update(status=result["status"], computed=result["providers"]["attention"], buffers=result["topology"]["buffers"],
                   precision=result["params"]["precision.recipe"]["value"])
        row.update({"last loss": result["samples"]["loss"][-1], "step, ms": milliseconds(result)})
    return row


def milliseconds(result):
    seconds = result["metrics"].get("step_seconds_median")
    return seconds and 1e3 * seconds


def same_bits(runner):
    """Two runs of each way to compute attention end with files of the same bytes."""
    steps = ["data.steps=3", "bench.warmup_steps=1", "optimizer.warmup=1"]
    model = [*of_layers(runner, 2), *steps]
    rows = []
    for name, keys in attention_keys(runner, DECK, [*model, *BF16]).items():
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / f"{number}.bin" for number in (1, 2)]
            runs = [runner.train(DECK, [*model, *BF16, *keys, f"model.save={path}"]) for path in files]
            outcome = worst(ended.outcome for ended, _ in runs)
            same = all(path.exists() for path in files) and filecmp.cmp(*files, shallow=False)
            rows.append({"attention": name, "outcome": FAILED if outcome == PASSED and not same else outcome, "same file": same,
                         "bytes": files[0].stat().st_size if files[0].exists() else None,
                         "same losses": len({str(result["samples"]["loss"]) for _, result in runs if result}) == 1,
                         "reason": runs[0][0].reason or runs[1][0].reason})
    yield Table("same bits", rows, worst(row["outcome"] for row in rows))


def precision(runner):
    steps = 10 if runner.quick else 50
    small = of_layers(runner, 2) if runner.quick else one_model("gpt2", 8)
    keys = [*small, f"data.steps={steps}", "optimizer.warmup=4"]
    (of_wide, wide), (of_narrow, narrow) = (runner.train(DECK, [*keys, *more]) for more in ((), BF16))
    outcome, rows = worst([of_wide.outcome, of_narrow.outcome]), []
    if outcome == PASSED:
        losses = wide["samples"]["loss"], narrow["samples"]["loss"]
        largest = max(abs(b - a) / a for a, b in zip(*losses))
        rows = [{"steps": steps, "largest difference of a loss": largest, "last loss in fp32": losses[0][-1],
                 "in bf16": losses[1][-1]}]
        outcome = PASSED if largest < MOST_DIFFERENCE else FAILED
    yield Table("precision", rows, outcome, of_wide.reason or of_narrow.reason)
