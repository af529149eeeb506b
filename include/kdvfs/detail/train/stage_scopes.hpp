// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/train/stage_requests.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// The operations of one stage as scopes: knows which one is next, and what clock each is to have.
///
/// One request holds from operation to operation: it changes where an operation ends, to the clock
/// of the next, so that the board switches while the stage waits for its neighbours; a long wait
/// has a clock of its own, until the next one has to be requested. It ends with
/// the last operation of an iteration, and begins again where the next iteration does; in a sweep
/// it goes on, so that one clock holds for a whole block. Operations on different streams may
/// overlap (zero bubbles, a forward beside a backward): each has a request of its own, and the
/// board is at the highest. Thread-safe; an operation may be entered on one thread and left on
/// another. The host never waits.
class StageScopes {
public:
    /// `service` and `pipeline` must outlive this.
    StageScopes(kdvfs::detail::GpuService& service, const Pipeline& pipeline, std::uint32_t stage)
        : service_{&service},
          order_{std::span{pipeline.operations}.subspan(
              pipeline.stage_begin[stage],
              pipeline.stage_begin[stage + 1] - pipeline.stage_begin[stage])},
          schedule_{pipeline.schedule},
          clocks_(order_.size()) {
        for (const Operation& operation : order_) {
            const kdvfs::detail::ScopeKind& kind = service.kind_of(
                to_string(operation.pass), Variant{operation.chunk}, ClockRequest{}, true);
            kinds_.push_back(&kind);
            kernels_[kind.kernel] = {operation.pass, operation.chunk};
        }
    }
    ~StageScopes() { release(); }
    StageScopes(const StageScopes&) = delete;
    StageScopes& operator=(const StageScopes&) = delete;

    /// What is measured under one name: all microbatches of a pass through a chunk.
    struct Kernel {
        Pass pass = Pass::forward;
        std::uint32_t chunk = 0;
        friend bool operator==(const Kernel&, const Kernel&) = default;
        friend auto operator<=>(const Kernel&, const Kernel&) = default;
    };
    [[nodiscard]] const std::map<KernelId, Kernel>& kernels() const { return kernels_; }
    [[nodiscard]] std::size_t size() const { return order_.size(); }
    /// What each operation is measured under, in order.
    [[nodiscard]] std::vector<KernelId> order() const {
        std::vector<KernelId> order;
        for (const kdvfs::detail::ScopeKind* kind : kinds_) order.push_back(kind->kernel);
        return order;
    }
    /// The operation that comes next in this iteration; nothing behind the last one.
    [[nodiscard]] std::optional<Operation> next() {
        const std::lock_guard lock{mutex_};
        if (next_ == order_.size()) return std::nullopt;
        return order_[next_];
    }

    /// From the next operation on each has its planned clocks, `changes` within them, and the wait
    /// before it has one, if there are any.
    /// @throws Error (invalid_input) for clocks that the device does not list
    void follow(const StageRequests& stage) {
        const std::vector<std::vector<ClockChange>>& changes = stage.changes;
        const std::vector<StageWait>& waits = stage.waits;
        std::vector<Held> clocks;
        for (std::size_t k = 0; k < stage.operations.size(); ++k) {
            const PlannedClocks& planned = stage.operations[k];
            const kdvfs::detail::ScopeKind* const first = &hold_kind(at(planned.first));
            Held held{first, first, {}};
            if (k < waits.size() && waits[k].lasts > Seconds{0})
                held.before =
                    &hold_kind(at(waits[k].clock, to_tenths(waits[k].lasts), planned.first));
            if (planned.share < 1)
                held.changes.emplace_back(planned.share, &hold_kind(at(planned.second)));
            if (k < changes.size())
                for (const ClockChange& change : changes[k])
                    held.changes.emplace_back(change.share, &hold_kind(at(change.clock)));
            clocks.push_back(std::move(held));
        }
        const std::lock_guard lock{mutex_};
        clocks_ = std::move(clocks);
        between_ = nullptr;
    }
    /// All operations at one clock, and what is between iterations, too; with none, as the board
    /// was found.
    /// @throws Error (invalid_input) for a clock that the device does not list
    void run_all_at(std::optional<ClockPoint> clock) {
        const kdvfs::detail::ScopeKind* const kind = clock ? &hold_kind(at(*clock)) : nullptr;
        const Held held{kind, kind, {}};
        const std::lock_guard lock{mutex_};
        std::fill(clocks_.begin(), clocks_.end(), held);
        between_ = held.first;
    }

