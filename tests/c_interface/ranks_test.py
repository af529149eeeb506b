# SPDX-License-Identifier: MIT
"""Ranks of a job, through doubles of torch.distributed's store and through files in a folder."""

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import kdvfs


class TcpStore:
    """A double of torch.distributed.TCPStore for threads: bytes come back, waiting ends with RuntimeError."""

    def __init__(self):
        self.values, self.changed, self.calls, self.dead = {}, threading.Condition(), 0, False

    def _begin(self):
        if self.dead:
            raise RuntimeError("Connection reset by peer")
        self.calls += 1

    def set(self, key, value):
        with self.changed:
            self._begin()
            self.values[key] = value.encode() if isinstance(value, str) else value
            self.changed.notify_all()

    def get(self, key):
        self.wait([key], datetime.timedelta(seconds=300))
        return self.values[key]

    def add(self, key, amount):
        with self.changed:
            number = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(number).encode()
            self.changed.notify_all()
            return number

    def check(self, keys):
        with self.changed:
            self._begin()
            return all(key in self.values for key in keys)

    def wait(self, keys, timeout):
        with self.changed:
            self._begin()
            there = lambda: self.dead or all(key in self.values for key in keys)  # noqa: E731
            if not self.changed.wait_for(there, timeout.total_seconds()):
                raise RuntimeError("Socket Timeout")
            if self.dead:
                raise RuntimeError("Connection reset by peer")

    def delete_key(self, key):
        with self.changed:
            return self.values.pop(key, None) is not None


class OlderStore(TcpStore):
    """As of PyTorch 1.13, which cannot be asked whether a key is there."""

    check = property()


def on_ranks(size, work, store=None, timeout=10.0):
    """What `work(ranks)` returns, or the error that it raises, by rank: a thread each."""
    store = store or TcpStore()
    made = [kdvfs.Ranks(store, rank, size, timeout) for rank in range(size)]
    for ranks in made:
        ranks._prefix = made[0]._prefix  # in processes of their own all count from 0
    results = [None] * size

    def run(rank):
        try:
            results[rank] = work(made[rank])
        except kdvfs.Error as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    return results


class Exchange(unittest.TestCase):
    def test_every_rank_has_what_every_rank_gave(self):
        results = on_ranks(8, lambda ranks: [ranks.all_gather([ranks.rank, step]) for step in range(20)])
        expected = [[[rank, step] for rank in range(8)] for step in range(20)]
        self.assertEqual(results, [expected] * 8)

    def test_rank_0_speaks_to_all_and_hears_all(self):
        def work(ranks):
            said = ranks.broadcast({"plan": 7} if ranks.rank == 0 else None)
            ranks.barrier()
            return said, ranks.gather(ranks.rank**2)

        results = on_ranks(5, work)
        self.assertEqual(results[0], ({"plan": 7}, [0, 1, 4, 9, 16]))
        self.assertEqual(results[1:], [({"plan": 7}, None)] * 4)

    def test_energies_add_up_and_the_longest_time_counts(self):
        results = on_ranks(4, lambda ranks: ranks.combine(10.0 + ranks.rank, float(ranks.rank)))
        self.assertEqual(results, [(46.0, 3.0)] * 4)

    def test_a_single_rank_needs_no_store(self):
        ranks = kdvfs.Ranks(rank=0, size=1)
        self.assertEqual((ranks.all_gather(3), ranks.gather(4), ranks.broadcast(5)), ([3], [4], 5))
        self.assertEqual(ranks.combine(2.0, 3.0), (2.0, 3.0))
        self.assertIsNone(ranks.barrier())

    def test_the_store_does_not_grow(self):
        store = TcpStore()
        on_ranks(8, lambda ranks: [ranks.all_gather(step) for step in range(50)], store)
        self.assertLessEqual(len(store.values), 8)

    def test_64_ranks_exchange_a_plan_of_100_kb_in_little_time(self):
        plan = "x" * 100_000
        store, took = TcpStore(), []

        def work(ranks):
            for _ in range(3):
                begin = time.monotonic()
                ranks.gather(ranks.rank)
                ranks.broadcast(plan if ranks.rank == 0 else None)
                took.append(time.monotonic() - begin)

        on_ranks(64, work, store)
        print(f"64 ranks (threads): gather and plan in {statistics.median(took) * 1e3:.1f} ms, "
              f"{store.calls / 6 / 64:.1f} calls of the store a rank and exchange")
        self.assertLess(store.calls, 6 * 64 * 5)
        self.assertLess(statistics.median(took), 2.0)


