// SPDX-License-Identifier: MIT
#pragma once

/// What the host asks a module to open the GPU with; 0 where nothing is asked.
struct ModuleOptions {
    bool measures = false;
    unsigned never_below = 0;
    unsigned never_above = 0;
    unsigned latency_ms = 0;
};

/// What the host knows of a module: nothing of kdvfs.
class Module {
public:
    virtual ~Module() = default;
    /// @returns whether the GPU was opened; `words` says why not
    virtual bool open(const ModuleOptions& options) = 0;
    [[nodiscard]] virtual const char* words() const = 0;
    /// What tells GPU objects apart.
    [[nodiscard]] virtual const void* gpu() const = 0;
    [[nodiscard]] virtual bool measures_only() const = 0;
    virtual void request(unsigned megahertz) = 0;
    virtual void close() = 0;
};
