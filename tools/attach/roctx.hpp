// SPDX-License-Identifier: MIT
#pragma once

namespace attach {

/// While one lives, this thread is in a call of roctx that kdvfs stands before, and has taken.
class [[nodiscard]] InRoctx {
public:
    InRoctx() { here() = true; }
    ~InRoctx() { here() = false; }
    InRoctx(const InRoctx&) = delete;
    InRoctx& operator=(const InRoctx&) = delete;

    static bool& here() {
        thread_local bool inside = false;
        return inside;
    }
};

}  // namespace attach
