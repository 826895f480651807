"""perf/device/kernel_report reads what cuobjdump says of kernels, and finds what is wrong with them. Objects are recorded texts.

usage: kernel_report_test.py [unittest options]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from commands import PERF, ROOT, load

sys.path.insert(0, str(PERF / "device"))
import machine_code
import occupancy

TOOL = PERF / "device" / "kernel_report"
RECORDED = ROOT / "tests" / "data" / "kernel_report"
SOURCES = {"tensor_attention": "cuda/tensor_attention", "layernorm": "layernorm", "cross_entropy": "cross_entropy",
           "residual": "residual", "optimizer": "optimizer"}
FORWARD, QUERIES, KEYS = (f"Attention{what}<Bf16, 64, KeepsAll>" for what in ("Forward", "Queries", "Keys"))
LAUNCHES = {FORWARD: {"shared": 55296, "blocks": 2}, QUERIES: {"shared": 73728, "blocks": 2},
            KEYS: {"shared": 74752, "blocks": 2}}
# Prints the part of a recorded text that the option asks for; fails where nvdisasm is not found, as the real one does.
CUOBJDUMP = """#!/bin/sh
command -v nvdisasm > /dev/null || { echo "cuobjdump fatal   : Could not find executable file 'nvdisasm'"; exit 255; }
grep -q BROKEN "$2" && { echo "cuobjdump fatal   : $2 is broken"; exit 255; }
exec awk -v option="$1" '/^== /{on = $2 == option; next} on' "$2"
"""


def instructions(*lines):
    """A kernel's code from 'ADDRESS TEXT', in the form of cuobjdump."""
    kernel = machine_code.Kernel("k", "sm_90", 32, 0, 0)
    text = [f"        /*{address}*/                   {rest} ;      /* 0x0000000a0a157981 */" for address, rest in
            (line.split(" ", 1) for line in lines)]
    machine_code.read_code(["\t\tFunction : k", *text], {("", "k"): kernel})
    return kernel.code


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.texts = {name: (RECORDED / f"{name}.txt").read_text(encoding="utf-8") for name in SOURCES}
        self.launches = {name: dict(launch) for name, launch in LAUNCHES.items()}
        self.write_program("bin/cuobjdump", CUOBJDUMP)
        self.write_program("bin/nvdisasm", "#!/bin/sh\n")

    def write_program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def edit(self, name, old, new, times=-1):
        self.assertIn(old, self.texts[name])
        self.texts[name] = self.texts[name].replace(old, new, times)

    def run_tool(self, *more, tool="bin/cuobjdump", **environment):
        for name, text in self.texts.items():
            path = self.folder / "build" / "src" / "CMakeFiles" / "trainstone.dir" / "kernels" / f"{SOURCES[name]}.cpp.o"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if self.launches is not None:
            self.write_program("build/perf_kernel_launches", f"#!/bin/sh\necho '{json.dumps(self.launches)}'\n")
        named = ["--cuobjdump", str(self.folder / tool)] if tool else []
        return subprocess.run([sys.executable, "-B", str(TOOL), "--build", str(self.folder / "build"),
                               "--out", str(self.folder / "out"), *named, *more],
                              capture_output=True, text=True, check=False, env={**os.environ, **environment})

    def report(self):
        return json.loads((self.folder / "out" / "report.json").read_text())

    def expect_failures(self, *texts, more=()):
        ended = self.run_tool(*more)
        self.assertEqual(ended.returncode, 1, ended)
        self.assertEqual(len(self.report()["failures"]), len(texts), ended.stdout)
        markdown = (self.folder / "out" / "report.md").read_text()
        for text in texts:
            self.assertIn(text, ended.stdout)
            self.assertIn(text, markdown)

    def test_what_cuobjdump_says_is_read(self):
        ended = self.run_tool()
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended)
        rows = {row["kernel"]: row for row in self.report()["kernels"]}
        self.assertEqual(sorted(rows), sorted([*LAUNCHES, "layernorm_forward<bf16>", "CrossEntropySums<bf16, false>",
                                               "residual_forward<bf16>", "update_elements<AdamRule<false>, float, float>"]))
        forward = rows[FORWARD]
        self.assertLessEqual({"registers": 242, "threads": 128, "static": 0, "dynamic": 55296, "local": 0, "blocks": 2,
                              "limit": "registers", "warps": 8}.items(), forward.items())
        self.assertEqual(forward["instructions"], 10)  # and NOP, which fills the code
        self.assertEqual([forward[name] for name in ("tensor", "LDSM", "MUFU", "global", "of 16 bytes")], [2, 1, 1, 3, 1])
        norm = rows["layernorm_forward<bf16>"]
        self.assertEqual([norm[name] for name in ("registers", "threads", "static", "dynamic", "blocks", "warps", "source")],
                         [64, None, 80, None, None, 32, "kernels/layernorm.cpp"])

    def test_architectures_of_an_object_are_told_apart(self):
        self.texts["tensor_attention"] += self.texts["tensor_attention"].replace("sm_90", "sm_80").replace("REG:242", "REG:168")
        self.assertEqual(self.run_tool().returncode, 0)
        rows = [row for row in self.report()["kernels"] if row["kernel"] == FORWARD]
        self.assertEqual([(row["architecture"], row["registers"], row["threads"], row["tensor"], row["blocks"]) for row in rows],
                         [("sm_80", 168, 128, 2, 2), ("sm_90", 242, 128, 2, 2)])
        self.assertIn("## kernels/cuda/tensor_attention.cpp, sm_80\n", (self.folder / "out" / "report.md").read_text())

    def test_spills_are_failures(self):
        self.edit("residual", "STACK:0", "STACK:24")
        self.edit("tensor_attention", "REG:242 STACK:0", "REG:242 STACK:16")
        self.expect_failures("kernels/residual.cpp: residual_forward<bf16> spills 24 bytes (0 LDL and STL)",
                             f"{FORWARD} spills 16 bytes")

    def test_accesses_of_local_memory_are_failures(self):
        self.edit("optimizer", "STG.E desc[UR10]", "STL [R1+0x8]", 1)
        self.expect_failures("AdamRule<false>, float, float> spills 0 bytes (1 LDL and STL)")

    def test_kernels_without_tensor_instructions_are_failures(self):
        head, middle, tail = self.texts["tensor_attention"].rpartition("Function : ")  # the last one in the code
        self.assertIn("AttentionForward", tail[:200])
        self.texts["tensor_attention"] = head + middle + tail.replace("HMMA.16816.F32.BF16", "FFMA")
        self.expect_failures(f"{FORWARD} has no instruction of tensor cores")

    def test_products_of_warpgroups_that_the_compiler_has_put_one_after_the_other_are_failures(self):
        def as_written(*opcodes):
            """The first instruction of the last kernel, followed by these."""
            head, middle, tail = self.texts["tensor_attention"].rpartition("Function : ")
            first = next(line for line in tail.splitlines() if machine_code.INSTRUCTION.match(line))
            more = "\n".join(first.replace(machine_code.INSTRUCTION.match(first)[3], opcode, 1) for opcode in opcodes)
            return head + middle + tail.replace(first, f"{first}\n{more}", 1)

        text = self.texts["tensor_attention"]
        self.texts["tensor_attention"] = as_written("WARPGROUP.ARRIVE", "HGMMA.64x64x16.F32.BF16", "WARPGROUP.DEPBAR.LE")
        self.assertEqual(self.run_tool().returncode, 0)
        self.texts["tensor_attention"] = text
        self.texts["tensor_attention"] = as_written("WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE", "WARPGROUP.DEPBAR.LE")
        self.expect_failures(f"{FORWARD} waits 2 times for products that it begins 1 times")

    def test_a_kernel_of_a_tensor_source_needs_no_pattern(self):
        self.texts["norm"] = self.texts["residual"]
        SOURCES["norm"] = "tensor_norm"
        self.addCleanup(SOURCES.pop, "norm")
        self.expect_failures("kernels/tensor_norm.cpp: residual_forward<bf16> has no instruction of tensor cores")

    def test_a_pattern_without_kernels_is_a_failure_but_of_a_selection(self):
        del self.texts["optimizer"]
        self.expect_failures("no kernel is optimizer: ")
        self.assertEqual(self.run_tool("--only", "layernorm").returncode, 0)
        self.assertEqual([row["kernel"] for row in self.report()["kernels"]], ["layernorm_forward<bf16>"])

    def test_no_kernel_at_all_is_a_failure_of_every_pattern_and_of_a_selection(self):
        self.texts.clear()
        self.assertEqual(self.run_tool().stdout.count("no kernel is "), 7)
        self.expect_failures("no kernel has this name: norm", more=("--only", "norm"))

    def test_blocks_that_do_not_fit_are_failures(self):
        self.launches[KEYS] = {"shared": 227 * 1024 + 1, "blocks": 1}
        self.launches[FORWARD] = {"shared": 227 * 1024, "blocks": 1}
        self.expect_failures(f"{KEYS}: no block fits, by its shared memory")
        self.assertEqual({row["kernel"]: (row["blocks"], row["wanted"]) for row in self.report()["kernels"] if row["wanted"]},
                         {KEYS: (0, 1), FORWARD: (1, 1), QUERIES: (2, 2)})

    def test_unknown_shared_memory_is_a_failure_where_the_program_is_built(self):
        del self.launches[QUERIES]
        self.expect_failures(f"{QUERIES} is not known to perf_kernel_launches")

    def test_shared_memory_is_not_known_where_the_program_is_not_built(self):
        self.launches = None
        self.assertEqual(self.run_tool().returncode, 0)
        self.assertEqual({row["dynamic"] for row in self.report()["kernels"]}, {None})
        self.assertIn("perf_kernel_launches is not built", (self.folder / "out" / "report.md").read_text())

    def test_a_program_that_does_not_start_is_told(self):
        self.launches = None
        self.write_program("build/perf_kernel_launches", "#!/bin/sh\necho no library >&2; exit 127\n")
        ended = self.run_tool()
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, "exit status 127.\nno library\nWas it built in the environment of ci/env")
        self.assertNotIn("Traceback", ended.stderr)

    def test_objects_without_device_code_are_left_out(self):
        self.texts["optimizer"] = "BROKEN, but of the host alone"
        self.expect_failures("no kernel is optimizer: ")

    def test_an_object_that_cannot_be_read_is_told(self):
        self.texts["residual"] = ".nv_fatbin BROKEN"
        ended = self.run_tool()
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"^\S*cuobjdump --dump-resource-usage \S*residual.cpp.o: exit 255: .* is broken$")

    def test_the_tools_are_found_beside_the_compiler_and_skipped_where_there_are_none(self):
        self.write_program("bin/c++filt", "#!/bin/sh\ncat\n")
        self.write_program("build/CMakeCache.txt", f"A:B=c\nCMAKE_CUDA_COMPILER:FILEPATH={self.folder}/bin/nvcc\n")
        nowhere = {"PATH": str(self.folder / "no"), "CUDA_HOME": ""}
        self.assertIn("7 kernels", self.run_tool(tool=None).stdout)
        for name in ("nvdisasm", "cuobjdump"):
            (self.folder / "bin" / name).unlink()
            ended = self.run_tool(tool=None, **nowhere)
            self.assertEqual((ended.returncode, ended.stdout), (77, ""), ended)
            self.assertEqual(ended.stderr, f"skipped: there is no {name}\n")


