#include "../linearizability.hpp"
#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

#include <key_value.hpp>

#include <charconv>
#include <map>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

struct open_table : rpc::method<"stored.open", rpc::nothing,
                                std::array<std::byte, remote_mr_slice::encoded_bytes>> {};
struct put_value : rpc::method<"stored.put", std::string> {};

/// A store of values: PUT is a call, GET is a READ. What was put outlives the server's process.
/// Clients and server die and come again.
struct storing : cast {
  using cast::cast;
  static constexpr unsigned operations_of_each = 25;
  static constexpr std::size_t slots = 32;
  std::map<std::string, std::vector<register_operation>> histories;
  std::map<std::string, std::vector<std::byte>> disk;
  std::vector<unsigned> done = std::vector<unsigned>(size());
  std::uint64_t last_value = 0;

  // ---- The server ------------------------------------------------------------------------------

  task<rpc::nothing> store(key_value::table& table, std::string key, rpc::server_call& call) {
    const local_mr value = co_await call.fetch_source(key_value::slot::value_max);
    disk[key].assign(value.bytes().begin(), value.bytes().end());
    table.put(key, value.bytes());
    co_return rpc::nothing{};
  }

  task<> serve(runtime& rt) {
    key_value::table table{rt, slots};
    for (const auto& [key, value] : disk) table.put(key, value);
    rpc::server server;
    server.handle<open_table>(
        [&](rpc::nothing) -> task<open_table::reply> { co_return table.name().encode(); });
    server.handle<put_value>([&](std::string key, rpc::server_call& call) {
      return store(table, std::move(key), call);
    });
    listener listening = rt.listen(at(0));
    co_await when_any(server.serve(listening), until([&] { return !are_running_from(1); }));
  }

  // ---- A client --------------------------------------------------------------------------------

  /// A value is its number and a filler that depends on that.
  static std::string text_of(std::uint64_t value) {
    return std::to_string(value) + std::string(1 + value * 131 % 4000, char('a' + value % 26));
  }
  std::uint64_t value_of(const std::string& text) const {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    require(text == text_of(value), "a value is a mixture");
    return value;
  }

  task<> put(runtime& rt, rpc::client& server, const std::string& key) {
    const std::uint64_t value = ++last_value;
    const std::string text = text_of(value);
    local_mr source = rt.memory().allocate_uninitialized(text.size());
    std::ranges::copy(std::as_bytes(std::span{text}), source.bytes().begin());
    std::vector<register_operation>& history = histories[key];
    const std::size_t number = history.size();
    history.push_back({.begin = time(), .is_write = true, .value = value});
    co_await server.call<put_value>(key, {.timeout = 2s, .source = source});
    history[number].end = time();
  }
  task<> get(key_value::reader& table, const std::string& key) {
    const std::int64_t began = time();
    const std::optional<std::string> text = co_await table.get(key);
    histories[key].push_back(
        {.begin = began, .end = time(), .is_write = false, .value = text ? value_of(*text) : 0});
  }
  [[nodiscard]] std::int64_t time() const { return w.now().time_since_epoch().count(); }

  task<> use_store(runtime& rt, unsigned self) {
    rpc::client server{co_await rt.connect(at(0))};
    const auto name = co_await server.call<open_table>({}, {.timeout = 2s});
    if (server.connection() == nullptr) throw error{{.code = errc::disconnected, .call = "open"}};
    key_value::reader table{*server.connection(), remote_mr_slice::decode(name)};
    while (done[self] < operations_of_each) {
      const std::string key(1, char('a' + w.random(2)));
      ++done[self];
      if (w.random(1) == 0) {
        co_await put(rt, server, key);
      } else {
        co_await get(table, key);
      }
      if (w.random(3) == 0) co_await sleep_for(moment(100ms));
    }
    co_await server.close();
  }

  task<> live(runtime& rt, unsigned self) {
    co_await persist([&] { return self == 0 ? serve(rt) : use_store(rt, self); });
  }
};

}  // namespace

void play_key_value(sim::world& w) {
  const auto all = start_all<storing>(w, 3 + unsigned(w.random(1)));
  for (unsigned host = 0; host < all->size(); ++host)
    restart(all, host, all->moment(2s), all->moment(100ms));
  w.run(2min);
  for (const auto& [key, history] : all->histories)
    all->require(is_linearizable(history), "a key's history is not linearizable");
}

}  // namespace cordma::test
