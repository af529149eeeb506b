// SPDX-License-Identifier: MIT
#include <kdvfs/detail/restore/device_lock.hpp>
#include <kdvfs/detail/restore/journal.hpp>

#include "temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;

const std::string device = "0000:c1:00.0";

kdvfs::detail::JournalEntry an_entry() {
    return {kdvfs::detail::boot_id(),
            device,
            {.initial = {{1300_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"},
             .written = ClockState{{1100_MHz, 1200_MHz}, {500_MHz, auto_clock}, "manual"}}};
}

TEST(PrivateFolder, RefusesWhatOthersCouldHaveWritten) {
    const TemporaryFolder temporary;
    ::mkdir(temporary.at("open").c_str(), 0755);
    ::chmod(temporary.at("open").c_str(), 0777);
    EXPECT_THROW(kdvfs::detail::PrivateFolder{temporary.at("open")}, Error);
    std::filesystem::create_symlink(temporary.path(), temporary.at("link"));
    EXPECT_THROW(kdvfs::detail::PrivateFolder{temporary.at("link")}, Error);

    const kdvfs::detail::PrivateFolder folder{temporary.at("private")};
    temporary.write("elsewhere", "text");
    std::filesystem::create_symlink(temporary.at("elsewhere"), temporary.at("private/link"));
    EXPECT_THROW(static_cast<void>(folder.open("link", O_RDWR)), Error);
    std::filesystem::create_hard_link(temporary.at("elsewhere"), temporary.at("private/second"));
    EXPECT_THROW(static_cast<void>(folder.open("second", O_RDWR)), Error);
    temporary.write("private/writable", "text");
    ::chmod(temporary.at("private/writable").c_str(), 0666);
    EXPECT_THROW(static_cast<void>(folder.open("writable", O_RDWR)), Error);
}

TEST(Journal, TellsWhatWasWrittenInIt) {
    const TemporaryFolder temporary;
    const kdvfs::detail::PrivateFolder folder{temporary.at("private")};
    const kdvfs::detail::Journal journal{folder, device};
    EXPECT_FALSE(journal.read());
    kdvfs::detail::JournalEntry entry = an_entry();
    journal.write(entry);
    const auto read = journal.read();
    ASSERT_TRUE(read);
    EXPECT_EQ(read->device, device);
    EXPECT_EQ(read->history.initial, entry.history.initial);
    EXPECT_EQ(read->history.written, entry.history.written);
    EXPECT_FALSE(read->history.uncertain);
    entry.history = {.initial = {}, .uncertain = true};
    journal.write(entry);
    EXPECT_TRUE(journal.read()->history.uncertain);
    EXPECT_FALSE(journal.read()->history.written);
}

TEST(Journal, OfAnotherBootIsNoJournal) {
    const TemporaryFolder temporary;
    const kdvfs::detail::PrivateFolder folder{temporary.at("private")};
    const kdvfs::detail::Journal journal{folder, device};
    kdvfs::detail::JournalEntry entry = an_entry();
    entry.boot = "another";
    journal.write(entry);
    EXPECT_FALSE(journal.read());
}

TEST(Journal, WithAnyLineSpoiltIsNoJournal) {
    const std::string good = kdvfs::detail::journal_text::of(an_entry());
    ASSERT_TRUE(kdvfs::detail::journal_text::parse(good));
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"kdvfs-journal 1", "kdvfs-journal 2"},
                                                          {"boot", "root"},
                                                          {"device", "file"},
                                                          {"manual 1300", "../manual 1300"},
                                                          {"manual 1300", "MANUAL 1300"},
                                                          {"1300", "x"},
                                                          {"1300", "999999999"},
                                                          {"held state", "held status"},
                                                          {"found", "lost"}}) {
        std::string spoilt = good;
        spoilt.replace(spoilt.find(from), from.size(), to);
        EXPECT_FALSE(kdvfs::detail::journal_text::parse(spoilt)) << spoilt;
    }
    for (std::size_t length = 0; length < good.size() - 2; ++length) {
        const auto part = kdvfs::detail::journal_text::parse(good.substr(0, length));
        EXPECT_FALSE(part && part->history.written &&
                     part->history.written->floor.memory.count != 0);
    }
}

TEST(DeviceLock, ASecondOwnerIsToldWhoTheFirstIs) {
    const TemporaryFolder temporary;
    const kdvfs::detail::PrivateFolder folder{temporary.at("private")};
    const kdvfs::detail::DeviceLock first{folder, device};
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            const kdvfs::detail::DeviceLock second{folder, device};
        } catch (const Error& error) {
            const bool named =
                std::string{error.what()}.find(std::to_string(::getppid())) != std::string::npos;
            ::_exit(error.code() == Errc::busy && named ? 0 : 2);
        }
        ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(DeviceLock, IsFreeAgainWhenItsOwnerIsGone) {
    const TemporaryFolder temporary;
    const kdvfs::detail::PrivateFolder folder{temporary.at("private")};
    { const kdvfs::detail::DeviceLock first{folder, device}; }
    EXPECT_NO_THROW((kdvfs::detail::DeviceLock{folder, device}));
}

}  // namespace
}  // namespace kdvfs
