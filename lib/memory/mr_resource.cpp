#include <cordma/memory/mr_resource.hpp>

#include "base/failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace cordma {
namespace {

std::uintptr_t number(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

struct mr_resource::allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, local_mr> by_address;  ///< keyed by the first byte
};

mr_resource::mr_resource(mr_allocator& from)
    : from_{&from}, allocations_{std::make_unique<allocations>()} {}

mr_resource::~mr_resource() {
  CORDMA_ASSERT(allocations_->by_address.empty(), "a resource was destroyed before its containers");
}

void* mr_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
  local_mr memory = from_->allocate_uninitialized(
      std::max(bytes, std::size_t{1}), std::max(alignment, mr_allocator::alignment_default));
  void* const at = memory.bytes().data();
  const std::lock_guard lock{allocations_->mutex};
  allocations_->by_address.emplace(number(at), std::move(memory));
  return at;
}

void mr_resource::do_deallocate(void* at, std::size_t bytes, std::size_t) {
  local_mr memory;  // Freed after the lock.
  const std::lock_guard lock{allocations_->mutex};
  const auto found = allocations_->by_address.find(number(at));
  CORDMA_ASSERT(found != allocations_->by_address.end(),
                "memory given back twice, or of another resource");
  CORDMA_ASSERT(found->second.size_bytes() == std::max(bytes, std::size_t{1}),
                "memory given back with another size than it was asked for with");
  memory = std::move(found->second);
  allocations_->by_address.erase(found);
}

local_mr_slice mr_resource::slice_of(const void* at, std::size_t bytes) const {
  if (bytes == 0) return {};
  const std::lock_guard lock{allocations_->mutex};
  auto found = allocations_->by_address.upper_bound(number(at));
  if (found != allocations_->by_address.begin()) {
    const local_mr& memory = std::prev(found)->second;
    const std::size_t offset = number(at) - std::prev(found)->first;
    if (offset <= memory.size_bytes() && bytes <= memory.size_bytes() - offset)
      return const_cast<local_mr&>(memory).slice(offset, bytes);
  }
  detail::throw_failure(
      errc::out_of_range, "mr_resource::slice",
      detail::detail_text("%zu bytes at %p are not of one allocation of this resource", bytes, at));
}

}  // namespace cordma
