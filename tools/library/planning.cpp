// SPDX-License-Identifier: MIT
// libkdvfs: profiles, plans and their files.
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/tune/limited_plan.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/power_swing.hpp>
#include <kdvfs/tune/predicted_costs.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/tune/validation.hpp>
