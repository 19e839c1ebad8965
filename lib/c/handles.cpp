#include "handles.hpp"

#include "base/fork.hpp"
#include "call.hpp"

#include <cordma/base/error.hpp>

#include <pthread.h>

#include <mutex>

namespace cordma::c {
namespace {

detail::fork_mutex mutex;
std::atomic<std::uint64_t> threads{0};

/// The child's thread is none of the parent's: it owns and runs no context.
void forget_thread() noexcept {
  thread_number = 0;
  runs_context = false;
}
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, &forget_thread);

}  // namespace

handle_table& table_of_process = *new handle_table;

std::uint64_t number_thread() noexcept {
  return thread_number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
}

const char* text_of(kind of) noexcept {
  switch (of) {
    case kind::context: return "context";
    case kind::listener: return "listener";
    case kind::connection: return "connection";
    case kind::memory: return "memory";
    case kind::remote: return "remote memory";
  }
  return "handle";
}

void handle_table::add(kind of, object& what, std::shared_ptr<foreign_calls> calls) {
  const std::lock_guard lock{mutex};
  if (free_.empty()) {
    if (made_ == slots_max)
      throw error{{.code = errc::limit_exceeded,
                   .call = "cordma",
                   .detail = "a process has at most 1048576 handles: close some"}};
    free_.reserve(made_ + chunk_slots);
    auto more = std::make_unique<chunk>();
    chunks_[made_ / chunk_slots].store(more.release(), std::memory_order_release);
    for (std::size_t i = chunk_slots; i-- > 0;) free_.push_back(std::uint32_t(made_ + i));
    made_ += chunk_slots;
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slot& s = slot_of(index);
  s.what = &what;
  s.calls = std::move(calls);
  s.thread.store(this_thread(), std::memory_order_relaxed);
  what.number = ++s.generation << (index_bits + kind_bits) | std::uint64_t{index} << kind_bits |
                std::uint64_t(of);
  what.retain();
  s.number.store(what.number, std::memory_order_release);
}

void handle_table::remove(handle number) noexcept {
  std::shared_ptr<foreign_calls> calls;
  object* what = nullptr;
  {
    const std::lock_guard lock{mutex};
    const std::size_t index = (number >> kind_bits) & (slots_max - 1);
    slot& s = slot_of(index);
    if (s.number.load(std::memory_order_relaxed) != number) return;
    s.number.store(0, std::memory_order_release);
    what = std::exchange(s.what, nullptr);
    calls = std::move(s.calls);
    free_.push_back(std::uint32_t(index));  // Reserved by `add`.
  }
  what->release();
}

void throw_not_found(handle_table::state how) {
  switch (how) {
    case handle_table::state::bad:
      throw misuse{CORDMA_BAD_HANDLE, "a handle in the call is null, closed, or of another kind"};
    case handle_table::state::foreign:
      throw misuse{CORDMA_WRONG_THREAD, "a handle in the call belongs to another context's thread"};
    case handle_table::state::found: break;
  }
  throw misuse{CORDMA_BAD_ARGUMENT, "handles of two contexts in one call: use those of one"};
}

std::shared_ptr<foreign_calls> handle_table::calls_of(handle number) const {
  const std::lock_guard lock{mutex};
  const slot& s = slot_of((number >> kind_bits) & (slots_max - 1));
  return s.number.load(std::memory_order_relaxed) == number ? s.calls : nullptr;
}

}  // namespace cordma::c
