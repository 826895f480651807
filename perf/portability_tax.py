#!/usr/bin/env python3
"""What every kernel takes beside its plain Kokkos form, and every matrix product by the best library beside Kokkos'.

usage: perf/portability_tax.py [--program build/openmp/perf_kernels] [--filter REGEX] [--repetitions 3] [--markdown]
       perf/portability_tax.py --json FILE [--markdown]

Runs perf_kernels, its benchmarks in random order, or reads the JSON of such a run, and prints a table: the median time
of ours, or of the fastest library, its rates, its share of the bound (`gemm` or `bandwidth`) that perf_kernels measured,
the median time of the plain form, and how many times longer that takes. Exit 1 if a result was wrong.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

PLAIN = ("plain", "kokkos")  # the plain form of a kernel, and the provider that is one of products
HEADS = ("kernel", "shape", "storage", "by", "ms", "GB/s", "GF/s", "bound", "% of it", "plain ms", "plain / ours")
TEXTS = 4  # columns that are no numbers, before the others
MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}


def measured(program, benchmark_filter, repetitions):
    """What Google Benchmark wrote of a run."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.json"
        command = [program, f"--benchmark_filter={benchmark_filter}", f"--benchmark_repetitions={repetitions}",
                   "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.1s", "--benchmark_out_format=json",
                   f"--benchmark_out={out}"]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if not out.exists() or not out.stat().st_size:
            sys.exit(f"{' '.join(command)}\nexit {ended.returncode}, without results")
        return read(out)


def read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{path} is no result of a run that has ended: {error}")


def by_kernel(benchmarks):
    """(kernel, shape, storage) -> variant -> its median repetition: milliseconds and counters."""
    repetitions = {}
    for one in sorted(benchmarks, key=lambda one: one["family_index"]):  # random order ends as it likes
        if one.get("run_type", "iteration") != "iteration":
            continue  # means and the like of Google Benchmark
        if one.get("error_occurred"):
            sys.exit(f"{one['name']}: {one['error_message']}")
        *kernel, variant = one["name"].split("/")[:4]
        repetitions.setdefault(tuple(kernel), {}).setdefault(variant, []).append(one)

    def median(runs):
        of_runs = {name: statistics.median(run[name] for run in runs) for name in ("GB/s", "GF/s", "of_bound")}
        milliseconds = statistics.median(run["real_time"] * MILLISECONDS[run["time_unit"]] for run in runs)
        return {"ms": milliseconds, "bound": runs[0]["label"], **of_runs}

    return {kernel: {variant: median(runs) for variant, runs in variants.items()}
            for kernel, variants in repetitions.items()}


def rows_of(kernels):
    """Rows of the table, and the ratios of kernels and of products."""
    rows, ratios = [], {"kernels": [], "products": []}
    for kernel, variants in kernels.items():
        ours = {name: of for name, of in variants.items() if name not in PLAIN}
        plain = next((of for name, of in variants.items() if name in PLAIN), None)
        if not ours or not plain:
            continue  # the filter took one of them alone, or there is no library
        by = min(ours, key=lambda name: ours[name]["ms"])
        best = ours[by]
        ratio = plain["ms"] / best["ms"]
        ratios["products" if kernel[0].startswith("gemm_") else "kernels"].append(ratio)
        rows.append((*kernel, by, f"{best['ms']:.3f}", f"{best['GB/s']:.1f}", f"{best['GF/s']:.1f}", best["bound"],
                     f"{best['of_bound']:.0f}", f"{plain['ms']:.3f}", f"{ratio:.2f}"))
    return rows, ratios


def table(rows, markdown):
    if markdown:
        rule = ["---"] * TEXTS + ["---:"] * (len(HEADS) - TEXTS)
        return "\n".join("| " + " | ".join(row) + " |" for row in (HEADS, rule, *rows))
    widths = [max(len(row[i]) for row in (HEADS, *rows)) for i in range(len(HEADS))]
    return "\n".join("  ".join(f"{cell:{'<' if i < TEXTS else '>'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
                     for row in (HEADS, *rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/openmp/perf_kernels")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="of perf_kernels: nothing is run")
    parser.add_argument("--filter", default="/(6x384|gpt2)/", help="of Google Benchmark (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    if arguments.json:
        result = read(arguments.json)
    else:
        result = measured(arguments.program, arguments.filter, arguments.repetitions)
    rows, ratios = rows_of(by_kernel(result["benchmarks"]))
    if not rows:
        sys.exit("no kernel was measured both ways")
    context = result["context"]
    print(", ".join(f"{name} {context[name]}" for name in ("kokkos", "threads", "bandwidth", "gemm_fp32", "gemm_bf16")
                    if name in context) + "\n")
    print(table(rows, arguments.markdown) + "\n")
    for what, values in ratios.items():
        if values:
            mean = math.exp(statistics.mean(math.log(value) for value in values))
            print(f"{what}: the plain form takes {mean:.2f} times as long (geometric mean of {len(values)}, "
                  f"{min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