    /// An iteration begins. After one with missing operations no clock is requested until the next
    /// operation: the program may have stopped marking them.
    /// @returns false where a clock was held for the last one, and it ran no operation
    /// @throws Error (invalid_input) if some operations of the last one are missing, naming the
    ///         first
    bool begin_iteration() {
        const std::lock_guard lock{mutex_};
        if (next_ == 0 && !held_.empty()) {
            drop_requests();
            return false;
        }
        if (next_ != 0 && next_ != order_.size()) {
            const Operation& missing = order_[std::exchange(next_, 0)];
            open_.clear();
            drop_requests();
            throw Error{Errc::invalid_input,
                        {"begin an iteration of the pipeline", "the one before",
                         "the " + to_string(missing) + ", has not been run",
                         "run all operations, or give the pipeline that the program runs"}};
        }
        next_ = 0;
        if (stream_) hold(*stream_, clocks_.front().before, true);
        return true;
    }

    /// Takes every request off; operations ask for nothing from now on.
    void release() noexcept {
        const std::lock_guard lock{mutex_};
        std::fill(clocks_.begin(), clocks_.end(), Held{});
        between_ = nullptr;
        drop_requests();
    }

    struct Entered {
        kdvfs::detail::ScopeToken token{};
        std::size_t index = 0;
    };

    /// @throws Error (invalid_input) if another operation is next, naming both, or if one on this
    ///         stream has not been left, and as a scope
    Entered enter(StreamRef stream, Pass pass, std::uint32_t chunk, std::uint32_t microbatch) {
        const std::lock_guard lock{mutex_};
        check_next(stream, pass, chunk, microbatch);
        const std::size_t index = next_;
        hold(stream, clocks_[index].first, open_.empty());
        const Entered entered{service_->enter(stream, *kinds_[index]), index};
        ++next_;
        open_.emplace_back(index, stream);
        return entered;
    }

    /// So much of the operation's work, 0 to 1, has been enqueued: where the plan has several
    /// clocks for it, each is asked for once its share has been reached.
    void reached(const Entered& entered, StreamRef stream, double share) {
        const std::lock_guard lock{mutex_};
        const kdvfs::detail::ScopeKind* kind = nullptr;
        for (const auto& [from, changed] : clocks_[entered.index].changes)
            if (share >= from) kind = changed;
        if (kind != nullptr) hold(stream, kind, open_.size() == 1);
    }

    /// @throws Error as leaving a scope; the operation has been left all the same
    void leave(const Entered& entered, StreamRef stream) {
        const std::lock_guard lock{mutex_};
        end(entered);
        service_->leave(entered.token);
        go_on(stream);
    }
    void leave_noexcept(const Entered& entered, StreamRef stream) noexcept {
        const std::lock_guard lock{mutex_};
        end(entered);
        service_->leave_noexcept(entered.token);
        try {
            go_on(stream);
        } catch (const Error&) {  // the next operation asks again, and throws
        }
    }

private:
    struct Held {
        const kdvfs::detail::ScopeKind* before = nullptr;  ///< in the wait; null: no request
        const kdvfs::detail::ScopeKind* first = nullptr;   ///< null: no request
        /// From which share of the work on other ones hold, in order.
        std::vector<std::pair<double, const kdvfs::detail::ScopeKind*>> changes{};
    };

    /// What is asked for on a stream.
    struct Request {
        StreamRef stream{};
        const kdvfs::detail::ScopeKind* kind = nullptr;
        kdvfs::detail::ScopeToken token{};
    };

    static ClockRequest at(ClockPoint clock, Duration after = {}, ClockPoint then = {}) {
        return {.asks = true, .point = clock, .ungated = true, .after = after, .then = then};
    }
    const kdvfs::detail::ScopeKind& hold_kind(const ClockRequest& request) {
        return service_->kind_of("kdvfs.pipeline", {}, request, false);
    }
    /// In tenths of a millisecond: waits of nearly one length have one request.
    static Duration to_tenths(Seconds time) {
        constexpr Duration tenth = std::chrono::microseconds{100};
        return std::max<Duration>(std::chrono::duration_cast<Duration>(time) / tenth * tenth,
                                  tenth);
    }

    void check_next(StreamRef stream, Pass pass, std::uint32_t chunk,
                    std::uint32_t microbatch) const {
        const auto reject = [&](const std::string& why, const std::string& remedy) {
            const Operation given{order_.front().stage, pass, chunk, microbatch, 0};
            throw Error{Errc::invalid_input,
                        {"begin the " + to_string(given),
                         "the schedule " + std::string{to_string(schedule_)}, why, remedy}};
        };
        if (next_ == order_.size())
            reject("all operations of this iteration have been run, the last was the " +
                       to_string(order_.back()),
                   "call next_iteration() before each iteration");
        const Operation& next = order_[next_];
        for (const auto& [index, its] : open_)
            if (its == stream)
                reject("the " + to_string(order_[index]) + ", has not ended",
                       "end the scope of one operation before the next begins on its stream");
        if (next.pass != pass || next.chunk != chunk || next.microbatch != microbatch)
            reject("the next operation is the " + to_string(next),
                   "run them in this order, or give the pipeline that the program runs");
    }

    void end(const Entered& entered) {
        std::erase_if(open_, [&](const auto& open) { return open.first == entered.index; });
    }

