// The coordinator's memory of agreements: least recently used ones are forgotten first. What it remembers
// travels as a number in both directions.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wire/messages.h"

namespace hvd {

using AgreementPtr = std::shared_ptr<const wire::Agreement>;

class AgreementCache {
 public:
  explicit AgreementCache(int capacity) : capacity_(capacity) {}

  struct Entry {
    AgreementPtr agreement;
    std::string key;  // of the operation
    std::list<uint32_t>::iterator age;
    bool announced = false;  // the ranks have heard what the id stands for
  };

  // nullptr if it is forgotten.
  const Entry* find(uint32_t id) const;
  void use(const Entry& entry) { ages_.splice(ages_.end(), ages_, entry.age); }
  // Gives the agreement its id, in place of an older one of the same operation.
  void remember(const std::shared_ptr<wire::Agreement>& agreement, const std::string& key);
  void forget_process_set(int32_t process_set);
  // What to send to the ranks. Decided at the last moment: what was forgotten meanwhile travels whole.
  wire::Item item_for(const wire::Agreement& agreement);
  // Ids forgotten since the last call.
  std::vector<uint32_t> take_evicted() { return std::exchange(evicted_, {}); }

 private:
  void forget(uint32_t id);

  int capacity_;
  std::unordered_map<uint32_t, Entry> entries_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::list<uint32_t> ages_;  // least recently used first
  uint32_t next_id_ = 1;
  std::vector<uint32_t> evicted_;
};

}  // namespace hvd
