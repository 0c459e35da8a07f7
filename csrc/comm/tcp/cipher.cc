#include "comm/tcp/cipher.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace hvd {

namespace {

// The part of libcrypto's interface that is used, the same in versions 1.1 and 3.
struct Library {
  void* (*context_new)();
  void (*context_free)(void*);
  const void* (*aes_256_gcm)();
  int (*init)(void* context, const void* cipher, void* engine, const uint8_t* key, const uint8_t* iv,
              int encrypts);
  int (*update)(void* context, uint8_t* out, int* written, const uint8_t* in, int bytes);
  int (*final)(void* context, uint8_t* out, int* written);
  int (*control)(void* context, int what, int bytes, void* value);
  bool complete = false;
};
constexpr int kGetTag = 0x10, kSetTag = 0x11;  // EVP_CTRL_AEAD_*
constexpr size_t kNonceBytes = 12;             // what GCM has without being told

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

const Library& library() {
  static const Library found = [] {
    Library table{};
    for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
      void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) continue;
      table.complete = find(handle, "EVP_CIPHER_CTX_new", &table.context_new) &&
                       find(handle, "EVP_CIPHER_CTX_free", &table.context_free) &&
                       find(handle, "EVP_aes_256_gcm", &table.aes_256_gcm) &&
                       find(handle, "EVP_CipherInit_ex", &table.init) &&
                       find(handle, "EVP_CipherUpdate", &table.update) &&
                       find(handle, "EVP_CipherFinal_ex", &table.final) &&
                       find(handle, "EVP_CIPHER_CTX_ctrl", &table.control);
      if (table.complete) break;
    }
    return table;
  }();
  return found;
}

}  // namespace

Status Cipher::available() {
  if (library().complete) return {};
  return Status::precondition(
      "encryption needs OpenSSL's library libcrypto.so.3 or libcrypto.so.1.1, and neither can be loaded; "
      "install the package libssl3 or openssl-libs");
}

Cipher::Cipher(const Key& key, bool encrypts) : encrypts_(encrypts) {
  if (!library().complete) throw std::runtime_error(available().text());
  context_ = library().context_new();
  if (context_ == nullptr ||
      library().init(context_, library().aes_256_gcm(), nullptr, key.data(), nullptr, encrypts ? 1 : 0) != 1)
    throw std::runtime_error("libcrypto does not give AES-256-GCM");
}

Cipher::~Cipher() { library().context_free(context_); }

bool Cipher::begin() {
  uint8_t nonce[kNonceBytes] = {};
  std::memcpy(nonce, &number_, sizeof number_);
  ++number_;
  return library().init(context_, nullptr, nullptr, nullptr, nonce, encrypts_ ? 1 : 0) == 1;
}

bool Cipher::add(const void* in, size_t bytes, void* out) {
  int written = 0;
  return library().update(context_, static_cast<uint8_t*>(out), &written, static_cast<const uint8_t*>(in),
                          static_cast<int>(bytes)) == 1 &&
         written == static_cast<int>(bytes);
}

bool Cipher::finish(uint8_t* tag) {
  uint8_t nothing[kTagBytes];
  int written = 0;
  return library().final(context_, nothing, &written) == 1 &&
         library().control(context_, kGetTag, kTagBytes, tag) == 1;
}

bool Cipher::check(const uint8_t* tag) {
  uint8_t expected[kTagBytes], nothing[kTagBytes];
  std::memcpy(expected, tag, kTagBytes);
  int written = 0;
  return library().control(context_, kSetTag, kTagBytes, expected) == 1 &&
         library().final(context_, nothing, &written) == 1;
}

}  // namespace hvd
