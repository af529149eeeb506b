// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>
#include <tools/attach/iterations.hpp>
#include <tools/attach/meter_share.hpp>
#include <tools/attach/range_names.hpp>
#include <tools/attach/settings.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attach {

class PipelineRanges;
class RunSession;

/// All is metered, by iterations that the device chooses.
/// @param gpu as files of switching latencies name it
kdvfs::GpuOptions attached_options(const Settings& settings, const std::string& gpu);

/// A GPU as it could be opened.
struct Opened {
    kdvfs::Gpu gpu;
    bool resolves_energy = true;
};

/// A GPU that an attached program uses: a `tune::Session` whose scopes are named while the program
/// runs, and the iterations of its launches. Thread-safe.
class Device {
public:
    /// @param every one iteration in so many is metered, unless the settings say otherwise
    /// @throws Error as `tune::Session`
    Device(const Opened& opened, const Settings& settings, unsigned every);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] kdvfs::extend::ScopeSink& sink() const { return *sink_; }
    /// Leaves a scope of the sink's without a call into the vendor's runtime.
    void leave_unmarked(const kdvfs::extend::ScopeToken& token) const noexcept;

    /// What launches of this name share.
    [[nodiscard]] const kdvfs::extend::ScopeKind& launch_kind(const std::string& name,
                                                              kdvfs::Variant variant);
    /// The number of the kind of a kernel that its record alone has told of.
    [[nodiscard]] std::uint32_t kind_of_symbol(const char* symbol, kdvfs::Variant variant);
    /// Whether a graph's launch encloses its kernels: not where clocks are asked for by launch, nor
    /// where the settings say so.
    [[nodiscard]] bool looks_into_graphs() const {
        return !settings_.sets_clocks && !settings_.whole_graphs;
    }
    /// What launches of graphs of this name share.
    [[nodiscard]] const kdvfs::extend::ScopeKind& graph_kind(const std::string& name);
    /// The kind of a launch that took so long: launches of one name and grid can be other work, as
    /// those of persistent GEMMs are. Times within a quarter of one another are one cluster, whose
    /// middle follows them; the first is the kind itself, those behind it have variants that are 64
    /// apart, in order of first sight, 8 at most. Launches under 20 us, and kinds that are none of
    /// a launch, are not split.
    /// @param place that of the launch, as `launched` had it, or `nowhere`
    [[nodiscard]] std::uint32_t split(std::uint32_t kind, kdvfs::Duration time,
                                      std::uint32_t place);
    /// What a scope that is entered now has, for a kind that is kept: while a program is swept,
    /// each block of iterations has kinds of its own.
    [[nodiscard]] const kdvfs::extend::ScopeKind& scope_kind(const kdvfs::extend::ScopeKind& kept);
    static constexpr std::uint32_t nowhere = ~std::uint32_t{0};
    /// Whether launches are to be repeated (`KDVFS_MODE=repeat`).
    [[nodiscard]] bool repeats() const { return settings_.repeats && resolves_energy_; }
    /// A launch that can be made again; what it enqueues throws `Error` where that fails.
    struct Again {
        std::function<void()> launch{};
        /// The memsets that came shortly before it, then the launch, whose kernel may need that
        /// they have cleared something. May be empty
        std::function<void()> cleared{};
        /// Waits for its stream: with it, launches of one name and grid that take other times
        /// (`split`) are repeated each, and none that takes another time when it is repeated than
        /// in the program, which then is other work. May be empty
        std::function<void()> wait{};
        /// Where it is made, as `launched` has it: its like is the launch at that place of earlier
        /// iterations, and where that is not known the one that took most nearly as long.
        std::uint32_t place = nowhere;
    };
    /// Makes a launch again and again before the launch itself, until its joules are told
    /// (`GpuOptions::repeat`); nothing where they are, where its name says that it must run once,
    /// or where it is none that was asked for. One launch at a time.
    /// @throws Error that names the kernel, where the launch fails
    void repeat(kdvfs::StreamRef stream, const kdvfs::extend::ScopeKind& kind, const Again& again);
    /// Whether a launch inside a range has a scope of its own, too: the range's joules are then the
    /// sum of its launches'. Not where clocks are asked for by range.
    [[nodiscard]] bool sums_ranges() const { return !settings_.sets_clocks; }
    /// What a range's scopes share: those of one name of `RangeNames`, where no clocks are set.
    [[nodiscard]] const kdvfs::extend::ScopeKind& range_kind(std::string_view path);
    /// What scopes of launches outside all ranges share, where ranges are asked for.
    [[nodiscard]] const kdvfs::extend::ScopeKind& outside();

    /// The operations of a pipeline whose plan is followed; null where none is.
    [[nodiscard]] PipelineRanges* pipeline() const { return pipeline_.get(); }

    /// A launch is about to be made.
    /// @returns its place, in launches since the iteration began; `nowhere` before these are known
    std::uint32_t launched(const kdvfs::extend::ScopeKind& kind);

    /// A launch was made that is not followed: what it runs is unknown.
    void launched_unseen() { unseen_launches_.fetch_add(1, std::memory_order_relaxed); }
    /// A record tells that the process has kept a GPU busy.
    /// @param is_known whose work it was
    void worked(kdvfs::Duration time, bool is_known) {
        (is_known ? known_time_ : unknown_time_).fetch_add(time.count(), std::memory_order_relaxed);
    }

    /// An iteration begins, or, before iterations are `known`, a stretch of time.
    void begin_iteration(bool known = true);

    /// Meters one iteration in so many from the next one on; 0: none, from here on. Nobody else
    /// chooses after that.
    void meter_every(unsigned every);
    /// Meters nothing from here on, until the first iteration after it is called with false: times
    /// of launches are not to be had. Sweeps go on.
    void pause(bool paused);
    /// Where all iterations would be metered, as many are as cost 1 % of the program's time
    /// (`MeterShare`).
    void share_metering();

    /// There may be work that nobody sees: the clock stays up from here on, where there is one for
    /// the time without work.
    void stay_up();

    [[nodiscard]] kdvfs::measure::Report report() const;
    /// The GPU's part of the process's report.
    /// @param at_end with the covariance, which grows with the square of the kernels
    void write_fields(kdvfs::io::JsonFields& fields, bool at_end);
    /// What has been metered since the last time.
    /// @throws Error (io), or `std::filesystem::filesystem_error` where the folder cannot be made
    void write_record(const std::filesystem::path& folder) const;
    /// @throws Error as `Gpu::close`
    void close() const;

