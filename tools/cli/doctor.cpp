// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/families.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/version.hpp>
#include <tools/cli/commands.hpp>
#include <tools/cli/doctor.hpp>
#include <tools/cli/output.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cli::doctor {
namespace {

namespace fs = std::filesystem;

/// AMD's data-centre boards by PCI device id (AMD's udev rules and the amdgpu driver).
struct KnownBoard {
    std::string_view id;
    std::string_view name;
    std::string_view architecture;
    bool virtual_function = false;
};
constexpr std::array<KnownBoard, 14> known_boards{{
    {"0x738c", "MI100", "gfx908"},
    {"0x7408", "MI250X", "gfx90a"},
    {"0x740c", "MI250X", "gfx90a"},
    {"0x740f", "MI210", "gfx90a"},
    {"0x74a0", "MI300A", "gfx942"},
    {"0x74a1", "MI300X", "gfx942"},
    {"0x74a2", "MI308X", "gfx942"},
    {"0x74a5", "MI325X", "gfx942"},
    {"0x74a9", "MI300X HF", "gfx942"},
    {"0x74b5", "MI300X", "gfx942", true},
    {"0x74b9", "MI325X", "gfx942", true},
    {"0x75a0", "MI350X", "gfx950"},
    {"0x75a3", "MI355X", "gfx950"},
    {"0x75b0", "MI350X", "gfx950", true},
}};

/// What gives a group the clock files and the locks.
constexpr std::string_view udev_rule =
    "as root: install -m 644 share/kdvfs/70-kdvfs.rules /etc/udev/rules.d/, udevadm trigger";

/// The oldest driver with locked memory clocks and CUDA 11.4.
constexpr int oldest_nvidia_driver = 470;

std::string first_line(const fs::path& file) {
    std::ifstream in{file};
    std::string line;
    std::getline(in, line);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    return line;
}

std::string value_in(const fs::path& file, std::string_view key) {
    std::ifstream in{file};
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t start = line.find_first_not_of(" \t", key.size());
        return start == std::string::npos ? std::string{} : line.substr(start);
    }
    return {};
}

/// The examination of one machine: each member function looks at one thing.
class Examination {
public:
    explicit Examination(const Machine& machine) : machine_{machine} {}

