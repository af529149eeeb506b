// SPDX-License-Identifier: MIT
//
// Boards that nobody has tried, and such as lack files: each is put back to the byte, or measured
// only with nothing written.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/rocm.hpp>

#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using virtual_amdgpu::Access;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

constexpr io::PciAddress untried_gpu{0, 0xc1, 0, 0};

/// All that the driver's files say that can be written.
std::map<std::string, std::string> texts_of(Machine& machine) {
    std::map<std::string, std::string> texts;
    for (const auto& [path, node] : machine.nodes()) {
        if (node.write && node.gpu != nullptr) texts[path] = node.read();
    }
    return texts;
}

TEST(UntriedBoards, AreMeasuredOnlyWithNothingWritten) {
    // gfx_target_version as KFD tells it: of RDNA1 to RDNA4, Vega10, Vega20, a chip to come, none.
    for (const std::uint32_t target : {100100U, 100300U, 110000U, 120001U, 90000U, 90006U,  //
                                       130100U, 0U}) {
        for (const bool has_table : {true, false}) {
            virtual_amdgpu::Board board = virtual_amdgpu::rx6800(target);
            board.core_range = has_table;
            Machine machine{{board}};
            const Mounted mounted{machine};
            const auto before = texts_of(machine);
            try {
                static_cast<void>(rocm::open("0000:c1:00.0"));
                FAIL() << target;
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), Errc::not_supported) << error.what();
                EXPECT_NE(std::string{error.what()}.find("open it to measure only"),
                          std::string::npos);
            }
            GpuOptions measure;
            measure.on_refused = OnRefused::measure_only;
            const Gpu gpu = rocm::open("0000:c1:00.0", measure);
            EXPECT_TRUE(gpu.info().mechanism.starts_with("measure only: ")) << target;
            EXPECT_GT(gpu.report().totals.counter.count + 1, 0);
            EXPECT_TRUE(machine.writes().empty()) << target;
            EXPECT_EQ(texts_of(machine), before);
        }
    }
}

TEST(UntriedBoards, WhoseTableStaysArePutBackAndRefused) {
    virtual_amdgpu::Board board = virtual_amdgpu::rx6800(130100);
    for (const char* found : {"auto", "manual"}) {
        Machine machine{{board}};
        const Mounted mounted{machine};
        ASSERT_EQ(machine.gpu(0).write_performance_level("manual"), 0);
        for (const char* edit : {"s 0 600", "s 1 2400", "m 1 900", "c"})
            ASSERT_EQ(machine.gpu(0).write_overdrive(edit), 0);
        ASSERT_EQ(machine.gpu(0).write_performance_level(found), 0);
        const auto before = texts_of(machine);
        AmdgpuSysfs gpu{untried_gpu};
        if (std::string{found} == "manual") {
            gpu.probe();  // what is found in this level is written back in it
        } else {
            try {
                gpu.probe();
                FAIL() << "its table stays";
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), Errc::not_supported) << error.what();
                EXPECT_NE(std::string{error.what()}.find("written back"), std::string::npos);
            }
        }
        EXPECT_EQ(texts_of(machine), before) << found;
    }
}

TEST(UntriedBoards, InPartitionsAreMeasuredOnly) {
    for (const char* partition : {"DPX", "TPX", "QPX", "CPX"}) {
        virtual_amdgpu::Board board = virtual_amdgpu::mi300x();
        board.partition = partition;
        Machine machine{{board}};
        const Mounted mounted{machine};
        const auto before = texts_of(machine);
        AmdgpuSysfs gpu{untried_gpu};
        EXPECT_THROW(gpu.probe(), Error);
        EXPECT_THROW(gpu.apply({1100_MHz, auto_clock}), Error);
        EXPECT_TRUE(machine.writes().empty()) << partition;
        EXPECT_EQ(texts_of(machine), before);
    }
}

/// A board without a file, or with one that cannot be read or makes no sense.
struct Lack {
    std::string file;
    std::string what;
    std::function<void(Machine&, const std::string& path)> make;
};

std::vector<Lack> lacks() {
    std::vector<Lack> all;
    for (const char* file :
         {"power_dpm_force_performance_level", "pp_dpm_sclk", "pp_dpm_mclk", "pp_od_clk_voltage",
          "gpu_metrics", "current_compute_partition", "product_name"}) {
        all.push_back({file, "missing",
                       [](Machine& machine, const std::string& path) { machine.remove(path); }});
        all.push_back({file, "unreadable", [](Machine& machine, const std::string& path) {
                           machine.inject({Access::read, path, EIO});
                       }});
        all.push_back({file, "refused", [](Machine& machine, const std::string& path) {
                           machine.inject({Access::write, path, EINVAL});
                       }});
        for (const char* text : {"", "unavailable\n", "0: 500\n", "\x7f\x45\x4c\x46"}) {
            all.push_back({file, std::string{"saying '"} + text + "'",
                           [text](Machine& machine, const std::string& path) {
                               machine.set_file(path, text);
                           }});
        }
    }
    return all;
}

TEST(UntriedBoards, ThatLackFilesArePutBackOrMeasuredOnly) {
    unsigned driven = 0;
    unsigned measured = 0;
    for (const auto& board :
         {virtual_amdgpu::mi210(), virtual_amdgpu::mi100(), virtual_amdgpu::mi300x()}) {
        for (const Lack& lack : lacks()) {
            SCOPED_TRACE(board.product + ", " + lack.file + " " + lack.what);
            Machine machine{{board}};
            const std::string path = machine.folder(0) + "/" + lack.file;
            if (machine.find(path) == nullptr) continue;  // it lacks that anyway
            lack.make(machine, path);
            const Mounted mounted{machine};
            const auto before = texts_of(machine);
            const auto settings = machine.gpu(0).settings();
            try {
                AmdgpuSysfs gpu{untried_gpu};
                gpu.probe();
                EXPECT_EQ(texts_of(machine), before) << "by trying";
                const ClockState found = gpu.read_clock_state();
                const auto& core = gpu.supported_clocks().core.listed;
                for (const Megahertz cap : {core.front(), core.back()}) {
                    gpu.apply({cap, auto_clock});
                    EXPECT_EQ(gpu.read_clock_state().cap.core, cap);
                    gpu.restore(found);
                    EXPECT_EQ(gpu.read_clock_state(), found);
                }
                ++driven;
            } catch (const Error& error) {
                EXPECT_FALSE(error.text().action.empty());
                ++measured;
            }
            EXPECT_EQ(texts_of(machine), before);
            EXPECT_EQ(machine.gpu(0).settings(), settings);
        }
    }
    std::printf("boards that lack files: %u driven and put back, %u measured only\n", driven,
                measured);
    EXPECT_GT(driven, 0u);
    EXPECT_GT(measured, 0u);
}

}  // namespace
}  // namespace kdvfs::device
