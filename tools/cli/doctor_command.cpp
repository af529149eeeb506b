// SPDX-License-Identifier: MIT
#include "doctor_command.hpp"

#include "doctor.hpp"

#include <iostream>
#include <memory>

namespace cli {

void DoctorCommand::add_to(CLI::App& app) {
    auto* const command = app.add_subcommand(
        "doctor", "What this machine has, what kdvfs can do here, and how to fix what is missing");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "As JSON, for bug reports");
    command->footer(
        "Exit status: 0 where clocks can be set, 3 where energy can be measured and no clock "
        "set, 4 where neither. Nothing is written.");
    command->callback([json] {
        const doctor::Diagnosis diagnosis = doctor::examine(doctor::Machine::here());
        std::cout << (*json ? doctor::to_json(diagnosis) : doctor::to_text(diagnosis))
                  << std::flush;
        if (const int status = doctor::exit_status(diagnosis); status != 0)
            throw CLI::RuntimeError{status};
    });
}

}  // namespace cli
