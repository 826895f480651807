"""Distributed products: `matmul` on ranks, `explain matmul`, what they refuse, and reports; no rates."""
import json
import unittest

from refusals import RefusalTest
from report import Report
from support import new_folder, run, start

QUICK = ("--samples", "2")


def rows_of(outcome):
    """Per algorithm: its grid, and the words behind it."""
    lines = [line.split() for line in outcome.out.splitlines() if line.startswith("  ")]
    return {words[0]: (tuple(map(int, words[1:6:2])), words[6:]) for words in lines}


class Matmul(unittest.TestCase):
    def test_every_algorithm_that_ranks_allow_is_exact_and_counted(self):
        allowed = {1: {"1d", "summa", "cannon", "3d"}, 2: {"1d", "3d"}, 4: {"1d", "summa", "cannon", "3d"}}
        runs = {ranks: start("matmul", 37, 64, 51, *QUICK, ranks=ranks) for ranks in allowed}
        for ranks, names in allowed.items():
            with self.subTest(ranks=ranks):
                outcome = runs[ranks].result()
                self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)
                self.assertTrue(outcome.out.endswith("RESULT: ALL EXACT\n"), outcome)
                rows = rows_of(outcome)
                self.assertEqual(set(rows), names)
                for grid, words in rows.values():
                    self.assertEqual(grid[0] * grid[1] * grid[2], ranks)
                    self.assertEqual(words[-2:], ["0", "0"])
                    self.assertGreaterEqual(float(words[1]), float(words[2]))  # sent, and the lower bound
                self.assertIn("# left out: 2.5d needs q x c x q ranks", outcome.out)

    def test_layers_of_squares_need_eight_ranks_and_a_cube_meets_the_bound(self):
        outcome = run("matmul", 32, 32, 32, "--grid=2x2x2", "--type=bf16", "--json=products/cube.json", *QUICK, ranks=8)
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        file = json.loads((outcome.folder / "products" / "cube.json").read_text())
        self.assertEqual((file["kind"], file["status"], file["header"]["ranks"], file["header"]["type"]),
                         ("matmul", "RIGHT", 8, "bf16"))
        self.assertEqual([(row["algorithm"], row["grid"]) for row in file["rows"]],
                         [("2.5d", [2, 2, 2]), ("3d", [2, 2, 2])])
        for row in file["rows"]:
            self.assertEqual(row["predicted"], row["counted"])
            self.assertEqual((row["wrong"], row["unlike_ranks"], len(row["seconds"]["samples"])), (0, 0, 2))
        # 2 * 32 * 32 / 8 elements of 2 bytes of A and B, and as many of 4 bytes of C
        cube = file["rows"][1]["counted"]
        self.assertEqual((cube["messages"], cube["sent_bytes"]), (3, 128 * (2 + 2 + 4)))
        self.assertEqual(file["rows"][1]["bound_bytes"], 2 * 3 * 128)

    def test_staged_messages_and_emulated_nodes_are_exact(self):
        staged, nodes = (start("matmul", 24, 24, 24, *QUICK, *flags, ranks=4) for flags in (
            ("--buffers=staged", "--type=half"), ("--emulated-nodes=2",)))
        for words, outcome in (("buffers staged", staged.result()), ("4 ranks on 2 emulated nodes", nodes.result())):
            self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
            self.assertIn(words, outcome.out)
            self.assertTrue(outcome.out.endswith("RESULT: ALL EXACT\n"), outcome)


class Explained(unittest.TestCase):
    def test_blocks_are_followed_from_the_start_to_the_sum(self):
        cube, cannon = start("explain", "matmul", "--grid", "2x2x2"), start("explain", "matmul", "cannon", "--ranks", 9)
        as_json = start("explain", "matmul", "--algorithm", "2.5d", "--grid", "2,2,2", "--json")
        for word in ("3d on a grid of 2 x 2 x 2, 8 ranks", "after step 1: A along x: all_gather direct", "1/2 A(1,1)",
                     "C(1,0) of k 1*", "lower bound: 6 elements sent"):
            self.assertIn(word, cube.result().out, cube.result())
        self.assertIn("A along x: send_receive direct", cannon.result().out, cannon.result())
        explained = json.loads(as_json.result().out)
        self.assertEqual((explained["algorithm"], explained["grid"]), ("2.5d", [2, 2, 2]))
        self.assertEqual(explained["moments"][0]["step"], "start")
        for outcome in (cube.result(), cannon.result(), as_json.result()):
            self.assertEqual((outcome.code, outcome.err, outcome.left), (0, "", []), outcome)


