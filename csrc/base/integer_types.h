// From an element type to the C++ type of its elements, for code that treats all integers alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/types.h"

namespace hvd {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Calls body(T{}) with the C++ type of `type` if that is one of integers, and returns whether it is.
template <class Body>
bool with_integer_type(DataType type, const Body& body) {
  const auto matches = [&](DataType candidate, auto zero) {
    if (type == candidate) body(zero);
    return type == candidate;
  };
  return matches(DataType::kUint8, uint8_t{}) || matches(DataType::kInt8, int8_t{}) ||
         matches(DataType::kUint16, uint16_t{}) || matches(DataType::kInt16, int16_t{}) ||
         matches(DataType::kInt32, int32_t{}) || matches(DataType::kInt64, int64_t{});
}

}  // namespace hvd
