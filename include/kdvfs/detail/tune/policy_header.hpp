// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/policy_header.hpp>

#include <kdvfs/detail/tune/coded_launches.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::tune {

/// Names of any kind in C++ source.
namespace detail {

/// A name between the quotes of a C++ string literal. Of "??" the second is escaped: three
/// characters that begin so were once one of another meaning (trigraphs).
inline std::string cpp_literal(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c == '"' || c == '\\' || (c == '?' && text.ends_with('?'))) text += '\\';
        text += c;
    }
    return text;
}

/// The letters and digits of a name as one word in PascalCase, so that it is an identifier and no
/// keyword: "qkv_gemm" is QkvGemm, "void f<int, 2>(float*)" is VoidFInt2Float. Of a macro that
/// standard headers and old code define only the first letter stays a capital.
inline std::string pascal_case(std::string_view name) {
    constexpr std::size_t longest = 64;
    std::string word;
    bool begins = true;
    for (const char c : name) {
        const bool is_lower = c >= 'a' && c <= 'z';
        const bool is_letter = is_lower || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9')) {
            begins = true;
            continue;
        }
        if (word.empty() && !is_letter) word = "Kernel";
        word += begins && is_lower ? static_cast<char>(c - 'a' + 'A') : c;
        begins = false;
        if (word.size() == longest) break;
    }
    constexpr std::string_view macros[] = {"NULL",  "EOF",    "NAN",    "INFINITY", "TRUE",
                                           "FALSE", "BUFSIZ", "EDOM",   "ERANGE",   "EILSEQ",
                                           "DEBUG", "NDEBUG", "SIGINT", "SIGTERM"};
    if (std::find(std::begin(macros), std::end(macros), word) != std::end(macros)) {
        for (std::size_t i = 1; i < word.size(); ++i)
            word[i] = static_cast<char>(word[i] - 'A' + 'a');
    }
    return word.empty() ? "Kernel" : word;
}

/// An identifier for each name. Those that fall on the same word are numbered in the order of the
/// names: Gemm, Gemm_2. No word has an underscore of its own, so numbers meet nothing.
inline std::map<std::string, std::string> cpp_identifiers(const std::set<std::string>& names) {
    std::map<std::string, std::string> identifiers;
    std::map<std::string, std::size_t> uses;
    for (const std::string& name : names) {
        const std::string word = pascal_case(name);
        const std::size_t use = ++uses[word];
        identifiers[name] = use == 1 ? word : word + '_' + std::to_string(use);
    }
    return identifiers;
}

}  // namespace detail

namespace detail {

[[noreturn]] inline void reject_header(const std::string& object, const std::string& why) {
    throw Error{Errc::invalid_input, {"generate a policy header", object, why, ""}};
}

/// Whether a text is a C++ identifier that a user may define. Keywords are few enough to list.
inline bool is_identifier(std::string_view text) {
    static constexpr std::string_view keywords =
        " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t "
        "char16_t char32_t class compl concept const consteval constexpr constinit const_cast "
        "continue co_await co_return co_yield decltype default delete do double dynamic_cast else "
        "enum explicit export extern false float for friend goto if inline int long mutable "
        "namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
        "register reinterpret_cast requires return short signed sizeof static static_assert "
        "static_cast struct switch template this thread_local throw true try typedef typeid "
        "typename union unsigned using virtual void volatile wchar_t while xor xor_eq ";
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (text.empty() || text.size() > 64 || !is_letter(text.front())) return false;
    if (!std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || is_digit(c); }))
        return false;
    if (text.find("__") != std::string_view::npos) return false;
    if (text.front() == '_') return false;
    return keywords.find(' ' + std::string{text} + ' ') == std::string_view::npos;
}

