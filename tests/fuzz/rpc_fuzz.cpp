// A hostile client speaks to a server, and a hostile server to a client, against the whole of
// lib/rpc on soft0: message_siege.hpp. Requests, replies and control messages are well formed,
// repeated, of unknown calls, or not well formed.
#include "../../lib/rpc/client_core.hpp"
#include "../../lib/rpc/server_core.hpp"
#include "../support/encoded_call.hpp"
#include "message_siege.hpp"

#include <algorithm>
#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

using namespace std::chrono_literals;
using call_protocol::bulk;
using call_protocol::head_bytes;
using call_protocol::header;
using call_protocol::header_bytes;
using call_kind = call_protocol::kind;
using detail::message_channel;
using rpc::method;
using rpc::nothing;
using rpc::server_call;
using support::started;
using view = std::span<const std::byte>;

constexpr std::size_t payload_max = buffer_bytes - header_bytes;
constexpr std::size_t bulk_bytes = 256;
constexpr std::size_t said_max = head_bytes(call_protocol::loans | call_protocol::trace) + 16;

struct point {
  std::uint32_t x, y;
};
struct echo : method<"fuzz.echo", view, view> {};
struct mirror : method<"fuzz.mirror", point, point> {};
struct grow : method<"fuzz.grow", std::uint16_t, std::vector<std::byte>> {};
struct nap : method<"fuzz.nap", nothing, nothing> {};
struct stay : method<"fuzz.stay", view, nothing> {};
struct fail : method<"fuzz.fail", view, std::string> {};
struct reach_source : method<"fuzz.look", nothing, std::uint32_t> {};
struct mark : method<"fuzz.mark", nothing, std::uint32_t> {};

/// Counts the spans that are under way. One in `period` has a context.
struct span_count final : rpc::tracer {
  explicit span_count(unsigned p) noexcept : period{p} {}
  void begin(span& one) noexcept override {
    if (begun++ % period != 0) one.context = {};
    open += one.context.is_sampled() ? 1 : 0;
  }
  void end(const span& one) noexcept override {
    must(one.context.is_sampled() && open > 0, "only what has begun ends");
    --open;
  }
  const unsigned period;
  unsigned begun = 0, open = 0;
};

// ---- what both hostile sides say ----------------------------------------------------------------

class rpc_siege : public message_siege {
 protected:
  /// A header, its parts, and bytes of which the first few are the script's.
  struct said {
    std::array<std::byte, said_max> bytes{};
    std::size_t size_bytes = header_bytes;
    [[nodiscard]] view all() const noexcept { return view{bytes}.first(size_bytes); }
  };
  said compose(header h, script& in, std::size_t most = buffer_bytes) {
    if (head_bytes(h.bulk) > most) h.bulk &= call_protocol::loans;
    if (head_bytes(h.bulk) > most) h.bulk = call_protocol::sink;
    const bool is_traced = (h.bulk & call_protocol::trace) != 0;
    const std::size_t lent = h.bulk & call_protocol::loans;
    if (!is_gentle_) spoil(h, in);
    said s;
    std::ranges::copy(call_protocol::encode(h), s.bytes.begin());
    if (is_traced) {
      call_protocol::encode(some_context(in), &s.bytes[s.size_bytes]);
      s.size_bytes += call_protocol::trace_bytes;
    }
    for (std::size_t n = (lent + 1) / 2; n > 0; --n) {
      message_protocol::encode_loan(some_terms(in), &s.bytes[s.size_bytes]);
      s.size_bytes += message_protocol::loan_bytes;
    }
    const std::size_t head = s.size_bytes;
    const std::uint8_t how = in.byte();
    s.size_bytes += how % 4 == 0 ? how / 4 % (most - head + 1) : how / 4 % 9;
    for (std::size_t n = head; n < s.size_bytes && n < head + 4; ++n)
      s.bytes[n] = std::byte{in.byte()};
    return s;
  }
  /// Gives a context that names a span or, at times, none.
  rpc::trace_context some_context(script& in) {
    const std::uint8_t how = in.byte();
    rpc::trace_context c{.flags = how};
    if (is_gentle_ || how % 16 != 2) c.trace_id.front() = std::byte{how} | std::byte{1};
    if (is_gentle_ || how % 16 != 4) c.span_id.back() = std::byte{how} | std::byte{1};
    return c;
  }
  /// Gives the terms of a part of the peer's landing, or lies.
  loan_terms some_terms(script& in) {
    const std::uint8_t how = in.byte();
    loan_terms t{.address = peer_->address(), .length = how + 1u, .rkey = peer_->rkey()};
    if (is_gentle_) return t;
    switch (how % 32) {
      case 1: t.rkey = ~t.rkey; break;
      case 2: t.length = 0; break;
      case 3: t.address = ~std::uint64_t{0} - 3; break;
      case 4: t.isolation = isolation(in.byte()); break;
      case 5: t.length = std::uint64_t{1} << 40; break;
    }
    return t;
  }
  void say_message(const header& h, script& in) {
    last_ = compose(h, in);
    say({.kind = kind::data}, in, last_.all());
  }
  void say_again(script& in) { say({.kind = kind::data}, in, last_.all()); }
  void say_control(const header& h, script& in) {
    said s = compose(h, in);
    if (is_gentle_) s.size_bytes = header_bytes;
    say({.kind = kind::control}, in, s.all());
  }
  void fill_with(std::span<std::byte> landing, const header& h, script& in) {
    const said s = compose(h, in, said_max);
    std::ranges::fill(landing, std::byte{0});
    std::ranges::copy(s.all(), landing.begin());
  }