class Occupancy(unittest.TestCase):
    """Against values by hand, for a multiprocessor of sm_90."""

    def blocks(self, *arguments):
        return occupancy.blocks(occupancy.limits_of("sm_90a"), *arguments)

    def test_registers(self):
        # 242 x 32 = 7744, given out as 7936: a scheduler's 16384 are enough for 2 warps, 8 of a multiprocessor
        self.assertEqual(self.blocks(242, 128, 0), (2, "registers"))
        # 168 x 32 = 5376: 3 warps of each scheduler, 12 in all; a block of 8 warps leaves 4 of them
        self.assertEqual(self.blocks(168, 256, 0), (1, "registers"))
        self.assertEqual(self.blocks(168, 128, 0), (3, "registers"))
        # 33 x 32 = 1056, given out as 1280: 12 warps each, 48
        self.assertEqual(self.blocks(33, 256, 0), (6, "registers"))
        self.assertEqual(self.blocks(255, 512, 0), (0, "registers"))

    def test_shared_memory(self):
        # 233472 bytes: 74752 + 1024 fit 3 times; 113 KiB + 1 KiB exactly twice, and 1 byte more, given out as 128, once
        self.assertEqual(self.blocks(64, 128, 74752), (3, "shared memory"))
        self.assertEqual(self.blocks(64, 128, 113 * 1024), (2, "shared memory"))
        self.assertEqual(self.blocks(64, 128, 113 * 1024 + 1), (1, "shared memory"))
        self.assertEqual(self.blocks(64, 128, 227 * 1024), (1, "shared memory"))
        self.assertEqual(self.blocks(64, 128, 227 * 1024 + 1), (0, "shared memory"))

    def test_threads_and_blocks(self):
        self.assertEqual(self.blocks(16, 1024, 0), (2, "threads"))
        self.assertEqual(self.blocks(16, 96, 0), (21, "threads"))
        self.assertEqual(self.blocks(16, 33, 0), (32, "threads"))  # 2 warps
        self.assertEqual(self.blocks(16, 32, 0), (32, "blocks"))

    def test_an_unknown_architecture_has_no_limits(self):
        self.assertIsNone(occupancy.limits_of("sm_70"))


