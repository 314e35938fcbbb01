#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sirtaki {

using SipKey = std::array<std::byte, 16>;
using SipTag = std::array<std::byte, 16>;

/// 128-bit SipHash-2-4 of the counter's eight bytes followed by the message: without the key,
/// nobody can compute the tag of another message.
SipTag siphash(const SipKey& key, uint64_t counter, std::string_view message);

}  // namespace sirtaki
