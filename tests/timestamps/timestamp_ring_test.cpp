// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/marker_launch.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

namespace kdvfs::device {
namespace {

constexpr std::size_t size = 8;

/// What a marker does on the device.
class Ring {
public:
    void push(std::uint32_t track) { write(++last_ticket_, track); }
    void write(std::uint64_t ticket, std::uint32_t track) {
        entries_[(ticket - 1) % size] = made(ticket, track);
    }
    static TimestampEntry made(std::uint64_t ticket, std::uint32_t track) {
        TimestampEntry entry{.ticks = 1000 + ticket, .cycles = 7 * ticket, .enqueued = -5};
        entry.track = track;
        entry.check = timestamp_check(entry, ticket);
        return entry;
    }
    TimestampEntry* entries() { return entries_.data(); }

private:
    std::array<TimestampEntry, size> entries_{};
    std::uint64_t last_ticket_ = 0;
};

TEST(TimestampRing, TimestampsComeOutOnceAndInOrder) {
    Ring ring;
    TimestampReader reader{ring.entries(), size};
    EXPECT_FALSE(reader.take());
    for (std::uint32_t round = 0; round < 5; ++round) {
        for (std::uint32_t i = 0; i < size; ++i) ring.push(round * 100 + i);
        for (std::uint32_t i = 0; i < size; ++i) {
            const auto entry = reader.take();
            ASSERT_TRUE(entry);
            EXPECT_EQ(entry->track, round * 100 + i);
        }
        EXPECT_FALSE(reader.take());
    }
    EXPECT_EQ(reader.lost(), 0U);
}

TEST(TimestampRing, ALaterTimestampWaitsForAnEarlierOneThatHasNotArrived) {
    Ring ring;
    TimestampReader reader{ring.entries(), size};
    ring.write(2, 22);
    EXPECT_FALSE(reader.take());
    ring.write(1, 11);
    EXPECT_EQ(reader.take()->track, 11U);
    EXPECT_EQ(reader.take()->track, 22U);
}

TEST(TimestampRing, WordsThatHaveNotAllArrivedAreNoStamp) {
    // All but one of the entry's words have arrived, whichever it is.
    using Words = std::array<std::uint32_t, sizeof(TimestampEntry) / sizeof(std::uint32_t)>;
    const auto whole = std::bit_cast<Words>(Ring::made(1, 3));
    for (std::size_t missing = 0; missing < whole.size(); ++missing) {
        if (whole[missing] == 0) continue;  // the same before it arrives
        Words torn = whole;
        torn[missing] = 0;
        const std::array<TimestampEntry, 1> entries{std::bit_cast<TimestampEntry>(torn)};
        EXPECT_FALSE((TimestampReader{entries.data(), 1}.take())) << "word " << missing;
    }
}

TEST(TimestampRing, OverwrittenTimestampsAreCountedAndTheRestIsRead) {
    Ring ring;
    TimestampReader reader{ring.entries(), size};
    for (std::uint32_t i = 0; i < 3 * size + 2; ++i) ring.push(i);
    std::vector<std::uint32_t> tracks;
    for (int tries = 0; tries < 40; ++tries) {
        if (const auto entry = reader.take()) tracks.push_back(entry->track);
    }
    ASSERT_EQ(tracks.size(), size);
    EXPECT_EQ(tracks.front(), 2 * size + 2);
    EXPECT_EQ(tracks.back(), 3 * size + 1);
    EXPECT_EQ(reader.lost(), 2 * size + 2);
}

}  // namespace
}  // namespace kdvfs::device
