// SPDX-License-Identifier: MIT
#include "machine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace virtual_amdgpu {
namespace {

constexpr unsigned first_bus = 0xc1;
constexpr unsigned first_render_minor = 128;
const std::string kfd_nodes = "/sys/class/kfd/kfd/topology/nodes/";

unsigned bus_of(std::size_t index) { return first_bus + 3 * static_cast<unsigned>(index); }

std::string hex(unsigned value, std::size_t digits) {
    std::string text(digits, '0');
    for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value /= 16) {
        *digit = "0123456789abcdef"[value % 16];
    }
    return text;
}

/// "ail stuck_clock".
std::optional<Ailments> ailments_of(std::string_view text) {
    if (text == "ail stuck_clock") return Ailments{.stuck_clock = true};
    if (text == "ail deaf") return Ailments{.deaf = true};
    if (text == "ail slow_counter") return Ailments{.slow_counter = true};
    if (text == "ail coarse_counter") return Ailments{.coarse_counter = true};
    if (text == "ail inflated_counter") return Ailments{.inflated_counter = true};
    if (text == "ail unknown_metrics") return Ailments{.unknown_metrics = true};
    if (text == "ail mixes_domains") return Ailments{.mixes_domains = true};
    if (text == "ail clinging") return Ailments{.clinging = 1260};  // three fifths of an MI300X
    return std::nullopt;
}

std::string line(std::uint64_t value) { return std::to_string(value) + "\n"; }

}  // namespace

Machine::Machine(const std::vector<Board>& boards) {
    add_folder("/sys/class/drm");
    add_folder("/sys/class/hwmon");
    add_folder("/sys/class/kfd/kfd/proc");
    for (const Board& board : boards) {
        gpus_.push_back(std::make_unique<Gpu>(board));
        add_gpu(gpus_.size() - 1);
        if (board.secondary_die && gpus_.size() > 1) {
            gpus_[gpus_.size() - 2]->count_for(*gpus_.back());
        }
    }
    add_links_of_dies();
    add_kfd_host();
}

std::string Machine::address(std::size_t index) const {
    return "0000:" + hex(bus_of(index), 2) + ":00.0";
}

std::string Machine::folder(std::size_t index) const {
    return "/sys/devices/pci0000:c0/" + address(index);
}

void Machine::add_folder(const std::string& path) {
    for (std::size_t slash = 1; (slash = path.find('/', slash)) != std::string::npos; ++slash) {
        nodes_[path.substr(0, slash)].kind = Node::Kind::folder;
    }
    nodes_[path].kind = Node::Kind::folder;
}

void Machine::add_file(const std::string& path, Node node) {
    add_folder(path.substr(0, path.rfind('/')));
    nodes_[path] = std::move(node);
}

void Machine::add_text(const std::string& path, std::string text) {
    Node node;
    node.read = [text = std::move(text)] { return text; };
    add_file(path, std::move(node));
}

void Machine::add_link(const std::string& path, std::string target) {
    Node node;
    node.kind = Node::Kind::link;
    node.target = std::move(target);
    add_file(path, std::move(node));
}

void Machine::set_file(const std::string& path, std::string text) {
    const std::lock_guard lock{mutex_};
    nodes_[path].read = [text = std::move(text)] { return text; };
}

void Machine::remove(const std::string& path) {
    const std::lock_guard lock{mutex_};
    nodes_.erase(path);
}

