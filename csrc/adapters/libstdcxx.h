// Objects of libstdc++, the C++ library of TensorFlow, laid out by hand where TensorFlow shows us its own or
// wants to be shown one. So ours may be another: the wheels are built with libc++. Where it is libstdc++,
// test_libstdcxx compares.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

namespace hvd::libstdcxx {

// A std::string that does not own its text, to be passed by constant reference.
struct ConstString {
  explicit ConstString(const char* string) : text(string), size(std::strlen(string)), capacity(size) {}

  const char* text;
  size_t size;
  size_t capacity, rest = 0;  // together the room for short texts
};

// What is behind a pointer to an empty std::optional<std::string>.
struct OptionalString {
  char* text;
  size_t size, capacity, rest;
  bool present;

  // The owner frees the text by its operator delete, which is free(); our operator new is malloc().
  void set(const std::string& value) {
    text = static_cast<char*>(::operator new(value.size() + 1));
    std::memcpy(text, value.c_str(), value.size() + 1);
    size = capacity = value.size();
    present = true;
  }
};

// A copy of a std::function<void()> that is not empty.
class Function {
 public:
  // The code that such an object calls: as it is the owner's, a look at it tells whether it is one.
  struct Code {
    const void *manage, *call;
  };
  static Code code_of(const void* original) {
    Code code;
    std::memcpy(&code, static_cast<const char*>(original) + sizeof(Callable), sizeof code);
    return code;
  }

  explicit Function(const void* original) {
    const Code code = code_of(original);
    manage_ = reinterpret_cast<Manage>(const_cast<void*>(code.manage));
    call_ = reinterpret_cast<Call>(const_cast<void*>(code.call));
    manage_(&callable_, static_cast<const Callable*>(original), kCopy);
  }
  ~Function() { manage_(&callable_, &callable_, kDestroy); }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  void operator()() const { call_(&callable_); }

 private:
  struct Callable {  // if it is small; otherwise where it is
    void* words[2];
  };
  enum Task : int { kCopy = 2, kDestroy = 3 };
  using Manage = bool (*)(Callable* to, const Callable* from, Task task);
  using Call = void (*)(const Callable*);

  Callable callable_{};
  Manage manage_;
  Call call_;
};

}  // namespace hvd::libstdcxx
