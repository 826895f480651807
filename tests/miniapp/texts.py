"""What the program says without training: help, version, keys, the resolved deck, estimates; and the progress line."""
import json
import os
import pty
import re
import subprocess
import unittest
import xml.etree.ElementTree

from lecture import write_machine
from support import Context, Deck, environment, new_folder, run, settings, start

USAGE, DOES_NOT_FIT = 64, 69
CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "data")


def numbers(text, *names):
    """The number behind each name at the beginning of a line of an estimate."""
    return {name: int(re.search(rf"^  {re.escape(name)} +(\d+)", text, re.MULTILINE)[1]) for name in names}


class HelpTest(unittest.TestCase):
    def test_help_version_and_no_command(self):
        help_, sub, version, nothing, many = (
            future.result() for future in (start("--help"), start("run", "--help"), start("--version"), start(),
                                           start("--version", ranks=2)))
        self.assertEqual((help_.code, sub.code, version.code, nothing.code), (0, 0, 0, USAGE))
        for command in ("run", "estimate", "verify"):
            self.assertRegex(help_.out, rf"(?m)^  {command} ")
        for option in ("--set", "--out", "--record-golden", "--print-deck"):
            self.assertIn(option, sub.out)
        self.assertRegex(version.out, r"^trainstone \d+\.\d+\.\d+\n$")
        self.assertEqual(many.out, version.out, "once, not once per rank")

    def test_help_deck_lists_every_key_with_type_default_range_and_meaning(self):
        listed = run("--help-deck")
        self.assertEqual(listed.code, 0, listed)
        keys = re.findall(r"(?m)^  (\w[\w.]+) +(an? .*|true or false); default (.*)\n      (\S.*)$", listed.out)
        printed = run("run", Deck().path, "--print-deck").out
        sections = re.split(r"(?m)^\[(.+)\]$", printed)
        resolved = [f"{section}.{key}".lstrip(".") for section, body in zip(["", *sections[1::2]], sections[::2])
                    for key in re.findall(r"(?m)^(?:# )?(\w+) = ", body)]
        self.assertGreater(len(resolved), 40)
        self.assertEqual([key for key, *_ in keys], resolved)

    def test_a_printed_deck_is_a_deck_with_the_same_values_and_says_where_they_come_from(self):
        deck = Deck({"model.preset": '"gpt2"', "model.vocab": None})
        options = settings("optimizer.lr=0.25")
        printed = run("run", deck.path, "--print-deck", *options, variables={"TRAINSTONE_SET": "data.seed=7"})
        self.assertEqual(printed.code, 0, printed)
        for line in (r"layers = 1 +# deck:1", r"vocab = 50257 +# preset gpt2", r"lr = 0.25 +# command line",
                     r"seed = 7 +# environment", r"sequence = 8 +# derived", r"warmup = 0 +# default"):
            self.assertRegex(printed.out, f"(?m)^{line}$")
        again = deck.folder / "again.toml"
        again.write_text(printed.out)
        reprinted = run("run", again, "--print-deck")
        values = lambda text: re.findall(r"(?m)^(\w+ = .*?|\[.*\]) *(?:#.*)?$", text)
        self.assertEqual(values(reprinted.out), values(printed.out))

    def test_kokkos_own_flags_pass_through(self):
        outcome = run("run", "missing.toml", "--kokkos-print-configuration")
        self.assertEqual(outcome.code, USAGE)
        self.assertIn("missing.toml", outcome.err)
        self.assertIn("KOKKOS", (outcome.out + outcome.err).upper().replace("MISSING.TOML", ""), outcome)


