// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <kdvfs/measure/trace.hpp>

#include <tests/measure/time_at.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <set>
#include <sstream>
#include <streambuf>
#include <string>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const DeviceInfo device{"Example GPU", "simulated", "gfx90a", "virtual time", true};

void report_everything(TraceWriter& trace) {
    const ClockPoint low{1100_MHz, auto_clock};
    trace.clock_asked(at(1ms), low);
    trace.clock_switch(at(1ms), at(3ms), {}, low);
    trace.clock_applied(at(3ms), low);
    trace.scope({1}, {"gelu", {}}, at(500us), at(1200us));
    trace.kernel({{0}, {1}, low, at(1ms + 5ns), at(9ms), 8'680'000}, {"gelu", {}});
    trace.power(at(10ms), {312.5});
    trace.fault(at(11ms), "refused: \"RSMI\\STATUS\"\n");
}

/// What the Trace Event Format asks of each phase that is used here.
void expect_valid(const json& event) {
    ASSERT_TRUE(event.is_object());
    ASSERT_TRUE(event.at("name").is_string());
    ASSERT_TRUE(event.at("ts").is_number());
    ASSERT_TRUE(event.at("pid").is_number_unsigned());
    ASSERT_TRUE(event.at("tid").is_number_unsigned());
    const auto phase = event.at("ph").get<std::string>();
    if (phase == "X") {
        EXPECT_GE(event.at("dur").get<double>(), 0);
    } else if (phase == "C") {
        for (const auto& value : event.at("args")) EXPECT_TRUE(value.is_number());
    } else if (phase == "i") {
        EXPECT_EQ(event.at("s"), "g");
    } else {
        ASSERT_EQ(phase, "M");
        EXPECT_TRUE(event.at("args").at("name").is_string());
    }
}

TEST(Trace, FollowsTheSchema) {
    std::ostringstream out;
    TraceWriter trace{out, device, {}, {.core = {1700}, .memory = {1600}}};
    report_everything(trace);
    trace.close();
    const json parsed = json::parse(out.str());
    EXPECT_TRUE(parsed["otherData"]["simulated"].get<bool>());
    std::set<std::string> phases;
    for (const json& event : parsed["traceEvents"]) {
        expect_valid(event);
        phases.insert(event["ph"]);
    }
    EXPECT_EQ(phases, (std::set<std::string>{"C", "M", "X", "i"}));
    EXPECT_EQ(trace.events(), 9U);  // a clock point is two counters
    EXPECT_NE(out.str().find("\"memory cap asked MHz\""), std::string::npos);
    EXPECT_NE(out.str().find(":1600"), std::string::npos) << "auto is the highest";
}

TEST(Trace, KeepsNanosecondsAndWords) {
    std::ostringstream out;
    {
        TraceWriter trace{out, device, at(1ms)};
        report_everything(trace);
    }
    const json parsed = json::parse(out.str());
    bool kernel = false;
    bool fault = false;
    for (const json& event : parsed["traceEvents"]) {
        if (event.value("cat", "") == "kernel") {
            kernel = true;
            EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 0.005);
            EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 7999.995);
            EXPECT_EQ(event["args"]["held_mhz"], 1085);
            EXPECT_EQ(event["tid"], 2);
        }
        if (event.value("cat", "") == "fault") {
            fault = true;
            EXPECT_EQ(event["name"], "refused: \"RSMI\\STATUS\"\n");
        }
    }
    EXPECT_TRUE(kernel);
    EXPECT_TRUE(fault);
    EXPECT_NE(out.str().find("\"ts\":-500.000"), std::string::npos);
}

TEST(Trace, NamesEveryTrackOnce) {
    std::ostringstream out;
    TraceWriter trace{out, device};
    for (std::uint32_t track : {2U, 0U, 2U, 1U}) {
        trace.kernel({{0}, {track}, {}, at(0ms), at(1ms), 0}, {"gelu", {}});
    }
    trace.close();
    std::multiset<int> named;
    const json parsed = json::parse(out.str());
    for (const json& event : parsed["traceEvents"]) {
        if (event["name"] == "thread_name" && event["pid"] == 1)
            named.insert(event["tid"].get<int>());
    }
    EXPECT_EQ(named, (std::multiset<int>{0, 1, 2, 3}));
}

/// Counts what is written and keeps none of it.
struct CountingBuffer : std::streambuf {
    std::uint64_t bytes = 0;
    std::streamsize longest = 0;
    std::streamsize xsputn(const char*, std::streamsize count) override {
        bytes += static_cast<std::uint64_t>(count);
        longest = std::max(longest, count);
        return count;
    }
    int_type overflow(int_type c) override {
        ++bytes;
        return c;
    }
};

TEST(Trace, StreamsAMillionEventsWithoutKeepingThem) {
    CountingBuffer buffer;
    std::ostream out{&buffer};
    TraceWriter trace{out, device};
    for (int i = 0; i < 1'000'000; ++i) {
        trace.kernel({{0}, {0}, {}, at(i * 1ms), at(i * 1ms + 500us), 0}, {"gelu", {}});
    }
    trace.close();
    EXPECT_EQ(trace.events(), 1'000'000U);
    EXPECT_GT(buffer.bytes, 100'000'000U);
    EXPECT_LT(buffer.longest, 1000);
}

TEST(Trace, AFullDiskIsAnError) {
    std::ofstream full{"/dev/full"};
    if (!full) GTEST_SKIP() << "no /dev/full here";
    TraceWriter trace{full, device};
    report_everything(trace);
    EXPECT_THROW(trace.close(), Error);
}

}  // namespace
}  // namespace kdvfs::measure
