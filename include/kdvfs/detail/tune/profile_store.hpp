// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/csv_fields.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/rank_profiles.hpp>
#include <kdvfs/detail/tune/sweep_design.hpp>
#include <kdvfs/detail/tune/sweep_file.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// What a stored profile is found by: the same work on the same kind of board.
struct StoredProgram {
    std::string gpu;                 ///< as `gpu_name` calls it
    std::string setting;             ///< how clocks are set
    std::vector<KernelKey> kernels;  ///< of an iteration, each once, ascending
    Seconds iteration{0};            ///< as found
};

/// The versions of the GPU drivers that are loaded; empty where the kernel does not say.
inline std::string loaded_drivers() {
    std::string versions;
    for (const char* module : {"amdgpu", "nvidia"}) {
        std::ifstream file{std::string{"/sys/module/"} + module + "/version"};
        std::string version{std::istreambuf_iterator<char>{file}, {}};
        if (!version.empty()) versions += std::string{module} + ' ' + version;
    }
    return versions;
}

/// What the plans of a program have shown that its profile does not say.
struct PlanExperience {
    Seconds latency{0};    ///< of switches, as plans are made for
    double longer_by = 1;  ///< factor: what plans took, against what they promised
    double stretch = 1;    ///< of the bound of plans
};

inline std::filesystem::path experience_path(std::filesystem::path profile) {
    return profile.replace_extension(".plans.csv");
}
/// Where cases of pipelines (`train::Session`) are, whose operations are measured instead of
/// kernels: several models have the same schedule.
inline std::vector<std::filesystem::path> pipeline_paths(const std::filesystem::path& profile) {
    std::vector<std::filesystem::path> paths;
    for (const char* number : {"", "-2", "-3", "-4"})
        paths.push_back(std::filesystem::path{profile}.replace_extension(std::string{".pipeline"} +
                                                                         number + ".json"));
    return paths;
}
// What a run may hand to the next one, at most.
inline constexpr double most_latency = 1;  // s
inline constexpr double most_longer = 2;
inline constexpr double most_stretch = 4;
/// Nothing where there is none that can be used.
inline std::optional<PlanExperience> read_experience(const std::filesystem::path& profile) {
    const std::filesystem::path file = experience_path(profile);
    std::ifstream input{file};
    try {
        io::CsvReader reader{input, file.string()};
        NamedColumns columns{reader, {"latency_s", "longer_by", "stretch"}};
        if (!columns.next()) return std::nullopt;
        const auto number = [&](const char* column) {
            return parse_field<double>(columns.get(column), column, reader);
        };
        const PlanExperience shown{Seconds{number("latency_s")}, number("longer_by"),
                                   number("stretch")};
        const auto within = [](double value, double least, double most) {
            return value >= least && value <= most;
        };
        if (within(shown.latency.count(), 0, most_latency) &&
            within(shown.longer_by, 1, most_longer) && within(shown.stretch, 1, most_stretch))
            return shown;
    } catch (const Error&) {  // there is none, or it is damaged
    }
    return std::nullopt;
}
/// A file that cannot be written is left out.
inline void write_experience(const std::filesystem::path& profile, PlanExperience shown) {
    shown.latency = std::min(shown.latency, Seconds{most_latency});
    shown.longer_by = std::min(shown.longer_by, most_longer);
    shown.stretch = std::min(shown.stretch, most_stretch);
    try {
        kdvfs::detail::write_file_atomically(
            experience_path(profile), "latency_s,longer_by,stretch\n" +
                                          kdvfs::detail::to_text(shown.latency.count()) + ',' +
                                          kdvfs::detail::to_text(shown.longer_by) + ',' +
                                          kdvfs::detail::to_text(shown.stretch) + '\n');
    } catch (const Error&) {  // the disk is full: done without
    }
}

