// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace kdvfs::inline v0_3::io {

/// Where a GPU sits on the PCI bus. HIP, ROCm SMI and sysfs number GPUs each in a way of its own;
/// this is what they agree on.
struct PciAddress {
    std::uint32_t domain = 0;
    std::uint32_t bus = 0;
    std::uint32_t device = 0;
    std::uint32_t function = 0;

    friend constexpr bool operator==(PciAddress, PciAddress) = default;
    friend constexpr auto operator<=>(PciAddress, PciAddress) = default;
};

/// "0000:c1:00.0".
inline std::string to_string(PciAddress address) {
    return format_text("%04x:%02x:%02x.%x", address.domain, address.bus, address.device,
                       address.function);
}

/// Reads "0000:C1:00.0", with any capitals and digits of the domain; nothing where the text is no
/// whole address.
inline std::optional<PciAddress> parse_pci_address(std::string_view text) {
    PciAddress address;
    struct Part {
        std::uint32_t* value;
        std::size_t digits;  ///< at most
        char separator;
    };
    for (const auto& [value, digits, separator] :
         {Part{&address.domain, 8, ':'}, Part{&address.bus, 2, ':'}, Part{&address.device, 2, '.'},
          Part{&address.function, 1, '\0'}}) {
        const auto [next, error] =
            std::from_chars(text.data(), text.data() + std::min(text.size(), digits), *value, 16);
        if (error != std::errc{}) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(next - text.data()));
        if (separator == '\0') break;
        if (!text.starts_with(separator)) return std::nullopt;
        text.remove_prefix(1);
    }
    if (!text.empty() || address.device > 0x1f || address.function > 7) {
        return std::nullopt;
    }
    return address;
}

}  // namespace kdvfs::inline v0_3::io
