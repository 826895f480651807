"""Spack: the program and its inputs, of the repository that this file lies in. ci/README.md has the commands."""
import os
import re

from spack.package import *

try:  # where Spack keeps its builders since 1.0
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:
    pass

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))
FOM = r"(?m)^FOM: (?P<fom>[0-9]\.[0-9]+e[+-][0-9]+) tokens/s  ci95 "
RESULT = r"(?m)^RESULT: VALID class=(?:custom golden=local|\S+) exit=0 json=\S+$"


class Trainstone(CMakePackage, CudaPackage):
    """GPT training as a benchmark of HPC machines: Kokkos kernels and hand-written MPI collectives."""

    git = f"file://{REPOSITORY}"
    version("main", branch="main")

    variant("openmp", default=False, description="Kokkos starts threads")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("kokkos@4.5: +serial cxxstd=20")
    depends_on("kokkos +openmp", when="+openmp")
    depends_on("kokkos-kernels@4.5:")
    depends_on("onednn", when="~cuda")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("cli11")
    depends_on("tomlplusplus")
    depends_on("xxhash")
    depends_on("random123")
    depends_on("liburing")
    depends_on("cuda@:12.8", when="+cuda")  # from 12.9 on Kokkos 4 needs its legacy views
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos@4.7.01:4 +cuda +cuda_lambda +cmake_lang ~alloc_async cuda_arch={arch}",
                   when=f"+cuda cuda_arch={arch}")

    def cmake_args(self):
        # Spack's compilers are told the target; tests are those of ci/test.
        arguments = [self.define("TRAINSTONE_NATIVE", False), self.define("TRAINSTONE_BUILD_TESTS", False),
                     self.define("TRAINSTONE_BUILD_PERF", False)]
        if self.spec.satisfies("+cuda"):
            arguments.append(self.define("TRAINSTONE_EXPECT_CUDA", True))
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return arguments

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install(join_path(self.build_directory, "trainstone"), prefix.bin)
        install_tree(join_path(self.stage.source_path, "inputs"), prefix.share.trainstone.inputs)

    def test_quickstart(self):
        """the quickstart ends VALID and has a figure of merit"""
        launcher = which(join_path(self.spec["mpi"].prefix.bin, "mpiexec"))
        deck = self.prefix.share.trainstone.inputs.join("quickstart.toml")
        out = launcher("-n", "2", self.prefix.bin.trainstone, "run", deck, output=str.split, error=str.split)
        assert re.search(RESULT, out) and re.search(FOM, out), out