class Names(unittest.TestCase):
    def short(self, demangled):
        name, threads = machine_code.kernel_of_kokkos(demangled)
        return machine_code.short_name(name), threads

    def test_templates_of_a_kernel(self):
        self.assertEqual(self.short("void trainstone::(anonymous namespace)::run_block<trainstone::Cuda::AttentionForward<"
                                    "trainstone::Cuda::Bf16, 64, trainstone::Cuda::KeepsAll, trainstone::Cuda::DeviceLane> >("
                                    "trainstone::Cuda::AttentionForward<int>::Arguments)"), (FORWARD, None))
        self.assertEqual(self.short("void trainstone::Impl::launch_rows_of_threads<trainstone::bf16, 3, "
                                    "trainstone::Impl::LayerNormBackward<trainstone::bf16> >(trainstone::X<1>)")[0],
                         "launch_rows_of_threads<bf16, 3, LayerNormBackward<bf16>>")

    def test_arguments_are_left_out_where_the_others_tell_kernels_apart(self):
        names = [f"void run_block<A<Bf16, KeepsAll, DeviceLane, {what}Tiles<64> > >(X)" for what in ("Key", "Query")]
        with tempfile.TemporaryDirectory() as folder:
            for count, expected in ((1, ["A<Bf16, KeepsAll>"]), (2, ["A<Bf16, KeepsAll, DeviceLane, KeyTiles<64>>",
                                                                    "A<Bf16, KeepsAll, DeviceLane, QueryTiles<64>>"])):
                script = pathlib.Path(folder) / "names"
                script.write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in names[:count]))
                script.chmod(0o755)
                kernels = [machine_code.Kernel(str(i), "sm_90", 32, 0, 0) for i in range(count)]
                self.assertEqual([kernel.name for kernel in machine_code.name_kernels(kernels, script)], expected)

    def test_functors_and_lambdas_of_kokkos(self):
        policy = "Kokkos::TeamPolicy<Kokkos::Cuda>, Kokkos::Cuda>"
        launch = "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<"
        lambda_ = "_INTERNAL_3e45_5_a_cpp_6f::trainstone::f<float>(Kokkos::View<float*>, long)::{lambda(Kokkos::M const&)#"
        self.assertEqual(self.short(f"{launch}{lambda_}1}}, {policy} >(Kokkos::Impl::X<{lambda_}1}}>)"), ("f<float>", None))
        self.assertEqual(self.short(f"{launch}{lambda_}2}}, {policy}, 256u, 1u>(X)"), ("f<float>#2", 256))
        self.assertEqual(self.short(f"{launch}trainstone::Impl::Sums<trainstone::fp16, true>, {policy}, 0u, 0u>(X)"),
                         ("Sums<fp16, true>", None))