class Failures(unittest.TestCase):
    def refused(self, error, code, *words):
        self.assertIsInstance(error, kdvfs.Error)
        self.assertEqual(error.code, code, error)
        for each in words:
            self.assertIn(each, str(error))

    def test_silent_ranks_are_named_to_all_in_time(self):
        begin = time.monotonic()
        results = on_ranks(6, lambda ranks: None if ranks.rank in (2, 5) else ranks.all_gather(1), timeout=1.0)
        self.assertLess(time.monotonic() - begin, 2.0)
        for rank in (0, 1, 3, 4):
            self.refused(results[rank], "timed_out", "ranks 2, 5 sent nothing", "longer timeout")

    def test_a_silent_rank_0_is_named(self):
        for store in (TcpStore(), OlderStore()):
            self.assertEqual(hasattr(store, "check"), type(store) is TcpStore)
            results = on_ranks(3, lambda ranks: None if ranks.rank == 0 else ranks.barrier(), store, timeout=0.5)
            for rank in (1, 2):
                self.refused(results[rank], "timed_out", "rank 0 sent nothing")

    def test_later_calls_raise_at_once(self):
        def work(ranks):
            if ranks.rank == 1:
                return None
            with self.assertRaises(kdvfs.Error):
                ranks.barrier()
            begin = time.monotonic()
            with self.assertRaises(kdvfs.Error):
                ranks.barrier()
            return time.monotonic() - begin

        self.assertLess(on_ranks(2, work, timeout=0.5)[0], 0.1)

    def test_other_calls_on_other_ranks_are_named(self):
        work = lambda ranks: ranks.barrier() if ranks.rank == 2 else ranks.all_gather(1)  # noqa: E731
        for error in on_ranks(3, work):
            self.refused(error, "invalid_input", "rank 0 calls all_gather and rank 2 barrier", "same order")

    def test_a_store_that_dies_is_no_silent_rank(self):
        store = TcpStore()

        def work(ranks):
            if ranks.rank == 1:
                time.sleep(0.2)
                with store.changed:
                    store.dead = True
                    store.changed.notify_all()
                return None
            return ranks.barrier()

        self.refused(on_ranks(2, work, store)[0], "io", "the store failed: Connection reset by peer")

    def test_what_json_does_not_know_is_refused_and_nothing_is_sent(self):
        ranks = kdvfs.Ranks(TcpStore(), 0, 2)
        with self.assertRaises(kdvfs.Error) as caught:
            ranks.all_gather(object())
        self.refused(caught.exception, "invalid_input", "what JSON knows")
        self.assertEqual(ranks._store.values, {})


class Jobs(unittest.TestCase):
    def test_ranks_search_a_power_limit_together(self):
        def work(ranks):
            with kdvfs.open_simulated("mi250x", seed=ranks.rank + 1) as gpu:
                with kdvfs.PowerLimit(gpu, goal="energy", warmup_steps=2, measured_steps=10, ranks=ranks) as limit:
                    while not limit.done:
                        seconds, joules = gpu.totals()
                        limit.step(joules, seconds)
                        gpu.launch(matrix_flops=4e12, memory_bytes=4e9)
                        gpu.synchronize()
                    return limit.best

        best = on_ranks(3, work)
        self.assertGreater(best[0], 100)
        self.assertEqual(best, [best[0]] * 3)

    def test_all_follow_the_plan_that_rank_0_reads(self):
        def work(ranks):
            with kdvfs.open_simulated("h100") as gpu:
                ranks.follow_plan(gpu, "/nonexistent/plan.json")

        for error in on_ranks(2, work):
            self.assertEqual(error.code, "io")
            self.assertIn("as rank 0 sees it", str(error))

    def test_a_plan_that_others_may_have_written_is_refused_on_all_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            plan, writable, link, pipe = (os.path.join(folder, name) for name in ("plan", "writable", "link", "pipe"))
            for file in (plan, writable):
                with open(file, "w") as text:
                    text.write("{}")
            os.chmod(plan, 0o644)
            os.chmod(writable, 0o666)
            os.symlink(plan, link)
            os.mkfifo(pipe, 0o600)

            def work(ranks, file):
                with kdvfs.open_simulated("h100") as gpu:
                    ranks.follow_plan(gpu, file)

            for file, why in (
                (writable, "others may write to it; chmod go-w it"),
                (link, "symbolic link"),
                (pipe, "it is no regular file"),
                (plan, "plan"),  # read, and found to be none
            ):
                for error in on_ranks(2, lambda ranks: work(ranks, file)):
                    self.assertIsInstance(error, kdvfs.Error)
                    self.assertIn(why, str(error))

    def test_each_rank_of_a_session_sweeps_into_a_file_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "KDVFS_MODE": f"sweep:{folder}/profile.csv", "WORLD_SIZE": "2"}
            program = ("import kdvfs\n"
                       "with kdvfs.open_simulated('h100', meter_every=1) as gpu:\n"
                       "    gpu.begin_session()\n"
                       "    for _ in range(3000):\n"
                       "        gpu.next_iteration()\n"
                       "        with gpu.scope('gemm'): gpu.launch(matrix_flops=8e12)\n"
                       "        gpu.synchronize()\n")
            runs = [subprocess.Popen([sys.executable, "-c", program], env={**environment, "RANK": str(rank)})
                    for rank in range(2)]
            self.assertEqual([run.wait(60) for run in runs], [0, 0])
            names = sorted(name for name in os.listdir(folder) if name.startswith("profile.rank") and
                           name.count(".") == 2)
            self.assertEqual(names, ["profile.rank0.csv", "profile.rank1.csv"], os.listdir(folder))


