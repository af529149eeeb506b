// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/sweep.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/tune/excluded_clocks.hpp>
#include <kdvfs/detail/tune/launch_recorder.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/paired_blocks.hpp>
#include <kdvfs/detail/tune/rank_messages.hpp>
#include <kdvfs/detail/tune/sweep_block.hpp>
#include <kdvfs/detail/tune/sweep_schedule.hpp>
#include <kdvfs/detail/tune/work_mix.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// The scope sink of a swept GPU: puts one long scope around all scopes of a stream, so that the
/// clocks do not go back and forth between neighbours. The long scope changes, in stream order,
/// with the first scope after `enclose`; a stream without any scope for an iteration is let go, as
/// it would hold the clock of its last one for as long as it is idle. Thread-safe.
class SweepSink final : public kdvfs::detail::ScopeSink {
public:
    /// `service` must outlive the sink.
    explicit SweepSink(kdvfs::detail::GpuService& service) : service_{&service} {}

    /// An iteration begins: from now on scopes are enclosed by one of this kind.
    void enclose(const kdvfs::detail::ScopeKind* kind) {
        const std::lock_guard lock{mutex_};
        kind_ = kind;
        ++iteration_;
        std::erase_if(open_, [&](const auto& each) {
            const auto& [track, around] = each;
            const bool idle = around.used + 1 < iteration_ && depths_[track] == 0;
            if (!idle || around.token.kind == kind) return false;
            service_->leave_unmarked(around.token);
            return true;
        });
    }

    kdvfs::detail::ScopeToken enter(StreamRef stream,
                                    const kdvfs::detail::ScopeKind& kind) override {
        const kdvfs::detail::ScopeToken token = service_->enter(stream, kind);
        if (token.track == nullptr) return token;
        record(*token.track, kind);
        try {
            change_enclosing(stream, *token.track);
        } catch (...) {
            come_out(token);
            service_->leave_noexcept(token);
            throw;
        }
        return token;
    }
    void leave(const kdvfs::detail::ScopeToken& token) override {
        come_out(token);
        service_->leave(token);
    }
    void leave_noexcept(const kdvfs::detail::ScopeToken& token) noexcept override {
        come_out(token);
        service_->leave_noexcept(token);
    }

    /// Takes the long scopes off all streams.
    void leave_all() noexcept {
        const std::lock_guard lock{mutex_};
        kind_ = nullptr;
        for (const auto& [track, around] : open_) service_->leave_unmarked(around.token);
        open_.clear();
    }

    /// An iteration has ended, on the host.
    /// @param window of the block that measures it at the baseline; 0 where none does
    void end_iteration(std::uint32_t window) {
        const std::lock_guard lock{mutex_};
        if (kind_ != nullptr) recorder_.end_iteration(window);
    }
    /// What has been launched in iterations so far.
    template <class Function>
    auto recorded(Function function) {
        const std::lock_guard lock{mutex_};
        return function(recorder_);
    }

private:
    /// The long scope of a stream.
    struct Around {
        kdvfs::detail::ScopeToken token;
        std::uint64_t used = 0;  ///< the iteration of the last scope in it
    };

    /// Only while the program is swept; a program has one sequence then, whatever the clock.
    void record(const kdvfs::detail::StreamTrack& track, const kdvfs::detail::ScopeKind& kind) {
        const std::lock_guard lock{mutex_};
        const std::uint32_t depth = depths_[&track]++;
        if (kind_ != nullptr && !track.captured())
            recorder_.launched(track.id(), kind.kernel, depth);
    }
    void come_out(const kdvfs::detail::ScopeToken& token) noexcept {
        if (token.track == nullptr || kdvfs::detail::fork_generation() != generation_) return;
        const std::lock_guard lock{mutex_};
        const auto known = depths_.find(token.track);
        if (known != depths_.end() && known->second > 0) --known->second;
    }

