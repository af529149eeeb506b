// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/workload_model.hpp>

#include <string>

namespace board_fit {

/// Idle watts and core voltages by clock as measured on an A100 40 GB PCIe and an A100 80 GB SXM
/// (EnergAIzer, ISPASS'26, arXiv 2604.20105); limits from the data sheets.
/// @param name as in the column `gpu`; empty for files without it, which are of the A100 40 GB PCIe
inline BoardFacts published_board(const std::string& name) {
    BoardFacts board;
    if (name.find("SXM") != std::string::npos) {
        board.voltage.knots = {{1110, 1},     {1170, 1.034}, {1230, 1.076},
                               {1290, 1.126}, {1350, 1.168}, {1410, 1.235}};
        board.idle_watts = 60.3;
        board.idle.knots = {{210, 1},      {600, 1.014},  {900, 1.048}, {1110, 1.080},
                            {1200, 1.134}, {1290, 1.215}, {1410, 1.365}};
        board.limit_watts = 400;
    } else {
        board.voltage.knots = {{1020, 1},     {1080, 1.027}, {1140, 1.054},
                               {1230, 1.117}, {1320, 1.198}, {1410, 1.288}};
        board.idle_watts = 44.5;
        board.idle.knots = {{210, 1},      {600, 1.022},  {900, 1.064},  {1050, 1.107},
                            {1140, 1.164}, {1230, 1.238}, {1320, 1.362}, {1410, 1.513}};
        board.limit_watts = 250;
    }
    return board;
}

}  // namespace board_fit
