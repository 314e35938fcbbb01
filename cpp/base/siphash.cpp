#include "base/siphash.h"

#include <bit>
#include <cstring>

namespace sirtaki {
namespace {

// The state is read and written in the machine's byte order.
static_assert(std::endian::native == std::endian::little);

uint64_t word_at(const void* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

class SipHash {
 public:
  explicit SipHash(const SipKey& key) {
    const uint64_t k0 = word_at(key.data());
    const uint64_t k1 = word_at(key.data() + 8);
    v0_ = k0 ^ 0x736f6d6570736575;
    v1_ = k1 ^ 0x646f72616e646f6d ^ 0xee;
    v2_ = k0 ^ 0x6c7967656e657261;
    v3_ = k1 ^ 0x7465646279746573;
  }

  void absorb(uint64_t word) {
    v3_ ^= word;
    mix(2);
    v0_ ^= word;
    bytes_ += sizeof word;
  }

  /// Absorbs the end of the message.
  SipTag finish(std::string_view message) {
    while (message.size() >= sizeof(uint64_t)) {
      absorb(word_at(message.data()));
      message.remove_prefix(sizeof(uint64_t));
    }
    uint64_t last = (bytes_ + message.size()) << 56;
    for (size_t i = 0; i < message.size(); ++i) {
      last |= static_cast<uint64_t>(static_cast<uint8_t>(message[i])) << (8 * i);
    }
    absorb(last);
    v2_ ^= 0xee;
    mix(4);
    const uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    mix(4);
    const uint64_t high = v0_ ^ v1_ ^ v2_ ^ v3_;
    SipTag tag;
    std::memcpy(tag.data(), &low, sizeof low);
    std::memcpy(tag.data() + sizeof low, &high, sizeof high);
    return tag;
  }

 private:
  void mix(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      v0_ += v1_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v3_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ += v3_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ += v1_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v2_ = std::rotl(v2_, 32);
    }
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t bytes_ = 0;
};

}  // namespace

SipTag siphash(const SipKey& key, uint64_t counter, std::string_view message) {
  SipHash hash(key);
  hash.absorb(counter);
  return hash.finish(message);
}

}  // namespace sirtaki