class EstimateTest(unittest.TestCase):
    def test_memory_fits_or_does_not(self):
        deck = Deck({"batch.global": "64"})
        for ranks in (1, 2, 64):
            enough, tight = (start("estimate", deck.path, "--ranks", ranks, "--device-mem", size)
                             for size in ("80GiB", "100 kB"))
            with self.subTest(ranks=ranks):
                self.assertEqual(enough.result().code, 0, enough.result())
                self.assertRegex(enough.result().out, r"\nFITS: .* needed, 81920\.0 MiB given\n$")
                self.assertEqual(tight.result().code, DOES_NOT_FIT, tight.result())
                self.assertRegex(tight.result().out, r"\nDOES NOT FIT: .* needed, 0\.1 MiB given\n$")
                self.assertEqual(enough.result().left, [])

    def test_an_estimate_is_what_the_run_predicts_and_counts(self):
        for ranks in (1, 2):
            deck = Deck({"batch.global": "8"})
            estimated, ran = start("estimate", deck.path, "--ranks", ranks), start("run", deck.path, ranks=ranks)
            text, counted = estimated.result().out, ran.result().result["counted"]
            self.assertEqual(numbers(text, *CATEGORIES, "total"), counted["memory_bytes"], text)
            sent = re.findall(r"(?m) +(\d+) bytes in (\d+) messages$", text)
            self.assertEqual(sum(int(size) for size, _ in sent), counted["sent_bytes"])
            self.assertEqual(sum(int(count) for _, count in sent), counted["messages"])
            self.assertEqual(sum(numbers(text, "GEMM", "attention").values()), counted["flops"])
            kernels = re.search(r"(?m)^kernels per step and rank +(\d+)$", text)
            self.assertEqual(int(kernels[1]), counted["kernel_launches"], text)
            items = re.findall(r"(?m)^    \S.*? +(\d+)$", text)
            state = numbers(text, "parameters", "gradients")
            self.assertEqual(sum(map(int, items)) + sum(state.values()), counted["memory_bytes"]["total"])


    def test_the_file_of_an_estimate_says_what_the_run_finds_and_whether_it_fits(self):
        for ranks in (1, 2):
            deck = Deck({"batch.global": "8", "parallel.strategy": '"zero"', "parallel.zero_stage": "2"})
            estimated, ran = (start("estimate", deck.path, "--ranks", ranks, "--json", "e.json", "--device-mem", "100 kB"),
                              start("run", deck.path, ranks=ranks))
            estimated, result = estimated.result(), ran.result().result
            self.assertEqual((estimated.code, estimated.left), (DOES_NOT_FIT, ["e.json"]), estimated)
            found = json.loads((estimated.folder / "e.json").read_text())
            for key in ("predicted", "params", "code"):
                self.assertEqual(found[key], result[key])
            self.assertEqual(found["deck"]["hash"], result["deck"]["hash"])
            self.assertEqual(found["model_parameters"], result["metrics"]["model_parameters"])
            self.assertEqual([found["tokens_per_step"]] * 12, result["samples"]["tokens"])
            self.assertEqual((found["fits"], found["given_bytes"], found["compute_seconds"]), (False, 100000, None))

    def test_nodes_of_an_estimate_change_what_a_hierarchical_algorithm_sends(self):
        deck = Deck({"batch.global": "8", "comm.allreduce": '"hierarchical"'})
        one, two, emulated = (run("estimate", deck.path, "--ranks", 4, "--json", "e.json", *more)
                              for more in ((), ("--nodes", 2), ("--set", "comm.emulated_nodes=2")))
        sent = [json.loads((each.folder / "e.json").read_text())["predicted"]["messages"] for each in (one, two, emulated)]
        self.assertEqual(sent[1], sent[2])
        self.assertNotEqual(sent[0], sent[1])

    def test_a_measured_machine_predicts_a_step_and_16_bits_are_said_to_be_unknown(self):
        def with_rates(folder):
            write_machine(folder)
            path = folder / "peaks.json"
            rates = {"gemm_flops_per_second": 1e9, "bandwidth_bytes_per_second": 1e10}
            path.write_text(json.dumps({**json.loads(path.read_text()), "peaks": rates}))

        command = ("estimate", Deck({"batch.global": "8"}).path, "--ranks", 2, "--machine", "peaks.json", "--json", "e.json")
        known, narrow, without = (run(*command, *more, prepare=prepare) for more, prepare in (
            ((), with_rates), (settings("precision.recipe=mixed16"), with_rates), ((), write_machine)))
        found, unknown = (json.loads((one.folder / "e.json").read_text()) for one in (known, narrow))
        predicted = found["predicted"]
        expected = 3e-6 * predicted["messages"] + 2e-10 * predicted["sent_bytes"]
        self.assertAlmostEqual(found["communication_seconds"], expected, delta=1e-9 * expected)
        self.assertGreater(found["compute_seconds"], 0)
        self.assertIn("predicted step ", known.out)
        self.assertEqual((unknown["compute_seconds"], unknown["communication_seconds"]), (None, None))
        self.assertIn("no step time: peaks.json knows products in fp32, and precision.recipe is mixed16", narrow.out)
        self.assertEqual(without.code, USAGE, without)
        self.assertIn("has no rates of matrix products and memory", without.err)

    def test_parts_that_were_measured_for_a_deck_predict_its_step_and_draw_its_timeline(self):
        deck = Deck({"batch.global": "8", "parallel.strategy": '"zero"', "parallel.zero_stage": "3"}).path
        calibrated = run("calibrate", "-e", "4K", "--deck", deck, ranks=2)
        self.assertEqual((calibrated.code, calibrated.err, calibrated.left), (0, "", ["peaks.json"]), calibrated)
        for text in ("# parts of 1 block of channels ", "    mlp        forward ", "# ns per element: update "):
            self.assertIn(text, calibrated.out)
        peaks = calibrated.folder / "peaks.json"
        machine = json.loads(peaks.read_text())
        parts = machine["parts"]
        if not machine.get("peaks"):  # ranks share cores here, and then no rates are measured
            machine["peaks"] = {"gemm_flops_per_second": 1e9, "bandwidth_bytes_per_second": 1e10}
            peaks.write_text(json.dumps(machine))
        self.assertEqual(set(parts["part_seconds"]), {"embed", "attention", "mlp", "head"})
        same = ("--ranks", 2, "--machine", peaks)
        known, other = (run("estimate", deck, *same, "--json", "e.json", *more)
                        for more in ((), settings("batch.micro=2")))
        found, without = (json.loads((one.folder / "e.json").read_text()) for one in (known, other))
        self.assertEqual((found["predicted_from"], without["predicted_from"]), ("parts", "peaks"))
        of_part = parts["part_seconds"]
        self.assertGreater(found["compute_seconds"], sum(of_part[name][which] for name in ("attention", "mlp")
                                                         for which in ("forward", "backward")))
        self.assertGreater(found["communication_seconds"], 0)
        self.assertIn("of communication that nothing hides\n", known.out)
        self.assertRegex(other.out, r"note: \S+peaks.json has times of micro \d+, the deck has \d+; `trainstone calibrate")
        shown = run("explain", "zero3", "--deck", deck, *same, "--svg", "step.svg")
        self.assertEqual((shown.code, shown.err, shown.left), (0, "", ["step.svg"]), shown)
        self.assertIn("gather root into slot 0", shown.out)
        self.assertRegex(shown.out, r"rank 0 and 1 rank like it: ")
        self.assertIn("<svg", (shown.folder / "step.svg").read_text())
        traced = run("run", deck, *settings("trace.file=out/trace.json", "data.steps=3"), ranks=2)
        over = run("explain", "zero3", "--deck", deck, *same, "--trace", traced.folder / "out" / "trace.json")
        self.assertEqual((over.code, over.err), (0, ""), over)
        self.assertRegex(over.out, r"(?m)^measured step [0-9.]+ [mu]?s: the prediction is [0-9.]+ of it$")
        self.assertRegex(over.out, r"(?m)^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+  forward attention 0, micro-batch 0$")
        for other in ("ddp", "zero1", "hsdp"):
            group = ("--shard-group", 1) if other == "hsdp" else ()
            self.assertEqual(run("explain", other, "--deck", deck, *same, *group).code, 0, other)
        foreign = run("explain", "zero1", "--deck", deck, *same, "--trace", traced.folder / "out" / "trace.json")
        self.assertEqual(foreign.code, USAGE, foreign)
        refused = run("explain", "zero3", "--deck", deck, *same, *settings("batch.micro=2"))
        self.assertEqual(refused.code, USAGE, refused)
        self.assertIn("measures the parts", refused.err)
        self.check_report(traced.folder / "out", peaks, over.out)

    def check_report(self, results, peaks, explained):
        """A report of the run shows the timelines that explain prints, and says what it lacks."""
        report = run("report", results, "--machine", peaks)
        self.assertEqual((report.code, report.err), (0, ""), report)
        self.assertIn("report/out-timeline.svg\n", report.out)
        text = (report.folder / "report" / "report.md").read_text()
        lines = explained.splitlines()[1:]
        self.assertIn("\n".join(lines), text)
        self.assertRegex(text, r"(?m)^\| step \| [0-9.]+ [mu]?s \| [0-9.]+ [mu]?s \| [0-9.]+ \|$")
        page = xml.etree.ElementTree.parse(report.folder / "report" / "index.html").getroot()
        words = list(page.itertext())
        for label in ("collectives", "rank 0, measured", "collectives, measured"):
            self.assertEqual(words.count(label), 1, label)
        (results / "trace.json").unlink()
        without = run("report", results, "--machine", peaks)
        self.assertEqual((without.code, without.err), (0, ""), without)
        self.assertIn("There is no measured timeline", (without.folder / "report" / "report.md").read_text())
        alone = run("report", results)
        self.assertNotIn("timeline.svg", alone.out)
        self.assertIn("There is no predicted timeline", (alone.folder / "report" / "report.md").read_text())
        missing = run("report", results, "--machine", "none.json")
        self.assertEqual(missing.code, USAGE, missing)
        self.assertIn("none.json: cannot be read", missing.err)


class TerminalTest(unittest.TestCase):
    def test_a_terminal_shows_a_progress_line_with_the_time_left(self):
        terminal, end = pty.openpty()
        folder = new_folder()
        with subprocess.Popen([Context.program, "run", Deck({"data.steps": "100"}).path], cwd=folder,
                              env=environment(), stdin=subprocess.DEVNULL, stdout=end,
                              stderr=subprocess.STDOUT) as process:
            os.close(end)
            text = b""
            try:
                while part := os.read(terminal, 65536):
                    text += part
            except OSError:  # Linux says so when the last writer has gone
                pass
        os.close(terminal)
        self.assertEqual(process.returncode, 0, text.decode())
        drawn = text.decode().replace("\r\n", "\n").split("\r")
        self.assertGreater(len(drawn), 100, "redrawn after every step")
        self.assertRegex(drawn[2], r"^step     2/100 \| loss .* \| ETA \d+ s")
