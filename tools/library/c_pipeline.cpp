// SPDX-License-Identifier: MIT
//
// The C interface of pipeline sessions (kdvfs.h).
#include "c_handles.hpp"

#include <kdvfs/train/folder_ranks.hpp>
#include <kdvfs/train/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <span>
#include <utility>

struct kdvfs_received {
    std::map<std::uint32_t, std::string> texts;
    std::string error;
};

namespace {

using namespace kdvfs::c_interface;
namespace train = kdvfs::train;

/// What `RanksInFolder` is over.
struct KeptFolder {
    train::FolderRanks folder;
};
class RanksInFolder final : KeptFolder, public train::CommunicatorOf<train::FolderRanks> {
public:
    explicit RanksInFolder(const kdvfs_pipeline_options& options)
        : KeptFolder{train::FolderRanks{options.folder, &given(options.job, "the job's name"),
                                        options.rank, options.rank_count}},
          CommunicatorOf{folder} {}
};

/// Over functions of the caller, or a single rank without any.
class RanksOfCaller final : public train::AnyCommunicator {
public:
    RanksOfCaller() { calls_.count = 1; }
    explicit RanksOfCaller(const kdvfs_ranks& calls) : calls_{calls} {
        if (calls.size != sizeof(kdvfs_ranks))
            reject("begin a session of a pipeline", "the ranks",
                   "their size is not that of this version", "set it to sizeof(kdvfs_ranks)");
        if (calls.rank >= calls.count)
            reject("begin a session of a pipeline",
                   "rank " + std::to_string(calls.rank) + " of " + std::to_string(calls.count),
                   "there is no such rank", "give a rank from 0, less than their number");
        if (calls.count > 1 && (calls.gather == nullptr || calls.broadcast == nullptr))
            reject("begin a session of a pipeline", std::to_string(calls.count) + " ranks",
                   "gather or broadcast is NULL", "give both functions");
    }
    [[nodiscard]] std::uint32_t rank() const override { return calls_.rank; }
    [[nodiscard]] std::uint32_t size() const override { return calls_.count; }

    std::vector<std::string> gather(std::string text, kdvfs::Duration deadline) override {
        if (calls_.count == 1) return {std::move(text)};
        kdvfs_received received = call(calls_.gather, "gather", &text, deadline);
        if (calls_.rank != 0) return {};
        expect(received, "gather", calls_.count);
        std::vector<std::string> texts;
        for (auto& [rank, each] : received.texts) texts.push_back(std::move(each));
        return texts;
    }
    std::string broadcast(std::string text, kdvfs::Duration deadline) override {
        if (calls_.count == 1) return text;
        kdvfs_received received =
            call(calls_.broadcast, "broadcast", calls_.rank == 0 ? &text : nullptr, deadline);
        expect(received, "broadcast", 1);
        return std::move(received.texts.begin()->second);
    }
    void begin_max(std::span<const double> numbers) override {
        mine_.assign(numbers.begin(), numbers.end());
    }
    std::vector<double> end_max(kdvfs::Duration deadline) override {
        std::vector<double> largest = std::exchange(mine_, {});
        for (const std::string& text : gather(bytes_of(largest), deadline)) {
            const std::vector<double> numbers = numbers_in(text);
            for (std::size_t i = 0; i < std::min(numbers.size(), largest.size()); ++i)
                largest[i] = std::max(largest[i], numbers[i]);
        }
        return numbers_in(broadcast(bytes_of(largest), deadline));
    }

private:
    static std::string bytes_of(const std::vector<double>& numbers) {
        return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
    }
    static std::vector<double> numbers_in(const std::string& bytes) {
        std::vector<double> numbers(bytes.size() / sizeof(double));
        std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
        return numbers;
    }

