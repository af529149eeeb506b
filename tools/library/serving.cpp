// SPDX-License-Identifier: MIT
// libkdvfs: plans of serving steps, pools of instances, and what a recorded table recommends.
#include <kdvfs/serve/pool.hpp>
#include <kdvfs/serve/pool_controller.hpp>
#include <kdvfs/serve/recommend.hpp>
#include <kdvfs/serve/request_ledger.hpp>
#include <kdvfs/serve/steady_state.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_table.hpp>
