# SPDX-License-Identifier: MIT
"""The Python package on an AMD GPU: a virtual board, doubles of libamdhip64 and of libhiprtc."""

import os
import time
import unittest

import kdvfs

has_compiler = "HIPRTC_DOUBLE_FAILS" not in os.environ


def rows(gpu):
    return {row["kernel"]: row for row in gpu.report()["rows"]}


def core_clock_limit():
    with open("/sys/control/gpu0", encoding="ascii") as settings:
        return float(settings.read().split()[2])


def becomes(value, wanted, seconds=2.0):
    end = time.monotonic() + seconds
    while value() != wanted and time.monotonic() < end:
        time.sleep(0.005)
    return value()


class Measures(unittest.TestCase):
    def test_scopes_are_timed_by_the_marker_kernel_that_hiprtc_compiles(self):
        if not has_compiler:
            self.skipTest("no hipRTC here")
        with kdvfs.measure("amd", 0, meter_every=1) as gpu:
            notes = gpu.report()["notes"]
            self.assertTrue(any("one-thread kernels" in note for note in notes), notes)
            start = time.monotonic()
            for _ in range(5):
                gpu.next_iteration()
                with gpu.scope("attention"):
                    time.sleep(0.02)  # the double's stream has nothing else to do
            took = time.monotonic() - start
            # The report has a scope once its markers have been collected.
            becomes(lambda: rows(gpu).get("attention", {}).get("calls"), 5)
            row = rows(gpu)["attention"]
            self.assertEqual(row["calls"], 5)
            # Markers are put on the stream's own thread, which comes late on a busy host.
            self.assertGreater(row["time_s"], 0.1 - 0.05)
            self.assertLess(row["time_s"], took + 0.05)
            self.assertTrue(gpu.measure_only)

    def test_without_hiprtc_there_are_other_ways(self):
        if has_compiler:
            self.skipTest("hipRTC is here")
        with kdvfs.measure("amd", 0, meter_every=1) as gpu:
            notes = gpu.report()["notes"]
            self.assertFalse(any("one-thread kernels" in note for note in notes), notes)
            gpu.next_iteration()
            with gpu.scope("attention"):
                time.sleep(0.02)
            gpu.next_iteration()
            becomes(lambda: rows(gpu).get("attention", {}).get("calls"), 1)
            self.assertEqual(rows(gpu)["attention"]["calls"], 1)


class Drives(unittest.TestCase):
    def test_a_scope_has_its_clock_and_restores_the_board(self):
        before = core_clock_limit()
        with kdvfs.open("amd", 0, switch_latency=0) as gpu:
            with gpu.scope("attention", core_mhz=900):
                self.assertEqual(becomes(core_clock_limit, 900), 900)
            self.assertEqual(becomes(core_clock_limit, before), before)
        self.assertEqual(core_clock_limit(), before)


if __name__ == "__main__":
    unittest.main()
