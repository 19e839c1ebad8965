#include <cordma/detail/memory/memory_block.hpp>

#include "block_slab.hpp"

namespace cordma {
namespace {

[[maybe_unused]] const auto& memory_blocks_at_load = block_slab<memory_block>::instance();

}  // namespace

memory_block& memory_block::adopt(const kind& of) {
  memory_block& block = block_slab<memory_block>::instance().take();
  block.kind_ = of;
  return block;
}

void memory_block::recycle(memory_block& block) noexcept {
  block_slab<memory_block>::instance().give_back(block);
}

memory_block& memory_block::make(const kind& of) {
  memory_block& block = adopt(of);
  block.begin(nullptr, 0);
  return block;
}

}  // namespace cordma