    Diagnosis run() {
        look_at_amd();
        look_at_nvidia();
        if (!found_gpu_) {
            add(State::missing, "GPU", "no AMD or NVIDIA GPU is visible",
                in_container() ? "start the container with its GPUs: " + container_options()
                               : "load the driver: modprobe amdgpu, or install NVIDIA's");
        }
        look_at_records();
        look_at_scheduler();
        if (machine_.cpus == 1 && found_gpu_) {
            add(State::limited, "CPUs", "one CPU: waiting threads sleep instead of spinning",
                "give the job a second CPU, such as --cpus-per-task=2");
        }
        return std::move(diagnosis_);
    }

private:
    void add(State state, std::string what, std::string found, std::string fix = {}) {
        diagnosis_.findings.push_back({state, std::move(what), std::move(found), std::move(fix)});
    }
    [[nodiscard]] fs::path at(std::string_view path) const { return machine_.root / path; }
    [[nodiscard]] bool exists(std::string_view path) const {
        std::error_code error;
        return fs::exists(at(path), error);
    }
    [[nodiscard]] std::vector<fs::path> entries(std::string_view path) const {
        std::vector<fs::path> found;
        std::error_code error;
        for (fs::directory_iterator entry{at(path), error}, end; !error && entry != end;
             entry.increment(error)) {
            found.push_back(entry->path());
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    /// Whether the user may read (4), write (2) or both (6), by the file's owner and mode: root's
    /// rights are not asked for, because a driver may refuse even root.
    [[nodiscard]] bool may(const fs::path& file, unsigned rights) const {
        struct stat status {};
        if (::stat(file.c_str(), &status) != 0) return false;
        if (machine_.user == 0) return true;
        const auto has = [&](unsigned shift) {
            return (status.st_mode >> shift & rights) == rights;
        };
        if (status.st_uid == machine_.user) return has(6);
        const auto& groups = machine_.groups;
        if (std::find(groups.begin(), groups.end(), status.st_gid) != groups.end()) return has(3);
        return has(0);
    }

    /// The file of a library whose name begins so; empty where there is none.
    [[nodiscard]] std::string library(std::string_view name) const {
        std::vector<std::string> folders{"usr/lib/x86_64-linux-gnu",
                                         "lib/x86_64-linux-gnu",
                                         "usr/lib64",
                                         "usr/lib",
                                         "usr/local/lib",
                                         "opt/rocm/lib",
                                         "usr/local/cuda/lib64",
                                         "usr/local/nvidia/lib64"};
        std::istringstream extra{machine_.environment("LD_LIBRARY_PATH")};
        for (std::string folder; std::getline(extra, folder, ':');) {
            if (!folder.empty()) folders.push_back(fs::path{folder}.relative_path());
        }
        for (const std::string& folder : folders) {
            for (const fs::path& file : entries(folder)) {
                if (file.filename().string().starts_with(name)) return file.filename();
            }
        }
        return {};
    }

    [[nodiscard]] bool in_container() const {
        if (exists(".dockerenv") || exists("run/.containerenv")) return true;
        const std::string group = first_line(at("proc/1/cgroup"));
        return group.find("docker") != std::string::npos ||
               group.find("kubepods") != std::string::npos;
    }
    static std::string container_options() {
        return "--device=/dev/kfd --device=/dev/dri --group-add video --group-add render "
               "-v /run/kdvfs:/run/kdvfs (AMD), --gpus all (NVIDIA)";
    }

    void look_at_amd() {
        bool found = false;
        for (const fs::path& card : entries("sys/class/drm")) {
            const std::string name = card.filename();
            if (!name.starts_with("card") || name.find('-') != std::string::npos) continue;
            if (first_line(card / "device/vendor") != "0x1002") continue;
            found = true;
            look_at_card(card / "device");
        }
        if (!found) return;
        found_gpu_ = true;
        look_at_kfd();
        const std::string hip = library("libamdhip64.so");
        if (hip.empty()) {
            add(State::limited, "HIP", "libamdhip64 is not found: no scopes on streams",
                "install ROCm's runtime: apt-get install libamdhip64-5, or rocm-hip-runtime of "
                "AMD");
        } else {
            const std::string rocm = first_line(at("opt/rocm/.info/version"));
            add(State::ok, "HIP", hip + (rocm.empty() ? "" : ", ROCm " + rocm));
            diagnosis_.has_streams = true;
        }
        const std::string profiler = library("librocprofiler-sdk.so");
        if (profiler.empty()) {
            add(State::limited, "rocprofiler-sdk",
                "not found: `kdvfs run` sees linked launches alone, not Triton's",
                "install ROCm 6.2 or later with rocprofiler-sdk");
        } else {
            add(State::ok, "rocprofiler-sdk", profiler);
        }
    }

    void look_at_card(const fs::path& device) {
        std::string address = value_in(device / "uevent", "PCI_SLOT_NAME=");
        if (address.empty()) address = device.parent_path().filename();
        const std::string what = "AMD GPU " + address;
        const std::string id = first_line(device / "device");
        const auto board = std::find_if(known_boards.begin(), known_boards.end(),
                                        [&](const KnownBoard& each) { return each.id == id; });
        const bool known = board != known_boards.end();
        const auto& family =
            kdvfs::device::amd::family_of(known ? board->architecture : std::string_view{});
        add(known ? State::ok : State::limited, what,
            known ? std::string{board->name} + ", " + std::string{family.name}
                  : "device " + id + ": a board that kdvfs does not know, measured only");
        const bool counts = look_at_counter(device, what);
        if (!counts) return;
        diagnosis_.measures = true;
        if (!known) return;
        look_at_clocks(device, address, board->virtual_function, family);
    }

    bool look_at_counter(const fs::path& device, const std::string& what) {
        std::ifstream metrics{device / "gpu_metrics", std::ios::binary};
        std::array<char, 4> header{};
        if (metrics.read(header.data(), header.size())) return true;
        for (const fs::path& monitor : subfolders(device / "hwmon")) {
            if (!first_line(monitor / "energy1_input").empty()) return true;
        }
        add(State::limited, what + ", energy", "the driver gives no energy counter",
            "update amdgpu: Linux 5.12 or ROCm 5 and later have gpu_metrics");
        return false;
    }

    static std::vector<fs::path> subfolders(const fs::path& folder) {
        std::vector<fs::path> found;
        std::error_code error;
        for (fs::directory_iterator entry{folder, error}, end; !error && entry != end;
             entry.increment(error)) {
            found.push_back(entry->path());
        }
        return found;
    }

    void look_at_clocks(const fs::path& device, const std::string& address, bool virtual_function,
                        const kdvfs::device::amd::Family& family) {
        const std::string clocks = "AMD GPU " + address + ", clocks";
        if (family.evidence != kdvfs::device::amd::RestoreEvidence::shown) {
            add(State::limited, clocks, "not set on this family: " + std::string{family.source},
                "kdvfs measures here");
            return;
        }
        const std::string partition = first_line(device / "current_compute_partition");
        if (!partition.empty() && partition != "SPX") {
            add(State::limited, clocks,
                "compute partition " + partition + ": clocks are set in SPX alone",
                "as root, while the GPU is idle: echo SPX > " +
                    ("/" / device.lexically_relative(machine_.root) / "current_compute_partition")
                        .string());
            return;
        }
        std::error_code error;
        if (!fs::exists(device / "power_dpm_force_performance_level", error)) {
            add(State::limited, clocks, "the driver has no file for them",
                virtual_function
                    ? "a virtual function: ask the host's administrator; kdvfs measures here"
                    : "update amdgpu; kdvfs measures here");
            return;
        }
        for (const char* file : {"power_dpm_force_performance_level", "pp_od_clk_voltage"}) {
            if (!fs::exists(device / file, error) || may(device / file, 2)) continue;
            add(State::limited, clocks, "this user may not write " + std::string{file},
                std::string{udev_rule} + ", and add the user to the group gpuclocks");
            return;
        }
        const fs::path lock = at(lock_of(address));
        if (fs::exists(lock, error) && !may(lock, 4)) {
            add(State::limited, clocks, "this user may not open the lock /" + lock_of(address),
                "use a GPU of this user's job; without a prolog, as root, while nothing sets its "
                "clocks: rm /" +
                    lock_of(address) + ", udevadm trigger");
            return;
        }
        add(State::ok, clocks, "can be set by this user");
        diagnosis_.sets_clocks = true;
        settable_.push_back(address);
    }

    void look_at_kfd() {
        if (!exists("dev/kfd")) {
            add(State::limited, "/dev/kfd", "absent: no program can compute on the GPU",
                in_container() ? "start the container with --device=/dev/kfd --device=/dev/dri"
                               : "load the driver with KFD: modprobe amdgpu");
        } else if (!may(at("dev/kfd"), 6)) {
            add(State::limited, "/dev/kfd", "this user may not use it",
                "usermod -aG render,video USER, then log in again");
        } else {
            add(State::ok, "/dev/kfd", "can be used");
        }
    }

    void look_at_nvidia() {
        bool board = false;
        for (const fs::path& device : entries("sys/bus/pci/devices")) {
            if (first_line(device / "vendor") != "0x10de") continue;
            if (first_line(device / "class").starts_with("0x03")) board = true;
        }
        const std::string version = nvidia_driver();
        const auto gpus = entries("proc/driver/nvidia/gpus");
        if (version.empty() && !board) return;
        found_gpu_ = true;
        if (version.empty()) {
            add(State::missing, "NVIDIA GPU", "there is a board, and no driver",
                "install NVIDIA's driver and load it: modprobe nvidia");
            return;
        }
        for (const fs::path& gpu : gpus) {
            add(State::ok, "NVIDIA GPU " + gpu.filename().string(),
                value_in(gpu / "information", "Model:"));
        }
        look_at_nvidia_driver(version);
    }

    [[nodiscard]] std::string nvidia_driver() const {
        std::istringstream words{first_line(at("proc/driver/nvidia/version"))};
        for (std::string word; words >> word;) {
            if (word.find('.') != std::string::npos &&
                word.find_first_not_of("0123456789.") == std::string::npos)
                return word;
        }
        return {};
    }

    void look_at_nvidia_driver(const std::string& version) {
        int major = 0;
        std::from_chars(version.data(), version.data() + version.size(), major);
        if (major < oldest_nvidia_driver) {
            add(State::limited, "NVIDIA's driver",
                version + " is older than " + std::to_string(oldest_nvidia_driver),
                "update it: 580 is what kdvfs was tried with");
        } else {
            add(State::ok, "NVIDIA's driver", version);
        }
        const std::string nvml = library("libnvidia-ml.so");
        if (nvml.empty()) {
            add(State::missing, "NVML", "libnvidia-ml.so.1 is not found: no energy, no clocks",
                in_container() ? "start the container with NVIDIA's toolkit: --gpus all, "
                                 "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                               : "install libnvidia-ml1 of the driver's version");
            return;
        }
        add(State::ok, "NVML", nvml);
        diagnosis_.measures = true;
        const std::string cuda = library("libcuda.so");
        if (cuda.empty()) {
            add(State::limited, "CUDA", "libcuda.so.1 is not found: no scopes on streams",
                in_container() ? "set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                               : "install libcuda1 of the driver's version");
        } else {
            add(State::ok, "CUDA", cuda);
            diagnosis_.has_streams = true;
        }
        if (library("libcupti.so").empty()) {
            add(State::limited, "CUPTI",
                "not found: `kdvfs run` takes the copy of the program, if it has one",
                "apt-get install cuda-cupti-13-0, or set KDVFS_CUPTI to libcupti.so");
        }
        look_at_nvidia_clocks();
    }

    void look_at_nvidia_clocks() {
        for (const fs::path& gpu : entries("proc/driver/nvidia/capabilities")) {
            for (const fs::path& entry : subfolders(gpu / "mig")) {
                if (!entry.filename().string().starts_with("gi")) continue;
                add(State::limited, "NVIDIA clocks",
                    "MIG is on: instances have no clock or energy of their own",
                    "as root, while the GPU is idle: nvidia-smi -mig 0");
                return;
            }
        }
        if (machine_.user != 0 && !machine_.system_administrator) {
            add(State::limited, "NVIDIA clocks", "locking clocks needs root",
                "run as root or with CAP_SYS_ADMIN, or measure (kdvfs::nvidia::measure)");
            return;
        }
        add(State::ok, "NVIDIA clocks", "can be locked by this user");
        diagnosis_.sets_clocks = true;
        look_at_nvidia_smi();
    }

    /// A watchdog frees the clocks of a killed program by this command.
    void look_at_nvidia_smi() {
        const fs::path command = kdvfs::io::find_program(
            "nvidia-smi", machine_.environment("PATH") + ':' + kdvfs::io::usual_folders,
            machine_.root);
        if (!command.empty()) {
            add(State::ok, "nvidia-smi", "/" + command.lexically_relative(machine_.root).string());
            return;
        }
        add(State::limited, "nvidia-smi",
            "not found in PATH: a killed program's clocks stay until kdvfs-restore runs",
            in_container() ? "set NVIDIA_DRIVER_CAPABILITIES=compute,utility, or add its folder to "
                             "PATH"
                           : "install nvidia-smi of the driver's version, or add its folder to "
                             "PATH");
    }

    void look_at_records() {
        if (!found_gpu_) return;
        struct stat status {};
        struct stat top {};
        const fs::path folder = at("run/kdvfs");
        if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
            add(State::limited, "/run/kdvfs", "absent: records are in a folder of this user's own",
                in_container() ? std::string{"-v /run/kdvfs:/run/kdvfs"}
                : settable_.empty()
                    ? std::string{"as root, at each boot: install -d -m 0755 /run/kdvfs"}
                    : std::string{udev_rule});
            return;
        }
        const bool is_roots = ::stat(machine_.root.c_str(), &top) == 0 &&
                              (status.st_uid == top.st_uid || in_container());
        if (!is_roots || (status.st_mode & 022U) != 0) {
            add(State::limited, "/run/kdvfs", "others than root may write to it: no clock is set",
                "as root: remove what others have made in it, and chmod 0755 /run/kdvfs");
            diagnosis_.sets_clocks = false;
            return;
        }
        add(State::ok, "/run/kdvfs", "locks and records of all users, to put clocks back");
        for (const std::string& gpu : settable_) look_at_lock(gpu);
    }

    static std::string lock_of(const std::string& gpu) { return "run/kdvfs/" + gpu + ".lock"; }

    /// Root's programs make it where there is none; others use locks of each user's own then.
    void look_at_lock(const std::string& gpu) {
        if (machine_.user == 0 || exists(lock_of(gpu))) return;
        add(State::limited, "AMD GPU " + gpu + ", lock",
            "absent: programs of two users may set its clocks at once",
            in_container() ? "let the host's administrator run udevadm trigger with the udev rule"
                           : std::string{udev_rule});
    }

    void look_at_scheduler() {
        if (!found_gpu_ || !exists("etc/slurm/slurm.conf")) return;
        std::ifstream in{at("etc/slurm/slurm.conf")};
        bool restores = false;
        for (std::string line; std::getline(in, line);) {
            if (line.starts_with("Epilog=")) restores = true;
        }
        add(restores ? State::ok : State::limited, "Slurm",
            restores ? "an epilog is set"
                     : "no epilog: a killed job's clocks are put back by its watchdog alone",
            restores ? ""
                     : "Prolog= and Epilog= in slurm.conf: share/kdvfs/prolog.sh and "
                       "share/kdvfs/epilog.sh");
        if (!machine_.environment("SLURM_GPU_FREQ").empty()) {
            add(State::limited, "Slurm --gpu-freq",
                "it sets clocks, too, and resets them at the step's end", "leave --gpu-freq out");
        }
    }

    const Machine& machine_;
    Diagnosis diagnosis_;
    bool found_gpu_ = false;
    std::vector<std::string> settable_;  ///< PCI addresses of AMD GPUs
};

std::string_view name_of(State state) {
    switch (state) {
        case State::ok: return "ok";
        case State::limited: return "limited";
        case State::missing: return "missing";
    }
    return "";
}

std::string yes_or_no(bool can) { return can ? "yes" : "no"; }

}  // namespace

Machine Machine::here() {
    Machine machine;
    machine.user = ::geteuid();
    const int count = ::getgroups(0, nullptr);
    machine.groups.resize(static_cast<std::size_t>(std::max(count, 0)));
    if (::getgroups(count, machine.groups.data()) < 0) machine.groups.clear();
    machine.groups.push_back(::getegid());
    constexpr unsigned cap_sys_admin = 21;
    const std::string effective = value_in("/proc/self/status", "CapEff:");
    std::uint64_t bits = 0;
    std::from_chars(effective.data(), effective.data() + effective.size(), bits, 16);
    machine.system_administrator = (bits >> cap_sys_admin & 1U) != 0;
    machine.cpus = std::max(1U, std::thread::hardware_concurrency());
    machine.environment = [](const char* name) {
        const char* const value = ::getenv(name);
        return std::string{value != nullptr ? value : ""};
    };
    return machine;
}

Diagnosis examine(const Machine& machine) { return Examination{machine}.run(); }

int exit_status(const Diagnosis& diagnosis) {
    if (diagnosis.sets_clocks && diagnosis.measures) return 0;
    return diagnosis.measures ? 3 : 4;
}

std::string to_text(const Diagnosis& diagnosis) {
    std::size_t widest = 0;
    for (const Finding& finding : diagnosis.findings)
        widest = std::max(widest, finding.what.size());
    std::ostringstream out;
    for (const Finding& finding : diagnosis.findings) {
        out << std::left << std::setw(9) << name_of(finding.state)
            << std::setw(static_cast<int>(widest) + 2) << finding.what << finding.found << '\n';
        if (!finding.fix.empty()) out << std::string(9, ' ') << "fix: " << finding.fix << '\n';
    }
    out << "\nkdvfs can here: measure energy: " << yes_or_no(diagnosis.measures)
        << "; set clocks: " << yes_or_no(diagnosis.sets_clocks)
        << "; scopes and attached programs: " << yes_or_no(diagnosis.has_streams)
        << "; simulate: yes\n";
    return out.str();
}

std::string to_json(const Diagnosis& diagnosis) {
    nlohmann::ordered_json findings = nlohmann::ordered_json::array();
    for (const Finding& finding : diagnosis.findings) {
        findings.push_back({{"state", name_of(finding.state)},
                            {"what", finding.what},
                            {"found", finding.found},
                            {"fix", finding.fix}});
    }
    const nlohmann::ordered_json document{
        {"kdvfs", std::to_string(KDVFS_VERSION_MAJOR) + '.' + std::to_string(KDVFS_VERSION_MINOR) +
                      '.' + std::to_string(KDVFS_VERSION_PATCH)},
        {"can",
         {{"measure", diagnosis.measures},
          {"set_clocks", diagnosis.sets_clocks},
          {"scopes", diagnosis.has_streams}}},
        {"findings", findings}};
    return document.dump(2) + '\n';
}

}  // namespace cli::doctor

void cli::add_doctor_command(CLI::App& app) {
    auto* const command = app.add_subcommand(
        "doctor", "What this machine has, what kdvfs can do here, and how to fix what is missing");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "As JSON, for bug reports");
    command->footer(
        "Exit status: 0 where clocks can be set, 3 where energy can be measured and no clock "
        "set, 4 where neither. Nothing is written.");
    command->callback([json] {
        const doctor::Diagnosis diagnosis = doctor::examine(doctor::Machine::here());
        write("-", *json ? doctor::to_json(diagnosis) : doctor::to_text(diagnosis));
        if (const int status = doctor::exit_status(diagnosis); status != 0)
            throw CLI::RuntimeError{status};
    });
}