 private:
  /// A field at a limit, or beyond.
  void spoil(header& h, script& in) {
    constexpr std::array<std::uint64_t, 6> edges{
        0,       1, call_protocol::call_limit - 1, call_protocol::call_limit, ~std::uint64_t{0},
        1u << 16};
    const std::uint8_t how = in.byte();
    switch (how % 16) {
      case 0: h.version = in.byte(); return;
      case 1: h.kind = call_kind{std::uint8_t(in.byte() % 8)}; return;
      case 2: h.bulk = std::uint16_t(in.byte() * 0x101u); return;
      case 3: h.value = std::uint32_t(in.of(edges)); return;
      case 4: h.call = in.of(edges); return;
      case 5: h.method = in.of(edges); return;
    }
  }
  said last_;
};

// ---- a server under siege -----------------------------------------------------------------------

class server_siege final : public rpc_siege {
 private:
  /// Counts the handlers that run.
  struct presence {
    explicit presence(unsigned& n) noexcept : running{++n} {}
    presence(const presence&) = delete;
    presence& operator=(const presence&) = delete;
    ~presence() { --running; }
    unsigned& running;
  };

  template <class M, class Handler>
  void handle(Handler handler) {
    core_->add(std::make_unique<rpc::detail::typed_method<M, Handler>>(std::move(handler)));
  }
  void add_methods() {
    handle<echo>([this](view request) -> task<view> {
      const presence here{running_};
      co_return request;
    });
    handle<mirror>([this](point p) -> task<point> {
      const presence here{running_};
      co_return point{p.y, p.x};
    });
    handle<grow>([this](std::uint16_t size) -> task<std::vector<std::byte>> {
      const presence here{running_};
      co_return std::vector<std::byte>(size % (large_max + 512));
    });
    handle<nap>([this](nothing) -> task<nothing> {
      const presence here{running_};
      co_await sleep_for(200ms);
      co_return nothing{};
    });
    handle<stay>([this](view) -> task<nothing> {
      const presence here{running_};
      co_await sleep_for(24h);
      co_return nothing{};
    });
    handle<fail>([this](view request) -> task<std::string> {
      const presence here{running_};
      throw std::runtime_error{std::string(request.size() * 10, 'x')};
      co_return "";
    });
    handle<reach_source>(
        [this](nothing, server_call& call) { return reach(call, call_protocol::source); });
    handle<mark>([this](nothing, server_call& call) { return reach(call, call_protocol::sink); });
  }
  /// Reads the source, or writes the sink; then asks for it once more, which is refused.
  task<std::uint32_t> reach(server_call& call, bulk which) {
    const presence here{running_};
    const bool is_source = which == call_protocol::source;
    const remote_mr theirs = is_source ? call.source() : call.sink();
    const std::size_t size = std::min(theirs.size_bytes(), bulk_bytes);
    local_mr ours = world_.memory.allocate_zeroed(size);
    if (is_source) {
      co_await victim_->data().post(read(ours.slice(), theirs.slice(0, size)));
    } else {
      co_await victim_->data().post(write(ours.slice(), theirs.slice(0, size)));
    }
    try {
      static_cast<void>(is_source ? call.source() : call.sink());
      must(false, "memory is asked for once");
    } catch (const error&) {
    }
    co_return std::uint32_t(size);
  }

