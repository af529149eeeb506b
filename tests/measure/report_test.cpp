// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>
#include <tests/measure/program_locale.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::measure {
namespace {

Report sample_report() {
    Report report;
    report.device = {"Example GPU", "simulated", "gfx90a", "virtual \"clock\"", true};
    report.scopes = {.scopes = 12, .switches = 4, .stream_redundant = 8, .unmetered = 3};
    ReportRow gelu;
    gelu.kernel = {"gelu", {}};
    gelu.calls = 9;
    gelu.metered_calls = 6;
    gelu.time = gelu.counted_time = Seconds{0.5};
    gelu.energy = {{150}, {2}, true, {1.2}};
    gelu.asked = gelu.applied = {1100_MHz, auto_clock};
    gelu.held = 1085_MHz;
    gelu.held_share = 0.97;
    gelu.direct_power = Watts{301};
    ReportRow gemm;
    gemm.kernel = {"gemm<128,64>", variant(2)};
    gemm.calls = gemm.metered_calls = 3;
    report.rows = {gelu, gemm};
    report.groups = {{{{"a", {}}, {"b", {}}}, true, {{7}, {1}, true}}};
    report.totals = {{200}, {{150}, {2}, true}, {{30}, {3}, true}, {20}, Seconds{1}, Seconds{0.5},
                     {0}};
    report.fit.rows = 98;
    report.fit.refused_rows = 2;
    report.fit.autocorrelation = 0.25;
    report.fit.sensor = {Seconds{3e-3}, Seconds{13e-3}, {}, Seconds{1e-3}};
    report.fit.covariance = {{4, -1, 0}, {-1, 9, 0}, {0, 0, 1}};
    report.notes = {"line one\nand \\ two"};
    return report;
}

std::string text_of(const Report& report) {
    std::ostringstream out;
    out << report;
    return out.str();
}

TEST(ReportText, CallsSimulatedSimulatedInItsHeading) {
    Report report = sample_report();
    const std::string text = text_of(report);
    EXPECT_NE(text.substr(0, text.find('\n')).find("SIMULATED"), std::string::npos);
    EXPECT_NE(text.find("simulated energy"), std::string::npos);
    report.device.simulated = false;
    report.device.address = "0000:03:00.0";
    EXPECT_EQ(text_of(report).find("imulated"), std::string::npos);
}

TEST(ReportText, ShowsMeasureOnlyInEveryRow) {
    Report report = sample_report();
    EXPECT_EQ(text_of(report).find("measure only"), std::string::npos);
    report.measure_only = true;
    const std::string text = text_of(report);
    std::size_t found = 0;
    for (std::size_t i = text.find("measure only"); i != std::string::npos;
         i = text.find("measure only", i + 1)) {
        ++found;
    }
    EXPECT_EQ(found, report.rows.size());
}

TEST(ReportText, NeverPrintsANumberThatWasNotTold) {
    const std::string text = text_of(sample_report());
    const auto line = text.substr(text.find("gemm<128,64>#2"));
    EXPECT_NE(line.substr(0, line.find('\n')).find("unresolved"), std::string::npos);
    EXPECT_NE(text.find("150.0 J +- 2.0"), std::string::npos);
    EXPECT_NE(text.find("1085 (97 %)"), std::string::npos);
    EXPECT_NE(text.find("unexplained 20 J"), std::string::npos);
}

TEST(ReportCsv, HasTheDocumentedColumns) {
    std::ostringstream out;
    write_csv(out, sample_report());
    std::istringstream lines{out.str()};
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line,
              "kernel,variant,calls,metered_calls,time_s,counted_time_s,energy_j,"
              "energy_half_width_j,energy_status,asked_core_mhz,asked_memory_mhz,applied_core_mhz,"
              "applied_memory_mhz,held_core_mhz,held_share,direct_power_w,source,clocks");
    std::getline(lines, line);
    EXPECT_EQ(line, "gelu,0,9,6,0.5,0.5,150,2,resolved,1100,0,1100,0,1085,0.97,301,simulated,set");
    std::getline(lines, line);
    EXPECT_EQ(line, "\"gemm<128,64>\",2,3,3,0,0,,,unresolved,0,0,0,0,0,0,,simulated,set");
}

TEST(ReportJson, ReadsBack) {
    std::ostringstream out;
    write_json(out, sample_report());
    const auto json = nlohmann::json::parse(out.str());
    EXPECT_TRUE(json["device"]["simulated"].get<bool>());
    EXPECT_EQ(json["device"]["mechanism"], "virtual \"clock\"");
    EXPECT_EQ(json["notes"][0], "line one\nand \\ two");
    EXPECT_EQ(json["scopes"]["stream_redundant"], 8);
    EXPECT_EQ(json["rows"][0]["energy"]["joules"], 150.0);
    EXPECT_EQ(json["rows"][0]["energy"]["sensor_half_width_95"], 1.2);
    EXPECT_NEAR(json["rows"][0]["energy"]["noise_half_width_95"].get<double>(), 1.6, 1e-9);
    EXPECT_EQ(json["rows"][0]["asked"]["core_mhz"], 1100);
    EXPECT_TRUE(json["rows"][1]["energy"]["joules"].is_null());
    EXPECT_TRUE(json["rows"][1]["energy"]["sensor_half_width_95"].is_null());
    EXPECT_EQ(json["rows"][1]["variant"], 2);
    EXPECT_EQ(json["groups"][0]["kernels"][1]["kernel"], "b");
    const auto& totals = json["totals"];
    EXPECT_EQ(totals["kernels"]["joules"].get<double>() + totals["idle"]["joules"].get<double>() +
                  totals["unexplained_j"].get<double>(),
              totals["counter_j"].get<double>());
    const auto& fit = json["fit"];
    EXPECT_EQ(fit["source"], "energy counter");
    EXPECT_EQ(fit["rows"], 98);
    EXPECT_EQ(fit["refused_share"], 0.02);
    EXPECT_EQ(fit["autocorrelation"], 0.25);
    EXPECT_EQ(fit["sensor"]["memory_s"], 13e-3);
    EXPECT_EQ(fit["covariance_j2"][0][1], -1);
    EXPECT_EQ(fit["covariance_j2"].size(), 3U);
}

