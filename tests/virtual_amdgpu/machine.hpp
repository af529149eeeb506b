// SPDX-License-Identifier: MIT
#pragma once

#include "gpu.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace virtual_amdgpu {

enum class Access { open, read, write };

/// An error to answer with. `file` is matched against the end of the path; the first `skip`
/// matching accesses go through, then `times` of them fail (-1: all).
struct Fault {
    Access access = Access::write;
    std::string file;
    int error = 0;
    int skip = 0;
    int times = -1;
};

/// One write as the driver saw it.
struct WriteRecord {
    std::size_t gpu = 0;
    std::string file;  ///< "pp_od_clk_voltage"
    std::string text;
    int error = 0;
    Settings after{};  ///< what the GPU held behind it
};

/// What stands at one path of the virtual /sys.
struct Node {
    enum class Kind { folder, link, file };

    Kind kind = Kind::file;
    std::string target;                          ///< of a link
    std::function<std::string()> read;           ///< of a file
    std::function<int(std::string_view)> write;  ///< of a writable file
    Gpu* gpu = nullptr;
    std::size_t gpu_index = 0;
};

/// What an access came to: an errno, or 0 and a text.
struct Answer {
    int error = 0;
    std::string text;
};

/// A machine with virtual AMD GPUs: the part of /sys that ROCm SMI, HIP's pairing and kdvfs look
/// at, a log of writes and a list of faults. Paths are absolute ("/sys/class/drm/card0"), links are
/// not followed here. Thread-safe once built.
class Machine {
public:
    explicit Machine(const std::vector<Board>& boards);

    std::size_t size() const { return gpus_.size(); }
    Gpu& gpu(std::size_t index) { return *gpus_.at(index); }
    std::string address(std::size_t index) const;
    /// The device's folder, "/sys/devices/pci0000:c0/0000:c1:00.0".
    std::string folder(std::size_t index) const;

    const std::map<std::string, Node>& nodes() const { return nodes_; }
    const Node* find(const std::string& path) const;
    int open(const std::string& path);
    Answer read(const std::string& path);
    int write(const std::string& path, std::string_view text);

    /// A file that no board has by itself. Before the machine is mounted.
    void add_text(const std::string& path, std::string text);
    /// Replaces or adds a file with fixed text; for the shapes of /sys that break readers.
    void set_file(const std::string& path, std::string text);
    void remove(const std::string& path);

    void inject(Fault fault);
    void clear_faults();
    /// How many accesses found a fault.
    unsigned faults_met() const;
    std::vector<WriteRecord> writes() const;
    void clear_writes();

    void set_user(unsigned euid) { euid_ = euid; }
    unsigned user() const { return euid_; }

private:
    void add_gpu(std::size_t index);
    void add_hwmon(std::size_t index);
    void add_kfd_node(std::size_t index);
    void add_control(std::size_t index);
    void add_links_of_dies();
    void add_kfd_host();
    void add_link(const std::string& path, std::string target);
    void add_folder(const std::string& path);
    void add_file(const std::string& path, Node node);
    int fault(Access access, const std::string& path);

    std::vector<std::unique_ptr<Gpu>> gpus_;
    std::map<std::string, Node> nodes_;
    mutable std::mutex mutex_;
    std::vector<Fault> faults_;
    unsigned faults_met_ = 0;
    std::vector<WriteRecord> writes_;
    std::atomic<unsigned> euid_{0};
};

}  // namespace virtual_amdgpu
