"""perf/compare/llmc gives llm.c's trainer the files that it reads, times it in turns with ours, and ends it in time.

usage: compare_llmc_test.py PROGRAM [unittest options]
A stand-in takes the place of llm.c; PROGRAM writes and reads files like those of a comparison.
"""
import array
import os
import pathlib
import sys
import tempfile
import types
import unittest

from compare_fixture import LOSSES, Comparing

from commands import load
from compare import comparison

llmc = load("compare/llmc")

PROGRAM = None
# writes as C does: at once to a terminal alone
THEIRS = f"""#!{sys.executable}
import io, json, os, pathlib, sys, time
sys.stdout = io.TextIOWrapper(open(1, "wb"), line_buffering=sys.stdout.isatty())
data = pathlib.Path("dev/data/tinyshakespeare")
found = [pathlib.Path("gpt2_124M.bin").read_text(), *(len((data / f"tiny_shakespeare_{{part}}.bin").read_bytes())
         for part in ("train", "val"))]
with open(os.environ["LOG"], "a") as file:
    print("T", os.getpid(), os.environ["OMP_NUM_THREADS"], *found, file=file)
losses = json.loads(os.environ.get("THEIR_LOSSES", "{LOSSES}"))
for step in range(41):
    if step % 10 == 0:
        print("val loss 6.5")
    if step == int(os.environ.get("ENDS", "-1")):
        sys.exit("out of luck")
    if step == 12:
        time.sleep(3600)
    print(f"step {{step}}: train loss {{(losses + [6.0] * 41)[step]}} (took {{900.0 if step == 0 else 200.0}} ms)")
"""
# its trainer for CUDA, whose shape and number of steps are options
ON_CUDA = f"""#!{sys.executable}
import json, os, pathlib, sys
sys.stdout = open(1, "w", buffering=1)
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert pathlib.Path(options["-e"]).read_text() == "a model" and options["-s"] == "0" and options["-c"] == "0"
sizes = [len(pathlib.Path(options[name]).read_bytes()) for name in ("-i", "-j")]
with open(os.environ["LOG"], "a") as file:
    print("T", *(options[name] for name in ("-b", "-t", "-x", "-l", "-k")), *sizes, file=file)
print("val loss 6.240000")
for step in range(int(options["-x"])):
    loss = ({LOSSES} + [6.0] * 41)[step]
    print(f"step {{step + 1:4d}}/{{options['-x']}} | loss {{loss:7.6f}} (+nanz)| norm 1.5000 (+nanz)| lr 1.00e-04 | "
          f"{{900.0 if step == 0 else 50.0:.2f}} ms | 45.1% bf16 MFU | 593000 tok/s")
print("total average iteration time: 50.0 ms")
"""


class Compared(Comparing):
    main = staticmethod(llmc.main)

    def setUp(self):
        super().setUp()
        self.theirs = self.write("train_gpt2", THEIRS)

    def tool(self, *arguments, **variables):
        return super().tool("--llmc", self.theirs, "2x128", *arguments, **variables)

    def test_turns_alternate_and_their_ratio_is_told(self):
        code, out = self.tool("--pairs", "6", "--steps", "3", "--threads", "4")
        self.assertEqual(code, 0, out)
        making, their_first, our_first, *turns = self.log()
        self.assertEqual((making[0], their_first[0], our_first[0]), ("O", "T", "O"))
        self.assertEqual("".join(words[0] for words in turns), "TOOTOTTOTOOT")
        row, = self.rows()
        self.assertEqual((row["shape"], row["mode"], row["precision"]), ("2x128", "llmc", "fp32"))
        self.assertEqual((row["their_steps"], row["our_steps"]), (18, 18))
        self.assertAlmostEqual(row["their_ms"], 200)
        self.assertAlmostEqual(row["ratio"], 2)
        self.assertEqual({tuple(words[2:]) for words in self.log() if words[0] == "T"},
                         {("4", "a", "model", "33794", "33794")})  # 1024 + 2 (64 x 4 x 64 + 1) bytes
        self.assertTrue(all(words[2] == "4" for words in self.log() if words[0] == "O"))

    def test_on_a_gpu_theirs_is_told_the_shape_and_ours_does_what_it_does(self):
        self.theirs = self.write("train_gpt2cu", ON_CUDA)
        code, out = self.tool("--device", "cuda", "--pairs", "2", "--steps", "4", "--set", "batch.global=16", "--set",
                              "data.sequence=128")
        self.assertEqual(code, 0, out)
        row, = self.rows()
        self.assertEqual((row["precision"], row["their_steps"], row["our_steps"]), ("bf16", 8, 8))
        self.assertAlmostEqual(row["their_ms"], 50)
        self.assertAlmostEqual(row["ratio"], 0.5)
        first, *turns = [words[1:] for words in self.log() if words[0] == "T"]
        size = str(1024 + 2 * (64 * 16 * 128 + 1))
        self.assertEqual(first, ["16", "128", "3", "1e-4", "constant", size, size])
        self.assertEqual(turns, [["16", "128", "5", "1e-4", "constant", size, size]] * 2)
        for words in (words for words in self.log() if words[0] == "O"):
            for part in ("precision.storage=bf16", "batch.global=16", "optimizer.clip=1"):
                self.assertIn(part, words)
            self.assertIn("optimizer.betas=[0.9, 0.95]", " ".join(words))

    def test_ours_starts_from_the_same_files_with_the_same_optimizer(self):
        self.tool("--pairs", "1")
        making, *running = [words for words in self.log() if words[0] == "O"]
        self.assertIn("optimizer.lr=1e-30", making)
        self.assertTrue(any(word.startswith("model.save=") for word in making))
        for words in running:
            text = " ".join(words)
            self.assertNotIn("model.save", text)
            for part in ("model.load=", "data.source=tokens", 'data.files=["', "batch.global=4", "data.sequence=64",
                         "optimizer.lr=1e-4", "optimizer.betas=[0.9, 0.999]", "optimizer.clip=0", "optimizer.weight_decay=0"):
                self.assertIn(part, text)

    def test_theirs_takes_few_steps_and_is_ended(self):
        self.tool("--pairs", "1", "--steps", "99", "--turn-seconds", "99")  # whoever waits for it does so for an hour
        self.assertEqual(self.rows()[0]["their_steps"], llmc.TRAINERS["cpu"].most_steps)
        for process in (int(words[1]) for words in self.log() if words[0] == "T"):
            with self.assertRaises(ProcessLookupError):
                os.kill(process, 0)

    def test_what_ends_early_says_why(self):
        self.assert_fails(1, "llm.c ended after 1 of 3 steps\nval loss 6.5", ENDS="1")
        self.assert_fails(1, "out of luck", ENDS="1")

    def test_other_trainings_and_runs_without_a_rate_are_refused(self):
        self.assert_fails(1, "loss of step 2: theirs 6.20000, ours 6.20200: they differ", OUR_LOSSES="[6.3, 6.202]")
        self.assert_fails(1, "an untrained model has 6.238", THEIR_LOSSES="[3.1, 3.0]")
        self.assert_fails(1, "exit 65: ", CODE="65", STATUS="INVALID")
        self.assert_fails(1, "our run is EMULATED: it has no rate", STATUS="EMULATED")

    def test_a_ratio_below_its_threshold_is_red(self):
        self.assertEqual(self.tool("--pairs", "1", "--at-least", "llmc-fp32=1.9")[0], 0)
        code, out = self.tool("--pairs", "1", "--at-least", "llmc-fp32=2.1")
        self.assertEqual((code, out.splitlines()[-1]), (1, "2x128 llmc-fp32: ratio 2.000 is below 2.1"))

    def test_bad_questions_are_usage_errors(self):
        self.assert_fails(64, "none is no program; `make train_gpt2`", "--llmc", "none")
        self.assert_fails(64, "--at-least llmc: nothing of that name", "--at-least", "llmc=1")
        self.assert_fails(64, "must be at most 65536: llm.c's tokens have 16 bits", VALUES='{"model.vocab": 65537}')
        self.assert_fails(64, "model.dropout is 0.1, must be 0", VALUES='{"model.dropout": 0.1}')


