"""The optimizer's state and parameters on the host and in files: the same bits, what was moved, what the system has seen of
it, what happens to a file, and a model that does not fit into memory."""
import json
import os
import re
import signal

from support import Deck, Started, final_hash, new_folder, run, settings, start
from training import TrainingTest

KEYS = ("parallel.strategy=zero", "parallel.zero_stage=2", "memory.offload_chunk=5000 B")
LARGE = {"model.layers": "8", "model.channels": "256", "data.steps": "4", "data.validate_every": None,
         "data.validation_fraction": None, "kernels.gemm": '"kokkos"'}


CALLS = ("memory.io_engine=psync", "memory.direct_io=off")  # the system counts their bytes, in its cache or not

# Runs a command in a system that refuses io_uring_setup with EPERM, as that of many containers: the filter compares the
# number of the call, which is the same on all processors that Debian has.
WITHOUT_RINGS = ("python3", "-c", """
import ctypes, os, struct, sys
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7fff0000, 0x00050000 | 1
steps = ((LOAD, 0, 0, 0), (IF_EQUAL, 0, 1, 425), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program, 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
""")


class OffloadTest(TrainingTest):
    def check_another_residence(self, keys, key):
        """A training goes on from a checkpoint of its middle with another residence, and ends with the same bits."""
        kept = new_folder() / "kept"
        deck = Deck()
        whole = run("run", deck.path, *settings(*keys), ranks=2)
        keys = (*keys, f"checkpoint.dir={kept}", "checkpoint.every_steps=6")
        self.assert_ended(run("run", deck.path, *settings(*keys, f"{key}=file"), ranks=2), 0, "finite")
        newest = sorted(path for path in kept.iterdir() if path.is_dir())
        for path in newest[1:]:  # of the end
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        on_host = run("run", deck.path, *settings(*keys, f"{key}=host"), ranks=2)
        self.assert_ended(on_host, 0, "finite")
        self.assertEqual(on_host.result["checkpoints"]["resumed_step"], 6)
        self.assertEqual(final_hash(on_host), final_hash(whole))

    def counted_by_the_kernel(self, keys, offloads, names=("rchar", "wchar")):
        """What a run moves by its own counters, and the bytes that the system has read and written more than without. In
        rchar and wchar are calls of read and write, in read_bytes and write_bytes what went to a device."""
        words = ("bash", "-c", '"$@"; code=$?; cat /proc/$$/io; exit $code', "counted")
        deck = Deck(LARGE)
        ends = [start("run", deck.path, *settings(*keys, *more), wrapper=words) for more in ((), offloads)]
        bytes_of = []
        for end in ends:
            outcome = end.result()
            if outcome.code == 64 and "without direct access" in outcome.err:
                self.skipTest(outcome.err)
            self.assert_ended(outcome, 0, "finite")
            bytes_of.append([int(re.search(rf"^{name}: (\d+)$", outcome.out, re.M)[1]) for name in names])
        return outcome.result["counted"]["offload"], *(after - before for before, after in zip(*bytes_of))