    /// The scope that found the track is open already: what encloses it is entered after it and
    /// left later, which tracks allow, and asks for the same.
    void change_enclosing(StreamRef stream, const kdvfs::detail::StreamTrack& track) {
        const std::lock_guard lock{mutex_};
        const auto known = open_.find(&track);
        const kdvfs::detail::ScopeToken before =
            known == open_.end() ? kdvfs::detail::ScopeToken{} : known->second.token;
        if (before.kind == kind_) {
            if (known != open_.end()) known->second.used = iteration_;
            return;
        }
        if (track.captured())
            throw Error{
                Errc::not_supported,
                {"sweep a kernel that is captured into a graph", to_string(service_->info()),
                 "each replay asks for the clock of its capture",
                 "sweep the program with its graphs switched off"}};
        if (kind_ != nullptr) {
            open_[&track] = {service_->enter(stream, *kind_), iteration_};
        } else {
            open_.erase(known);
        }
        if (before.kind != nullptr) service_->leave(before);
    }

    kdvfs::detail::GpuService* service_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();
    std::mutex mutex_;
    const kdvfs::detail::ScopeKind* kind_ = nullptr;
    SequenceRecorder recorder_;
    std::uint64_t iteration_ = 0;
    std::map<const kdvfs::detail::StreamTrack*, Around> open_;
    std::map<const kdvfs::detail::StreamTrack*, std::uint32_t> depths_;  // of the program's scopes
};

/// What is behind a `Sweeping` view: hands out clocks to scopes, iteration by iteration, and turns
/// what was metered into a profile. Thread-safe; `next_iteration` is called by one thread, between
/// iterations.
class SweepEngine final : public SweepControl {
public:
    /// `service` must outlive the engine.
    /// @throws Error (not_supported) if clocks are not set, (invalid_input) for clocks that the
    ///         device does not list or options that make no sense, and as `SweepFile`
    /// @param at_once ranks of a job that are swept together (`decide`)
    /// @param known measurements of earlier runs, where no file has them
    SweepEngine(kdvfs::detail::GpuService& service, const SweepOptions& options,
                std::size_t at_once = 1, std::optional<Profile> known = std::nullopt)
        : service_{&service},
          options_{checked(service, options)},
          sink_{service},
          schedule_{SweepDesign{points_of(service, options), options.baseline}, options, at_once},
          profile_{known ? *std::move(known) : Profile{gpu_name(service.info())}} {
        if (!options_.file.empty()) {
            file_.emplace(options_.file, profile_.gpu(), options_.baseline);
            const auto earlier = detail::trace_path(options_.file);
            if (std::filesystem::exists(earlier)) earlier_ = detail::read_trace(earlier);
        }
        service_->keep_record(true);
        begin({.clock = options_.baseline});
    }

    ~SweepEngine() override {
        if (kdvfs::detail::fork_generation() != generation_) return;  // its locks are the parent's
        if (file_ && !step_.done) {
            try {
                ingest(paired_.take_rest());
                write_trace();
            } catch (const std::exception& error) {
                std::fprintf(stderr, "kdvfs: %s\n", error.what());
            }
        }
        sink_.leave_all();
        end_record();
        note_clock(options_.baseline);
    }
    SweepEngine(const SweepEngine&) = delete;
    SweepEngine& operator=(const SweepEngine&) = delete;

    /// Nothing more is measured: the record of the GPU is another's from now on.
    void end_record() {
        if (!record_ended_.exchange(true)) service_->keep_record(false);
    }

    kdvfs::detail::ScopeSink& scope_sink() override { return sink_; }

    /// The kind of a scope that is about to be entered.
    /// @param policy what the registry says; `KeepClock` kernels are not swept
    const kdvfs::detail::ScopeKind& kind_of(std::string_view kernel, Variant variant,
                                            ClockRequest policy, bool metered) override {
        const std::lock_guard lock{mutex_};
        if (step_.done) return service_->kind_of(kernel, variant, policy, metered);
        Swept& swept = kernels_.try_emplace({std::string{kernel}, variant}).first->second;
        if (swept.kind == nullptr || swept.block != block_) {
            // What might break its bound here, or was never met, runs as without a sweep. The
            // block is lost then: its clock did not hold.
            const bool safe =
                schedule_.keeps_bound(find({std::string{kernel}, variant}), step_.clock);
            const ClockRequest& swept_at = safe ? request_ : baseline_request_;
            swept.kind = &service_->kind_of(kernel, variant, policy.asks ? swept_at : policy, true);
            swept.block = block_;
        }
        if (step_.metered) ++scopes_;
        return *swept.kind;
    }