PROCESS = """
import sys, time, kdvfs
ranks = kdvfs.Ranks(kdvfs.FolderStore(sys.argv[1], job="test"), timeout=float(sys.argv[2]))
if ranks.rank == int(sys.argv[3]):
    sys.exit(0)
begin = time.monotonic()
got = [ranks.all_gather([ranks.rank, step])[-1] for step in range(20)]
print((time.monotonic() - begin) / 20)
assert got == [[ranks.size - 1, step] for step in range(20)], got
"""


def processes(folder, size, timeout, dead=-1):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    command = [sys.executable, "-c", PROCESS, folder, str(timeout), str(dead)]
    runs = [subprocess.Popen(command, env={**environment, "RANK": str(rank), "WORLD_SIZE": str(size)},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(size)]
    return [(*run.communicate(timeout=60), run.returncode) for run in runs]


class Folder(unittest.TestCase):
    def test_processes_exchange_through_files(self):
        with tempfile.TemporaryDirectory() as folder:
            done = processes(folder, 4, 30)
            self.assertEqual([code for _, _, code in done], [0] * 4, done)
            took = max(float(out) for out, _, _ in done)
            print(f"4 processes through files: {took * 1e3:.1f} ms an exchange")
            self.assertLessEqual(len(os.listdir(os.path.join(folder, "kdvfs-test"))), 4 + 5)  # 5 of joining

    def test_what_earlier_runs_of_the_job_have_left_is_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            store = kdvfs.FolderStore(folder, job="test")
            left = {"call": "all_gather", "value": [[-1, -1]]}
            for run in ("", "0123456789abcdef-"):
                store._run = run
                store.set("kdvfs/0/0/0/answer", json.dumps(left))
                store.set("kdvfs/0/0/0/1", json.dumps(left))
                store.set("join/answer", json.dumps({"tokens": ["fedcba9876543210"], "silent": []}))
            store._run = ""
            store.set("run", "0123456789abcdef")
            for _ in range(3):
                done = processes(folder, 3, 30)
                self.assertEqual([code for _, _, code in done], [0] * 3, done)

    def test_a_dead_process_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = processes(folder, 3, 2, dead=1)
            self.assertEqual([code for _, _, code in done], [1, 0, 1])
            for rank in (0, 2):
                self.assertIn("rank 1 sent nothing", done[rank][1])

    def test_folders_of_others_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "kdvfs-open"))
            os.chmod(os.path.join(folder, "kdvfs-open"), 0o777)
            os.mkdir(os.path.join(folder, "elsewhere"))
            os.symlink(os.path.join(folder, "elsewhere"), os.path.join(folder, "kdvfs-link"))
            jobs = ["open", "link"]
            if os.getuid() == 0:
                os.mkdir(os.path.join(folder, "kdvfs-owned"), 0o700)
                os.chown(os.path.join(folder, "kdvfs-owned"), 12345, 12345)
                jobs.append("owned")
            for job in jobs:
                with self.assertRaises(kdvfs.Error) as caught:
                    kdvfs.FolderStore(folder, job=job)
                self.assertEqual(caught.exception.code, "refused")

    def test_jobs_do_not_mix(self):
        with tempfile.TemporaryDirectory() as folder:
            one, other = kdvfs.FolderStore(folder, job="1"), kdvfs.FolderStore(folder, job="2")
            one.set("a", "x")
            self.assertFalse(other.check(["a"]))
            one.remove()
            self.assertEqual(os.listdir(folder), ["kdvfs-2"])


if __name__ == "__main__":
    unittest.main()
