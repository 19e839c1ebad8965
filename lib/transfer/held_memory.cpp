#include <cordma/transfer/held_memory.hpp>

namespace cordma {

bool held_memory::turn_hold::try_hold(memory_block& block, std::uint32_t generation) noexcept {
  if (!block.try_hold(generation)) return false;
  if (block.pd() != pd_) {
    block.let_go();
    return false;
  }
  const bool is_missed = block.length() - 1 >= turn_bytes_max;  // 0: it is not an allocator's.
  if (held_.remember(block) && !is_missed && block_ == nullptr && home_.may_look()) {
    held_.hold(block);
    block_ = &block;
    home_.also_at_turn_end(*this);
  }
  return true;
}

}  // namespace cordma