    /// @throws Error if a measurement cannot be written, and (not_supported) once
    ///         `SweepOptions::longest` is over without a point
    void next_iteration() override {
        const std::lock_guard lock{mutex_};
        if (step_.done) return service_->next_iteration();
        const Duration longest = schedule_.knows_baseline()
                                     ? options_.longest
                                     : std::min(options_.longest, options_.longest_without_any);
        if (service_->now() - began_ > longest) return end_early(longest);
        end_iteration();
        bool compared = false;
        for (MeasuredBlock& found : recorder_.take_measured()) {
            const bool at_baseline = is_baseline(found.block);
            if (at_baseline && !schedule_.measured(found)) continue;
            compared = compared || at_baseline;
            ingest(paired_.add(std::move(found), at_baseline));
        }
        for (const SweepBlock& block : recorder_.take_dropped()) {
            if (is_baseline(block)) ingest(paired_.take_rest());
            schedule_.dropped(block);
        }
        if (compared && file_) write_sequence();
        begin(schedule_.next(profile(), recorder_.sample_period()));
    }

    // The sweep of several ranks of a job: rank 0 decides what all run, and each obeys in its time.

    /// What this rank has measured since the last call.
    [[nodiscard]] std::vector<detail::RankBlock> take_blocks() {
        const std::lock_guard lock{mutex_};
        end_iteration();
        std::vector<detail::RankBlock> blocks;
        // Not paired: ranks would wait for the stretch behind a block, up to 20 s a round.
        ingest(recorder_.take_measured(), &blocks);
        for (const SweepBlock& block : recorder_.take_dropped())
            blocks.push_back({block.stage, block.clock, block.iterations});
        return blocks;
    }
    /// On rank 0: what a rank has measured. Blocks at the baseline are its own.
    /// @returns whether it belongs into the profile
    bool reported(const detail::RankBlock& block) {
        const std::lock_guard lock{mutex_};
        const SweepBlock asked{0, block.clock, block.iterations, 0, block.stage};
        if (!block.rows.empty())
            return schedule_.measured({asked, block.iteration, block.power, {}});
        schedule_.dropped(asked);
        return false;
    }
    /// On rank 0: what the ranks are to run next. @param job what all have measured
    [[nodiscard]] SweepStep decide(const Profile& job) {
        const std::lock_guard lock{mutex_};
        return schedule_.next(job, recorder_.sample_period());
    }
    [[nodiscard]] const SweepDesign& design() const { return schedule_.design(); }
    /// The next iteration begins, as rank 0 has decided.
    void obey(const SweepStep& step) {
        const std::lock_guard lock{mutex_};
        begin(step);
    }
    /// How far the sweep has come. @param job what all ranks have measured
    [[nodiscard]] SweepProgress progress(const Profile& job) const {
        const std::lock_guard lock{mutex_};
        return schedule_.progress(job);
    }

    [[nodiscard]] SweepProgress progress() const override {
        const std::lock_guard lock{mutex_};
        return schedule_.progress(profile());
    }
    /// The launches of an iteration on the stream with most time; none until two were alike.
    [[nodiscard]] LaunchSequence sequence() override {
        const std::lock_guard lock{mutex_};
        return recorded();
    }
    [[nodiscard]] Profile measured() const override {
        const std::lock_guard lock{mutex_};
        return profile();
    }
    /// The iterations that this run and those before have recorded.
    [[nodiscard]] detail::LaunchTrace recorded_iterations() {
        const std::lock_guard lock{mutex_};
        return trace();
    }
    /// Whether the iteration that began last runs at the baseline.
    [[nodiscard]] bool is_at_baseline() const {
        const std::lock_guard lock{mutex_};
        return step_.clock == options_.baseline;
    }

private:
    /// A kernel as scopes meet it; `kind` is that of the block it was last met in.
    struct Swept {
        const kdvfs::detail::ScopeKind* kind = nullptr;
        std::uint64_t block = 0;
    };

