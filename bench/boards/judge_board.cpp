// SPDX-License-Identifier: MIT
// Fits a board to the workloads of one file and predicts those of another from one or two rows.

#include <bench/boards/judging.hpp>
#include <bench/boards/published_boards.hpp>

#include <cstdio>
#include <exception>

namespace {

using namespace board_fit;

struct Arguments {
    std::string fit, judge;
    bool low = false;
    bool by_model = false;
};

constexpr const char* usage =
    "usage: judge_board FIT.csv JUDGE.csv --known top|top,low [--leave-out workload|model]\n"
    "Fits the board on FIT.csv and predicts each workload of JUDGE.csv from its row at the "
    "highest\n"
    "clock (top), or from that and the row at the lowest clock (top,low). A workload that is in "
    "both\n"
    "files is left out of the fit that it is judged by; with --leave-out model, all of its "
    "model.\n";

Arguments parse(int count, char** words) {
    Arguments arguments;
    std::vector<std::string> files;
    bool known = false;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const std::string value = i + 1 < count ? words[i + 1] : "";
        if (word == "--known" && (value == "top" || value == "top,low")) {
            arguments.low = value == "top,low";
            known = true;
            ++i;
        } else if (word == "--leave-out" && (value == "workload" || value == "model")) {
            arguments.by_model = value == "model";
            ++i;
        } else if (word.rfind("--", 0) != 0) {
            files.push_back(word);
        } else {
            throw std::runtime_error{"cannot read the option " + word + " " + value + "\n" + usage};
        }
    }
    if (files.size() != 2 || !known) throw std::runtime_error{usage};
    arguments.fit = files[0];
    arguments.judge = files[1];
    return arguments;
}

void run(const Arguments& arguments) {
    Measurements fit = read_measurements(arguments.fit);
    Measurements judged = read_measurements(arguments.judge);
    leave_out_broken(fit);
    leave_out_broken(judged);
    const BoardFacts board = published_board(fit.board);
    std::printf("workload,core_mhz,time_error_pct,energy_error_pct\n");
    const Judgement result =
        judge(board, fit.workloads, judged.workloads, {arguments.low, arguments.by_model});
    for (const RowError& e : result.rows)
        std::printf("%s,%g,%.2f,%.2f\n", e.workload.c_str(), e.core_mhz, e.time_pct, e.energy_pct);
    for (const LeftOut& l : judged.left_out)
        std::fprintf(stderr, "left out: %s, %s: %s\n", l.workload.c_str(),
                     l.core_mhz > 0 ? std::to_string(static_cast<int>(l.core_mhz)).c_str() : "all",
                     l.rule.c_str());
    if (result.rows.empty()) throw std::runtime_error{"no row is left to judge"};
    std::printf("mean,all,%.2f,%.2f\n", result.mean_time_pct(), result.mean_energy_pct());
    std::fprintf(stderr, "clock picked at 5 and 10 %%: %d of %d within 1.5 points and the bound\n",
                 result.good_picks, result.picks);
}

}  // namespace

int main(int count, char** words) {
    try {
        run(parse(count, words));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "judge_board: %s\n", error.what());
        return 2;
    }
}
