#include "arena.hpp"

#include "checker.hpp"

#include <cstdlib>
#include <new>

namespace model::arena {
namespace {

constexpr std::size_t bytes_max = std::size_t{256} << 10;
constexpr std::size_t line = 64;

struct head {
  std::size_t bytes;
  bool is_free = false;
};

alignas(line) std::byte memory[bytes_max];
constinit std::size_t used = 0;
constinit std::size_t live = 0;
constinit bool is_inside = false;

void* allocate(std::size_t bytes) {
  // Each allocation starts on a line: atomics of alignment 64 are the widest.
  const std::size_t whole = line + (bytes + line - 1) / line * line;
  if (whole > bytes_max - used) std::abort();
  std::byte* const at = memory + used;
  new (at) head{bytes};
  used += whole;
  ++live;
  return at + line;
}

void release(void* at) noexcept {
  const outside own;
  auto* const of = reinterpret_cast<head*>(static_cast<std::byte*>(at) - line);
  if (of->is_free) return checker::instance().find("memory is freed twice");
  of->is_free = true;
  --live;
  checker::instance().freed(at, of->bytes);
}

void* take(std::size_t bytes) {
  if (is_inside) return allocate(bytes);
  void* const at = std::aligned_alloc(line, (bytes + line - 1) / line * line);
  if (at == nullptr) throw std::bad_alloc{};
  return at;
}

void give_back(void* at) noexcept {
  if (has(at)) return release(at);
  std::free(at);
}

}  // namespace

outside::outside() noexcept : before_{is_inside} { is_inside = false; }
outside::~outside() { is_inside = before_; }
inside::inside() noexcept : before_{is_inside} { is_inside = true; }
inside::~inside() { is_inside = before_; }

void clear() noexcept { used = live = 0; }
std::size_t left() noexcept { return live; }
bool has(const void* at) noexcept { return at >= memory && at < memory + bytes_max; }
std::size_t offset(const void* at) noexcept {
  return static_cast<std::size_t>(static_cast<const std::byte*>(at) - memory);
}

}  // namespace model::arena

void* operator new(std::size_t bytes) { return model::arena::take(bytes); }
void* operator new(std::size_t bytes, std::align_val_t) { return model::arena::take(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return model::arena::take(bytes);
}
void operator delete(void* at) noexcept { model::arena::give_back(at); }
void operator delete(void* at, std::size_t) noexcept { model::arena::give_back(at); }
void operator delete(void* at, std::align_val_t) noexcept { model::arena::give_back(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
  model::arena::give_back(at);
}
