// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/planner.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// Plan files obeyed at run time, through `FromPlan` policies.
namespace kdvfs::inline v0_3::tune {
namespace detail {

[[noreturn]] inline void distrust(const std::filesystem::path& path, const char* why,
                                  const char* remedy) {
    throw Error{Errc::invalid_input, {"read a plan", path.string(), why, remedy}};
}

}  // namespace detail

/// The text of a file that tells this process what to do: a regular file, its own or root's, not
/// writable by others, reached without following a link. The checks are on the file that was
/// opened, not on the path, so that nothing can be exchanged in between.
/// @throws Error (invalid_input, io)
inline std::string read_trusted_file(const std::filesystem::path& path) {
    constexpr off_t most_bytes = off_t{64} << 20;
    const kdvfs::detail::Descriptor file{
        ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (file.get() < 0 && errno == ELOOP)
        detail::distrust(path, "it is a symbolic link", "give the file itself");
    if (file.get() < 0)
        throw Error{Errc::io,
                    {"open a plan", path.string(), std::strerror(errno),
                     "check its name; kdvfs plan --format json -o FILE writes one"}};
    struct stat status {};
    if (::fstat(file.get(), &status) != 0)
        kdvfs::detail::throw_file_error("look at a plan", path, errno);
    if (!S_ISREG(status.st_mode))
        detail::distrust(path, "it is no regular file", "give a plan file");
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
        detail::distrust(path, "it belongs to another user", "copy it to a file of your own");
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        detail::distrust(path, "others may write to it", "chmod go-w it");
    if (status.st_size > most_bytes)
        detail::distrust(path, "it is larger than 64 MiB", "no plan is that large");
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + filled, text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) kdvfs::detail::throw_file_error("read a plan", path, errno);
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
    return text;
}

/// A plan as what `FromPlan` policies obey on a device.
/// @throws Error (invalid_input) for a plan of another GPU, for clocks that the device does not
/// list, and for a kernel that `is_obeyed` knows no `FromPlan` binding of
inline std::shared_ptr<const PlanTable> to_plan_table(
    const Plan& plan, const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed) {
    const auto reject = [](const std::string& object, const std::string& why) {
        throw Error{Errc::invalid_input,
                    {"obey a plan", object, why, "make a plan from this program's own profile"}};
    };
    if (plan.gpu != gpu_name(device))
        reject(to_string(device), "the plan is for another GPU, " + plan.gpu);
    auto table = std::make_shared<PlanTable>();
    for (const PlannedKernel& kernel : plan.kernels) {
        if (!is_obeyed(kernel.key.name))
            reject(to_string(kernel.key), "no FromPlan policy is bound to this kernel");
        if (!supports(clocks, kernel.clock))
            reject(to_string(kernel.key),
                   to_string(device) + " does not list " + to_string(kernel.clock));
        const Duration lasts = std::chrono::round<Duration>(kernel.expected.time);
        table->set(kernel.key, {true, kernel.clock, lasts});
    }
    return table;
}

/// A plan of segments as what scopes follow on a device.
/// @throws Error (invalid_input) for a plan of another GPU, and for clocks that the device does not
///         list
inline std::shared_ptr<const PlanTable> to_plan_table(PlannedSequence sequence,
                                                      const DeviceInfo& device,
                                                      const SupportedClocks& clocks) {
    const auto reject = [](const std::string& object, const std::string& why) {
        throw Error{Errc::invalid_input,
                    {"follow a plan", object, why, "make a plan from this program's own profile"}};
    };
    if (sequence.gpu != gpu_name(device))
        reject(to_string(device), "the plan is for another GPU, " + sequence.gpu);
    for (const PlannedSequence::Boundary& boundary : sequence.boundaries)
        if (!supports(clocks, boundary.clock))
            reject("launch " + std::to_string(boundary.before),
                   to_string(device) + " does not list " + to_string(boundary.clock));
    for (const PlannedSequence::Kernel& kernel : sequence.kernels)
        if (kernel.own.asks && !supports(clocks, kernel.own.point))
            reject(to_string(kernel.key),
                   to_string(device) + " does not list " + to_string(kernel.own.point));
    return kdvfs::to_plan_table(std::move(sequence));
}

/// The plan that the environment variable `KDVFS_PLAN` names, for a device; null where it is not
/// set. @throws Error as the functions it is made of
inline std::shared_ptr<const PlanTable> plan_from_environment(
    const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed) {
    const std::string path{kdvfs::detail::environment("KDVFS_PLAN")};
    if (path.empty()) return nullptr;
    const std::string text = read_trusted_file(path);
    if (has_sequence(text, path)) return to_plan_table(parse_sequence(text, path), device, clocks);
    return to_plan_table(parse_plan(text, path), device, clocks, is_obeyed);
}

/// The same for the kernels that a registry binds to `FromPlan`:
/// `gpu.with<Policies>(plan_from_environment<Policies>(gpu.info(), gpu.supported_clocks()))`.
template <class Registry>
std::shared_ptr<const PlanTable> plan_from_environment(const DeviceInfo& device,
                                                       const SupportedClocks& clocks) {
    return plan_from_environment(device, clocks, &Registry::obeys_plan_for);
}

}  // namespace kdvfs::inline v0_3::tune
