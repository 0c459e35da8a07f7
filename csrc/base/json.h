// Text as JSON has it.
#pragma once

#include <string>

namespace hvd {

// In quotation marks. What is not UTF-8, which JSON must be, becomes question marks.
std::string json_text(const std::string& text);

}  // namespace hvd
