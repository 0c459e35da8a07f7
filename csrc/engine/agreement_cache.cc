#include "engine/agreement_cache.h"

namespace hvd {

const AgreementCache::Entry* AgreementCache::find(uint32_t id) const {
  auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

void AgreementCache::remember(const std::shared_ptr<wire::Agreement>& agreement, const std::string& key) {
  if (capacity_ <= 0) return;
  if (auto old = ids_.find(key); old != ids_.end()) forget(old->second);
  while (entries_.size() >= static_cast<size_t>(capacity_)) forget(ages_.front());
  agreement->id = next_id_++;
  if (next_id_ == 0) next_id_ = 1;
  ages_.push_back(agreement->id);
  entries_[agreement->id] = {agreement, key, std::prev(ages_.end())};
  ids_[key] = agreement->id;
}

void AgreementCache::forget_process_set(int32_t process_set) {
  std::vector<uint32_t> stale;
  for (const auto& entry : entries_)
    if (entry.second.agreement->common.process_set == process_set) stale.push_back(entry.first);
  for (uint32_t id : stale) forget(id);
}

wire::Item AgreementCache::item_for(const wire::Agreement& agreement) {
  wire::Item item;
  auto found = entries_.find(agreement.id);
  if (found != entries_.end() && found->second.announced) {
    item.cached_id = agreement.id;
    return item;
  }
  item.fresh = agreement;
  if (found == entries_.end()) {
    item.fresh->id = 0;
  } else {
    found->second.announced = true;
  }
  return item;
}

void AgreementCache::forget(uint32_t id) {
  auto found = entries_.find(id);
  ages_.erase(found->second.age);
  ids_.erase(found->second.key);
  entries_.erase(found);
  evicted_.push_back(id);
}

}  // namespace hvd
