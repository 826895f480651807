"""perf/kernels/portability_tax sets kernels beside their plain form, from made-up results and from a program that writes them.

usage: portability_tax_test.py [unittest options]
"""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "perf" / "kernels" / "portability_tax"
CONTEXT = {"kokkos": "4.5 OpenMP", "threads": "2", "bandwidth": "40 GB/s", "num_cpus": 64}

# Notes its arguments, and writes what Google Benchmark would.
PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > "$NOTED"
for argument; do case $argument in --benchmark_out=*) cp "$RESULT" "${argument#--benchmark_out=}";; esac; done
exit 0
"""


def run(name, time, unit="us", bandwidth=10.0, label="bandwidth", **more):
    return {"name": f"{name}/manual_time", "run_type": "iteration", "real_time": time, "time_unit": unit, "label": label,
            "family_index": 0, "GB/s": bandwidth, "GF/s": 2.0, "of_bound": 25.4, **more}


def result(*runs):
    return {"context": CONTEXT, "benchmarks": list(runs)}


SUM = (run("sum/gpt2/fp32/ours", 2.0), run("sum/gpt2/fp32/plain", 0.005, "ms"))


class PortabilityTax(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "kernels.json"

    def tool(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", str(TOOL), *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, **environment})

    def rows(self, *runs):
        """The Markdown table's cells without its head, and what follows."""
        self.file.write_text(json.dumps(result(*runs)))
        ended = self.tool("--json", str(self.file), "--markdown")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        lines = ended.stdout.splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        return rows[2:], [line for line in lines if line and not line.startswith("|")]

    def test_a_kernel_beside_its_plain_form(self):
        rows, texts = self.rows(*SUM)
        self.assertEqual(rows, [["sum", "gpt2", "fp32", "ours", "0.002", "10.0", "2.0", "bandwidth", "25", "0.005", "2.50"]])
        self.assertEqual(texts, ["kokkos 4.5 OpenMP, threads 2, bandwidth 40 GB/s",
                                 "kernels: the plain form takes 2.50 times as long (geometric mean of 1, 2.50 to 2.50)"])

    def test_medians_of_repetitions_without_the_benchmark_s_own_means(self):
        times = [1.0, 9.0, 2.0]
        runs = [run("sum/gpt2/fp32/ours", time, bandwidth=10 / time) for time in times]
        mean = run("sum/gpt2/fp32/ours", 100.0, run_type="aggregate")
        self.assertEqual(self.rows(*runs, mean, SUM[1])[0][0][4:6], ["0.002", "5.0"])

    def test_products_by_the_fastest_library(self):
        name = "gemm_qkv_forward/6x384/bf16/"
        rows, texts = self.rows(run(name + "kokkos-kernels", 4.0, "ms", label="gemm"),
                                run(name + "onednn", 2.0, "ms", label="gemm"), run(name + "kokkos", 3.0, "ms", label="gemm"))
        self.assertEqual(len(rows), 1)
        self.assertEqual([rows[0][i] for i in (3, 4, 7, 9, 10)], ["onednn", "2.000", "gemm", "3.000", "1.50"])
        self.assertTrue(texts[-1].startswith("products: the plain form takes 1.50 times"))

    def test_ratios_have_a_geometric_mean(self):
        other = (run("cast/gpt2/fp32/ours", 1.0), run("cast/gpt2/fp32/plain", 0.1))
        self.assertIn("takes 0.50 times as long (geometric mean of 2, 0.10 to 2.50)", self.rows(*SUM, *other)[1][-1])

    def test_what_was_measured_one_way_alone_has_no_row(self):
        self.assertEqual(len(self.rows(*SUM, run("cast/gpt2/fp32/ours", 1.0))[0]), 1)
        self.file.write_text(json.dumps(result(SUM[0])))
        ended = self.tool("--json", str(self.file))
        self.assertEqual((ended.returncode, ended.stderr.strip()), (1, "no kernel was measured both ways"))

    def test_rows_are_in_the_order_of_the_program(self):
        others = (run("cast/gpt2/fp32/plain", 1.0, family_index=3), run("cast/gpt2/fp32/ours", 1.0, family_index=2))
        first = tuple({**one, "family_index": i} for i, one in enumerate(SUM))
        self.assertEqual([row[0] for row in self.rows(*others, *first)[0]], ["sum", "cast"])

    def test_a_run_that_has_not_ended_is_told(self):
        self.file.write_text(json.dumps(result(*SUM))[:-5])
        ended = self.tool("--json", str(self.file))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("kernels.json is no result of a run that has ended", ended.stderr)

    def test_a_wrong_result_is_told_and_has_no_table(self):
        self.file.write_text(json.dumps(result(*SUM, run("cast/gpt2/fp32/ours", 0, error_occurred=True,
                                                         error_message="element 3 is wrong"))))
        ended = self.tool("--json", str(self.file))
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertIn("cast/gpt2/fp32/ours/manual_time: element 3 is wrong", ended.stderr)

    def test_columns_are_aligned_without_markdown(self):
        self.file.write_text(json.dumps(result(*SUM)))
        head, row = self.tool("--json", str(self.file)).stdout.splitlines()[2:4]
        self.assertEqual(len(head), len(row))
        self.assertNotIn("|", head)

    def test_the_program_is_run_interleaved(self):
        program, noted = self.folder / "program", self.folder / "noted"
        program.write_text(PROGRAM)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.file.write_text(json.dumps(result(*SUM)))
        ended = self.tool("--program", str(program), "--filter", "sum/", "--repetitions", "7", NOTED=str(noted),
                          RESULT=str(self.file))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("2.50", ended.stdout)
        arguments = noted.read_text().splitlines()
        for wanted in ("--benchmark_filter=sum/", "--benchmark_repetitions=7", "--benchmark_enable_random_interleaving=true"):
            self.assertIn(wanted, arguments)

    def test_a_program_that_writes_nothing_is_an_error(self):
        ended = self.tool("--program", "false")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("exit 1, without results", ended.stderr)


if __name__ == "__main__":
    unittest.main()
