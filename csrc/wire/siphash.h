// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF", and their
// reference implementation): authenticates short messages in a few dozen nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hvd::wire {

using Key = std::array<uint8_t, 16>;
using Code = std::array<uint8_t, 16>;

class SipHash {
 public:
  explicit SipHash(const Key& key) {
    uint64_t k0 = load(key.data()), k1 = load(key.data() + 8);
    v0_ = k0 ^ 0x736f6d6570736575;
    v1_ = k1 ^ 0x646f72616e646f6d ^ 0xee;  // 0xee: the variant with 128 bits
    v2_ = k0 ^ 0x6c7967656e657261;
    v3_ = k1 ^ 0x7465646279746573;
  }

  // Whole words of the message, before finish().
  void word(uint64_t value) {
    v3_ ^= value;
    round();
    round();
    v0_ ^= value;
    bytes_ += 8;
  }

  // The rest of the message, of any length.
  Code finish(const uint8_t* data, size_t size) {
    const size_t left = size % 8;
    for (const uint8_t* end = data + (size - left); data != end; data += 8) word(load(data));
    uint64_t last = 0;
    if (left > 0) std::memcpy(&last, data, left);
    word(last | (static_cast<uint64_t>(bytes_ + left) << 56));
    Code code;
    v2_ ^= 0xee;
    store(code.data());
    v1_ ^= 0xdd;
    store(code.data() + 8);
    return code;
  }

 private:
  static uint64_t load(const uint8_t* data) {
    uint64_t value = 0;
    std::memcpy(&value, data, sizeof value);
    return value;
  }
  static uint64_t rotate(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }
  void round() {
    v0_ += v1_;
    v1_ = rotate(v1_, 13) ^ v0_;
    v0_ = rotate(v0_, 32);
    v2_ += v3_;
    v3_ = rotate(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = rotate(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = rotate(v1_, 17) ^ v2_;
    v2_ = rotate(v2_, 32);
  }
  void store(uint8_t* target) {
    for (int i = 0; i < 4; ++i) round();
    uint64_t value = v0_ ^ v1_ ^ v2_ ^ v3_;
    std::memcpy(target, &value, sizeof value);
  }

  uint64_t v0_, v1_, v2_, v3_;
  size_t bytes_ = 0;
};

}  // namespace hvd::wire
