// SPDX-License-Identifier: MIT
//
// virtual_amdgpu_tree FOLDER: writes two virtual GPUs (MI210, MI300X), as they are at rest, as
// plain files below FOLDER/sys: for tools that show a program another /sys.
#include "machine.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: virtual_amdgpu_tree FOLDER\n";
        return 1;
    }
    using virtual_amdgpu::Node;
    const std::string root = argv[1];
    const virtual_amdgpu::Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x()}};
    std::filesystem::remove_all(root + "/sys");
    for (const auto& [path, node] : machine.nodes()) {
        switch (node.kind) {
            case Node::Kind::folder: std::filesystem::create_directories(root + path); break;
            case Node::Kind::link: std::filesystem::create_symlink(node.target, root + path); break;
            case Node::Kind::file: std::ofstream{root + path} << node.read(); break;
        }
    }
}