void Machine::add_gpu(std::size_t index) {
    Gpu& gpu = *gpus_[index];
    const Board& board = gpu.board();
    const std::string device = folder(index);
    const std::string card = "card" + std::to_string(index);
    const std::string render =
        "renderD" + std::to_string(first_render_minor + static_cast<unsigned>(index));
    add_folder(device + "/drm/" + card);
    add_folder(device + "/drm/" + render);
    add_link(device + "/drm/" + card + "/device", "../../../" + address(index));
    for (const std::string& node : {card, render}) {
        add_link("/sys/class/drm/" + node,
                 "../../devices/pci0000:c0/" + address(index) + "/drm/" + node);
    }
    add_link("/sys/bus/pci/devices/" + address(index),
             "../../../devices/pci0000:c0/" + address(index));
    add_text(device + "/vendor", "0x1002\n");
    add_text(device + "/device", "0x" + hex(board.device_id, 4) + "\n");
    add_text(device + "/subsystem_vendor", "0x1002\n");
    add_text(device + "/subsystem_device", "0x0c34\n");
    add_text(device + "/vbios_version", "113-D67301-063\n");
    add_text(device + "/unique_id", hex(0x5eed0000 + static_cast<unsigned>(index), 16) + "\n");
    add_text(device + "/product_name", board.product + "\n");
    add_text(device + "/numa_node", "0\n");
    add_text(device + "/current_compute_partition", board.partition + "\n");

    const auto add = [&](const std::string& name, auto read, auto write) {
        Node node;
        node.gpu = &gpu;
        node.gpu_index = index;
        node.read = [&gpu, read] { return read(gpu); };
        if constexpr (!std::is_null_pointer_v<decltype(write)>) {
            node.write = [&gpu, write](std::string_view text) { return write(gpu, text); };
        }
        add_file(device + "/" + name, std::move(node));
    };
    add("power_dpm_force_performance_level", std::mem_fn(&Gpu::performance_level),
        std::mem_fn(&Gpu::write_performance_level));
    add("pp_dpm_sclk", std::mem_fn(&Gpu::core_levels), std::mem_fn(&Gpu::write_core_levels));
    add("pp_dpm_mclk", std::mem_fn(&Gpu::memory_levels),
        [](Gpu&, std::string_view) { return EINVAL; });
    if (board.core_range) {
        add("pp_od_clk_voltage", std::mem_fn(&Gpu::overdrive_table),
            std::mem_fn(&Gpu::write_overdrive));
    }
    add("gpu_metrics", std::mem_fn(&Gpu::metrics), nullptr);
    if (!board.points.empty()) {
        const std::string modes = device + "/app_modes/";
        add_text(modes + "profile_abi", "1.0\n");
        add("app_modes/active_profile", std::mem_fn(&Gpu::active_point),
            std::mem_fn(&Gpu::write_active_point));
        for (std::size_t i = 0; i < board.points.size(); ++i) {
            add_text(modes + "profile_" + std::to_string(i) + "/ppt0_limit",
                     std::to_string(board.points[i]) + " W\n");
        }
        add_folder(modes + "profile_" + std::to_string(board.points.size()));
    }
    add_hwmon(index);
    add_kfd_node(index);
    add_control(index);
}

// Not of the driver: how a test in another process looks at the board and disturbs it.
void Machine::add_control(std::size_t index) {
    Gpu& gpu = *gpus_[index];
    Node node;
    node.read = [&gpu] {
        const Settings now = gpu.settings();
        return now.level + " " + std::to_string(now.core.min) + " " + std::to_string(now.core.max) +
               " " + std::to_string(now.memory_max) + " " +
               std::to_string(now.power_cap_microwatts) +
               (gpu.board().points.empty() ? "" : " point " + std::to_string(now.point)) + "\n";
    };
    node.write = [&gpu](std::string_view text) {
        if (text == "reset") {
            gpu.set_ailments({});
            gpu.reset();
        } else if (const auto ailments = ailments_of(text)) {
            gpu.set_ailments(*ailments);
        } else if (text == "freeze" || text == "thaw") {
            gpu.freeze_counter(text == "freeze");
        } else if (text == "busy" || text == "idle") {
            gpu.set_busy(text == "busy" ? 1 : 0);
        } else {
            return EINVAL;
        }
        return 0;
    };
    add_file("/sys/control/gpu" + std::to_string(index), std::move(node));
    Node running;
    running.read = [&gpu] {
        return std::to_string(gpu.running_clock()) + " " + std::to_string(gpu.joules()) + "\n";
    };
    add_file("/sys/control/running" + std::to_string(index), std::move(running));
}

void Machine::add_hwmon(std::size_t index) {
    Gpu& gpu = *gpus_[index];
    const std::string hwmon = folder(index) + "/hwmon/hwmon" + std::to_string(index + 3) + "/";
    const double cap = gpu.board().secondary_die ? 0 : gpu.board().power_cap_watts;
    add_text(hwmon + "name", "amdgpu\n");
    add_text(hwmon + "in0_label", "vddgfx\n");
    add_text(hwmon + "in0_input", "800\n");
    add_text(hwmon + "power1_cap_min", "0\n");
    add_text(hwmon + "power1_cap_max", line(static_cast<std::uint64_t>(cap * 1e6)));
    add_text(hwmon + "power1_cap_default", line(static_cast<std::uint64_t>(cap * 1e6)));
    const char* const sensors[] = {"edge", "junction", "mem"};
    for (unsigned sensor = 0; sensor < 3; ++sensor) {
        const std::string name = hwmon + "temp" + std::to_string(sensor + 1);
        add_text(name + "_label", std::string{sensors[sensor]} + "\n");
        add_text(name + "_input", "42000\n");
    }
    Node average;
    average.gpu = &gpu;
    average.gpu_index = index;
    average.read = [&gpu] { return gpu.average_power(); };
    Node limit = average;
    limit.read = [&gpu] { return gpu.power_cap(); };
    limit.write = [&gpu](std::string_view text) { return gpu.write_power_cap(text); };
    add_file(hwmon + "power1_average", std::move(average));
    add_file(hwmon + "power1_cap", std::move(limit));
}

