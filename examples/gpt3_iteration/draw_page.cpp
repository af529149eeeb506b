// SPDX-License-Identifier: MIT
//
// draw_page FOLDER
// Draws what gpt3_iteration wrote into FOLDER/report.html, as `kdvfs report` does.
#include <kdvfs/error.hpp>
#include <tools/cli/report_command.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::fprintf(stderr, "usage: draw_page FOLDER\n");
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    const std::string page = (folder / "report.html").string();
    std::vector<std::string> files;
    for (const char* name : {"profile.csv", "plan.json", "report.json", "trace.json"})
        files.push_back((folder / name).string());
    cli::ReportCommand{files, page}.run();
    std::printf("Open %s in a browser.\n", page.c_str());
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "draw_page: %s\n", error.what());
    return 1;
}
