// AES-256-GCM by OpenSSL's libcrypto, which is looked for when it is needed: encryption is not for us to
// write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/not_copied.h"
#include "base/status.h"

namespace hvd {

// One direction of a connection. Every message has its number as nonce, so both ends must count alike.
class Cipher : NotCopied {
 public:
  static constexpr size_t kTagBytes = 16;
  using Key = std::array<uint8_t, 32>;

  // Why there is no encryption here, or ok.
  static Status available();

  // Throws std::runtime_error if it is not available.
  Cipher(const Key& key, bool encrypts);
  ~Cipher();

  // A message is begun, added to in parts, and finished. `out` has the size of `in`. All false on failure.
  bool begin();
  bool add(const void* in, size_t bytes, void* out);
  bool finish(uint8_t* tag);       // encrypting: writes the tag
  bool check(const uint8_t* tag);  // decrypting: false if the message is not what was encrypted

 private:
  void* context_;
  bool encrypts_;
  uint64_t number_ = 0;
};

}  // namespace hvd