  void open(const detail::channel_resources& resources) override {
    const rpc::server_options few{
        .stream = options, .calls_per_connection_max = 5, .calls_max = 4, .tracer = &spans_};
    core_.emplace(few);
    add_methods();
    auto& link = message_channel::make<rpc::detail::server_link>(*core_, resources, nullptr);
    serving_.emplace(world_.executor, core_->serve(link, nullptr));
    last_number_ = 0;
  }
  void collect() override {
    for (auto* one : {&serving_, &draining_}) {
      if (!*one || !(*one)->has_ended()) continue;
      static_cast<void>((**one)->take_result());
      one->reset();
    }
  }
  void give_up() override {
    if (serving_) serving_->request_stop();
  }
  void must_be_over() override {
    collect();
    const rpc::server_counters& n = core_->counters;
    must(!serving_, "nothing is served any more");
    must(running_ == 0, "no handler runs");
    must(n.running == 0 && n.connections == 0, "no call and no connection is there");
    must(n.calls == n.replied + n.failed + n.stopped + n.refused + n.too_large,
         "each call has ended once");
    must(spans_.open == 0, "and each span of one has");
  }
  void leave() override {
    must(!draining_, "the server has drained");
    core_.reset();
  }

  // ---- the client

  std::uint64_t number(script& in) {
    const std::uint8_t which = in.byte();
    if (which < 0xc0) return ++last_number_;
    return which < 0xf0 ? last_number_ - which % 4 % (last_number_ + 1) : which % 4;
  }
  header request(script& in) {
    constexpr std::array<std::uint64_t, 10> methods{
        echo::id, mirror::id,       grow::id, nap::id,  stay::id,
        fail::id, reach_source::id, mark::id, grow::id, 0};
    constexpr std::array<std::uint32_t, 8> deadlines{
        call_protocol::no_deadline, 0, 1, 100'000, 1'000'000, 5'000'000, 1'000'000, 70'000'000};
    const std::uint8_t how = in.byte();
    return {.kind = call_kind::request,
            .bulk = std::uint16_t(how % 4 | (how / 64 == 1 ? call_protocol::trace : 0)),
            .value = deadlines[how / 4 % 8],
            .call = number(in),
            .method = in.of(methods)};
  }
  void fill(std::span<std::byte> landing, script& in) override {
    fill_with(landing, request(in), in);
  }
  void hear(const test::heard_frame& f) override {
    message_siege::hear(f);
    if (f.kind != kind::data && f.kind != kind::control) return;
    const header h = call_protocol::decode(f.payload(), f.kind == kind::control);
    must(h.version == call_protocol::version, "the server speaks its version");
    must(f.kind == kind::control ? h.kind == call_kind::returned
                                 : h.kind == call_kind::reply || h.kind == call_kind::failure,
         "a server answers, and returns what was lent");
  }
  void perform(script& in) override {
    const unsigned what = in.byte();
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5: return say_message(request(in), in);
      case 6:
      case 7:
      case 8: return say_control({.kind = call_kind::cancel, .call = number(in)}, in);
      case 9: return say_again(in);
      case 10: return perform_rarely(what / 16, in);
      default: return act(in.byte(), in);
    }
  }
  void perform_rarely(unsigned what, script& in) {
    switch (what) {
      case 0:
        if (!draining_) draining_.emplace(world_.executor, core_->drain());
        return;
      case 1: return give_up();
      case 2: {
        header h = request(in);
        h.version = in.byte();
        return say_message(h, in);
      }
      case 3:
        if (is_gentle_) return;
        return say_control({.kind = call_kind::returned, .call = number(in)}, in);
      case 4:
        if (is_gentle_) return;
        return say_message({.kind = call_kind::reply, .call = number(in)}, in);
      default: return drive();
    }
  }