/// A kernel's name as files show it that many may read.
inline std::string hashed_name(const std::string& kernel) {
    const std::string hash = kdvfs::detail::content_hash(kernel);
    return "kernel_" + hash.substr(hash.find(':') + 1);
}
/// Whether it is 16 hexadecimal digits, as `content_hash` gives them.
inline bool is_hash(std::string_view text) {
    return text.size() == 16 &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
inline bool is_hashed_name(std::string_view kernel) {
    constexpr std::string_view begin = "kernel_";
    return kernel.starts_with(begin) && is_hash(kernel.substr(begin.size()));
}

/// What runs, jobs or nodes have measured of one program, as one profile: boards of a kind are
/// ranks that measured at other times. A kernel's costs are taken against those of the same source
/// at the baseline. Where a kernel's time differs by more than 5 %, the largest source's stay.
/// @param most_samples of a clock point; the largest sources come first
inline Profile merge_profiles(std::vector<Profile> sources, std::size_t most_samples) {
    const auto rows_in = [](const Profile& profile) { return rows_of(profile).size(); };
    std::stable_sort(sources.begin(), sources.end(),
                     [&](const Profile& a, const Profile& b) { return rows_in(a) > rows_in(b); });
    const std::optional<ClockPoint> baseline = sources.front().baseline();
    if (!baseline) return sources.front();
    std::vector<ClockPoint> points;
    for (const Profile& source : sources)
        for (const ProfileRow& row : rows_of(source))
            if (std::find(points.begin(), points.end(), row.clock) == points.end())
                points.push_back(row.clock);
    RankProfiles merged{sources.front().gpu(), SweepDesign{points, baseline}};
    std::map<ClockPoint, std::size_t> samples;
    std::uint64_t stages = 0;
    for (std::uint32_t rank = 0; rank < sources.size(); ++rank) {
        for (RankBlock& block : blocks_of(sources[rank], most_samples)) {
            if (++samples[block.clock] > most_samples) continue;
            block.stage = 2 * ++stages - block.stage % 2;
            merged.add(rank, std::move(block));
        }
    }
    return merged.of_rank(0);
}

/// The sweep files that a user's runs share: a folder for each program on a board, named after a
/// hash of what it is found by, so that it tells no kernel's name. Files of a site may have names
/// hashed as well (`merge_profile_stores`). Iterations that differ by more
/// than about a quarter are other programs. The oldest folders are removed, and so are those that
/// have grown too large. What the user has not is taken from the site's store, which is only read.
class ProfileStore {
public:
    static constexpr std::size_t most_programs = 64;

    static constexpr std::uintmax_t most_bytes = 16U << 20U;  ///< of a program's files, each

    /// @param folder made where it is not there; of this user alone
    /// @param site a store whose files are this user's or root's; empty: there is none
    explicit ProfileStore(std::filesystem::path folder, std::filesystem::path site = {})
        : folder_{std::move(folder)}, site_{std::move(site)} {}

    /// The sweep file of a program: made by whoever opens it. Removes the oldest programs.
    /// @throws std::filesystem::filesystem_error where the folder cannot be made
    [[nodiscard]] std::filesystem::path file_of(const StoredProgram& program) const {
        return file_of(name_of(program), program.kernels);
    }
    /// The same for another rank's program.
    /// @param name as its rank gives it (`name_of`)  @param kernels whose names are known here
    [[nodiscard]] std::filesystem::path file_of(const std::string& name,
                                                const std::vector<KernelKey>& kernels) const {
        namespace fs = std::filesystem;
        const fs::path own = folder_ / name;
        if (!fs::exists(folder_)) {
            fs::create_directories(folder_);
            fs::permissions(folder_, fs::perms::owner_all);
        }
        fs::create_directories(own);
        std::error_code ignored;
        fs::last_write_time(own, fs::file_time_type::clock::now(), ignored);
        remove_oldest();
        fs::path file = own / "profile.csv";
        for (const fs::path& each : files_of(file))
            if (fs::file_size(each, ignored) > most_bytes && !ignored) fs::remove(each, ignored);
        const auto cases = pipeline_paths(file);
        const bool is_known =
            fs::exists(file) || std::any_of(cases.begin(), cases.end(),
                                            [](const fs::path& each) { return fs::exists(each); });
        if (!site_.empty() && !is_known) copy_from_site(name, kernels, file);
        return file;
    }

    /// The folder of a program: 16 hexadecimal digits.
    static std::string name_of(const StoredProgram& program) {
        std::string text = program.gpu + '\n' + program.setting + '\n' + loaded_drivers() + '\n';
        for (const KernelKey& key : program.kernels) text += to_string(key) + '\n';
        constexpr double steps = 3;  // for each doubling of the iteration's time
        const double size = std::log2(std::max(program.iteration.count(), 1e-9));
        text += std::to_string(std::lround(steps * size));
        const std::string hash = kdvfs::detail::content_hash(text);
        return hash.substr(hash.find(':') + 1);
    }

private:
    static std::vector<std::filesystem::path> files_of(const std::filesystem::path& file) {
        std::vector<std::filesystem::path> files{file, sequence_path(file), trace_path(file),
                                                 experience_path(file)};
        for (std::filesystem::path& each : pipeline_paths(file)) files.push_back(std::move(each));
        return files;
    }

    /// What the site knows of the program, as far as its files can be trusted.
    void copy_from_site(const std::string& name, const std::vector<KernelKey>& kernels,
                        const std::filesystem::path& file) const {
        const auto from = files_of(site_ / name / "profile.csv");
        const auto to = files_of(file);
        std::error_code ignored;
        try {
            for (std::size_t i = 0; i < from.size(); ++i)
                if (std::filesystem::file_size(from[i], ignored) <= most_bytes && !ignored)
                    kdvfs::detail::write_file_atomically(
                        to[i], with_names(read_trusted_file(from[i]), kernels));
        } catch (const Error&) {  // others may write it, or the disk is full: done without
        }
    }

    /// A site may have hashed the names of kernels: the program knows its own.
    static std::string with_names(std::string text, const std::vector<KernelKey>& kernels) {
        for (const KernelKey& key : kernels) {
            const std::string hashed = hashed_name(key.name);
            const std::string name = kdvfs::detail::csv_field(key.name);
            for (std::size_t at = text.find(hashed); at != std::string::npos;
                 at = text.find(hashed, at + name.size()))
                text.replace(at, hashed.size(), name);
        }
        return text;
    }

    void remove_oldest() const {
        namespace fs = std::filesystem;
        std::error_code ignored;
        std::vector<std::pair<fs::file_time_type, fs::path>> programs;
        for (const auto& entry : fs::directory_iterator{folder_, ignored})
            if (entry.is_directory(ignored))
                programs.emplace_back(entry.last_write_time(ignored), entry.path());
        if (programs.size() <= most_programs) return;
        std::sort(programs.begin(), programs.end());
        programs.resize(programs.size() - most_programs);
        for (const auto& [used, path] : programs) fs::remove_all(path, ignored);
    }

    std::filesystem::path folder_;
    std::filesystem::path site_;
};

/// Merges stores of profiles program by program.
class StoreMerge {
public:
    explicit StoreMerge(bool hash_names) : hashes_{hash_names} {}

    /// A program's profile in `into` is replaced: measurements that are in it count where it is one
    /// of `from`, so that those of a second merge do not count twice.
    void merge(const std::vector<std::filesystem::path>& from, const std::filesystem::path& into) {
        namespace fs = std::filesystem;
        std::map<std::string, std::vector<fs::path>> programs;
        std::set<fs::path> stores;
        for (const fs::path& store : from) stores.insert(fs::weakly_canonical(store));
        for (const fs::path& store : stores)
            for (const auto& entry : fs::directory_iterator{store})
                if (is_file(entry.path() / "profile.csv"))
                    programs[entry.path().filename().string()].push_back(entry.path() /
                                                                         "profile.csv");
        for (const auto& [name, files] : programs) merge_program(files, into / name);
    }

    [[nodiscard]] std::size_t programs() const { return programs_; }
    [[nodiscard]] std::size_t profiles() const { return profiles_; }
    [[nodiscard]] std::size_t unreadable() const { return unreadable_; }

    static constexpr std::size_t most_samples = 8;  ///< of a clock

private:
    struct Source {
        Profile profile;
        LaunchSequence sequence;
        LaunchTrace trace;
        std::optional<PlanExperience> experience;
    };

    /// No link: who merges may have more rights than who wrote.
    static bool is_file(const std::filesystem::path& path) {
        std::error_code failed;
        return std::filesystem::symlink_status(path, failed).type() ==
                   std::filesystem::file_type::regular &&
               std::filesystem::file_size(path, failed) <= ProfileStore::most_bytes && !failed;
    }
    static Profile read_whole_lines(const std::filesystem::path& file) {
        std::ifstream input{file, std::ios::binary};
        std::string text{std::istreambuf_iterator<char>{input}, {}};
        text.resize(text.rfind('\n') + 1);  // a run may be writing it
        std::istringstream lines{text};
        return read_profile(lines, file.string());
    }
    static Source read(const std::filesystem::path& file) {
        Source source{read_whole_lines(file), {}, {}, {}};
        if (is_file(sequence_path(file))) source.sequence = read_launches(sequence_path(file));
        if (is_file(trace_path(file))) source.trace = read_trace(trace_path(file));
        if (is_file(experience_path(file))) source.experience = read_experience(file);
        return source;
    }

    void merge_program(const std::vector<std::filesystem::path>& files,
                       const std::filesystem::path& into) {
        std::vector<Source> sources;
        for (const auto& file : files) {
            try {
                sources.push_back(read(file));
            } catch (const Error&) {
                ++unreadable_;
            }
        }
        if (sources.empty()) return;
        // Names of both kinds are not found alike.
        const bool hash = hashes_ || std::any_of(sources.begin(), sources.end(), is_hashed);
        std::vector<Profile> profiles;
        for (Source& source : sources) {
            if (hash) hash_names(source);
            if (source.profile.gpu() == sources.front().profile.gpu())
                profiles.push_back(source.profile);
        }
        std::filesystem::create_directories(into);
        const auto file = into / "profile.csv";
        // What no source has is of measurements that are not in the merged profile.
        const auto write = [&](const std::filesystem::path& path, auto has, auto write_of) {
            const auto first = std::find_if(sources.begin(), sources.end(), has);
            if (first != sources.end())
                write_of(*first);
            else
                std::filesystem::remove(path);
        };
        write(
            sequence_path(file), [](const Source& s) { return !s.sequence.launches.empty(); },
            [&](const Source& s) { write_launches(sequence_path(file), s.sequence); });
        write(
            trace_path(file), [](const Source& s) { return !s.trace.iterations.empty(); },
            [&](const Source& s) { write_trace(trace_path(file), s.trace); });
        write(
            experience_path(file), [](const Source& s) { return s.experience.has_value(); },
            [&](const Source& s) { write_experience(file, *s.experience); });
        profiles_ += profiles.size();
        ++programs_;
        kdvfs::detail::write_file_atomically(
            file, to_csv(merge_profiles(std::move(profiles), most_samples)));
    }

    static bool is_hashed(const Source& source) {
        const auto& kernels = source.profile.kernels();
        return std::any_of(kernels.begin(), kernels.end(), [](const KernelProfile& kernel) {
            return is_hashed_name(kernel.key.name);
        });
    }
    static void hash_names(Source& source) {
        const auto hash = [](KernelKey& key) {
            if (!is_hashed_name(key.name)) key.name = hashed_name(key.name);
        };
        Profile hashed{source.profile.gpu()};
        for (ProfileRow row : rows_of(source.profile)) {
            hash(row.key);
            row.group.clear();
            hashed.add(row);
        }
        source.profile = std::move(hashed);
        for (KernelKey& key : source.sequence.launches) hash(key);
        for (KernelKey& key : source.trace.kernels) hash(key);
    }

    bool hashes_;
    std::size_t programs_ = 0;    ///< that were written
    std::size_t profiles_ = 0;    ///< that went into them
    std::size_t unreadable_ = 0;  ///< profiles that were left out
};

}  // namespace kdvfs::inline v0_3::tune::detail