class Refusals(RefusalTest):
    def test_what_does_not_fit_into_memory_is_not_begun(self):
        outcome = run("matmul", 1000000, 1000000, 1, ranks=2)
        self.assert_refused(outcome, ["does not fit: 2 ranks on this machine need"], code=69)

    def test_what_cannot_be_distributed_is_refused_with_what_can(self):
        def product(*flags, ranks=2):
            return start("matmul", 8, 8, 8, *flags, ranks=ranks)

        self.check_all((claim, *case) for claim, case in {
            "no extents": (start("matmul", 8, 8), ["K is required"]),
            "an extent of zero": (start("matmul", 8, 0, 8), ["N 0 is out of range; it must be 1 to"]),
            "an extent that is no number": (start("matmul", "8k", 8, 8), ["M 8k is out of range"]),
            "no such algorithm": (product("--algorithms=1d,4d"), ['"4d"', "there is: 1d, summa, cannon, 2.5d, 3d"]),
            "no square": (product("--algorithms=summa"), ["summa needs q x 1 x q ranks, there are 2", "legal here: 1d, 3d"]),
            "no layers": (product("--algorithms=2.5d", ranks=4), ["where c > 1 divides q", "legal here: 1d, summa, cannon, 3d"]),
            "a grid of other ranks": (product("--grid=2x2x1"), ["does not have 2 ranks", "2x1x1, 1x2x1, 1x1x2"]),
            "no grid": (product("--grid=2by1"), ["--grid 2by1", "like 2x1x2"]),
            "a grid that the algorithm does not take": (product("--grid=4x1x1", "--algorithms=cannon", ranks=4),
                                                        ["not 4 x 1 x 1", "legal grids of 4 ranks: 2x1x2"]),
            "no such type": (product("--type=double"), ['"double"', "float or fp32, bfloat16 or bf16, half or fp16"]),
            "no such provider": (product("--gemm=mkl"), ["mkl", "kokkos"]),
            "no such buffers": (product("--buffers=pinned"), ["pinned", "staged"]),
            "odd samples": (product("--samples=3"), ["--samples 3 is odd"]),
            "no machine file": (product("--machine=missing.json"), ["missing.json"]),
            "nowhere to write": (product("--json=/proc/x.json"), ["x.json"]),
            "an explanation of a collective": (start("explain", "all_reduce", "ring", "--grid", "2x2x1"), ["--grid", "has none"]),
            "an explanation of ranks that no square has": (start("explain", "matmul", "summa", "--ranks", 6), ["q x 1 x q"]),
            "an explanation of too many ranks": (start("explain", "matmul", "--grid", "5x5x5"), ["1 to 64 ranks"]),
            "root of a product": (start("explain", "matmul", "--root", 1), ["--root", "matmul has none"]),
        }.items())


class Reports(unittest.TestCase):
    def test_a_product_has_a_row_for_every_way(self):
        file = run("matmul", 24, 32, 16, "--samples", 2, "--json", "mm.json", ranks=4).folder / "mm.json"
        measured = json.loads(file.read_text())
        report = Report(run("report", file, "--out", "report"))
        self.assertIn("# Trainstone report: 1 distributed product\n", report.markdown)
        self.assertIn("## Distributed product mm\n", report.markdown)
        self.assertIn("C (24, 32) fp32 = A (24, 16) B (16, 32)", report.markdown)
        self.assertIn("All elements are exact", report.markdown)
        self.assertEqual({row["algorithm"] for row in measured["rows"]}, {"1d", "summa", "cannon", "3d"})
        for row in measured["rows"]:
            (cells,) = report.rows(row["algorithm"])
            self.assertEqual(cells[1:3], [" x ".join(map(str, row["grid"])), str(row["counted"]["messages"])])
            self.assertEqual(cells[3:6], [f"{amount:.0f} B" for amount in (
                row["counted"]["sent_bytes"], row["bound_bytes"], row["counted"]["kept_bytes"])])
            self.assertEqual(len(cells), 10)
            self.assertEqual(cells[-1], f"{row['flops_per_second'] / 1e9:.2f} GFLOP/s")

        # a wrong row has no time, and what is not as predicted is shown
        measured["rows"][0] |= {"wrong": 3, "seconds": None, "predicted_seconds": None, "residual": None, "flops_per_second": None}
        measured["rows"][1] |= {"predicted": {**measured["rows"][1]["predicted"], "messages": 99}}
        (damaged := new_folder() / "mm.json").write_text(json.dumps({**measured, "status": "WRONG"}))
        report = Report(run("report", damaged, "--out", "report"))
        self.assertIn("Elements are wrong, or", report.markdown)
        self.assertEqual([cell.strip("*") for cell in report.rows(measured["rows"][0]["algorithm"])[0][6:]], ["WRONG", "-", "-", "-"])
        self.assertIn("predicted 99", report.rows(measured["rows"][1]["algorithm"])[0][2])
        for change, words in (({"status": "RIGHT"}, ["/status"]), ({"rows": []}, ["/rows"]), ({"schema_version": 2}, ["schema_version"]),
                              ({"header": {**measured["header"], "ranks": 5}}, ["/rows/0/grid", "5"])):
            damaged.write_text(json.dumps({**measured, "status": "WRONG", **change}))
            outcome = run("report", damaged)
            self.assertEqual((outcome.code, outcome.out), (64, ""), outcome)
            for word in words:
                self.assertIn(word, outcome.err)
