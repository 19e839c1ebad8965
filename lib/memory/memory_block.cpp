#include <cordma/detail/memory/memory_block.hpp>

#include "block_slab.hpp"

namespace cordma {
namespace {

[[maybe_unused]] const auto& memory_blocks_at_load = block_slab<memory_block>::instance();

}  // namespace

memory_block& memory_block::adopt(const kind& of) {
  block_list<memory_block> one;
  adopt(of, one, 1);
  return one.pop();
}

void memory_block::adopt(const kind& of, block_list<memory_block>& into, std::size_t count) {
  block_slab<memory_block>::instance().take(count, [&](memory_block& block) {
    block.kind_ = of;
    into.push(block);
  });
}

void memory_block::recycle(memory_block& block) noexcept {
  block_slab<memory_block>::instance().give_back(block);
}

void memory_block::recycle(block_list<memory_block>& from, std::size_t left) noexcept {
  block_slab<memory_block>::instance().give_back(from, left);
}

memory_block& memory_block::make(const kind& of) {
  memory_block& block = adopt(of);
  block.begin(nullptr, 0);
  return block;
}

}  // namespace cordma