TEST(JsonString, StaysValidWhateverADriverSays) {
    const std::string_view text{"a\"b\\c\n\x01\x7f\xff\xc3\xa9\xe2\x82 \0z", 17};
    const auto parsed = nlohmann::json::parse(kdvfs::detail::json_string(text)).get<std::string>();
    EXPECT_EQ(parsed,
              std::string("a\"b\\c\n\x01\x7f\xEF\xBF\xBD\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD \0z", 23));
}

TEST(JsonNumber, HasNoWordForInfinity) {
    EXPECT_EQ(kdvfs::detail::json_number(0.1), "0.1");
    EXPECT_EQ(kdvfs::detail::json_number(1.0 / 0.0), "null");
}

TEST(JsonFields, WriteEachKindOfValue) {
    std::string text;
    io::append_json(text, [](io::JsonFields& fields) {
        const std::vector<std::vector<double>> rows{{1, 0.5}, {}};
        const std::vector<Watts> powers{{250}, {1.0 / 0.0}};
        fields("a\"b", true)("count", 7U)("negative", -3)("clock", 1100_MHz);
        fields("time", std::chrono::milliseconds{5})("none", std::optional<Joules>{});
        fields("some", std::optional{Joules{2}})("text", "x\ny")("raw", io::JsonText{"1.500"});
        fields("rows", rows)("lines", io::JsonLines{powers})("no_lines", io::JsonLines{rows[1]});
        fields("point", ClockPoint{1100_MHz, auto_clock})("empty", [](io::JsonFields&) {});
    });
    EXPECT_EQ(text, R"({"a\"b":true,"count":7,"negative":-3,"clock":1100,"time":0.005,"none":null,)"
                    R"("some":2,"text":"x\u000ay","raw":1.500,"rows":[[1,0.5],[]],"lines":[)"
                    "\n250,\nnull],"
                    R"("no_lines":[],"point":{"core_mhz":1100,"memory_mhz":0},"empty":{}})");
    EXPECT_TRUE(nlohmann::json::accept(text));
}

TEST(CsvField, QuotesWhatNeedsIt) {
    EXPECT_EQ(kdvfs::detail::csv_field("plain"), "plain");
    EXPECT_EQ(kdvfs::detail::csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
}

/// What `write_record` writes, file by file.
std::string record_text() {
    MeterRecord record;
    record.kernels = {{"gelu", {}}};
    record.runs.resize(1);
    record.runs[0].interval.start = TimePoint{Duration{1'234'567'890}};
    record.runs[0].interval.end = TimePoint{Duration{1'234'600'000}};
    record.samples = {{TimePoint{Duration{9'876'543}}, {2345.75}, 1234}};
    record.power.resize(1);
    record.power[0].watts = {1234.5};
    record.iterations = {{TimePoint{Duration{7'654'321}}, IterationMark::begins}};
    std::string folder = (std::filesystem::temp_directory_path() / "kdvfs-record-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) return {};
    write_record(folder, record);
    std::string text;
    for (const char* name : {"runs.csv", "samples.csv", "power.csv", "marks.csv"}) {
        std::ifstream file{std::filesystem::path{folder} / name};
        text.append(std::istreambuf_iterator<char>{file}, {});
    }
    std::filesystem::remove_all(folder);
    return text;
}

/// Every text that is written of a report.
std::string all_texts() {
    Report report = sample_report();
    report.rows[0].calls = report.rows[0].metered_calls = 123'456;
    report.rows[0].kernel.variant = variant(1234);
    report.scopes.scopes = 1'234'567;
    std::ostringstream out;
    write_csv(out, report);
    write_json(out, report);
    return out.str() + text_of(report) + record_text();
}

TEST(ReportFiles, HaveTheSameNumbersWhateverTheProgramsLocaleIs) {
    const std::string classic = all_texts();
    EXPECT_NE(classic.find("gelu,1234,123456,123456,0.5,"), std::string::npos);
    EXPECT_NE(classic.find(",1234567890,"), std::string::npos) << "a run's start";
    const GroupedNumbers grouped;
    EXPECT_EQ(all_texts(), classic);
}

TEST(ReportFiles, HaveDecimalPointsWhateverSetlocaleWasGiven) {
    const std::string classic = all_texts();
    const CommaOfPrintf comma;
    if (!comma.holds()) GTEST_SKIP() << "the machine has no locale with a decimal comma";
    EXPECT_EQ(io::format_text("%.3f", 1.5), "1.500");
    EXPECT_EQ(all_texts(), classic);
}

}  // namespace
}  // namespace kdvfs::measure