    /// The next operation's clock, or that between iterations behind the last one. While others are
    /// open, theirs are enough.
    void go_on(StreamRef stream) {
        stream_ = stream;
        if (!open_.empty()) return hold(stream, nullptr, false);
        hold(stream, next_ < order_.size() ? clocks_[next_].before : between_, true);
    }

    void drop_requests() noexcept {
        for (const Request& each : std::exchange(held_, {})) service_->leave_noexcept(each.token);
        stream_.reset();
    }

    /// Changes what is asked for on a stream, and on all others, where it is `alone`. The new
    /// request is put before old ones are taken off, so that the clock does not go up in between.
    void hold(StreamRef stream, const kdvfs::detail::ScopeKind* kind, bool alone) {
        const auto same = [&](const Request& each) {
            return each.stream == stream && each.kind == kind;
        };
        const bool goes_on = std::any_of(held_.begin(), held_.end(), same);
        if (!goes_on && kind != nullptr)
            held_.push_back({stream, kind, service_->enter(stream, *kind)});
        for (std::size_t i = 0; i < held_.size();) {
            const Request each = held_[i];
            if (same(each) || (!alone && each.stream != stream)) {
                ++i;
                continue;
            }
            held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
            service_->leave(each.token);
        }
    }

    kdvfs::detail::GpuService* service_;
    std::span<const Operation> order_;
    Schedule schedule_;
    std::vector<const kdvfs::detail::ScopeKind*> kinds_;
    std::map<KernelId, Kernel> kernels_;
    std::mutex mutex_;
    std::vector<Held> clocks_;
    const kdvfs::detail::ScopeKind* between_ = nullptr;
    std::size_t next_ = 0;
    std::vector<std::pair<std::size_t, StreamRef>> open_;  ///< by operation
    std::vector<Request> held_;                            ///< at most one a stream
    std::optional<StreamRef> stream_;                      ///< of the last operation
};

/// While it lives, work enqueued on `stream` is one operation of the pipeline, at the clock that
/// the plan has for it. The pass is known at run time: for bindings. See `OpScope`.
class [[nodiscard]] OperationScope {
public:
    /// @param session a `train::Session`
    template <class Session>
    [[nodiscard]] OperationScope(Session& session, StreamRef stream, Pass pass, std::uint32_t chunk,
                                 std::uint32_t microbatch)
        : scopes_{session.scopes()}, stream_{stream} {
        if (scopes_ != nullptr) entered_ = scopes_->enter(stream, pass, chunk, microbatch);
    }
    OperationScope(const OperationScope&) = delete;
    OperationScope& operator=(const OperationScope&) = delete;
    ~OperationScope() {
        if (scopes_ != nullptr) scopes_->leave_noexcept(entered_, stream_);
    }

    /// Says that this share of the operation, 0 to 1, has been enqueued. Call it between kernels
    /// where plans have several clocks for an operation (`Clocks::two`, `make_kernel_plan`).
    void reached(double share) {
        if (scopes_ != nullptr) scopes_->reached(entered_, stream_, share);
    }

    /// Leaves now. The throwing twin of the destructor; a second call does nothing.
    void close() {
        if (StageScopes* scopes = std::exchange(scopes_, nullptr)) scopes->leave(entered_, stream_);
    }

private:
    StageScopes* scopes_;
    StreamRef stream_;
    StageScopes::Entered entered_{};
};

// The first argument of `OpScope`.
struct Forward {
    static constexpr Pass pass = Pass::forward;
};
struct Backward {
    static constexpr Pass pass = Pass::backward;
};
struct BackwardInput {
    static constexpr Pass pass = Pass::backward_input;
};
struct BackwardWeight {
    static constexpr Pass pass = Pass::backward_weight;
};
/// One operation around both; the microbatch and the chunk are the forward's.
struct ForwardBackward {
    static constexpr Pass pass = Pass::forward_backward;
};
// Once in an iteration: chunk 0, microbatch 0.
struct Embedding {
    static constexpr Pass pass = Pass::embedding;
};
struct StageCollective {
    static constexpr Pass pass = Pass::collective;
};
struct Optimizer {
    static constexpr Pass pass = Pass::optimizer;
};

/// While it lives, work enqueued on `stream` is one operation of the pipeline, at the clock that
/// the plan has for it:
///
///     {
///         train::OpScope<train::Backward> scope{session, stream, chunk, microbatch};
///         ...
///     }
///
/// The host never waits. The constructor throws `Error` (invalid_input) where the schedule has
/// another operation next, naming both. The destructor never throws. In a forked child it does
/// nothing.
template <class Op>
class [[nodiscard]] OpScope : public OperationScope {
public:
    /// @param session a `train::Session`
    template <class Session>
    [[nodiscard]] OpScope(Session& session, StreamRef stream, std::uint32_t chunk,
                          std::uint32_t microbatch)
        : OperationScope{session, stream, Op::pass, chunk, microbatch} {}
};

}  // namespace kdvfs::inline v0_3::train
