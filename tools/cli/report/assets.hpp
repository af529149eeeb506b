// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

/// The files of tools/cli/assets, as they are.
namespace cli::assets {

extern const std::string_view vega;
extern const std::string_view vega_lite;
extern const std::string_view licences;
extern const std::string_view script;
extern const std::string_view style;

}  // namespace cli::assets
