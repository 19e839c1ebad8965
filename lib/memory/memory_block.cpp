#include <cordma/detail/memory/memory_block.hpp>

#include "block_slab.hpp"

namespace cordma {
namespace {

[[maybe_unused]] const auto& memory_blocks_at_load = block_slab<memory_block>::instance();

}  // namespace

memory_block& memory_block::adopt(ibv_pd* pd, verbs::access access, release_function on_release,
                                  void* context, registration_function registration) {
  memory_block& block = block_slab<memory_block>::instance().take();
  block.pd_ = pd;
  block.access_ = access;
  block.on_release_ = on_release;
  block.context_ = context;
  block.registration_ = registration;
  return block;
}

void memory_block::recycle(memory_block& block) noexcept {
  block_slab<memory_block>::instance().give_back(block);
}

memory_block& memory_block::make(ibv_pd* pd, verbs::access access, release_function on_release,
                                 void* context, registration_function registration) {
  memory_block& block = adopt(pd, access, on_release, context, registration);
  block.begin(nullptr, 0);
  return block;
}

}  // namespace cordma