    static const SweepOptions& checked(const kdvfs::detail::GpuService& service,
                                       const SweepOptions& options) {
        const auto reject = [&](Errc code, const char* why, const char* remedy) {
            throw Error{code, {"sweep clocks", to_string(service.info()), why, remedy}};
        };
        if (service.measure_only())
            reject(Errc::not_supported, "it is only measured", "open it with its clocks");
        if (!(options.max_slowdown > 0))
            reject(Errc::invalid_input, "the bound of the run's slowdown is not above 0",
                   "give 0.05 for 5 %");
        if (options.samples == 0)
            reject(Errc::invalid_input, "there are no samples to take", "take two of each point");
        for (const ClockPoint clock : points_of(service, options))
            service.check_clocks("in a sweep", {.asks = true, .point = clock});
        return options;
    }

    static std::vector<ClockPoint> points_of(const kdvfs::detail::GpuService& service,
                                             const SweepOptions& options) {
        std::vector<ClockPoint> points = options.points;
        if (points.empty()) points = clock_grid(service.supported_clocks());
        std::erase_if(points, [&](ClockPoint clock) { return options.excluded.contains(clock); });
        if (std::find(points.begin(), points.end(), options.baseline) == points.end())
            points.push_back(options.baseline);
        return points;
    }

    void end_iteration() {
        sink_.end_iteration(step_.metered && step_.clock == options_.baseline ? window_ : 0);
        recorder_.take(service_->take_record());
    }
    [[nodiscard]] bool is_baseline(const SweepBlock& block) const {
        return block.clock == options_.baseline;
    }
    /// @param reported where rank 0 decides: what it gets
    void ingest(std::vector<MeasuredBlock> paired,
                std::vector<detail::RankBlock>* reported = nullptr) {
        for (MeasuredBlock& found : paired) {
            const SweepBlock& block = found.block;
            if (reported == nullptr && !is_baseline(block)) schedule_.measured(found);
            detail::RankBlock row{block.stage,     block.clock, block.iterations,
                                  found.iteration, found.power, take_rows(found)};
            if (reported != nullptr) reported->push_back(std::move(row));
        }
    }
    /// Adds a block's kernels to the profile.
    /// @returns their rows
    std::vector<ProfileRow> take_rows(MeasuredBlock& found) {
        compare_sizes(found);
        std::vector<ProfileRow> rows = rows_of(found);
        if (is_baseline(found.block))
            sink_.recorded([&](SequenceRecorder& recorder) {
                recorder.ran(found.intervals, found.block.iterations, found.block.window);
            });
        if (file_)
            file_->append(rows);
        else
            for (const ProfileRow& row : rows) profile_.add(row);
        return rows;
    }

    [[nodiscard]] const KernelProfile* find(const KernelKey& key) const {
        const auto& kernels = profile().kernels();
        const auto found = std::find_if(kernels.begin(), kernels.end(),
                                        [&](const auto& kernel) { return kernel.key == key; });
        return found == kernels.end() ? nullptr : &*found;
    }

    [[nodiscard]] const Profile& profile() const { return file_ ? file_->profile() : profile_; }

    /// The stated time is over: what has been measured must do.
    void end_early(Duration after) {
        ingest(paired_.take_rest());
        const SweepProgress reached = schedule_.progress(profile());
        schedule_.end();
        begin({.clock = options_.baseline, .done = true});
        if (reached.points_measured > 1) return;
        const auto seconds = [](Seconds time) {
            return std::to_string(std::llround(std::ceil(time.count()))) + " s";
        };
        const Seconds each =
            Seconds{after} / std::max(1.0, static_cast<double>(reached.iterations));
        throw Error{
            Errc::not_supported,
            {"sweep clocks in " + seconds(after), to_string(service_->info()),
             "no clock point could be measured: " + std::to_string(reached.iterations) +
                 " iterations of about " + std::to_string(each.count()) + " s, " +
                 std::to_string(reached.blocks_dropped) +
                 " blocks in which the energy counter said too little or clocks did not hold",
             "the points asked for need about " + seconds(schedule_.needed()) +
                 ": set SweepOptions::longest to that, or ask for fewer points or counter rows"}};
    }

