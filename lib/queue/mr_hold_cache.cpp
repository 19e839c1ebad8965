#include "mr_hold_cache.hpp"

namespace cordma {

bool mr_hold_cache::try_acquire_other(memory_block& block, std::uint32_t generation) noexcept {
  counted& known = other(block);
  if (known.block == &block) {
    if (block.generation() != generation) return false;
    ++known.holds;
    return true;
  }
  if (!block.try_acquire(generation)) return false;
  if (block.pd() != pd_) {
    block.release();
    return false;
  }
  if (block_ == nullptr) {
    block_ = &block;
    holds_ = 1;
  } else if (known.block == nullptr) {
    known = {&block, 1};
  }
  return true;
}

void mr_hold_cache::release_other(memory_block& block) noexcept {
  if (counted& known = other(block); known.block == &block) {
    if (--known.holds > 0) return;
    known.block = nullptr;
  }
  block.release();
}

}  // namespace cordma