  span_count spans_{1};
  std::optional<rpc::detail::server_core> core_;
  std::optional<started<task<>>> serving_;
  std::optional<started<task<>>> draining_;
  unsigned running_ = 0;
  std::uint64_t last_number_ = 0;
};

// ---- a client under siege -----------------------------------------------------------------------

class client_siege final : public rpc_siege {
 private:
  using core = rpc::detail::client_core;

  void open(const detail::channel_resources& resources) override {
    const rpc::client_options few{.stream = options, .calls_max = 5, .tracer = &spans_};
    core_ = detail::counted_ref<rpc::detail::client_core>{*new core{world_.executor, few, nullptr}};
    spans_.begun = 0;  // All depends on the script.
    memory_ = world_.memory.allocate_zeroed(bulk_bytes);
    source_.assign(large_max + 512, std::byte{0x77});
    requests_.clear();
    lent_.clear();
    core_->attach(resources);
  }
  void collect() override {
    for (auto& c : calls_) {
      if (!c || !c->has_ended()) continue;
      static_cast<void>((**c).take_result());
      c.reset();
    }
  }
  void give_up() override {
    if (is_patient_) return;  // Each call has a deadline.
    for (auto& c : calls_)
      if (c) c->request_stop();
  }
  void must_be_over() override {
    collect();
    const auto waits = [](const auto& one) { return one.has_value(); };
    must(std::ranges::none_of(calls_, waits), "each call has ended");
    const rpc::client_counters& n = core_->counters();
    must(n.calls == n.answered + n.refused + n.timed_out + n.stopped + n.lost, "once");
    must(spans_.open == 0, "and each span of one has");
  }
  void leave() override {
    core_->shut();
    core_ = {};
    memory_.reset();
  }

  // ---- its program

  template <class M>
  static task<> call(client_siege& s, typename M::request request, rpc::call_options how) {
    rpc::detail::call_op<M> op{*s.core_.get(), request, how};
    static_cast<void>(co_await op);
  }
  void call(std::optional<started<task<>>>& c, script& in) {
    if (c) return;
    constexpr std::array<duration, 4> deadlines{0ms, 1ms, 500ms, 30s};
    const std::uint8_t how = in.byte();
    rpc::call_options o{.timeout = deadlines[how % 4]};
    if (how / 4 % 2 == 1) o.source = memory_.slice(0, 1 + in.byte());
    if (how / 8 % 2 == 1) o.sink = memory_.slice(0, 1 + in.byte());
    switch (how / 16 % 4) {
      case 0: return begin(c, call<echo>(*this, some(in.byte() % (payload_max + 1)), o));
      case 1: return begin(c, call<echo>(*this, some(in.take<std::uint16_t>()), o));
      case 2: return begin(c, call<mirror>(*this, {1, 2}, o));
      case 3: return begin(c, call<nap>(*this, {}, o));
    }
  }
  void begin(std::optional<started<task<>>>& c, task<> work) {
    c.emplace(world_.executor, std::move(work));
  }
  [[nodiscard]] view some(std::size_t size) const {
    return view{source_}.first(size % source_.size());
  }
  void act_as_program(script& in) {
    collect();
    const std::uint8_t what = in.byte();
    auto& c = calls_[what / 8 % calls_.size()];
    switch (what % 8) {
      case 5:
        if (c) c->request_stop();
        return;
      case 6: return c.reset();
      case 7:
        is_patient_ = what / 8 % 4 != 0;
        if (what / 8 == 31) core_->shut();
        return;
      default: return call(c, in);
    }
  }

  // ---- the server

