// SPDX-License-Identifier: MIT
//
// host PLUGIN [leaking]: opens a plugin, lets it work, closes it while its threads are at work, and
// ends. The plugin ends the process with 3 where its clocks were not put back.
#include <dlfcn.h>

#include <chrono>
#include <iostream>
#include <thread>

int main(int argc, char** argv) {
    if (argc < 2) return 1;
    void* const plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
        std::cerr << ::dlerror() << '\n';
        return 1;
    }
    const auto enter = reinterpret_cast<int (*)(bool)>(::dlsym(plugin, "plugin_enter"));
    if (enter == nullptr || enter(argc > 2) != 0) return 2;
    if (::dlclose(plugin) != 0) return 1;
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
}