    void begin(const SweepStep& step) {
        const bool goes_on = step.metered && step_.metered && step.stage == step_.stage;
        if (step_.metered && !goes_on) recorder_.end(iterations_, scopes_);
        const bool begins_block = step.metered && !goes_on;
        note_clock(step.clock);
        note_time();
        step_ = step;
        request_ = request_of_step();
        ++block_;
        if (step.done) {
            ingest(paired_.take_rest());
            if (file_) write_trace();
            sink_.leave_all();  // of streams that come to rest now, too
            end_record();
            return service_->next_iteration();
        }
        sink_.enclose(&service_->kind_of("kdvfs.sweep", {}, request_, false));
        const std::uint32_t window = service_->begin_iteration(step.metered);
        if (begins_block) {
            recorder_.begin({.window = window, .clock = step.clock, .stage = step.stage});
            window_ = window;
            iterations_ = 0;
            scopes_ = 0;
        }
        ++iterations_;
    }

    /// A clock is for a stretch of iterations. A program may evaluate, wait or end its loop in the
    /// midst of one, where nobody says when: the clock goes back by itself after several times as
    /// long. In powers of two of seconds: requests are numbered.
    [[nodiscard]] ClockRequest request_of_step() const {
        if (step_.clock == options_.baseline) return baseline_request_;
        ClockRequest request{.asks = true, .point = step_.clock, .ungated = true};
        // Hosts run ahead of their GPU: what it takes is known where this rank leads the sweep.
        constexpr double many = 16;  // iterations, where the stretch is not known
        const double least = schedule_.knows_baseline() ? 16 : 64;
        const Seconds each = std::max(typical_, schedule_.longest_iteration(step_.clock));
        const double expected = each.count() * (step_.length > 0 ? step_.length : many);
        const double seconds = std::exp2(std::ceil(std::log2(std::max(least, 4 * expected))));
        request.after = std::chrono::duration_cast<Duration>(Seconds{std::min(seconds, 65536.0)});
        request.then = options_.baseline;
        return request;
    }
    /// How long iterations take, but for single ones that take much longer.
    void note_time() {
        const TimePoint now = service_->now();
        const Seconds time = now - std::exchange(step_began_, now);
        if (block_ == 0) return;  // nothing has run
        typical_ = typical_ == Seconds{0} ? time : std::clamp(time, typical_ / 2, typical_ * 2);
    }

    /// Notes where the program runs, for who finds it crashed: nothing at the baseline.
    void note_clock(ClockPoint clock) {
        if (!file_ || clock == noted_) return;
        const auto path = current_clock_path(options_.file);
        std::error_code ignored;
        if (clock == options_.baseline)
            std::filesystem::remove(path, ignored);
        else
            std::ofstream{path} << to_string(ExcludedClocks{.points = {clock}}) << '\n';
        noted_ = clock;
    }

    using Keys = std::map<KernelId, const KernelKey*>;

    [[nodiscard]] Keys keys() const {
        Keys keys;
        for (const auto& [key, swept] : kernels_)
            if (swept.kind != nullptr) keys.emplace(swept.kind->kernel, &key);
        return keys;
    }
    /// What launches take at the baseline, as known by now, as a function of the kernel.
    [[nodiscard]] auto baseline_times(const Keys& keys) const {
        std::map<KernelId, Seconds> times;
        for (const auto& [id, key] : keys)
            if (const KernelProfile* kernel = find(*key))
                if (const ProfilePoint* point = kernel->find(options_.baseline))
                    times.emplace(id, point->mean().time);
        return [times = std::move(times)](KernelId kernel) {
            const auto time = times.find(kernel);
            return time == times.end() ? Seconds{0} : time->second;
        };
    }

    [[nodiscard]] LaunchSequence recorded() {
        const Keys keys = this->keys();
        LaunchSequence sequence;
        const auto typical = sink_.recorded(
            [&](SequenceRecorder& recorder) { return recorder.typical(baseline_times(keys)); });
        if (!typical) return sequence;
        for (const KernelId kernel : typical->launches) {
            const auto key = keys.find(kernel);
            if (key == keys.end()) return {};
            sequence.launches.push_back(*key->second);
        }
        sequence.gaps = typical->gaps;
        sequence.depths = typical->depths;
        return sequence;
    }