  void hear(const test::heard_frame& f) override {
    message_siege::hear(f);
    if (f.kind != kind::data && f.kind != kind::control) return;
    const header h = call_protocol::decode(f.payload(), f.kind == kind::control);
    must(h.version == call_protocol::version, "the client speaks its version");
    must(h.kind == (f.kind == kind::control ? call_kind::cancel : call_kind::request),
         "a client asks, and asks no more");
    if (h.kind != call_kind::request) return;
    requests_.push_back(h);
    for (const bulk one : {call_protocol::source, call_protocol::sink})
      if ((h.bulk & one) != 0) lent_.emplace_back(call_protocol::terms_of(f.payload(), one), one);
  }
  /// Gives the number of a call that waits for its answer, or, now and then, any number.
  std::uint64_t answered(script& in) {
    const std::uint8_t which = in.byte();
    if (requests_.empty() || which >= 0xf0) return (1 + which % 4ull) << 16 | which / 4 % 4;
    const auto at = requests_.begin() + which % std::ptrdiff_t(requests_.size());
    const std::uint64_t call = at->call;
    if (which < 0xc0) requests_.erase(at);
    return call;
  }
  /// Tells that it uses no more of what some call lent.
  void say_returned(script& in) {
    drive();
    const std::uint8_t which = in.byte();
    if (requests_.empty()) return;
    const header& asked = requests_[which % requests_.size()];
    if (is_gentle_ && (asked.bulk & call_protocol::loans) == 0) return;
    say_control({.kind = call_kind::returned, .call = asked.call}, in);
  }
  /// Reaches what some call lent, whether or not it still may.
  void reach(script& in) {
    drive();
    const std::uint8_t which = in.byte();
    if (is_gentle_ || lent_.empty() || victim_->is_cut_off()) return;
    const auto& [terms, one] = lent_[which % lent_.size()];
    peer_->reach(one == call_protocol::source ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, terms.address,
                 std::uint32_t(terms.length) + (which == 0xff ? 1 : 0), terms.rkey);
  }
  header reply(script& in) {
    const std::uint8_t how = in.byte();
    if (how % 4 != 0) return {.kind = call_kind::reply, .call = answered(in)};
    return {.kind = call_kind::failure, .value = how / 4 % 10u, .call = answered(in)};
  }
  void fill(std::span<std::byte> landing, script& in) override {
    fill_with(landing, reply(in), in);
  }
  void perform(script& in) override {
    const unsigned what = in.byte();
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
      case 3: return act_as_program(in);
      case 4:
      case 5:
      case 6: drive(); return say_message(reply(in), in);
      case 7: return say_returned(in);
      case 8: return reach(in);
      case 9: return say_again(in);
      case 10: return perform_rarely(what / 16, in);
      default: return act(in.byte(), in);
    }
  }
  void perform_rarely(unsigned what, script& in) {
    switch (what) {
      case 0:
      case 1: {
        header h = reply(in);
        h.version = in.byte();
        return say_message(h, in);
      }
      case 2:
        if (is_gentle_) return;
        return say_control({.kind = call_kind::cancel, .call = answered(in)}, in);
      case 3:
        if (is_gentle_) return;
        return say_message({.kind = call_kind::request, .call = answered(in)}, in);
      default: return drive();
    }
  }

  detail::counted_ref<rpc::detail::client_core> core_;
  local_mr memory_;
  std::vector<std::byte> source_;
  std::array<std::optional<started<task<>>>, 8> calls_;
  span_count spans_{4};                            // Most requests fit into a buffer.
  std::vector<header> requests_;                   ///< requests that were heard, but for large ones
  std::vector<std::pair<loan_terms, bulk>> lent_;  ///< loans of those requests
  bool is_patient_ = true;
};

}  // namespace
}  // namespace cordma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // Never destroyed: the process ends with the fuzzer, its device's engine at work.
  static cordma::fuzz::message_siege* const sieges[] = {new cordma::fuzz::server_siege,
                                                        new cordma::fuzz::client_siege};
  cordma::fuzz::script in{bytes, size};
  sieges[in.byte() % 2]->run(in);
  return 0;
}
