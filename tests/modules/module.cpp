// SPDX-License-Identifier: MIT
//
// A module of a process, as a Python extension is: opens the GPU of NVML's double and serves it.
#include "module.hpp"

#include <kdvfs/nvidia_by_address.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <string>

namespace {

using namespace kdvfs;

class OpenModule final : public Module {
public:
    bool open(const ModuleOptions& wanted) override {
        GpuOptions options;
        if (wanted.measures) options.on_refused = OnRefused::measure_only;
        options.controller.never_below.core = Megahertz{wanted.never_below};
        options.controller.never_above.core = Megahertz{wanted.never_above};
        if (wanted.latency_ms > 0)
            options.switch_latency = std::chrono::milliseconds{wanted.latency_ms};
        try {
            gpu_.emplace(nvidia::open(std::string{"0000:1b:00.0"}, options));
            return true;
        } catch (const Error& error) {  // a type of kdvfs: its identity crosses modules, too
            words_ = error.what();
        } catch (const std::exception& error) {
            words_ = std::string{"no kdvfs::Error: "} + error.what();
        }
        return false;
    }
    [[nodiscard]] const char* words() const override { return words_.c_str(); }
    [[nodiscard]] const void* gpu() const override { return &gpu_->info(); }
    [[nodiscard]] bool measures_only() const override { return gpu_->measure_only(); }
    void request(unsigned megahertz) override {
        request_ =
            std::make_unique<StandingRequest>(*gpu_, ClockPoint{.core = Megahertz{megahertz}});
    }
    void close() override {
        request_.reset();
        gpu_.reset();
    }

private:
    std::optional<Gpu> gpu_;
    std::unique_ptr<StandingRequest> request_;
    std::string words_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Module* make_module() { return new OpenModule; }
