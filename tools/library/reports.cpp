// SPDX-License-Identifier: MIT
// libkdvfs: reports and records as files, traces, and the check of a board's own figures.
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/measure/trace.hpp>
