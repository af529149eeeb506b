// SPDX-License-Identifier: MIT
// libkdvfs: attribution, reports and records as files, traces, and the check of a board's own
// figures.
#include <kdvfs/detail/measure/accumulator_work.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/measure/trace.hpp>
