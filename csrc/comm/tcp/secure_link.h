// A stream of bytes over one connection as encrypted records: length, ciphertext, tag. Belongs to the
// connection, for what was read too much stays here until it is asked for.
#pragma once

#include <sys/types.h>

#include <vector>

#include "comm/mesh/exchange.h"
#include "comm/tcp/cipher.h"
#include "comm/transport.h"

namespace hvd {

class SecureLink {
 public:
  explicit SecureLink(const LinkKeys& keys);

  // Encrypts from the transfer, which moves along, until there is enough to send at once.
  bool seal(Transfer& transfer);
  bool has_unsent() const { return sent_ < outbox_.size(); }
  // Both as the system's calls: bytes, or -1 and errno. receive() fills the transfer and has EBADMSG if a
  // record is not what the other end has sent.
  ssize_t send(int fd);
  ssize_t receive(int fd, Transfer& transfer);

 private:
  bool open_record();  // whether there was one

  Cipher encrypt_, decrypt_;
  std::vector<uint8_t> outbox_;
  size_t sent_ = 0;
  std::vector<uint8_t> inbox_;  // as it came, [begin_, end_)
  size_t begin_ = 0, end_ = 0;
  std::vector<uint8_t> plain_;  // decrypted and checked, from taken_ on
  size_t taken_ = 0;
  bool forged_ = false;
};

}  // namespace hvd
