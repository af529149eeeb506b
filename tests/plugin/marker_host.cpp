// SPDX-License-Identifier: MIT
//
// marker_host PLUGIN: opens a plugin that brings a marker kernel, closes it, and launches the
// kernel, as markers of the program's other parts would.
#include "marker_api.hpp"

#include <kdvfs/detail/device/marker_launch.hpp>

#include <dlfcn.h>

#include <iostream>

int main(int argc, char** argv) {
    if (argc < 2) return 1;
    void* const plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
        std::cerr << ::dlerror() << '\n';
        return 1;
    }
    if (::dlclose(plugin) != 0) return 1;
    const auto launch = kdvfs::device::marker_kernel_of_program<PluginApi>().load();
    if (launch == nullptr) {
        std::cerr << "the plugin's marker kernel is not the program's\n";
        return 2;
    }
    return launch(nullptr, {}) == 42 ? 0 : 3;
}
