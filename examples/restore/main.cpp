// SPDX-License-Identifier: MIT
//
// kdvfs-restore [FOLDER]: puts the clocks of every AMD GPU back that a killed program has left
// changed, by what its journal tells. For the epilog of a job scheduler, as the user who ran the
// job, or as root. Writes nothing where nothing is owed. FOLDER: where the journals are, if not
// where programs of this user leave them.
#include <kdvfs/detail/restore/device_lock.hpp>
#include <kdvfs/detail/restore/journal.hpp>
#include <kdvfs/detail/restore/private_folder.hpp>
#include <kdvfs/device/amd/sysfs.hpp>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

namespace {

constexpr std::string_view words_for(kdvfs::detail::RestoreDecision decision) {
    switch (decision) {
        case kdvfs::detail::RestoreDecision::nothing: return "nothing to do";
        case kdvfs::detail::RestoreDecision::write_back: return "restored";
        case kdvfs::detail::RestoreDecision::leave_external:
            return "changed by someone else since: left";
    }
    return "";
}

/// @returns whether all is well
bool restore(const kdvfs::detail::PrivateFolder& folder, const kdvfs::device::amd::Card& card) {
    try {
        kdvfs::device::AmdgpuSysfs gpu{card};
        const kdvfs::detail::DeviceLock lock{folder, gpu.info().address};
        const kdvfs::detail::Journal journal{folder, gpu.info().address};
        std::cout << to_string(gpu.info()) << ": " << words_for(settle(journal, gpu)) << '\n';
        return true;
    } catch (const kdvfs::Error& error) {
        std::cerr << "kdvfs-restore: " << error.what() << '\n';
        return false;
    }
}

}  // namespace

int main(int argc, char** argv) try {
    const auto folder = argc > 1 ? kdvfs::detail::PrivateFolder{argv[1]}
                                 : kdvfs::detail::PrivateFolder::of_this_user();
    bool all_is_well = true;
    for (const auto& card : kdvfs::device::amd::find_cards()) {
        all_is_well = restore(folder, card) && all_is_well;
    }
    return all_is_well ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
    std::cerr << "kdvfs-restore: " << error.what() << '\n';
    return EXIT_FAILURE;
}
