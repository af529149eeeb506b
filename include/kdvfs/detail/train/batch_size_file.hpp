// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/batch_size.hpp>
#include <kdvfs/units.hpp>

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace kdvfs::inline v0_3::train {
namespace detail {

inline constexpr std::string_view batch_size_format = "kdvfs batch sizes 1";

inline nlohmann::ordered_json to_json(const BatchSizeRecord& record) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    if (record.profile) {
        json["epoch_cost"] = record.profile->cost;
        if (record.profile->limit) json["limit_w"] = record.profile->limit->count;
    }
    json["reached"] = record.reached;
    json["stopped"] = record.stopped;
    json["failures"] = record.failures;
    return json;
}

/// The state as JSON; numbers read back as they were.
inline std::string to_text(const BatchSizeState& state, const std::string& job) {
    nlohmann::ordered_json json{{"format", batch_size_format},
                                {"job", job},
                                {"next_id", state.next_id},
                                {"draws", state.draws}};
    if (std::isfinite(state.least_cost)) json["least_cost"] = state.least_cost;
    json["unreached"] = state.unreached;
    if (state.doubtful)
        json["doubtful"] = {{"batch_size", state.doubtful->batch_size},
                            {"epochs", state.doubtful->epochs}};
    json["sizes"] = nlohmann::ordered_json::object();
    for (const auto& [size, record] : state.sizes)
        json["sizes"][std::to_string(size)] = to_json(record);
    json["pending"] = nlohmann::ordered_json::object();
    for (const auto& [id, run] : state.pending)
        json["pending"][std::to_string(id)] = {
            {"batch_size", run.batch_size}, {"explores", run.explores}, {"started_s", run.started}};
    return json.dump(1) + '\n';
}

/// Takes a state out of a parsed file; throws the words of what is wrong.
class BatchSizeReader {
public:
    static BatchSizeState read(const nlohmann::json& json, const std::string& job) {
        if (!json.is_object() || json.value("format", "") != batch_size_format)
            throw std::string{"it is no file of batch sizes"};
        if (const std::string other = json.value("job", ""); other != job)
            throw "it is of another job, '" + other + "'";
        BatchSizeState state;
        state.next_id = whole<std::uint64_t>(json.at("next_id"));
        state.draws = whole<std::uint64_t>(json.at("draws"));
        if (json.contains("least_cost")) state.least_cost = positive(json.at("least_cost"));
        if (json.contains("unreached"))
            state.unreached = whole<std::uint32_t>(json.at("unreached"));
        for (const auto& [key, value] : json.at("sizes").items())
            state.sizes[number<std::uint32_t>(key)] = record(value);
        if (json.contains("doubtful")) {
            const auto& doubtful = json.at("doubtful");
            const auto size = whole<std::uint32_t>(doubtful.at("batch_size"));
            if (!state.sizes.contains(size)) throw std::string{"a run has an unknown batch size"};
            state.doubtful = {size, positive(doubtful.at("epochs"))};
        }
        for (const auto& [key, value] : json.at("pending").items()) {
            const auto size = whole<std::uint32_t>(value.at("batch_size"));
            if (!state.sizes.contains(size)) throw std::string{"a run has an unknown batch size"};
            state.pending[number<std::uint64_t>(key)] = {size, value.at("explores").get<bool>(),
                                                         value.at("started_s").get<double>()};
        }
        return state;
    }

private:
    static BatchSizeRecord record(const nlohmann::json& json) {
        BatchSizeRecord record;
        if (json.contains("epoch_cost")) {
            record.profile = EpochProfile{std::nullopt, positive(json.at("epoch_cost"))};
            if (json.contains("limit_w"))
                record.profile->limit = Watts{positive(json.at("limit_w"))};
        }
        for (const auto& epochs : json.at("reached")) record.reached.push_back(positive(epochs));
        for (const auto& epochs : json.at("stopped")) record.stopped.push_back(positive(epochs));
        record.failures = whole<std::size_t>(json.at("failures"));
        if (!record.reached.empty() && !record.profile)
            throw std::string{"a size that has reached the target has no epoch cost"};
        return record;
    }

    static double positive(const nlohmann::json& json) {
        const auto value = json.get<double>();
        if (!std::isfinite(value) || value <= 0) throw std::string{"a number is not positive"};
        return value;
    }
    template <class Number>
    static Number whole(const nlohmann::json& json) {
        if (!json.is_number_unsigned() || json.get<std::uint64_t>() > Number(-1))
            throw std::string{"a count is not a whole number"};
        return json.get<Number>();
    }
    template <class Number>
    static Number number(const std::string& text) {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc{} || end != text.data() + text.size())
            throw "'" + text + "' is not a whole number";
        return value;
    }
};