    template <class Function>
    kdvfs_received call(Function function, const char* name, const std::string* text,
                        kdvfs::Duration deadline) {
        if (broken_) throw kdvfs::Error{*broken_};
        kdvfs_received received;
        const kdvfs_status status =
            function(calls_.data, text ? text->data() : nullptr, text ? text->size() : 0,
                     kdvfs::Seconds{deadline}.count(), &received);
        if (status == KDVFS_OK) return received;
        broken_ = kdvfs::Error{
            status == KDVFS_TIMED_OUT       ? kdvfs::Errc::timed_out
            : status == KDVFS_INVALID_INPUT ? kdvfs::Errc::invalid_input
                                            : kdvfs::Errc::io,
            {"agree with the other ranks", std::string{"the caller's function "} + name,
             received.error.empty() ? kdvfs_status_text(status) : received.error,
             "see whether all ranks run; clocks stay at auto meanwhile"}};
        throw kdvfs::Error{*broken_};
    }

    /// The ranks from 0 to `count`, each once.
    static void expect(const kdvfs_received& received, const char* name, std::uint32_t count) {
        if (received.texts.size() == count && received.texts.rbegin()->first == count - 1) return;
        reject("agree with the other ranks", std::string{"the caller's function "} + name,
               "it has not called kdvfs_receive once for each rank that sends",
               "call it for ranks 0 to count - 1 in gather, for rank 0 in broadcast");
    }

    kdvfs_ranks calls_{};
    std::vector<double> mine_;
    std::optional<kdvfs::Error> broken_;
};

std::unique_ptr<train::AnyCommunicator> ranks_of(const kdvfs_pipeline_options& options) {
    if (options.ranks != nullptr) return std::make_unique<RanksOfCaller>(*options.ranks);
    if (options.folder != nullptr) return std::make_unique<RanksInFolder>(options);
    return std::make_unique<RanksOfCaller>();
}

train::PipelineShape shape_of(const kdvfs_pipeline_options& options) {
    if (options.schedule < KDVFS_GPIPE || options.schedule > KDVFS_ZB_H1)
        reject("begin a session of a pipeline", "schedule " + std::to_string(options.schedule),
               "there is no such schedule",
               "use KDVFS_GPIPE, KDVFS_1F1B, KDVFS_INTERLEAVED_1F1B or KDVFS_ZB_H1");
    return {static_cast<train::Schedule>(options.schedule), options.stages, options.chunks,
            options.microbatches};
}

std::optional<std::uint32_t> number_of(std::int64_t number) {
    if (number < 0) return std::nullopt;
    return static_cast<std::uint32_t>(std::min<std::int64_t>(number, UINT32_MAX));
}

kdvfs::Duration duration_of(double seconds, const char* what) {
    if (!(seconds > 0 && seconds <= 1e7))
        reject("begin a session of a pipeline",
               std::string{what} + " of " + std::to_string(seconds), "it is no time to wait for",
               "give seconds above 0, such as 30");
    return std::chrono::duration_cast<kdvfs::Duration>(kdvfs::Seconds{seconds});
}

train::SessionOptions session_options_of(const kdvfs_pipeline_options& options) {
    train::SessionOptions result;
    if (options.mode != nullptr) result.mode = kdvfs::tune::parse_session_mode(options.mode);
    result.stage = number_of(options.stage);
    result.copy = number_of(options.copy);
    result.plan.slowdown = options.slowdown;
    result.plan.clocks = options.two_clocks != 0 ? train::Clocks::two : train::Clocks::one;
    if (options.switch_latency_s >= 0)
        result.plan.switching = {.latency = kdvfs::Seconds{options.switch_latency_s}};
    result.samples = options.samples;
    if (options.core_count > 0) static_cast<void>(given(options.core_mhz, "the clocks to sweep"));
    for (std::size_t i = 0; i < options.core_count; ++i)
        result.sweep_clocks.push_back({options.core_mhz[i]});
    result.silence = duration_of(options.silence_s, "silence_s");
    result.planning = duration_of(options.planning_s, "planning_s");
    return result;
}

kdvfs_pipeline_options used_options(const kdvfs_pipeline_options* options) {
    const kdvfs_pipeline_options& its = given(options, "the options");
    if (its.size != sizeof its)
        reject("begin a session of a pipeline", "the options",
               "their size is not that of this version", "call kdvfs_pipeline_options_init first");
    return its;
}

nlohmann::ordered_json clocks_json(const train::PlannedClocks& planned) {
    nlohmann::ordered_json row{{"op", to_string(planned.operation.pass)},
                               {"chunk", planned.operation.chunk},
                               {"microbatch", planned.operation.microbatch},
                               {"core_mhz", planned.first.core.count}};
    if (planned.share < 1) {
        row["share"] = planned.share;
        row["second_core_mhz"] = planned.second.core.count;
    }
    return row;
}

}  // namespace

