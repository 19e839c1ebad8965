#pragma once

#include "group/collective_call.hpp"

#include <cordma/memory/slice.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace cordma::detail {

/// A message in parts, one a rank, in the order of ranks without gaps.
class message_parts {
 public:
  /// Divides elements as evenly as can be.
  message_parts(std::size_t size_bytes, std::size_t element_bytes, unsigned count) noexcept
      : elements_{size_bytes / element_bytes}, element_bytes_{element_bytes}, count_{count} {}
  message_parts(const block_sizes& blocks, unsigned count) noexcept
      : blocks_{&blocks}, count_{count} {}

  [[nodiscard]] unsigned count() const noexcept { return count_; }
  /// Returns the offset of part `i`; of the message's end for `count()`. \cost O(i) for blocks of
  ///   different lengths.
  [[nodiscard]] std::size_t begin_of(unsigned i) const noexcept {
    if (blocks_ != nullptr) return bytes_of(*blocks_, 0, i);
    return (elements_ / count_ * i + elements_ % count_ * i / count_) * element_bytes_;
  }
  [[nodiscard]] std::size_t size_of(unsigned i) const noexcept {
    return blocks_ != nullptr ? blocks_->at(i) : begin_of(i + 1) - begin_of(i);
  }
  [[nodiscard]] std::size_t longest() const noexcept {
    if (blocks_ == nullptr)
      return (elements_ / count_ + (elements_ % count_ != 0)) * element_bytes_;
    return blocks_->of.empty() ? blocks_->each : std::ranges::max(blocks_->of);
  }
  template <class Slice>
  [[nodiscard]] Slice part_of(const Slice& message, unsigned i) const {
    return range_of(message, i, i + 1);
  }
  /// Returns the parts from `first` to before `last`.
  template <class Slice>
  [[nodiscard]] Slice range_of(const Slice& message, unsigned first, unsigned last) const {
    const std::size_t begin = begin_of(first);
    return message.slice(begin, begin_of(last) - begin);
  }

 private:
  const block_sizes* blocks_ = nullptr;
  std::size_t elements_ = 0;
  std::size_t element_bytes_ = 1;
  unsigned count_;
};

/// One part after the other, round the ring of ranks. \cost none of `begin_of` for each.
class part_cursor {
 public:
  part_cursor(const message_parts& parts, unsigned first) noexcept
      : parts_{parts}, index_{first}, begin_{parts.begin_of(first)}, size_{parts.size_of(first)} {}
  [[nodiscard]] unsigned index() const noexcept { return index_; }
  template <class Slice>
  [[nodiscard]] Slice part_of(const Slice& message) const {
    return message.slice(begin_, size_);
  }
  void forward() noexcept {
    begin_ += size_;
    if (++index_ == parts_.count()) index_ = 0, begin_ = 0;
    size_ = parts_.size_of(index_);
  }
  void backward() noexcept {
    if (index_ == 0) {
      index_ = parts_.count();
      begin_ = parts_.begin_of(index_);
    }
    size_ = parts_.size_of(--index_);
    begin_ -= size_;
  }

 private:
  const message_parts& parts_;
  unsigned index_;
  std::size_t begin_;
  std::size_t size_;
};

/// The binomial tree of ranks whose root is rank 0. The ranks below a rank are the consecutive ones
/// behind it.
class binomial_tree {
 public:
  binomial_tree(unsigned rank, unsigned size) noexcept
      : rank_{rank},
        size_{size},
        span_{rank == 0 ? std::bit_ceil(size) : 1u << std::countr_zero(rank)} {}
  [[nodiscard]] unsigned parent() const noexcept { return rank_ - span_; }
  /// Returns the rank behind the last one below this rank.
  [[nodiscard]] unsigned end() const noexcept { return std::min(rank_ + span_, size_); }
  [[nodiscard]] bool is_leaf() const noexcept { return end() == rank_ + 1; }
  /// Returns the distance of the farthest child: the nearer ones have halves of it, down to 1.
  [[nodiscard]] unsigned farthest() const noexcept { return std::bit_ceil(end() - rank_) / 2; }
  [[nodiscard]] unsigned end_of_child(unsigned distance) const noexcept {
    return std::min(rank_ + 2 * distance, size_);
  }

 private:
  unsigned rank_;
  unsigned size_;
  unsigned span_;
};

}  // namespace cordma::detail