private:
    const Settings settings_;
    const bool resolves_energy_;
    std::unique_ptr<RunSession> session_;
    std::unique_ptr<PipelineRanges> pipeline_;
    kdvfs::extend::ScopeSink* sink_;
    const kdvfs::extend::ScopeKind* others_;
    std::atomic<unsigned> every_;
    std::atomic<bool> paused_{false};
    std::atomic<std::uint64_t> launches_{0};
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> unseen_launches_{0};
    std::atomic<kdvfs::Duration::rep> known_time_{0};  // by records
    std::atomic<kdvfs::Duration::rep> unknown_time_{0};
    std::atomic<std::uint32_t> next_place_{nowhere};

    /// Launches of one kernel and grid that take about as long.
    struct Cluster {
        double seconds = 0;  ///< their middle
        const kdvfs::extend::ScopeKind* kind = nullptr;
        bool repeated = false;  ///< or not to be

        /// How many times longer or shorter.
        [[nodiscard]] double apart(double other) const {
            return std::max(seconds / other, other / seconds);
        }
    };
    /// A kernel whose launches may be split by their times.
    struct Clusters {
        static constexpr std::size_t most = 8;
        std::string name{};
        kdvfs::Variant variant{};
        std::vector<Cluster> known{};
        /// How many launches of each cluster, by place.
        std::map<std::uint32_t, std::array<std::uint32_t, most>> at{};
        bool seen = false;   ///< the time of a launch, however short
        unsigned tried = 0;  ///< launches that were repeated, or looked at for it

        [[nodiscard]] Cluster* nearest(double seconds, double alike);
        /// The one most often seen there; null where nothing has been.
        [[nodiscard]] Cluster* at_place(std::uint32_t place);
        /// That of a launch that takes so long when it is repeated; null where it is none of them.
        [[nodiscard]] Cluster* of_repeated(std::uint32_t place, double seconds);
    };
    const kdvfs::extend::ScopeKind* kind_to_repeat(const kdvfs::extend::ScopeKind& kind,
                                                   const Again& again,
                                                   const std::function<void()>*& way);
    [[nodiscard]] bool repeating_begins();
    void leave_out_unknown(kdvfs::measure::Report& report) const;
    void note_meter_share(kdvfs::measure::Report& report) const;
    [[nodiscard]] bool meters(std::uint64_t iteration, bool known);
    void look_for_iteration(const kdvfs::extend::ScopeKind& kind);
    void look_beside(std::vector<std::uint32_t> seen);
    [[nodiscard]] std::string name_to_repeat(std::uint32_t kind, const Again& again);

    std::map<std::uint32_t, std::pair<std::string, kdvfs::Variant>> swept_;  // by a kept kind
    std::mutex naming_;
    RangeNames range_names_;
    std::map<std::string, const kdvfs::extend::ScopeKind*, std::less<>> ranges_;  // by name
    std::mutex repeating_;
    std::mutex splitting_;
    std::map<std::uint32_t, Clusters> clusters_;  // by the launch's kind
    std::mutex by_symbol_lock_;
    std::map<std::pair<std::string, std::uint32_t>, std::uint32_t> by_symbol_;  ///< and variant
    /// Repeating begins with an iteration, so that it finds the same launches in every run.
    enum class Repeating { not_yet, waits_for_iteration, begun };
    std::atomic<Repeating> repeating_state_{Repeating::not_yet};
    mutable std::mutex beginning_;
    bool meters_ = true;                 // as the session has it
    std::optional<MeterShare> share_{};  // where nobody has said how many are metered
    std::optional<kdvfs::StandingRequest> stays_up_;
    std::mutex mutex_;
    Iterations iterations_;
    unsigned since_look_ = 0;
    std::chrono::steady_clock::time_point looked_at_ = std::chrono::steady_clock::now();
};

}  // namespace attach