struct kdvfs_pipeline {
    kdvfs_pipeline(kdvfs_gpu& its, const kdvfs_pipeline_options& options)
        : gpu{its},
          ranks{ranks_of(options)},
          session{*its.bound, *ranks, shape_of(options), session_options_of(options)} {}

    kdvfs_gpu& gpu;
    std::unique_ptr<train::AnyCommunicator> ranks;
    train::Session<Policies, train::AnyCommunicator> session;
    std::atomic<std::uint64_t> users{0};  // operations that have not ended
};

namespace {

/// What lies in a `kdvfs_operation`.
struct OpenOperation {
    static constexpr std::uint64_t is_open = 0x6b647666736f7065;  // "kdvfsope"

    OpenOperation(kdvfs_pipeline& its, kdvfs::StreamRef stream, train::Pass pass,
                  std::uint32_t chunk, std::uint32_t microbatch)
        : pipeline{&its}, scope{its.session, stream, pass, chunk, microbatch} {}

    std::uint64_t mark = is_open;
    kdvfs_pipeline* pipeline;
    train::OperationScope scope;
};
static_assert(sizeof(OpenOperation) <= sizeof(kdvfs_operation));
static_assert(alignof(OpenOperation) <= alignof(kdvfs_operation));

}  // namespace

extern "C" {

void kdvfs_receive(kdvfs_received* received, uint32_t rank, const char* text, size_t length) {
    if (received != nullptr && (text != nullptr || length == 0))
        received->texts.insert_or_assign(rank, std::string(text == nullptr ? "" : text, length));
}

void kdvfs_receive_error(kdvfs_received* received, const char* reason) {
    if (received != nullptr && reason != nullptr) received->error = reason;
}

void kdvfs_pipeline_options_init(kdvfs_pipeline_options* options) {
    if (options == nullptr) return;
    const train::SessionOptions defaults;
    *options = {};
    options->size = sizeof(kdvfs_pipeline_options);
    options->schedule = KDVFS_1F1B;
    options->stages = 1;
    options->chunks = 1;
    options->stage = -1;
    options->copy = -1;
    options->switch_latency_s = -1;
    options->samples = defaults.samples;
    options->silence_s = kdvfs::Seconds{defaults.silence}.count();
    options->planning_s = kdvfs::Seconds{defaults.planning}.count();
}

kdvfs_status kdvfs_pipeline_begin(kdvfs_gpu* gpu, const kdvfs_pipeline_options* options,
                                  kdvfs_pipeline** pipeline) {
    return guarded([&] {
        given(pipeline, "where the session goes") = nullptr;
        BeginningCall call{gpu, 0};
        *pipeline = new kdvfs_pipeline{*gpu, used_options(options)};
        call.has_begun();
    });
}

kdvfs_status kdvfs_pipeline_next_iteration(kdvfs_pipeline* pipeline) {
    return guarded([&] { given(pipeline, "the session").session.next_iteration(); });
}

kdvfs_status kdvfs_operation_begin(kdvfs_pipeline* pipeline, void* stream, int pass, uint32_t chunk,
                                   uint32_t microbatch, kdvfs_operation* operation) {
    return guarded([&] {
        kdvfs_pipeline& its = given(pipeline, "the session");
        static_cast<void>(given(operation, "the operation"));
        if (pass < KDVFS_FORWARD || pass > KDVFS_BACKWARD_WEIGHT)
            reject("begin an operation", "pass " + std::to_string(pass), "there is no such pass",
                   "use KDVFS_FORWARD, _BACKWARD, _BACKWARD_INPUT or _BACKWARD_WEIGHT");
        ::new (operation) OpenOperation{its, stream_of(its.gpu, stream),
                                        static_cast<train::Pass>(pass), chunk, microbatch};
        its.users.fetch_add(1, std::memory_order_relaxed);
    });
}

kdvfs_status kdvfs_operation_reached(kdvfs_operation* operation, double share) {
    return guarded([&] {
        auto& open = *reinterpret_cast<OpenOperation*>(&given(operation, "the operation"));
        if (open.mark != OpenOperation::is_open)
            reject("say how far an operation is", "the operation", "it has ended",
                   "call it before kdvfs_operation_end");
        open.scope.reached(share);
    });
}

kdvfs_status kdvfs_operation_end(kdvfs_operation* operation) {
    return guarded([&] {
        auto& ending = *reinterpret_cast<OpenOperation*>(&given(operation, "the operation"));
        if (std::exchange(operation->opaque[0], 0) != OpenOperation::is_open) return;
        const struct Ended {
            OpenOperation& operation;
            ~Ended() {
                kdvfs_pipeline& pipeline = *operation.pipeline;
                operation.~OpenOperation();
                pipeline.users.fetch_sub(1);
            }
        } ended{ending};
        ending.scope.close();
    });
}

const char* kdvfs_pipeline_phase(const kdvfs_pipeline* pipeline) {
    const auto phase = pipeline == nullptr ? train::SessionPhase::off : pipeline->session.phase();
    return to_string(phase).data();
}

kdvfs_status kdvfs_pipeline_plan_json(const kdvfs_pipeline* pipeline, char** json) {
    return guarded([&] {
        given(json, "where the plan goes") = nullptr;
        const auto& session = given(pipeline, "the session").session;
        const train::StagePlan& plan = session.plan();
        nlohmann::ordered_json text{{"stage", session.stage()},
                                    {"time_s", plan.time.count()},
                                    {"energy_j", plan.total.count},
                                    {"answers_straggler", session.answers_straggler()},
                                    {"verdict", to_string(session.verdict().kind)},
                                    {"operations", nlohmann::ordered_json::array()}};
        for (const train::PlannedClocks& planned : plan.operations)
            text["operations"].push_back(clocks_json(planned));
        *json = copy_of(text.dump());
    });
}

kdvfs_status kdvfs_pipeline_straggler(kdvfs_pipeline* pipeline, uint32_t rank, double iteration_s) {
    return guarded([&] {
        kdvfs_pipeline& its = given(pipeline, "the session");
        if (rank >= its.ranks->size() || !(iteration_s >= 0 && std::isfinite(iteration_s)))
            reject("plan for a slow rank",
                   "rank " + std::to_string(rank) + ", " + std::to_string(iteration_s) + " s",
                   "there is no such rank or time",
                   "give a rank from 0, and the seconds of its iterations, or 0");
        its.session.straggler(rank, kdvfs::Seconds{iteration_s});
    });
}

kdvfs_status kdvfs_pipeline_check(const kdvfs_pipeline* pipeline) {
    return guarded([&] { given(pipeline, "the session").session.check(); });
}

kdvfs_status kdvfs_pipeline_end(kdvfs_pipeline* pipeline) {
    if (pipeline == nullptr) return KDVFS_OK;
    return guarded([&] {
        if (pipeline->users.load() != 0)
            reject("end the session of a pipeline", "an operation", "it has not ended",
                   "end it first");
        kdvfs_gpu& gpu = pipeline->gpu;
        delete pipeline;
        gpu.users.leave(Users::begun);
    });
}

}  // extern "C"
