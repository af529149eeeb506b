// SPDX-License-Identifier: MIT
#pragma once

/// Whose marker kernel the plugin brings: the host's and the plugin's are one.
struct [[gnu::visibility("default")]] PluginApi{};