/// Whether a text is a namespace that a user may define. `std`, `std` with a number behind it, and
/// `posix` are reserved (C++20, [reserved.names]).
inline bool is_namespace_name(std::string_view text) {
    const std::string_view outermost = text.substr(0, text.find("::"));
    if (outermost == "posix" ||
        (outermost.starts_with("std") &&
         outermost.find_first_not_of("0123456789", 3) == std::string_view::npos))
        return false;
    for (std::size_t end = text.find("::"); end != std::string_view::npos; end = text.find("::")) {
        if (!is_identifier(text.substr(0, end))) return false;
        text.remove_prefix(end + 2);
    }
    return is_identifier(text);
}

/// Whether a text may stand in a comment of the generated header: one line, nothing that continues
/// it onto the next.
inline bool is_comment_text(std::string_view text) {
    return text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
               return c >= ' ' && c <= '~' && c != '\\' && c != '?';
           });
}

/// @param taken names that the header gives a meaning of its own
inline void check_names(const HeaderOptions& options,
                        std::initializer_list<std::string_view> taken) {
    const std::string in = "namespace \"" + options.namespace_name + '"';
    if (!is_namespace_name(options.namespace_name)) reject_header(in, "this is no namespace name");
    for (const std::string name : {"kdvfs", "std"})
        if ((options.namespace_name + "::").find("::" + name + "::") != std::string::npos)
            reject_header(in,
                          "an inner namespace '" + name + "' hides the one that the header uses");
    const std::string registry = "registry \"" + options.registry_name + '"';
    if (!is_identifier(options.registry_name)) reject_header(registry, "this is no type name");
    if (options.registry_name == "kdvfs" || options.registry_name == "std" ||
        std::find(taken.begin(), taken.end(), options.registry_name) != taken.end())
        reject_header(registry, "the header uses this name for something else");
}

inline void check(const std::vector<PlanFor>& plans, const HeaderOptions& options) {
    check_names(options, {"kernels"});
    if (!is_comment_text(options.input) || !is_comment_text(options.input_hash))
        reject_header("the banner", "the input's name has characters that are not allowed");
    if (plans.empty()) reject_header(options.namespace_name, "there is no plan");
    for (const PlanFor& entry : plans) {
        if (!entry.architecture.empty() &&
            !(is_kernel_name(entry.architecture) && is_comment_text(entry.architecture)))
            reject_header("architecture \"" + entry.architecture + '"', "this is no architecture");
        if (entry.architecture.empty() && plans.size() > 1)
            reject_header(options.namespace_name, "of several plans, each needs an architecture");
        if (!is_gpu_name(entry.plan.gpu)) reject_header(entry.plan.gpu, "this is no GPU's name");
        if (!is_kernel_name(entry.plan.objective) || !is_comment_text(entry.plan.objective))
            reject_header(entry.plan.objective, "this is no objective's name");
        if (entry.plan.kernels.empty()) reject_header(entry.plan.gpu, "the plan has no kernels");
        for (const PlannedKernel& kernel : entry.plan.kernels)
            if (!is_kernel_name(kernel.key.name))
                reject_header("kernel \"" + kernel.key.name + '"', "this is no kernel name");
    }
}

inline std::string clock_text(Megahertz clock) {
    if (clock == auto_clock) return "kdvfs::auto_clock";
    return "kdvfs::Megahertz{" + std::to_string(clock.count) + "}";
}

inline std::string policy_text(const PlannedKernel& kernel) {
    std::string policy = "kdvfs::AutoClock";
    if (!kernel.clock.is_auto()) {
        policy = "kdvfs::CapClock<" + clock_text(kernel.clock.core);
        if (kernel.clock.memory != auto_clock) policy += ", " + clock_text(kernel.clock.memory);
        policy += ">";
    }
    const double nanoseconds = std::clamp(kernel.expected.time.count() * 1e9, 1.0, 9e15);
    return "kdvfs::Lasting<" + std::to_string(std::llround(nanoseconds)) + ", " + policy + ">";
}