/// The right to change a file, for as long as it lives: a lock on a file beside it.
class FileTurn {
public:
    /// @throws Error (io), and (busy) after ten seconds
    explicit FileTurn(const std::filesystem::path& path)
        : file_{::open((path.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                       0666)} {
        if (!file_.is_open()) kdvfs::detail::throw_file_error("open a lock beside", path, errno);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
        while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                kdvfs::detail::throw_file_error("lock", path, errno);
            if (std::chrono::steady_clock::now() >= deadline) {
                throw Error{Errc::busy,
                            {"wait for a turn", path.string(), "another process keeps it locked",
                             "end that process if it hangs"}};
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
    }

private:
    kdvfs::detail::Descriptor file_;
};

}  // namespace detail

/// A `BatchSize` whose memory is a file, shared by all processes that run the job, one after the
/// other or at once. Each call takes a turn at the file, and replaces it as a whole before it
/// returns: a process that is killed at any point leaves the memory before its call or after it.
/// One file is for one job on one kind of GPU. Thread-safe.
class BatchSizeFile {
public:
    /// @param job what the file is about, checked when it is read: the job's name and the GPU's
    /// @throws Error as `BatchSize`, (io), and (invalid_input) for a file that is another job's or
    ///         makes no sense
    BatchSizeFile(std::filesystem::path path, std::string job, BatchSizeOptions options)
        : path_{std::move(path)}, job_{std::move(job)}, options_{std::move(options)} {
        const detail::FileTurn turn{path_};
        remove_leftovers();
        static_cast<void>(load());
    }

    /// As `BatchSize::suggest`, by the system's clock.
    SuggestedRun suggest() {
        const std::chrono::duration<double> now =
            std::chrono::system_clock::now().time_since_epoch();
        SuggestedRun run;
        change([&](BatchSize& sizes) { run = sizes.suggest(now); });
        return run;
    }
    /// As `BatchSize::profiled`.
    double profiled(std::uint64_t id, const EpochProfile& profile) {
        double most_cost = 0;
        change([&](BatchSize& sizes) { most_cost = sizes.profiled(id, profile); });
        return most_cost;
    }
    /// As `BatchSize::observe`.
    void observe(std::uint64_t id, const RunOutcome& outcome) {
        change([&](BatchSize& sizes) { sizes.observe(id, outcome); });
    }
    /// What the file holds now.
    [[nodiscard]] BatchSize read() const {
        const detail::FileTurn turn{path_};
        return load();
    }

private:
    template <class Change>
    void change(Change apply) const {
        const detail::FileTurn turn{path_};
        BatchSize sizes = load();
        apply(sizes);
        kdvfs::detail::write_file_atomically(path_, detail::to_text(sizes.state(), job_));
    }

    [[nodiscard]] BatchSize load() const {
        std::ifstream file{path_, std::ios::binary};
        if (!file && !std::filesystem::exists(path_)) return BatchSize{options_};
        if (!file) kdvfs::detail::throw_file_error("open a file of batch sizes", path_, errno);
        try {
            return BatchSize{options_,
                             detail::BatchSizeReader::read(nlohmann::json::parse(file), job_)};
        } catch (const std::string& why) {
            reject(why);
        } catch (const Error& error) {
            reject(error.text().object + ": " + error.text().vendor_words);
        } catch (const nlohmann::json::exception& why) {
            reject(why.what());
        }
    }

    [[noreturn]] void reject(const std::string& why) const {
        throw Error{Errc::invalid_input,
                    {"go on with batch sizes", path_.string(), why,
                     "use another file for this job, or remove this one to begin anew"}};
    }

    /// Files that were being written when a process was killed; nobody writes now.
    void remove_leftovers() const {
        const std::string prefix = "." + path_.filename().string() + ".";
        std::error_code ignored;
        const auto folder = path_.has_parent_path() ? path_.parent_path() : ".";
        for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
            const std::string name = entry.path().filename().string();
            if (!name.starts_with(prefix) || !name.ends_with(".tmp")) continue;
            const std::string_view middle =
                std::string_view{name}.substr(prefix.size(), name.size() - prefix.size() - 4);
            if (middle.find_first_not_of("0123456789.") == middle.npos)
                std::filesystem::remove(entry.path(), ignored);
        }
    }

    std::filesystem::path path_;
    std::string job_;
    BatchSizeOptions options_;
};

}  // namespace kdvfs::inline v0_3::train
