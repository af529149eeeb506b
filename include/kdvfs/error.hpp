// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3 {

/// What kind of trouble an `Error` reports: enough to branch on, the text says the rest.
enum class Errc {
    invalid_input,    ///< a file, an argument or a call that makes no sense
    not_supported,    ///< the device or driver cannot do this at all
    refused,          ///< the device or driver can, but will not for this process
    busy,             ///< held by another owner, or worth a retry
    vanished,         ///< the device is gone
    external_change,  ///< somebody else changed what kdvfs had set
    timed_out,        ///< no answer within the deadline
    io,               ///< reading or writing failed
};

constexpr std::string_view to_string(Errc code) {
    switch (code) {
        case Errc::invalid_input: return "invalid input";
        case Errc::not_supported: return "not supported";
        case Errc::refused: return "refused";
        case Errc::busy: return "busy";
        case Errc::vanished: return "vanished";
        case Errc::external_change: return "changed by someone else";
        case Errc::timed_out: return "timed out";
        case Errc::io: return "input/output";
    }
    return "unknown";
}

/// The four things a reader of an error needs. `vendor_words` is what the driver, library or
/// operating system said, verbatim, and may be empty.
struct ErrorText {
    std::string action{};        ///< what was tried: "set the core clock to 1100 MHz"
    std::string object{};        ///< to what: "GPU 0000:03:00.0 (MI210)" or "profile.csv:12"
    std::string vendor_words{};  ///< "RSMI_STATUS_PERMISSION"
    std::string remedy{};        ///< what to do about it: "run as root, or ..."
};

/// Every runtime failure of kdvfs. `what()` reads
/// "cannot ACTION: OBJECT: VENDOR WORDS (CODE); REMEDY", less what is empty.
class [[gnu::visibility("default")]] Error : public std::runtime_error {
public:
    Error(Errc code, ErrorText text)
        : std::runtime_error{compose(code, text)}, code_{code}, text_{std::move(text)} {}

    [[nodiscard]] Errc code() const noexcept { return code_; }
    [[nodiscard]] const ErrorText& text() const noexcept { return text_; }

private:
    static std::string compose(Errc code, const ErrorText& text) {
        std::string message = "cannot " + text.action;
        for (const std::string* part : {&text.object, &text.vendor_words}) {
            if (!part->empty()) message += ": " + *part;
        }
        message.append(" (").append(to_string(code)).append(")");
        if (!text.remedy.empty()) message += "; " + text.remedy;
        return message;
    }

    Errc code_;
    ErrorText text_;
};

}  // namespace kdvfs::inline v0_3
