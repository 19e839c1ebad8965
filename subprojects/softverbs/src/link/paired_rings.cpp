#include "link/paired_rings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace softverbs {

namespace {

/// The most rings that wait for their next link: those of sixteen hosts that are all connected.
constexpr std::size_t kept_max = 256;

/// The rings that no link has. Never destroyed: links may end last.
std::vector<std::unique_ptr<ring_memory>>& kept() {
  static auto& all = *new std::vector<std::unique_ptr<ring_memory>>;
  all.reserve(kept_max);
  return all;
}

std::unique_ptr<ring_memory> map_rings() {
  auto made = std::make_unique<ring_memory>();
  const int file = ring_memory::create_file();
  const bool is_mapped = file >= 0 && made->reserve() && made->map(file, true);
  if (file >= 0) ::close(file);
  return is_mapped ? std::move(made) : nullptr;
}

void clear(const ring_view& ring, std::uint64_t used) noexcept {
  ring.control->tail.store(0);
  ring.control->head.store(0);
  ring.control->doorbell_wanted.store(0);
  ring.control->space_wanted.store(0);
  // Pages stay with the ring: to fault them in again costs more than to clear them.
  std::memset(ring.data, 0, static_cast<std::size_t>(std::min<std::uint64_t>(used, ring_bytes)));
}

}  // namespace

std::shared_ptr<paired_rings> paired_rings::make(std::size_t room) noexcept {
  try {
    std::unique_ptr<ring_memory> memory;
    if (kept().empty()) {
      memory = map_rings();
    } else {
      memory = std::move(kept().back());
      kept().pop_back();
    }
    return memory == nullptr ? nullptr : std::make_shared<paired_rings>(std::move(memory), room);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

paired_rings::paired_rings(std::unique_ptr<ring_memory> memory, std::size_t room) noexcept
    : memory_{std::move(memory)}, room_{room} {
  for (const ring_view& ring : {out(true), out(false)})
    ring.control->head.store(0 - std::uint64_t{ring.unusable});
}

paired_rings::~paired_rings() {
  if (kept().size() == kept_max) return;
  clear(memory_->out(), used_[0]);
  clear(memory_->in(), used_[1]);
  kept().push_back(std::move(memory_));
}

ring_view paired_rings::none() noexcept {
  static constinit ring_control nothing{};
  return {&nothing, nullptr, 0};
}

}  // namespace softverbs