class Moved(OffloadTest):
    def test_bits_are_the_same_and_moves_as_predicted(self):
        deck = Deck({"checkpoint.dir": '"kept"', "checkpoint.every_steps": "5"})
        futures = {residence: start("run", deck.path, *settings(*KEYS, f"memory.offload_optimizer={residence}"), ranks=2)
                   for residence in ("host", "file")}
        futures["none"] = start("run", deck.path, *settings(*KEYS[:2]), ranks=2)
        runs = {name: self.assert_ended(future.result(), 0, "memory-model") for name, future in futures.items()}
        self.assertEqual(len({final_hash(one) for one in runs.values()}), 1)
        self.assertEqual(len({str(one.losses) for one in runs.values()}), 1)
        self.assertNotIn("offload", runs["none"].result["predicted"])
        for name in ("host", "file"):
            result = runs[name].result
            moved = result["counted"]["offload"]
            self.assertEqual(result["predicted"]["offload"], moved)
            self.assertGreater(moved["to_kernels_bytes"], 0)
            self.assertEqual(moved["to_host_bytes"], 2 * moved["to_kernels_bytes"])  # gradients and parameters of fp32
            self.assertEqual(moved["read_bytes"], moved["file_bytes"])
            self.assertEqual(moved["written_bytes"], moved["file_bytes"])
            self.assertEqual(moved["file_bytes"] > 0, name == "file")
            self.assertIn("offload-volume", runs[name].out)

    def test_stages_that_compute_again_end_with_the_same_bits(self):
        deck = Deck({"model.layers": "4"})
        stages = ("parallel.pipeline=2", "memory.recompute=full")
        both = ("memory.offload_optimizer=file", "memory.offload_param=file", "memory.offload_chunk=5000 B")
        for ranks, keys, moves in ((2, ("parallel.strategy=ddp", "precision.recipe=mixed16"),
                                    (("memory.offload_optimizer=host",), both[:1], (*both[:1], both[2]))),
                                   (4, ("parallel.strategy=zero", "parallel.zero_stage=3"), (both,))):
            futures = [start("run", deck.path, *settings(*stages, *keys, *more), ranks=ranks) for more in ((), *moves)]
            whole, *moved = (self.assert_ended(future.result(), 0, "finite") for future in futures)
            for one in moved:
                with self.subTest(ranks=ranks):
                    self.assertEqual(final_hash(one), final_hash(whole))
                    self.assertEqual(one.losses, whole.losses)
                    self.assertEqual(one.result["predicted"]["offload"], one.result["counted"]["offload"])

    def test_a_training_goes_on_with_another_residence(self):
        self.check_another_residence((*KEYS[:2], "precision.recipe=mixed16"), "memory.offload_optimizer")

    def test_estimate_names_what_is_moved(self):
        deck = Deck()
        keys = settings(*KEYS, "memory.offload_optimizer=file")
        moved = self.assert_ended(run("run", deck.path, *keys, ranks=2), 0, "finite").result["counted"]["offload"]
        text = run("estimate", deck.path, *keys, "--ranks", 2).out
        for name, amount in (("to the host", "to_host_bytes"), ("to the kernels", "to_kernels_bytes"),
                             ("read from files", "read_bytes"), ("written to files", "written_bytes"),
                             ("in files, beside it", "file_bytes")):
            self.assertRegex(text, rf"{name} +{moved[amount]}\b")

    def test_estimate_says_where_memory_lies(self):
        deck = Deck()
        for keys in ((), ("memory.offload_optimizer=host",), ("memory.offload_optimizer=file",),
                     ("parallel.strategy=zero", "parallel.zero_stage=3", "memory.offload_param=host")):
            with self.subTest(keys):
                outcome = run("estimate", deck.path, *settings(*keys), "--ranks", 2, "--device-mem", "1TB")
                self.assertEqual(outcome.code, 0, outcome)
                amount = lambda name: re.search(rf"(?m)^ +{name} +\d+  \((.*)\)$", outcome.out)
                total, kernels, host = map(amount, ("total", "where kernels work", "on the host"))
                self.assertEqual(bool(keys), bool(kernels))
                self.assertIn(f"{(kernels or total)[1]} needed", outcome.out)
                self.assertEqual(bool(amount("in files, beside it")), "memory.offload_optimizer=file" in keys)
                if keys:
                    parts = [int(one[0].split()[-3]) for one in (kernels, host, total)]
                    self.assertEqual(parts[0] + parts[1], parts[2])
                    self.assertGreater(parts[1], 0)


class Parameters(OffloadTest):
    KEYS = ("parallel.strategy=zero", "parallel.zero_stage=3")

    def test_bits_are_the_same_and_moves_as_predicted(self):
        for ranks in (1, 2):
            deck = Deck({"data.validate_every": "5"})
            futures = {}
            for residence in ("none", "host", "file"):
                keys = (*self.KEYS, f"memory.offload_param={residence}", *(
                    ("memory.offload_optimizer=file", "memory.offload_chunk=5000 B") if residence == "file" else ()))
                futures[residence] = start("run", deck.path, *settings(*keys), ranks=ranks)
            runs = {name: self.assert_ended(future.result(), 0, "memory-model") for name, future in futures.items()}
            self.assertEqual(len({final_hash(one) for one in runs.values()}), 1)
            self.assertEqual(len({str(one.losses) for one in runs.values()}), 1)
            self.assertNotIn("offload", runs["none"].result["predicted"])
            for name in ("host", "file"):
                result = runs[name].result
                self.assertEqual(result["predicted"]["offload"], result["counted"]["offload"])
                self.assertIn("offload-volume", runs[name].out)
            self.assertEqual(runs["host"].result["counted"]["offload"]["read_bytes"], 0)
            self.assertGreater(runs["file"].result["counted"]["offload"]["read_bytes"], 0)
            self.assertEqual(runs["file"].result["counted"]["memory_bytes"]["parameters"], 0)

    def test_the_kernel_counts_what_is_read_and_written(self):
        moved, read, written = self.counted_by_the_kernel(self.KEYS, ("memory.offload_param=file", *CALLS))
        # beside, the start, the changes of parameters, the check of their values and hashes look at all of them
        looked_at = (read - 4 * moved["read_bytes"]) / moved["file_bytes"]
        self.assertGreaterEqual(looked_at, 4)
        self.assertLess(looked_at, 8)
        self.assertLess(abs(written - 4 * moved["written_bytes"] - moved["file_bytes"]), 1e6)

    def test_a_training_goes_on_with_another_residence(self):
        self.check_another_residence(self.KEYS, "memory.offload_param")

    def test_what_cannot_be_is_refused(self):
        deck = Deck()
        for keys, said in ((("memory.offload_param=nvme",), "none, host, file"),
                           (("memory.offload_param=file",), 'strategy "zero" with zero_stage = 3'),
                           (("parallel.strategy=zero", "parallel.zero_stage=2", "memory.offload_param=host"), "zero_stage = 2")):
            with self.subTest(keys):
                outcome = run("run", deck.path, *settings(*keys))
                self.assertEqual(outcome.code, 64, outcome)
                self.assertIn(said, outcome.err)


