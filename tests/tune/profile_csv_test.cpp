// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/tune/profile.hpp>

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::tune {
namespace {

constexpr const char* csv_header = "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\n";

Profile read(const std::string& text) {
    std::istringstream input{text};
    return read_profile(input, "sweep.csv");
}

struct Bad {
    const char* name;
    std::string text;
    const char* place;  ///< file and line
    const char* words;
};

class BadSweep : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSweep, IsRejectedWithFileAndLine) {
    try {
        read(GetParam().text);
        FAIL() << "was read";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_EQ(error.text().object, GetParam().place) << error.what();
        EXPECT_NE(error.text().vendor_words.find(GetParam().words), std::string::npos)
            << error.what();
    }
}

std::string with(const std::string& row) {
    return std::string{csv_header} + "g,gelu,auto,auto,1,1\n" + row + "\n";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSweep,
    ::testing::Values(
        Bad{"empty", "", "sweep.csv:1", "empty"},
        Bad{"only_header", csv_header, "sweep.csv:2", "no measurements"},
        Bad{"no_energy_column", "gpu,kernel,core_mhz,mem_mhz,time_s\n", "sweep.csv:1", "energy_j"},
        Bad{"several_columns_missing", "gpu,mem_mhz,energy_j\n", "sweep.csv:1",
            "no columns kernel, core_mhz, time_s"},
        Bad{"semicolons", "gpu;kernel;core_mhz;mem_mhz;time_s;energy_j\n", "sweep.csv:1",
            "semicolons"},
        Bad{"tabs", "gpu\tkernel\tcore_mhz\tmem_mhz\ttime_s\tenergy_j\n", "sweep.csv:1", "tabs"},
        Bad{"decimal_comma", with("g,gelu,1100,auto,\"0,5\",1"), "sweep.csv:3",
            "decimal comma: \"0,5\"; write 0.5"},
        Bad{"bare_decimal_comma", with("g,gelu,1100,auto,0,5,1"), "sweep.csv:3", "decimal points"},
        Bad{"too_short", with("g,gelu,1100,auto,1e-10,0"), "sweep.csv:3", "nanosecond"},
        Bad{"too_long", with("g,gelu,1100,auto,1e8,0"), "sweep.csv:3", "1e7 s"},
        Bad{"too_much_power", with("g,gelu,1100,auto,1e-3,1e6"), "sweep.csv:3", "megawatt"},
        Bad{"column_twice", "gpu,gpu,kernel,core_mhz,mem_mhz,time_s,energy_j\n", "sweep.csv:1",
            "twice"},
        Bad{"few_fields", with("g,gelu,1100"), "sweep.csv:3", "fields"},
        Bad{"many_fields", with("g,gelu,1100,auto,1,1,1"), "sweep.csv:3", "fields"},
        Bad{"cut_in_a_number",
            std::string{csv_header} + "g,gelu,auto,auto,1,1\ng,gelu,1100,auto,1,1.2", "sweep.csv:3",
            "cut short"},
        Bad{"nan", with("g,gelu,1100,auto,nan,1"), "sweep.csv:3", "not finite"},
        Bad{"infinite", with("g,gelu,1100,auto,1,inf"), "sweep.csv:3", "not finite"},
        Bad{"overflow", with("g,gelu,1100,auto,1e999,1"), "sweep.csv:3", "time_s"},
        Bad{"negative_time", with("g,gelu,1100,auto,-1,1"), "sweep.csv:3", "above zero"},
        Bad{"zero_time", with("g,gelu,1100,auto,0,1"), "sweep.csv:3", "above zero"},
        Bad{"negative_energy", with("g,gelu,1100,auto,1,-1"), "sweep.csv:3", "negative"},
        Bad{"trailing_text", with("g,gelu,1100,auto,1s,1"), "sweep.csv:3", "time_s"},
        Bad{"zero_clock", with("g,gelu,0,auto,1,1"), "sweep.csv:3", "core_mhz"},
        Bad{"negative_clock", with("g,gelu,1100,-2,1,1"), "sweep.csv:3", "mem_mhz"},
        Bad{"broken_clock", with("g,gelu,1100.5,auto,1,1"), "sweep.csv:3", "core_mhz"},
        Bad{"huge_clock", with("g,gelu,1e30,auto,1,1"), "sweep.csv:3", "core_mhz"},
        Bad{"nan_clock", with("g,gelu,nan,auto,1,1"), "sweep.csv:3", "core_mhz"},
        Bad{"twice", with("g,gelu,auto,-1,1,1"), "sweep.csv:3", "twice"},
        Bad{"code_in_name", with("g,\"x\"\"; system(0); \"\"\",1100,auto,1,1"), "sweep.csv:3",
            "kernel name"},
        Bad{"long_name", with("g," + std::string(1025, 'a') + ",1100,auto,1,1"), "sweep.csv:3",
            "kernel name"},
        Bad{"gpu_with_code", std::string{csv_header} + "\"g\\\",gelu,auto,auto,1,1\n",
            "sweep.csv:2", "GPU"},
        Bad{"two_gpus", with("h,gelu,1100,auto,1,1"), "sweep.csv:3", "mixes GPUs"},
        Bad{"open_quote", with("g,\"gelu,1100,auto,1,1"), "sweep.csv:3", "does not end"},
        Bad{"text_after_quote", with("g,\"gelu\"x,1100,auto,1,1"), "sweep.csv:3",
            "after a closing"},
        Bad{"quote_inside", with("g,ge\"lu,1100,auto,1,1"), "sweep.csv:3", "inside"},
        Bad{"control_character", with(std::string{"g,ge\0lu,1100,auto,1,1", 21}), "sweep.csv:3",
            "control"},
        Bad{"endless_line", with(std::string(100'000, 'x')), "sweep.csv:3", "64 KiB"},
        Bad{"bad_variant", with("g,gelu#99999999999,1100,auto,1,1"), "sweep.csv:3", "variant"},
        Bad{"no_baseline", with("g,copy,1100,auto,1,1"), "sweep.csv:3", "copy was not measured"},
        Bad{"no_common_highest",
            std::string{csv_header} + "g,gelu,1100,800,1,1\ng,gelu,1000,900,1,1\n", "sweep.csv:2",
            "baseline is missing"}),
    [](const auto& instance) { return std::string{instance.param.name}; });

TEST(SweepFile, OptionalColumnsAreChecked) {
    const std::string wide =
        "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j,variant,group,is_baseline,count,sample\n";
    const std::string first = "g,gelu,auto,auto,1,1,0,fw,0,24,0\n";
    for (const char* row : {
             "g,gelu,1100,auto,1,1,0,bw,0,24,0\n",   // another group
             "g,gelu,1100,auto,1,1,0,fw,0,12,0\n",   // another count
             "g,gelu,1100,auto,1,1,0,fw,0,0,0\n",    // never launched
             "g,gelu,1100,auto,1,1,0,fw,0,-1,0\n",   // negative
             "g,gelu,1100,auto,1,1,0,fw,0,1.5,0\n",  // half a launch
             "g,gelu,1100,auto,1,1,0,fw,2,24,0\n",   // no flag
             "g,gelu,1100,auto,1,1,99999999999,fw,0,24,0\n",
             "g,gelu,1100,auto,1,1,0,\"f\"\"w\",0,24,0\n",
             "g,gelu,auto,auto,1,1,0,fw,0,24,0\n",  // the same sample again
         }) {
        EXPECT_THROW(read(wide + first + row), Error) << row;
    }
    EXPECT_NO_THROW(read(wide + first + "g,gelu,1100,auto,1,1,0,fw,0,24,0\n"));
    EXPECT_THROW(read(wide + "g,gelu,1100,auto,1,1,0,fw,1,24,0\ng,gelu,900,auto,1,1,0,fw,1,24,0\n"),
                 Error);
}

TEST(SweepFile, ReadsOrderQuotesLineEndsAndForeignColumns) {
    const Profile profile = read(
        "\xEF\xBB\xBFkernel,note,gpu,mem_mhz,core_mhz,energy_j,time_s,sample,power_w\r\n"
        "\"f<int,2>\",\"a \"\"b\"\", c\",GTX Titan X (Maxwell),810.0,-1,2.5,0.5,0,nonsense\r\n"
        "\r\n"
        "\"f<int,2>\",,GTX Titan X (Maxwell),810,auto,3.5,0.7,1,\r\n");
    EXPECT_EQ(profile.gpu(), "GTX Titan X (Maxwell)");
    ASSERT_EQ(profile.kernels().size(), 1U);
    const KernelProfile& kernel = profile.kernels()[0];
    EXPECT_EQ(kernel.key.name, "f<int,2>");
    ASSERT_EQ(kernel.points.size(), 1U);
    EXPECT_EQ(kernel.points[0].clock, (ClockPoint{auto_clock, {810}}));
    ASSERT_EQ(kernel.points[0].samples.size(), 2U);
    EXPECT_EQ(kernel.points[0].samples[1].cost, (Cost{Seconds{0.7}, Joules{3.5}}));
}

TEST(SweepFile, VariantsAreKernelsOfTheirOwn) {
    const Profile profile =
        read(std::string{csv_header} +
             "g,sort,1000,800,1,1\ng,sort#2,1000,800,2,2\ng,sort#2,900,800,3,1\n");
    ASSERT_EQ(profile.kernels().size(), 2U);
    EXPECT_EQ(profile.kernels()[1].key, (KernelKey{"sort", variant(2)}));
    EXPECT_EQ(profile.kernels()[1].points.size(), 2U);
}

TEST(SweepFile, NamesOfCompilersComeBack) {
    Profile profile{"g"};
    for (const char* name : {"f<int, 2>(int [8])::{lambda()#1}", "sort#2", "sort", "a';b|c",
                             " spaces ", "#", "-1", "=cmd()"}) {
        for (const std::uint32_t index : {0U, 2U})
            profile.add({{name, variant(index)}, {}, {Seconds{1}, Joules{1}}});
    }
    const std::string text = to_csv(profile);
    const Profile again = read(text);
    ASSERT_EQ(again.kernels().size(), 16U);
    for (std::size_t k = 0; k < 16; ++k)
        EXPECT_EQ(again.kernels()[k].key, profile.kernels()[k].key);
    // Without a column of variants, too.
    std::string bare = csv_header;
    for (const KernelProfile& kernel : profile.kernels())
        bare += "g," + kdvfs::detail::csv_field(to_string(kernel.key)) + ",auto,auto,1,1\n";
    const Profile narrow = read(bare);
    for (std::size_t k = 0; k < 16; ++k)
        EXPECT_EQ(narrow.kernels()[k].key, profile.kernels()[k].key);
}

TEST(SweepFile, TheBaselineIsTheMarkedElseAutoElseTheHighest) {
    const std::string marked = "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j,is_baseline\n";
    EXPECT_EQ(read(marked + "g,a,auto,auto,1,1,0\ng,a,900,auto,1,1,1\n").baseline(),
              (ClockPoint{{900}, auto_clock}));
    EXPECT_EQ(read(marked + "g,a,auto,auto,1,1,0\ng,a,900,auto,1,1,0\n").baseline(), ClockPoint{});
    EXPECT_EQ(read(marked + "g,a,900,800,1,1,0\ng,a,1000,800,1,1,0\n").baseline(),
              (ClockPoint{{1000}, {800}}));
}

TEST(SweepFile, WhatIsWrittenReadsBackTheSame) {
    Profile profile{"Radeon (simulated), 1"};
    profile.add({{"f<int,2>", variant(1)},
                 {{900}, auto_clock},
                 {Seconds{0.1}, Joules{1.0 / 3}},
                 "fw",
                 24,
                 0,
                 true});
    profile.add({{"f<int,2>", variant(1)},
                 {{900}, auto_clock},
                 {Seconds{1e-9}, Joules{0}},
                 "fw",
                 24,
                 1,
                 false});
    profile.add({{"f<int,2>", variant(1)}, {{800}, {5001}}, {Seconds{0.2}, Joules{7}}, "fw", 24});
    const std::string text = to_csv(profile);
    const Profile again = read(text);
    EXPECT_EQ(to_csv(again), text);
    EXPECT_EQ(again.gpu(), profile.gpu());
    EXPECT_EQ(again.baseline(), profile.baseline());
    ASSERT_EQ(again.kernels().size(), 1U);
    EXPECT_EQ(again.kernels()[0].points[0].samples[0].cost.energy.count, 1.0 / 3);
}

TEST(Profile, AddingNamesTheKernelAndLeavesTheProfileAsItWas) {
    Profile profile{"g"};
    profile.add({{"gelu", {}}, {}, {Seconds{1}, Joules{1}}});
    try {
        profile.add({{"gelu", {}}, {}, {Seconds{2}, Joules{1}}});
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string{error.what()}.find("gelu at core auto"), std::string::npos);
    }
    EXPECT_EQ(profile.kernels()[0].points[0].samples.size(), 1U);
    EXPECT_THROW(Profile{"g\nh"}, Error);
    EXPECT_THROW(Profile{""}, Error);
}

TEST(SweepFile, AnAbsentFileIsAnErrorThatNamesIt) {
    try {
        read_profile(std::filesystem::path{"/absent/sweep.csv"});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::io);
        EXPECT_EQ(error.text().object, "/absent/sweep.csv");
    }
}

TEST(SweepFiles, SayWhatWasMeasuredAtThePowerLimit) {
    const std::string columns = "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j,held_mhz,at_limit\n";
    const Profile profile = read(columns + "g,copy,auto,auto,1,60,,\n" +
                                 "g,gemm,auto,auto,1,700,1410,1\ng,gemm,900,auto,1.5,500,899,0\n");
    ASSERT_NE(profile.find_at_limit(), nullptr);
    EXPECT_EQ(profile.find_at_limit()->key.name, "gemm");
    const Profile again = read(to_csv(profile));
    const auto& rows = again.kernels()[1].points;
    EXPECT_EQ(rows[0].samples[0].held, Megahertz{1410});
    EXPECT_TRUE(rows[0].samples[0].at_limit);
    EXPECT_EQ(rows[1].samples[0].held, Megahertz{899});
    EXPECT_FALSE(rows[1].samples[0].at_limit);
    EXPECT_EQ(again.kernels()[0].points[0].samples[0].held, auto_clock);
    EXPECT_EQ(read(columns + "g,copy,auto,auto,1,60,,\n").find_at_limit(), nullptr);
    EXPECT_THROW(read(columns + "g,copy,auto,auto,1,60,,2\n"), Error);
}

TEST(SweepFiles, SayWhatWasMeasuredTogether) {
    const std::string columns =
        "gpu,kernel,core_mhz,mem_mhz,time_s,energy_j,energy_sd_j,block,block_energy_j,"
        "block_energy_sd_j\n";
    const Profile profile = read(columns +
                                 "g,gemm,auto,auto,1,100,5,7,160,0.1\n"
                                 "g,copy,auto,auto,1,60,5,7,160,0.1\n"
                                 "g,copy,1100,auto,1,50,5,,,\n");
    ASSERT_EQ(profile.blocks().size(), 1U);
    EXPECT_EQ(profile.blocks().at(7).block, (ProfileBlock{7, {160}, {0.1}}));
    EXPECT_EQ(profile.kernels()[1].points[0].samples[0].block, 7U);
    EXPECT_EQ(profile.kernels()[1].points[1].samples[0].block, 0U);
    EXPECT_EQ(to_csv(read(to_csv(profile))), to_csv(profile));
    for (const auto& [row, words] :
         {std::pair{"g,sort,auto,auto,1,60,5,7,161,0.1", "block 7 has another energy"},
          std::pair{"g,sort,1100,auto,1,60,5,7,160,0.1", "block 7 is at"},
          std::pair{"g,sort,auto,auto,1,60,5,8,,", "not above zero"},
          std::pair{"g,sort,auto,auto,1,60,5,0,160,", "without id"},
          std::pair{"g,sort,auto,auto,1,60,5,8,160,-1", "negative"}}) {
        try {
            read(columns + "g,gemm,auto,auto,1,100,5,7,160,0.1\n" + row + "\n");
            FAIL() << row;
        } catch (const Error& error) {
            EXPECT_NE(std::string{error.what()}.find(words), std::string::npos) << error.what();
            EXPECT_EQ(error.text().object, "sweep.csv:3");
        }
    }
}

}  // namespace
}  // namespace kdvfs::tune
