// SPDX-License-Identifier: MIT
#include <kdvfs/detail/train/batch_size_file.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs::train {
namespace {

namespace fs = std::filesystem;

class BatchSizeFileTest : public testing::Test {
protected:
    BatchSizeFileTest() {
        std::string pattern = (fs::temp_directory_path() / "kdvfs_batch_size_XXXXXX").string();
        folder = ::mkdtemp(pattern.data());
        path = folder / "job.json";
        options.sizes = {64, 128, 256, 512};
        options.usual = 256;
    }
    ~BatchSizeFileTest() override { fs::remove_all(folder); }

    [[nodiscard]] BatchSizeFile open(const std::string& job = "gpt on H100") const {
        return BatchSizeFile{path, job, options};
    }
    [[nodiscard]] std::string content() const {
        std::ostringstream text;
        text << std::ifstream{path}.rdbuf();
        return text.str();
    }

    fs::path folder;
    fs::path path;
    BatchSizeOptions options;
};

TEST_F(BatchSizeFileTest, RemembersBetweenProcesses) {
    BatchSizeFile file = open();
    const SuggestedRun run = file.suggest();
    file.profiled(run.id, {Watts{175}, 1.0 / 3});
    BatchSizeFile again = open();
    again.observe(run.id, {RunEnd::reached, 20, 6.7});
    const BatchSizeState state = open().read().state();
    EXPECT_TRUE(state.pending.empty());
    EXPECT_DOUBLE_EQ(state.least_cost, 20 * (1.0 / 3));
    const BatchSizeRecord& record = state.sizes.at(256);
    EXPECT_EQ(record.reached, std::vector<double>{20});
    ASSERT_TRUE(record.profile);
    EXPECT_EQ(record.profile->cost, 1.0 / 3);
    EXPECT_EQ(record.profile->limit, Watts{175});
}

TEST_F(BatchSizeFileTest, RemembersStopsAndDoubts) {
    BatchSizeFile file = open();
    const auto run = [&](const RunOutcome& outcome) {
        const SuggestedRun suggested = file.suggest();
        if (!suggested.profile) file.profiled(suggested.id, {Watts{175}, 1});
        file.observe(suggested.id, outcome);
        return suggested.batch_size;
    };
    run({RunEnd::reached, 20, 20});
    const std::uint32_t cheap = run({RunEnd::reached, 1, 1});
    BatchSizeState state = open().read().state();
    ASSERT_TRUE(state.doubtful);
    EXPECT_EQ(state.doubtful->batch_size, cheap);
    EXPECT_EQ(state.doubtful->epochs, 1);
    run({RunEnd::reached, 20, 20});
    run({RunEnd::stopped, 40, 40});
    run({RunEnd::stopped, 40, 40});
    state = open().read().state();
    EXPECT_FALSE(state.doubtful);
    EXPECT_EQ(state.unreached, 2U);
    EXPECT_TRUE(std::isinf(open().suggest().most_cost));
}

TEST_F(BatchSizeFileTest, GoesOnExactlyAsWithoutAFile) {
    BatchSize memory{options};
    BatchSizeFile file = open();
    for (int r = 0; r < 20; ++r) {
        const SuggestedRun a = memory.suggest(Seconds{0});
        const SuggestedRun b = file.suggest();
        ASSERT_EQ(a.batch_size, b.batch_size);
        ASSERT_EQ(a.id, b.id);
        const EpochProfile profile{Watts{100}, 1.0 / a.batch_size};
        ASSERT_EQ(memory.profiled(a.id, profile), file.profiled(b.id, profile));
        const RunOutcome outcome{RunEnd::reached, 10.0 + r % 3, 0.1};
        memory.observe(a.id, outcome);
        file.observe(b.id, outcome);
    }
}

TEST_F(BatchSizeFileTest, KeepsEveryOutcomeOfConcurrentProcesses) {
    constexpr int processes = 4;
    constexpr int runs = 15;
    for (int p = 0; p < processes; ++p) {
        if (const pid_t child = ::fork(); child == 0) {
            int failures = 0;
            try {
                BatchSizeFile file = open();
                for (int r = 0; r < runs; ++r)
                    file.observe(file.suggest().id, {RunEnd::reached, 10, 10});
            } catch (const Error&) {
                failures = 1;
            }
            ::_exit(failures);
        }
    }
    for (int p = 0; p < processes; ++p) {
        int status = 0;
        ASSERT_GT(::wait(&status), 0);
        EXPECT_EQ(status, 0);
    }
    const BatchSizeState state = open().read().state();
    std::size_t reached = 0;
    for (const auto& [size, record] : state.sizes) reached += record.reached.size();
    EXPECT_EQ(reached, std::size_t{processes * runs});
    EXPECT_EQ(state.next_id, std::uint64_t{processes * runs + 1});
    EXPECT_TRUE(state.pending.empty());
}

TEST_F(BatchSizeFileTest, SurvivesKillsAtAnyPoint) {
    open().observe(open().suggest().id, {RunEnd::reached, 10, 10});
    for (int kill = 0; kill < 25; ++kill) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            for (;;) {
                BatchSizeFile file = open();
                file.observe(file.suggest().id, {RunEnd::reached, 10, 10});
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds{1000 + 397 * kill});
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
        const BatchSizeState state = open().read().state();
        std::size_t ended = 0;
        for (const auto& [size, record] : state.sizes) ended += record.reached.size();
        ASSERT_EQ(ended + state.pending.size() + 1, state.next_id);
    }
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator{folder}) files += entry.exists();
    EXPECT_EQ(files, 2U);  // the file and its lock: nothing that was half written
}

TEST_F(BatchSizeFileTest, RejectsFilesThatMakeNoSense) {
    open().observe(open().suggest().id, {RunEnd::reached, 10, 10});
    EXPECT_THROW(static_cast<void>(open("another job")), Error);
    const std::string good = content();
    const auto rejected = [&](const std::string& text) {
        std::ofstream{path} << text;
        try {
            static_cast<void>(open());
            return false;
        } catch (const Error& error) {
            return error.code() == Errc::invalid_input && content() == text;
        }
    };
    const auto with = [&](const std::string& old, const std::string& fresh) {
        std::string text = good;
        const std::size_t at = text.find(old);
        EXPECT_NE(at, std::string::npos) << old;
        return text.replace(at, old.size(), fresh);
    };
    EXPECT_TRUE(rejected(""));
    EXPECT_TRUE(rejected("[]"));
    EXPECT_TRUE(rejected(good.substr(0, good.size() / 2)));
    EXPECT_TRUE(rejected(with("kdvfs batch", "another kind of")));
    EXPECT_TRUE(rejected(with("\"256\"", "\"255\"")));
    EXPECT_TRUE(rejected(with("\"256\"", "\"a few\"")));
    EXPECT_TRUE(rejected(with("\"draws\": ", "\"draws\": -")));
    EXPECT_TRUE(rejected(with("\"failures\": 0", "\"failures\": 1e300")));
    EXPECT_TRUE(rejected(with("\"least_cost\": 10.0", "\"least_cost\": 0")));
    EXPECT_TRUE(rejected(with("10.0\n", "-10.0\n")));
    EXPECT_TRUE(rejected(with("\"pending\": {}",
                              "\"pending\": {\"7\": {\"batch_size\": 7, \"explores\": true, "
                              "\"started_s\": 1}}")));
    EXPECT_FALSE(rejected(good));
}

}  // namespace
}  // namespace kdvfs::train
