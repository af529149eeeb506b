// SPDX-License-Identifier: MIT
//
// kdvfs-restore [--suspended | --snapshot] [--folder FOLDER] [GPU...]: puts back the clocks that a
// killed program has left changed, by what its restore record tells. For the epilog of a job
// scheduler, as the user who ran the job, or as root. Writes nothing where nothing is owed. GPUs
// are PCI addresses; none = all.
//
// --suspended      under a job that is frozen (Slurm's suspend, gang scheduling): its processes
//                  cannot do it, and neither can their watchdogs. They take up their clocks again
//                  when they go on.
// --snapshot       before a job, as root: keeps what the GPUs hold now. After the job root restores
//                  to that, whatever the job's records say; without it to the driver's default.
// --folder FOLDER  where the records are: FOLDER/0000:c1:00.0/record. Without it /run/kdvfs, and
//                  the user's own folder.
#include "leftovers.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace {

constexpr const char* usage =
    "usage: kdvfs-restore [--suspended | --snapshot] [--folder FOLDER] [GPU...]\n"
    "Puts back the clocks that a killed program has left changed. GPUs are PCI addresses; none = "
    "all.\n"
    "  --suspended      under a job that is frozen\n"
    "  --snapshot       keep what the GPUs hold now, before a job: root restores to that\n"
    "  --folder FOLDER  where the records are, else /run/kdvfs and the user's own folder\n";

/// Nothing where the words make no sense.
std::optional<restoring::Request> parse(int count, char** words) {
    restoring::Request request;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--help") {
            std::cout << usage;
            std::exit(EXIT_SUCCESS);
        }
        if (word == "--suspended") {
            request.suspended = true;
        } else if (word == "--snapshot") {
            request.snapshot = true;
        } else if (word == "--folder" && i + 1 < count) {
            request.folders.emplace_back(words[++i]);
        } else if (kdvfs::io::parse_pci_address(word)) {
            request.gpus.push_back(word);
        } else {
            std::cerr << "kdvfs-restore: neither an option nor a PCI address: " << word << '\n'
                      << usage;
            return std::nullopt;
        }
    }
    if (request.folders.empty()) request.folders = restoring::usual_folders();
    return request;
}

}  // namespace

int main(int argc, char** argv) try {
    const auto request = parse(argc, argv);
    if (!request) return 2;
    restoring::Leftovers leftovers{*request};
    const bool done = request->snapshot ? leftovers.keep_snapshots() : leftovers.settle();
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
    std::cerr << "kdvfs-restore: " << error.what() << '\n';
    return EXIT_FAILURE;
}
