// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// A board by its PCI address, as `kdvfs info`, `nvidia-smi` or `lspci` print it: 0000:1b:00.0,
/// 00000000:1B:00.0, or 1b:00.0 where one domain alone has that.
class BoardAddress {
public:
    explicit BoardAddress(const std::string& text) : address_{kdvfs::io::parse_pci_address(text)} {
        if (address_) return;
        address_ = kdvfs::io::parse_pci_address("0:" + text);
        any_domain_ = true;
    }
    /// @param board the address of a board that is here
    [[nodiscard]] bool names(const std::string& board) const {
        auto other = kdvfs::io::parse_pci_address(board);
        if (other && any_domain_) other->domain = 0;
        return address_ && other == address_;
    }

private:
    std::optional<kdvfs::io::PciAddress> address_;
    bool any_domain_ = false;
};

/// The board that an option names.
/// @param which a PCI address, or `auto`: the only board of this machine
/// @returns its place in the list
/// @throws Error (not_supported) where it names none or several; it names what there is
inline std::size_t choose_board(const std::vector<std::string>& boards, const std::string& which,
                                const std::string& action, const std::string& none_here,
                                const std::string& remedy) {
    const BoardAddress address{which};
    std::vector<std::size_t> found;
    std::string present;
    for (std::size_t i = 0; i < boards.size(); ++i) {
        if (which == "auto" || address.names(boards[i])) found.push_back(i);
        present += (present.empty() ? "" : ", ") + boards[i];
    }
    if (found.size() == 1) return found.front();
    throw kdvfs::Error{kdvfs::Errc::not_supported,
                       {action, which == "auto" ? "this machine" : which,
                        present.empty() ? none_here : "there are " + present, remedy}};
}

}  // namespace cli
