#include "call_spans.hpp"

#include "base/random.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace cordma::rpc::detail {

namespace {

std::mt19937_64 seeded() {
  const auto words = cordma::detail::random_value<std::array<std::uint32_t, 8>>();
  std::seed_seq seed(words.begin(), words.end());
  return std::mt19937_64{seed};
}

}  // namespace

call_spans::call_spans(tracer& to) : to_{to}, random_{seeded()} {}

std::unique_ptr<call_spans> call_spans::make(tracer* to) {
  return to != nullptr ? std::make_unique<call_spans>(*to) : nullptr;
}

void call_spans::begin(call_span& span, const trace_context& parent,
                       const scheduler& clock) noexcept {
  const auto make_id = [this]<class Id>(Id& id) {
    std::array<std::uint64_t, sizeof(Id) / sizeof(std::uint64_t)> words;
    for (std::uint64_t& word : words) word = random_();
    id = std::bit_cast<Id>(words);
  };
  if (parent.is_none()) {
    span.parent_span_id = {};
    span.context.flags = trace_context::sampled;
  } else {
    span.parent_span_id = parent.span_id;
    span.context = parent;
  }
  do {
    make_id(span.context.span_id);
    if (parent.is_none()) make_id(span.context.trace_id);
  } while (span.context.is_none());  // An id of zeros.
  span.start = clock.now();
  to_.begin(span);
}

void call_spans::end(call_span& span, const scheduler& clock) noexcept {
  span.end = clock.now();
  to_.end(span);
}

}  // namespace cordma::rpc::detail