    /// Beside the profile; at each stretch at the baseline, of which a sweep has dozens. The
    /// program waits for it: recorded iterations are written in a small share of the time.
    void write_sequence() {
        const LaunchSequence sequence = recorded();
        if (!sequence.launches.empty()) write_launches(sequence_path(options_.file), sequence);
        constexpr int share = 200;
        const auto began = std::chrono::steady_clock::now();
        if (began < trace_due_) return;
        write_trace();
        const auto ended = std::chrono::steady_clock::now();
        trace_due_ = ended + std::max<Duration>(std::chrono::seconds{1}, share * (ended - began));
    }
    void write_trace() {
        const detail::LaunchTrace recorded = trace();
        if (!recorded.iterations.empty())
            detail::write_trace(detail::trace_path(options_.file), recorded);
    }

    /// The iterations that this run and those before have recorded.
    [[nodiscard]] detail::LaunchTrace trace() {
        constexpr std::size_t most_launches = 16384;
        const Keys keys = this->keys();
        const auto sample = sink_.recorded([&](const SequenceRecorder& recorder) {
            return recorder.sample(baseline_times(keys));
        });
        detail::LaunchTrace trace;
        std::map<KernelId, std::uint32_t> numbers;
        for (const RecordedIteration& each : sample) {
            detail::LaunchTrace::Iteration& iteration = trace.iterations.emplace_back();
            iteration.count = each.count;
            for (std::size_t i = 0; i < each.launches.size(); ++i) {
                const auto key = keys.find(each.launches[i]);
                if (key == keys.end()) continue;
                const auto [number, is_new] = numbers.try_emplace(
                    each.launches[i], static_cast<std::uint32_t>(trace.kernels.size()));
                if (is_new) trace.kernels.push_back(*key->second);
                const bool timed = !each.times.empty();
                iteration.launches.push_back({number->second, each.depths[i],
                                              timed ? each.times[i] : Seconds{0},
                                              timed ? each.gaps[i] : Seconds{0}});
            }
            if (iteration.launches.empty()) trace.iterations.pop_back();
        }
        trace.limit(most_launches);
        trace.append(earlier_);
        trace.limit(2 * most_launches);
        return trace;
    }

    /// Makes the costs of kernels whose launches have different sizes those of one launch that
    /// stays the same: the mean one of the first block at the baseline.
    void compare_sizes(MeasuredBlock& found) {
        std::map<KernelId, std::vector<double>> times;
        std::map<std::pair<TrackId, KernelId>, double> open;
        for (const KernelInterval& interval : found.intervals) {
            double& time = open[{interval.track, interval.kernel}];
            time += Seconds{interval.end - interval.start}.count();
            if (interval.ends_scope) times[interval.kernel].push_back(std::exchange(time, 0));
        }
        const bool at_baseline = is_baseline(found.block);
        const Keys keys = this->keys();
        const double most = std::log(schedule_.longest_factor(found.block.clock));
        for (BlockKernel& kernel : found.kernels) {
            detail::WorkMix& mix = mixes_[kernel.kernel];
            if (at_baseline) mix.add(times[kernel.kernel]);
            const auto key = keys.find(kernel.kernel);
            if (key == keys.end() || !mix.has_sizes()) continue;
            const KernelProfile* known = find(*key->second);
            const ProfilePoint* point = known ? known->find(options_.baseline) : nullptr;
            const auto shift = mix.shift(times[kernel.kernel], most);
            if (point == nullptr || !shift) continue;
            const Seconds standard = point->samples[0].cost.time * std::exp(*shift);
            const double factor = standard / kernel.launch.time;
            kernel.launch = kernel.launch * factor;
            kernel.energy_sd = kernel.energy_sd * factor;
            kernel.attributed = kernel.attributed * factor;
        }
    }