/// The policy of all variants of one kernel under one plan.
inline std::string variants_text(const std::map<std::uint32_t, std::string>& by_variant,
                                 const std::string& indent) {
    if (by_variant.size() == 1 && by_variant.begin()->first == 0) return by_variant.begin()->second;
    std::string text = "kdvfs::ByVariant<";
    for (const auto& [variant, policy] : by_variant) {
        text += "\n" + indent + "    kdvfs::OnVariant<" + std::to_string(variant) + ", " + policy +
                ">,";
    }
    return text + "\n" + indent + "    kdvfs::Otherwise<kdvfs::AutoClock>>";
}

/// Kernel name -> architecture -> variant -> policy, all in the order of the maps.
using PolicyTexts =
    std::map<std::string, std::map<std::string, std::map<std::uint32_t, std::string>>>;

inline PolicyTexts collect_policies(const std::vector<PlanFor>& plans) {
    PolicyTexts policies;
    for (const PlanFor& entry : plans) {
        for (const PlannedKernel& kernel : entry.plan.kernels) {
            auto& variants = policies[kernel.key.name][entry.architecture];
            if (!variants.try_emplace(kernel.key.variant.index, policy_text(kernel)).second)
                reject_header(to_string(kernel.key), "the kernel is planned twice");
        }
    }
    return policies;
}

inline std::string binding_text(
    const std::string& name,
    const std::map<std::string, std::map<std::uint32_t, std::string>>& by_arch) {
    std::string text = "    kdvfs::Bind<\"" + cpp_literal(name) + "\", ";
    if (by_arch.begin()->first.empty())
        return text + variants_text(by_arch.begin()->second, "    ") + ">";
    text += "kdvfs::ByArch<";
    for (const auto& [architecture, variants] : by_arch) {
        text += "\n        kdvfs::OnArch<\"" + cpp_literal(architecture) + "\", " +
                variants_text(variants, "        ") + ">,";
    }
    return text + "\n        kdvfs::Otherwise<kdvfs::AutoClock>>>";
}

/// A tag type for each kernel, so that a scope can be written without its name.
inline std::string tags_text(const PolicyTexts& policies) {
    std::set<std::string> names;
    for (const auto& [name, by_arch] : policies) names.insert(name);
    std::string text = "\nnamespace kernels {\n";
    for (const auto& [name, identifier] : cpp_identifiers(names))
        text += "struct " + identifier + " : kdvfs::Kernel<\"" + cpp_literal(name) + "\"> {};\n";
    return text + "}  // namespace kernels\n";
}

inline std::string percent_text(double percent) {
    const double rounded = std::round(percent * 100) / 100 + 0.0;
    std::string digits = std::to_string(std::abs(rounded));
    digits.resize(digits.find('.') + 3);
    return (rounded < 0 ? "-" : "+") + digits + " %";
}

inline std::string banner_text(const std::vector<PlanFor>& plans, const HeaderOptions& options) {
    std::string text = "// Generated by kdvfs, do not edit.\n";
    if (!options.input.empty()) text += "// From: " + options.input + "\n";
    if (!options.input_hash.empty()) text += "// Hash: " + options.input_hash + "\n";
    for (const PlanFor& entry : plans) {
        const Plan& plan = entry.plan;
        text += "// For: " + plan.gpu;
        if (!entry.architecture.empty()) text += " (" + entry.architecture + ")";
        text += "; " + plan.objective + ", " + std::string{to_string(plan.aggregate)} +
                "; expected time " + percent_text(plan.time_pct()) + ", energy " +
                percent_text(plan.energy_pct()) + "\n";
    }
    return text;
}

}  // namespace detail

