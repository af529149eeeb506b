// SPDX-License-Identifier: MIT
//
// What large profiles take: large_profile_test KDVFS FOLDER. Kernels with a roofline time and a
// convex power curve, 128 clock points each; the files are made here and removed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string kdvfs;
fs::path folder;

struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

void write_profile(const fs::path& path, int kernels, int samples) {
    const std::unique_ptr<std::FILE, Close> file{std::fopen(path.c_str(), "w")};
    ASSERT_TRUE(file);
    std::fputs("gpu,kernel,group,core_mhz,mem_mhz,time_s,energy_j,is_baseline,count,sample\n",
               file.get());
    std::mt19937_64 random{1};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::normal_distribution<double> noise{0, samples > 1 ? 0.005 : 0};
    for (int kernel = 0; kernel < kernels; ++kernel) {
        const double scale = std::pow(10, -5 + 3.5 * uniform(random));
        const double compute = scale * uniform(random);
        for (int core = 1; core <= 32; ++core) {
            for (int memory = 1; memory <= 4; ++memory) {
                const double f = (core + 2.0) / 34;
                const double g = (memory + 0.5) / 4.5;
                const double time = std::max(compute / f, (scale - compute) / g);
                const double watts = 100 + 40 * g + 300 * f * f * f;
                for (int sample = 0; sample < samples; ++sample)
                    std::fprintf(file.get(), "GPU,kernel_%d,%s,%d,%d,%.6g,%.6g,%d,24,%d\n", kernel,
                                 kernel % 3 ? "fw" : "bw", 50 * core, 1000 * memory,
                                 time * (1 + noise(random)), watts * time * (1 + noise(random)),
                                 core == 32 && memory == 4, sample);
            }
        }
    }
}

struct ThreadSlot {
    double seconds;  ///< of the processor: others may keep it busy
    double waited;   ///< from start to end
    double megabytes;
};

/// Runs `kdvfs plan FILE --max-slowdown 1%`, which prints nothing here.
ThreadSlot plan(const fs::path& path) {
    const auto began = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
        if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
        ::execl(kdvfs.c_str(), "kdvfs", "plan", path.c_str(), "--max-slowdown", "1%", nullptr);
        ::_exit(127);
    }
    int status = 0;
    rusage usage{};
    ::wait4(child, &status, 0, &usage);
    EXPECT_EQ(status, 0);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return {seconds(usage.ru_utime) + seconds(usage.ru_stime), taken.count(),
            static_cast<double>(usage.ru_maxrss) * 1024 / 1e6};
}

void judge(int kernels, int samples, double most_seconds, double most_megabytes) {
    const fs::path path = folder / "profile.csv";
    write_profile(path, kernels, samples);
    const double size = static_cast<double>(fs::file_size(path)) / 1e6;
    const ThreadSlot taken = plan(path);
    fs::remove(path);
    std::printf("%d x 128 x %d, %.0f MB: planned in %.2f s (%.2f s of the processor), %.0f MB\n",
                kernels, samples, size, taken.waited, taken.seconds, taken.megabytes);
    EXPECT_LT(taken.megabytes, most_megabytes);
    double load = 0;
    ::getloadavg(&load, 1);
    if (load <= 0.75 * std::thread::hardware_concurrency())
        EXPECT_LT(taken.seconds, most_seconds);
    else  // neighbours take caches and the other half of a core, too
        std::printf("a load of %.1f: the time is not judged\n", load);
}

TEST(LargeProfile, AThousandKernelsWithThreeSamplesAreShrunkWithinTwoSeconds) {
    judge(1000, 3, 2, 1000);
}

TEST(LargeProfile, AHundredThousandKernelsAreReadAndPlannedWithinEightSecondsAndAGigabyte) {
    judge(100'000, 1, 8, 1000);
}

}  // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argc != 3) return 2;
    kdvfs = argv[1];
    folder = argv[2];
    fs::create_directories(folder);
    return RUN_ALL_TESTS();
}
