// SPDX-License-Identifier: MIT
#pragma once

/// Whose marker kernel the plugin brings: the host's and the plugin's are one.
struct PluginApi {
    static constexpr const char* name = "the plugin's API";
};
