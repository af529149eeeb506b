// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <locale>
#include <sstream>

namespace kdvfs::inline v0_3::io {

/// Collects text whose numbers are those of the "C" locale, whatever the program's locale is:
/// others group digits ("1,234") or have a decimal comma.
class TextStream : public std::ostringstream {
public:
    TextStream() { imbue(std::locale::classic()); }
};

}  // namespace kdvfs::inline v0_3::io
