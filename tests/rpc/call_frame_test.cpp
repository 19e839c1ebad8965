#include "../../lib/rpc/call_frame.hpp"
#include "../../lib/messages/outgoing_frame.hpp"
#include "support/encoded_call.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <vector>

namespace cordma::call_protocol {

namespace {

std::vector<std::byte> bytes_of(const header& h) {
  const auto all = encode(h);
  return {all.begin(), all.end()};
}

/// Gives the error of decoding the bytes; empty: none.
std::string refusal_of(std::span<const std::byte> bytes, bool is_control) {
  try {
    static_cast<void>(decode(bytes, is_control));
  } catch (const error& e) {
    CHECK(e.failure().code == errc::bad_frame);
    return std::string{e.failure().detail.view()};
  }
  return "";
}
std::string refusal_of(const header& h, bool is_control = false) {
  return refusal_of(bytes_of(h), is_control);
}

}  // namespace

TEST_CASE("a call's header is these bytes", "[rpc]") {
  const header h{.kind = kind::request,
                 .bulk = source | sink,
                 .value = 0x04030201,
                 .call = 0x0807060504030201,
                 .method = 0x1817161514131211};
  const auto bytes = encode(h);
  std::vector<unsigned> numbers;
  for (const std::byte b : bytes) numbers.push_back(unsigned(b));
  CHECK(numbers == std::vector<unsigned>{1,    1,    3,    0,    1,    2,    3,    4,
                                         1,    2,    3,    4,    5,    6,    7,    8,
                                         0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18});
}

TEST_CASE("each header that may be is read as it was written", "[rpc]") {
  for (const header& h : {header{.kind = kind::request, .call = 1, .method = 2},
                          header{.kind = kind::request, .value = no_deadline},
                          header{.kind = kind::reply, .call = call_limit - 1},
                          header{.kind = kind::failure, .value = 99, .call = 3}}) {
    CHECK(bytes_of(decode(bytes_of(h), false)) == bytes_of(h));
  }
  for (const header& h :
       {header{.kind = kind::cancel, .call = 1}, header{.kind = kind::returned, .call = 1}}) {
    CHECK(bytes_of(decode(bytes_of(h), true)) == bytes_of(h));
  }
}

TEST_CASE("a header that its kind cannot have is refused by the field", "[rpc]") {
  const auto request = bytes_of(header{});
  CHECK(refusal_of(std::span{request}.first(23), false) ==
        "the size of a call's header is not 0x17");
  auto longer = bytes_of({.kind = kind::cancel});
  longer.push_back({});
  CHECK(refusal_of(longer, true) == "the size of a call's header is not 0x19");
  CHECK(refusal_of({.kind = kind{0}}) == "kind 0x0");
  CHECK(refusal_of({.kind = kind::cancel}) == "kind 0x4");
  CHECK(refusal_of({.kind = kind::request}, true) == "kind 0x1");
  CHECK(refusal_of({.kind = kind{6}}, true) == "kind 0x6");
  CHECK(refusal_of({.call = call_limit}) == "call 0x4000000000000000");
  CHECK(refusal_of({.bulk = 8}) == "bulk 0x8");
  CHECK(refusal_of({.kind = kind::reply, .bulk = trace}) == "bulk 0x4");
  CHECK(refusal_of({.kind = kind::reply, .bulk = source}) == "bulk 0x1");
  CHECK(refusal_of({.kind = kind::returned, .bulk = sink}, true) == "bulk 0x2");
  CHECK(refusal_of({.kind = kind::reply, .value = 1}) == "value 0x1");
  CHECK(refusal_of({.kind = kind::cancel, .value = 1}, true) == "value 0x1");
  CHECK(refusal_of({.kind = kind::reply, .method = 1}) == "method 0x1");
  CHECK(refusal_of({.kind = kind::returned, .method = 1}, true) == "method 0x1");
}

TEST_CASE("of another version only the call's number is looked at", "[rpc]") {
  const header h{.version = 2, .kind = kind{77}, .bulk = 77, .call = 5, .method = 6};
  CHECK(refusal_of(h).empty());
  CHECK(decode(bytes_of(h), false).version == 2);
  CHECK(decode(bytes_of(h), true).call == 5);
  CHECK(call_in(bytes_of(h)) == 5);
  CHECK(refusal_of({.version = 2, .call = call_limit}) == "call 0x4000000000000000");
}

namespace {

std::vector<std::byte> lending(std::uint16_t bulk, std::initializer_list<loan_terms> all) {
  std::vector<std::byte> request = bytes_of({.bulk = bulk, .call = 1});
  for (const loan_terms& t : all) {
    request.resize(request.size() + message_protocol::loan_bytes);
    message_protocol::encode_loan(t, &request[request.size() - message_protocol::loan_bytes]);
  }
  return request;
}

}  // namespace

TEST_CASE("what a request lends follows its header, the source first", "[rpc]") {
  const loan_terms first{.address = 0x1000, .length = 1, .rkey = 0xffffffff};
  const loan_terms second{
      .address = ~std::uint64_t{0}, .length = 1, .isolation = isolation::shared_key};
  const auto is = [](const loan_terms& a, const loan_terms& b) {
    return a.address == b.address && a.length == b.length && a.rkey == b.rkey &&
           a.isolation == b.isolation;
  };
  const auto both = lending(source | sink, {first, second});
  CHECK(both.size() == head_bytes(source | sink));
  CHECK(refusal_of(both, false).empty());
  CHECK(is(terms_of(both, source), first));
  CHECK(is(terms_of(both, sink), second));
  for (const bulk one : {source, sink}) {
    const auto single = lending(one, {second});
    CHECK(single.size() == head_bytes(one));
    CHECK(refusal_of(single, false).empty());
    CHECK(is(terms_of(single, one), second));
  }
  std::vector<unsigned> numbers;
  const auto single = lending(sink, {first});
  for (const std::byte b : std::span{single}.subspan(header_bytes)) numbers.push_back(unsigned(b));
  CHECK(numbers == std::vector<unsigned>{0, 0x10, 0, 0, 0,   0,   0,   0,   1, 0, 0, 0,
                                         0, 0,    0, 0, 255, 255, 255, 255, 3, 0, 0, 0});
}

TEST_CASE("loans that cannot be are refused by what is wrong with them", "[rpc]") {
  const loan_terms good{.address = 8, .length = 8};
  const auto all = lending(source | sink, {good, good});
  CHECK(refusal_of(std::span{all}.first(all.size() - 1), false) ==
        "a request with such parts is not as short as 0x47");
  CHECK(refusal_of(lending(sink, {{.address = 8, .length = 0}}), false) ==
        "the length of a loan 0x0");
  CHECK(refusal_of(lending(source | sink, {good, {.address = 2, .length = ~std::uint64_t{0}}}),
                   false) == "the length of a loan 0xffffffffffffffff");
  for (const unsigned level : {0u, 4u}) {
    const auto wrong = lending(source, {{.length = 1, .isolation = isolation(level)}});
    CHECK(refusal_of(wrong, false) == "the isolation of a loan 0x" + std::to_string(level));
  }
  auto reserved = lending(source, {good});
  reserved.back() = std::byte{1};
  CHECK(refusal_of(reserved, false) == "the isolation of a loan 0x1000003");
}

namespace {

constexpr std::uint16_t all_parts = source | sink | trace;

rpc::trace_context some_context() {
  rpc::trace_context c{.flags = 0xa5};
  for (std::size_t n = 0; n < c.trace_id.size(); ++n) c.trace_id[n] = std::byte(0x10 + n);
  for (std::size_t n = 0; n < c.span_id.size(); ++n) c.span_id[n] = std::byte(0x20 + n);
  return c;
}

std::vector<std::byte> traced(std::uint16_t parts, const rpc::trace_context& context) {
  std::vector<std::byte> request = bytes_of({.bulk = parts, .call = 1});
  request.resize(head_bytes(parts));
  encode(context, &request[header_bytes]);
  for (std::size_t at = loans_at(parts); at < request.size(); at += message_protocol::loan_bytes)
    message_protocol::encode_loan({.address = at, .length = 8}, &request[at]);
  return request;
}

}  // namespace

TEST_CASE("a trace context lies between a request's header and the loans", "[rpc]") {
  const auto single = traced(trace, some_context());
  std::vector<unsigned> numbers;
  for (const std::byte b : std::span{single}.subspan(header_bytes)) numbers.push_back(unsigned(b));
  CHECK(numbers == std::vector<unsigned>{0xa5, 0,    0,    0,    0,    0,    0,    0,
                                         0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
                                         0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
                                         0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27});
  const auto full = traced(all_parts, some_context());
  for (const auto& request : {single, full}) {
    CHECK(request.size() % 8 == 0);  // A request without a context is as aligned.
    CHECK(refusal_of(request, false).empty());
    CHECK(context_of(request) == some_context());
  }
  CHECK(terms_of(full, source).address == header_bytes + trace_bytes);
  CHECK(terms_of(full, sink).address == terms_of(full, source).address + 24);
  CHECK(terms_of(traced(sink | trace, some_context()), sink).address ==
        terms_of(full, source).address);
}

TEST_CASE("the longest head of a request has room in a frame", "[rpc]") {
  STATIC_REQUIRE(head_bytes(all_parts) <= cordma::detail::outgoing_frame::head_max);
}

TEST_CASE("a trace context that names nothing is refused by what is wrong with it", "[rpc]") {
  const auto good = traced(all_parts, some_context());
  CHECK(refusal_of(std::span{good}.first(good.size() - 1), false) ==
        "a request with such parts is not as short as 0x67");
  const auto single = traced(trace, some_context());
  CHECK(refusal_of(std::span{single}.first(single.size() - 1), false) ==
        "a request with such parts is not as short as 0x37");
  auto reserved = good;
  reserved[header_bytes + 7] = std::byte{1};
  CHECK(refusal_of(reserved, false) == "the flags of a trace context 0x1000000000000a5");
  auto no_trace = some_context(), no_span = some_context();
  no_trace.trace_id = {};
  no_span.span_id = {};
  CHECK(refusal_of(traced(trace, no_trace), false) == "the trace of a trace context 0x0");
  CHECK(refusal_of(traced(trace, no_span), false) == "the span of a trace context 0x0");
  // A few zeros are no id of zeros.
  auto sparse = some_context();
  sparse.trace_id = {};
  sparse.span_id = {};
  sparse.trace_id.back() = sparse.span_id.front() = std::byte{1};
  CHECK(refusal_of(traced(trace, sparse), false).empty());
}

}  // namespace cordma::call_protocol
