// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

namespace kdvfs {
namespace {

static_assert(std::is_base_of_v<std::runtime_error, Error>);
static_assert(std::is_copy_constructible_v<Error>, "an exception is copied when it is rethrown");

TEST(Error, SaysWhatOnWhichDeviceInWhoseWordsAndWhatToDo) {
    const Error error{Errc::refused,
                      {"set the core clock to 1100 MHz", "GPU 0000:03:00.0 (MI210)",
                       "RSMI_STATUS_PERMISSION", "run as root"}};
    EXPECT_STREQ(error.what(),
                 "cannot set the core clock to 1100 MHz on GPU 0000:03:00.0 (MI210): "
                 "RSMI_STATUS_PERMISSION (refused); run as root");
}

TEST(Error, LeavesOutWhatIsNotKnown) {
    EXPECT_STREQ((Error{Errc::busy, {"open the device", "", "", ""}}.what()),
                 "cannot open the device: (busy)");
}

TEST(Error, KeepsItsPartsForPrograms) {
    try {
        throw Error{Errc::invalid_input,
                    {"read the profile", "profile.csv:12", "", "mend the line"}};
    } catch (const std::runtime_error& caught) {
        const auto& error = dynamic_cast<const Error&>(caught);
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_EQ(error.text().object, "profile.csv:12");
        EXPECT_EQ(error.text().remedy, "mend the line");
    }
}

TEST(Errc, EveryCodeHasItsOwnWord) {
    std::set<std::string_view> words;
    for (const Errc code : {Errc::invalid_input, Errc::not_supported, Errc::refused, Errc::busy,
                            Errc::vanished, Errc::external_change, Errc::timed_out, Errc::io}) {
        EXPECT_NE(to_string(code), "unknown");
        EXPECT_TRUE(words.insert(to_string(code)).second) << to_string(code);
    }
}

}  // namespace
}  // namespace kdvfs