class Loops(unittest.TestCase):
    def test_multiplications(self):
        for opcode, expected in (("HMMA.16816.F32.BF16", 2048), ("HMMA.1688.F32", 1024), ("HGMMA.64x128x16.F32.BF16", 32768),
                                 ("FFMA", 0), ("IMMA.16832.S8.S8", 0)):
            self.assertEqual(machine_code.multiplied_by(opcode), expected, opcode)

    def test_the_innermost_loops_that_multiply_are_found(self):
        code = instructions("0000 S2R R0, SR_TID.X", "0010 MOV R1, R2",  # 0010: the outer loop begins
                            "0020 FADD R1, R1, R2", "0030 @P1 BRA 0x20",  # a loop that does not multiply
                            "0040 HMMA.16816.F32 R4, R8, R10, RZ", "0050 @P0 BRA 0x70", "0060 MUFU.EX2 R3, R3",
                            "0070 HMMA.16816.F32 R4, R8, R10, RZ", "0080 BRA.DIV UR8, 0xe0", "0090 @!P0 BRA 0x40",
                            "00a0 @P2 BRA 0x10", "00b0 HMMA.1688.F32 R4, R8, R10, RZ", "00c0 EXIT", "00d0 BRA 0xd0",
                            "00e0 WARPSYNC.COLLECTIVE R6, 0xf0", "00f0 BRA 0x10")
        loops = machine_code.tensor_loops(code)
        self.assertEqual([dict(loop) for loop in loops],
                         [{"HMMA.16816.F32": 2, "BRA": 2, "MUFU.EX2": 1, "BRA.DIV": 1}])
        without = [one for one in code if one.address != 0x90]  # the outer loop is now the innermost
        self.assertEqual(sum(machine_code.tensor_loops(without)[0].values()), 9)

    def test_code_behind_a_jump_is_no_loop(self):
        code = instructions("0000 BRA 0x20", "0010 EXIT", "0020 HMMA.16816.F32 R4, R8, R10, RZ", "0030 BRA 0x10")
        self.assertEqual(machine_code.tensor_loops(code), [])

    def test_cycles_of_a_loop(self):
        kernel = machine_code.Kernel("k", "sm_90", 32, 0, 0, threads=256)
        kernel.code = instructions("0000 HMMA.16816.F32 R4, R8, R10, RZ", "0010 MUFU.EX2 R3, R3", "0020 FADD R1, R1, R2",
                                   "0030 @P0 BRA 0x0")
        row, = load("device/kernel_report").loop_rows(kernel)
        # 2 warps of each scheduler: 6 cycles of multiplications, 4 instructions and 8 cycles of exponentials each
        self.assertLessEqual({"tensor cycles": 12, "issue cycles": 8, "special cycles": 16, "bound": "special",
                              "tensor share of issue": 1.5}.items(), row.items())


if __name__ == "__main__":
    unittest.main()
