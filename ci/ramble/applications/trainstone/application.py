"""Ramble: trains a deck. A run succeeds that ends VALID, and only such a run has a figure of merit. ci/README.md has the
commands."""
from ramble.appkit import *

# Without braces: Ramble takes what is in them for variables.
FOM = r"^FOM: (?P<fom>[0-9]\.[0-9]+e[+-][0-9]+) tokens/s  ci95 (?P<low>\S+) (?P<high>\S+)$"
PER_RANK = r"^FOM_PER_RANK: (?P<fom>[0-9]\.[0-9]+e[+-][0-9]+) tokens/s$"
RESULT = r"^RESULT: VALID class=(?:custom golden=local|\S+) exit=0 json=\S+$"


class Trainstone(ExecutableApplication):
    """GPT training as a benchmark of HPC machines"""

    name = "trainstone"

    tags("mini-app", "machine-learning")

    software_spec("trainstone", pkg_spec="trainstone", package_manager="spack*")
    required_package("trainstone", package_manager="spack*")

    executable("train", "{program} run {deck} --out {experiment_run_dir}/out {options}", use_mpi=True)
    workload("train", executables=["train"])

    workload_variable("program", default="trainstone", description="the program", workloads=["train"])
    workload_variable("deck", default="{trainstone_path}/share/trainstone/inputs/quickstart.toml",
                      description="what to train; the default is where the Spack package has it", workloads=["train"])
    workload_variable("options", default="", description="more of trainstone run, such as --set parallel.strategy=zero",
                      workloads=["train"])

    figure_of_merit("FOM", fom_regex=FOM, group_name="fom", units="tokens/s")
    figure_of_merit("FOM, lower end of the 95 % interval", fom_regex=FOM, group_name="low", units="tokens/s")
    figure_of_merit("FOM, upper end of the 95 % interval", fom_regex=FOM, group_name="high", units="tokens/s")
    figure_of_merit("FOM per rank", fom_regex=PER_RANK, group_name="fom", units="tokens/s")

    success_criteria("valid", mode="string", match=RESULT)
