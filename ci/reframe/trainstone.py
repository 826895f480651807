"""ReFrame: trains a deck on --num_tasks ranks. Sane is a VALID run alone, whose rate on standard output and in result.json is
the same; the performance is the figure of merit. `-S` sets program, deck, options and num_tasks; a site's references belong
into a class that derives from this one. ci/README.md has the commands."""
import json
import pathlib

import reframe as rfm
import reframe.utility.sanity as sn

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "inputs"
FOM = r"^FOM: (?P<fom>[0-9]\.[0-9]+e[+-][0-9]+) tokens/s  ci95 "
RESULT = r"^RESULT: VALID class=(?:custom golden=local|\S+) exit=0 json=\S+$"


@rfm.simple_test
class TrainstoneRun(rfm.RunOnlyRegressionTest):
    descr = "Trainstone: tokens/s of a verified training"
    program = variable(str, value="trainstone")
    deck = variable(str, value=str(INPUTS / "quickstart.toml"))
    options = variable(str, value="")  # more of trainstone run, such as --set parallel.strategy=zero

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    num_tasks = 2
    time_limit = "30m"
    env_vars = {"OMP_NUM_THREADS": 1}

    @run_before("run")
    def set_command(self):
        self.executable = self.program
        self.executable_opts = ["run", self.deck, "--out", "out", self.options]

    @deferrable
    def result(self):
        return json.loads((pathlib.Path(self.stagedir) / "out" / "result.json").read_text())

    @deferrable
    def printed(self, value):
        return f"{value:.6e}"

    @sanity_function
    def is_valid(self):
        return sn.all([
            sn.assert_found(RESULT, self.stdout),
            sn.assert_eq(self.result()["status"], "VALID"),
            sn.assert_eq(self.result()["exit_code"], 0),
            sn.assert_eq(sn.extractsingle(FOM, self.stdout, "fom"), self.printed(self.result()["fom"]["value"])),
        ])

    @performance_function("tokens/s")
    def fom(self):
        return self.result()["fom"]["value"]

    @performance_function("tokens/s")
    def fom_per_rank(self):
        return self.result()["fom"]["value"] / self.result()["topology"]["ranks"]

    @performance_function("s")
    def median_step(self):
        return self.result()["stats"]["step_seconds"]["median"]
