// A base of classes whose objects own something that must not have two owners.
#pragma once

namespace hvd {

class NotCopied {
 protected:
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

}  // namespace hvd
