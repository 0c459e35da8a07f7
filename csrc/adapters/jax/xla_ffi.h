// The part of XLA's foreign-function interface that we use, as plain structs: it is a C interface whose
// layout is fixed within major version 0, so we need no headers of any jaxlib. Each struct begins with its
// size, which tells what a runtime really has; new fields come at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::jax {

constexpr int32_t kMajorVersion = 0;

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};
constexpr int32_t kMetadataExtension = 1;

struct ApiVersion {
  size_t struct_size;
  Extension* extensions;
  int32_t major, minor;
};

struct Error;  // XLA's own

struct ErrorArguments {
  size_t struct_size;
  Extension* extensions;
  const char* text;
  int32_t code;
};
constexpr int32_t kInternal = 13;  // of absl::StatusCode

struct Api {
  size_t struct_size;
  Extension* extensions;
  ApiVersion version;
  void* internal;
  Error* (*create_error)(ErrorArguments* arguments);
  // ... many more
};

// Element types: xla::PrimitiveType
enum : int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBf16 = 16,
  kC128 = 18,
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int32_t type;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Buffers {  // operands or results; all of ours are Buffer
  size_t struct_size;
  Extension* extensions;
  int64_t count;
  int32_t* kinds;
  Buffer** items;
};

struct Text {
  const char* data;
  size_t length;
};

struct Scalar {
  int32_t type;
  void* value;
};

constexpr int32_t kScalarAttribute = 3, kTextAttribute = 4;

struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t count;
  int32_t* kinds;
  Text** names;
  void** items;  // Scalar* or Text*
};

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  Buffers operands, results;
  Attributes attributes;
  // ... a future
};

struct Metadata {
  size_t struct_size;
  ApiVersion version;
  uint32_t traits;
  // ... more
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace hvd::jax