namespace detail {

inline void check_segments(const SegmentPlan& plan, const HeaderOptions& options) {
    check_names(options, {"Segment", "segments", "Launches", "plan", "sequence_kernels",
                          "sequence_runs", "sequence_launches", "sequence_boundaries"});
    if (!is_comment_text(options.input) || !is_comment_text(options.input_hash))
        reject_header("the banner", "the input's name has characters that are not allowed");
    if (!is_gpu_name(plan.gpu)) reject_header(plan.gpu, "this is no GPU's name");
    if (!is_kernel_name(plan.objective) || !is_comment_text(plan.objective))
        reject_header(plan.objective, "this is no objective's name");
    if (plan.segments.empty()) reject_header(plan.gpu, "the plan has no segments");
    for (const PlannedSequence::Kernel& kernel : plan.sequence.kernels)
        if (!is_kernel_name(kernel.key.name))
            reject_header("kernel \"" + kernel.key.name + '"', "this is no kernel name");
}

inline std::string segment_rows(const SegmentPlan& plan) {
    std::string rows;
    for (const Segment& segment : plan.segments) {
        rows += "    {" + std::to_string(segment.first) + ", " + std::to_string(segment.last) +
                "},  // " + to_string(segment.clock) + "\n";
    }
    return rows;
}

inline std::string array_text(const std::string& type, const char* name, std::size_t size,
                              const std::string& rows) {
    return "inline constexpr std::array<" + type + ", " + std::to_string(size) + "> " + name +
           "{{\n" + rows + "}};\n";
}

/// Numbers, sixteen a line.
inline std::string number_rows(const std::vector<std::uint32_t>& numbers) {
    std::string rows;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        rows += i % 16 == 0 ? "    " : " ";
        rows += std::to_string(numbers[i]) + ",";
        if (i % 16 == 15 || i + 1 == numbers.size()) rows += "\n";
    }
    return rows;
}

