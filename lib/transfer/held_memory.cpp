#include <cordma/transfer/held_memory.hpp>

namespace cordma {

bool held_memory::try_hold_other(memory_block& block, std::uint32_t generation,
                                 const place& at) noexcept {
  if (!block.try_hold(generation)) return false;
  if (block.pd() != at.pd) {
    block.let_go();
    return false;
  }
  if (remember(block) && at.turn != nullptr && at.home.may_look()) at.turn->take(block, at.home);
  return true;
}

void held_memory::turn_hold::take(memory_block& block, scheduler& home) noexcept {
  const bool is_missed = block.length() - 1 >= turn_bytes_max;  // 0: it is not an allocator's.
  if (is_missed || block_ != nullptr) return;
  held_.hold(block);
  block_ = &block;
  home.also_at_turn_end(*this);
}

}  // namespace cordma
