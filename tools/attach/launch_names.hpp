// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kernel.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

/// How launches of programs that nobody changes are named in reports and plans.
namespace attach {
namespace name_parts {

inline constexpr std::size_t longest_name = 120;

/// Six hexadecimal digits of FNV-1a: what tells apart names that are cut to the same text.
inline std::string six_digits(std::string_view text) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (int i = 0; i < 6; ++i, hash >>= 4U) out += digits[hash & 15U];
    return out;
}

inline std::string demangled(const char* symbol) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text{
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free};
    return status == 0 && text ? text.get() : symbol;
}

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
}

/// The name without its return type and its parameters: "void f<int>(int*)" is "f<int>".
inline std::string bare(const std::string& text) {
    int depth = 0;
    std::size_t begin = 0;
    std::size_t end = text.size();
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '(' && depth == 0 && i > begin) {
            end = i;
            break;
        }
        if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
        if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
        if (c == ' ' && depth == 0) begin = i + 1;
    }
    return begin < end ? text.substr(begin, end - begin) : text;
}

/// Template arguments without their qualifiers, and those of arguments left out.
inline std::string without_depths(const std::string& text, bool& cut) {
    std::string out;
    std::size_t word = 0;  // where the name that is being written began in `out`
    int depth = 0;
    for (const char c : text) {
        if (c == '<') {
            if (++depth == 2) out += "<..>";
            if (depth >= 2) {
                cut = true;
                continue;
            }
        }
        if (c == '>' && depth > 0) {
            if (depth-- >= 2) continue;
        }
        if (depth >= 2) continue;
        const bool in_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                             (c >= '0' && c <= '9') || c == ':' || c == '{' || c == '}';
        out += c;
        if (!in_name) word = out.size();
        if (depth == 1 && c == ':' && out.ends_with("::") && out.size() - 2 > word) {
            out.resize(word);
            cut = true;
        }
    }
    return out;
}

}  // namespace name_parts

/// A symbol as reports show it: demangled, without return type and parameters; template arguments
/// lose their qualifiers, and arguments of arguments become "<..>"; what is longer than 120
/// characters loses its middle. Where anything was left out but return type and parameters, "~" and
/// six digits of a hash of the whole symbol follow, so that different kernels keep different names,
/// the same ones in every run. Always a kernel name (`is_kernel_name`).
inline std::string launch_name(const char* symbol) {
    if (symbol == nullptr || *symbol == '\0') return "unnamed kernel";
    std::string text = name_parts::demangled(symbol);
    name_parts::replace_all(text, "(anonymous namespace)", "{anonymous}");
    bool cut = false;
    std::string name = name_parts::without_depths(name_parts::bare(text), cut);
    for (char& c : name) {
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\') continue;
        c = '_';
        cut = true;
    }
    if (name.size() > name_parts::longest_name) {
        const std::size_t half = name_parts::longest_name / 2;
        name = name.substr(0, half) + ".." + name.substr(name.size() - half);
        cut = true;
    }
    if (name.empty()) name = "unnamed kernel";
    return cut ? name + '~' + name_parts::six_digits(symbol) : name;
}

/// The name of a range: its own text where that may name a kernel, else without what may not.
inline std::string range_name(std::string_view text) {
    std::string name{text.substr(0, name_parts::longest_name)};
    bool cut = name.size() < text.size();
    for (char& c : name) {
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '/') continue;
        c = '_';
        cut = true;
    }
    if (name.empty()) return "unnamed range";
    return cut ? name + '~' + name_parts::six_digits(text) : name;
}

/// Whether a kernel of this name must not run again with its own arguments: it looks at what its
/// own run has left behind (sorts, scans, look-back, atomic counters), counts in place, or waits
/// for other GPUs. Words of CUB, rocPRIM, Thrust, CUTLASS, NCCL, RCCL and NVSHMEM.
inline bool runs_once(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c == '_') continue;  // look_back, lookBack and lookback are one word
        text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    constexpr std::string_view words[] = {
        "sort", "scan", "lookback", "onesweep", "select", "unique", "partition", "histogram",
        "bincount", "reducebykey", "runlength", "atomic", "counter", "semaphore", "ticket",
        "streamk", "nccl", "rccl", "nvshmem", "allreduce", "allgather", "reducescatter", "alltoall",
        // PyTorch's backward of embeddings, over segments that its own kernels have counted
        "embedding", "segment", "computegradweight", "sumandscatter"};
    return std::any_of(std::begin(words), std::end(words),
                       [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

/// The graphs of a process: a launch of one is named by how many nodes it has. Thread-safe.
class Graphs {
public:
    /// @param executable what is launched
    /// @param records    how many a launch will leave; nothing where that is not known
    void made(const void* executable, std::size_t nodes, std::optional<std::size_t> records = {}) {
        const std::lock_guard lock{mutex_};
        graphs_[executable] = {nodes, records};
    }
    [[nodiscard]] std::optional<std::size_t> records_of(const void* executable) const {
        const std::lock_guard lock{mutex_};
        const auto found = graphs_.find(executable);
        return found == graphs_.end() ? std::nullopt : found->second.records;
    }
    [[nodiscard]] std::string name_of(const void* executable) const {
        const std::lock_guard lock{mutex_};
        const auto found = graphs_.find(executable);
        if (found == graphs_.end()) return "graph";
        const std::size_t nodes = found->second.nodes;
        return "graph of " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
    }

private:
    struct Graph {
        std::size_t nodes;
        std::optional<std::size_t> records;
    };
    mutable std::mutex mutex_;
    std::map<const void*, Graph> graphs_;
};

/// Which variant a grid is: the power of two that its number of blocks reaches.
inline kdvfs::Variant grid_variant(std::uint64_t blocks) {
    return {static_cast<std::uint32_t>(std::bit_width(blocks))};
}

}  // namespace attach
