// Little-endian encoding of the control messages. The reader never reads past its end and never allocates
// more than the bytes in front of it justify: after the first violation it yields zeros and ok() is false.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace hvd::wire {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the wire format is the memory format of little-endian machines");

class Writer {
 public:
  template <typename T>
  void number(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }
  void text(const std::string& value) {
    number<uint32_t>(static_cast<uint32_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  template <typename T>
  void numbers(const std::vector<T>& values) {
    number<uint32_t>(static_cast<uint32_t>(values.size()));
    const auto* raw = reinterpret_cast<const uint8_t*>(values.data());
    bytes_.insert(bytes_.end(), raw, raw + values.size() * sizeof(T));
  }
  // A byte, of which the reader refuses values above `most`.
  template <typename T>
  void limited(T value, uint8_t /*most*/) {
    number(static_cast<uint8_t>(value));
  }
  // A list whose entries take at least `least` bytes each.
  template <typename T, typename Each>
  void list(const std::vector<T>& values, size_t /*least*/, Each each) {
    number<uint32_t>(static_cast<uint32_t>(values.size()));
    for (const T& value : values) each(value);
  }
  // What is there now.
  template <typename T>
  const T& present(const std::optional<T>& value) {
    return *value;
  }
  void require(bool) {}  // the reader fails otherwise
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  template <typename T>
  T number() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, at_ - sizeof value, sizeof value);
    return value;
  }
  std::string text() {
    size_t length = count(1);
    if (!take(length)) return {};
    return {reinterpret_cast<const char*>(at_ - length), length};
  }
  template <typename T>
  std::vector<T> numbers() {
    size_t length = count(sizeof(T));
    std::vector<T> values(length);
    if (length > 0 && take(length * sizeof(T)))
      std::memcpy(values.data(), at_ - length * sizeof(T), length * sizeof(T));
    return values;
  }
  // What Writer has, into a value.
  template <typename T>
  void number(T& value) {
    value = number<T>();
  }
  void text(std::string& value) { value = text(); }
  template <typename T>
  void numbers(std::vector<T>& values) {
    values = numbers<T>();
  }
  template <typename T>
  void limited(T& value, uint8_t most) {
    auto byte = number<uint8_t>();
    require(byte <= most);
    value = static_cast<T>(byte);
  }
  template <typename T, typename Each>
  void list(std::vector<T>& values, size_t least, Each each) {
    values.clear();
    size_t length = count(least);
    for (size_t i = 0; i < length && ok(); ++i) each(values.emplace_back());
  }
  template <typename T>
  T& present(std::optional<T>& value) {
    return value.emplace();
  }
  void require(bool fine) {
    if (!fine) fail();
  }
  // The length of a list whose entries take at least `least` bytes each.
  size_t count(size_t least) {
    size_t length = number<uint32_t>();
    if (length > static_cast<size_t>(end_ - at_) / least) {
      fail();
      return 0;
    }
    return length;
  }
  void fail() {
    ok_ = false;
    at_ = end_;
  }
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && at_ == end_; }

 private:
  bool take(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) {
      fail();
      return false;
    }
    at_ += bytes;
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

}  // namespace hvd::wire
