#include "xrc.hpp"

#include <cordma/connection/prepared_connection.hpp>
#include <cordma/coro/when_all.hpp>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace perf {
namespace {

using cordma::verbs::queue_pair_type;

cordma::connection_options options_over(const cordma::runtime& rt, const job& what,
                                        queue_pair_type transport) {
  cordma::connection_options made = rt.connection_defaults();
  made.transport = transport;
  apply(what.path, made);
  return made;
}

/// Sends the number of a pool, and the information of a prepared connection.
cordma::task<> say(cordma::runtime& rt, cordma::connection& beside, std::uint32_t inbox,
                   std::string text) {
  cordma::local_mr words = rt.memory().allocate_zeroed(sizeof inbox + text.size());
  std::memcpy(words.bytes().data(), &inbox, sizeof inbox);
  std::memcpy(words.bytes().data() + sizeof inbox, text.data(), text.size());
  co_await beside.send(words.slice());
}

/// Words of the other side.
struct greeting {
  std::uint32_t inbox = 0;
  std::string text;
};
cordma::task<greeting> hear(cordma::connection& beside) {
  const cordma::message m = co_await beside.next_message();
  const auto bytes = m.slices[0].bytes().first(m.size_bytes);
  greeting heard;
  if (bytes.size() < sizeof heard.inbox) co_return heard;
  std::memcpy(&heard.inbox, bytes.data(), sizeof heard.inbox);
  const auto rest = bytes.subspan(sizeof heard.inbox);
  heard.text = std::string_view{reinterpret_cast<const char*>(rest.data()), rest.size()};
  co_return heard;
}

/// Takes messages, and tells the client of half of them at a time.
cordma::task<> take_all(cordma::shared_receives& pool, cordma::connection& beside) {
  for (std::uint32_t taken = 0;;) {
    static_cast<void>(co_await pool.next_message());
    if (++taken < pool.buffers() / 2) continue;
    static_cast<void>(beside.post(cordma::send_with_imm(cordma::const_local_mr_slice{}, taken)));
    taken = 0;
  }
}

}  // namespace

cordma::task<xrc_route> connect_xrc(cordma::runtime& rt, job what, cordma::connection& beside) {
  cordma::prepared_connection mine =
      rt.prepare_connection(options_over(rt, what, queue_pair_type::xrc_initiator));
  co_await say(rt, beside, 0, mine.info());
  const greeting there = co_await hear(beside);
  cordma::connection initiator = co_await mine.connect(there.text);
  co_return xrc_route{std::move(initiator), there.inbox};
}

cordma::task<> serve_xrc(cordma::runtime& rt, job what, teller tell, cordma::connection beside) {
  cordma::verbs::xrc_domain& domain = rt.open_xrc_domain();
  cordma::shared_receives& pool = rt.share_receives({.buffers = receives(what),
                                                     .buffer_bytes = what.size_bytes,
                                                     .for_messages = true,
                                                     .xrc_domain = &domain});
  cordma::connection_options options = options_over(rt, what, queue_pair_type::xrc_target);
  options.xrc_domain = &domain;
  cordma::prepared_connection mine = rt.prepare_connection(options);
  cordma::local_mr words = rt.memory().allocate_zeroed(xrc_route::greeting_bytes);
  beside.post_recv(words.slice());
  tell({.qpn = beside.peer_qpn()});
  const greeting client = co_await hear(beside);
  co_await say(rt, beside, pool.num(), mine.info());
  const cordma::connection target = co_await mine.connect(client.text);
  const auto taken =
      co_await cordma::as_result(cordma::when_any(take_all(pool, beside), beside.next_message()));
  if (taken.is_cancelled()) throw cordma::cancelled{};
  if (taken.has_failure() && !beside.was_closed_by_peer()) throw cordma::error{taken.failure()};
}

}  // namespace perf
