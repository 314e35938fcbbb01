#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sirtaki {

using SipKey = std::array<std::byte, 16>;
using SipTag = std::array<std::byte, 16>;

/// SipHash-2-4 with 128 bits of the counter's eight bytes and the message behind them: who does not
/// know the key cannot find the tag of another message.
SipTag siphash(const SipKey& key, uint64_t counter, std::string_view message);

}  // namespace sirtaki
