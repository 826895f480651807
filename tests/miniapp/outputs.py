"""What a run leaves when something beside the training goes wrong: a result that is there is lost by nothing."""
import json
import os
import re
import resource
import shutil
import signal
import unittest

from support import Deck, Started, run, settings

USAGE = 64
LATIN = os.fsdecode(b"mod\xe8le")  # no UTF-8


class OutputTest(unittest.TestCase):
    def assert_ended(self, outcome, code, *words):
        self.assertEqual(outcome.code, code, ascii(str(outcome)))
        for word in words:
            self.assertIn(word, outcome.out + outcome.err, ascii(str(outcome)))
        return outcome


class ResultFirst(OutputTest):
    """The trace goes below the result's own name, so that it cannot be written when that is there."""

    def test_a_trace_that_cannot_be_written_does_not_lose_the_result(self):
        trace = settings("trace.file=out/result.json/trace.json", "data.steps=3")
        for ranks in (1, 2):
            outcome = run("run", Deck().path, *trace, ranks=ranks)
            self.assert_ended(outcome, 70, "out/result.json/trace.json: cannot make its folder: Not a directory; the result is "
                              "in out/result.json")
            self.assertEqual((outcome.result["status"], len(outcome.losses)), ("UNREFERENCED", 3))

    def test_a_model_that_fills_the_disk_does_not_lose_the_result_and_leaves_nothing(self):
        deck = Deck({"model.layers": "4", "model.channels": "64", "model.save": '"model.bin"', "data.steps": "200",
                     "parallel.strategy": '"zero"', "parallel.zero_stage": "3"})
        running = Started("run", deck.path, wrapper=("bash", "-c", "trap '' XFSZ; exec \"$@\"", "_"))
        running.wait_for("step     1/")
        for rank in running.ranks():  # room for a result, and none for a model of 868 kB; MPI has its memory by now
            resource.prlimit(rank, resource.RLIMIT_FSIZE, (500000, 500000))
        self.assertEqual(running.ended(), 70, running.text())
        self.assertIn("model.bin: cannot write: File too large; the result is in out/result.json", running.text())
        self.assertEqual((running.result["status"], len(running.losses)), ("UNREFERENCED", 200))
        self.assertEqual(sorted(path.name for path in running.folder.iterdir()), ["out", "stdout"])


class Traces(OutputTest):
    def test_a_trace_keeps_as_many_events_as_it_may_and_says_how_many_it_leaves_out(self):
        deck = Deck({"trace.file": '"trace.json"', "data.validation_fraction": None, "data.validate_every": None})
        whole, first = run("run", deck.path, ranks=2), run("run", deck.path, *settings("trace.events=100"), ranks=2)
        events = {name: json.loads((outcome.folder / "trace.json").read_text()) for name, outcome in
                  (("whole", whole), ("first", first))}
        counts = {}
        for name, outcome in (("whole", whole), ("first", first)):
            self.assert_ended(outcome, 0, "trace written to trace.json\n", "memory-model")
            # a collective has two edges
            counts[name] = sum(event["ph"] in "Xb" for event in events[name])
        self.assertNotIn("trace.events", whole.out)
        self.assertEqual(counts["first"], 200)
        note = re.search(r"(?m)^note: the trace has the first 100 events of a rank \(trace\.events\): the last (\d+) of all ranks "
                         r"are not in it$", first.out)
        self.assertGreater(int(note[1]), 0)
        self.assertGreater(counts["whole"], 200)
        memory = [outcome.result["predicted"]["memory_bytes"]["buffers"] for outcome in (whole, first)]
        self.assertEqual(memory[0] - memory[1], 24 * ((1 << 20) - 100))

    def test_the_plan_shows_what_files_need(self):
        keys = settings("trace.file=t.json", "model.save=m.bin")
        shown = self.assert_ended(run("estimate", Deck().path, "--ranks", "2", *keys), 0)
        self.assertRegex(shown.out, r"(?m)^    trace\.file +25165824$")
        self.assertRegex(shown.out, r"(?m)^    model\.save +1048576$")
        unread = run("run", Deck().path, *settings("trace.events=5"))
        self.assert_ended(unread, USAGE, "trace.events", "trace.file")


class Folders(OutputTest):
    def test_a_folder_that_another_run_works_in_is_refused_until_that_has_ended(self):
        deck, long = Deck(), Deck({"data.steps": "100000", "data.validate_every": "0"})
        running = Started("run", long.path)
        running.wait_for("step     1/")
        into_it = ("--out", running.folder / "out")
        second = self.assert_ended(run("run", deck.path, *into_it), USAGE,
                                   f"--out {running.folder}/out: another run works in it")
        self.assertNotIn("step ", second.out)
        for rank in running.ranks():
            os.kill(rank, signal.SIGKILL)
        running.ended()
        self.assert_ended(run("run", deck.path, *into_it), 0, "\nRESULT: UNREFERENCED ")
        self.assertEqual([path.name for path in (running.folder / "out").iterdir()], ["result.json"])

    def test_results_and_checkpoints_may_lie_in_one_folder(self):
        outcome = run("run", Deck({"checkpoint.dir": '"out"'}).path)
        self.assert_ended(outcome, 0, "\nRESULT: UNREFERENCED ")
        self.assertIn("out/step-00000012/manifest", outcome.left)


class Texts(OutputTest):
    def test_names_that_are_no_utf8_are_replaced_in_the_result(self):
        deck = Deck()
        named = shutil.copy(deck.path, deck.folder / f"{LATIN}.toml")
        outcome = run("run", named, *settings(f"trace.file={LATIN}.json", "data.steps=3"),
                      variables={"SLURM_JOB_PARTITION": LATIN})
        self.assert_ended(outcome, 0, "\nRESULT: UNREFERENCED ")
        result = outcome.result
        self.assertRegex(result["deck"]["name"], "^mod\ufffdle.toml#")
        self.assertEqual(result["params"]["trace.file"]["value"], "mod\ufffdle.json")
        self.assertEqual(result["machine"]["environment"]["SLURM_JOB_PARTITION"], "mod\ufffdle")
        self.assertIn(f"{LATIN}.json", outcome.left)
