// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/train/schedules.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/schedules.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// Reads the profiles that Perseus' tools write (ml-energy/zeus, SOSP'24).
class PerseusReader {
public:
    PerseusReader(std::istream& input, std::string name)
        : reader_{input, std::move(name), "docs/training.md"} {}

    [[nodiscard]] Pipeline read(const PipelineShape& shape, Watts blocking_power) {
        check_shape(shape);
        find_columns();
        std::map<Key, std::map<std::uint32_t, Sum>> sums;
        while (reader_.next(fields_)) {
            kdvfs::detail::require_width(fields_, width_, reader_);
            const auto pass = pass_of(fields_[places_[1]]);
            if (!pass) continue;
            const auto stage = static_cast<std::uint32_t>(number(0, 0, 1e6));
            const auto clock = static_cast<std::uint32_t>(std::lround(number(2, 1, 1e5)));
            Sum& sum = sums[{stage % shape.stages, *pass, stage / shape.stages}][clock];
            ++sum.count;
            sum.time += number(3, 0, 1e6);
            sum.energy += number(4, 0, 1e12);
        }
        CurveIndex curve_of;
        std::vector<Curve> curves;
        for (const auto& [key, points] : sums) {
            const auto& [stage, pass, chunk] = key;
            curve_of[key] = static_cast<std::uint32_t>(curves.size());
            std::vector<CurvePoint> means;
            for (const auto& [clock, sum] : points)
                means.push_back({{{clock}, auto_clock},
                                 Seconds{sum.time / sum.count},
                                 Joules{sum.energy / sum.count}});
            const Shape its = means.size() == 1 ? Shape::constant : Shape::measured;
            curves.emplace_back(
                "stage " + std::to_string(stage) + ", " + std::string{to_string(pass)},
                std::move(means), blocking_power, its);
        }
        return make_pipeline(shape, curve_of, std::move(curves), blocking_power);
    }

private:
    using Key = std::tuple<std::uint32_t, Pass, std::uint32_t>;
    struct Sum {
        double count = 0;
        double time = 0;
        double energy = 0;
    };
    static constexpr std::array<std::string_view, 5> names{"stage", "instruction", "frequency",
                                                           "time", "energy"};

    void find_columns() {
        if (!reader_.next(fields_)) reader_.fail("the file is empty");
        width_ = fields_.size();
        for (std::size_t k = 0; k < names.size(); ++k) {
            const auto at = std::find(fields_.begin(), fields_.end(), names[k]);
            if (at == fields_.end()) reader_.fail("there is no column " + std::string{names[k]});
            places_[k] = static_cast<std::size_t>(at - fields_.begin());
        }
    }
    /// What is not computed on the stage's GPUs, such as "load", has no pass.
    [[nodiscard]] std::optional<Pass> pass_of(const std::string& instruction) const {
        if (instruction == "forward") return Pass::forward;
        if (instruction == "backward") return Pass::backward;
        if (instruction == "input" || instruction == "backward_input") return Pass::backward_input;
        if (instruction == "weight" || instruction == "backward_weight")
            return Pass::backward_weight;
        if (instruction == "load") return std::nullopt;
        reader_.fail("the instruction \"" + instruction + "\" is not known");
    }
    [[nodiscard]] double number(std::size_t column, double least, double most) const {
        const auto found = kdvfs::detail::parse_number<double>(fields_[places_[column]]);
        if (!found || !(*found >= least && *found <= most))
            reader_.fail("the " + std::string{names[column]} + " is out of range");
        return *found;
    }

    io::CsvReader reader_;
    std::vector<std::string> fields_;
    std::array<std::size_t, 5> places_{};
    std::size_t width_ = 0;
};

}  // namespace detail

/// A pipeline from a profile as Perseus' tools write it: CSV with the columns `stage`,
/// `instruction` (`forward`, `backward`, `input`, `weight`; `load` is left out), `frequency` (MHz),
/// `time` (s) and `energy` (J, of all GPUs of the stage). Several rows of one place are averaged.
/// Interleaved, stage p is chunk p / `shape.stages` of stage p modulo `shape.stages`.
/// @param name what errors call the input
/// @param blocking_power of one stage that waits for another, which such files do not have
/// @throws Error (invalid_input) naming file and line, or the operation that has no rows
inline Pipeline read_perseus_profile(std::istream& input, const std::string& name,
                                     const PipelineShape& shape, Watts blocking_power) {
    return detail::PerseusReader{input, name}.read(shape, blocking_power);
}

/// @throws Error (io) where the file cannot be opened, else as above
inline Pipeline read_perseus_profile(const std::filesystem::path& path, const PipelineShape& shape,
                                     Watts blocking_power) {
    std::ifstream input{path};
    if (!input)
        throw Error{Errc::io, {"open a profile", path.string(), "", "check the file's name"}};
    return read_perseus_profile(input, path.string(), shape, blocking_power);
}

}  // namespace kdvfs::inline v0_3::train