class System(OffloadTest):
    def test_the_kernel_counts_what_is_read_and_written(self):
        """Both runs do the same beside. The file is written once more before the first step, when its values are set."""
        self.check_bytes(*self.counted_by_the_kernel((), ("memory.offload_optimizer=file", *CALLS)))

    def test_what_goes_to_the_device_is_what_was_moved_with_either_engine(self):
        for engine in ("auto", "psync"):
            with self.subTest(engine):
                self.check_bytes(*self.counted_by_the_kernel(
                    (), ("memory.offload_optimizer=file", "memory.direct_io=on", f"memory.io_engine={engine}"),
                    ("read_bytes", "write_bytes")))

    def check_bytes(self, moved, read, written):
        self.assertGreater(moved["file_bytes"], 50e6)
        chunk = 2 * 16 * 2**20  # of the first chunk, read ahead for an update that does not come
        self.assertLess(abs(read - 4 * moved["read_bytes"] - chunk), chunk + 1e6)
        self.assertLess(abs(written - 5 * moved["written_bytes"]), 1e6)

    def test_resident_memory_falls_by_the_state(self):
        deck = Deck(LARGE)
        alone, file = (start("run", deck.path, *settings(*keys)) for keys in (
            (), ("memory.offload_optimizer=file", "memory.offload_chunk=1 MiB")))
        results = [self.assert_ended(one.result(), 0, "memory-model").result for one in (alone, file)]
        if results[0]["machine"]["device"]:
            self.skipTest("the state is in a device's memory")
        saved = results[0]["resident_bytes"] - results[1]["resident_bytes"]
        self.assertGreater(saved, 0.9 * results[0]["counted"]["memory_bytes"]["optimizer"] - 12 * 2**20)


class Engines(OffloadTest):
    FILE = (*KEYS, "memory.offload_optimizer=file")

    def test_the_run_says_which_engine_it_has_and_why_not_the_other_one(self):
        deck = Deck()
        runs = {engine: run("run", deck.path, *settings(*self.FILE, f"memory.io_engine={engine}"), ranks=2)
                for engine in ("auto", "psync", "io_uring")}
        files = {}
        for engine in ("auto", "psync"):
            files[engine] = self.assert_ended(runs[engine], 0, "finite").result["state_files"]
            how = "io_uring" if files[engine]["io_uring_ranks"] else "pread and pwrite"
            self.assertIn(f"files of state    in {files[engine]['folder']} by {how}, ", runs[engine].out)
        self.assertEqual((files["psync"]["io_uring_ranks"], files["psync"]["why_no_io_uring"]), (0, None))
        self.assertEqual(final_hash(runs["auto"]), final_hash(runs["psync"]))
        why_not = files["auto"]["why_no_io_uring"]
        self.assertEqual(files["auto"]["io_uring_ranks"], 0 if why_not else 2)
        if why_not:
            self.assertIn(f"(no io_uring: {why_not})", runs["auto"].out)
            self.assertEqual(runs["io_uring"].code, 64, runs["io_uring"])
            self.assertIn(f'memory.io_engine = "io_uring": {why_not}; nearest legal values: auto, psync', runs["io_uring"].err)
        else:
            self.assert_ended(runs["io_uring"], 0, "finite")
            self.assertEqual(runs["io_uring"].result["state_files"], files["auto"])
            self.assertEqual(final_hash(runs["io_uring"]), final_hash(runs["auto"]))

    def test_a_run_goes_on_without_a_ring_where_the_system_refuses_it(self):
        deck = Deck()
        refused, free = (run("run", deck.path, *settings(*self.FILE), ranks=2, wrapper=words) for words in (WITHOUT_RINGS, ()))
        if refused.code == 77:
            self.skipTest("calls of the system cannot be refused here")
        for outcome in (refused, free):
            self.assert_ended(outcome, 0, "finite")
        self.assertEqual(final_hash(refused), final_hash(free))
        files = refused.result["state_files"]
        self.assertEqual((files["ranks"], files["io_uring_ranks"]), (2, 0))
        self.assertIn(files["why_no_io_uring"], ("the system refuses io_uring: Operation not permitted",
                                                 "this program was built without liburing"))
        outcome = run("run", deck.path, *settings(*self.FILE, "memory.io_engine=io_uring"), ranks=2, wrapper=WITHOUT_RINGS)
        self.assertEqual(outcome.code, 64, outcome)
        self.assertIn(files["why_no_io_uring"], outcome.err)

    def test_calibrate_says_how_it_has_measured(self):
        outcome = run("calibrate", "-e", "4K", "--out", "peaks.json")
        self.assertEqual(outcome.code, 0, outcome)
        files = json.loads((outcome.folder / "peaks.json").read_text())["offload"]["files"]
        how = "io_uring" if files["io_uring_ranks"] else "pread and pwrite"
        self.assertEqual(files["ranks"], 1)
        for name, rate in json.loads((outcome.folder / "peaks.json").read_text())["offload"].items():
            if name != "files":
                self.assertGreater(rate, 0, name)
        self.assertIn(f"# in {files['folder']} by {how}, ", outcome.out)


