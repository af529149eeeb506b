// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace gpt {

/// The board that steps run on: its clocks, its time, its energy counter. Defined in a file of its
/// own, as a host compiler is enough for it. Built without a device compiler it is simulated: an
/// H100 in virtual time, on which each step costs what a model of 7 billion parameters would.
class Board {
public:
    /// The first GPU. @throws kdvfs::Error where there is none
    Board();
    ~Board();
    Board(const Board&) = delete;
    Board& operator=(const Board&) = delete;

    [[nodiscard]] const kdvfs::Gpu& gpu() const;
    /// On the time axis of the counter's samples.
    [[nodiscard]] kdvfs::Seconds now() const;
    [[nodiscard]] kdvfs::EnergyReading read_energy();

    /// A stream of scopes: null, the default stream, on a real GPU.
    [[nodiscard]] kdvfs::StreamRef stream() const;
    /// What a step costs on a simulated board goes into its stream; a real one has the real work.
    void enqueue(kdvfs::serve::StepShape shape);
    /// Waits until the simulated work is done; real work is waited for by who reads its results.
    void wait();

    /// Nothing is done for so long.
    void let_pass(kdvfs::Seconds time);

    /// What steps cost, where that is known without measuring: on the simulated board.
    [[nodiscard]] std::optional<kdvfs::serve::StepTable> known_costs(
        const kdvfs::serve::StepBuckets::Edges& grid) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// To standard output: per step variant, calls, time, energy and clocks.
void print_report(const kdvfs::Gpu& gpu);

}  // namespace gpt
