#include <cordma/rpc/method.hpp>

#include "base/random.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

namespace {

using cordma::rpc::trace_context;

const std::string example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Zeros for the first ids that are asked for, then ones.
struct dull_bytes final : cordma::detail::random_source {
  void fill(std::span<std::byte> out) override {
    std::ranges::fill(out, std::byte{zeros > 0 ? std::uint8_t{0} : std::uint8_t{1}});
    zeros = std::max(zeros - 1, 0);
  }
  int zeros = 0;
};

}  // namespace

TEST_CASE("a traceparent is read as it is written", "[rpc]") {
  const trace_context c = trace_context::from_traceparent(example);
  CHECK(c.trace_id.front() == std::byte{0x0a});
  CHECK(c.trace_id.back() == std::byte{0x9c});
  CHECK(c.span_id.front() == std::byte{0xb7});
  CHECK(c.span_id.back() == std::byte{0x31});
  CHECK(c.flags == trace_context::sampled);
  CHECK(c.is_sampled());
  CHECK(c.to_traceparent() == example);
  CHECK(trace_context{}.to_traceparent().empty());
}

TEST_CASE("a traceparent that the specification does not have is none", "[rpc]") {
  const auto with = [](std::size_t at, std::string_view text) {
    return std::string{example}.replace(at, text.size(), text);
  };
  const auto none_of = [](std::string_view text) {
    return trace_context::from_traceparent(text) == trace_context{};
  };
  CHECK_FALSE(none_of(example));
  CHECK(none_of(""));
  for (std::size_t size = 0; size < example.size(); ++size)
    CHECK(none_of(std::string_view{example}.substr(0, size)));
  for (std::size_t at = 0; at < example.size(); ++at) {
    INFO(at);
    for (const char* const wrong : {"g", "A", " ", "/", ":", "`", "_"})
      CHECK(none_of(with(at, wrong)));
  }
  CHECK(none_of(with(0, "ff")));
  CHECK(none_of(with(3, std::string(32, '0'))));
  CHECK(none_of(with(36, std::string(16, '0'))));
  CHECK(none_of(example + "-00"));
  CHECK(none_of(example + "\n"));
}

TEST_CASE("a traceparent of a later version is read as far as this version knows", "[rpc]") {
  const std::string later = "cc" + example.substr(2);
  CHECK(trace_context::from_traceparent(later).to_traceparent() == example);
  CHECK(trace_context::from_traceparent(later + "-more").to_traceparent() == example);
  CHECK(trace_context::from_traceparent(later + "more").is_none());
}

TEST_CASE("flags that nobody has defined do not go on", "[rpc]") {
  const auto flags_of = [](std::string_view version, std::string_view flags) {
    std::string text{example};
    text.replace(0, 2, version).replace(53, 2, flags);
    return unsigned(trace_context::from_traceparent(text).flags);
  };
  CHECK(flags_of("00", "00") == 0);
  CHECK(flags_of("00", "ff") == 3);
  CHECK(flags_of("01", "ff") == 1);
}

TEST_CASE("a child has its parent's trace and flags, and a span of its own", "[rpc]") {
  trace_context parent = trace_context::from_traceparent(example);
  parent.flags = 2;
  const trace_context child = parent.child();
  CHECK(child.trace_id == parent.trace_id);
  CHECK(child.flags == parent.flags);
  CHECK_FALSE(child.is_none());
  CHECK_FALSE(child.is_sampled());
  CHECK(child.span_id != parent.span_id);
  CHECK(parent.child().span_id != child.span_id);
}

TEST_CASE("a child of none begins a trace, which is sampled", "[rpc]") {
  const trace_context first = trace_context{.flags = 2}.child();
  CHECK(first.is_sampled());
  CHECK(first.flags == trace_context::sampled);
  CHECK(first.trace_id != trace_context{}.child().trace_id);
}

TEST_CASE("ids are never all zeros", "[rpc]") {
  dull_bytes source;
  source.zeros = 3;
  const cordma::detail::random_scope dull{source};
  CHECK_FALSE(trace_context{}.child().is_none());
  CHECK(source.zeros == 0);
  trace_context no_span = trace_context::from_traceparent(example);
  no_span.span_id = {};
  CHECK(no_span.is_none());
  CHECK_FALSE(no_span.is_sampled());
}
