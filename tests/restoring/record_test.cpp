// SPDX-License-Identifier: MIT
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/watchdog.hpp>

#include "temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

namespace kdvfs::detail {
namespace {

using namespace kdvfs::literals;

const std::string device = "0000:c1:00.0";

RestoreEntry an_entry() {
    return {.boot = boot_id(),
            .kind = "amdgpu",
            .device = device,
            .process = 4711,
            .user = 1000,
            .history = {.initial = {{1300_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"},
                        .written = ClockState{
                            {1100_MHz, 1200_MHz}, {500_MHz, auto_clock}, "locked by itself"}}};
}

/// A folder with a record in it.
struct Recorded {
    Recorded() { ::chmod(temporary.path().c_str(), 0755); }
    TemporaryFolder temporary;
    RestoreFolder folder = *RestoreFolder::find(temporary.path());
    RestoreRecord record{folder, an_entry()};

    [[nodiscard]] std::string text() const { return temporary.read("record"); }
};

std::string why_not(const RestoreFolder& folder) {
    try {
        static_cast<void>(find_record(folder, device));
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
        return error.text().vendor_words;
    }
    return "nothing was refused";
}

TEST(Cksum, IsThatOfTheProgram) {
    for (const std::string text : {"", "a", "kdvfs 1 2 3", "0123456789012345678901234567890"}) {
        const std::string command = "printf %s '" + text + "' | cksum";
        FILE* const pipe = ::popen(command.c_str(), "r");
        unsigned long sum = 0;
        ASSERT_EQ(std::fscanf(pipe, "%lu", &sum), 1);
        ::pclose(pipe);
        EXPECT_EQ(record_text::cksum(text), sum) << text;
    }
}

TEST(Record, TellsWhatWasWrittenInIt) {
    Recorded recorded;
    EXPECT_EQ(recorded.text().size(), record_text::size);
    const auto read = find_record(recorded.folder, device);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, "amdgpu");
    EXPECT_EQ(read->process, 4711);
    EXPECT_EQ(read->user, 1000U);
    EXPECT_EQ(read->history.initial, an_entry().history.initial);
    EXPECT_EQ(read->history.written, an_entry().history.written);
    EXPECT_FALSE(read->history.uncertain);

    recorded.record.write({.initial = {}, .uncertain = true});
    EXPECT_TRUE(find_record(recorded.folder, device)->history.uncertain);
    recorded.record.write({.initial = {}});
    EXPECT_FALSE(find_record(recorded.folder, device)->has_pending_restore());
}

TEST(Record, CutShortInTheMiddleOfAWriteTellsWhatItToldBefore) {
    Recorded recorded;
    const std::string before = recorded.text();
    recorded.record.write({.initial = {}, .uncertain = true});
    const std::string after = recorded.text();
    for (std::size_t copied = 0; copied <= after.size(); ++copied) {
        const auto torn = record_text::parse(after.substr(0, copied) + before.substr(copied));
        ASSERT_TRUE(torn) << copied;
        if (!torn->history.uncertain) {
            EXPECT_EQ(torn->history.written, an_entry().history.written);
        }
    }
    EXPECT_TRUE(record_text::parse(after)->history.uncertain);
}

TEST(Record, WithBothSlotsSpoiltIsNone) {
    Recorded recorded;
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"kdvfs 1", "kdvfs 2"},
                                                          {"1300", "1301"},
                                                          {"manual", "MANUAL"},
                                                          {"state", "nothing"}}) {
        std::string spoilt = recorded.text();
        for (auto at = spoilt.find(from); at != std::string::npos; at = spoilt.find(from, at + 1)) {
            spoilt.replace(at, from.size(), to);
        }
        EXPECT_FALSE(record_text::parse(spoilt)) << spoilt;
    }
    // A sum that fits does not make it sensible.
    RestoreEntry entry = an_entry();
    entry.history.initial.mode = "../manual";
    EXPECT_FALSE(record_text::parse_slot(record_text::of(entry, 1)));
    entry = an_entry();
    entry.history.written->cap.core = {999'999};
    EXPECT_FALSE(record_text::parse_slot(record_text::of(entry, 1)));
}

TEST(Record, OfARestoreThatWasCutShortIsUncertain) {
    Recorded recorded;
    const std::string note = record_text::of(RestoreNote{.process = 12, .words = "restoring"});
    const auto entry = record_text::parse(note + recorded.text().substr(note.size()));
    ASSERT_TRUE(entry);
    EXPECT_TRUE(entry->history.uncertain);
}

TEST(Record, OfAnOwnerWhoHasWrittenSinceIsCertain) {
    Recorded recorded;
    for (const std::string words : {"restoring", "unfinished, the device refuses"}) {
        const std::uint64_t slot = find_record(recorded.folder, device)->slot;
        write_note(recorded.record.descriptor(), {.process = 12, .words = words, .slot = slot});
        EXPECT_TRUE(find_record(recorded.folder, device)->history.uncertain) << words;
        EXPECT_EQ(read_note(recorded.record.descriptor()).words, words);
        recorded.record.write(an_entry().history);
        EXPECT_FALSE(find_record(recorded.folder, device)->history.uncertain) << words;
    }
}

TEST(Record, IsRefusedInWordsWhereItIsNotToBeTrusted) {
    const auto spoil = [](const std::function<void(const Recorded&)>& how) {
        const Recorded recorded;
        how(recorded);
        return why_not(recorded.folder);
    };
    const auto at = [](const Recorded& recorded) { return recorded.temporary.at("record"); };
    EXPECT_EQ(spoil([&](auto& r) { EXPECT_EQ(::truncate(at(r).c_str(), 700), 0); }),
              "it is cut short");
    EXPECT_EQ(spoil([&](auto& r) { EXPECT_EQ(::chmod(at(r).c_str(), 0666), 0); }),
              "others may write to it");
    EXPECT_EQ(spoil([&](auto& r) {
                  ::rename(at(r).c_str(), r.temporary.at("elsewhere").c_str());
                  std::filesystem::create_symlink(r.temporary.at("elsewhere"), at(r));
              }),
              "it is a link");
    EXPECT_EQ(
        spoil([&](auto& r) { std::filesystem::create_hard_link(at(r), r.temporary.at("second")); }),
        "it has a second name");
    EXPECT_EQ(spoil([&](auto& r) {
                  ::unlink(at(r).c_str());
                  ::mkfifo(at(r).c_str(), 0644);
              }),
              "it is no file");
    EXPECT_EQ(spoil([&](auto& r) { r.temporary.write("record", std::string(2000, ' ')); }),
              "neither of its two copies is whole");
    EXPECT_EQ(spoil([&](auto& r) {
                  RestoreEntry entry = an_entry();
                  entry.device = "0000:c4:00.0";
                  const RestoreRecord record{r.folder, entry};
              }),
              "it is of GPU 0000:c4:00.0");
    if (::geteuid() != 0) return;
    EXPECT_EQ(spoil([&](auto& r) { EXPECT_EQ(::chown(at(r).c_str(), 4242, 0), 0); }),
              "it belongs to user 4242 and its folder to user 0");
}

TEST(RestoreFolder, IsRefusedWhereOthersCouldHaveWritten) {
    const TemporaryFolder temporary;
    ::mkdir(temporary.at("open").c_str(), 0755);
    ::chmod(temporary.at("open").c_str(), 0777);
    EXPECT_THROW(static_cast<void>(RestoreFolder::find(temporary.at("open"))), Error);
    std::filesystem::create_symlink(temporary.path(), temporary.at("link"));
    EXPECT_THROW(static_cast<void>(RestoreFolder::find(temporary.at("link"))), Error);
    EXPECT_FALSE(RestoreFolder::find(temporary.at("none")));
    EXPECT_THROW(static_cast<void>(RestorePlace::in_own(temporary.at("open"), device)), Error);
}

TEST(Record, OfAFullFileSystemIsARefusalAndNoSignal) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount";
    const pid_t child = ::fork();
    if (child == 0) {
        if (::unshare(CLONE_NEWNS) != 0) ::_exit(77);
        const TemporaryFolder temporary;
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        if (::mount("none", temporary.path().c_str(), "tmpfs", 0, "size=16k,mode=755") != 0) {
            ::_exit(77);
        }
        const auto folder = RestoreFolder::find(temporary.path());
        int result = 1;
        try {
            const RestoreRecord before{*folder, an_entry()};  // there is room as yet
            temporary.write("filler", std::string(64'000, 'x'));
            const RestoreRecord record{*folder, an_entry()};
        } catch (const Error& error) {
            const bool said = std::string{error.what()}.find("No space left") != std::string::npos;
            const auto kept = find_record(*folder, device);
            result = error.code() == Errc::io && said && kept ? 0 : 2;
        }
        ::umount2(temporary.path().c_str(), MNT_DETACH);
        ::_exit(result);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not mount";
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kdvfs::detail
