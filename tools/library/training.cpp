// SPDX-License-Identifier: MIT
// libkdvfs: batch sizes, pipelines, their plans and files, and the power of a node.
#include <kdvfs/train/batch_size.hpp>
#include <kdvfs/train/folder_ranks.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/node_power.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/pipeline_estimate.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/train/schedules.hpp>