class Files(TrainingTest):
    def test_nothing_is_left_of_a_run_that_is_killed(self):
        folder = new_folder()
        deck = Deck({"data.steps": "1000000"})
        started = Started("run", deck.path, *settings("memory.offload_optimizer=file", f"memory.folder={folder}"))
        started.wait_for("step ")
        self.assertEqual(list(folder.iterdir()), [])
        for rank in started.ranks():
            os.kill(rank, signal.SIGKILL)
        started.ended()
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_file_that_is_cut_ends_the_run_and_the_last_checkpoint_stands(self):
        folder, kept = new_folder(), new_folder() / "kept"
        deck = Deck({"data.steps": "1000000"})
        keys = settings("memory.offload_optimizer=file", f"memory.folder={folder}", f"checkpoint.dir={kept}",
                        "checkpoint.every_steps=5", "checkpoint.keep=2")
        started = Started("run", deck.path, *keys)
        while not list(kept.glob("step*")):
            started.wait_for("step ")
        rank = started.ranks()[0]
        (number,) = [one for one in os.listdir(f"/proc/{rank}/fd")
                     if os.path.realpath(f"/proc/{rank}/fd/{one}").startswith(f"{folder}/")]
        os.truncate(f"/proc/{rank}/fd/{number}", 0)
        self.assertEqual(started.ended(), 70, started.text())
        self.assertRegex(started.text(), rf"trainstone: rank \d: file without a name in {folder}: ends at byte \d+")
        again = run("run", deck.path, *keys, *settings("data.steps=1000000"), "--max-time", "1 s", ranks=2)
        self.assertEqual(again.code, 75, again)

    def test_a_full_disk_ends_the_run_before_it_begins(self):
        words = ("bash", "-c", 'trap "" XFSZ; ulimit -f 32768; exec "$@"', "limited")
        folder = new_folder()
        outcome = run("run", Deck(LARGE).path, *settings("memory.offload_optimizer=file", f"memory.folder={folder}"),
                      wrapper=words)
        self.assertEqual(outcome.code, 70, outcome)
        self.assertRegex(outcome.err, rf"file without a name in {folder}: no room for \d+ bytes: File too large")

    def test_calibrate_goes_without_rates_of_a_file_for_which_there_is_no_folder(self):
        outcome = run("calibrate", "-e", "4K", "--out", "peaks.json", variables={"TMPDIR": "/no-such-folder"})
        self.assertEqual(outcome.code, 0, outcome)
        self.assertIn("# no rates of copies and files: ", outcome.out)
        self.assertNotIn('"offload"', (outcome.folder / "peaks.json").read_text())

    def test_what_cannot_be_is_refused(self):
        deck = Deck()
        for keys, said in ((("memory.offload_optimizer=nvme",), "none, host, file"),
                           (("memory.offload_optimizer=file", "memory.folder=no-such-folder"), "is no folder"),
                           (("memory.offload_optimizer=host", "memory.folder=/tmp"), 'memory.offload_optimizer = "file"'),
                           (("memory.io_engine=psync",), 'memory.offload_optimizer = "file"'),
                           (("memory.offload_optimizer=file", "memory.io_engine=libaio"), "auto, io_uring, psync"),
                           (("memory.offload_chunk=1 MiB",), 'memory.offload_optimizer = "host" or "file"'),
                           (("memory.offload_optimizer=file", "memory.offload_chunk=0 B"), "above 0"),
                           (("memory.offload_optimizer=file", "parallel.strategy=naive"), 'strategy "ddp", "zero"')):
            with self.subTest(keys):
                outcome = run("run", deck.path, *settings(*keys))
                self.assertEqual(outcome.code, 64, outcome)
                self.assertIn(said, outcome.err)
