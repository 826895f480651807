"""What the program says without training: help, version, keys, the resolved deck, estimates; and the progress line."""
import os
import pty
import re
import subprocess
import unittest

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
        sections = re.split(r"(?m)^\[(.+)\]$", printed)[1:]
        resolved = [f"{section}.{key}" for section, body in zip(sections[::2], sections[1::2])
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
