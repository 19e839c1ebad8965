#include "fuzz/disturber.hpp"

namespace softverbs::fuzz {

namespace {

constexpr std::uintptr_t page_mask = 4095;
constexpr std::uintptr_t word_mask = 7;

/// The disturber that counts loads; null outside of its begin() and end().
std::atomic<disturber*> watching{nullptr};

void flip(const disturber::change& one) noexcept {
  __atomic_fetch_xor(reinterpret_cast<std::uint8_t*>(one.target), one.flip, __ATOMIC_RELAXED);
}

}  // namespace

disturber::disturber() : thread_{[this] { disturb(); }} {}

disturber::~disturber() {
  phase_.store(2);
  phase_.notify_all();
  thread_.join();
}

void disturber::add(const change& one) noexcept {
  const std::size_t count = planned_.load(std::memory_order_relaxed);
  if (count == changes_max) return;
  plan_[count] = one;
  planned_.store(count + 1, std::memory_order_relaxed);
}

void disturber::begin(bool by_thread) noexcept {
  if (planned_.load(std::memory_order_relaxed) == 0) return;
  if (!by_thread) return watching.store(this);
  phase_.store(1);
  phase_.notify_all();
}

void disturber::end() noexcept {
  watching.store(nullptr);
  if (int disturbing = 1; phase_.compare_exchange_strong(disturbing, 0))
    while (busy_.load()) std::this_thread::yield();
  planned_.store(0, std::memory_order_relaxed);
}

void disturber::on_load(const void* address) noexcept {
  disturber* self = watching.load(std::memory_order_relaxed);
  if (self == nullptr) return;
  const auto offset = reinterpret_cast<std::uintptr_t>(address) & page_mask & ~word_mask;
  const std::size_t count = self->planned_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    change& one = self->plan_[i];
    if (one.page_offset != offset) continue;
    if (one.loads_before-- == 0) flip(one);  // The next flip is 256 loads away: as good as never.
  }
}

void disturber::disturb() noexcept {
  for (;;) {
    phase_.wait(0);
    busy_.store(true);
    while (phase_.load() == 1)
      for (std::size_t i = 0, n = planned_.load(std::memory_order_relaxed); i < n; ++i)
        flip(plan_[i]);
    busy_.store(false);
    if (phase_.load() == 2) return;
  }
}

}  // namespace softverbs::fuzz

// Called before each load of traced code.
extern "C" {
void __sanitizer_cov_load1(const void* address);
void __sanitizer_cov_load2(const void* address);
void __sanitizer_cov_load4(const void* address);
void __sanitizer_cov_load8(const void* address);
void __sanitizer_cov_load16(const void* address);

void __sanitizer_cov_load1(const void* address) { softverbs::fuzz::disturber::on_load(address); }
void __sanitizer_cov_load2(const void* address) { softverbs::fuzz::disturber::on_load(address); }
void __sanitizer_cov_load4(const void* address) { softverbs::fuzz::disturber::on_load(address); }
void __sanitizer_cov_load8(const void* address) { softverbs::fuzz::disturber::on_load(address); }
void __sanitizer_cov_load16(const void* address) { softverbs::fuzz::disturber::on_load(address); }
}