class Lines(unittest.TestCase):
    def read(self, text, count, patience=0.2, device="cpu"):
        reading, writing = os.pipe()
        os.write(writing, text.encode())
        try:
            return llmc.read_steps(reading, count, patience, llmc.TRAINERS[device].line)
        finally:
            os.close(reading)
            os.close(writing)

    def test_steps_are_read_when_their_lines_are_whole(self):
        lines = "[GPT-2]\r\nval loss 5.3\r\nstep 0: train loss 5.25 (took 1500.5 ms)\r\nstep 1: train loss nan (took 20 ms)\r\n"
        first, second = self.read(lines + "step 2: train loss 5.1 (took 3", 2)
        self.assertEqual(first, (5.25, 1.5005))
        self.assertEqual((str(second[0]), second[1]), ("nan", 0.02))
        with self.assertRaisesRegex(comparison.RunFailed, "has not made 3 steps in 0.2 seconds"):
            self.read(lines + "step 2: train loss 5.1 (took 3", 3)

    def test_steps_on_a_gpu_are_read(self):
        lines = ("| num_layers L          | 12 |\r\nstep    1/20 | loss 10.983121 (+nanz)| norm 15.3 (+nanz)| lr 1.00e-04 | 1234.50 ms "
                 "| 45.1% bf16 MFU | 593000 tok/s\r\nstep   10/20 | loss 9.5 (-1.00z)| norm 2 (+0.25z)| lr 1.00e-04 | 99.25 ms | 4")
        self.assertEqual(self.read(lines, 2, device="cuda"), [(10.983121, 1.2345), (9.5, 0.09925)])
        with self.assertRaises(comparison.RunFailed):
            self.read(lines[:-6], 2, device="cuda")


class Files(unittest.TestCase):
    def test_the_program_trains_from_the_files_that_it_gives_to_theirs(self):
        arguments = types.SimpleNamespace(program=PROGRAM, mpiexec="", ranks=1, threads=1, patience=60, device="cpu",
                                          set=["kernels.gemm=auto"])  # the same bits twice
        deck, keys, values = llmc.deck_of("2x128", arguments)
        with tempfile.TemporaryDirectory(prefix="trainstone-test-") as name:
            folder = pathlib.Path(name)
            ours = comparison.Ours(arguments, deck, llmc.make_files(folder, arguments, deck, keys, values))
            header = array.array("i", (folder / "gpt2_124M.bin").read_bytes()[:32])
            self.assertEqual(header.tolist(), [20240326, 3, 64, 512, 2, 4, 128, 512])
            first = ours.turn(1).losses
            self.assertLess(abs(first[0] - 6.24), 0.2)
            self.assertLess(first[2], first[0] - 0.1)  # all samples are alike: they are learnt at once
            fresh = comparison.Ours(arguments, deck, [key for key in ours.keys if not key.startswith("model.load")])
            self.assertEqual(fresh.turn(1).losses[0], first[0])  # the file has the initial values


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