    [[nodiscard]] std::vector<ProfileRow> rows_of(const MeasuredBlock& found) const {
        std::map<KernelId, KernelKey> keys;
        for (const auto& [key, swept] : kernels_)
            if (swept.kind->request.asks) keys.emplace(swept.kind->kernel, key);
        std::vector<ProfileRow> rows;
        std::vector<std::size_t> members;  // of the block's kernels, those that have rows
        for (std::size_t k = 0; k < found.kernels.size(); ++k) {
            const auto key = keys.find(found.kernels[k].kernel);
            if (key == keys.end()) continue;
            auto row = row_of(key->second, found.kernels[k], found.block);
            if (!row) continue;
            row->is_baseline = row->clock == options_.baseline;
            rows.push_back(*std::move(row));
            members.push_back(k);
        }
        const ProfileBlock together = block_of(found, rows, members);
        for (ProfileRow& row : rows) row.block = together;
        return rows;
    }

    /// The rows' energies in an iteration, and how far their sum may be off.
    [[nodiscard]] ProfileBlock block_of(const MeasuredBlock& found,
                                        const std::vector<ProfileRow>& rows,
                                        const std::vector<std::size_t>& members) const {
        if (found.covariance.size() == 0) return {};
        double energy = 0;
        double variance = 0;
        for (std::size_t a = 0; a < rows.size(); ++a) {
            energy += rows[a].count * found.kernels[members[a]].attributed.count;
            for (std::size_t b = 0; b < rows.size(); ++b)
                variance += static_cast<double>(rows[a].count) * rows[b].count *
                            found.covariance(members[a], members[b]);
        }
        if (!(energy > 0)) return {};
        const auto& blocks = profile().blocks();
        return {blocks.empty() ? 1 : blocks.rbegin()->first + 1,
                {energy},
                {std::sqrt(std::max(variance, 0.0))}};
    }

    /// Nothing for a kernel that has not been seen at the baseline: its rows could not be compared.
    [[nodiscard]] std::optional<ProfileRow> row_of(const KernelKey& key, const BlockKernel& kernel,
                                                   const SweepBlock& block) const {
        const double launches =
            static_cast<double>(kernel.launches) / static_cast<double>(block.iterations);
        ProfileRow row{key, block.clock, kernel.launch,
                       options_.group_of ? options_.group_of(key) : std::string{},
                       static_cast<std::uint32_t>(std::max(1.0, std::round(launches)))};
        row.energy_sd = kernel.energy_sd;
        row.held = kernel.held;
        row.at_limit = kernel.at_limit;
        const KernelProfile* known = find(key);
        if (known == nullptr) return is_baseline(block) ? std::optional{row} : std::nullopt;
        row.count = known->count;
        if (const ProfilePoint* point = known->find(block.clock))
            row.sample = point->samples.back().index + 1;
        return row;
    }

    kdvfs::detail::GpuService* service_;
    SweepOptions options_;
    SweepSink sink_;

    mutable std::mutex mutex_;
    SweepSchedule schedule_;
    BlockRecorder recorder_;
    detail::PairedBlocks paired_;
    Profile profile_;
    std::optional<SweepFile> file_;
    std::map<KernelKey, Swept> kernels_;
    std::map<KernelId, detail::WorkMix> mixes_;
    SweepStep step_;
    const ClockRequest baseline_request_{.asks = true, .point = options_.baseline, .ungated = true};
    ClockRequest request_;  ///< of the scopes of `step_`
    ClockPoint noted_ = options_.baseline;
    TimePoint began_ = service_->now();
    TimePoint step_began_ = began_;
    Seconds typical_{0};            ///< of an iteration
    std::uint64_t block_ = 0;       ///< numbers the iterations: kinds may change with each
    std::uint32_t iterations_ = 0;  ///< of the block under way
    std::uint64_t scopes_ = 0;      ///< entered in the block under way
    std::atomic<bool> record_ended_{false};
    std::uint32_t window_ = 0;     ///< of the block under way
    detail::LaunchTrace earlier_;  ///< iterations that runs before this one recorded
    std::chrono::steady_clock::time_point trace_due_;
    std::uint32_t generation_ = kdvfs::detail::fork_generation();
};

#if KDVFS_DEFINES_ENGINE
KDVFS_INLINE std::shared_ptr<SweepControl> begin_sweep(kdvfs::detail::GpuService& service,
                                                       const SweepOptions& options) {
    return std::make_shared<SweepEngine>(service, options);
}
#endif

}  // namespace kdvfs::inline v0_3::tune