void Machine::add_kfd_node(std::size_t index) {
    const Board& board = gpus_[index]->board();
    const std::string node = kfd_nodes + std::to_string(index + 1);
    add_text(node + "/gpu_id", line(50000 + index));
    add_text(node + "/name", board.codename + "\n");
    add_text(node + "/properties",
             "simd_count 416\nsimd_arrays_per_engine 1\narray_count 8\ncu_per_simd_array 16\n"
             "io_links_count 1\nhive_id 0\nvendor_id 4098\ndomain 0\n"
             "device_id " +
                 line(board.device_id) + "location_id " + line(bus_of(index) << 8) +
                 "drm_render_minor " + line(first_render_minor + index) + "gfx_target_version " +
                 line(board.gfx_target) + "max_engine_clk_fcompute " + line(board.core_max));
    add_text(node + "/io_links/0/properties", "type 2\nnode_from " + line(index + 1) +
                                                  "node_to 0\nweight 20\nmin_bandwidth 0\n"
                                                  "max_bandwidth 0\n");
    add_text(kfd_nodes + "0/io_links/" + std::to_string(index) + "/properties",
             "type 2\nnode_from 0\nnode_to " + line(index + 1) +
                 "weight 20\nmin_bandwidth 0\n"
                 "max_bandwidth 0\n");
}

// Every die of two-die packages sees every other: four links within its package, one or two beyond.
void Machine::add_links_of_dies() {
    const auto package = [&](std::size_t index) {
        return gpus_[index]->board().secondary_die ? index - 1 : index;
    };
    const auto has_dies = [&](std::size_t index) {
        return gpus_[index]->board().product == "AMD Instinct MI250X";
    };
    for (std::size_t from = 0; from < gpus_.size(); ++from) {
        std::size_t link = 1;
        for (std::size_t to = 0; to < gpus_.size(); ++to) {
            if (from == to || !has_dies(from) || !has_dies(to)) continue;
            const bool same = package(from) == package(to);
            add_text(kfd_nodes + std::to_string(from + 1) + "/io_links/" + std::to_string(link++) +
                         "/properties",
                     "type 11\nnode_from " + line(from + 1) + "node_to " + line(to + 1) +
                         "weight 15\nmin_bandwidth 50000\nmax_bandwidth " +
                         line(same ? 200000 : 50000 + 50000 * ((from + to) % 2)));
        }
    }
}

void Machine::add_kfd_host() {
    add_text(kfd_nodes + "0/gpu_id", "0\n");
    add_text(kfd_nodes + "0/name", "\n");
    add_text(kfd_nodes + "0/properties",
             "cpu_cores_count 64\nsimd_count 0\nio_links_count " + line(gpus_.size()));
}

const Node* Machine::find(const std::string& path) const {
    const auto found = nodes_.find(path);
    return found == nodes_.end() ? nullptr : &found->second;
}

int Machine::fault(Access access, const std::string& path) {
    const std::lock_guard lock{mutex_};
    for (Fault& fault : faults_) {
        if (fault.access != access || fault.times == 0 || !path.ends_with(fault.file)) continue;
        if (fault.skip > 0) {
            --fault.skip;
            continue;
        }
        if (fault.times > 0) --fault.times;
        ++faults_met_;
        return fault.error;
    }
    return 0;
}

int Machine::open(const std::string& path) {
    const Node* node = find(path);
    if (node == nullptr || node->kind != Node::Kind::file) return ENOENT;
    return fault(Access::open, path);
}

Answer Machine::read(const std::string& path) {
    const Node* node = find(path);
    if (node == nullptr || !node->read) return {ENOENT, {}};
    if (const int error = fault(Access::read, path)) return {error, {}};
    if (node->gpu != nullptr) node->gpu->spend_read_time();
    return {0, node->read()};
}

int Machine::write(const std::string& path, std::string_view text) {
    const Node* node = find(path);
    if (node == nullptr) return ENOENT;
    if (!node->write) return EACCES;
    int error = fault(Access::write, path);
    if (error == 0) {
        if (node->gpu != nullptr) node->gpu->spend_write_time();
        error = node->write(text);
    }
    const Settings after = node->gpu != nullptr ? node->gpu->settings() : Settings{};
    const std::lock_guard lock{mutex_};
    writes_.push_back(
        {node->gpu_index, path.substr(path.rfind('/') + 1), std::string{text}, error, after});
    return error;
}

void Machine::inject(Fault fault) {
    const std::lock_guard lock{mutex_};
    faults_.push_back(std::move(fault));
}

void Machine::clear_faults() {
    const std::lock_guard lock{mutex_};
    faults_.clear();
    faults_met_ = 0;
}

unsigned Machine::faults_met() const {
    const std::lock_guard lock{mutex_};
    return faults_met_;
}

std::vector<WriteRecord> Machine::writes() const {
    const std::lock_guard lock{mutex_};
    return writes_;
}

void Machine::clear_writes() {
    const std::lock_guard lock{mutex_};
    writes_.clear();
}

}  // namespace virtual_amdgpu
