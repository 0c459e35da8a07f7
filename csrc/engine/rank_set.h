// A set of ranks of a world.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

class RankSet {
 public:
  // Empty; for ranks below `size`.
  explicit RankSet(int size = 0) : size_(size), words_((static_cast<size_t>(size) + 63) / 64, 0) {}

  void add(int rank) { word(rank) |= bit(rank); }
  void remove(int rank) { word(rank) &= ~bit(rank); }
  bool has(int rank) const { return (words_[static_cast<size_t>(rank) / 64] & bit(rank)) != 0; }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }

  RankSet& operator|=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  RankSet& operator&=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  RankSet& operator-=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  bool operator==(const RankSet& other) const { return words_ == other.words_; }

  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
  }
  int count() const {
    int sum = 0;
    for (uint64_t word : words_) sum += __builtin_popcountll(word);
    return sum;
  }
  bool meets(const RankSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
      if ((words_[i] & other.words_[i]) != 0) return true;
    return false;
  }
  bool covers(const RankSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }
  // In ascending order.
  template <typename Each>
  void each(Each call) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t left = words_[i]; left != 0; left &= left - 1)
        call(static_cast<int>(i * 64) + __builtin_ctzll(left));
  }

  // As rows of ranks: the first one and how many there are, again and again.
  std::vector<int32_t> rows() const {
    std::vector<int32_t> rows;
    each([&](int rank) {
      if (!rows.empty() && rows[rows.size() - 2] + rows.back() == rank) {
        ++rows.back();
      } else {
        rows.insert(rows.end(), {rank, 1});
      }
    });
    return rows;
  }
  // Adds what rows() has made. False if that is not so.
  bool add_rows(const std::vector<int32_t>& rows) {
    if (rows.size() % 2 != 0) return false;
    for (size_t i = 0; i < rows.size(); i += 2) {
      const int first = rows[i], count = rows[i + 1];
      if (first < 0 || count < 1 || first >= size_ || count > size_ - first) return false;
      for (int rank = first; rank < first + count; ++rank) add(rank);
    }
    return true;
  }

 private:
  uint64_t& word(int rank) { return words_[static_cast<size_t>(rank) / 64]; }
  static uint64_t bit(int rank) { return uint64_t{1} << (static_cast<unsigned>(rank) % 64); }

  int size_;
  std::vector<uint64_t> words_;
};

}  // namespace hvd
