// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/train/stage_requests.hpp>
#include <kdvfs/detail/train/stage_scopes.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>
#include <tools/attach/process.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace attach {

/// An operation of a pipeline, as a range names it.
struct NamedOperation {
    kdvfs::train::Pass pass = kdvfs::train::Pass::forward;
    std::optional<std::uint32_t> microbatch{};
    std::optional<std::uint32_t> chunk{};

    [[nodiscard]] bool names(const kdvfs::train::Operation& operation) const {
        return operation.pass == pass &&
               operation.microbatch == microbatch.value_or(operation.microbatch) &&
               operation.chunk == chunk.value_or(operation.chunk);
    }
};

/// Ranges that begin with the name of a pass: "forward", "backward 3", "backward_weight m3 c1". The
/// first number is the microbatch, the second the chunk.
inline constexpr const char* operation_ranges =
    "^(forward|backward)(_input|_weight)?([^A-Za-z_]|$)";

/// @returns nothing for the name of another range
inline std::optional<NamedOperation> operation_of(std::string_view range) {
    using kdvfs::train::Pass;
    const auto is_of_word = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const auto word_end = std::find_if_not(range.begin(), range.end(), is_of_word);
    const std::string_view word =
        range.substr(0, static_cast<std::size_t>(word_end - range.begin()));
    NamedOperation named;
    constexpr std::array passes{Pass::forward, Pass::backward, Pass::backward_input,
                                Pass::backward_weight};
    const auto found = std::find_if(passes.begin(), passes.end(),
                                    [&](Pass pass) { return to_string(pass) == word; });
    if (found == passes.end()) return std::nullopt;
    named.pass = *found;
    std::optional<std::uint32_t> number;
    const auto take = [&] {
        if (!number) return;
        if (!named.microbatch)
            named.microbatch = number;
        else if (!named.chunk)
            named.chunk = number;
        number.reset();
    };
    for (const char c : range.substr(word.size())) {
        if (c >= '0' && c <= '9')
            number = std::min(number.value_or(0), 100'000'000U) * 10 +
                     static_cast<std::uint32_t>(c - '0');
        else
            take();
    }
    take();
    return named;
}

/// The ranges of a program as the operations of one stage, at the clocks of its plan. Where another
/// operation comes than the next one, clocks are left to the driver until an iteration begins: with
/// the range that is one, with the first operation by its number, or where all have been run.
/// Thread-safe.
class PipelineRanges {
public:
    using Entered = kdvfs::train::StageScopes::Entered;

    /// @param service must outlive this
    /// @throws Error (invalid_input) for clocks that the device does not list
    PipelineRanges(kdvfs::extend::GpuService& service, kdvfs::train::Pipeline pipeline,
                   std::uint32_t stage, kdvfs::train::StageRequests plan)
        : pipeline_{std::move(pipeline)},
          plan_{std::move(plan)},
          scopes_{service, pipeline_, stage} {
        scopes_.follow(plan_);
    }

    /// @returns nothing where it is not the next operation
    /// @throws Error as entering a scope
    std::optional<Entered> enter(kdvfs::StreamRef stream, const NamedOperation& named,
                                 std::string_view range) {
        const std::lock_guard lock{mutex_};
        const bool is_first = named.microbatch && named.names(plan_.operations.front().operation);
        const auto next = scopes_.next();
        if (begins_ || !next || (is_first && (lost_ || !named.names(*next)))) begin();
        if (lost_) return std::nullopt;
        const kdvfs::train::Operation expected = *scopes_.next();
        if (!named.names(expected)) {
            lose("the range '" + std::string{range} + "' came where the pipeline has the " +
                 to_string(expected));
            return std::nullopt;
        }
        try {
            return scopes_.enter(stream, expected.pass, expected.chunk, expected.microbatch);
        } catch (const kdvfs::Error& error) {
            if (error.code() != kdvfs::Errc::invalid_input) throw;
            lose(error.what());
            return std::nullopt;
        }
    }
    void leave(const Entered& entered, kdvfs::StreamRef stream) noexcept {
        scopes_.leave_noexcept(entered, stream);
    }
    /// The next operation is the first of an iteration.
    void begin_iteration() {
        const std::lock_guard lock{mutex_};
        begins_ = true;
    }

private:
    void begin() {
        begins_ = false;
        const bool was_lost = std::exchange(lost_, false);
        if (was_lost) scopes_.follow(plan_);
        try {
            scopes_.begin_iteration();
        } catch (const kdvfs::Error& error) {  // of operations that have not been run
            if (!was_lost) Process::instance().note(std::string{"pipeline: "} + error.what());
        }
    }
    void lose(const std::string& why) {
        lost_ = true;
        scopes_.release();
        Process::instance().note("pipeline: " + why +
                                 ": clocks are left to the driver until the next iteration");
    }

    std::mutex mutex_;
    kdvfs::train::Pipeline pipeline_;
    kdvfs::train::StageRequests plan_;
    kdvfs::train::StageScopes scopes_;
    bool begins_ = false;
    bool lost_ = false;
};

}  // namespace attach