/// The launches and boundaries of a plan, for scopes to follow.
inline std::string sequence_text(const SegmentPlan& plan, const HeaderOptions& options) {
    const PlannedSequence& sequence = plan.sequence;
    const CodedLaunches coded = encode_launches(sequence.launches);
    std::string kernels;
    for (const PlannedSequence::Kernel& kernel : sequence.kernels)
        kernels += "    {\"" + cpp_literal(kernel.key.name) + "\", " +
                   std::to_string(kernel.key.variant.index) + ", " +
                   std::to_string(kernel.lasts.count()) +
                   (kernel.own.asks ? ", {true, {" + clock_text(kernel.own.point.core) + ", " +
                                          clock_text(kernel.own.point.memory) + "}}"
                                    : std::string{}) +
                   "},\n";
    std::string runs;
    for (const LaunchRun& run : coded.runs)
        runs += "    {" + std::to_string(run.times) + ", " + std::to_string(run.length) + "},\n";
    std::string boundaries;
    for (const PlannedSequence::Boundary& boundary : sequence.boundaries)
        boundaries +=
            "    {" + std::to_string(boundary.before) + ", {" + clock_text(boundary.clock.core) +
            ", " + clock_text(boundary.clock.memory) + "}" +
            (boundary.after ? ", kdvfs::Duration{" + std::to_string(boundary.after->count()) + "}"
                            : std::string{}) +
            "},\n";
    return "/// The kernels of an iteration: name, variant, nanoseconds a launch.\n" +
           array_text("kdvfs::SequenceConstants::Kernel", "sequence_kernels",
                      sequence.kernels.size(), kernels) +
           "/// Its " + std::to_string(sequence.launches.size()) +
           " launches: so many times so many of `sequence_launches`.\n" +
           array_text("kdvfs::LaunchRun", "sequence_runs", coded.runs.size(), runs) +
           array_text("std::uint32_t", "sequence_launches", coded.launches.size(),
                      number_rows(coded.launches)) +
           "/// Before which launch which clock is asked for.\n" +
           array_text("kdvfs::PlannedSequence::Boundary", "sequence_boundaries",
                      sequence.boundaries.size(), boundaries) +
           "\n/// The scopes of `gpu.with<" + options.registry_name +
           ">(plan())` follow the segments.\n"
           "inline std::shared_ptr<const kdvfs::PlanTable> plan() {\n"
           "    return kdvfs::to_plan_table(kdvfs::to_sequence(\n"
           "        {" +
           std::to_string(planned_sequence_version) + ", \"" + plan.gpu + "\", \"" +
           cpp_literal(options.input_hash) +
           "\",\n"
           "         sequence_kernels, sequence_runs, sequence_launches, "
           "sequence_boundaries}));\n}\n\n";
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string to_policy_header(std::vector<PlanFor> plans,
                                          const HeaderOptions& options) {
    detail::check(plans, options);
    std::stable_sort(plans.begin(), plans.end(), [](const PlanFor& a, const PlanFor& b) {
        return a.architecture < b.architecture;
    });
    const auto twice = std::adjacent_find(
        plans.begin(), plans.end(),
        [](const PlanFor& a, const PlanFor& b) { return a.architecture == b.architecture; });
    if (twice != plans.end())
        detail::reject_header("architecture \"" + twice->architecture + '"', "it is planned twice");

    std::string text = detail::banner_text(plans, options);
    text += "#pragma once\n\n#include <kdvfs/registry.hpp>\n\nnamespace " + options.namespace_name +
            " {\n\n// clang-format off\nusing " + options.registry_name +
            " = kdvfs::PolicyRegistry<\n";
    const detail::PolicyTexts policies = detail::collect_policies(plans);
    for (const auto& [name, by_arch] : policies)
        text += detail::binding_text(name, by_arch) + ",\n";
    text.replace(text.size() - 2, 2, ">;\n");
    text += detail::tags_text(policies);
    return text + "// clang-format on\n\n}  // namespace " + options.namespace_name + "\n";
}

KDVFS_INLINE std::string to_segment_header(const SegmentPlan& plan, const HeaderOptions& options) {
    detail::check_segments(plan, options);
    std::string text = "// Generated by kdvfs, do not edit.\n";
    if (!options.input.empty()) text += "// From: " + options.input + "\n";
    if (!options.input_hash.empty()) text += "// Hash: " + options.input_hash + "\n";
    text += "// For: " + plan.gpu + "; " + plan.objective + ", by segments; expected time " +
            detail::percent_text(plan.time_pct()) + ", energy " +
            detail::percent_text(plan.energy_pct()) + "\n";
    const bool follows = !plan.sequence.launches.empty();
    text += "#pragma once\n\n#include <kdvfs/kernel.hpp>\n" +
            std::string{follows ? "#include <kdvfs/plan.hpp>\n" : ""} +
            "#include <kdvfs/registry.hpp>\n\n#include <array>\n#include <cstddef>\n" +
            std::string{follows ? "#include <cstdint>\n#include <memory>\n" : ""} + "\nnamespace " +
            options.namespace_name + " {\n\n// clang-format off\n" +
            (follows ? detail::sequence_text(plan, options) : std::string{}) +
            "struct Segment : kdvfs::Kernel<\"segment\"> {};\n\n"
            "/// Launches of an iteration, from the first to before the last.\n"
            "struct Launches {\n    std::size_t first;\n    std::size_t last;\n};\n"
            "inline constexpr std::array<Launches, " +
            std::to_string(plan.segments.size()) + "> segments{{\n" + detail::segment_rows(plan) +
            "}};\n\nusing " + options.registry_name +
            " = kdvfs::PolicyRegistry<\n    kdvfs::Bind<\"segment\", kdvfs::ByVariant<";
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
        const Segment& segment = plan.segments[s];
        PlannedKernel planned;
        planned.clock = segment.clock;
        planned.expected = segment.expected;
        text += "\n        kdvfs::OnVariant<" + std::to_string(s) + ", " +
                detail::policy_text(planned) + ">,";
    }
    return text +
           "\n        kdvfs::Otherwise<kdvfs::AutoClock>>>,\n"
           "    kdvfs::Default<kdvfs::KeepClock>>;\n// clang-format on\n\n}  // namespace " +
           options.namespace_name + "\n";
}

#endif

}  // namespace kdvfs::inline v0_3::tune
